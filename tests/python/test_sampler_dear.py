"""Expensive samples cost as much as a round: how few are enough, and when they are not."""

import pytest

from fakes import H2D, facts, plan
from linkscope.run.answers import Trace
from linkscope.run.sampler import Sampler, Task
from linkscope.runfile import PointId
from linkscope.stats import median
from test_sampler import Joint, Timed, Wobbling, value
from test_sampler_edges import earlier, measured

ONE, FEW = (1, True), (1, False)


@pytest.mark.parametrize(
    ("timing", "size", "first", "later"),
    [
        ("gate", 256 << 20, 2, 1), ("events", 256 << 20, 2, 1), ("kernel_clock", 256 << 20, 2, 1),
        ("virtual", 256 << 20, 2, 1), ("host", 256 << 20, 2, 2), ("host", 1 << 30, 2, 2),
        ("gate", 255 << 20, 2, 1), ("gate", 16 << 20, 2, 1), ("gate", 15 << 20, 2, 1), ("host", 255 << 20, 2, 2),
    ],
)  # fmt: skip
def test_of_dear_samples_two_that_agree_are_enough_later_one_but_for_those_that_the_host_times(
    timing, size, first, later
) -> None:
    """Engines and links repeat them within 0.1 % under any clock; work of the host does not."""
    one = measured(Timed(lambda count: 1e-6 + count * 3e-3, timing), size, "false")
    other = measured(Timed(lambda count: 1e-6 + count * 3e-3, timing), size, "false", one)
    assert [len(record.flows[0].samples_s) for record in (one, other)] == [first, later]
    for record in (one, other):
        assert record.batch == [1] and value(record) == pytest.approx(3e-3, rel=1e-6)


class Played(Timed):
    """Operations take the given times, sample by sample; the requests (sample count, verification) are logged."""

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
        ([3e-3], [ONE]),  # as in the first round
        ([3.014e-3], [ONE]),  # by less than half of 1 %
        ([3.03e-3, 3.031e-3], [ONE, ONE]),  # another process: the second sample confirms it
        ([3.4e-3, 3e-3, 3e-3], [ONE, ONE, ONE]),  # delayed: the median is that of the others
        ([3.04e-3, 3e-3, 3.1e-3, 3.07e-3, 3.02e-3, 3.06e-3, 3.05e-3], [ONE, ONE, *[FEW] * 4, ONE]),  # scattered samples
    ],
)
def test_of_dear_samples_the_first_may_be_the_last_and_is_verified(monkeypatch, each_s, requests) -> None:
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", 0.0)
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3, 3.002e-3, 2.999e-3], "gate+slope"
    for size in (4 << 20, 64 << 20):
        worker = Played(*each_s)
        record = measured(worker, size, "false", first)
        assert worker.requests == requests and len(record.flows[0].samples_s) == len(each_s)
        assert value(record) == pytest.approx(median(each_s), rel=1e-6)


def test_of_dear_samples_there_are_more_where_the_first_round_was_not_steady_or_another_clock_tells() -> None:
    first = earlier([1], 3e-3)
    first.timing = "gate+slope"
    for samples_s, taken in (([3e-3, 3.1e-3, 2.9e-3], 2), ([3e-3, 3.02e-3], 2), ([3e-3, 3.01e-3], 1)):
        first.flows[0].samples_s = samples_s
        assert len(measured(Played(*[3e-3] * 3), 4 << 20, "false", first).flows[0].samples_s) == taken
    assert len(measured(Played(*[3e-3] * 4, timing="host"), 4 << 20, "false", first).flows[0].samples_s) == 2


@pytest.mark.parametrize(
    ("each_s", "requests"),
    [
        ([3e-3, 3.014e-3], [FEW, ONE]),  # both agree within half of 1 %
        ([3e-3, 3.016e-3, 3e-3], [FEW, ONE, ONE]),  # almost
        ([3.04e-3, 3e-3, 3.1e-3, 3.07e-3, 3.02e-3, 3.06e-3, 3.05e-3], [FEW, ONE, *[FEW] * 4, ONE]),
        ([0.0, 3e-3, 3e-3, 3e-3], [FEW, (2, False), ONE]),  # delayed
    ],
)
def test_of_dear_samples_of_which_nothing_is_known_two_that_agree_closely_are_all(
    monkeypatch, each_s, requests
) -> None:
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", 0.0)
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3, 3.2e-3, 2.8e-3], "gate+slope"  # it was not steady
    worker = Played(*each_s)
    record = measured(worker, 4 << 20, "false", first)
    assert worker.requests == requests and value(record) == pytest.approx(median(each_s), rel=1e-6)


@pytest.mark.parametrize(("spread", "requests"), [(0.0, [ONE, ONE]), (0.014, [ONE, ONE]), (0.016, [ONE])])
def test_a_dear_sample_that_differs_no_more_than_rounds_do_is_all(spread: float, requests) -> None:
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 3, "gate+slope"
    id, worker = PointId.parse(H2D.format(4 << 20, "false", "batched")), Played(3.09e-3, 3.09e-3)
    Sampler(worker, plan(str(id)), facts()).measure(Task(id, 3, first, spread))
    assert worker.requests == requests


def test_whether_one_sample_may_be_all_is_decided_before_it_is_taken() -> None:
    """The first round makes it look expensive; it lasts half as long itself, so a check matters more."""
    first = earlier([1], 0.6e-3)
    first.flows[0].samples_s, first.timing = [0.6e-3] * 3, "gate+slope"
    worker = Played(0.3e-3, 0.3e-3)
    measured(worker, 4 << 20, "false", first)
    assert worker.requests == [ONE, ONE]


def test_whether_two_samples_have_to_agree_is_decided_before_the_second_is_taken(monkeypatch) -> None:
    """The first sample looks expensive, the median of both does not; 18 % apart, they make no round."""
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", 0.0)
    first = earlier([1], 0.36e-3)
    first.flows[0].samples_s, first.timing = [0.36e-3, 0.4e-3, 0.3e-3], "gate+slope"
    worker = Played(0.36e-3, *[0.3e-3] * 8)
    assert value(measured(worker, 4 << 20, "false", first)) == pytest.approx(0.3e-3, rel=1e-6)
    assert worker.requests[:2] == [FEW, ONE] and len(worker.requests) > 2


@pytest.mark.parametrize(("each_s", "taken"), [(0.09, 3), (0.11, 2)])
def test_of_what_takes_a_tenth_of_a_second_two_samples_are_all_whatever_they_say(each_s: float, taken: int) -> None:
    first = earlier([1], each_s)
    first.flows[0].samples_s, first.timing = [each_s, 1.3 * each_s], "gate+slope"
    worker = Played(each_s, 1.1 * each_s, each_s)
    assert len(measured(worker, 64 << 20, "false", first).flows[0].samples_s) == taken


def test_behind_a_pause_two_samples_say_nothing_of_how_steady_a_first_round_was() -> None:
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 2, "gate+slope"
    for pause, requests in (("", [ONE]), ("idle_gap_s=0.001&", [FEW, ONE])):
        id = PointId.parse(H2D.format(4 << 20, "false", "single").replace("mode=", pause + "mode="))
        worker = Played(*[3e-3] * 2)
        Sampler(worker, plan(H2D.format(4 << 20, "false", "single")), facts()).measure(Task(id, 1, first))
        assert worker.requests == requests


def test_of_dear_samples_two_that_were_held_up_are_not_the_last(monkeypatch) -> None:
    """Durations are positive, whatever both samples say."""
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", 0.0)
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 3, "gate+slope"
    worker = Played(0.0, 0.0, *[3e-3] * 5)
    assert value(measured(worker, 4 << 20, "false", first)) == pytest.approx(3e-3, rel=1e-6)
    assert worker.requests[:2] == [ONE, ONE] and len(worker.requests) > 2


def test_copies_that_large_have_one_sample_in_a_later_round_whatever_it_says() -> None:
    first = earlier([1], 30e-3)
    first.flows[0].samples_s, first.timing = [30e-3] * 3, "gate+slope"
    worker = Played(33e-3)
    assert value(measured(worker, 256 << 20, "false", first)) == pytest.approx(33e-3, rel=1e-6)
    assert worker.requests == [ONE]


def test_a_path_s_own_first_round_has_two_dear_samples_though_one_like_it_was_steady() -> None:
    first = earlier([1], 3e-3)
    first.flows[0].samples_s, first.timing = [3e-3] * 3, "gate+slope"
    id, worker = PointId.parse(H2D.format(64 << 20, "false", "batched")), Played(*[3e-3] * 2)
    Sampler(worker, plan(str(id)), facts()).measure(Task(id, 0, first))
    assert worker.requests == [FEW, ONE]


@pytest.mark.parametrize(("other_s", "taken"), [(3.01e-3, 1), (3.3e-3, 2)])
def test_all_flows_have_to_be_as_before_for_one_dear_sample_to_be_all(other_s: float, taken: int) -> None:
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
    assert [len(flow.samples_s) for flow in record.flows] == [taken, taken]


@pytest.mark.parametrize(("size", "each_s", "taken"), [(4096, 2e-6, 4), (1 << 20, 20e-6, 2)])
def test_the_first_round_of_a_path_shows_how_steady_it_is_though_one_like_it_was(size, each_s, taken) -> None:
    """With two samples it would not show this, and all later rounds would take four."""
    like = measured(Timed(lambda count: 1e-6 + count * each_s), size, "false")
    id = PointId.parse(H2D.format(size, "false", "batched"))
    sampler = Sampler(Timed(lambda count: 1e-6 + count * each_s), plan(str(id)), facts())
    own = sampler.measure(Task(id, 0, like))
    assert own.batch == like.batch and len(own.flows[0].samples_s) == taken
    assert len(sampler.measure(Task(id, 1, own)).flows[0].samples_s) == taken // 2


@pytest.mark.parametrize(("each_s", "later"), [(0.3e-3, 4), (0.9e-3, 4), (1.1e-3, 2), (5e-3, 2)])
def test_one_copy_alone_is_dear_by_its_own_time_and_not_by_what_was_guessed(monkeypatch, each_s, later) -> None:
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", 0.0)
    id = H2D.format(64 << 20, "false", "single")
    record = Sampler(Timed(lambda count: 1e-6 + count * each_s), plan(id), facts()).measure(Task(PointId.parse(id), 0))
    assert len(record.flows[0].samples_s) == 7  # without earlier rounds
    other = Sampler(Timed(lambda count: 1e-6 + count * 1.1 * each_s), plan(id), facts())
    assert len(other.measure(Task(PointId.parse(id), 1, record)).flows[0].samples_s) == later


@pytest.mark.parametrize(("each_s", "part", "taken"), [(20e-6, 0.0035, 6), (2e-3, 0.0035, 3), (2e-3, 0.02, 7)])
def test_dear_samples_are_taken_one_by_one_until_half_as_steady(monkeypatch, each_s, part, taken) -> None:
    """1 MiB with a target of 1 %: a sample of 0.6 ms is cheap, a copy of 2 ms and twice as many take 6 ms."""
    monkeypatch.setattr("linkscope.run.sampler.LITTLE_S", 0.0)
    first = earlier([10 if each_s < 1e-3 else 1], each_s)  # an earlier round without information on its scatter
    record = measured(Wobbling(each_s, part), 1 << 20, "false", first)
    assert len(record.flows[0].samples_s) == taken and value(record) == pytest.approx(each_s, rel=part)
