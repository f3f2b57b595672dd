"""Runs the C++ tests and the Python tests, and ends by printing `N passed, N failed` over both."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command: list[str]) -> tuple[int, str]:
    """Runs a command in the tree, shows what it prints and returns it."""
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
    core_status, core = run(["build/dev/tests/core/core-tests", "--no-colors"])
    # Two at once, a file to one of them: more would wait for each other's CPUs, and what a file sets up is made once.
    together = ["-n", "2", "--dist", "loadfile"]
    python_status, python = run([sys.executable, "-m", "pytest", *together, *sys.argv[1:]])
    python_summary = python.strip().splitlines()[-1] if python.strip() else ""
    passed = count(r"test cases:.*?\| *(\d+) passed", core) + count(r"(\d+) passed", python_summary)
    failed = count(r"passed *\| *(\d+) failed", core.split("assertions:")[0])
    failed += count(r"(\d+) (?:failed|error)", python_summary)
    if (core_status or python_status) and failed == 0:
        failed = 1  # a crash, or nothing collected, is a failure although nobody counted it
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
