"""The verdict on every point that both sides of a comparison measured.

A change is seen when the interval of the ratio excludes 1 at a level that bounds the false alarms of the whole
comparison (Holm). A seen change beyond the margin is `slower` or `faster`. A point is `equivalent` when its 95 %
interval lies inside the margin (Schuirmann 1987). All others show no change, and `detectable` states the change that
would have been seen.

The variance of rounds is that of the point's family (stats/pooling.py). Runs differ by more than their rounds, so each
run adds a variance of its own (docs/notes/same-machine.md).
"""

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

from linkscope.compare.environment import unlike
from linkscope.compare.groups import Group, group_of
from linkscope.model.curves import Method, Path, method_of, path_of
from linkscope.model.rounds import rounds_of
from linkscope.runfile import Family, Point, Run, family_of, shown_status, size_class
from linkscope.runfile.methods import version
from linkscope.stats import Interval
from linkscope.stats.equivalence import holm
from linkscope.stats.pooling import FLAT_FOR_RATIOS, Noise, Ratio, families, ratio

MARGINS = (0.05, 0.05, 0.02)  # by size class: the largest change that counts as none
FALSE_ALARMS = 0.01  # probability that a comparison of unchanged runs shows a judged change
LEVEL = 0.95  # of the interval of each ratio
NOISY_RUNS = 0.6  # the share of runs for pageable and managed memory (docs/notes/same-machine.md)
JUDGED = 0.10  # points whose detectable change is larger gate nothing unless asked
ENOUGH = 0.5  # the smallest share of the points of either run that gives a verdict: most have a counterpart

Verdict = Literal["broken", "slower", "mended", "faster", "no change seen", "equivalent"]  # worst first
WORSE: tuple[Verdict, ...] = ("broken", "slower")
CHANGED: tuple[Verdict, ...] = ("broken", "slower", "mended", "faster")


@dataclass(frozen=True)
class Pair:
    """One point on both sides. `ratio` is of times, after / before; None if one of them has no value.

    `before` and `after` are the points of the last run of each side. `detectable`: the smallest relative change that
    is seen with 95 % probability.
    """

    before: Point
    after: Point
    verdict: Verdict
    ratio: float | None = None
    interval: Interval | None = None
    detectable: float | None = None

    @property
    def id(self) -> str:
        """The id of the point."""
        return self.before.id

    @property
    def path(self) -> Path:
        """The path of the point."""
        return path_of(self.before)

    @property
    def method(self) -> Method:
        """The method of the point."""
        return method_of(self.before)

    @property
    def group(self) -> Group:
        """The group that the point is reported in."""
        return group_of(self.before)

    @property
    def judged(self) -> bool:
        """Whether the point is known well enough to gate: a change of 10 % is detectable, or it failed."""
        if self.detectable is None:
            return self.verdict in ("broken", "mended")
        return self.detectable <= JUDGED


@dataclass(frozen=True)
class Comparison:
    """All pairs, in the order of the first run.

    `margins`: the largest change that counts as none, by size class. Points that are not compared are counted:
    `only_before` and `only_after` exist on one side, `unmeasured` (by the status that says why) have no value on one of
    them, and `other_method` (by benchmark) were measured by different methods (runfile/methods.py). `measured`: the
    points with a value before and after. `unlike`: why the runs have few points in common.
    """

    pairs: list[Pair]
    margins: tuple[float, ...]
    only_before: int = 0
    only_after: int = 0
    unmeasured: dict[str, int] = field(default_factory=dict)
    other_method: dict[str, int] = field(default_factory=dict)
    measured: tuple[int, int] = (0, 0)
    unlike: list[str] = field(default_factory=list)

    @property
    def few(self) -> bool:
        """Whether most points of both runs have no counterpart, so that the others say little of the machine."""
        return len(self.pairs) < ENOUGH * min(self.measured)

    def undecided(self, *, noisy: bool = False) -> bool:
        """Whether the comparison has no verdict: too few points have a counterpart, or no point can be judged."""
        return self.few or not any(pair.judged or (noisy and pair.ratio is not None) for pair in self.pairs)

    def worse(self, *, noisy: bool = False) -> list[Pair]:
        """The points that became slower or failed; those of noisy memory only if `noisy`."""
        return [pair for pair in self.pairs if pair.verdict in WORSE and (noisy or pair.judged)]

    def changed(self, *, noisy: bool = False) -> list[Pair]:
        """The points that changed in either direction."""
        return [pair for pair in self.pairs if pair.verdict in CHANGED and (noisy or pair.judged)]

    def inconclusive(self, *, noisy: bool = False) -> list[Pair]:
        """The points that are neither changed nor equivalent."""
        return [pair for pair in self.pairs if pair.verdict == "no change seen" and (noisy or pair.judged)]


def compare(
    before: Sequence[Run],
    after: Sequence[Run],
    margin: float | None = None,
    only: Sequence[str] = (),
    false_alarms: float = FALSE_ALARMS,
    margins_by_id: Mapping[str, float] = MappingProxyType({}),
) -> Comparison:
    """Compares points by id: the last run of each side gives the points, all runs of a side give rounds.

    `margin` replaces `MARGINS`, and `margins_by_id` replaces both for single points. `only`: patterns of ids.
    `false_alarms`: the probability that unchanged runs show any change. Points that one side did not measure
    (unsupported, skipped, inherited) are left out.
    """
    margins = MARGINS if margin is None else (margin,) * len(MARGINS)
    first, last = before[-1], after[-1]
    theirs = {point.id: point for point in last.points}
    found = [(p, theirs[p.id]) for p in first.points if p.id in theirs and _wanted(p.id, only)]
    changed = {name for name in {p.benchmark for p, _ in found} if not one_method([*before, *after], name)}
    other_method = Counter(point.benchmark for point, _ in found if point.benchmark in changed)
    both = [pair for pair in found if pair[0].benchmark not in changed]
    sides = [_rounds_by_id(before), _rounds_by_id(after)]
    timed = {one.id for one, other in both if rounds_of(one) and rounds_of(other)}
    # All points show the noise of a family, also those that only one side measured.
    every = {point.id: point for run in (*before, *after) for point in run.points}
    known = [(every[id], [*sides[0].get(id, ()), *sides[1].get(id, ())]) for id in {*sides[0], *sides[1]}]
    compared = [pair for pair in both if pair[0].id in timed]
    margin_of = {one.id: margins_by_id.get(one.id, margins[size_class(one.bytes)]) for one, _ in compared}
    pairs = _timed_pairs(compared, sides, noise_of(known), margin_of, false_alarms)
    for one, other in both:
        if rounds_of(one) and shown_status(other) == "failed":
            pairs[one.id] = Pair(one, other, "broken")
        elif shown_status(one) == "failed" and rounds_of(other):
            pairs[one.id] = Pair(one, other, "mended")
    ours = {point.id for point in first.points}
    return Comparison(
        [pairs[one.id] for one, _ in both if one.id in pairs], margins,
        only_before=sum(_wanted(id, only) and id not in theirs for id in ours),
        only_after=sum(_wanted(id, only) and id not in ours for id in theirs),
        unmeasured=dict(Counter(_why_unmeasured(*pair) for pair in both if pair[0].id not in pairs)),
        other_method=dict(other_method),
        measured=(_count_measured(first, only), _count_measured(last, only)),
        unlike=unlike(first.header, last.header),
    )  # fmt: skip


Rounds = Mapping[str, Sequence[Sequence[float]]]  # rounds of every run that measured a point, by id


def _timed_pairs(
    both: Sequence[tuple[Point, Point]],
    sides: Sequence[Rounds],
    noise: Mapping[Family, Noise],
    margin_of: Mapping[str, float],
    false_alarms: float,
) -> dict[str, Pair]:
    ratios = {one.id: ratio(sides[0][one.id], sides[1][one.id], noise[family_of(one)]) for one, _ in both}
    known = [id for id, of in ratios.items() if of is not None]
    seen = dict(zip(known, holm([_chance(ratios[id]) for id in known], false_alarms), strict=True))
    alarm = 1 - false_alarms / max(1, len(known))
    pairs = {}
    for one, other in both:
        of = ratios[one.id]
        if of is None:  # one round on each side, alone in its family
            pairs[one.id] = Pair(one, other, "no change seen")
            continue
        interval = of.interval(LEVEL)
        verdict = _verdict(of.value, interval, seen[one.id], margin_of[one.id])
        pairs[one.id] = Pair(one, other, verdict, of.value, interval, of.detectable(alarm))
    return pairs


def noise_of(points: Iterable[tuple[Point, Sequence[Sequence[float]]]]) -> dict[Family, Noise]:
    """The noise of every family of points with their rounds."""
    rounds: dict[Family, list[Sequence[float]]] = defaultdict(list)
    for point, runs in points:
        rounds[family_of(point)] += runs
    noise = families(rounds, lambda family: family.kin, FLAT_FOR_RATIOS)
    return {family: replace(one, runs=NOISY_RUNS) if family.is_noisy else one for family, one in noise.items()}


def _verdict(value: float, interval: Interval, seen: bool, margin: float) -> Verdict:
    if seen and max(value, 1 / value) > 1 + margin:
        return "slower" if value > 1 else "faster"
    return "equivalent" if interval.low >= 1 / (1 + margin) and interval.high <= 1 + margin else "no change seen"


def _chance(of: Ratio | None) -> float:
    assert of is not None
    return of.chance_unchanged()


def _rounds_by_id(runs: Iterable[Run]) -> Rounds:
    found: dict[str, list[Sequence[float]]] = defaultdict(list)
    for run in runs:
        for point in run.points:
            if rounds := rounds_of(point):
                found[point.id].append(rounds)
    return found


def _why_unmeasured(before: Point, after: Point) -> str:
    """The status of the side without a value."""
    return shown_status(before if not rounds_of(before) else after)


def _count_measured(run: Run, only: Sequence[str]) -> int:
    return sum(bool(rounds_of(point)) and _wanted(point.id, only) for point in run.points)


def one_method(runs: Iterable[Run], benchmark: str) -> bool:
    """Whether all runs measured the benchmark by the same method (runfile/methods.py)."""
    return len({version(run.header, benchmark) for run in runs}) == 1


def _wanted(id: str, only: Sequence[str]) -> bool:
    return not only or any(fnmatch.fnmatchcase(id, pattern) for pattern in only)
