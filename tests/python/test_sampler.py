"""The sampler recovers planted costs and leaves out costs outside the operation."""

import math

import pytest

from fakes import H2D, facts, plan
from linkscope.plan import Plan
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.balance import MOST_COUNT
from linkscope.run.batches import Task
from linkscope.run.recipes import LEAST_BATCH_S
from linkscope.run.round_parts import WrongData
from linkscope.run.sampler import Sampler, Unsupported
from linkscope.run.stopping import MANY_SAMPLES, MOST_SAMPLES
from linkscope.run.worker import RequestFailed
from linkscope.runfile import PointId
from sampler_workers import Restless, Timed, sampled, value


@pytest.mark.parametrize("size", [8, 4096, 1 << 20, 64 << 20, 1 << 30])
def test_the_batched_cost_is_the_slope(size: int) -> None:
    record = sampled(size, each_s=2e-6, rate=50e9, start_s=1.25e-6)
    each = 2e-6 + size / 50e9
    assert value(record) == pytest.approx(each, rel=1e-6)
    assert record.overhead_s == pytest.approx(1.25e-6, rel=1e-3)
    assert record.batch[0] * each >= LEAST_BATCH_S and record.batch[0] <= MOST_COUNT
    assert record.verified is True and record.guards == {}


def test_the_cost_of_a_single_copy_is_another_quantity() -> None:
    record = sampled(4096, mode="single", each_s=2.4e-6, alone_s=6e-6, rate=50e9)
    assert value(record) == pytest.approx(8.4e-6 + 4096 / 50e9, rel=1e-6)
    assert record.overhead_s == pytest.approx(1.25e-6)
    assert record.batch == [1]


def test_the_batch_of_very_short_operations_is_bounded() -> None:
    assert sampled(8, each_s=1e-9, rate=1e15).batch == [MOST_COUNT]


def test_a_later_round_uses_the_batch_of_the_first() -> None:
    first = sampled(8, each_s=2e-6)
    first.batch = [40]
    assert sampled(8, first=first, each_s=1e-6).batch == [40]


@pytest.mark.parametrize(
    ("little_s", "part", "most"), [(0.0, 0.02, MOST_SAMPLES), (0.0, 0.5, 4), (math.inf, 0.5, MANY_SAMPLES)]
)
def test_a_round_without_agreement_ends_and_is_verified_once(
    monkeypatch, little_s: float, part: float, most: int
) -> None:
    """The number of samples of a round: enough to make its median steady; few if no number suffices; many if samples
    are cheap."""
    monkeypatch.setattr("linkscope.run.stopping.EXPENSIVE_S", math.inf)  # noise in the slope makes the batch long
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", little_s)
    monkeypatch.setattr("linkscope.run.stopping.MOST_BUSY_S", math.inf)
    worker = Restless(part)
    id = H2D.format(8, "false", "batched")
    record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert len(record.flows[0].samples_s) == most
    assert worker.verified == 1
    assert record.timing == "gate+slope" and record.verified is None


class Settling(Restless):
    """A worker whose pages cost twice as much in the first four samples of each request."""

    def __init__(self, steady_s: float, once_s: float) -> None:
        super().__init__()
        self.steady_s, self.once_s = steady_s, once_s
        self.asked: list[int] = []

    def run(self, samples, batches, *, verify, limit_s):
        self.asked.append(samples)
        self.verified += verify
        each = [self.steady_s * (2 if at < 4 else 1) for at in range(samples)]
        stamps = [stamp for one in each for batch in batches for stamp in (0.0, batch[0] * one)]
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)

    def prepare(self, case, key, limit_s, then=None):
        flow = FlowFacts(0, "numa:0", "gpu:0", "managed", "managed", case["bytes"], "measured")
        most = 1 if case["benchmark"] == "prefetch" else 0
        return Prepared(True, actors=1, flows=[flow], most_iterations=most, once_s=self.once_s)


PREFETCH = "prefetch/prefetch/numa:0.managed->gpu:0.managed/{}?bidirectional=false"


def plan_of(id: str) -> Plan:
    return Plan(suite="s", only=[], precision=None, budget_s=None, rounds=3, seed=1, order_seed=1, points=[id])


@pytest.mark.parametrize("bytes", [4096, 1 << 20])
def test_samples_before_the_pages_have_converged_are_not_counted(bytes: int) -> None:
    """Except for the first request, which only finds the duration of one operation, and the last one."""
    worker, id = Settling(50e-6, once_s=200e-6), PREFETCH.format(bytes)
    sampler = Sampler(worker, plan_of(id), facts())
    first = sampler.measure(Task(PointId.parse(id), 0))
    later = sampler.measure(Task(PointId.parse(id), 1, first))
    for found in (first, later):
        assert set(found.flows[0].samples_s) == {50e-6}
    assert worker.asked == [16, 5, 5, 5] and worker.verified == 2


D2D_SINGLE = "d2d/ce/gpu:0.device->gpu:1.device/{}?after=kernel&call=memcpy&initiator=src&mode=single&peer=on"
LOCAL = "local/ce/gpu:0.device->gpu:0.device/4096?after=kernel&mode=single"


@pytest.mark.parametrize(
    ("id", "settles"),
    [
        (LOCAL, True),
        (LOCAL + "&idle_gap_s=0.001", False),  # each sample follows an idle gap by design
        (LOCAL.replace("single", "batched"), False),  # the slope between batches removes the start-up cost
        (H2D.format(4096, "false", "single"), False),  # CPU caches are flushed before each sample
    ],
)
def test_single_copies_wait_for_convergence_unless_paused_or_flushed(id: str, settles: bool) -> None:
    worker = Settling(5e-6, once_s=20e-6)
    found = Sampler(worker, plan_of(id), facts()).measure(Task(PointId.parse(id), 0)).flows[0].samples_s
    assert (sum(worker.asked) == len(found) + 4 * len(worker.asked)) == settles


class Asleep(Settling):
    """A worker whose link sleeps until several copies are queued; before, a copy takes 20 times its time."""

    def run(self, samples, batches, *, verify, limit_s):
        self.steady_s = 5e-6 if self.asked or batches[-1][0] > 1 else 100e-6
        return super().run(samples, batches, verify=verify, limit_s=limit_s)

    def prepare(self, case, key, limit_s, then=None):
        self.asked, self.opening = [], then  # the link sleeps at the start of every round
        return super().prepare(case, key, limit_s, then)


@pytest.mark.parametrize(("bytes", "woken"), [(8, 256), (64 << 10, 64), (1 << 20, 4), (16 << 20, 0)])
def test_a_link_is_awake_when_single_copies_are_timed(bytes: int, woken: int) -> None:
    """One batch of copies wakes the link. Copies of 16 MiB wake it by themselves before the timed ones."""
    id = D2D_SINGLE.format(bytes)
    worker = Asleep(0.0, once_s=20e-6)
    sampler = Sampler(worker, plan_of(id), facts())
    first = sampler.measure(Task(PointId.parse(id), 0))
    assert max(first.flows[0].samples_s) < (10e-6 if woken else 300e-6)
    later = sampler.measure(Task(PointId.parse(id), 1, first))
    assert worker.opening is not None and worker.opening.batches == ([[woken]] if woken else [[0], [1]])
    assert max(later.flows[0].samples_s) < 300e-6


@pytest.mark.parametrize(
    ("was", "instead"),
    [
        ("peer=on", "peer=off"),
        ("single", "batched"),
        ("peer=on", "peer=on&idle_gap_s=0.01"),
        ("peer=on", "peer=on&piece=64"),  # 256 copies are too many for this kind of sample
    ],
)
def test_an_unused_link_or_a_link_after_an_idle_gap_is_not_woken(was: str, instead: str) -> None:
    id = D2D_SINGLE.format(8).replace(was, instead)
    worker = Asleep(0.0, once_s=20e-6)
    sampler = Sampler(worker, plan_of(id), facts())
    later = Task(PointId.parse(id), 1, sampler.measure(Task(PointId.parse(id), 0)))
    sampler.measure(later)
    assert worker.opening is None or worker.opening.batches != [[256]]


def test_expensive_samples_are_all_counted() -> None:
    worker, id = Settling(5e-3, once_s=20e-3), PREFETCH.format(16 << 20)
    found = Sampler(worker, plan_of(id), facts()).measure(Task(PointId.parse(id), 0)).flows[0].samples_s
    assert len(found) == sum(worker.asked) and 10e-3 in found


@pytest.mark.parametrize(("little_s", "most"), [(0.3, MANY_SAMPLES), (1e-3, 4)])
def test_samples_of_a_simulation_cost_simulated_time(monkeypatch, little_s: float, most: int) -> None:
    """A sample of 64 copies and one of 256, 2 us to 4 us each: 127 samples take 120 ms of simulated time, whatever
    the simulation itself took."""
    monkeypatch.setattr("linkscope.run.stopping.MOST_BUSY_S", math.inf)
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", little_s)
    first = sampled(8, each_s=2e-6)
    first.longer = 4
    monkeypatch.setattr("time.monotonic", iter(range(100, 10**6, 100)).__next__)
    worker = Restless()
    worker.timing = "virtual"
    id = H2D.format(8, "false", "batched")
    record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 1, first))
    assert len(record.flows[0].samples_s) == most


def test_a_round_beyond_the_wall_time_limit_has_fewer_samples(monkeypatch) -> None:
    monkeypatch.setattr("linkscope.run.stopping.MOST_WALL_S", 0.0)
    monkeypatch.setattr("linkscope.run.stopping.EXPENSIVE_S", math.inf)
    id = H2D.format(8, "false", "batched")
    record = Sampler(Restless(0.02), plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert len(record.flows[0].samples_s) == 4  # three, and the verified one
    model = Restless(0.02)
    model.timing = "virtual"
    record = Sampler(model, plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert len(record.flows[0].samples_s) > 4  # simulated results depend on no clock of this computer


class HeldUp(Restless):
    """A worker whose first batch is delayed in the first two samples, which therefore are negative."""

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            self.calls += 1
            late_s = 1e-3 if self.calls <= 2 else 0.0
            stamps += [
                0.0,
                batches[0][0] * 2e-6 + late_s,
                *(t for batch in batches[1:] for t in (0.0, batch[0] * 2e-6)),
            ]
        self.verified += verify
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)


def test_a_round_in_which_half_of_the_samples_are_negative_gets_more_samples(monkeypatch) -> None:
    """Seen on H200 for reading 256 B from another GPU: 3.2 us, -15.5 us, -15.4 us, 3.2 us."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    id = H2D.format(8, "false", "batched")
    first = sampled(8, each_s=2e-6)
    record = Sampler(HeldUp(), plan(id), facts()).measure(Task(PointId.parse(id), 1, first))
    samples_s = record.flows[0].samples_s
    assert sum(of < 0 for of in samples_s) == 2 and len(samples_s) > 4
    assert value(record) == pytest.approx(2e-6)


class FirstReported(Restless):
    """A worker with operations of 10 ms that reports a given duration of the first one."""

    def __init__(self, once_s: float) -> None:
        super().__init__(0.5)
        self.once_s = once_s
        self.asked: list[list[list[int]]] = []

    def run(self, samples, batches, *, verify, limit_s):
        self.asked.append(batches)
        stamps = [t for _ in range(samples) for batch in batches for t in (0.0, batch[0] * 10e-3)]
        return Trace(samples, len(batches), 1, "gate", stamps=stamps)

    def prepare(self, case, key, limit_s, then=None):
        prepared = super().prepare(case, key, limit_s)
        prepared.once_s = self.once_s
        return prepared


@pytest.mark.parametrize(
    "size, once_s, calibrations",
    [
        (512 << 20, 10e-3, []),  # the first copy of this size is like any other: two samples, and nothing before
        (512 << 20, 0.0, [[[1]]]),  # one operation first, since nothing is known
        (1 << 20, 3.0, [[[1]]]),  # the first operation of a small copy may take any time, so it is always measured
    ],
)
def test_the_reported_first_time_is_used_for_large_copies_only(size: int, once_s: float, calibrations) -> None:
    worker, id = FirstReported(once_s), H2D.format(size, "false", "batched")
    record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert worker.asked[: len(calibrations)] == calibrations
    assert record.batch == [1] and value(record) == pytest.approx(10e-3)
    if size == 512 << 20:
        assert worker.asked[len(calibrations) :] == [[[0], [1]], [[0], [1]]]


def test_faults_have_their_reason() -> None:
    with pytest.raises(Unsupported, match="because the test says so"):
        sampled(8, flawed={"unsupported": "*"})
    with pytest.raises(WrongData, match="region 1"):
        sampled(8, flawed={"wrong": "*"})
    with pytest.raises(RequestFailed, match="memory"):
        sampled(8, flawed={"memory": "*"})


def test_a_nonlinear_cost_is_noted() -> None:
    class Bent(Restless):
        def run(self, samples, batches, *, verify, limit_s):
            stamps = [t for _ in range(samples) for batch in batches for t in (0.0, batch[0] ** 2 * 1e-6)]
            return Trace(samples, len(batches), 1, "host", stamps=stamps)

    id = H2D.format(8, "false", "batched")
    assert "nonlinear" in Sampler(Bent(), plan(id), facts()).measure(Task(PointId.parse(id), 0)).guards


@pytest.mark.parametrize("cheap", [0, 60, 100])
def test_cheaper_first_copies_are_left_out_of_the_batched_cost(cheap: int) -> None:
    class Kinked(Restless):
        """Device to host on H200: the first copies of a batch cost 1.6 us, the following ones 2.0 us."""

        def run(self, samples, batches, *, verify, limit_s):
            ends = [1e-6 * (1.6 * min(batch[0], cheap) + 2.0 * max(batch[0] - cheap, 0)) for batch in batches]
            stamps = [t for _ in range(samples) for end in ends for t in (0.0, end)]
            return Trace(samples, len(batches), 1, "gate", stamps=stamps)

    id = H2D.format(8, "false", "batched")
    record = Sampler(Kinked(), plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert value(record) == pytest.approx(2e-6, rel=1e-6)
    assert "nonlinear" not in record.guards


def test_a_long_operation_has_no_second_batch() -> None:
    worker = Timed(lambda count: 3e-6 + (count * 9.7e-3 + 12e-6 if count else 0.0))
    id = H2D.format(512 << 20, "false", "batched")
    record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert value(record) == pytest.approx(9.7e-3, rel=2e-3)  # includes the extra cost of the first operation
    assert worker.asked[-4:] == [0, 1, 0, 1] and record.batch == [1]


@pytest.mark.parametrize("step_s, batch", [(1e-6, 1000), (0.1e-6, 4096), (20e-6, 256)])
def test_a_pointer_chase_is_long_enough_for_a_link_that_wakes_up(step_s: float, batch: int) -> None:
    """The first launch of a sample may take 58 us more; a launch costs 5 us."""
    calls = iter(range(1_000_000))
    worker = Timed(lambda count: 5e-6 + count * step_s + (58e-6 if next(calls) % 7 == 3 else 0.0))
    id = "latency/sm/gpu:1.device->gpu:0.device/0?cache=cold&range=2MiB"
    record = Sampler(worker, plan(H2D.format(8, "false", "batched")), facts()).measure(Task(PointId.parse(id), 0))
    assert value(record) == pytest.approx(step_s, rel=0.06)
    assert record.batch[0] == pytest.approx(batch, rel=0.1)


def test_a_later_round_has_two_samples_if_both_rounds_are_steady_and_equal() -> None:
    first = sampled(4096, each_s=2e-6)
    assert len(first.flows[0].samples_s) == 4
    assert len(sampled(4096, first=first, each_s=2e-6).flows[0].samples_s) == 2
    other = sampled(4096, first=first, each_s=2.2e-6)  # by 10 %, with a target of 5 %
    assert len(other.flows[0].samples_s) > 2
    first.flows[0].samples_s = [2e-6, 2.4e-6, 2.0e-6, 2.4e-6]
    assert len(sampled(4096, first=first, each_s=2.2e-6).flows[0].samples_s) > 2


def test_a_round_is_sampled_no_finer_than_rounds_differ(monkeypatch) -> None:
    monkeypatch.setattr("linkscope.run.stopping.EXPENSIVE_S", math.inf)
    id = H2D.format(8, "false", "batched")

    def samples(spread: float) -> int:
        worker = Restless(0.02)
        worker.timing = "virtual"
        record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 3, None, spread))
        return len(record.flows[0].samples_s)

    assert samples(0.0) > 4 and samples(5.0) == 4
