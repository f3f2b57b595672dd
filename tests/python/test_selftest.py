"""The self-test passes, and each fault planted in the measuring path is caught by the row made for it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from campaign import sample
from fake_driver import environment, needs_fake
from linkscope.cli.main import main
from linkscope.run import assemble, sampler, supervisor
from linkscope.run.answers import Prepared, Trace
from linkscope.run.batches import Batches
from linkscope.run.calibrate import Calibration
from linkscope.run.stopping import Stopping
from linkscope.run.worker import Worker
from linkscope.runfile import Point
from linkscope.selftest import PLANTED, Finding, Row, bench, carry_out, intervals, machine, states
from linkscope.stats import Interval, Slope, median_interval
from test_selftest_here import assert_no_error

WORKER = Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"

pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


@pytest.fixture(autouse=True)
def sampled_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound of a coverage depends on the number of repetitions, so fewer of them raise no false alarm."""
    monkeypatch.setattr(intervals, "REPETITIONS", sample(200, intervals.REPETITIONS))


def selftest(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    status = main(["selftest", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def assert_caught(capsys: pytest.CaptureFixture[str], *rows: str) -> None:
    """Asserts exit code 1 with exactly these rows named."""
    status, answer = selftest(capsys, "--jobs", "1", *(word for row in rows for word in ("--only", row)))
    assert (status, answer["failing"]) == (1, list(rows)), answer["rows"]
    for row in answer["rows"]:
        assert_no_error(row)


def test_every_row_of_the_self_test_passes(impatient, capsys) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # of processes that other tests started
    status, answer = selftest(capsys)
    assert answer["failing"] == [] and status == 0
    assert {row.name for row in PLANTED} < {row["row"] for row in answer["rows"]}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 120 * 2  # two minutes on two cores
    assert all(row["planted"] and row["found"] for row in answer["rows"])


def change_runs(monkeypatch: pytest.MonkeyPatch, change) -> None:
    """`change(worker, batches, trace)` alters every answer to `run` between worker and sampler."""
    run = Worker.run

    def changed(self, samples, batches, *, verify, limit_s=10.0):
        trace = run(self, samples, batches, verify=verify, limit_s=limit_s)
        change(batches, trace)
        return trace

    monkeypatch.setattr(Worker, "run", changed)


def test_a_time_that_includes_queueing_is_caught(monkeypatch, capsys) -> None:
    """Without the gate, queueing a copy takes longer than the copy."""

    def queued(batches: list[list[int]], trace: Trace) -> None:
        for number in range(trace.samples):
            for at, batch in enumerate(batches):
                trace.stamps[2 * (number * len(batches) + at) + 1] += batch[0] * machine.CALL_S

    change_runs(monkeypatch, queued)
    assert_caught(capsys, "enqueue")


def test_a_time_that_includes_the_stamps_is_caught(monkeypatch, capsys) -> None:
    """The time of the batch over its count, including the cost of both events."""
    monkeypatch.setattr(sampler, "slope", lambda short_s, long_s, short, long: Slope(long_s / long, 0.0))
    assert_caught(capsys, "enqueue", "tick")


def test_a_missing_warm_up_is_caught(monkeypatch, capsys) -> None:
    """The first sample is the only one."""
    monkeypatch.setattr(Calibration, "batch", lambda self: [64])
    monkeypatch.setattr(Stopping, "wanted", lambda self, samples, pair, takes_s: 0)
    assert_caught(capsys, "warm_up")


def test_one_direction_timed_as_two_is_caught(monkeypatch, capsys) -> None:
    prepare, run = Worker.prepare, Worker.run
    doubled: list[Worker] = []

    def unidirectional(self, case, key, limit_s=10.0, then=None) -> Prepared:
        both = isinstance(case, dict) and case["params"].get("bidirectional") == "true"
        if both:
            case = case | {"params": case["params"] | {"bidirectional": "false"}}
        found = prepare(self, case, key, limit_s)  # the run sent ahead is for two directions
        doubled[:] = [self] if both else []
        if both:
            flow = found.flows[0]
            found.actors = 2
            back = {"actor": 1, "src": flow.dst, "dst": flow.src}
            found.flows = [flow, type(flow)(**{name: getattr(flow, name) for name in flow.__struct_fields__} | back)]
        return found

    def run_unidirectional(self, samples, batches, *, verify, limit_s=10.0) -> Trace:
        if self not in doubled:
            return run(self, samples, batches, verify=verify, limit_s=limit_s)
        trace = run(self, samples, [batch[:1] for batch in batches], verify=verify, limit_s=limit_s)
        pairs = [trace.stamps[at : at + 2] for at in range(0, len(trace.stamps), 2)]
        trace.actors, trace.stamps = 2, [time for pair in pairs for time in (*pair, *pair)]
        return trace

    monkeypatch.setattr(Worker, "prepare", unidirectional)
    monkeypatch.setattr(Worker, "run", run_unidirectional)
    assert_caught(capsys, "bidirectional", "bytes")


def test_zeros_in_place_of_the_data_are_caught(monkeypatch, capsys) -> None:
    prepare = Worker.prepare

    def zeros(self, case, key, limit_s=10.0, then=None) -> Prepared:
        found = prepare(self, case, key, limit_s, then)
        found.program = found.program.replace(" pattern\n", " zero\n")
        return found

    monkeypatch.setattr(Worker, "prepare", zeros)
    assert_caught(capsys, "pattern")


def test_skipped_verification_is_caught(monkeypatch, capsys) -> None:
    run = Batches.run
    monkeypatch.setattr(
        Batches, "run", lambda self, samples, batches, *, verify: run(self, samples, batches, verify=False)
    )
    assert_caught(capsys, "corrupt", "lying_peer", "pattern")


def test_an_ignored_verdict_is_caught(monkeypatch, capsys) -> None:
    def fine(batches: list[list[int]], trace: Trace) -> None:
        if trace.verdict is not None:
            trace.verdict.ok = True

    change_runs(monkeypatch, fine)
    assert_caught(capsys, "corrupt", "lying_peer")


def test_a_mean_in_place_of_the_median_is_caught(monkeypatch, capsys) -> None:
    monkeypatch.setattr(assemble, "median", lambda samples: sum(samples) / len(samples))
    assert_caught(capsys, "interval_outliers")


def test_an_interval_from_too_few_rounds_is_caught(monkeypatch, capsys) -> None:
    def of_three(samples):
        return Interval(min(samples[:3]), max(samples[:3]), 0.95) if samples else None

    monkeypatch.setattr(assemble, "median_interval", of_three)
    assert_caught(capsys, "interval_lognormal")


def test_an_interval_of_one_process_is_caught(monkeypatch, capsys) -> None:
    """As in other tools: many samples of one process, and an interval that describes only this process."""
    give = assemble._give_intervals

    def of_one_process(point, intervals):
        give(point, intervals)
        for flow in point.flows:
            interval = median_interval(2 * flow.samples_s[0])
            flow.ci95_s = (interval.low, interval.high)
        point.ci95_s = point.flows[0].ci95_s

    monkeypatch.setattr(assemble, "_give_intervals", of_one_process)
    assert_caught(capsys, "interval_bimodal")


def test_throttled_samples_that_are_kept_are_caught(monkeypatch, capsys) -> None:
    class Careless(assemble.Assembler):
        def point(self, id, rounds, stopped=None):
            for round in rounds:
                round.guards.pop("throttled", None)
            return super().point(id, rounds, stopped)

    monkeypatch.setattr(supervisor, "Assembler", Careless)
    assert_caught(capsys, "throttled")


def test_a_wrong_divisor_for_a_batch_is_caught(monkeypatch, capsys) -> None:
    """The difference of two batches is divided by the count of the longer one."""
    monkeypatch.setattr(sampler, "slope", lambda short_s, long_s, short, long: Slope((long_s - short_s) / long, 0.0))
    assert_caught(capsys, "enqueue", "batch")


def test_a_skipped_flush_is_caught(monkeypatch, capsys) -> None:
    prepare = Worker.prepare

    def hot(self, case, key, limit_s=10.0, then=None) -> Prepared:
        return prepare(self, case | {"params": case["params"] | {"cache": "hot"}}, key, limit_s, then)

    monkeypatch.setattr(Worker, "prepare", hot)
    assert_caught(capsys, "caches")


def test_reuse_of_one_slice_is_caught(monkeypatch, capsys) -> None:
    """As in some latency tests: the lines of the last copy are in the cache."""
    case_of = sampler.case_of
    monkeypatch.setattr(
        sampler, "case_of", lambda point, machine: case_of(point, machine) | {"footprint_bytes": point.bytes}
    )
    assert_caught(capsys, "footprint")


def test_one_pair_measured_for_all_pairs_is_caught(monkeypatch, capsys) -> None:
    prepare = Worker.prepare

    def the_first(self, case, key, limit_s=10.0, then=None) -> Prepared:
        return prepare(self, case | {"src": "gpu:0", "dst": "gpu:1"}, key, limit_s, then)

    monkeypatch.setattr(Worker, "prepare", the_first)
    assert_caught(capsys, "slow_link")


def test_flows_timed_in_turn_are_caught(monkeypatch, capsys) -> None:
    """Each flow is timed without the other."""
    run = Worker.run

    def apart(self, samples, batches, *, verify, limit_s=10.0) -> Trace:
        trace = run(self, samples, batches, verify=verify, limit_s=limit_s)
        if trace.actors == 2:
            separately = run(self, samples, [[batch[0], 0] for batch in batches], verify=False, limit_s=limit_s)
            for at in range(0, len(trace.stamps), 4):
                trace.stamps[at + 1] = trace.stamps[at + 3] = separately.stamps[at + 1]
                trace.stamps[at] = trace.stamps[at + 2] = separately.stamps[at]
        return trace

    monkeypatch.setattr(Worker, "run", apart)
    assert_caught(capsys, "bidirectional", "contention")


def test_a_row_that_raises_an_error_fails() -> None:
    def breaks(folder: Path) -> Finding:
        raise ZeroDivisionError("by zero")

    (verdict,) = carry_out([Row("breaks", breaks)])
    assert not verdict.holds and "by zero" in verdict.found


def test_an_unknown_row_is_named(capsys) -> None:
    assert main(["selftest", "--only", "nonsense"]) == 3
    assert "enqueue" in capsys.readouterr().err


def test_the_rows_of_this_machine_can_run_alone(capsys) -> None:
    status, answer = selftest(capsys, "--here")
    assert status == 0 and all(row["row"].startswith("here_") for row in answer["rows"])


def on_the_fake_driver(*arguments: str, **settings: str | int) -> tuple[int, dict]:
    command = [sys.executable, "-m", "linkscope", "selftest", "--here", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment(**settings))
    return done.returncode, json.loads(done.stdout)


@needs_fake
def test_the_rows_of_a_machine_with_gpus_pass() -> None:
    # The row of its clock may fail because other programs run here.
    _, answer = on_the_fake_driver("--only", "here_event_clock", CUDA_GPUS=2)
    assert "steps of" in answer["rows"][0]["found"]
    status, answer = on_the_fake_driver("--only", "here_peers", CUDA_GPUS=2)
    assert status == 0 and answer["rows"][0]["found"] == "4 of 4 arrived", answer


@needs_fake
def test_a_peer_that_delivers_wrong_data_is_caught() -> None:
    status, answer = on_the_fake_driver("--only", "here_peers", CUDA_GPUS=2, CUDA_LYING_PEER=1)
    assert (status, answer["failing"]) == (1, ["here_peers"])
    assert "gpu:0 -> gpu:1, 4 KiB: wrong data" in answer["rows"][0]["found"]
    assert "64 MiB: " not in answer["rows"][0]["found"]  # larger copies are not run after wrong data at small sizes


@needs_fake
def test_gpus_without_peer_access_are_no_fault() -> None:
    status, answer = on_the_fake_driver("--only", "here_peers", CUDA_GPUS=2, CUDA_NO_PEER=1)
    assert status == 0 and "cannot access" in answer["rows"][0]["found"]


# Faults that the measuring path once missed, each as an ordinary test.


def of_the_machine(folder: Path, **parts: list[dict]) -> Point:
    id = bench.D2H.format(64 * bench.KIB)
    return bench.measured(folder, machine.target(**parts), [id])[id]


def test_a_warm_up_as_long_as_a_round_is_noticed(tmp_path: Path) -> None:
    """Of 12 batches in each process; without the check the value would be 17 % too high with status ok."""
    point = of_the_machine(tmp_path, fault=[{"kind": "ramp", "samples": 12, "factor": 1.5}])
    assert point.status != "ok" or point.median_s == pytest.approx(states.TRUTH, rel=0.05)


def test_two_neighbouring_readings_of_a_clock_are_not_two_modes(tmp_path: Path) -> None:
    """Without noise: 3.3047 and 3.3125 us, which is one tick of 500 ns over a batch of 64."""
    spread = of_the_machine(tmp_path).spread
    assert spread is not None and spread.modes_s is None


def test_a_point_that_lacks_a_round_because_of_throttling_says_so(tmp_path: Path) -> None:
    fault = {"kind": "throttle", "samples": 50, "factor": 2.0, "match": "*#2"}
    assert "throttled" in (of_the_machine(tmp_path, fault=[fault]).reason or "")
