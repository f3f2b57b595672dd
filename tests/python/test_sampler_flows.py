"""The sampler with flows at the same time: batches that end together, flows in turn, and overlap."""

import math

import pytest

from fakes import H2D, facts, plan
from linkscope.run.answers import Trace
from linkscope.run.assemble import Assembler
from linkscope.run.balance import MOST_COUNT, balanced
from linkscope.run.batches import Task
from linkscope.run.sampler import Sampler
from linkscope.run.stopping import MOST_SAMPLES
from linkscope.runfile import PointId
from linkscope.stats import median
from sampler_workers import Joint, earlier, measured, sampled, value


@pytest.mark.parametrize("size", [4096, 1 << 20, 16 << 20, 256 << 20])
def test_concurrent_flows_end_together(size: int) -> None:
    record = sampled(size, both="true", each_s=0.0, start_s=0.0, rates={"numa:0->gpu:0": 9e9, "gpu:0->numa:0": 18e9})
    assert [flow.src for flow in record.flows] == ["numa:0", "gpu:0"]
    assert value(record, 0) == pytest.approx(size / 9e9, rel=1e-6)
    assert value(record, 1) == pytest.approx(size / 18e9, rel=1e-6)
    assert record.guards["joint_overlap"] > 0.95


@pytest.mark.parametrize(
    "each, least", [([1e-6], 50e-6), ([3.3e-6, 1e-6], 50e-6), ([1e-3, 0.7e-3], 50e-6), ([1.0, 0.4], 50e-6)]
)
def test_balanced_batches_end_together(each: list[float], least: float) -> None:
    counts = balanced(each, least)
    ends = [count * one for count, one in zip(counts, each, strict=True)]
    assert max(ends) >= least * 0.9
    assert max(ends) / min(ends) < 1.3
    assert all(1 <= count <= MOST_COUNT for count in counts)


def test_a_balanced_batch_is_as_short_as_possible() -> None:
    """Operations of 7 and 5 ms: with 20 ms or more, batches of 3 and 4 end 1 ms apart, batches of 5 and 7 together."""
    assert balanced([7e-3, 5e-3], 20e-3) == [5, 7]
    assert balanced([7e-3, 7e-3], 20e-3) == [3, 3]
    assert balanced([70e-3, 50e-3], 20e-3) == [1, 1]  # five operations of 70 ms would take too long


def test_long_operations_get_few_samples_and_short_ones_more() -> None:
    assert len(sampled(1 << 30, rate=5e9).flows[0].samples_s) == 2
    assert len(sampled(128 << 20, rate=5e9).flows[0].samples_s) == 2  # two samples that agree
    assert len(sampled(256 << 20, rate=10e9).flows[0].samples_s) == 2  # a copy of this size by an engine
    assert len(sampled(4096).flows[0].samples_s) == 4


def test_flows_that_run_in_turn_keep_equal_batches() -> None:
    id = H2D.format(64 << 20, "true", "batched")
    worker = Joint(lambda first, second: (first * 2e-3, (first + second) * 2e-3))
    record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert record.batch[0] == record.batch[1]


def test_a_flow_that_only_waits_for_the_other_is_not_balanced() -> None:
    """Staged copies from two threads on an H200: with batches of 4 and 13 both end together because one waits."""

    def ends(first: int, second: int) -> tuple[float, float]:
        waits = first < second and first + second > 20
        return (second * 2e-3 if waits else first * 4.3e-3 if first < second else first * 2.4e-3), second * 2e-3

    id = H2D.format(64 << 20, "true", "batched")
    record = Sampler(Joint(ends), plan(id), facts()).measure(Task(PointId.parse(id), 0, None))
    first, second = record.batch
    assert ends(2 * first, 2 * second)[0] == pytest.approx(2 * ends(first, second)[0])


@pytest.mark.parametrize("size", [64 << 20, 512 << 20])
def test_flows_in_turn_keep_their_own_times_and_record_the_joint_time(size: int) -> None:
    """One engine copies all of the first flow, then all of the second."""
    id = H2D.format(size, "true", "batched")
    worker = Joint(lambda first, second: (first * 2e-3, (first + second) * 2e-3))
    record = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx([2e-3, 4e-3], rel=1e-6)
    assert record.guards["joint_overlap"] == pytest.approx(0.5)
    assert record.guards["together_s"] == pytest.approx(4e-3)


def two_paced_flows(first_s: float, second_s: float, alone_s: float):
    """Seconds of two flows with their own pace while both run. The flow that remains alone is faster."""

    def ends(first: int, second: int) -> tuple[float, float]:
        one, other = first * first_s, second * second_s
        if one <= other:
            return one, one + (second - one / second_s) * alone_s
        return other + (first - other / first_s) * alone_s, other

    return ends


def test_flows_of_different_pace_are_measured_while_both_run() -> None:
    """512 MiB in both directions for four H200s: 28 ms to the GPUs, 18.5 ms to the host, 10 ms for a single
    flow."""
    id = H2D.format(512 << 20, "true", "batched")
    record = Sampler(Joint(two_paced_flows(28e-3, 18.5e-3, 10e-3)), plan(id), facts()).measure(
        Task(PointId.parse(id), 0)
    )
    assert value(record, 0) == pytest.approx(28e-3, rel=0.03) and value(record, 1) == pytest.approx(18.5e-3, rel=0.03)
    assert record.guards["joint_overlap"] > 0.96


def test_one_slow_sample_does_not_make_flows_run_in_turn() -> None:
    calls = iter(range(1_000_000))

    def ends(first: int, second: int) -> tuple[float, float]:
        slow = 0.02 if next(calls) == 9 else 0.0
        return first * 2e-3, second * 2e-3 + slow

    id = H2D.format(64 << 20, "true", "batched")
    record = Sampler(Joint(ends), plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx([2e-3, 2e-3], rel=1e-6)
    assert record.guards["joint_overlap"] > 0.96


def test_a_later_round_measures_like_the_first() -> None:
    """Flows of 10 and 5 ms whose first operation takes 1 ms longer: the longer batch has two, the shorter one is not
    empty."""

    def ends(first: int, second: int) -> tuple[float, float]:
        return first and first * 10e-3 + 1e-3, second and second * 5e-3 + 1e-3

    id = H2D.format(256 << 20, "true", "batched")
    first = Sampler(Joint(ends), plan(id), facts()).measure(Task(PointId.parse(id), 0))
    later = Sampler(Joint(ends), plan(id), facts()).measure(Task(PointId.parse(id), 1, first))
    for record in (first, later):
        assert [value(record, flow) for flow in (0, 1)] == pytest.approx([10e-3, 5e-3], rel=1e-6)


def takes_turns(first: int, second: int) -> tuple[float, float]:
    """Start-up costs of 1 and 5 ms, then all of the first flow at 2 ms each, then all of the second at 3 ms each."""
    return 1e-3 + first * 2e-3, 5e-3 + first * 2e-3 + second * 3e-3


# From a batch of 4 and 10 to twice this batch the last flow ends 4 x 2 + 10 x 3 = 38 ms later: 14 operations in 38 ms.
# The flow that runs first takes 2 ms per operation, the other flow 38 ms for its 10.
TURNS = {
    "the second ends last": ([4, 10], takes_turns, [2e-3, 3.8e-3]),
    "the first ends last": ([10, 4], lambda a, b: takes_turns(b, a)[::-1], [3.8e-3, 2e-3]),
}


@pytest.mark.parametrize(("batch", "ends", "own_s"), TURNS.values(), ids=TURNS)
def test_flows_in_turn_keep_their_own_times_and_the_total_counts_until_the_last_end(batch, ends, own_s) -> None:
    size = 64 << 20
    record = measured(Joint(ends), size, first=earlier(batch, 2e-3, 3e-3))
    assert record.batch == batch
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx(own_s, rel=1e-6)
    assert record.guards["together_s"] == pytest.approx(38e-3 * 2 / 14, rel=1e-6)
    assert record.guards["joint_overlap"] == pytest.approx(17 / 81, abs=1e-4)  # of the doubled batch
    assert record.overhead_s == pytest.approx(1e-3 if batch[0] == 4 else 5e-3, rel=1e-6)  # that of the first flow
    id = H2D.format(size, "true", "batched")
    point = Assembler(plan(id), facts(), lambda _: None).point(id, [record])
    assert point.total_gbps == pytest.approx(14 * size / 38e-3 / 1e9) and point.guards["in_turn"] is True


def test_flows_in_turn_use_twice_the_batch_if_a_longer_one_would_change_the_clock() -> None:
    class Held(Joint):
        def run(self, samples, batches, *, verify, limit_s):
            trace = super().run(samples, batches, verify=verify, limit_s=limit_s)
            trace.timing = "host" if max(map(max, batches)) > 20 else "gate"
            return trace

    first = earlier([4, 10], 2e-3, 3e-3)
    first.timing, first.longer = "gate+slope", 3
    record = measured(Held(takes_turns), 64 << 20, first=first)
    assert (record.longer, record.timing) == (2, "gate+slope")
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx([2e-3, 3.8e-3], rel=1e-6)
    assert record.guards["together_s"] == pytest.approx(38e-3 * 2 / 14, rel=1e-6)


def served_by_batch_size(first: int, second: int) -> tuple[float, float]:
    """One engine, 0.2 ms per copy. The second flow looks fast while it has as many copies as the first. With many more
    copies it is served first, the first flow waits, and both end together, later with every copy."""
    everything = (first + second) * 2e-4
    return everything, second * 2e-4 if second > 8 * first else 1e-4 + second * 2e-6


def test_very_unequal_counts_that_gain_nothing_do_not_count_as_ending_together() -> None:
    size = 64 << 20
    assert len(set(measured(Joint(served_by_batch_size), size).batch)) == 1
    unequal = measured(Joint(lambda first, second: (first * 2e-3, second * 2e-4)), size).batch
    assert unequal[1] == 10 * unequal[0]  # these run concurrently and gain a factor of 5


def test_long_flows_in_turn_are_compared_with_an_empty_batch() -> None:
    """10 ms once, then 20 ms twice: the last flow ends 50 ms after its start, after start-up costs of 1 and 5 ms."""

    def ends(first: int, second: int) -> tuple[float, float]:
        return 1e-3 + first * 10e-3, 5e-3 + first * 10e-3 + second * 20e-3

    record = measured(Joint(ends), 64 << 20, first=earlier([1, 2], 10e-3, 20e-3))
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx([10e-3, 25e-3], rel=1e-6)
    assert record.guards["together_s"] == pytest.approx(50e-3 * 2 / 3, rel=1e-6)
    assert record.guards["joint_overlap"] == pytest.approx(0.2)


class Overlapping(Joint):
    """10 us per operation. In the doubled batch of each sample the second flow takes this fraction of the first flow's
    time."""

    def __init__(self, overlaps: list[float]) -> None:
        super().__init__(None)
        self.overlaps = iter(overlaps)

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            (short, _), (long, _) = batches
            stamps += [0.0, short * 1e-5, 0.0, short * 1e-5]
            stamps += [0.0, long * 1e-5, 0.0, long * 1e-5 * next(self.overlaps)]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)


@pytest.mark.parametrize(
    ("overlaps", "overlap"),
    [
        ([0.95, 0.5, 0.9, 0.99, 0.6, 0.88, 1.0], 0.9),  # the mean is 0.83, the last 1
        ([1.0, 0.84, 0.97, 0.83, 0.82, 0.99, 0.8], 0.84),  # the mean is 0.89
        ([1.1, 1.3, 1.25, 1.6, 1.25, 1.2, 1.4], 0.8),  # the second flow takes longer
    ],
)
def test_the_overlap_of_a_round_is_the_median_of_its_samples(monkeypatch, overlaps, overlap: float) -> None:
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", math.inf)
    monkeypatch.setattr("linkscope.run.stopping.MANY_SAMPLES", MOST_SAMPLES)
    record = measured(Overlapping(overlaps), 8, first=earlier([10, 10], 1e-5, 1e-5))
    assert record.guards["joint_overlap"] == pytest.approx(overlap, abs=1e-4)
    assert len(record.flows[0].samples_s) == MOST_SAMPLES
    own = [2 * of - 1 for of in overlaps]  # extra time of the second flow in the doubled batch, in units of 10 us
    both = [max(2 * of, 2) - 1 for of in overlaps]  # the same for the flow that ends last
    assert [value(record, flow) / 1e-5 for flow in (0, 1)] == pytest.approx([1.0, median(own)], rel=1e-6)
    assert record.guards["together_s"] == pytest.approx(median(both) * 1e-5, rel=1e-6)


@pytest.mark.parametrize("start_s", [(1e-3, 0.0), (0.0, 1e-3)], ids=["the first later", "the second later"])
def test_equal_flows_that_start_at_different_times_are_balanced_by_their_ends(start_s: tuple[float, float]) -> None:
    """2 ms per operation each: the slopes suggest equal batches, but the doubled ones end 5.9 % apart."""

    def ends(first: int, second: int) -> tuple[float, float]:
        return start_s[0] + first * 2e-3, start_s[1] + second * 2e-3

    record = measured(Joint(ends), 64 << 20)
    fewer, more = record.batch if start_s[0] > start_s[1] else record.batch[::-1]
    assert fewer < more
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx([2e-3, 2e-3], rel=1e-6)


def test_the_tried_batch_with_the_smallest_difference_of_ends_is_kept() -> None:
    """Equal batches end 30 % apart, the next trial 5 %, and all later ones 13 %."""
    seen: list[float] = []

    def ends(first: int, second: int) -> tuple[float, float]:
        ratio = round(second / first, 6)
        if ratio not in seen:
            seen.append(ratio)
        apart = [0.7, 0.95, 0.87, 0.87][min(seen.index(ratio), 3)]
        return second * 2e-3 * apart, second * 2e-3

    record = measured(Joint(ends), 64 << 20)
    assert len(seen) > 2 and record.batch[1] / record.batch[0] == pytest.approx(seen[1], rel=1e-5)
    assert record.guards["joint_overlap"] == pytest.approx(0.95)


def test_a_batch_in_which_one_flow_only_waits_is_not_kept() -> None:
    """The second trial ends together in its doubled batch, but only because the first flow waits for the second. Its
    slope is therefore no time of its own."""
    unequal: list[tuple[int, int]] = []

    def ends(first: int, second: int) -> tuple[float, float]:
        if first == second:
            return first * 2.7e-3, second * 2e-3
        unequal.append((first, second))
        waits = (first, second) == (2 * unequal[0][0], 2 * unequal[0][1])
        return (second * 2e-3 if waits else first * 1.4e-3), second * 2e-3

    record = measured(Joint(ends), 64 << 20)
    assert [value(record, flow) for flow in (0, 1)] == pytest.approx([1.4e-3, 2e-3], rel=1e-6)
