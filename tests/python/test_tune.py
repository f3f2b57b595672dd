"""The tuner finds the settings of a simulated machine within its time."""

import math
import random

import pytest

from linkscope.tune import NEEDS, PATHS, BlockMove, Classes, Failure, Job, Ring, make_jobs, tune
from linkscope.tune.grids import beside_in_grid, grid
from linkscope.tune.prior import Prior, first_candidates, measure_prior

KIB, MIB = 1 << 10, 1 << 20
CLASSES = Classes((64 * KIB, MIB, 64 * MIB), (0, 4 * KIB, 512 * KIB), (0, 16 * KIB), (0, MIB, 256 * MIB))


class SimulatedBench:
    """A machine in virtual time whose copies take what `truth` says, with noise."""

    cpus, slots, helpers, why_no_uring = 16, 64, 0, ""
    cufile_rate = 0.1e9

    def __init__(self, truth: Prior, plain_rate: float, scatter: float = 0.03, fails: bool = False) -> None:
        self.truth, self.plain_rate, self.scatter, self.fails = truth, plain_rate, scatter, fails
        self.clock, self.cpu, self.noise = 0.0, 0.0, random.Random(1)
        self.chosen: dict[object, object] = {}

    def now(self) -> float:
        return self.clock

    def _timed(self, seconds: float, repeats: int = 1) -> float:
        seconds *= math.exp(self.noise.gauss(0, self.scatter))
        self.clock += seconds * repeats
        return seconds

    def default(self, method: str, nbytes: int) -> Ring:
        return Ring(8, 4 * MIB, 2, 256 * KIB, 8)

    def default_blocks(self, to_gpu: bool, mean_bytes: int) -> BlockMove:
        return BlockMove("kernel", 8)

    def true_s(self, nbytes: int, ring: Ring | None) -> float:
        if ring is None:
            return self.truth.start_s + nbytes / self.plain_rate
        return self.truth.seconds(nbytes, ring) * (1.2 if ring.piece == 0 else 1.0)

    def copy(self, method: str, ring: Ring | None, nbytes: int, repeats: int) -> float:
        if ring is not None and self.fails:
            raise Failure("no slots")
        return self._timed(self.true_s(nbytes, ring), repeats)

    def pinned(self, method: str, nbytes: int, repeats: int) -> float:
        return self._timed(self.truth.start_s + nbytes / self.truth.link_rate, repeats)

    def true_blocks_s(self, move: BlockMove, mean_bytes: int, count: int) -> float:
        if move.method == "loop":
            return count * max(1.6e-6, mean_bytes / self.truth.link_rate)
        rate = self.truth.link_rate * (0.1 if move.method == "batch" else 0.95 * min(move.sm_blocks / 12, 1))
        return 10e-6 + count * mean_bytes / rate

    def blocks(self, to_gpu: bool, move: BlockMove, mean_bytes: int, count: int) -> float:
        if move.method == "batch" and self.fails:
            raise Failure("no such call")
        return self._timed(self.true_blocks_s(move, mean_bytes, count))

    def staged(self, job: Job, ring: Ring | None, repeats: int) -> float:
        """Blocks cost a microsecond each where they are packed; reads of a disk gain from 16 in flight."""
        if ring is None:
            return self._timed(self.true_blocks_s(BlockMove("loop", 1), job.nbytes, job.count), repeats)
        if job.is_file and ring.cufile:
            return self._timed(job.total_bytes / self.cufile_rate, repeats)
        if job.path == "cold-file":
            in_flight = ring.uring or ring.threads / 2  # a thread that copies has no read in flight
            return self._timed(10e-6 + job.total_bytes / (0.2e9 * min(in_flight, 16)), repeats)
        return self._timed(self.true_s(job.total_bytes, ring) + job.count * 1e-6 / ring.threads, repeats)

    def cpu_s(self) -> float:
        return self.cpu

    def choose(self, method: str, nbytes: int, ring: Ring | None) -> None:
        self.chosen[method, nbytes] = ring

    def reset(self, method: str, nbytes: int) -> None:
        self.chosen.pop((method, nbytes), None)

    def choose_blocks(self, to_gpu: bool, mean_bytes: int, move: BlockMove) -> None:
        self.chosen[to_gpu, mean_bytes] = move


class UnmodelledBench(SimulatedBench):
    """A machine unlike the tuner's model: threads disturb each other, and small chunks waste the link."""

    def true_s(self, nbytes: int, ring: Ring | None) -> float:
        if ring is None:
            return super().true_s(nbytes, ring)
        of, chunk = self.truth, min(ring.chunk, nbytes // (ring.threads * ring.chunks_each))
        slower = Prior(
            of.thread_rate / (1 + (ring.threads / 8) ** 2),
            of.link_rate * chunk / (chunk + 512 * KIB),
            of.chunk_s, of.wake_s, of.start_s,
        )  # fmt: skip
        return slower.seconds(nbytes, ring) * (1.2 if ring.piece == 0 else 1.0)


class HelpedBench(SimulatedBench):
    """Pinned copies over the links of three helpers, of which the third gains nothing; short chunks waste time."""

    helpers = 3

    def true_s(self, nbytes: int, ring: Ring | None) -> float:
        if ring is None:
            return super().true_s(nbytes, ring)
        waste = 1 + 200 * KIB / min(ring.chunk, nbytes)
        return self.truth.start_s + nbytes / (self.truth.link_rate * min(ring.links, 3)) * waste


HOSTS = {
    "fast CPUs": Prior(12e9, 55e9, 3e-6, 2e-6, 8e-6),
    "slow CPUs": Prior(4e9, 55e9, 5e-6, 10e-6, 10e-6),
}


def best_s(bench: SimulatedBench, nbytes: int) -> float:
    """The shortest time of any ring on a fine grid."""
    threads, chunks = range(1, bench.cpus + 1), [64 * KIB << power for power in range(7)]
    grid = [Ring(t, c, d, 64 * KIB) for t in threads for c in chunks for d in (1, 2, 3) if t * c <= nbytes]
    return min([bench.true_s(nbytes, ring) for ring in grid])


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("nbytes", [2 * MIB, 32 * MIB, 512 * MIB])
def test_the_chosen_ring_is_within_six_percent_of_the_best_of_a_fine_grid(host, nbytes) -> None:
    bench = SimulatedBench(HOSTS[host], 6.5e9)
    (row,) = tune(bench, [Job("to-gpu", nbytes // 2, nbytes)], 4.0, now=bench.now)
    assert isinstance(row.choice, Ring) and bench.chosen["ring_to_gpu", nbytes] == row.choice
    assert bench.true_s(nbytes, row.choice) <= 1.06 * best_s(bench, nbytes)
    true_gain = bench.true_s(nbytes, None) / bench.true_s(nbytes, row.choice)
    assert row.gain is not None and row.gain.low > 1 and row.ratio == pytest.approx(true_gain, rel=0.1)


@pytest.mark.parametrize("nbytes", [8 * MIB, 128 * MIB])
def test_the_search_comes_within_ten_percent_where_the_model_is_wrong(nbytes) -> None:
    bench = UnmodelledBench(HOSTS["fast CPUs"], 6.5e9)
    (row,) = tune(bench, [Job("to-gpu", nbytes // 2, nbytes)], 4.0, now=bench.now)
    assert isinstance(row.choice, Ring) and bench.true_s(nbytes, row.choice) <= 1.1 * best_s(bench, nbytes)


def test_a_class_in_which_plain_copies_are_as_fast_is_plain() -> None:
    bench = SimulatedBench(HOSTS["slow CPUs"], 60e9)
    (row,) = tune(bench, [Job("to-warm", 64 * KIB, 128 * KIB)], 4.0, now=bench.now)
    assert row.choice is None and row.gain is None and bench.chosen["ring_to_host", 128 * KIB] is None


def test_a_machine_whose_ring_fails_keeps_plain_copies() -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 6e9, fails=True)
    rows = list(tune(bench, [Job("to-gpu", MIB, 2 * MIB), Job("blocks-to-gpu", 0, 256, 8192)], 4.0, now=bench.now))
    assert rows[0].choice is None and isinstance(rows[1].choice, BlockMove) and rows[1].choice.method == "kernel"


@pytest.mark.parametrize(("mean", "method"), [(256, "kernel"), (4 * KIB, "kernel"), (512 * KIB, "loop")])
def test_blocks_move_by_the_fastest_method_on_the_fewest_sms(mean, method) -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 6e9, scatter=0.01)
    count = min(8192, 64 * MIB // mean)
    (row,) = tune(bench, [Job("blocks-to-gpu", mean, mean, count)], 4.0, now=bench.now)
    assert isinstance(row.choice, BlockMove) and row.choice.method == method
    assert method == "loop" or 12 <= row.choice.sm_blocks <= 16
    assert bench.chosen[True, mean] == row.choice


def test_the_budget_holds_and_classes_that_were_not_reached_are_left_out() -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 1e9)
    jobs = make_jobs(["to-gpu", "to-fresh"], Classes((MIB, 64 * MIB, 256 * MIB)), 512 * MIB)
    rows = list(tune(bench, jobs, 1.0, now=bench.now))
    assert 0 < len(rows) < len(jobs) and bench.clock < 4  # the last class ends its laps with plain copies of 0.5 s


def test_all_classes_of_one_gpu_are_raced_within_two_minutes() -> None:
    """Plain copies of 1 GiB take 0.7 s, and a plain reading of 256 MiB 0.5 s."""

    class SlowDisk(SimulatedBench):
        def staged(self, job: Job, ring: Ring | None, repeats: int) -> float:
            if ring is None:
                return self._timed(job.total_bytes / (0.5e9 if job.is_file else 4e9), repeats)
            return super().staged(job, ring, repeats)

    bench = SlowDisk(HOSTS["slow CPUs"], 1.5e9, scatter=0.05)
    classes = Classes(
        (*(64 * KIB << 2 * power for power in range(7)), 768 * MIB),
        (0, *(KIB << power for power in (0, 2, 3, 4, 6, 8, 9))),
        (0, 4 * KIB, 16 * KIB, 64 * KIB, 512 * KIB),
        (0, MIB, 16 * MIB, 256 * MIB),
    )
    jobs = make_jobs([name for name in PATHS if NEEDS.get(name) in (None, "--directory")], classes, 1 << 30)
    rows = list(tune(bench, jobs, 120.0, now=bench.now))
    assert [row.job for row in rows] == jobs and bench.clock <= 120


def test_the_search_around_the_leader_has_the_second_half_of_the_time_of_a_class() -> None:
    """The first race has nine rings and plain copies. Scatter leaves it undecided until its time is up."""
    bench = UnmodelledBench(HOSTS["fast CPUs"], 6.5e9, scatter=0.3)
    (row,) = tune(bench, [Job("to-gpu", 64 * MIB, 128 * MIB)], 1.0, now=bench.now)
    assert row.tried > 10 and bench.clock > 0.9


def test_a_stop_leaves_the_class_under_way_as_it_was() -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 6e9)
    jobs = [Job("to-gpu", MIB, 2 * MIB), Job("to-gpu", 64 * MIB, 128 * MIB)]
    rows = tune(bench, jobs, 10.0, lambda: len(bench.chosen) > 0, bench.now)
    assert [row.job for row in rows] == jobs[:1]
    assert list(bench.chosen) == [("ring_to_gpu", 2 * MIB)]


def test_the_model_recovers_the_parameters_of_the_machine() -> None:
    truth = HOSTS["fast CPUs"]
    bench = SimulatedBench(truth, 6e9, scatter=0.0)
    found = measure_prior(bench, "ring_to_gpu", 512 * MIB)
    assert found.link_rate == pytest.approx(truth.link_rate, rel=0.01)
    assert 0.5 < found.thread_rate / truth.thread_rate < 1.1
    likely = first_candidates(found, bench, bench.default("ring_to_gpu", 32 * MIB), 32 * MIB, 8)
    assert likely[0] == bench.default("ring_to_gpu", 32 * MIB) and len(likely) == 9


def test_jobs_cover_every_class_up_to_the_largest_size() -> None:
    jobs = make_jobs(["to-gpu", "blocks-to-gpu", "packed-from-gpu", "cached-file"], CLASSES, 64 * MIB)

    def of(path: str) -> list[tuple[int, int, int]]:
        return [(one.from_bytes, one.nbytes, one.count) for one in jobs if one.path == path]

    assert of("to-gpu") == [(64 * KIB, 128 * KIB, 1), (MIB, 2 * MIB, 1), (64 * MIB, 64 * MIB, 1)]
    assert of("blocks-to-gpu") == [(0, 256, 8192), (4 * KIB, 4 * KIB, 8192), (512 * KIB, 512 * KIB, 128)]
    assert of("packed-from-gpu") == [(0, 256, 8192), (16 * KIB, 16 * KIB, 4096)]
    assert of("cached-file") == [(0, 512 * KIB, 1), (MIB, 4 * MIB, 1)]
    assert max(one.total_bytes for one in jobs) <= 64 * MIB


def test_copies_above_256_mib_have_two_classes_and_no_job_exceeds_1_gib() -> None:
    jobs = make_jobs(["to-gpu"], Classes((256 * MIB, 768 * MIB)), 4096 * MIB)
    assert [(one.from_bytes, one.nbytes) for one in jobs] == [(256 * MIB, 512 * MIB), (768 * MIB, 1024 * MIB)]


@pytest.mark.parametrize("path", ["packed-to-gpu", "packed-from-gpu"])
def test_pageable_blocks_find_their_threads(path) -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 6e9, 0.01)
    (row,) = tune(bench, [Job(path, 4 * KIB, 4 * KIB, 8192)], 4.0, now=bench.now)
    method = "packed_to_gpu" if path == "packed-to-gpu" else "packed_to_host"
    assert isinstance(row.choice, Ring) and bench.chosen[method, 4 * KIB] == row.choice
    assert row.choice.threads >= 4 and row.gain is not None and row.gain.low > 1


def test_cold_files_find_how_many_reads_are_in_flight() -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 6e9, 0.01)
    bench.true_blocks_s = lambda *_: 64 * MIB / 0.5e9  # type: ignore[method-assign]  # plainly
    (row,) = tune(bench, [Job("cold-file", 16 * MIB, 64 * MIB)], 60.0, now=bench.now)
    assert isinstance(row.choice, Ring) and row.choice.uring >= 16
    assert bench.chosen["read_cold", 64 * MIB] == row.choice


@pytest.mark.parametrize(("path", "method"), [("cold-file", "read_cold"), ("saved-file", "write_file")])
def test_cufile_is_chosen_where_it_is_fastest(path, method) -> None:
    bench = SimulatedBench(HOSTS["fast CPUs"], 6e9, 0.01)
    bench.true_blocks_s, bench.cufile_rate = (lambda *_: 64 * MIB / 0.5e9), 90e9  # type: ignore[method-assign]
    (row,) = tune(bench, [Job(path, 16 * MIB, 64 * MIB)], 60.0, now=bench.now)
    assert isinstance(row.choice, Ring) and row.choice.cufile and bench.chosen[method, 64 * MIB] == row.choice


def test_plain_readings_win_where_they_are_as_fast() -> None:
    bench = SimulatedBench(HOSTS["slow CPUs"], 6e9, 0.01)
    bench.true_blocks_s = lambda *_: 1e-6  # type: ignore[method-assign]
    (row,) = tune(bench, [Job("cached-file", 0, 512 * KIB)], 4.0, now=bench.now)
    assert row.choice is None and bench.chosen["read_cached", 512 * KIB] is None


class KernelBench(SimulatedBench):
    """A GPU whose copies by a kernel need 64 thread blocks, and whose TMA is 10 % faster than its threads."""

    def default(self, method: str, nbytes: int) -> Ring:
        return Ring(1, 16 * KIB, 1, 0, 1, 128, 4 * KIB)

    def true_s(self, nbytes: int, ring: Ring | None) -> float:
        if ring is None:
            return 2e-6 + nbytes / self.plain_rate
        rate = 2e12 * min(ring.sm_blocks / 64, 1) * (1.1 if ring.tma else 1) / (1 + ring.sm_blocks / 1000)
        return 2e-6 + nbytes / rate


@pytest.mark.parametrize("path, method", [("within-gpu", "within_gpu"), ("peer-to-gpu", "between_peers")])
def test_copies_between_memories_of_gpus_race_the_copy_engine_sms_and_tma(path, method) -> None:
    (job,) = make_jobs([path], Classes((8 * MIB,)), 16 * MIB)
    bench = KernelBench(HOSTS["fast CPUs"], 1.2e12, 0.01)
    (row,) = tune(bench, [job], 4.0, now=bench.now)
    assert isinstance(row.choice, Ring) and row.choice.tma and 48 <= row.choice.sm_blocks <= 96
    assert bench.chosen[method, 16 * MIB] == row.choice and row.gain is not None and row.gain.low > 1.2
    bench = KernelBench(HOSTS["fast CPUs"], 4e12, 0.01)
    (row,) = tune(bench, [job], 4.0, now=bench.now)
    assert row.choice is None and bench.chosen[method, 16 * MIB] is None


@pytest.mark.parametrize(
    "path", ["gpu-to-gpu", "within-gpu", "packed-to-gpu", "cached-file", "cold-file", "saved-file", "pinned-to-gpu"]
)
def test_no_candidate_exceeds_the_machine_and_the_default_is_in_the_race(path) -> None:
    bench = HelpedBench(HOSTS["fast CPUs"], 6e9)
    default, job = Ring(8, 4 * MIB, 2, chunks_each=2, sm_blocks=8, sm_chunk=4096), Job(path, 0, 8 * KIB, 8192)
    first = grid(job, bench, default)
    assert any((one.threads, one.chunk) == (8, 4 * MIB) for one in first)
    for one in [*first, *beside_in_grid(job, default, bench)]:
        assert 1 <= one.threads <= bench.cpus and one.chunk <= job.total_bytes and 1 <= one.depth <= 32


@pytest.mark.parametrize("path", ["pinned-to-gpu", "pinned-from-gpu"])
def test_pinned_copies_find_how_many_links_gain(path) -> None:
    bench = HelpedBench(HOSTS["fast CPUs"], 55e9, 0.01)
    (row,) = tune(bench, [Job(path, 256 * MIB, 512 * MIB)], 10, now=bench.now)
    assert isinstance(row.choice, Ring) and row.choice.links == 3 and row.choice.chunk >= 2 * MIB
    assert row.gain is not None and row.gain.low > 2 and row.ratio == pytest.approx(3, rel=0.15)


def test_pageable_copies_race_with_helpers_only_if_there_are_some() -> None:
    found = HOSTS["fast CPUs"]
    with_none, with_three = SimulatedBench(found, 6e9), HelpedBench(found, 6e9)
    for bench, links in ((with_none, {1}), (with_three, {1, 4})):
        default = bench.default("ring_to_gpu", 512 * MIB)
        raced = first_candidates(found, bench, default, 512 * MIB, 8)
        assert {ring.links for ring in raced} == links
