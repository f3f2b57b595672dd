"""Runs the C++ tests beside the Python tests, and prints `N passed, N failed` over all as the last line.

With LINKSCOPE_TESTS=long (`make test-long`) the C++ tests run with sanitizers too.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
from typing import IO

ROOT = pathlib.Path(__file__).resolve().parent.parent


def start(command: list[str], output: IO[str]) -> subprocess.Popen[str]:
    """Starts a command in the tree; its output goes to `output`."""
    return subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, text=True)


def run(command: list[str]) -> tuple[int, str]:
    """Runs a command in the tree, prints its output and returns it with the exit status."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    return process.wait(), "".join(lines)


def count(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text))


def main() -> int:
    # One worker more than cores, because many tests wait for processes. A file stays on one worker, because its
    # fixtures are made once per file.
    workers = ["-n", str(len(os.sched_getaffinity(0)) + 1), "--dist", "loadfile", "--durations=25"]
    builds = ["dev", "asan", "tsan"] if os.environ.get("LINKSCOPE_TESTS") == "long" else ["dev"]
    names = ("core-tests", "gpu-tests", "transfer-tests", "putget-tests", "cuda-tests")
    programs = [f"build/{build}/tests/core/{name}" for build in builds for name in names]
    core_commands = " && ".join(f"{program} --no-colors" for program in programs)
    with tempfile.TemporaryFile("w+") as core_output:
        core_tests = start(["sh", "-c", core_commands], core_output)
        python_status, python = run([sys.executable, "-m", "pytest", *workers, *sys.argv[1:]])
        core_status = core_tests.wait()
        core_output.seek(0)
        core = core_output.read()
    print(core, end="")
    python_summary = python.strip().splitlines()[-1] if python.strip() else ""
    passed = count(r"test cases:.*?\| *(\d+) passed", core) + count(r"(\d+) passed", python_summary)
    failed = count(r"test cases:.*?passed *\| *(\d+) failed", core)
    failed += count(r"(\d+) (?:failed|error)", python_summary)
    if (core_status or python_status) and failed == 0:
        failed = 1  # a crash, or a run without any test, counts as one failure
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
