"""Tunes one class after the other: a race of likely candidates, then a search around its leader, then a comparison
with plain copies."""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from linkscope.stats import Interval, median
from linkscope.stats.ratios import student_interval
from linkscope.tune.bench import Bench, BlockMove, Failure, Ring
from linkscope.tune.grids import beside_in_grid, grid
from linkscope.tune.jobs import Job
from linkscope.tune.prior import Prior, first_candidates, measure_prior, neighbours
from linkscope.tune.race import MARGIN, Winner, interval_of_ratio, race

Candidate = Ring | BlockMove | None  # None: plain copies
Lap = Callable[[Candidate], float]

_SM_BLOCKS = (2, 4, 8, 12, 16, 24, 32, 48, 64)
_FIRST_CANDIDATES, _MOST_STEPS = 8, 6
_COMPARED, _COMPARED_AT_LEAST = 8, 3  # laps with plain copies at the end
_LAP_S, _MOST_REPEATS = 0.5e-3, 15  # a lap of short copies has several
_FIRST_S = 10e-3  # a first copy that takes longer needs no second one
_HOPELESS = 1.5  # ratio of the times, ring to plain, from which neighbours of the ring are not tried
_SHARE_OF_BUDGET = 0.93  # the last class ends its laps with plain copies after its time is up
_HEAVY = 256 << 20  # bytes of a job that gets twice the time of a short one
_FAILED_S = 60.0  # of a lap that failed after others worked
_ALIKE = 1.05  # ratio of two times that differ by their scatter only, at most
# CPU times that differ by less are alike: a part, or core-seconds a GB. The aim is 0.2 core-seconds a GB.
_CPU_PART, _CPU_S_PER_GB = 0.1, 0.01


@dataclass(frozen=True)
class Row:
    """The result of a job. `choice`: None for plain copies. `gain`: the ratio of the times, plain to tuned, with its
    95 % interval; None if plain copies are chosen."""

    job: Job
    choice: Candidate
    plain_s: float
    tuned_s: float
    pinned_s: float
    gain: Interval | None
    tried: int = 0
    cpu_s: float = 0.0  # of one tuned copy, all threads together

    @property
    def cpu_s_per_gb(self) -> float:
        """Core-seconds for each GB of tuned copies."""
        return self.cpu_s / self.job.total_bytes * 1e9

    @property
    def ratio(self) -> float:
        """The gain: the centre of its interval; 1 for plain copies."""
        return math.sqrt(self.gain.low * self.gain.high) if self.gain else 1.0

    @property
    def share(self) -> float:
        """The share of the rate of one pinned copy of as many bytes."""
        return self.pinned_s / self.tuned_s


@dataclass
class _Clock:
    """The time and the wish to stop."""

    now: Callable[[], float]
    stop: Callable[[], bool]
    deadline: float = math.inf

    def is_over(self) -> bool:
        return self.stop() or self.now() >= self.deadline


@dataclass
class _Search:
    """A job with what was tried."""

    job: Job
    lap: Lap
    plain: Candidate
    clock: _Clock
    cpu_s: Callable[[], float]
    repeats: int = 1  # copies of a lap
    tried: set[Candidate] = field(default_factory=set)
    cpu: dict[Candidate, list[float]] = field(default_factory=dict)  # seconds of each lap

    def race(self, candidates: Sequence[Candidate], *, first: bool) -> Winner[Candidate] | None:
        """A race of those that work; None if fewer than two do or there is no time. Plain copies are in the first one,
        and leave it when they are certainly slower: a large one takes time that the others need."""
        working = [self.plain] if first else []
        for one in candidates:
            if one in self.tried:
                working.append(one)
            elif not self.clock.is_over():
                self.tried.add(one)
                with contextlib.suppress(Failure):
                    self.lap(one)  # allocates slots and starts threads
                    working.append(one)
        if len(working) < 2:
            return None
        return race(working, self.timed, self.clock.is_over)

    def timed(self, one: Candidate) -> float:
        before = self.cpu_s()
        try:
            return self.lap(one)
        except Failure:
            return _FAILED_S
        finally:
            self.cpu.setdefault(one, []).append(self.cpu_s() - before)

    def cpu_of(self, one: Candidate) -> float:
        """CPU seconds of one copy; 0 if it was not timed."""
        laps = self.cpu.get(one)
        return median(laps) / self.repeats if laps else 0.0

    def cheapest(self, alike: Sequence[Candidate]) -> Candidate:
        """Of candidates that are as fast, the one with the least CPU time; if that is alike, the one with the lowest
        cost, and of these the first."""
        least = min(alike, key=self.cpu_of)
        near = [one for one in alike if not self.needs_less_cpu(least, one)]
        return min(near, key=lambda one: one.cost() if one else (0, 0, 0, 0))

    def needs_less_cpu(self, one: Candidate, other: Candidate) -> bool:
        """Whether a candidate needs less CPU time than another one, by more than the margin of equal candidates."""
        own = self.cpu_of(one)
        return self.cpu_of(other) > own + max(_CPU_PART * own, _CPU_S_PER_GB * self.job.total_bytes / 1e9)

    def leader(self, winner: Winner[Candidate], margin: float = 0.0) -> Candidate:
        """The fastest candidate without plain copies; with a margin, the cheapest of those that are as fast: within the
        margin, or not certainly slower."""
        others = [one for one in winner.seconds if one != self.plain]
        left = [one for one in others if len(winner.logs[one]) == winner.laps] or others
        best = min(left, key=lambda one: winner.seconds[one])
        if not margin:
            return best

        def is_alike(one: Candidate) -> bool:
            ratio = winner.seconds[one] / winner.seconds[best]
            apart = interval_of_ratio(winner.logs[one], winner.logs[best])
            return ratio <= 1 + margin or (ratio <= _ALIKE and apart is not None and apart.low <= 1)

        return self.cheapest([one for one in left if is_alike(one)])


def tune(
    bench: Bench,
    jobs: Sequence[Job],
    budget_s: float,
    stop: Callable[[], bool] = lambda: False,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[Row]:
    """Tunes the classes of the jobs; each result is chosen in the library before it is yielded.

    Ends when all are tuned, when `stop` returns true, or when the budget is spent. Classes that were not reached keep
    their knobs. Raises Failure if not even plain copies work.
    """
    end, priors = now() + _SHARE_OF_BUDGET * budget_s, dict[str, Prior | None]()
    largest = max((job.total_bytes for job in jobs), default=1)
    for number, job in enumerate(jobs):
        share = _weight(job) / sum(_weight(one) for one in jobs[number:])
        clock = _Clock(now, stop, now() + (end - now()) * share)
        if stop() or now() >= end:
            return
        if job.has_prior and job.method not in priors:
            priors[job.method] = _prior(bench, job, largest)
        row = _blocks(bench, job, clock) if job.is_blocks else _copies(bench, job, priors.get(job.method), clock)
        if row is not None:
            yield row


def _weight(job: Job) -> float:
    """The share of the time that is left, against other classes: laps of large copies take longer."""
    return 1 + job.total_bytes / _HEAVY


def _prior(bench: Bench, job: Job, largest: int) -> Prior | None:
    """The model of a path; None if the ring does not work."""
    try:
        return measure_prior(bench, job.method, largest)
    except Failure:
        return None
    finally:
        for size in (1 << power for power in range(largest.bit_length())):
            bench.reset(job.method, size)


def _copies(bench: Bench, job: Job, prior: Prior | None, clock: _Clock) -> Row | None:
    def timed(one: Candidate, repeats: int) -> float:
        assert not isinstance(one, BlockMove)
        if job.is_packed or job.is_file:
            return bench.staged(job, one, repeats)
        return bench.copy(job.method, one, job.nbytes, repeats)

    if (plain_s := timed(None, 1)) < _FIRST_S:  # the first copy of a size is slow
        plain_s = timed(None, 3)
    repeats = max(1, min(_MOST_REPEATS, round(_LAP_S / max(plain_s, 1e-9))))

    def lap(one: Candidate) -> float:
        return timed(one, repeats)

    search, leader = _Search(job, lap, None, clock, bench.cpu_s, repeats, {None}), None
    default = bench.default(job.method, job.nbytes)
    if not job.has_prior:
        leader = _found(search, bench, grid(job, bench, default))
    elif prior is not None:
        leader = _found(search, bench, first_candidates(prior, bench, default, job.nbytes, _FIRST_CANDIDATES))
    pinned = lambda: bench.pinned(job.copy_method, job.total_bytes, repeats)  # noqa: E731
    row = _compared(search, leader, pinned, default if default in search.tried else None)
    if row is None:
        bench.reset(job.method, job.nbytes)
    else:
        assert not isinstance(row.choice, BlockMove)
        bench.choose(job.method, job.nbytes, row.choice)
    return row


def _found(search: _Search, bench: Bench, first: Sequence[Ring]) -> Ring | None:
    """The best ring: of a race of the first candidates, then of races with the neighbours of its leader."""
    total = search.clock.deadline
    search.clock.deadline = (search.clock.now() + total) / 2
    winner = search.race(first, first=True)
    search.clock.deadline = total
    if winner is None:
        return None
    leader, saver = search.leader(winner), search.leader(winner, MARGIN)
    for _ in range(_MOST_STEPS if winner.seconds[leader] <= _HOPELESS * winner.seconds[search.plain] else 0):
        assert isinstance(leader, Ring)
        job = search.job
        steps = neighbours(leader, bench, job.nbytes) if job.has_prior else beside_in_grid(job, leader, bench)
        near = [one for one in steps if one not in search.tried]
        if not near or search.clock.is_over() or (further := search.race([leader, *near], first=False)) is None:
            break
        winner, before = further, leader
        if (leader := search.leader(winner)) == before:
            break
    # Only the end prefers the lower cost: a margin at each step would add up.
    chosen = search.leader(winner, MARGIN)
    if saver not in winner.seconds and search.needs_less_cpu(saver, chosen) and not search.clock.is_over():
        # A setting of another kind, which only the first race had.
        last = search.race([chosen, saver], first=False)
        chosen = search.leader(last, MARGIN) if last is not None else chosen
    return chosen if isinstance(chosen, Ring) else None


def _compared(search: _Search, leader: Candidate, pinned: Callable[[], float], untuned: Candidate = None) -> Row | None:
    """Compares the leader with plain copies and the untuned choice in turns. The untuned one stays if the leader is not
    faster and needs as much CPU time. None if the user stops before there is an interval."""
    candidates = list(dict.fromkeys([search.plain, *(one for one in (leader, untuned) if leader and one)]))
    logs: dict[Candidate, list[float]] = {one: [] for one in candidates}
    pinned_s = []
    for number in range(_COMPARED):
        if number >= _COMPARED_AT_LEAST and search.clock.is_over():
            break
        if search.clock.stop() and number < _COMPARED_AT_LEAST:
            return None
        for one in candidates:
            logs[one].append(search.timed(one))
        pinned_s.append(pinned())
    middle = {one: median(times) for one, times in logs.items()}
    if untuned is not None and leader not in (None, untuned) and not _is_faster(logs[leader], logs[untuned]):
        saves = search.needs_less_cpu(leader, untuned) and not _is_faster(logs[untuned], logs[leader])
        leader = leader if saves else untuned
    ratios = [plain / ours for plain, ours in zip(logs[search.plain], logs[leader or search.plain], strict=True)]
    gain = student_interval(ratios) if leader is not None and leader != search.plain else None
    if gain is None or gain.low <= 1:
        plain_s = middle[search.plain]
        cpu_s, tried = search.cpu_of(search.plain), len(search.tried)
        return Row(search.job, search.plain, plain_s, plain_s, median(pinned_s), None, tried, cpu_s)
    cpu_s, tried = search.cpu_of(leader), len(search.tried)
    return Row(search.job, leader, middle[search.plain], middle[leader], median(pinned_s), gain, tried, cpu_s)


def _is_faster(ours: Sequence[float], theirs: Sequence[float]) -> bool:
    """Whether a candidate is faster than another one: certainly, or by more than the margin of equal ones."""
    ratios = [other / own for own, other in zip(ours, theirs, strict=True)]
    found = student_interval(ratios)
    return median(ratios) > 1 + MARGIN or (found is not None and found.low > 1)


def _blocks(bench: Bench, job: Job, clock: _Clock) -> Row | None:
    """Blocks have few candidates, so one race decides. Plain copies are a loop."""
    default = bench.default_blocks(job.to_gpu, job.nbytes)
    plain = BlockMove("loop", default.sm_blocks)

    def lap(one: Candidate) -> float:
        assert isinstance(one, BlockMove)
        return bench.blocks(job.to_gpu, one, job.nbytes, job.count)

    lap(plain)
    search = _Search(job, lap, plain, clock, bench.cpu_s, 1, {plain})
    kernels = [BlockMove("kernel", blocks) for blocks in dict.fromkeys([default.sm_blocks, *_SM_BLOCKS])]
    total, clock.deadline = clock.deadline, (clock.now() + 2 * clock.deadline) / 3
    winner = search.race([*kernels, BlockMove("batch", default.sm_blocks)], first=True)
    clock.deadline = total
    leader = search.leader(winner, MARGIN) if winner is not None else None
    row = _compared(search, leader, lambda: bench.pinned(job.copy_method, job.total_bytes, 1))
    chosen = row.choice if row is not None else default
    assert isinstance(chosen, BlockMove)
    bench.choose_blocks(job.to_gpu, job.nbytes, chosen)
    return row
