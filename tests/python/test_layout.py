"""Imports follow the layers (design: Layout). A folder may import itself and the layers below it."""

import ast
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]

CORE = {
    "base": set(),
    "program": {"base"},
    "host": {"base"},
    "gpu": {"base", "host"},
    "platform/cuda": {"base", "program", "host", "gpu"},
    "platform/sim": {"base", "program"},
    "benchmarks": {"base", "program"},
    "worker": {"base", "program", "host", "gpu", "platform/cuda", "platform/sim", "benchmarks"},
}
COMMON = {"errors", "units"}
PYTHON = {
    "errors": set(),
    "units": {"errors"},
    "machine": COMMON,
    "runfile": COMMON,
    "stats": COMMON,
    "trace": COMMON | {"runfile"},
    "plan": COMMON | {"machine", "runfile", "stats", "model"},
    "run": COMMON | {"machine", "runfile", "stats", "plan"},
    "selftest": COMMON | {"machine", "runfile", "stats", "plan", "run"},
    "model": COMMON | {"runfile", "stats"},
    "report": COMMON | {"runfile", "stats", "model", "trace", "advise"},
    "compare": COMMON | {"runfile", "stats", "model"},
    "advise": COMMON | {"runfile", "stats", "model"},
    "check": COMMON | {"machine", "runfile", "stats", "plan", "run", "model", "compare"},
    "cli": COMMON
    | {"machine", "runfile", "stats", "trace", "plan", "run", "selftest", "report", "compare", "advise", "model"}
    | {"check"},
}


def layer(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "platform" else parts[0]


def core_includes() -> list[tuple[str, str]]:
    found = []
    for file in sorted((ROOT / "core").rglob("*.[hc]*")):
        relative = file.relative_to(ROOT / "core").as_posix()
        for include in re.findall(r'#include "([^"]+)"', file.read_text()):
            found.append((relative, include))
    return found


def python_imports() -> list[tuple[str, str]]:
    found = []
    source = ROOT / "src" / "linkscope"
    for file in sorted(source.rglob("*.py")):
        relative = file.relative_to(source).as_posix()
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                # `from linkscope import x` imports the module x; `from linkscope.a import b` uses a.
                module = node.module or ""
                names = [f"linkscope.{a.name}" for a in node.names] if module == "linkscope" else [module]
            found += [(relative, name.split(".")[1]) for name in names if name.startswith("linkscope.")]
    return found


def test_core_includes_follow_the_layers() -> None:
    wrong = [
        f"{file} includes {include}"
        for file, include in core_includes()
        if layer(include) != layer(file) and layer(include) not in CORE[layer(file)]
    ]
    assert not wrong


def test_python_imports_follow_the_layers() -> None:
    def place(file: str) -> str:
        return file.split("/")[0].removesuffix(".py")

    wrong = [
        f"{file} imports {name}"
        for file, name in python_imports()
        if place(file) in PYTHON and name != place(file) and name not in PYTHON[place(file)]
    ]
    assert not wrong


@pytest.mark.parametrize("found, least", [(core_includes, 20), (python_imports, 20)])
def test_the_rules_cover_the_code(found, least) -> None:
    assert len(found()) >= least


def test_cuda_headers_stay_in_the_rooms_that_use_the_driver() -> None:
    users = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "core").rglob("*.[hc]*")
        if re.search(r"#include <cuda", file.read_text())
    ]
    assert users and all(user.startswith(("core/gpu/", "core/platform/cuda/")) for user in users)
