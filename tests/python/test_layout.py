"""Imports follow the layers: a folder imports itself and the layers below it. CMake and the drawing agree."""

import ast
import functools
import itertools
import json
import pathlib
import re
import shlex
import subprocess

import pytest

from fake_driver import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]

CORE = {
    "base": set(),
    "program": {"base"},
    "host": {"base"},
    "mpi": {"base"},
    "ucx": {"base"},
    "nixl": {"base"},
    "nccl": {"base"},
    "gpu": {"base", "host"},
    "platform/cuda": {"base", "program", "host", "gpu", "mpi", "nccl", "ucx", "nixl"},
    "platform/sim": {"base", "program"},
    "benchmarks": {"base", "program"},
    "transfer": {"base", "host", "gpu"},
    "putget": {"base", "host", "gpu", "transfer"},
    "capi": {"base", "host", "gpu", "transfer", "putget"},
    "worker": {
        "base",
        "program",
        "host",
        "gpu",
        "mpi",
        "nccl",
        "ucx",
        "nixl",
        "platform/cuda",
        "platform/sim",
        "benchmarks",
    },
}
COMMON = {"errors", "units", "flow"}
PYTHON = {
    "errors": set(),
    "units": {"errors"},
    "flow": {"errors", "units"},
    "machine": COMMON,
    "runfile": COMMON,
    "stats": COMMON,
    "trace": COMMON | {"runfile"},
    "plan": COMMON | {"machine", "runfile", "stats", "model"},
    "run": COMMON | {"machine", "runfile", "stats", "plan"},
    "selftest": COMMON | {"machine", "runfile", "stats", "plan", "run"},
    "model": COMMON | {"runfile", "stats"},
    "report": COMMON | {"runfile", "stats", "model", "trace", "advise"},
    "site": COMMON | {"runfile", "stats", "model", "report"},
    "compare": COMMON | {"runfile", "stats", "model", "report"},
    "advise": COMMON | {"runfile", "stats", "model"},
    "explain": COMMON | {"runfile"},
    "native": {"errors"},
    "tune": COMMON | {"stats", "native"},
    "transfer": {"errors", "native"},
    "reading": {"native"},
    "safetensors": {"errors", "native", "reading", "transfer"},
    "check": COMMON | {"machine", "runfile", "stats", "plan", "run", "model", "compare"},
    "cli": COMMON
    | {"machine", "runfile", "stats", "trace", "plan", "run", "selftest", "report", "compare", "advise", "model"}
    | {"check", "explain", "tune", "native", "site"},
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


@functools.cache
def nodes_of(file: pathlib.Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(file.read_text())))


def python_imports() -> list[tuple[str, str]]:
    found = []
    source = ROOT / "src" / "linkscope"
    for file in sorted(source.rglob("*.py")):
        relative = file.relative_to(source).as_posix()
        for node in nodes_of(file):
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


# --- sizes: a reader can hold a file, a function and its parameters in mind -------------------------------------------

MOST_LINES, MOST_LINES_OF_FUNCTION, MOST_PARAMETERS = 450, 50, 6


def python_files() -> list[pathlib.Path]:
    return sorted([*(ROOT / "src" / "linkscope").rglob("*.py"), *(ROOT / "tools").rglob("*.py")])


def python_functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Every function with its place in the repository."""
    return [
        (f"{file.relative_to(ROOT).as_posix()}:{node.lineno} {node.name}", node)
        for file in python_files()
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def parameters_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    of = function.args
    named = [*of.posonlyargs, *of.args, *of.kwonlyargs]
    return sum(one.arg not in ("self", "cls") for one in named) + (of.vararg is not None) + (of.kwarg is not None)


def test_no_python_file_is_longer_than_450_lines() -> None:
    lengths = {file.relative_to(ROOT).as_posix(): len(file.read_text().splitlines()) for file in python_files()}
    assert lengths and {name: count for name, count in lengths.items() if count > MOST_LINES} == {}


def test_no_python_function_is_longer_than_50_lines() -> None:
    lengths = {name: (node.end_lineno or 0) - node.lineno + 1 for name, node in python_functions()}
    assert lengths and {name: count for name, count in lengths.items() if count > MOST_LINES_OF_FUNCTION} == {}


def test_no_python_function_has_more_than_six_parameters() -> None:
    """Keyword-only parameters count as well."""
    counts = {name: parameters_of(node) for name, node in python_functions()}
    assert counts and {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}


# --- the drawing in CONTRIBUTING.md, CMake's targets and the compiler -------------------------------------------------


def drawn_rooms() -> dict[str, set[str]]:
    """The rooms of the drawing, each with the rooms below it: boxes of later lines that overlap its columns."""
    section = (ROOT / "CONTRIBUTING.md").read_text().split("**The rooms of core.**")[1]
    boxes = []
    for row, line in enumerate(section.split("```")[1].splitlines()):
        walls = [column for column, letter in enumerate(line) if letter == "|"]
        for left, right in itertools.pairwise(walls):
            name = line[left + 1 : right].strip()
            if re.fullmatch(r"[a-z/]+", name):
                boxes.append((name, row, left, right))
    return {
        name: {other for other, below, start, end in boxes if below > row and start < right and end > left}
        for name, row, left, right in boxes
    }


def room_of_target() -> dict[str, str]:
    """CMake's targets of core, each with its folder."""
    text = (ROOT / "CMakeLists.txt").read_text()
    return dict(re.findall(r"^room(?:_headers)?\(([\w-]+) ([\w/]+)\)", text, re.MULTILINE))


def cmake_rooms() -> dict[str, set[str]]:
    """The folders of CMake's targets, each with the folders of the targets that it links."""
    text, folders = (ROOT / "CMakeLists.txt").read_text(), room_of_target()
    links: dict[str, set[str]] = {folder: set() for folder in folders.values()}
    for target, names in re.findall(r"^target_link_libraries\(([\w-]+) \w+ ([^)]*)\)", text, re.MULTILINE):
        links[folders[target]] |= {folders[name] for name in names.split() if name in folders}
    return links


@functools.cache
def preprocessor_of(room: str) -> list[str]:
    """The compiler's command for a source of a room, with its include folders, for a source on standard input."""
    for entry in json.loads((BUILD / "compile_commands.json").read_text()):
        target = re.search(r"/CMakeFiles/([\w-]+)\.dir/", entry["output"])
        if target and room_of_target().get(target[1]) == room:
            compiler, *words = shlex.split(entry["command"])
            folders = [word for word in words if word.startswith("-I")]
            for flag, folder in itertools.pairwise(words):
                folders += [flag, folder] if flag == "-isystem" else []
            return [compiler, "-std=c++20", "-E", "-x", "c++", *folders, "-"]
    raise AssertionError(f"{BUILD} compiles no source of core/{room}")


def preprocess(room: str, headers: list[str]) -> subprocess.CompletedProcess[str]:
    text = "".join(f'#include "{header}"\n' for header in headers)
    return subprocess.run(preprocessor_of(room), input=text, capture_output=True, text=True, timeout=300)


def headers_of(room: str) -> list[str]:
    return [file.relative_to(ROOT / "core").as_posix() for file in sorted((ROOT / "core" / room).glob("*.h*"))]


def test_the_drawing_shows_the_layers() -> None:
    assert drawn_rooms() == CORE


def test_cmake_links_the_rooms_of_the_drawing() -> None:
    assert cmake_rooms() == drawn_rooms()


needs_build = pytest.mark.skipif(
    not (BUILD / "compile_commands.json").is_file(), reason=f"{BUILD} is not built; 'make build-tests' builds it"
)


@needs_build
@pytest.mark.parametrize("room", CORE)
def test_the_compiler_finds_the_headers_of_rooms_below(room: str) -> None:
    headers = [header for other in (room, *CORE[room]) for header in headers_of(other)]
    found = preprocess(room, headers)
    assert headers and found.returncode == 0, found.stderr


@needs_build
@pytest.mark.parametrize("room", [room for room in CORE if room != "worker"])
def test_an_include_of_another_room_fails_to_compile(room: str) -> None:
    for other in CORE.keys() - CORE[room] - {room}:
        header = headers_of(other)[0]
        failed = preprocess(room, [header])
        assert failed.returncode != 0 and header in failed.stderr, f"core/{room} can include core/{other}"
