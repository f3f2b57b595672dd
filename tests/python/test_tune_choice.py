"""The tuner weighs CPU time where rates are alike, and leaves the untuned choice where another one is no better."""

from dataclasses import replace

import pytest

from linkscope.tune import Job, Ring, tune
from test_tune import HOSTS, MIB, SimulatedBench

NBYTES = 256 * MIB
JOB = Job("to-gpu", NBYTES // 2, NBYTES)


class CpuBench(SimulatedBench):
    """All rings reach the link. A copy costs CPU time by its threads, and half as much where a kernel moves chunks."""

    def true_s(self, nbytes: int, ring: Ring | None) -> float:
        return nbytes / (6e9 if ring is None else 50e9)

    def cpu_of(self, ring: Ring | None) -> float:
        """Core-seconds a GB."""
        return 0.12 if ring is None else 0.04 * ring.threads / (2 if ring.sm_blocks else 1)

    def copy(self, method: str, ring: Ring | None, nbytes: int, repeats: int) -> float:
        self.cpu += self.cpu_of(ring) * nbytes / 1e9 * repeats
        return super().copy(method, ring, nbytes, repeats)


def test_of_settings_that_are_as_fast_the_one_with_less_cpu_time_is_chosen() -> None:
    bench = CpuBench(HOSTS["fast CPUs"], 6e9, scatter=0.005)
    (row,) = tune(bench, [JOB], 8.0, now=bench.now)
    assert isinstance(row.choice, Ring) and row.choice.sm_blocks > 0  # although the kernel takes SMs
    assert row.cpu_s_per_gb == pytest.approx(bench.cpu_of(row.choice)) and row.cpu_s_per_gb <= 0.2
    assert bench.cpu_of(row.choice) < 0.7 * bench.cpu_of(bench.default("ring_to_gpu", NBYTES))


def test_a_faster_setting_is_chosen_whatever_its_cpu_time() -> None:
    class Faster(CpuBench):
        def true_s(self, nbytes: int, ring: Ring | None) -> float:
            return nbytes / (6e9 if ring is None else 10e9 * min(ring.threads, 12) ** 0.5)

    bench = Faster(HOSTS["fast CPUs"], 6e9, scatter=0.005)
    (row,) = tune(bench, [JOB], 8.0, now=bench.now)
    assert isinstance(row.choice, Ring) and row.choice.threads >= 12


def test_a_choice_that_is_no_faster_than_the_untuned_one_leaves_it() -> None:
    class Alike(CpuBench):
        def cpu_of(self, ring: Ring | None) -> float:
            return 0.2

    bench = Alike(HOSTS["fast CPUs"], 6e9, scatter=0.01)
    (row,) = tune(bench, [JOB], 8.0, now=bench.now)
    assert row.choice == bench.default("ring_to_gpu", NBYTES) == bench.chosen["ring_to_gpu", NBYTES]


def test_a_leader_of_the_race_that_is_slower_in_the_end_loses_to_the_untuned_choice() -> None:
    """On one H100 a ring with one slot a thread won the race for 1 GiB, and was 16 % slower than the untuned one."""

    class Drifting(CpuBench):
        pinned_copies = 0

        def pinned(self, method: str, nbytes: int, repeats: int) -> float:
            self.pinned_copies += 1  # the prior has two, and each lap of the comparison one
            return super().pinned(method, nbytes, repeats)

        def true_s(self, nbytes: int, ring: Ring | None) -> float:
            seconds = super().true_s(nbytes, ring)
            if ring is None or ring == self.default("", nbytes):
                return seconds
            return seconds * (0.9 if self.pinned_copies <= 2 else 1.2)

        def cpu_of(self, ring: Ring | None) -> float:
            return 0.2

    bench = Drifting(HOSTS["fast CPUs"], 6e9, scatter=0.01)
    (row,) = tune(bench, [JOB], 8.0, now=bench.now)
    assert bench.pinned_copies > 4 and row.choice == bench.default("ring_to_gpu", NBYTES)


def test_kept_defaults_are_compared_with_plain_copies_like_others() -> None:
    bench = CpuBench(HOSTS["fast CPUs"], 60e9, scatter=0.005)
    bench.true_s = lambda nbytes, ring: nbytes / 50e9  # type: ignore[method-assign]
    (row,) = tune(bench, [replace(JOB)], 8.0, now=bench.now)
    assert row.choice is None and row.cpu_s_per_gb == pytest.approx(0.12)
