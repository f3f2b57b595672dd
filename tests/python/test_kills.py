"""`kill -9` of the command or its worker at 20 (50) random moments of runs on a simulated machine loses no record.

Moments are counted in records, so they cover the run on a computer of any speed. The exact time between two records is
random. A killed run is resumed until it ends.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from campaign import sample
from linkscope.errors import UserError
from linkscope.runfile import Point, Run, read_run
from processes import children, runs

WORKER = Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"
KILLS = sample(5, 25)  # of the command; workers get the same number
AT_ONCE = 5  # approximate number of kills in one run
PLAN = ["--machine", "ac922", "--suite", "standard", "--seed", "7", "--only", "d2h/*gpu:1*numa:0*"]
PLAN += ["--only", "d2d/*gpu:0.device->gpu:2*peer=off"]

pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


@dataclass(frozen=True)
class Uninterrupted:
    """The same run without interruption."""

    run: Run
    records: int

    @property
    def points(self) -> dict[str, Point]:
        return {point.id: point for point in self.run.points}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    path = tmp_path_factory.mktemp("whole") / "whole.jsonl"
    assert command("run", *PLAN, "-o", str(path)).wait(300) == 0
    assert len(read_run(path).points) > 40
    return Uninterrupted(read_run(path), records(path))


def command(*words: str, **environment: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "linkscope", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )


def records(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(process: subprocess.Popen, path: Path, wanted: int) -> None:
    """Waits until the file has this many records, or the process ended."""
    while process.poll() is None and records(path) < wanted:
        time.sleep(0.001)


def measured(run: Run) -> list[tuple[str, int]]:
    return [(id, one.round) for id, rounds in run.rounds.items() for one in rounds]


def the_same(run: Run, uninterrupted: Uninterrupted) -> None:
    """Asserts that every point and value is there, and that no round is there twice."""
    assert run.end is not None and run.end.complete and run.warnings == []
    assert {point.id: point for point in run.points} == uninterrupted.points
    assert sorted(measured(run)) == sorted(measured(uninterrupted.run))


def moments(chance: random.Random, uninterrupted: Uninterrupted) -> Iterator[int]:
    """The number of records at each kill: AT_ONCE per run, in order; 0 is during the start."""
    yield from sorted(chance.sample(range(uninterrupted.records), AT_ONCE))


def test_a_killed_command_loses_at_most_the_current_point(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    chance, killed, run_number = random.Random(11), 0, 0
    while killed < KILLS:
        run_number += 1
        path, log = tmp_path / f"{run_number}.jsonl", tmp_path / f"{run_number}.log"
        worker = f"sh -c 'tee -a {log} | {WORKER}'"  # logs the requests to the workers of all sessions
        kills_of_run = 0
        for moment in moments(chance, uninterrupted):
            process = start_or_resume(path, worker)
            wait_for(process, path, moment)
            time.sleep(chance.uniform(0, 0.003))
            before = records(path)
            process.kill()
            if process.wait() == -signal.SIGKILL:
                kills_of_run += 1
            readable(path, before)
        assert start_or_resume(path, worker).wait(300) == 0
        the_same(read_run(path), uninterrupted)
        requests = log.read_bytes().count(b'"op":"prepare"')
        assert len(measured(uninterrupted.run)) <= requests <= len(measured(uninterrupted.run)) + kills_of_run
        killed += kills_of_run
    assert run_number < 4 * KILLS / AT_ONCE


def start_or_resume(path: Path, worker: str) -> subprocess.Popen:
    """Starts again if the first record is incomplete, as the message advises; otherwise resumes."""
    try:
        read_run(path)
    except UserError:
        return command("run", *PLAN, "-o", str(path), "--force", LINKSCOPE_WORKER=worker)
    return command("run", "--resume", str(path), LINKSCOPE_WORKER=worker)


def readable(path: Path, least: int) -> None:
    """Asserts that all records before the signal are readable; only the last line may be truncated."""
    if least:
        run = read_run(path)
        assert len(run.warnings) <= 1
        assert 1 + len(run.points) + len(measured(run)) + len(run.resumes) >= least - (run.end is not None)


def test_killed_workers_lose_no_record(tmp_path: Path, uninterrupted: Uninterrupted) -> None:
    chance, killed, run_number = random.Random(13), 0, 0
    while killed < KILLS:
        run_number += 1
        path = tmp_path / f"{run_number}.jsonl"
        process = command("run", *PLAN, "-o", str(path))
        kills_of_run = again = 0
        for moment in moments(chance, uninterrupted):
            wait_for(process, path, max(moment, again))
            time.sleep(chance.uniform(0, 0.003))
            kills_of_run += sum(killed_now(child) for child in children(process.pid)) if records(path) else 0
            # A point fails after two lost workers. Answers before the signal may still arrive: a round and the points
            # that it concludes, then the round of the lost worker.
            again = records(path) + 6
        assert process.wait(300) == 0
        the_same(read_run(path), uninterrupted)
        killed += kills_of_run
    assert run_number < 4 * KILLS / AT_ONCE


def test_a_killed_command_leaves_no_worker_not_even_one_that_hangs() -> None:
    """Standard input stays open in this process, so only the kernel reports the death of the parent."""
    parent = subprocess.Popen(
        [sys.executable, "-c", f"import subprocess; subprocess.run([{str(WORKER)!r}])"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert parent.stdin is not None and parent.stdout is not None
    parent.stdin.write(b'{"op": "hello"}\n')
    parent.stdin.flush()
    assert parent.stdout.readline().startswith(b"{")
    workers = children(parent.pid)
    assert len(workers) == 1
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 300
    while runs(workers[0]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    parent.stdin.close()


def killed_now(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
