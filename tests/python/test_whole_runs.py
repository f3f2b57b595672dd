"""Complete commands on simulated machines: reproducible files, Ctrl-C, budgets, progress, refused resumes."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import H2D, header, measured, plan, target
from linkscope.cli.main import main
from linkscope.plan import make_plan
from linkscope.run import Controls, StopFlag, benchmark_table, measure
from linkscope.run.progress import Silent, WorkLeft
from linkscope.run.target import choose
from linkscope.runfile import End, RunWriter, read_run
from processes import children

WORKER = Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"
SOME = ["h2d/*numa:0.*gpu:3*", "d2d/*gpu:0.device->gpu:3*", "h2h/*", "local/*gpu:2*"]

pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


def run_command(path: Path, *words: str, only: list[str] = SOME, suite: str = "quick") -> list[str]:
    globs = [word for glob in only for word in ("--only", glob)]
    return ["run", "--machine", "ac922", "--suite", suite, *globs, "-o", str(path), "--json", *words]


def timeless(path: Path) -> list[dict]:
    """The records without fields that may differ between two runs of one seed."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    del records[0]["started"], records[-1]["wall_s"]
    return records


# One seed


def test_one_seed_gives_one_file_and_another_seed_another(tmp_path: Path, capsys) -> None:
    a, b, c = (tmp_path / f"{name}.jsonl" for name in "abc")
    for path, seed in ((a, "5"), (b, "5"), (c, "6")):
        assert main(run_command(path, "--seed", seed)) == 0
    assert timeless(a) == timeless(b)
    assert list(map(list, timeless(a))) == list(map(list, timeless(b)))  # including the order of the fields
    other = {point.id: point.median_s for point in read_run(c).points}
    assert all(point.median_s != other[point.id] for point in read_run(a).points)


def test_another_order_of_the_points_changes_no_value(tmp_path: Path, capsys) -> None:
    a, b = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    assert main(run_command(a, "--seed", "5")) == 0
    machine = choose("ac922", 5)
    ordered = make_plan(machine.facts, benchmark_table(), suite="quick", only=SOME, seed=5, order_seed=99)
    assert measure(machine, ordered, b).exit_code == 0
    one, other = timeless(a), timeless(b)
    assert [one[0]["plan"].pop("order_seed"), other[0]["plan"].pop("order_seed")] == [5, 99]
    assert one[0] == other[0] and one[-1] == other[-1]
    assert one != other  # the order differs
    assert sorted(map(json.dumps, one)) == sorted(map(json.dumps, other))


# Ctrl-C


ANSWERED = 600  # requests; the run needs 2000


def interrupted(path: Path, times: int) -> subprocess.CompletedProcess:
    """A run that is stopped like from a terminal, with a signal to its process group, once it has 60 records.

    The first two signals come at once, further ones when the last record is written and the run is ending. Its worker
    answers many requests and no later ones, so that the run cannot end before the signals.
    """
    command = run_command(path, only=["d2d/*gpu:0*"], suite="standard")
    command.remove("--json")
    silent_later = f"sh -c '(sed -u {ANSWERED}q; cat > /dev/null) | {WORKER}'"
    process = subprocess.Popen(
        [sys.executable, "-m", "linkscope", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "LINKSCOPE_WORKER": silent_later},
    )

    def wait_for(there: Callable[[bytes], bool]) -> None:
        while process.poll() is None and not (path.exists() and there(path.read_bytes())):
            time.sleep(0.002)

    wait_for(lambda records: records.count(b"\n") >= 60)
    workers = children(process.pid)
    for press in range(times):
        if press == 2:
            wait_for(lambda records: b'{"record":"end"' in records)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
    output, errors = process.communicate(timeout=300)
    assert workers and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


@pytest.mark.parametrize("times", [1, 2, 5])
def test_ctrl_c_saves_the_measured_points_and_prints_how_to_resume(tmp_path: Path, times: int) -> None:
    path = tmp_path / "a.jsonl"
    done = interrupted(path, times)
    assert done.returncode == 4
    assert re.search(rf"stopped early; continue with: .*linkscope run --resume {re.escape(str(path))}\n", done.stdout)
    assert "Traceback" not in done.stderr and "linkscope:" not in done.stderr
    run = read_run(path)
    assert run.warnings == [] and run.end is not None and not run.end.complete
    assert {point.id for point in run.points} == set(run.rounds)
    assert 0 < sum(map(len, run.rounds.values())) < 6 * len(run.header.plan["points"])


def test_a_process_that_is_ending_ignores_further_signals() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        with StopFlag(last=True) as unasked:
            pass
        assert not unasked() and signal.getsignal(signal.SIGINT) is before[0]
        with StopFlag() as other:
            os.kill(os.getpid(), signal.SIGINT)
        assert other() and signal.getsignal(signal.SIGINT) is before[0]
        with StopFlag(last=True) as last:
            os.kill(os.getpid(), signal.SIGINT)
        assert last()
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)  # no exception, no exit
    finally:
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
            signal.signal(number, handler)


def test_a_run_stopped_by_ctrl_c_resumes_to_the_result_of_an_uninterrupted_run(tmp_path: Path, capsys) -> None:
    path, uninterrupted = tmp_path / "a.jsonl", tmp_path / "whole.jsonl"
    interrupted(path, 1)
    assert main(["run", "--resume", str(path), "--json"]) == 0
    assert main(run_command(uninterrupted, only=["d2d/*gpu:0*"], suite="standard")) == 0
    assert {point.id: point for point in read_run(path).points} == {
        point.id: point for point in read_run(uninterrupted).points
    }
    assert read_run(path).end.complete


# Budgets


def test_a_budget_ends_the_run_in_time_and_every_point_has_its_reason(tmp_path: Path, capsys) -> None:
    uninterrupted, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    assert main(run_command(uninterrupted)) == 0
    total = sum(one.device_s for rounds in read_run(uninterrupted).rounds.values() for one in rounds)
    assert main(run_command(part, "--budget", f"{total / 3:.6f}s")) == 0
    run = read_run(part)
    spent = sum(one.device_s for rounds in run.rounds.values() for one in rounds)
    # The first rounds left time for others. The last point may take slightly longer than before.
    assert 0.9 * total / 3 < spent <= 1.01 * total / 3 and run.end.complete
    assert [point.id for point in run.points if point.status == "ok"]
    assert {point.id for point in run.points} == {point.id for point in read_run(uninterrupted).points}
    short = [point for point in run.points if len(run.rounds.get(point.id, ())) < 6]
    assert short and all("budget" in point.reason for point in short)


def test_on_hardware_a_budget_is_wall_time(tmp_path: Path, monkeypatch) -> None:
    """Each record costs a second here. The cost of the next round is that of the last one."""
    path = tmp_path / "a.jsonl"
    monkeypatch.setattr("linkscope.run.budget.time", Clock(lambda: float(path.read_bytes().count(b"\n"))))
    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda gpus: NoMonitor())
    wanted = [H2D.format(8 << n, "false", "batched") for n in range(10)]
    assert measured(target(modelled=False), plan(*wanted, budget_s=40.0), path).exit_code == 0
    run = read_run(path)
    rounds_measured = sum(len(rounds) for rounds in run.rounds.values())
    assert 20 <= rounds_measured <= 40 and len(run.points) == 10
    short = [point for point in run.points if len(run.rounds.get(point.id, ())) < 6]
    assert short and all("budget of 40 s" in point.reason for point in short)


class Clock:
    """Replaces the module `time`."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self.monotonic = monotonic


class NoMonitor:
    def guards(self, places: list[str], since: float) -> dict:
        return {}

    def stop(self) -> None: ...


# Progress


def forecasts_of(path: Path, **wishes: object) -> list[WorkLeft]:
    """The forecasts after every round of a point of a small run."""
    forecasts: list[WorkLeft] = []

    class Recording(Silent):
        def tick(self, left: Callable[[], WorkLeft]) -> None:
            forecasts.append(left())

    machine = choose("h200x4", 1)
    made = make_plan(machine.facts, benchmark_table(), suite="quick", only=["h2d/*gpu:1*"], **wishes)
    measure(machine, made, path, controls=Controls(Recording()))
    assert forecasts[0].points == len(made.points)
    return forecasts


def test_the_remaining_work_falls_to_zero(tmp_path: Path) -> None:
    forecasts = forecasts_of(tmp_path / "a.jsonl", precision=0.2)
    assert [work.share for work in forecasts] == sorted(work.share for work in forecasts)
    assert forecasts[-1].points == 0 and forecasts[-1].share == pytest.approx(1.0) and forecasts[-1].left_s == 0.0
    assert list(dict.fromkeys(work.stage for work in forecasts)) == [f"round {n} of 6" for n in range(1, 7)]


def test_extra_rounds_do_not_reduce_the_share(tmp_path: Path) -> None:
    forecasts = forecasts_of(tmp_path / "a.jsonl", precision=0.005)
    assert [work.share for work in forecasts] == sorted(work.share for work in forecasts)
    base = [work for work in forecasts if work.stage.startswith("round")]
    extra = [work for work in forecasts if work.stage.startswith("extra round")]
    assert len(extra) > 3 and extra[0].points > 0 and base[-1].share < 0.95
    assert extra[0].share - base[-1].share < 0.1 and extra[-1].share == pytest.approx(1.0)


# Refused and repeated resumes


def test_a_run_of_another_machine_is_resumed_on_its_own_machine(tmp_path: Path, capsys) -> None:
    path = tmp_path / "a.jsonl"
    other_machine = header()
    other_machine.modelled = False
    other_machine.machine = {"name": "elsewhere", "gpus": [{"index": 0, "uuid": "GPU-of-another-node"}]}
    other_machine.plan = {"seed": 1}
    RunWriter.create(path, other_machine).close()
    before = path.read_bytes()
    assert main(["run", "--resume", str(path)]) == 3
    message = capsys.readouterr().err
    assert "measured on another machine (GPU-of-another-node; here: " in message and "resume it there" in message
    assert message.count("\n") == 1 and path.read_bytes() == before


def test_a_finished_run_keeps_its_exit_code(tmp_path: Path, capsys) -> None:
    path = tmp_path / "a.jsonl"
    assert measured(target(flawed={"wrong": "*"}), plan(H2D.format(8, "false", "batched")), path).exit_code == 1
    before = path.read_bytes()
    assert isinstance(read_run(path).end, End)
    assert main(["run", "--resume", str(path), "--json"]) == 1
    assert "is complete" in capsys.readouterr().err and path.read_bytes() == before
