"""The sampler's batches: their lengths for each kind of operation, and batches that change the clock."""

import random

import pytest

from fakes import H2D, facts, plan
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.assemble import Assembler
from linkscope.run.batches import Task
from linkscope.run.calibrate import LEAST_PART
from linkscope.run.recipes import LEAST_BATCH_S
from linkscope.run.sampler import Sampler
from linkscope.runfile import PointId
from sampler_workers import Joint, Restless, Timed, Wobbling, earlier, measured, sampled, value


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


class Paused(Restless):
    """Two ranks that wait for each other on a busy host: a batch has a fixed part, and a pause in two of five cases."""

    def __init__(self, each_s: float, seed: int) -> None:
        super().__init__()
        self.each_s, self.chance = each_s, random.Random(seed)

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            for batch in batches:
                pause_s = self.chance.uniform(1e-3, 30e-3) * (self.chance.random() < 0.4)
                end = 80e-6 + batch[0] * self.each_s + pause_s
                stamps += [0.0, end, 0.0, end]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)

    def prepare(self, case, key, limit_s, then=None):
        flows = [
            FlowFacts(at, f"rank:{at}", f"rank:{at}", "pageable", "pageable", case["bytes"], role)
            for at, role in enumerate(("measured", "background"))
        ]
        return Prepared(True, actors=2, in_step=True, flows=flows)


@pytest.mark.parametrize("seed", range(20))
def test_pauses_of_ranks_do_not_shorten_their_batch(seed: int) -> None:
    id = PointId.parse("all_gather/mpi/rank:0.pageable->rank:0.pageable/256?mode=batched&ranks=2")
    record = Sampler(Paused(4e-6, seed), plan(H2D.format(256, "false", "batched")), facts()).measure(Task(id, 0))
    assert record.batch[0] * 4e-6 > LEAST_PART * 0.2e-3 and record.batch[0] <= 4096


class Following(Paused):
    """Two ranks of NCCL: every second shorter batch takes 0.12 ms more, as sums on two H100s after another batch."""

    def __init__(self, each_s: float) -> None:
        super().__init__(each_s, seed=0)

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            self.calls += 1
            for at, batch in enumerate(batches):
                end = 60e-6 + batch[0] * self.each_s + (0.12e-3 if self.calls % 2 and not at else 0.0)
                stamps += [0.0, end, 0.0, end]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)


@pytest.mark.parametrize(
    ("size", "each_s"), [(256, 6e-6), (1 << 20, 20e-6), (16 << 20, 82e-6), (256 << 20, 0.9e-3), (1 << 30, 4e-3)]
)
def test_a_collective_of_nccl_costs_the_same_after_another_batch_and_after_a_pause(size: int, each_s: float) -> None:
    id = PointId.parse(f"all_reduce/nccl/gpu:0.device->gpu:0.device/{size}?mode=batched&ranks=2")
    record = Sampler(Following(each_s), plan(H2D.format(size, "false", "batched")), facts()).measure(Task(id, 0))
    samples = record.flows[0].samples_s
    assert len(samples) > 1 and max(abs(one / each_s - 1) for one in samples) < 0.015
