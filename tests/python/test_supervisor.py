"""The supervisor: every point has a record whatever the workers do, and a stopped run resumes to the same points."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fakes import FAKE_WORKER, H2D, measured, plan, target
from invented import point
from linkscope.errors import UserError
from linkscope.run import Outcome, go_on
from linkscope.run.process import Process
from linkscope.run.worker import RequestFailed, Worker
from linkscope.runfile import read_run
from processes import runs

ONE = H2D.format(8, "false", "batched")
OTHER = H2D.format(4096, "false", "batched")
MIB = H2D.format(1 << 20, "false", "batched")


@pytest.fixture
def brief_limits(monkeypatch, impatient):
    for module in ("sampler", "batches"):
        monkeypatch.setattr(f"linkscope.run.{module}.REQUEST_LIMIT_S", 2.0)


def results(path: Path) -> dict:
    return {found.id: found for found in read_run(path).points}


def content(path: Path) -> list[str]:
    """The lines of a run file, in any order, without fields that may differ between two runs of one seed."""
    lines = []
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for name in ("started", "wall_s"):
            record.pop(name, None)
        record.get("plan", {}).pop("order_seed", None)
        lines.append(json.dumps(record))
    return sorted(lines)


def test_a_complete_run_has_a_record_of_every_point(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    made = plan(suite="quick")
    outcome = measured(target(rate=50e9, each_s=2e-6), made, path)
    assert outcome.exit_code == 0 and outcome.complete
    run = read_run(path)
    assert {found.id for found in run.points} == set(made.points)
    assert run.end.counts == {"ok": len(made.points)} and run.warnings == []
    one = results(path)[MIB]
    each = 2e-6 + (1 << 20) / 50e9
    assert one.median_s == pytest.approx(each) and one.gbps == pytest.approx((1 << 20) / each / 1e9)
    assert one.ci95_s == pytest.approx((each, each)) and one.ci_level == 0.96875
    assert one.status == "ok" and one.verified and one.timing == "virtual" and len(one.flows[0].samples_s) == 6
    both = next(found for found in run.points if found.bidirectional)
    assert both.total_gbps == pytest.approx(sum(flow.gbps for flow in both.flows))


def test_one_seed_gives_the_same_records_in_any_order(tmp_path) -> None:
    paths = [tmp_path / f"{n}.jsonl" for n in range(3)]
    for path, order in zip(paths, (1, 1, 99), strict=True):
        measured(target(noise=0.02), plan(suite="quick", order_seed=order), path)
    without = [line for line in paths[0].read_text().splitlines()[1:-1]]
    assert without == paths[1].read_text().splitlines()[1:-1]
    assert content(paths[0]) == content(paths[2])
    assert without != paths[2].read_text().splitlines()[1:-1]


def test_a_point_within_reach_of_its_precision_gets_more_rounds_and_says_so(tmp_path) -> None:
    """The inner four rounds of one point lie within 24 %. Those of the other point do not, so more rounds would not
    help."""
    path = tmp_path / "a.jsonl"
    outcome = measured(target(noise=0.2), plan(MIB, ONE, precision=0.12), path)
    assert outcome.exit_code == 0
    hopeless = results(path)[MIB]
    inner = sorted(hopeless.flows[0].round_medians_s)[1:-1]
    assert hopeless.status == "missed_precision" and "after 6 rounds" in hopeless.reason
    assert len(inner) == 4 and inner[-1] - inner[0] > 0.24 * hopeless.median_s
    for found in [results(path)[ONE]]:
        assert found.status == "missed_precision" and "after 9 rounds" in found.reason
        assert len(found.flows[0].round_medians_s) == 9 and found.ci_level == pytest.approx(0.961, abs=1e-3)
        assert found.spread.between_rounds > 0.05 > found.spread.within_rounds
    assert sum('"record":"point"' in line for line in path.read_text().splitlines()) == 2


def test_fewer_than_six_rounds_give_no_interval(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    measured(target(), plan(ONE, rounds=3), path)
    found = results(path)[ONE]
    assert (
        found.status == "missed_precision"
        and found.ci95_s is None
        and found.reason == "3 of 3 rounds: too few for an interval, six are enough"
    )
    assert found.median_s is not None


def test_an_unsupported_point_is_a_result_and_is_tried_once(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(flawed={"unsupported": "*/8?*#0"}), plan(ONE, OTHER), path)
    assert outcome.exit_code == 0
    assert results(path)[ONE].status == "unsupported" and "because" in results(path)[ONE].reason
    assert results(path)[OTHER].status == "ok"


@pytest.mark.parametrize("others, code", [(["ok"], 0), (["failed"], 1), (["unsupported"], 1), ([], 1)])
def test_a_point_that_is_too_short_for_the_clock_fails_a_run_only_if_no_point_has_a_value(others, code: int) -> None:
    short = point(ONE, None, status="failed", reason="too short for the clock: the batch took no longer")
    found = [short, *(point(OTHER, 1e-3 if status == "ok" else None, status=status) for status in others)]
    assert Outcome({each.id: each for each in found}, complete=True, wall_s=1.0).exit_code == code


def test_wrong_data_fails_only_its_point(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(flawed={"wrong": "*/8?*#2"}), plan(ONE, OTHER), path)
    assert outcome.exit_code == 1
    found = results(path)[ONE]
    assert found.status == "failed" and found.verified is False and "region 1" in found.reason
    assert found.median_s is None and found.gbps is None and len(found.flows[0].samples_s) == 2
    assert results(path)[OTHER].status == "ok"


@pytest.mark.parametrize(
    "flaw, words",
    [("die", "SIGKILL: the driver said: Xid 79"), ("garbage", "makes no sense"), ("fail", "the test says so"),
     ("lost", "the test says so"), ("memory", "memory")],
)  # fmt: skip
def test_a_fault_of_a_worker_costs_one_point(tmp_path, flaw: str, words: str) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(flawed={flaw: "*/8?*#1"}), plan(ONE, OTHER, MIB), path)
    assert outcome.exit_code == 1
    assert words in results(path)[ONE].reason and len(results(path)[ONE].flows[0].samples_s) == 1
    assert {found.status for id, found in results(path).items() if id != ONE} == {"ok"}


@pytest.mark.parametrize("flaw", ["die", "garbage", "lost"])
def test_a_worker_that_dies_once_costs_nothing(tmp_path, flaw: str) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(flawed={flaw: "*#1"}, once=str(tmp_path / "done")), plan(ONE, OTHER), path)
    assert outcome.exit_code == 0 and (tmp_path / "done").exists()
    assert {found.status for found in results(path).values()} == {"ok"}


def test_a_hanging_worker_is_killed_and_the_run_continues(tmp_path, brief_limits) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(flawed={"hang": "*/8?*#1"}), plan(ONE, OTHER), path)
    assert outcome.exit_code == 1
    assert "no answer within" in results(path)[ONE].reason and "was killed" in results(path)[ONE].reason
    assert results(path)[OTHER].status == "ok"


def test_a_worker_that_cannot_be_killed_loses_its_gpu(tmp_path, brief_limits, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    left: list[int] = []
    kill = Process.kill

    def cannot(worker: Process) -> bool:
        if runs(worker.pid) and not left:
            left.append(worker.pid)
            return False
        return kill(worker)

    monkeypatch.setattr(Process, "kill", cannot)
    there, here = (
        "d2h/ce/gpu:0.device->numa:0.pinned/8?mode=batched",
        "d2h/ce/gpu:1.device->numa:0.pinned/8?mode=batched",
    )
    try:
        outcome = measured(target(flawed={"hang": "*gpu:0*#0"}), plan(there, ONE, here), path)
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
    found = results(path)
    assert outcome.exit_code == 1 and found[here].status == "ok"
    assert sorted([found[there].status, found[ONE].status]) == ["failed", "skipped"]
    assert any("gpu:0 was lost" in (one.reason or "") for one in found.values())


def test_a_missing_worker_fails_every_point(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(closed="the driver is too old"), plan(ONE, OTHER), path)
    assert outcome.exit_code == 1
    assert {found.status for found in results(path).values()} == {"failed"}
    assert all("the driver is too old" in found.reason for found in results(path).values())


def test_a_rate_above_the_hardware_limit_fails_the_point(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    outcome = measured(target(limit=30.0, rate=50e9), plan(MIB, ONE), path)
    assert outcome.exit_code == 1
    found = results(path)[MIB]
    assert found.status == "failed" and "faster than the hardware allows" in found.reason and found.gbps is None
    assert found.limit_gbps == 30.0 and found.limit_source == "the test says so"
    assert results(path)[ONE].status == "ok"


def test_a_budget_is_kept_and_named_as_the_reason(tmp_path) -> None:
    uninterrupted, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    measured(target(), plan("*", suite="quick"), uninterrupted)
    total = sum(found.device_s for found in read_run(uninterrupted).points)
    outcome = measured(target(), plan("*", suite="quick", budget_s=total / 2), part)
    assert outcome.exit_code == 0 and outcome.complete
    run = read_run(part)
    assert {found.id for found in run.points} == set(plan(suite="quick").points)
    spent = sum(one.device_s for rounds in run.rounds.values() for one in rounds)
    assert total / 10 < spent <= total / 2
    for found in run.points:
        if found.status != "ok":
            assert found.status in ("missed_precision", "skipped") and "budget" in found.reason


def test_a_tiny_budget_measures_nothing_and_says_so(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    assert measured(target(), plan(MIB, budget_s=1e-9), path).exit_code == 3
    assert results(path)[MIB].status == "skipped" and "budget" in results(path)[MIB].reason


def start(path: Path, suite: str = "quick", **behaviour) -> subprocess.Popen:
    command = [sys.executable, str(Path(__file__).parent / "run_fake.py"), str(path), json.dumps(behaviour), suite]
    return subprocess.Popen(command, start_new_session=True)


def wait_for(process: subprocess.Popen, path: Path, records: int) -> None:
    """Waits until the file has this many lines or the process ended."""
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < records):
        time.sleep(0.005)
    assert path.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("flawed", [{"slow": "*#1"}, {"hang": "*#1"}], ids=["measuring", "hanging"])
def test_a_stopped_run_resumes_to_the_same_points(tmp_path, number, flawed) -> None:
    path, uninterrupted = tmp_path / "a.jsonl", tmp_path / "whole.jsonl"
    process = start(path, noise=0.02, flawed=flawed)
    # All first rounds are done. One of the second rounds runs now, which take 5 s each or hang.
    wait_for(process, path, 1 + len(plan(suite="quick").points))
    process.send_signal(number)
    assert process.wait(300) == 4
    run = read_run(path)
    assert run.warnings == [] and run.end is not None and not run.end.complete
    assert run.points and all("stopped" in (found.reason or "stopped") for found in run.points)
    measured(target(noise=0.02), plan(suite="quick"), uninterrupted)
    assert go_on(target(noise=0.02), run, command=FAKE_WORKER).exit_code == 0
    assert results(path) == results(uninterrupted)
    assert read_run(path).end.complete and len(read_run(path).resumes) == 1


def test_a_run_killed_at_random_moments_loses_at_most_the_current_point(tmp_path) -> None:
    uninterrupted, path = tmp_path / "whole.jsonl", tmp_path / "a.jsonl"
    measured(target(noise=0.02), plan(suite="quick"), uninterrupted)
    chance = random.Random(4)
    kept = 0
    for _ in range(12):
        process = start(path, noise=0.02)
        wait_for(process, path, 1)
        time.sleep(chance.uniform(0.05, 0.4))
        ended = process.poll() is not None
        process.kill()
        process.wait()
        run = read_run(path)
        rounds = sum(len(of) for of in run.rounds.values())
        assert rounds >= kept
        kept = rounds
        if ended:
            break
    outcome = go_on(target(noise=0.02), read_run(path), command=FAKE_WORKER)
    assert outcome.exit_code == 0
    assert results(path) == results(uninterrupted)
    assert all(len({one.round for one in of}) == len(of) for of in read_run(path).rounds.values())


class Hot:
    """A monitor that reports a throttled GPU during the first measurement of round 1."""

    def __init__(self) -> None:
        self.blocks = 0

    def guards(self, places, since):
        self.blocks += 1
        return {"throttled": ["hw_thermal"]} if self.blocks == 2 else {"gpu:0": {"sm_mhz": [1980, 1980]}}

    def stop(self) -> None: ...


def test_a_throttled_round_is_set_apart_and_repeated(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda modelled: Hot())
    assert measured(target(modelled=False), plan(ONE), path).exit_code == 0
    run = read_run(path)
    assert [one.round for one in run.rounds[ONE]] == [0, 1, 1, 2, 3, 4, 5]
    found = run.points[0]
    assert len(found.flows[0].samples_s) == 6 and found.status == "ok"
    assert found.guards["throttled_rounds"][0]["reasons"] == ["hw_thermal"]
    assert found.guards["gpu:0"] == {"sm_mhz": [1980, 1980]}
    assert found.device_s > 0 and run.header.tool["worker"]["version"] == "0"


def test_a_gpu_that_stays_hot_in_the_extra_rounds_ends_the_point(tmp_path, monkeypatch) -> None:
    class HotLater(Hot):
        def guards(self, places, since):
            self.blocks += 1
            return {"throttled": ["hw_thermal"]} if self.blocks > 6 else {}

    path = tmp_path / "a.jsonl"
    monkeypatch.setattr("linkscope.run.session.monitor_for", lambda modelled: HotLater())
    assert measured(target(modelled=False, noise=0.2), plan(ONE, precision=0.12), path).exit_code == 0
    found = results(path)[ONE]
    assert found.status == "missed_precision" and "throttled" in found.reason
    assert len(found.flows[0].samples_s) == 6 and len(found.guards["throttled_rounds"]) == 6


def test_if_the_driver_is_lost_for_good_measured_rounds_are_kept(tmp_path, monkeypatch) -> None:
    path = tmp_path / "a.jsonl"
    opened = Worker.opened
    starts = []

    def no_more(worker: Worker):
        starts.append(worker.pid)
        if len(starts) > 6:  # one per round; none for the extra rounds
            raise RequestFailed("failed", "no GPU any more")
        return opened(worker)

    monkeypatch.setattr(Worker, "opened", no_more)
    assert measured(target(modelled=False, noise=0.2), plan(ONE, precision=0.12), path).exit_code == 0
    found = results(path)[ONE]
    assert found.status == "missed_precision" and "no GPU any more" in found.reason and found.median_s


def test_a_full_disk_ends_the_run_with_one_sentence() -> None:
    with pytest.raises(UserError, match="cannot write to /dev/full"):
        from linkscope.run import measure

        measure(target(), plan(ONE), Path("/dev/full"), force=True, command=FAKE_WORKER)


def test_the_gpus_of_a_worker_that_cannot_be_ended_between_rounds_are_lost(tmp_path, monkeypatch) -> None:
    killed = Worker.kill
    kills = []

    def unkillable(worker: Worker) -> bool:
        """The worker of the second round stays alive. The first kill is that of the worker that reports its version."""
        kills.append(worker.pid)
        return killed(worker) and len(kills) != 3

    path = tmp_path / "a.jsonl"
    monkeypatch.setattr(Worker, "kill", unkillable)
    measured(target(modelled=False), plan(ONE), path)
    found = results(path)[ONE]
    assert found.status == "missed_precision" and "could not be killed" in found.reason
    assert 0 < len(found.flows[0].samples_s) < 6
