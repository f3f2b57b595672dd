"""The self-test holds, and a measuring path that is broken in one place is caught by the row that is there for it."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake
from linkscope.cli.main import main
from linkscope.run import assemble, sampler, supervisor
from linkscope.run.answers import Prepared, Trace
from linkscope.run.sampler import PointRound
from linkscope.run.worker import Worker
from linkscope.runfile import Point
from linkscope.selftest import PLANTED, Finding, Row, bench, carry_out, machine, states
from linkscope.stats import Interval, Slope, median_interval

WORKER = Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"

pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


def selftest(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict]:
    status = main(["selftest", "--json", *arguments])
    return status, json.loads(capsys.readouterr().out)


def assert_caught(capsys: pytest.CaptureFixture[str], *rows: str) -> None:
    """Exit code 1, with just these rows named."""
    status, answer = selftest(capsys, "--jobs", "1", *(word for row in rows for word in ("--only", row)))
    assert (status, answer["failing"]) == (1, list(rows)), answer["rows"]


def test_everything_holds(capsys) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # of what other tests started
    status, answer = selftest(capsys)
    assert answer["failing"] == [] and status == 0
    assert {row.name for row in PLANTED} < {row["row"] for row in answer["rows"]}
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 120 * 2  # two minutes on two cores, whatever else they do meanwhile
    assert all(row["planted"] and row["found"] for row in answer["rows"])


def change_runs(monkeypatch: pytest.MonkeyPatch, change) -> None:
    """`change(worker, batches, trace)` alters every answer to `run` between worker and sampler."""
    run = Worker.run

    def changed(self, samples, batches, *, verify, limit_s=10.0):
        trace = run(self, samples, batches, verify=verify, limit_s=limit_s)
        change(batches, trace)
        return trace

    monkeypatch.setattr(Worker, "run", changed)


def test_enqueue_included(monkeypatch, capsys) -> None:
    """Without the gate, queueing a copy takes longer than the copy."""

    def queued(batches: list[list[int]], trace: Trace) -> None:
        for sample in range(trace.samples):
            for at, batch in enumerate(batches):
                trace.stamps[2 * (sample * len(batches) + at) + 1] += batch[0] * machine.CALL_S

    change_runs(monkeypatch, queued)
    assert_caught(capsys, "enqueue")


def test_stamps_included(monkeypatch, capsys) -> None:
    """The whole batch over its count, with what the two events cost."""
    monkeypatch.setattr(sampler, "slope", lambda short_s, long_s, short, long: Slope(long_s / long, 0.0))
    assert_caught(capsys, "enqueue", "tick")


def test_no_warm_up(monkeypatch, capsys) -> None:
    """The first sample is the only one."""
    monkeypatch.setattr(PointRound, "_calibrate", lambda self: [64])
    monkeypatch.setattr(PointRound, "_samples_wanted", lambda self, samples, counts: 0)
    assert_caught(capsys, "warm_up")


def test_one_direction_timed_as_two(monkeypatch, capsys) -> None:
    prepare, run = Worker.prepare, Worker.run
    doubled: list[Worker] = []

    def one_way(self, case, key, limit_s=10.0) -> Prepared:
        both = isinstance(case, dict) and case["params"].get("bidirectional") == "true"
        if both:
            case = case | {"params": case["params"] | {"bidirectional": "false"}}
        found = prepare(self, case, key, limit_s)
        doubled[:] = [self] if both else []
        if both:
            flow = found.flows[0]
            found.actors = 2
            back = {"actor": 1, "src": flow.dst, "dst": flow.src}
            found.flows = [flow, type(flow)(**{name: getattr(flow, name) for name in flow.__struct_fields__} | back)]
        return found

    def run_one_way(self, samples, batches, *, verify, limit_s=10.0) -> Trace:
        if self not in doubled:
            return run(self, samples, batches, verify=verify, limit_s=limit_s)
        trace = run(self, samples, [batch[:1] for batch in batches], verify=verify, limit_s=limit_s)
        pairs = [trace.stamps[at : at + 2] for at in range(0, len(trace.stamps), 2)]
        trace.actors, trace.stamps = 2, [time for pair in pairs for time in (*pair, *pair)]
        return trace

    monkeypatch.setattr(Worker, "prepare", one_way)
    monkeypatch.setattr(Worker, "run", run_one_way)
    assert_caught(capsys, "both_ways", "bytes")


def test_zeros_copied(monkeypatch, capsys) -> None:
    prepare = Worker.prepare

    def zeros(self, case, key, limit_s=10.0) -> Prepared:
        found = prepare(self, case, key, limit_s)
        found.program = found.program.replace(" pattern\n", " zero\n")
        return found

    monkeypatch.setattr(Worker, "prepare", zeros)
    assert_caught(capsys, "pattern")


def test_verification_skipped(monkeypatch, capsys) -> None:
    run = PointRound._run
    monkeypatch.setattr(
        PointRound, "_run", lambda self, samples, batches, *, verify: run(self, samples, batches, verify=False)
    )
    assert_caught(capsys, "corrupt", "lying_peer", "pattern")


def test_verdict_ignored(monkeypatch, capsys) -> None:
    def fine(batches: list[list[int]], trace: Trace) -> None:
        if trace.verdict is not None:
            trace.verdict.ok = True

    change_runs(monkeypatch, fine)
    assert_caught(capsys, "corrupt", "lying_peer")


def test_mean_instead_of_median(monkeypatch, capsys) -> None:
    monkeypatch.setattr(assemble, "median", lambda samples: sum(samples) / len(samples))
    assert_caught(capsys, "interval_outliers")


def test_interval_from_too_few_rounds(monkeypatch, capsys) -> None:
    def of_three(samples):
        return Interval(min(samples[:3]), max(samples[:3]), 0.95)

    monkeypatch.setattr(assemble, "median_interval", of_three)
    assert_caught(capsys, "interval_lognormal")


def test_interval_of_one_process(monkeypatch, capsys) -> None:
    """As the peers do: many samples of one process, and an interval that describes that process."""
    give = assemble._give_intervals

    def of_one_process(point, *, early):
        give(point, early=early)
        for flow in point.flows:
            interval = median_interval(2 * flow.samples_s[0])
            flow.ci95_s = (interval.low, interval.high)
        point.ci95_s = point.flows[0].ci95_s

    monkeypatch.setattr(assemble, "_give_intervals", of_one_process)
    assert_caught(capsys, "interval_bimodal")


def test_throttled_samples_kept(monkeypatch, capsys) -> None:
    class Careless(assemble.Assembler):
        def point(self, id, rounds, stopped=None):
            for round in rounds:
                round.guards.pop("throttled", None)
            return super().point(id, rounds, stopped)

    monkeypatch.setattr(supervisor, "Assembler", Careless)
    assert_caught(capsys, "throttled")


def test_wrong_divisor_for_a_batch(monkeypatch, capsys) -> None:
    """The difference of two batches over the longer one's count."""
    monkeypatch.setattr(sampler, "slope", lambda short_s, long_s, short, long: Slope((long_s - short_s) / long, 0.0))
    assert_caught(capsys, "enqueue", "batch")


def test_flush_skipped(monkeypatch, capsys) -> None:
    prepare = Worker.prepare

    def hot(self, case, key, limit_s=10.0) -> Prepared:
        return prepare(self, case | {"params": case["params"] | {"cache": "hot"}}, key, limit_s)

    monkeypatch.setattr(Worker, "prepare", hot)
    assert_caught(capsys, "caches")


def test_one_slice_again_and_again(monkeypatch, capsys) -> None:
    """As some latency tests do: the lines of the last copy are in the cache."""
    case_of = sampler.case_of
    monkeypatch.setattr(
        sampler, "case_of", lambda point, machine: case_of(point, machine) | {"footprint_bytes": point.bytes}
    )
    assert_caught(capsys, "footprint")


def test_one_pair_taken_for_all(monkeypatch, capsys) -> None:
    prepare = Worker.prepare

    def the_first(self, case, key, limit_s=10.0) -> Prepared:
        return prepare(self, case | {"src": "gpu:0", "dst": "gpu:1"}, key, limit_s)

    monkeypatch.setattr(Worker, "prepare", the_first)
    assert_caught(capsys, "slow_link")


def test_flows_timed_one_after_the_other(monkeypatch, capsys) -> None:
    """What a flow takes alone is taken for what it takes beside the other."""
    run = Worker.run

    def apart(self, samples, batches, *, verify, limit_s=10.0) -> Trace:
        trace = run(self, samples, batches, verify=verify, limit_s=limit_s)
        if trace.actors == 2:
            alone = run(self, samples, [[batch[0], 0] for batch in batches], verify=False, limit_s=limit_s)
            for at in range(0, len(trace.stamps), 4):
                trace.stamps[at + 1] = trace.stamps[at + 3] = alone.stamps[at + 1]
                trace.stamps[at] = trace.stamps[at + 2] = alone.stamps[at]
        return trace

    monkeypatch.setattr(Worker, "run", apart)
    assert_caught(capsys, "both_ways", "contention")


def test_a_row_that_breaks_does_not_hold() -> None:
    def breaks(folder: Path) -> Finding:
        raise ZeroDivisionError("by zero")

    (verdict,) = carry_out([Row("breaks", breaks)])
    assert not verdict.holds and "by zero" in verdict.found


def test_a_row_that_does_not_exist(capsys) -> None:
    assert main(["selftest", "--only", "nonsense"]) == 3
    assert "enqueue" in capsys.readouterr().err


def test_this_machine_alone(capsys) -> None:
    status, answer = selftest(capsys, "--here")
    assert status == 0 and all(row["row"].startswith("here_") for row in answer["rows"])


def on_the_fake_driver(*arguments: str, **settings: str | int) -> tuple[int, dict]:
    command = [sys.executable, "-m", "linkscope", "selftest", "--here", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(**settings))
    return done.returncode, json.loads(done.stdout)


@needs_fake
def test_a_machine_with_gpus_holds() -> None:
    _, answer = on_the_fake_driver(CUDA_GPUS=2)  # whether its clocks hold depends on who else runs here
    found = {row["row"]: row["found"] for row in answer["rows"]}
    assert "steps of" in found["here_event_clock"]
    status, answer = on_the_fake_driver("--only", "here_peers", CUDA_GPUS=2)
    assert status == 0 and answer["rows"][0]["found"] == "4 of 4 arrived"


@needs_fake
def test_a_peer_that_lies_is_caught() -> None:
    status, answer = on_the_fake_driver("--only", "here_peers", CUDA_GPUS=2, CUDA_LYING_PEER=1)
    assert (status, answer["failing"]) == (1, ["here_peers"])
    assert "gpu:0 -> gpu:1, 4 KiB: wrong data" in answer["rows"][0]["found"]
    assert "64 MiB: " not in answer["rows"][0]["found"]  # where small ones are wrong, nothing larger is sent


@needs_fake
def test_gpus_that_are_no_peers_are_no_fault() -> None:
    status, answer = on_the_fake_driver("--only", "here_peers", CUDA_GPUS=2, CUDA_NO_PEER=1)
    assert status == 0 and "cannot access" in answer["rows"][0]["found"]


# What the measuring path does not notice yet. Whoever mends it takes the mark off, and makes a row of it.


def of_the_machine(folder: Path, **parts: list[dict]) -> Point:
    id = bench.D2H.format(64 * bench.KIB)
    return bench.measured(folder, machine.target(**parts), [id])[id]


def test_a_warm_up_as_long_as_a_round_is_noticed(tmp_path: Path) -> None:
    """Of 12 batches in each process: the value is 17 % too high, and 'ok'."""
    point = of_the_machine(tmp_path, fault=[{"kind": "ramp", "samples": 12, "factor": 1.5}])
    assert point.status != "ok" or point.median_s == pytest.approx(states.TRUTH, rel=0.05)


def test_two_neighbouring_readings_of_a_clock_are_no_two_modes(tmp_path: Path) -> None:
    """Without any noise: 3.3047 and 3.3125 us, one tick of 500 ns over a batch of 64 apart."""
    spread = of_the_machine(tmp_path).spread
    assert spread is not None and spread.modes_s is None


def test_a_point_that_lacks_a_round_through_throttling_says_so(tmp_path: Path) -> None:
    fault = {"kind": "throttle", "samples": 50, "factor": 2.0, "match": "*#2"}
    assert "throttled" in (of_the_machine(tmp_path, fault=[fault]).reason or "")
