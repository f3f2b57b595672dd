"""The sampler with flows that are never steady, links that wake up, noise, and the time that requests may take."""

import math
import random
from typing import Any

import pytest

from fakes import H2D, facts, plan
from linkscope.plan import MachineFacts, footprint
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.batches import Batches, Task
from linkscope.run.sampler import Sampler
from linkscope.run.settling import SETTLING
from linkscope.run.stopping import MANY_SAMPLES
from linkscope.run.worker import REQUEST_LIMIT_S
from linkscope.runfile import PointId
from sampler_workers import Joint, Restless, Timed, earlier, measured


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
