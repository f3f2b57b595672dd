"""Runs with misleading data: drift, throttling, and points that cannot be measured; the order of a run file."""

import itertools
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from fakes import FAKE_WORKER, H2D, facts, measured, plan, round_record, target
from linkscope.plan import Inheritance, case_of
from linkscope.plan.classes import PathClass
from linkscope.run.answers import Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.budget import Budget
from linkscope.run.records import Records
from linkscope.run.sampler import Sampler
from linkscope.run.states import Ledger, State
from linkscope.run.worker import RequestFailed, RunRequest, Worker
from linkscope.runfile import Point, PointId, RoundFlow, read_run
from sampler_workers import Restless, Timed
from test_assemble import BOTH, ONE, assembler, round_of, with_early_stops

LARGE = H2D.format(64 << 20, "false", "batched")
OTHER = H2D.format(4096, "false", "batched")


# --- the rounds of a point ---


def settling(*samples: list[float], rounds: int = 6) -> Point:
    """A point whose rounds cycle through these samples, as fractions of 2 us, with a target of 1 %."""
    factors = itertools.cycle(samples)
    made = [round_of(n, [2e-6 * factor for factor in next(factors)]) for n in range(rounds)]
    return assembler(precision=0.01).point(ONE, made)


@pytest.mark.parametrize("how, samples", [("rise", [1.0, 1.02, 1.04, 1.06]), ("fall", [1.06, 1.04, 1.02, 1.0])])
def test_a_trend_within_the_rounds_means_not_converged(how: str, samples: list[float]) -> None:
    found = settling(samples)
    assert found.status == "missed_precision" and f"{how} by 6%: not converged" in (found.reason or "")
    assert found.guards["trend"] == pytest.approx(0.06 / 1.03 * (1 if how == "rise" else -1), rel=1e-3)


def test_a_trend_below_the_precision_or_by_chance_counts_as_converged() -> None:
    assert settling([1.0, 1.002, 1.004, 1.006]).status == "ok"  # a significant trend of 0.6 %
    assert settling([1.0, 1.02]).status == "ok"  # six rounds of two samples: 1 run in 32 looks like this by chance


def test_a_round_with_one_mode_does_not_make_the_point_bimodal() -> None:
    """Three of six rounds lie on one side, two on the other, one on both: each process has one mode of its own."""
    apart = [[1.0] * 4] * 3 + [[1.5] * 4] * 2 + [[1.0, 1.0, 1.5, 1.5]]
    found = settling(*apart)
    assert found.spread is not None and found.spread.modes_s is None


def test_spread_is_a_relative_standard_deviation() -> None:
    """Samples 1 % above and below: 1.414 % within rounds, and equal means of all rounds."""
    spread = settling([0.99, 1.01]).spread
    assert spread is not None and spread.between_rounds == 0.0
    assert spread.within_rounds == pytest.approx(0.01 * 2**0.5, rel=1e-3)
    spread = settling([0.99, 0.99], [1.01, 1.01]).spread
    assert spread is not None and spread.within_rounds == 0.0
    assert spread.between_rounds == pytest.approx(0.01 * (6 / 5) ** 0.5, rel=1e-3)


def test_two_clock_ticks_of_a_gpu_are_64_ns_over_the_smallest_batch() -> None:
    rounds = [round_of(n, [0.4e-6], batch=[2, 64]) for n in range(6)]
    assert assembler().point(ONE, rounds).precision_target == pytest.approx(64e-9 / 2 / 0.4e-6)


@pytest.mark.parametrize(("longer", "more"), [(8, 14), (2, 2), (1, 2), (None, 2)])
def test_a_clock_tick_is_divided_by_the_difference_of_the_batches(longer: int | None, more: int) -> None:
    rounds = [round_of(n, [0.04e-6], batch=[2, 64], longer=longer) for n in range(6)]
    assert assembler().point(ONE, rounds).precision_target == pytest.approx(64e-9 / more / 0.04e-6)


def test_a_missing_overhead_stays_missing() -> None:
    assert assembler().point(ONE, [round_of(n, [2e-6], overhead_s=None) for n in range(6)]).overhead_s is None


def test_a_point_throttled_in_every_round_is_not_ok() -> None:
    rounds = [round_of(n, [2e-6], guards={"throttled": ["hw_thermal"]}) for n in range(6) for _ in (0, 1)]
    found = assembler().point(ONE, rounds)
    assert (found.status, found.reason) == ("missed_precision", "the GPU was throttled in every round")
    assert found.median_s == 2e-6 and len(found.flows[0].round_medians_s) == 6


def test_an_inherited_point_has_the_places_of_its_own_path() -> None:
    """Its interval is wider by the possible difference of the paths. An inherited point has no rounds."""
    source = assembler().point(BOTH, [round_of(n, [20e-6 + n * 1e-8], [30e-6 + n * 1e-8]) for n in range(6)])
    id = BOTH.replace("gpu:0", "gpu:1")
    found = assembler().inherited(Inheritance(id, BOTH, 0.9, 1.2, shown=True), source)
    assert (found.status, found.inherited_from) == ("inherited", BOTH)
    assert [(flow.src, flow.dst) for flow in found.flows] == [("numa:0", "gpu:1"), ("gpu:1", "numa:0")]
    assert [flow.median_s for flow in found.flows] == [flow.median_s for flow in source.flows]
    assert found.ci95_s == pytest.approx((0.9 * 20e-6, 1.2 * 20.05e-6))
    assert found.flows[1].ci95_s == pytest.approx((0.9 * 30e-6, 1.2 * 30.05e-6))
    assert found.total_gbps == source.total_gbps and all(flow.round_medians_s == [] for flow in found.flows)


@pytest.mark.parametrize("slowest_s, status", [(18e-6, "missed_precision"), (16.6e-6, "failed")])
def test_without_an_interval_the_slowest_sample_is_compared_with_the_limit(slowest_s, status: str) -> None:
    """1 MiB in 16.4 us is 63.9 GB/s, in 18 us 58.3 GB/s; the limit is 60."""
    rounds = [round_of(n, [16.4e-6, 16.4e-6, slowest_s], [20e-6]) for n in range(3)]
    assert assembler(lambda point: (60.0, "the link")).point(BOTH, rounds).status == status


def test_the_later_of_two_throttled_rounds_counts() -> None:
    hot = {"throttled": ["hw_thermal"]}
    rounds = [round_of(n, [seconds], guards=hot) for n in range(6) for seconds in (4e-6, 2e-6)]
    assert assembler().point(ONE, rounds).median_s == 2e-6


def test_three_rounds_that_reach_the_precision_are_enough_whatever_stopped_the_others() -> None:
    made = with_early_stops(deviation=0.002)
    three = [round_of(n, [2e-6 * factor]) for n, factor in enumerate((1.0, 1.001, 1.002))]
    found = made.point(ONE, three, "the budget left no time")
    assert (found.status, found.reason, found.guards["stopped"]) == ("ok", None, "the budget left no time")
    apart = [round_of(n, [2e-6 * factor]) for n, factor in enumerate((1.0, 1.01, 1.02))]
    found = made.point(ONE, apart, "the budget left no time")
    assert found.status == "missed_precision" and (found.reason or "").endswith("; the budget left no time")


def test_the_spread_of_rounds_is_known_after_three_of_them() -> None:
    state = State(PointId.parse(ONE), 1e-3)
    for number, factor in enumerate((0.9, 1.1, 1.0)):
        assert state.spread == 0.0
        made = round_record(ONE, number)
        made.flows = [RoundFlow("numa:0", "gpu:0", "pinned", "device", 8, "measured", [factor * 1e-6] * 3)]
        state.rounds.append(made)
    assert state.spread == pytest.approx(0.1)
    for made in state.rounds:  # noise makes the samples negative
        made.flows[0].samples_s = [-seconds for seconds in made.flows[0].samples_s]
    assert state.spread == 0.0


def test_a_concurrent_point_uses_the_places_of_all_its_paths() -> None:
    point = PointId.parse("concurrent/ce/numa:0.pinned->gpu:0.device/8?with=numa:0->gpu:1,gpu:2->numa:0")
    assert State(point, 1e-3).places == {"numa:0", "gpu:0", "gpu:1", "gpu:2"}


# --- sampling of a round ---


def of_timed(worker: Any, **wishes: Any) -> Any:
    return Sampler(worker, plan(ONE, **wishes), facts()).measure(Task(PointId.parse(ONE), 0))


def test_a_cost_that_falls_with_the_batch_is_noted() -> None:
    assert "nonlinear" in of_timed(Timed(lambda count: 1e-5 * count**0.7)).guards


def test_an_operation_of_zero_time_is_recorded_without_a_crash() -> None:
    record = of_timed(Timed(lambda count: 0.0))
    assert set(record.flows[0].samples_s) == {0.0} and "joint_overlap" not in record.guards


def test_an_answer_to_another_request_fails_the_point() -> None:
    class Deaf(Restless):
        def run(self, samples, batches, *, verify, limit_s):
            return super().run(samples + 1, batches, verify=verify, limit_s=limit_s)

    with pytest.raises(RequestFailed, match="other samples than requested"):
        of_timed(Deaf())


def test_the_answer_to_a_run_that_nobody_waits_for_is_not_taken_for_the_next_answer() -> None:
    """A run that was sent with the preparation of a point remains if that point is given up."""
    worker = Worker(FAKE_WORKER)
    try:
        worker.open(target().open_request)
        case = case_of(PointId.parse(ONE), facts())
        assert worker.prepare(case, "first", then=RunRequest(1, [[1]], verify=False)).supported
        assert worker.prepare(case, "second").supported
        assert worker.run(2, [[1], [2]], verify=False).samples == 2
    finally:
        worker.kill()


class Ticking(Restless):
    """10 us per operation, plus up to 1 ns from sample to sample: over 30 operations less than a tick of the host's
    clock."""

    def __init__(self, timing: str) -> None:
        super().__init__()
        self.timing = timing

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            self.calls += 1
            stamps += [t for batch in batches for t in (0.0, batch[0] * (1e-5 + self.calls % 3 * 0.5e-9))]
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)


def test_the_host_clock_is_assumed_to_tick_in_100_ns(monkeypatch) -> None:
    """A quarter of a tick is the finest scatter that samples can show, so no samples are added for less."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    by_host, by_events = (of_timed(Ticking(timing), precision=1e-6) for timing in ("host", "gate"))
    assert len(by_host.flows[0].samples_s) == 4 < len(by_events.flows[0].samples_s)


@pytest.mark.parametrize("spread, samples", [(0.0, 7), (0.02, 7), (0.5, 4)])
def test_a_round_is_sampled_to_half_of_the_spread_between_rounds(monkeypatch, spread: float, samples: int) -> None:
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    monkeypatch.setattr("linkscope.run.stopping.EXPENSIVE_S", math.inf)  # noise in the slope makes the batch long
    worker = Restless(0.05)
    worker.timing = "virtual"
    record = Sampler(worker, plan(ONE), facts()).measure(Task(PointId.parse(ONE), 3, None, spread))
    assert len(record.flows[0].samples_s) == samples


def test_operations_that_keep_the_machine_busy_get_fewer_samples(monkeypatch) -> None:
    """Operations of 5 ms that scatter by 2 %: about 80 ms of sampling, too little for seven samples."""

    class Slow(Restless):
        timing = "virtual"

        def run(self, samples, batches, *, verify, limit_s):
            stamps = []
            for _ in range(samples):
                self.calls += 1
                stamps += [t for batch in batches for t in (0.0, batch[0] * 5e-3 * (1 + 0.01 * (self.calls % 3)))]
            return Trace(samples, len(batches), 1, self.timing, stamps=stamps)

    def sample_count() -> int:
        return len(of_timed(Slow(), precision=0.001).flows[0].samples_s)

    monkeypatch.setattr("linkscope.run.stopping.OUT_OF_REACH", 1e9)
    few = sample_count()
    monkeypatch.setattr("linkscope.run.stopping.MOST_BUSY_S", 10.0)
    assert few < sample_count() == 7


@pytest.mark.parametrize("gap, samples", [("", 7), ("&idle_gap_s=0.001", 7), ("&idle_gap_s=0.01", 3)])
def test_single_copies_have_seven_samples_and_fewer_after_long_pauses(gap: str, samples: int) -> None:
    point = PointId.parse(H2D.format(8, "false", "single") + gap)
    worker = Timed(lambda count: 1e-6 + count * 1e-5)
    record = Sampler(worker, plan(ONE), facts()).measure(Task(point, 0))
    assert len(record.flows[0].samples_s) == samples and record.batch == [1]


@pytest.mark.parametrize("cache, known", [("written", False), ("dirty", False), ("cold", True)])
def test_newly_allocated_memory_is_prepared_before_its_first_run(cache: str, known: bool) -> None:
    requested: list[Any] = []

    class Recording(Timed):
        def prepare(self, case: Any, key: str, limit_s: float, then: Any = None) -> Prepared:
            requested.append(then)
            return super().prepare(case, key, limit_s)

    point = PointId.parse(f"{ONE}&cache={cache}")
    worker = Recording(lambda count: 1e-6 + count * 1e-5)
    first = Sampler(worker, plan(ONE), facts()).measure(Task(point, 0))
    Sampler(worker, plan(ONE), facts()).measure(Task(point, 1, first))
    assert requested[0] is None and (requested[1] is not None) is known


# --- order of measurement ---


def records(path: Path) -> list[str]:
    """'round ID' and 'point ID', in the order of the file."""
    run = read_run(path)
    known = {id for id in run.rounds} | {point.id for point in run.points}
    lines = path.read_text().splitlines()
    found = []
    for line in lines:
        for kind in ("round", "point"):
            found += [f"{kind} {id}" for id in known if f'"record":"{kind}","id":"{id}"' in line]
    return found


@pytest.mark.parametrize("each_s, known", [(1e-5, True), (20e-3, False)])
def test_the_preparation_decides_whether_two_operations_fit_into_a_sample(each_s: float, known: bool) -> None:
    """A later round with one operation per batch is therefore not sent before the preparation."""
    requested: list[Any] = []

    class Recording(Timed):
        def prepare(self, case: Any, key: str, limit_s: float, then: Any = None) -> Prepared:
            requested.append(then)
            return super().prepare(case, key, limit_s)

    worker, point = Recording(lambda count: 1e-6 + count * each_s), PointId.parse(ONE)
    first = Sampler(worker, plan(ONE), facts()).measure(Task(point, 0))
    assert (first.batch == [1]) is not known
    Sampler(worker, plan(ONE), facts()).measure(Task(point, 1, first))
    assert (requested[1] is not None) is known


def test_base_rounds_are_in_random_order_with_a_budget_too(tmp_path) -> None:
    """Otherwise a drift during a round would always hit the same points."""
    orders = []
    for number, budget_s in enumerate((None, 1e6)):
        path = tmp_path / f"{number}.jsonl"
        measured(target(), plan(suite="quick", budget_s=budget_s, rounds=2), path)
        orders.append([one for one in records(path) if one.startswith("round")])
    assert orders[0] == orders[1]
    first, second = (orders[0][at : at + len(orders[0]) // 2] for at in (0, len(orders[0]) // 2))
    assert sorted(first) == sorted(second) and first != second


def test_a_point_is_written_right_after_its_last_round(tmp_path) -> None:
    """A run killed at this moment has all points but one, instead of none."""
    path = tmp_path / "a.jsonl"
    measured(target(), plan(ONE, OTHER, rounds=2), path)
    lines = records(path)
    assert [one.partition(" ")[0] for one in lines] == ["round", "round", "round", "point", "round", "point"]
    assert lines[2].partition(" ")[2] == lines[3].partition(" ")[2]


def test_a_point_unsupported_at_one_size_is_unsupported_at_all_sizes(tmp_path) -> None:
    """The other sizes are not tried, and their reason is not lack of time."""
    sizes = [H2D.format(8 << 2 * at, "false", "batched") for at in range(12)]
    ids = [id.replace("gpu:0", f"gpu:{gpu}") for id in sizes for gpu in range(4)]
    paths = [f"numa:0->gpu:{gpu}" for gpu in range(4)]
    made = structs.replace(plan(*ids, gpus=4), classes=[PathClass("host to GPU", paths)])
    found = measured(target(4, flawed={"unsupported": "*"}), made, tmp_path / "a.jsonl").points
    assert found.keys() == set(ids)
    assert {(one.status, one.reason) for one in found.values()} == {
        ("unsupported", "not here, because the test says so")
    }


def test_flows_get_their_own_batches_if_those_of_another_path_do_not_balance(tmp_path) -> None:
    """Both directions of two GPUs are in one class, but those of gpu:1 have rates of 9 and 18 GB/s."""
    ids = [H2D.format(16 << 20, "true", "batched").replace("gpu:0", f"gpu:{gpu}") for gpu in (0, 1)]
    classes = [PathClass("host to GPU", ["numa:0->gpu:0", "numa:0->gpu:1"])]
    made = structs.replace(plan(*ids, rounds=3), classes=classes)
    rates = {"numa:0->gpu:1": 9e9, "gpu:1->numa:0": 18e9}
    path = tmp_path / "a.jsonl"
    measured(target(each_s=0.0, start_s=0.0, rates=rates), made, path)
    one, other = (next(point for point in read_run(path).points if point.id == id) for id in ids)
    assert one.batch and other.batch and one.batch[0] == one.batch[1]
    assert other.batch[1] == pytest.approx(2 * other.batch[0], rel=0.1)
    assert other.guards["joint_overlap"] > 0.85 and "in_turn" not in other.guards


def renewed(made: Any, before: Point, rounds: list[Any]) -> list[Point]:
    """The records that are written when later rounds of other points have shown more of the noise."""
    ledger = Ledger(plan(ONE), facts())
    ledger.states[ONE].rounds = rounds
    ledger.finish(before)
    stored: list[Point] = []
    noise = SimpleNamespace(refresh=lambda: None, rounds=3)
    records = Records(plan(ONE), ledger, made, Budget(None, modelled=True), noise, SimpleNamespace(write=stored.append))
    assert records.renew()
    return stored


def test_a_renewed_record_still_says_why_the_point_got_no_more_rounds() -> None:
    made = with_early_stops(deviation=0.001)
    rounds = [round_of(number, [2e-6 * (1 + 0.001 * number)]) for number in range(3)]
    before = made.point(ONE, rounds, "the budget left no time")
    assert (before.status, before.guards["stopped"]) == ("ok", "the budget left no time")
    before.ci95_s = (1e-6, 3e-6)  # by the noise that was known then
    (after,) = renewed(made, before, rounds)
    assert after.ci95_s != before.ci95_s and after.guards["stopped"] == "the budget left no time"


@pytest.mark.parametrize(("moved", "records"), [(0.06, 0), (0.14, 1)], ids=["less than a tenth", "more than a tenth"])
def test_a_record_is_renewed_if_an_end_of_its_interval_moves_by_a_tenth_of_the_half_width(moved, records) -> None:
    made = with_early_stops(deviation=0.001)
    rounds = [round_of(number, [2e-6 * (1 + 0.001 * number)]) for number in range(3)]
    before = made.point(ONE, rounds)
    assert before.ci95_s is not None
    low, high = before.ci95_s
    half_width = (high - low) / 2 / (1 - moved / 2)  # of the interval before, whose lower end was lower
    before.ci95_s = (high - 2 * half_width, high)
    assert len(renewed(made, before, rounds)) == records
