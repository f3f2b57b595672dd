"""The cache flush of other processors: it compiles for them and consists of the right instructions.

The flush of this machine is measured (tests/core/test_host.cpp, `linkscope selftest`). For others the test needs a
cross compiler of Debian (g++-aarch64-linux-gnu, g++-powerpc64le-linux-gnu).
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "core"
HOST = CORE / "host"
# By file: the compiler, and the instructions in their order: a barrier, the flush of each line, and a barrier.
PROCESSORS = {
    "flush_arm.cpp": ("aarch64-linux-gnu-g++", ["dsb sy", "dc civac", "dsb sy"]),
    "flush_power.cpp": ("powerpc64le-linux-gnu-g++", ["sync", "dcbf 0", "sync", "isync"]),
}


def written(file: str) -> list[str]:
    """The instructions of the assembler statements in the file's flush function, in order."""
    text = (HOST / file).read_text()
    statements = re.findall(r'asm volatile\("([^"]*)"', text)
    return [re.split(r",| %", one.strip())[0] for statement in statements for one in statement.split(";")]


@pytest.mark.parametrize("file", PROCESSORS)
def test_the_flush_consists_of_the_instructions_that_reach_memory(file):
    assert written(file) == PROCESSORS[file][1]


@pytest.mark.parametrize("file", PROCESSORS)
def test_the_flush_compiles_for_its_processor(file, tmp_path):
    compiler, instructions = PROCESSORS[file]
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}: install g++-{compiler.removesuffix('-g++')}")
    made = tmp_path / "flush.s"
    command = [compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", "-I", str(CORE), "-S", str(HOST / file)]
    subprocess.run([*command, "-o", str(made)], check=True, timeout=300)
    assembler = re.sub(r"\s+", " ", made.read_text())
    start = assembler.index("flush_cpu_caches")
    for instruction in instructions:
        start = assembler.index(instruction, start) + 1


@pytest.mark.parametrize("compiler", sorted(compiler for compiler, _ in PROCESSORS.values()))
def test_each_processor_has_exactly_one_flush(compiler, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}: install g++-{compiler.removesuffix('-g++')}")
    defined = []
    for source in sorted(HOST.glob("flush_*.cpp")):
        made = tmp_path / f"{source.stem}.s"
        command = [compiler, "-std=c++20", "-I", str(CORE), "-S", str(source), "-o", str(made)]
        subprocess.run(command, check=True, timeout=300)
        defined += [source.name] if "flush_cpu_caches" in made.read_text() else []
    assert defined == [file for file, (name, _) in PROCESSORS.items() if name == compiler]
