"""The supervisor in difficult cases: budgets across a resume, monitoring, order of points."""

import itertools
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from fakes import FAKE_WORKER, H2D, facts, measured, no_worker_opens_after, plan, round_record, target
from linkscope.errors import SOMETHING_FAILED
from linkscope.plan import Plan, most_memory
from linkscope.plan.classes import PathClass
from linkscope.plan.interference import Together
from linkscope.run import Controls, Outcome, Target, go_on, measure
from linkscope.run.assemble import Assembler
from linkscope.run.batches import Task
from linkscope.run.interrupt import StopFlag
from linkscope.run.monitor import State, _summary
from linkscope.run.passes import Passes
from linkscope.run.progress import Silent
from linkscope.run.sampler import Sampler
from linkscope.run.services import Services
from linkscope.run.states import Ledger
from linkscope.run.worker import Worker
from linkscope.runfile import Point, PointId, Round, RunWriter, read_run

ONE = H2D.format(8, "false", "batched")
MIB = H2D.format(1 << 20, "false", "batched")
LARGE = H2D.format(64 << 20, "false", "batched")


def spent(path: Path) -> float:
    return sum(one.device_s for rounds in read_run(path).rounds.values() for one in rounds)


def test_a_resumed_run_keeps_the_budget_of_the_uninterrupted_run(tmp_path) -> None:
    uninterrupted, path = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    measured(target(), plan(suite="quick"), uninterrupted)
    measured(target(), plan(suite="quick", budget_s=spent(uninterrupted) / 2), path)
    at_once = spent(path)
    lines = path.read_bytes().splitlines(keepends=True)
    rounds = [line for line in lines[1:] if b'"record":"round"' in line]
    path.write_bytes(lines[0] + b"".join(rounds[: len(rounds) * 3 // 4]))
    assert spent(path) < 0.9 * at_once
    assert go_on(target(), read_run(path), command=FAKE_WORKER).complete
    assert spent(path) == pytest.approx(at_once, rel=0.03)  # by then the cost of a round is known better


def records(path: Path) -> list[bytes]:
    """All rounds and points of a file, in any order."""
    kinds = (b'{"record":"round"', b'{"record":"point"')
    return sorted(line for line in path.read_bytes().splitlines() if line.startswith(kinds))


@pytest.mark.parametrize("classes", [True, False], ids=["classes", "no classes"])
@pytest.mark.parametrize("flawed", [{}, {"wrong": "*#4"}, {"unsupported": "*#4"}], ids=lambda flawed: "".join(flawed))
def test_a_run_cut_off_after_any_record_resumes_to_the_same_records(tmp_path, flawed: dict, classes: bool) -> None:
    """No record is lost or doubled, and no decision is added for a point, which would be ok after 12 rounds."""
    uninterrupted, part, id = tmp_path / "whole.jsonl", tmp_path / "part.jsonl", H2D.format(4096, "false", "batched")
    made, where = plan(id, precision=0.02, budget_s=1e4), target(noise=0.02, flawed=flawed)
    if classes:
        made = structs.replace(made, classes=[PathClass("host to GPU", ["numa:0->gpu:0"])], early=True)
    measured(where, made, uninterrupted)
    rounds = read_run(uninterrupted).rounds[id]
    if classes and not flawed:
        assert len(rounds) == 22 and Assembler(made, facts(), lambda point: None).point(id, rounds[:12]).status == "ok"
    lines = uninterrupted.read_bytes().splitlines(keepends=True)
    for count in range(1, len(lines)):
        part.write_bytes(b"".join(lines[:count]))
        assert go_on(where, read_run(part), command=FAKE_WORKER).complete
        assert records(part) == records(uninterrupted), count


class StopsAfter(Silent):
    """Requests a stop after this number of rounds."""

    def __init__(self, rounds: int) -> None:
        self.left, self.flag = rounds, StopFlag()

    def record(self, record: Round | Point) -> None:
        self.left -= isinstance(record, Round)
        if self.left == 0:
            self.flag.ask()


def stopped_after(rounds: int, where: Target, made: Plan, path: Path) -> Outcome:
    progress = StopsAfter(rounds)
    return measure(where, made, path, command=FAKE_WORKER, controls=Controls(progress, progress.flag))


def test_a_stopped_point_that_is_precise_by_chance_gets_its_planned_rounds(tmp_path) -> None:
    """After 12 rounds, and after 15 to 21, the point is ok and could end, but after 6 rounds 22 were planned."""
    id = H2D.format(4096, "false", "batched")
    made, where = plan(id, precision=0.02, budget_s=1e4), target(noise=0.02)
    made = structs.replace(made, classes=[PathClass("host to GPU", ["numa:0->gpu:0"])], early=True)
    uninterrupted = measured(where, made, tmp_path / "whole.jsonl").points[id]
    assert uninterrupted.status == "ok" and len(uninterrupted.flows[0].samples_s) == 22
    for rounds in (12, 13, 17, 21):
        path = tmp_path / f"{rounds}.jsonl"
        stopped = stopped_after(rounds, where, made, path).points[id]
        assert len(stopped.flows[0].samples_s) == rounds and stopped.guards["stopped"] == "the run was stopped"
        assert stopped.status == ("missed_precision" if rounds == 13 else "ok")
        assert go_on(where, read_run(path), command=FAKE_WORKER).points[id] == uninterrupted


@pytest.mark.parametrize("rounds", range(12, 18))
def test_a_run_stopped_during_extra_rounds_has_records_of_all_its_measurements(tmp_path, rounds: int) -> None:
    path = tmp_path / "a.jsonl"
    outcome = stopped_after(rounds, target(noise=0.2), plan(MIB, ONE, precision=0.19), path)
    run = read_run(path)
    assert not outcome.complete and outcome.points.keys() == {ONE, MIB} and run.end is not None
    assert sum(run.end.counts.values()) == 2 and sum(map(len, run.rounds.values())) == rounds
    assert {one.id: len(one.flows[0].round_medians_s) for one in run.points} == {
        id: len(of) for id, of in run.rounds.items()
    }


@pytest.mark.parametrize("ending", ["uninterrupted", "stopped", "no worker"])
def test_the_monitor_is_stopped_however_the_run_ends(tmp_path, monkeypatch, ending: str) -> None:
    stopped: list[bool] = []
    monitor = SimpleNamespace(guards=lambda places, since: {}, stop=lambda: stopped.append(True))
    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda gpus: monitor)
    where = target(closed="the driver is too old") if ending == "no worker" else target()
    outcome = stopped_after(3 if ending == "stopped" else 99, where, plan(ONE), tmp_path / "a.jsonl")
    assert stopped == [True] and outcome.complete is (ending != "stopped")


def test_measured_rounds_are_kept_if_no_worker_starts_any_more(tmp_path, monkeypatch) -> None:
    no_worker_opens_after(2, monkeypatch)
    where = target(modelled=False, flawed={"unsupported": "*/8?*#0"})
    outcome = measured(where, plan(ONE, LARGE), tmp_path / "a.jsonl")
    found = outcome.points
    assert found[ONE].status == "unsupported" and "the test says so" in (found[ONE].reason or "")
    kept = found[LARGE]
    assert kept.status == "missed_precision" and len(kept.flows[0].samples_s) == 2 and kept.median_s
    assert "no GPU any more" in (kept.reason or "") and outcome.exit_code == SOMETHING_FAILED


def test_a_budget_for_some_of_the_points_gives_these_points_all_their_rounds(tmp_path) -> None:
    """One or two rounds for each point would give no point an interval."""
    ids = [H2D.format(8, "false", "batched").replace("gpu:0", f"gpu:{gpu}") for gpu in range(12)]
    measured(target(12), plan(*ids, gpus=12), tmp_path / "whole.jsonl")
    made = plan(*ids, gpus=12, budget_s=spent(tmp_path / "whole.jsonl") / 2)
    found = measured(target(12), made, tmp_path / "part.jsonl").points
    rounds = [len(one.flows[0].samples_s) if one.flows else 0 for one in found.values()]
    assert rounds.count(6) >= 3 and set(rounds) == {0, 6}


def test_the_cost_of_a_round_is_that_of_the_previous_one_and_not_an_estimate(tmp_path, monkeypatch) -> None:
    measured(target(), plan(LARGE), tmp_path / "whole.jsonl")
    budget_s = 0.8 * spent(tmp_path / "whole.jsonl")
    monkeypatch.setattr("linkscope.run.states.estimated_seconds", lambda *given: 1e-9)
    measured(target(), plan(LARGE, budget_s=budget_s), tmp_path / "part.jsonl")
    assert 0.3 * budget_s < spent(tmp_path / "part.jsonl") <= budget_s


def test_a_round_receives_the_batch_of_the_first_and_the_spread_of_the_rounds(tmp_path, monkeypatch) -> None:
    tasks: list[Task] = []
    measures = Sampler.measure

    def noted(sampler: Sampler, task: Task) -> Round:
        tasks.append(task)
        return measures(sampler, task)

    monkeypatch.setattr(Sampler, "measure", noted)
    measured(target(noise=0.02), plan(ONE, rounds=5), tmp_path / "a.jsonl")
    assert [task.first and task.first.round for task in tasks] == [None, 0, 0, 0, 0]
    assert [task.spread > 0 for task in tasks] == [False, False, False, True, True]


def test_platforms_receive_the_amount_of_memory_that_they_will_need(tmp_path, monkeypatch) -> None:
    requests: list[Any] = []
    asks = Worker.ask_to_open

    def noted(worker: Worker, request: dict[str, Any]) -> None:
        requests.append(request.get("most"))
        asks(worker, request)

    monkeypatch.setattr(Worker, "ask_to_open", noted)
    measured(target(modelled=False), plan(ONE, LARGE, rounds=2), tmp_path / "a.jsonl")
    assert len(requests) == 2 and requests[0] == most_memory([PointId.parse(ONE), PointId.parse(LARGE)], facts())


def test_the_monitor_is_asked_about_each_block_separately(tmp_path, monkeypatch) -> None:
    requests: list[float] = []

    class RecordingMonitor:
        def guards(self, places, since):
            requests.append(since)
            return {}

        def stop(self) -> None: ...

    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda gpus: RecordingMonitor())
    measured(target(modelled=False), plan(ONE, LARGE), tmp_path / "a.jsonl")
    assert len(requests) == 12 and requests == sorted(set(requests))


def test_throttling_that_the_monitor_saw_during_a_round_sets_the_round_apart(tmp_path, monkeypatch) -> None:
    """The GPU is hot only while the worker runs the first round, and cool again when the monitor is asked."""
    hot: list[float] = []
    run = Worker.run

    def heating(worker: Worker, *arguments, **more):
        if not hot:
            hot.append(time.monotonic())
        return run(worker, *arguments, **more)

    class Watching:
        def guards(self, places, since):
            return {"throttled": ["hw_thermal"]} if any(at >= since for at in hot) else {}

        def stop(self) -> None: ...

    monkeypatch.setattr(Worker, "run", heating)
    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda gpus: Watching())
    found = measured(target(modelled=False), plan(ONE), tmp_path / "a.jsonl").points[ONE]
    assert [one["round"] for one in found.guards["throttled_rounds"]] == [0]


def test_on_hardware_a_round_costs_its_wall_time_and_both_gpus_of_a_copy_are_monitored(tmp_path, monkeypatch) -> None:
    requests: list[list[str]] = []
    monitor = SimpleNamespace(guards=lambda places, since: requests.append(places) or {}, stop=lambda: None)
    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda gpus: monitor)
    ticks = itertools.count()
    monkeypatch.setattr("linkscope.run.passes.time", SimpleNamespace(monotonic=lambda: float(next(ticks))))
    between = "d2d/ce/gpu:0.device->gpu:1.device/8?bidirectional=false&initiator=src&mode=batched&peer=on"
    found = measured(target(modelled=False), plan(between, rounds=2), tmp_path / "a.jsonl").points[between]
    assert requests == [["gpu:0", "gpu:1"]] * 2 and found.device_s == 2.0


def test_with_a_budget_extra_rounds_go_to_the_cheapest_points_first(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    measured(target(noise=0.2), plan(MIB, ONE, precision=0.19, budget_s=1e3), path)
    run = read_run(path)
    assert all(len(run.rounds[id]) == 9 for id in (ONE, MIB))
    extra = [line for line in path.read_text().splitlines() if '"record":"round"' in line][12:]
    assert [ONE in line for line in extra] == [True, False] * 3


@pytest.mark.parametrize(("behind", "kept"), [(0, True), (1, False)])
def test_only_a_pass_of_extra_rounds_alone_keeps_the_order_of_the_planner(behind: int, kept: bool) -> None:
    made = plan(suite="quick", rounds=3, budget_s=60.0)
    ids = list(made.points)
    due = dict.fromkeys(ids, 3) | {ids[-1]: 3 - behind}
    passes = Passes(target(), made, Ledger(made, facts()).states, Services(FAKE_WORKER))
    order = passes.begin(due, opened=False)
    assert sorted(order) == sorted(ids) and (order == ids) is kept


def test_a_resumed_run_knows_the_cost_of_a_round(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    made = plan(LARGE, rounds=2)
    measured(target(), made, path)
    run = read_run(path)
    assert Ledger(made, facts(), run).states[LARGE].expected_s == run.rounds[LARGE][-1].device_s


@pytest.mark.parametrize("kind", ["together", "classes", "neither"])
def test_a_resumed_run_keeps_the_rounds_of_points_that_its_planner_added(tmp_path, kind: str) -> None:
    """A plan that adds sizes at bends and concurrent paths; other plans add none."""
    path, added = tmp_path / "a.jsonl", "concurrent/ce/numa:0.pinned->gpu:0.device/8?with=numa:0->gpu:1"
    measured(target(), plan(ONE, rounds=1), path)
    earlier = read_run(path)
    earlier.rounds[added] = [round_record(added, 0), round_record(added, 1)]
    made = plan(ONE, rounds=1)
    if kind == "together":
        made = structs.replace(made, together=[Together(added, "two GPUs at once", True)])
    elif kind == "classes":
        made = structs.replace(made, classes=[PathClass("host to GPU", ["numa:0->gpu:0"])])
    states = Ledger(made, facts(), earlier).states
    assert len(states[ONE].rounds) == 1
    assert states.keys() == ({ONE} if kind == "neither" else {ONE, added})
    assert kind == "neither" or [round.round for round in states[added].rounds] == [0, 1]


def test_a_size_that_was_added_and_begun_is_finished_after_resume(tmp_path) -> None:
    """Even if the present results no longer justify the added size."""
    path, added = tmp_path / "a.jsonl", H2D.format(24, "false", "batched")
    made = structs.replace(plan(ONE, budget_s=1e4), classes=[PathClass("host to GPU", ["numa:0->gpu:0"])], early=True)
    measured(target(), made, path)
    begun = [msgspec.json.encode(round_record(added, number)) + b"\n" for number in (0, 1)]
    path.write_bytes(b"".join([*path.read_bytes().splitlines(keepends=True)[:3], *begun]))
    found = go_on(target(), read_run(path), command=FAKE_WORKER).points[added]
    assert len(found.flows[0].round_medians_s) >= 3 and "stopped" not in found.guards


class OutOfBreath:
    """A file that accepts a few bytes at a time, like pipes and full disks."""

    closed = False

    def __init__(self) -> None:
        self.content = b""

    def write(self, data) -> int:
        self.content += bytes(data[:10])
        return min(10, len(data))


def test_a_record_is_written_completely(tmp_path) -> None:
    file = OutOfBreath()
    RunWriter(file, tmp_path / "a.jsonl").write(round_record(ONE, 0))  # type: ignore[arg-type]
    assert msgspec.json.decode(file.content, type=Round) == round_record(ONE, 0)


def test_one_throttled_reading_of_a_gpu_is_enough() -> None:
    def look(time: float, reasons: int, pcie: tuple[int, int]) -> State:
        return State(time, "gpu:0", 1980, 3201, 40, reasons, pcie, 0)

    seen = _summary([look(0.0, 0, (5, 16)), look(0.5, 0x40, (4, 8)), look(1.0, 0, (5, 16))])
    assert seen["throttled"] == ["hw_thermal"] and seen["pcie"] == "gen4 x8"
