"""The sampler where flows differ, batches change the clock, and a short batch would leave a wrong cost."""

from typing import Any

import pytest

from fakes import H2D, facts, plan
from linkscope.plan import MachineFacts, footprint
from linkscope.run.answers import Prepared, Trace
from linkscope.run.sampler import HUGE_BATCH_S, LARGE_BATCH_S, MOST_SAMPLES, REQUEST_LIMIT_S, Sampler, Task
from linkscope.runfile import PointId, Round
from test_sampler import Joint, Restless, sampled


def measured(worker: Any, size: int, both: str = "true") -> Round:
    id = H2D.format(size, both, "batched")
    return Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), 0))


def test_the_overlap_is_the_worst_that_was_seen() -> None:
    record = measured(Joint(lambda first, second: (first * 2e-3, (first + second) * 2e-3)), 64 << 20)
    assert record.guards["joint_overlap"] == pytest.approx(0.5)


@pytest.mark.parametrize("size, least", [(1 << 20, LARGE_BATCH_S), (16 << 20, HUGE_BATCH_S)])
def test_batches_of_large_copies_are_long_against_their_first_microseconds(size: int, least: float) -> None:
    record = sampled(size, each_s=0.0, rate=50e9)
    assert record.batch[0] * size / 50e9 >= least


def test_the_batch_stays_where_four_times_it_would_change_the_clock() -> None:
    class Staged(Restless):
        """Behind the gate up to 128 copies; more wait for staging memory and are timed by the host, each dearer."""

        def run(self, samples, batches, *, verify, limit_s):
            by_host = max(batch[0] for batch in batches) > 128
            ends = [1e-6 * batch[0] ** 1.5 if by_host else 3e-6 * batch[0] for batch in batches]
            stamps = [t for _ in range(samples) for end in ends for t in (0.0, end)]
            return Trace(samples, len(batches), 1, "host" if by_host else "gate", stamps=stamps)

    record = measured(Staged(), 8, "false")
    assert record.batch == [64] and record.timing == "gate+slope" and "nonlinear" not in record.guards


class Uneven(Joint):
    """The first flow always takes the same; the second never does."""

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            self.calls += 1
            for first, second in batches:
                stamps += [0.0, first * 1e-5, 0.0, second * 1e-5 * (1 + 0.3 * (self.calls % 3))]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)


def test_samples_are_taken_until_every_flow_is_steady() -> None:
    assert len(measured(Uneven(lambda *_: ()), 8).flows[0].samples_s) == MOST_SAMPLES


def test_a_curve_in_the_second_flow_is_noted() -> None:
    record = measured(Joint(lambda first, second: (first * 1e-5, second**1.5 * 1e-6)), 8)
    assert "nonlinear" in record.guards


def test_memory_that_takes_long_to_make_is_waited_for() -> None:
    limits: list[float] = []

    class Patient(Restless):
        def prepare(self, case: Any, key: str, limit_s: float) -> Prepared:
            limits.append(limit_s)
            return super().prepare(case, key, limit_s)

    measured(Patient(), 1 << 30, "false")
    assert limits[0] >= REQUEST_LIMIT_S + 4 * (1 << 30) / 1e9


def test_the_footprint_is_that_of_the_larger_cache_at_either_end() -> None:
    machine = MachineFacts("m", False, ("numa:0", "gpu:0"), {"numa:0": 1 << 20, "gpu:0": 50 << 20})
    for src, dst in (("numa:0", "gpu:0"), ("gpu:0", "numa:0")):
        assert footprint(PointId("x", "ce", src, "pinned", dst, "device", 1 << 20), machine) == 150 << 20
