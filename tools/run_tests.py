"""Runs the C++ tests beside the Python tests, and prints `N passed, N failed` over all as the last line.

The lines before it name each failed check with its place, because a reader of a long log often has only its end.

With LINKSCOPE_TESTS=long (`make test-long`) the C++ tests run with sanitizers too.
"""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAMS = ("core-tests", "gpu-tests", "transfer-tests", "putget-tests", "cuda-tests")


class Result(NamedTuple):
    """The tests of one program. A crash, or a run without any test, is one failure."""

    passed: int
    failed: int
    output: str


def count(pattern: str, text: str) -> int:
    return sum(int(number) for number in re.findall(pattern, text))


def result(status: int, passed: int, failed: int, output: str) -> Result:
    return Result(passed, max(failed, 1) if status else failed, output)


def core_tests(programs: list[str]) -> list[Result]:
    """Runs the C++ programs one after the other, also those after a program that fails."""
    found = []
    for program in programs:
        try:
            done = subprocess.run(
                [program, "--no-colors"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        except OSError as error:
            found.append(Result(0, 1, f"{program}: {error.strerror}\n"))
            continue
        text, ends = done.stdout, f"{program}: exit status {done.returncode}\n" if done.returncode else ""
        passed = count(r"test cases:.*?\| *(\d+) passed", text)
        found.append(
            result(done.returncode, passed, count(r"test cases:.*?passed *\| *(\d+) failed", text), text + ends)
        )
    return found


def python_tests(command: list[str]) -> Result:
    """Runs pytest and prints its output as it comes."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    assert process.stdout is not None
    for line in process.stdout:
        print(line, end="", flush=True)
        lines.append(line)
    status, summary = process.wait(), lines[-1] if lines else ""
    return result(status, count(r"(\d+) passed", summary), count(r"(\d+) (?:failed|error)", summary), "".join(lines))


def failed_checks(text: str) -> list[str]:
    """The lines of doctest and pytest that name a failed check or a failed test."""
    return re.findall(r"^(?:\S+:\d+: (?:FATAL )?ERROR: .*|(?:FAILED|ERROR) \S+::.*)$", text, re.MULTILINE)


def main() -> int:
    # Two workers more than cores, because many tests wait for processes. A file stays on one worker, because its
    # fixtures are made once per file. conftest.py puts the longest files first, so that none is left at the end.
    workers = ["-n", str(len(os.sched_getaffinity(0)) + 2), "--dist", "loadfile", "--no-loadscope-reorder"]
    builds = ["dev", "asan", "tsan"] if os.environ.get("LINKSCOPE_TESTS") == "long" else ["dev"]
    programs = [f"build/{build}/tests/core/{name}" for build in builds for name in PROGRAMS]
    with concurrent.futures.ThreadPoolExecutor(1) as beside:
        core = beside.submit(core_tests, programs)
        python = python_tests([sys.executable, "-m", "pytest", *workers, "--durations=25", *sys.argv[1:]])
        results = [python, *core.result()]
    print("".join(one.output for one in results[1:]), end="")
    for one in results:
        print("".join(f"{line}\n" for line in failed_checks(one.output)), end="")
    failed = sum(one.failed for one in results)
    print(f"{sum(one.passed for one in results)} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
