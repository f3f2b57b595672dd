"""`make test` runs everything, and counts what failed (tools/run_tests.py, conftest.py)."""

import subprocess
import sys
from pathlib import Path

import run_tests

import conftest


def program(path: Path, passed: int, failed: int, status: int) -> str:
    line = f"[doctest] test cases: {passed + failed} | {passed} passed | {failed} failed | 0 skipped"
    path.write_text(f"#!/bin/sh\necho '{line}'\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_every_core_program_runs_and_counts_also_after_one_that_fails(tmp_path: Path) -> None:
    programs = [program(tmp_path / "fails", 3, 2, 1), str(tmp_path / "missing"), program(tmp_path / "passes", 7, 0, 0)]
    assert [one[:2] for one in run_tests.core_tests(programs)] == [(3, 2), (0, 1), (7, 0)]


def test_a_core_program_that_crashes_counts_as_a_failure_and_is_named(tmp_path: Path) -> None:
    (crashed,) = run_tests.core_tests([program(tmp_path / "crashes", 5, 0, 139)])
    assert crashed[:2] == (5, 1) and "crashes: exit status 139" in crashed.output


def test_pytest_without_any_test_counts_as_a_failure(tmp_path: Path) -> None:
    assert run_tests.python_tests(["sh", "-c", "echo no tests ran in 0.01s; exit 5"])[:2] == (0, 1)
    assert run_tests.python_tests(["sh", "-c", "echo '2 failed, 9 passed, 1 error in 3s'; exit 1"])[:2] == (9, 3)


def test_the_last_lines_name_each_failed_check_with_its_place() -> None:
    doctest = "TEST CASE:  x\n\n/a/test_x.cpp:7: ERROR: CHECK( a == b ) is NOT correct!\n  values: CHECK( 1 == 2 )\n"
    fatal = "/a/test_x.cpp:9: FATAL ERROR: REQUIRE( a ) is NOT correct!"
    pytest = "FAILED tests/test_y.py::test_y - assert 1 == 2"
    text = f"{doctest}\n{fatal}\n[doctest] Status: FAILURE!\nE  ERROR: no line of a test\n{pytest}\n1 failed in 2s\n"
    assert run_tests.failed_checks(text) == [doctest.splitlines()[2], fatal, pytest]


def test_commands_of_tests_keep_compiled_modules() -> None:
    words = [sys.executable, "-c", "import sys; sys.exit(sys.flags.dont_write_bytecode)"]
    assert subprocess.run(words).returncode == 0


def test_the_files_that_start_first_exist_and_come_in_their_order(request) -> None:
    here = Path(__file__).parent
    assert [name for name in conftest.LONGEST if not (here / f"test_{name}.py").is_file()] == []
    assert len(set(conftest.LONGEST)) == len(conftest.LONGEST)

    class Item:
        def __init__(self, name: str) -> None:
            self.path = here / name

    items = [Item("test_units.py"), Item(f"test_{conftest.LONGEST[1]}.py"), Item(f"test_{conftest.LONGEST[0]}.py")]
    conftest.pytest_collection_modifyitems(items)
    assert [item.path.name for item in items] == [f"test_{name}.py" for name in conftest.LONGEST[:2]] + [
        "test_units.py"
    ]
