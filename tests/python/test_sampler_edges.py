"""The sampler with unequal flows, batches that change the clock, and misleading short batches."""

import math
import random
from typing import Any

import pytest

from fakes import H2D, facts, plan, round_record
from linkscope.plan import MachineFacts, footprint
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.assemble import Assembler
from linkscope.run.batches import Batches, Task
from linkscope.run.calibrate import LEAST_PART
from linkscope.run.recipes import LEAST_BATCH_S
from linkscope.run.sampler import Sampler
from linkscope.run.settling import SETTLING
from linkscope.run.stopping import MANY_SAMPLES, MOST_SAMPLES
from linkscope.run.worker import REQUEST_LIMIT_S
from linkscope.runfile import PointId, Round, RoundFlow
from linkscope.stats import median
from test_sampler import Joint, Restless, Timed, Wobbling, sampled, value


def measured(worker: Any, size: int, both: str = "true", first: Round | None = None) -> Round:
    id = H2D.format(size, both, "batched")
    return Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), int(first is not None), first))


def earlier(batch: list[int], *each_s: float) -> Round:
    """The first round of a point, with a fixed batch that later rounds use unconditionally."""
    made = round_record("the sampler takes no more of it than this", 0)
    made.flows = [RoundFlow("numa:0", "gpu:0", "pinned", "device", 8, "measured", [each]) for each in each_s]
    made.batch = batch
    return made


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


def test_short_concurrent_flows_do_not_overfill_the_queue() -> None:
    record = sampled(8, both="true", each_s=0.1e-6, start_s=0.0, rate=1e15)
    assert record.batch == [128, 128]


@pytest.mark.parametrize(("size", "batch"), [(128 << 20, [4, 4]), (256 << 20, [1, 1])])
def test_bidirectional_batches_have_several_large_copies_and_one_very_large_copy(size: int, batch: list[int]) -> None:
    """4 ms each: the shares become equal over four copies, or within one very large copy."""
    assert measured(Joint(lambda first, second: (first * 4e-3, second * 4e-3)), size).batch == batch


def test_a_unidirectional_copy_of_256_mib_of_a_millisecond_is_a_batch() -> None:
    assert sampled(256 << 20, each_s=1.22e-3, rate=1e15).batch == [1]
    assert sampled(256 << 20, each_s=0.7e-3, rate=1e15).batch == [2]
    assert sampled(248 << 20, each_s=0.7e-3, rate=1e15).batch == [1]


class Blurred(Restless):
    """A worker whose batch ends are uncertain by 2.5 us. It times batches of more than `most` copies by the host's
    clock."""

    def __init__(self, each_s: float, most: int = 1 << 30) -> None:
        super().__init__()
        self.each_s, self.most, self.chance = each_s, most, random.Random(3)
        self.asked: list[list[list[int]]] = []

    def run(self, samples, batches, *, verify, limit_s):
        self.asked.append(batches)
        assert samples > 0
        by_host = max(batch[0] for batch in batches) > self.most
        stamps = []
        for _ in range(samples):
            for batch in batches:
                self.calls += 1
                stamps += [0.0, batch[0] * self.each_s * (1 + by_host) + self.chance.gauss(20e-6, 2.5e-6)]
        return Trace(samples, len(batches), 1, "host" if by_host else "gate", stamps=stamps)


@pytest.mark.parametrize(
    ("size", "each_s", "error"), [(4096, 2e-6, 0.01), (1 << 20, 20e-6, 2e-3), (16 << 20, 0.3e-3, 1e-3)]
)
def test_one_batch_is_much_longer_than_the_other_because_ends_are_uncertain(size, each_s, error) -> None:
    """The error of the slope is that of two ends, divided by the difference in duration."""
    record = measured(Blurred(each_s), size, "false")
    assert 3 <= record.longer <= 8
    samples = record.flows[0].samples_s
    span_s = (record.longer - 1) * record.batch[0] * each_s
    assert max(abs(each / each_s - 1) for each in samples) < 3 * 2**0.5 * 2.5e-6 / span_s < 3 * error
    together_s = (record.longer + 1) * record.batch[0] * each_s
    assert span_s > together_s / 2 and together_s < 5e-3  # one third: a batch and its double


def test_the_longer_batch_is_twice_the_shorter_if_more_would_change_the_clock() -> None:
    record = measured(Blurred(20e-6, most=70), 1 << 20, "false")
    assert record.longer == 2 and 4 * record.batch[0] <= 70 and record.timing == "gate+slope"
    assert value(record) == pytest.approx(20e-6, rel=0.03)
    later = measured(Blurred(20e-6, most=70), 1 << 20, "false", record)
    assert (later.batch, later.longer, later.timing) == (record.batch, 2, "gate+slope")
    assert measured(Blurred(20e-6), 1 << 20, "false").longer * record.batch[0] > 70


def test_the_largest_copies_have_twice_the_batch_if_more_would_change_the_clock() -> None:
    record = measured(Blurred(0.6e-3, most=4), 256 << 20, "false")
    assert (record.batch, record.longer, record.timing) == ([2], 2, "gate+slope")
    assert value(record) == pytest.approx(0.6e-3, rel=0.03)


def test_a_later_round_uses_twice_the_batch_if_more_no_longer_fits_behind_the_gate() -> None:
    """After its own first round, or the first round of another path of its class. Its clock stays."""
    first = measured(Blurred(20e-6), 1 << 20, "false")
    assert first.longer > 2
    later = measured(Blurred(20e-6, most=2 * first.batch[0]), 1 << 20, "false", first)
    assert (later.batch, later.longer, later.timing) == (first.batch, 2, "gate+slope")
    assert value(later) == pytest.approx(20e-6, rel=0.03)
    first.longer = 3  # the smallest ratio that leaves an alternative
    later = measured(Blurred(20e-6, most=2 * first.batch[0]), 1 << 20, "false", first)
    assert (later.longer, later.timing) == (2, "gate+slope")
    never = measured(Blurred(20e-6, most=0), 1 << 20, "false", first)
    assert never.timing == "host" and value(never) == pytest.approx(40e-6, rel=0.03)


@pytest.mark.parametrize(
    ("each_s", "mode", "longer", "asked"),
    [
        (1e-3, "batched", None, [[3], [6]]),
        (8.2e-3, "batched", None, [[0], [3]]),
        (8.2e-3, "batched", 2, [[3], [6]]),
        (1e-3, "batched", 1, [[0], [3]]),
        (1e-3, "single", None, [[0], [1]]),
    ],
)
def test_a_first_round_without_the_length_of_its_second_batch_comes_from_an_older_version(
    each_s: float, mode: str, longer: int | None, asked: list[list[int]]
) -> None:
    """Older versions used twice the batch, and an empty batch for single or long (8 ms) operations. Resumed runs do the
    same."""
    id = H2D.format(64 << 20, "false", mode)
    first = earlier([3 if mode == "batched" else 1], each_s)
    first.longer = longer
    worker = Blurred(each_s)
    later = Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 1, first))
    assert worker.asked and all(batches == asked for batches in worker.asked)
    assert later.longer == (1 if asked[0] == [0] else 2)
    point = Assembler(plan(id), facts(), lambda _: None).point(id, [first, later])
    assert point.longer == longer, "as in the first round, also if that is unknown"


@pytest.mark.parametrize(("each_s", "longer"), [((10e-3, 5e-3), 2), ((10e-3, 9e-3), 1)])
def test_older_versions_used_an_empty_batch_if_all_flows_lasted_8_ms(each_s: tuple[float, float], longer: int) -> None:
    worker = Joint(lambda first, second: (first * each_s[0], second * each_s[1]))
    assert measured(worker, 256 << 20, first=earlier([1, 1], *each_s)).longer == longer


def test_a_later_round_uses_both_batches_of_the_first() -> None:
    first = measured(Blurred(20e-6), 1 << 20, "false")
    again = measured(Blurred(10e-6), 1 << 20, "false", first)  # a fresh round would have another batch
    assert (again.batch, again.longer) == (first.batch, first.longer)


def test_a_batch_made_by_one_call_grows_until_it_is_long_enough() -> None:
    id = H2D.format(4096, "false", "batched").replace("/ce/", "/batch/")
    class_plan = plan(H2D.format(4096, "false", "batched"))
    record = Sampler(Blurred(10e-9), class_plan, facts()).measure(Task(PointId.parse(id), 0))
    assert record.batch[0] * 10e-9 >= LEAST_PART * LEAST_BATCH_S and record.longer * record.batch[0] <= 16384
    short = Sampler(Blurred(10e-9, most=3000), class_plan, facts()).measure(Task(PointId.parse(id), 0))
    assert short.timing == "gate+slope" and short.longer * short.batch[0] <= 3000


class Looping(Timed):
    """A CPU thread whose memory has this many slices. A slice that the batch meets again takes 10 % of the time."""

    def __init__(self, each_s: float, slices: int) -> None:
        super().__init__(lambda count: 0.1e-6 + each_s * (min(count, slices) + max(count - slices, 0) / 10), "host")
        self.slices = slices

    def prepare(self, case, key, limit_s, then=None):
        prepared = super().prepare(case, key, limit_s)
        prepared.slices = self.slices
        return prepared


@pytest.mark.parametrize(
    ("each_s", "slices"), [(25e-9, 32768), (25e-9, 16384), (0.6e-6, 4096), (35e-6, 256), (0.5e-3, 16)]
)
def test_batches_of_a_cpu_thread_are_long_and_meet_no_slice_twice(each_s: float, slices: int) -> None:
    worker = Looping(each_s, slices)
    id = PointId.parse("h2h/cpu/numa:0.pageable->numa:0.pinned/8?initiator=src&mode=batched")
    record = Sampler(worker, plan(str(id)), facts()).measure(Task(id, 0))
    assert value(record) == pytest.approx(each_s, rel=1e-3) and max(worker.asked) <= slices
    assert record.longer * record.batch[0] * each_s > 0.35e-3


def test_a_batch_covers_at_most_half_the_footprint_of_a_cpu_thread() -> None:
    worker = Looping(25e-9, 1024)
    id = PointId.parse("h2h/cpu/numa:0.pageable->numa:0.pinned/8?initiator=src&mode=batched")
    record = Sampler(worker, plan(str(id)), facts()).measure(Task(id, 0))
    assert value(record) == pytest.approx(25e-9, rel=1e-3) and max(worker.asked) <= 1024


@pytest.mark.parametrize("each_s", [2e-9, 20e-9, 0.5e-6])
def test_batches_of_cached_data_may_meet_a_slice_again(each_s: float) -> None:
    worker = Timed(lambda count: 0.1e-6 + each_s * count, "host")
    id = PointId.parse("h2h/cpu/numa:0.pageable->numa:0.pinned/8?cache=hot&initiator=src&mode=batched")
    record = Sampler(worker, plan("h2h/*"), facts()).measure(Task(id, 0))
    assert value(record) == pytest.approx(each_s, rel=1e-3) and record.longer > 2
    assert record.batch[0] >= 8192 or record.batch[0] * each_s > 0.9 * LEAST_BATCH_S


class Waking(Restless):
    """A worker with operations of 3 us. The last batch of its first requests takes longer while a link wakes up."""

    def __init__(self, asleep: int, late_s: float) -> None:
        super().__init__()
        self.asleep, self.late_s = asleep, late_s

    def run(self, samples, batches, *, verify, limit_s):
        self.calls += 1
        late_s = self.late_s if self.calls <= self.asleep else 0.0
        ends = [batch[0] * 3e-6 + (late_s if batch is batches[-1] else 0.0) for batch in batches]
        return Trace(samples, len(batches), 1, self.timing, stamps=[t for end in ends for t in (0.0, end)] * samples)


@pytest.mark.parametrize(("asleep", "late_s"), [(0, 0.2e-3), (1, 0.2e-3), (2, 0.2e-3), (3, 0.4e-3), (2, 1e-3)])
def test_a_batch_is_long_enough_even_if_a_link_woke_up_during_its_choice(asleep: int, late_s: float) -> None:
    """64 operations of 3 us last 0.2 ms; an apparent cost of 53 us would lead to only six of them."""
    record = measured(Waking(asleep, late_s), 256, "false")
    assert record.batch[0] * 3e-6 >= 0.5 * 64 * 3e-6 and value(record) == pytest.approx(3e-6)
    assert "nonlinear" not in record.guards  # the bend of the wake-up has disappeared


@pytest.mark.parametrize("size, least_s", [(1 << 20, 0.3e-3), (16 << 20, 0.5e-3)])
def test_batches_of_large_copies_are_long_compared_with_their_first_microseconds(size: int, least_s: float) -> None:
    record = sampled(size, each_s=0.0, rate=50e9)
    assert record.batch[0] * size / 50e9 >= least_s


def test_joint_batches_of_large_copies_are_long_compared_with_the_time_of_partial_overlap() -> None:
    record = measured(Joint(lambda first, second: (first * 50e-6, 30e-6 + second * 50e-6)), 1 << 20)
    assert min(record.batch) * 50e-6 >= 1e-3


@pytest.mark.parametrize(
    ("size", "each_s", "least_s", "most_s"), [(1 << 20, 50e-6, 4e-3, 5e-3), (8, 10e-6, 0.6e-3, 1.2e-3), (8, 1e-6, 0, 1)]
)
def test_the_longer_joint_batch_is_long_for_large_flows_and_has_at_most_512_operations(
    size: int, each_s: float, least_s: float, most_s: float
) -> None:
    class Gated(Joint):
        def run(self, samples, batches, *, verify, limit_s):
            trace = super().run(samples, batches, verify=verify, limit_s=limit_s)
            trace.timing = "gate"
            return trace

    record = measured(Gated(lambda first, second: (first * each_s, second * each_s)), size)
    assert least_s <= record.longer * record.batch[0] * each_s <= most_s
    assert record.longer * sum(record.batch) <= 512


def test_the_second_batch_is_at_most_eight_times_the_first() -> None:
    """Then a seventh of the error of the shorter batch remains; longer batches would only cost time."""
    assert measured(Wobbling(20e-6, 0.0), 1 << 20, "false").longer == 8


def test_the_batch_stays_if_four_times_its_length_would_change_the_clock() -> None:
    class Staged(Restless):
        """Up to 128 copies run behind the gate. More copies wait for staging memory, are timed by the host and cost
        more each."""

        def run(self, samples, batches, *, verify, limit_s):
            by_host = max(batch[0] for batch in batches) > 128
            ends = [1e-6 * batch[0] ** 1.5 if by_host else 3e-6 * batch[0] for batch in batches]
            stamps = [t for _ in range(samples) for end in ends for t in (0.0, end)]
            return Trace(samples, len(batches), 1, "host" if by_host else "gate", stamps=stamps)

    record = measured(Staged(), 8, "false")
    assert record.batch == [64] and record.timing == "gate+slope" and "nonlinear" not in record.guards


def test_a_first_time_of_zero_does_not_lead_to_a_huge_batch() -> None:
    """1000 copies of 4 ms on a busy host's clock: batches of 256 and 512 copies would take too long."""

    class Busy(Restless):
        longest, compared = 0, 0

        def run(self, samples, batches, *, verify, limit_s):
            most = max(batch[0] for batch in batches)
            self.compared += len(batches) > 1
            held_up = self.compared == 1  # delays the shorter batch by the duration of the longer one
            self.longest = max(self.longest, most)
            ends = [4e-3 * (most if held_up else batch[0]) for batch in batches]
            stamps = [t for _ in range(samples) for end in ends for t in (0.0, end)]
            return Trace(samples, len(batches), 1, "host", stamps=stamps)

    worker = Busy()
    assert value(measured(worker, 4096, "false")) == pytest.approx(4e-3, rel=0.01)
    assert worker.longest <= 2 * 16 * 4


class Uneven(Joint):
    """The first flow always takes the same time, the second never does."""

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            self.calls += 1
            for first, second in batches:
                stamps += [0.0, first * 1e-5, 0.0, second * 1e-5 * (1 + 0.3 * (self.calls % 3))]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)


@pytest.mark.parametrize(("little_s", "most"), [(0.0, 4), (math.inf, MANY_SAMPLES)])
def test_samples_are_taken_until_every_flow_is_steady(monkeypatch, little_s: float, most: int) -> None:
    """Or while they are cheap; only a few if nothing makes the flow steady."""
    monkeypatch.setattr("linkscope.run.stopping.MOST_BUSY_S", math.inf)
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", little_s)
    assert len(measured(Uneven(lambda *_: ()), 8).flows[0].samples_s) == most


def test_a_nonlinear_cost_of_the_second_flow_is_noted() -> None:
    record = measured(Joint(lambda first, second: (first * 1e-5, second**1.5 * 1e-6)), 8)
    assert "nonlinear" in record.guards


def test_the_preparation_of_large_memory_has_a_longer_time_limit() -> None:
    limits: list[float] = []

    class Patient(Restless):
        def prepare(self, case: Any, key: str, limit_s: float, then: Any = None) -> Prepared:
            limits.append(limit_s)
            return super().prepare(case, key, limit_s)

    measured(Patient(), 1 << 30, "false")
    assert limits[0] >= REQUEST_LIMIT_S + 4 * (1 << 30) / 1e9


def test_the_footprint_follows_the_larger_cache_of_both_ends() -> None:
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), {"numa:0": 1 << 20, "gpu:0": 50 << 20})
    for src, dst in (("numa:0", "gpu:0"), ("gpu:0", "numa:0")):
        assert footprint(PointId("x", "sm", src, "pinned", dst, "device", 1 << 20), machine) == 150 << 20


def test_a_link_that_wakes_up_slowly_does_not_change_a_known_cost() -> None:
    """Copies take 2 ms during the wake-up and 7 us afterwards, so the first ones do not count."""
    id = PointId.parse("d2d/ce/gpu:0.device->gpu:1.device/4096?bidirectional=false&initiator=src&mode=single&peer=on")
    first = earlier([1], 7e-6)
    first.timing = "gate+slope"
    requests: list[int] = []

    class Waking(Timed):
        def run(self, samples, batches, *, verify, limit_s):
            requests.append(samples)
            each_s = 2e-3 if len(requests) == 1 else 7e-6
            self.time_of = lambda count: each_s * count
            return super().run(samples, batches, verify=verify, limit_s=limit_s)

    Sampler(Waking(lambda count: 7e-6 * count), plan(str(id)), facts()).measure(Task(id, 1, first))
    assert requests[0] == 1 and requests[1] > SETTLING


def test_requests_for_cheap_scattered_samples_double(monkeypatch) -> None:
    """127 samples in eight requests, because a request costs as much as many samples."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", math.inf)
    monkeypatch.setattr("linkscope.run.stopping.MOST_BUSY_S", math.inf)
    id, chance = PointId.parse(H2D.format(1 << 20, "false", "single")), random.Random(1)
    requests: list[int] = []

    class Scattering(Timed):
        def run(self, samples, batches, *, verify, limit_s):
            requests.append(samples)
            stamps = []
            for _ in range(samples):
                each = 20e-6 * (1 + chance.uniform(-0.3, 0.3))
                stamps += [t for batch in batches for t in (0.0, 1e-6 + batch[0] * each)]
            return Trace(samples, len(batches), 1, self.timing, stamps=stamps)

    found = Sampler(Scattering(lambda count: 0.0, "gate"), plan(str(id)), facts()).measure(Task(id, 0))
    assert len(found.flows[0].samples_s) == MANY_SAMPLES and len(requests) <= 8


class Trembling(Restless):
    """Two flows by the host's clock with 0.1 us an operation, in the first 5 ns less or more from sample to sample."""

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            self.calls += 1
            for first, second in batches:
                stamps += [0.0, first * (0.1e-6 + (-1, 0, 1)[self.calls % 3] * 5e-9), 0.0, second * 0.1e-6]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)

    def prepare(self, case, key, limit_s, then=None):
        return Joint(None).prepare(case, key, limit_s)


def test_the_tick_of_the_clock_is_divided_by_the_operations_of_the_shortest_flow(monkeypatch) -> None:
    """One operation of the first flow beside 100 of the second: the samples differ by far less than a tick."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    record = measured(Trembling(), 8, "true", earlier([1, 100], 1e-7, 1e-7))
    assert len(record.flows[0].samples_s) == 4


def test_slopes_that_differ_by_less_than_their_noise_do_not_count_as_a_nonlinear_cost() -> None:
    """Batches of L, 2L and 4L: the second slope is 10 % above the first, and each slope varies by 10 %."""

    class Scattered(Restless):
        def run(self, samples, batches, *, verify, limit_s):
            stamps = []
            for at in range(samples):
                times, vary = [batch[0] * 2e-6 for batch in batches], (-0.1, 0.0, 0.1)[at % 3]
                if len(batches) == 3:
                    first, second = 2e-6 * (1 + vary), 2.2e-6 * (1 + vary)
                    times[1] = times[0] + (batches[1][0] - batches[0][0]) * first
                    times[2] = times[1] + (batches[2][0] - batches[1][0]) * second
                stamps += [stamp for time in times for stamp in (0.0, time)]
            return Trace(samples, len(batches), 1, "gate", stamps=stamps)

    assert "nonlinear" not in measured(Scattered(), 8, "false").guards


@pytest.mark.parametrize("each_s", [(3e-3, 1e-3), (1e-3, 3e-3)], ids=["the first is slower", "the second is slower"])
def test_an_actor_of_two_flows_is_expected_to_take_as_long_as_its_slower_flow(each_s) -> None:
    flow = FlowFacts(0, "gpu:0", "gpu:1", "device", "device", 8, "measured")
    task = Task(PointId.parse(H2D.format(8, "true", "batched")), 1, earlier([4], *each_s))
    assert Batches(Timed(lambda _: 1e-3), task, [flow, flow], 1).each_s == [3e-3]


def test_a_worker_has_the_time_to_compare_all_memory_of_its_program() -> None:
    limits = []

    class Asked(Timed):
        def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float) -> Trace:
            limits.append(limit_s)
            return super().run(samples, batches, verify=verify, limit_s=limit_s)

    task = Task(PointId.parse("lu_gpus/sm/gpu:0.device->gpu:0.device/0?n=16384"), 0, None)
    for memory_bytes in (0, 4 << 30):
        Batches(Asked(lambda _: 1e-3), task, [], 1, memory_bytes).run(1, [[1]], verify=True)
    small, large = limits
    assert large - small >= 4 * (4 << 30) / 4e9  # writes, reads and compares it, each with 4 GB/s
