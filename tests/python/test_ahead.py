"""Several processes that measure a simulated machine concurrently write the same run file, even after failures."""

import os
import signal
import subprocess
import sys
import time

import pytest

from campaign import only_long
from fakes import measured, plan, target
from linkscope.run import ahead, passes
from linkscope.runfile import read_run
from processes import children, runs


def written(path, monkeypatch, least: int, **behaviour):
    """The lines of a run except the first and the last. Runs of at least `least` points use several processes."""
    monkeypatch.setattr(passes, "WORTH_IT", least)
    measured(target(**behaviour), plan(suite="quick", rounds=6), path)
    return path.read_text().splitlines()[1:-1]


@pytest.mark.parametrize(
    "behaviour",
    [
        {"noise": 0.02},
        {"flawed": {"unsupported": "*/4096?*#0"}},
        {"flawed": {"wrong": "*/4096?*#2"}},
        {"flawed": {"die": "*/4096?*#1"}},
    ],
    ids=["noise", "unsupported", "wrong data", "dies"],
)
def test_several_processes_write_the_same_file_as_one(tmp_path, monkeypatch, behaviour):
    one = written(tmp_path / "one.jsonl", monkeypatch, 10**9, **behaviour)
    several = written(tmp_path / "several.jsonl", monkeypatch, 1, **behaviour)
    assert several == one and len(one) > 50


@pytest.mark.parametrize("flaw", ["die", "lost"])
def test_a_point_whose_worker_fails_once_is_tried_again(tmp_path, monkeypatch, flaw: str):
    flawed = {"flawed": {flaw: "*/4096?*#1"}, "once": str(tmp_path / "done")}
    written(tmp_path / "several.jsonl", monkeypatch, 1, **flawed)
    points = read_run(tmp_path / "several.jsonl").points
    assert (tmp_path / "done").exists() and not [point.id for point in points if point.status == "failed"]


def test_the_result_of_one_point_is_never_stored_as_that_of_another(tmp_path, monkeypatch):
    encoded = ahead._encoded_chunks
    monkeypatch.setattr(ahead, "_encoded_chunks", lambda tasks: encoded([tasks[1], tasks[0], *tasks[2:]]))
    with pytest.raises(AssertionError, match="out of order"):
        written(tmp_path / "a.jsonl", monkeypatch, 1)


def test_with_a_time_budget_one_process_measures_because_the_order_depends_on_the_time_spent(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "WORTH_IT", 1)
    monkeypatch.setattr(passes, "Ahead", None)  # using it would fail
    measured(target(), plan(suite="quick", budget_s=1e3), tmp_path / "a.jsonl")
    assert read_run(tmp_path / "a.jsonl").points


def test_on_hardware_one_process_measures_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(passes, "WORTH_IT", 1)
    monkeypatch.setattr(passes, "Ahead", None)
    measured(target(modelled=False), plan(suite="quick"), tmp_path / "a.jsonl")
    assert read_run(tmp_path / "a.jsonl").points


def family_of(pid: int) -> set[int]:
    mine = set(children(pid))
    return mine.union(*(family_of(one) for one in mine))


@pytest.mark.parametrize("how", [pytest.param(signal.SIGINT, marks=only_long), signal.SIGKILL])
def test_no_process_outlives_the_command(tmp_path, how):
    """A suite large enough for several processes. Ctrl-C saves the measured points."""
    path = tmp_path / "a.jsonl"
    # The script has no main guard, like an installed command.
    start = "import sys; from linkscope.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", start, "run", "--machine", "h200x1", "--suite", "full", "-o", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while not (path.exists() and path.stat().st_size > 1 << 20) and time.monotonic() < deadline:
        time.sleep(0.05)
    family = family_of(process.pid)
    assert len(family) >= 4  # at least two processes, each with a worker
    process.send_signal(how)
    process.wait(300)
    while (alive := [one for one in family if runs(one)]) and time.monotonic() < deadline + 30:
        time.sleep(0.1)
    assert not alive
    run = read_run(path)
    assert sum(map(len, run.rounds.values())) > 100
    assert (process.returncode == 4) == (how == signal.SIGINT)


def test_a_process_that_is_killed_ends_the_run_with_a_reason(tmp_path):
    path = tmp_path / "a.jsonl"
    command = [sys.executable, "-m", "linkscope", "run", "--machine", "h200x1", "--suite", "full", "-o", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 300
    while not (path.exists() and path.stat().st_size > 1 << 20) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    said = process.communicate(timeout=300)[1]
    assert "Traceback" not in said and process.returncode == 1
    run = read_run(path)
    assert run.end is not None and any("was killed" in (point.reason or "") for point in run.points)
