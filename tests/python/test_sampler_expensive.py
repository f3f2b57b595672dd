"""Expensive samples, which cost as much as a round: how few are enough, and when more are needed."""

import pytest

from fakes import H2D, facts, plan
from linkscope.run.answers import Trace
from linkscope.run.batches import Task
from linkscope.run.sampler import Sampler
from linkscope.runfile import PointId
from linkscope.stats import median
from sampler_workers import Joint, Timed, Wobbling, earlier, measured, value

ONE, FEW = (1, True), (1, False)


@pytest.mark.parametrize(
    ("timing", "size", "first", "later"),
    [
        ("gate", 256 << 20, 2, 1), ("events", 256 << 20, 2, 1), ("kernel_clock", 256 << 20, 2, 1),
        ("virtual", 256 << 20, 2, 1), ("host", 256 << 20, 2, 2), ("host", 1 << 30, 2, 2),
        ("gate", 255 << 20, 2, 1), ("gate", 16 << 20, 2, 1), ("gate", 15 << 20, 2, 1), ("host", 255 << 20, 2, 2),
    ],
)  # fmt: skip
def test_two_agreeing_expensive_samples_are_enough_and_later_one_unless_timed_by_the_host(
    timing, size, first, later
) -> None:
    """Engines and links repeat such times within 0.1 % under any clock; work of the host does not."""
    one = measured(Timed(lambda count: 1e-6 + count * 3e-3, timing), size, "false")
    other = measured(Timed(lambda count: 1e-6 + count * 3e-3, timing), size, "false", one)
    assert [len(record.flows[0].samples_s) for record in (one, other)] == [first, later]
    for record in (one, other):
        assert record.batch == [1] and value(record) == pytest.approx(3e-3, rel=1e-6)


class Played(Timed):
    """Operations take the given times, sample by sample. The requests (sample count, verification) are logged."""

    def __init__(self, *each_s: float, timing: str = "gate") -> None:
        super().__init__(lambda count: 0.0, timing)
        self.each_s, self.requests = iter(each_s), []

    def run(self, samples, batches, *, verify, limit_s):
        self.requests.append((samples, verify))
        stamps = []
        for _ in range(samples):
            each = next(self.each_s)
            stamps += [t for batch in batches for t in (0.0, 1e-6 + batch[0] * each)]
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)


@pytest.mark.parametrize(
    ("each_s", "requests"),
    [
        ([3e-3], [ONE]),  # equal to the first round
        ([3.014e-3], [ONE]),  # different by less than half of 1 %
        ([3.03e-3, 3.031e-3], [ONE, ONE]),  # another process: the second sample confirms the difference
        ([3.4e-3, 3e-3, 3e-3], [ONE, ONE, ONE]),  # delayed: the median comes from the others
        ([3.04e-3, 3e-3, 3.1e-3, 3.07e-3, 3.02e-3, 3.06e-3, 3.05e-3], [ONE, ONE, *[FEW] * 4, ONE]),  # scattered samples
    ],
)
def test_the_first_expensive_sample_may_be_the_last_and_is_verified(monkeypatch, each_s, requests) -> None:
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3, 3.002e-3, 2.999e-3], "gate+slope"
    for size in (4 << 20, 64 << 20):
        worker = Played(*each_s)
        record = measured(worker, size, "false", first)
        assert worker.requests == requests and len(record.flows[0].samples_s) == len(each_s)
        assert value(record) == pytest.approx(median(each_s), rel=1e-6)


def test_more_expensive_samples_are_taken_after_an_unsteady_first_round_or_with_another_clock() -> None:
    first = earlier([1], 3e-3)
    first.timing = "gate+slope"
    for samples_s, samples in (([3e-3, 3.1e-3, 2.9e-3], 2), ([3e-3, 3.02e-3], 2), ([3e-3, 3.01e-3], 1)):
        first.flows[0].samples_s = samples_s
        assert len(measured(Played(*[3e-3] * 3), 4 << 20, "false", first).flows[0].samples_s) == samples
    assert len(measured(Played(*[3e-3] * 4, timing="host"), 4 << 20, "false", first).flows[0].samples_s) == 2


@pytest.mark.parametrize(
    ("each_s", "requests"),
    [
        ([3e-3, 3.014e-3], [FEW, ONE]),  # within half of 1 %
        ([3e-3, 3.016e-3, 3e-3], [FEW, ONE, ONE]),  # slightly more
        ([3.04e-3, 3e-3, 3.1e-3, 3.07e-3, 3.02e-3, 3.06e-3, 3.05e-3], [FEW, ONE, *[FEW] * 4, ONE]),
        ([0.0, 3e-3, 3e-3, 3e-3], [FEW, (2, False), ONE]),  # delayed
    ],
)
def test_without_a_steady_first_round_two_closely_agreeing_samples_are_enough(monkeypatch, each_s, requests) -> None:
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3, 3.2e-3, 2.8e-3], "gate+slope"  # this round is not steady
    worker = Played(*each_s)
    record = measured(worker, 4 << 20, "false", first)
    assert worker.requests == requests and value(record) == pytest.approx(median(each_s), rel=1e-6)


@pytest.mark.parametrize(("spread", "requests"), [(0.0, [ONE, ONE]), (0.014, [ONE, ONE]), (0.016, [ONE])])
def test_an_expensive_sample_within_the_spread_of_rounds_is_enough(spread: float, requests) -> None:
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 3, "gate+slope"
    id, worker = PointId.parse(H2D.format(4 << 20, "false", "batched")), Played(3.09e-3, 3.09e-3)
    Sampler(worker, plan(str(id)), facts()).measure(Task(id, 3, first, spread))
    assert worker.requests == requests


def test_the_decision_for_one_sample_precedes_the_sample() -> None:
    """The first round makes the point look expensive. The sample is half as long, so verification matters more."""
    first = earlier([1], 0.6e-3)
    first.flows[0].samples_s, first.timing = [0.6e-3] * 3, "gate+slope"
    worker = Played(0.3e-3, 0.3e-3)
    measured(worker, 4 << 20, "false", first)
    assert worker.requests == [ONE, ONE]


def test_the_decision_for_two_samples_precedes_the_second(monkeypatch) -> None:
    """The first sample looks expensive, the median of both does not. Samples that differ by 18 % are no round."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    first = earlier([1], 0.36e-3)
    first.flows[0].samples_s, first.timing = [0.36e-3, 0.4e-3, 0.3e-3], "gate+slope"
    worker = Played(0.36e-3, *[0.3e-3] * 8)
    assert value(measured(worker, 4 << 20, "false", first)) == pytest.approx(0.3e-3, rel=1e-6)
    assert worker.requests[:2] == [FEW, ONE] and len(worker.requests) > 2


@pytest.mark.parametrize(("each_s", "samples"), [(0.09, 3), (0.11, 2)])
def test_operations_of_a_tenth_of_a_second_have_two_samples_even_if_they_differ(each_s: float, samples: int) -> None:
    first = earlier([1], each_s)
    first.flows[0].samples_s, first.timing = [each_s, 1.3 * each_s], "gate+slope"
    worker = Played(each_s, 1.1 * each_s, each_s)
    assert len(measured(worker, 64 << 20, "false", first).flows[0].samples_s) == samples


def test_after_a_pause_two_samples_do_not_show_that_a_first_round_is_steady() -> None:
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 2, "gate+slope"
    for pause, requests in (("", [ONE]), ("idle_gap_s=0.001&", [FEW, ONE])):
        id = PointId.parse(H2D.format(4 << 20, "false", "single").replace("mode=", pause + "mode="))
        worker = Played(*[3e-3] * 2)
        Sampler(worker, plan(H2D.format(4 << 20, "false", "single")), facts()).measure(Task(id, 1, first))
        assert worker.requests == requests


def test_two_delayed_expensive_samples_are_followed_by_more(monkeypatch) -> None:
    """A duration must be positive, even if both samples say otherwise."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 3, "gate+slope"
    worker = Played(0.0, 0.0, *[3e-3] * 5)
    assert value(measured(worker, 4 << 20, "false", first)) == pytest.approx(3e-3, rel=1e-6)
    assert worker.requests[:2] == [ONE, ONE] and len(worker.requests) > 2


def test_very_large_copies_have_one_sample_in_a_later_round() -> None:
    first = earlier([1], 30e-3)
    first.flows[0].samples_s, first.timing = [30e-3] * 3, "gate+slope"
    worker = Played(33e-3)
    assert value(measured(worker, 256 << 20, "false", first)) == pytest.approx(33e-3, rel=1e-6)
    assert worker.requests == [ONE]


def test_the_first_round_of_a_path_has_two_expensive_samples_even_if_another_path_was_steady() -> None:
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 3, "gate+slope"
    id, worker = PointId.parse(H2D.format(64 << 20, "false", "batched")), Played(*[3e-3] * 2)
    Sampler(worker, plan(str(id)), facts()).measure(Task(id, 0, first))
    assert worker.requests == [FEW, ONE]


@pytest.mark.parametrize(("other_s", "samples"), [(3.01e-3, 1), (3.3e-3, 2)])
def test_one_expensive_sample_is_enough_only_if_all_flows_repeat(other_s: float, samples: int) -> None:
    class Behind(Joint):
        """A worker behind the gate."""

        def run(self, samples, batches, *, verify, limit_s):
            trace = super().run(samples, batches, verify=verify, limit_s=limit_s)
            trace.timing = "gate"
            return trace

    first = earlier([1, 1], 3e-3, 3e-3)
    first.timing = "gate+slope"
    for flow in first.flows:
        flow.samples_s = [3e-3] * 3
    record = measured(Behind(lambda one, two: (one * 3e-3, two * other_s)), 64 << 20, first=first)
    assert [len(flow.samples_s) for flow in record.flows] == [samples, samples]


@pytest.mark.parametrize(("size", "each_s", "samples"), [(4096, 2e-6, 4), (1 << 20, 20e-6, 2)])
def test_the_first_round_of_a_path_has_enough_samples_to_show_that_it_is_steady(size, each_s, samples) -> None:
    """Two samples cannot show that a first round is steady, and all later rounds would then take four."""
    other_path = measured(Timed(lambda count: 1e-6 + count * each_s), size, "false")
    id = PointId.parse(H2D.format(size, "false", "batched"))
    sampler = Sampler(Timed(lambda count: 1e-6 + count * each_s), plan(str(id)), facts())
    own = sampler.measure(Task(id, 0, other_path))
    assert own.batch == other_path.batch and len(own.flows[0].samples_s) == samples
    assert len(sampler.measure(Task(id, 1, own)).flows[0].samples_s) == samples // 2


@pytest.mark.parametrize(("each_s", "later"), [(0.3e-3, 4), (0.9e-3, 4), (1.1e-3, 2), (5e-3, 2)])
def test_a_single_copy_is_expensive_by_its_own_time_and_not_by_the_estimate(monkeypatch, each_s, later) -> None:
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    id = H2D.format(64 << 20, "false", "single")
    record = Sampler(Timed(lambda count: 1e-6 + count * each_s), plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert len(record.flows[0].samples_s) == 7  # there are no earlier rounds
    other = Sampler(Timed(lambda count: 1e-6 + count * 1.1 * each_s), plan(id), facts())
    assert len(other.measure(Task(PointId.parse(id), 1, record)).flows[0].samples_s) == later


@pytest.mark.parametrize(("each_s", "part", "samples"), [(20e-6, 0.0035, 6), (2e-3, 0.0035, 3), (2e-3, 0.02, 7)])
def test_expensive_samples_are_taken_singly_until_half_as_steady(monkeypatch, each_s, part, samples) -> None:
    """1 MiB with a target of 1 %: a sample of 0.6 ms is cheap; copies of 2 ms make samples of 6 ms."""
    monkeypatch.setattr("linkscope.run.stopping.LITTLE_S", 0.0)
    first = earlier([10 if each_s < 1e-3 else 1], each_s)  # an earlier round without information on its scatter
    record = measured(Wobbling(each_s, part), 1 << 20, "false", first)
    assert len(record.flows[0].samples_s) == samples and value(record) == pytest.approx(each_s, rel=part)
