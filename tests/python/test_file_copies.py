"""Copies of real files: `linkscope run file_copies --directory DIR` on the fake driver, and what it refuses."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake, needs_worker, too_short
from linkscope.cli.main import main
from linkscope.runfile import Run, read_run

pytestmark = [needs_fake, needs_worker]

ONE = "file_copies/*/1048576[?]bidirectional=false&*chunk=1MiB&mode=batched*"


def command(folder: Path, *more: str) -> list[str]:
    start = [sys.executable, "-m", "linkscope", "run", "--suite", "full", "--only", ONE, "--directory", str(folder)]
    return [*start, "--contexts", "any", "--precision", "99%", *more]


def run(folder: Path, path: Path, *more: str) -> Run:
    done = subprocess.run(
        command(folder, "-o", str(path), *more), env=environment(), capture_output=True, text=True, timeout=300
    )
    measured = read_run(path)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert all(one.status != "failed" or too_short(one) for one in measured.points), done.stdout
    return measured


def test_files_of_a_directory_are_measured_in_both_directions_and_leave_nothing(tmp_path) -> None:
    folder = tmp_path / "a" / "b;->c d"  # a path that ids must escape
    folder.mkdir(parents=True)
    hot = ("--only", "file_copies/*/16777216[?]*cache=hot*chunk=1MiB*")
    points = run(folder, tmp_path / "run.jsonl", "--rounds", "1", *hot).points
    disk = f"disk:{folder}"
    assert {(one.src, one.dst, "cache=hot" in one.id) for one in points} == {
        (*ends, hot) for ends in ((disk, "gpu:0"), ("gpu:0", disk)) for hot in (False, True)
    }
    for one in points:
        assert one.verified or too_short(one) or "choose cache=hot" in (one.reason or ""), one.reason
        if one.verified:
            share = "100.0 % cached" if "cache=hot" in one.id else "0.0 % cached"
            assert one.guards[f"page cache {disk}"] == share
    assert list(folder.iterdir()) == []


def test_several_requests_in_flight_move_every_byte_and_a_missing_cufile_is_named(tmp_path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    more = ("--only", "file_copies/*/16777216[?]*depth=4*", "--only", "file_direct/*/1048576*", "--rounds", "1")
    points = run(folder, tmp_path / "run.jsonl", *more).points
    deep = [one for one in points if one.params.get("depth") == "4"]
    direct = [one for one in points if one.benchmark == "file_direct"]
    assert len(deep) == 2 and len(direct) == 2
    for one in deep:
        refused = ("choose cache=hot", "the kernel refuses io_uring")
        assert one.verified or too_short(one) or any(why in (one.reason or "") for why in refused), one.reason
    for one in direct:
        assert one.status == "unsupported" and "libcufile.so.0 cannot be loaded" in (one.reason or "")
    assert list(folder.iterdir()) == []


def test_mapped_files_are_measured_by_several_threads_and_leave_nothing(tmp_path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    chosen = ("--only", "file_mapped/*/16777216[?]*", "--only", "file_mapped/*/134217728[?]*chunk=4MiB*threads=2")
    points = run(folder, tmp_path / "run.jsonl", *chosen, "--rounds", "1").points
    mapped = [one for one in points if one.benchmark == "file_mapped"]
    assert {one.params["threads"] for one in mapped} == {"1", "2"}
    for one in mapped:
        assert one.verified or too_short(one), one.reason
        assert one.guards[f"page cache disk:{folder}"] == "100.0 % cached"
    assert list(folder.iterdir()) == []


def test_a_worker_that_is_killed_leaves_no_file(tmp_path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    running = subprocess.Popen(
        command(folder, "-o", str(tmp_path / "run.jsonl"), "--rounds", "200"), env=environment(), stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 300
    while not (holds := _holds_a_file(running.pid, folder)) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert holds
    running.kill()
    running.communicate()
    assert list(folder.iterdir()) == []


def _holds_a_file(pid: int, folder: Path) -> bool:
    """Whether a child of the process has a file of the folder open. Such a file has no name there."""
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in task.read_text().split():
            for link in Path(f"/proc/{child}/fd").glob("*"):
                try:
                    if str(link.readlink()).startswith(f"{folder}/"):
                        return True
                except OSError:
                    continue
    return False


def test_an_interrupted_run_of_files_is_resumed_with_its_plan(tmp_path) -> None:
    path, folder = tmp_path / "run.jsonl", tmp_path
    whole = run(folder, path, "--rounds", "1")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if '"record":"point"' not in line and '"record":"end"' not in line))
    again = [sys.executable, "-m", "linkscope", "run", "--resume", str(path)]
    done = subprocess.run(again, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert [one.id for one in read_run(path).points] == [one.id for one in whole.points]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["file_copies", "--directory", "/nonexistent"], 3, "this is not a directory in which files can be made"),
        (["file_copies", "--directory", __file__], 3, "this is not a directory in which files can be made"),
        (["h2d", "--machine", "jorda-a", "--directory", "/tmp"], 2, "a model, whose disks have no directories"),
    ],
)
def test_directories_that_cannot_be_used_are_refused(capsys, arguments, code, message) -> None:
    assert main(["run", *arguments]) == code
    assert message in capsys.readouterr().err


def test_a_directory_without_copies_of_files_is_refused_with_the_cure(tmp_path) -> None:
    words = [sys.executable, "-m", "linkscope", "run", "h2d", "--directory", str(tmp_path)]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "no copy of a file is chosen; add file_copies" in done.stderr
