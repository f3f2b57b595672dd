"""The measured gain of each recommendation: times of both practices compared, with simultaneous 95 % intervals."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.advise.recommendations import RECOMMENDATIONS, Recommendation, same_but, what_changes
from linkscope.model.break_even import PAGEABLE, Uses, choices
from linkscope.model.curves import Path, path_of
from linkscope.model.rounds import Spreads, rounds_of
from linkscope.runfile import Point
from linkscope.stats import Interval, geometric_mean, median, ratio_interval

LEVEL = 0.95  # of all intervals of a run simultaneously (Bonferroni)
LEAST_GAIN = 0.05  # smaller gains are not worth a change
TYPICAL = (1 << 20, 64 << 20)  # sizes whose median speed-up ranks a recommendation


@dataclass(frozen=True)
class Gain:
    """One point and its recommended alternative: the speed-up (ratio of times) and its interval."""

    current: Point
    recommended: Point
    change: str  # what the alternative changes: 'pinned', 'threads 8'
    ratio: float
    interval: Interval

    @property
    def is_worthwhile(self) -> bool:
        """Whether the whole interval is a gain of 5 % or more."""
        return self.interval.low >= 1 + LEAST_GAIN

    @property
    def path(self) -> Path:
        """The path of both points."""
        return path_of(self.current)


@dataclass(frozen=True)
class Advice:
    """A recommendation with everything that was compared.

    `paid_after`: the number of transfers after which the best gain pays for its memory; None if unknown.
    """

    recommendation: Recommendation
    compared: tuple[Gain, ...]
    paid_after: Uses | None = None

    @property
    def gains(self) -> list[Gain]:
        """The worthwhile gains, the most certain first."""
        return sorted((gain for gain in self.compared if gain.is_worthwhile), key=lambda gain: -gain.interval.low)

    @property
    def is_typical(self) -> bool:
        """Whether points from 1 to 64 MiB were compared."""
        return any(map(_has_typical_size, self.compared))

    @property
    def typical_gain(self) -> float:
        """The median speed-up over all paths and the sizes from 1 to 64 MiB; over all sizes if none of these exist."""
        ratios = [gain.ratio for gain in self.compared if _has_typical_size(gain) or not self.is_typical]
        return median(ratios)

    @property
    def helpful_sizes(self) -> list[int]:
        """The sizes with a worthwhile gain at which the median path gains 5 % or more."""
        ratios: dict[int, list[float]] = {}
        for gain in self.compared:
            ratios.setdefault(gain.current.bytes, []).append(gain.ratio)
        sizes = sorted({gain.current.bytes for gain in self.gains})
        return [size for size in sizes if median(ratios[size]) >= 1 + LEAST_GAIN]

    @property
    def is_general(self) -> bool:
        """Whether the median path gains at some size. A gain of a few paths only is no recommendation."""
        return bool(self.helpful_sizes)

    @property
    def is_typically_worthwhile(self) -> bool:
        """Whether the typical gain is worth a change; otherwise only some sizes gain."""
        return self.typical_gain >= 1 + LEAST_GAIN

    @property
    def main_gain(self) -> float:
        """The typical gain if it is worth a change; otherwise the median speed-up at the sizes that gain."""
        if self.is_typically_worthwhile or not self.is_general:
            return self.typical_gain
        return median([gain.ratio for gain in self.compared if gain.current.bytes in self.helpful_sizes])

    @property
    def sizes(self) -> tuple[int, int]:
        """The smallest and the largest size with a worthwhile gain; (0, 0) without one."""
        found = [gain.current.bytes for gain in self.gains] or [0]
        return min(found), max(found)

    @property
    def paths(self) -> list[Path]:
        """The paths with a worthwhile gain at one size or more."""
        return sorted({gain.path for gain in self.gains})

    def by_size(self) -> list[tuple[int, float]]:
        """The median speed-up at every size, over the paths with a worthwhile gain."""
        paths = set(self.paths)
        ordered = sorted((gain for gain in self.compared if gain.path in paths), key=lambda gain: gain.current.bytes)
        groups = itertools.groupby(ordered, lambda gain: gain.current.bytes)
        return [(size, median([gain.ratio for gain in of_size])) for size, of_size in groups]


def advice(points: Iterable[Point]) -> list[Advice]:
    """Every recommendation of which the run measured both practices: general ones first, by their main gain."""
    everything = list(points)
    listed = [point for point in everything if rounds_of(point)]
    pairs = {one.name: _pairs(one, listed) for one in RECOMMENDATIONS}
    count = sum(map(len, pairs.values()))
    level = 1 - (1 - LEVEL) / max(count, 1)
    spreads = Spreads(listed)
    found = []
    for one in RECOMMENDATIONS:
        gains = [gain for both in pairs[one.name] if (gain := _gain(one, *both, spreads, level))]
        if gains:
            best = _best_each(gains)
            found.append(Advice(one, tuple(best), _paid_after(one, best, everything)))
    return sorted(found, key=lambda one: (not one.is_general, -one.main_gain))


def worthwhile(points: Iterable[Point]) -> list[Advice]:
    """The recommendations with a worthwhile gain on the median path, the largest main gain first."""
    return [one for one in advice(points) if one.is_general]


def untried(found: Sequence[Advice]) -> list[Recommendation]:
    """The recommendations of which the run did not measure both practices."""
    names = {one.recommendation.name for one in found}
    return [one for one in RECOMMENDATIONS if one.name not in names]


def _has_typical_size(gain: Gain) -> bool:
    return TYPICAL[0] <= gain.current.bytes <= TYPICAL[1]


def _pairs(recommendation: Recommendation, points: Sequence[Point]) -> list[tuple[Point, Point]]:
    """Pairs of points that are equal except for the fields that the recommendation changes."""
    groups: dict[object, tuple[list[Point], list[Point]]] = {}
    for point in points:
        is_current, is_recommended = recommendation.is_current(point), recommendation.is_recommended(point)
        if is_current or is_recommended:
            current, recommended = groups.setdefault(same_but(point, recommendation.free), ([], []))
            if is_current:
                current.append(point)
            if is_recommended:
                recommended.append(point)
    return [pair for both in groups.values() for pair in itertools.product(*both) if pair[0].id != pair[1].id]


def _gain(
    recommendation: Recommendation, current: Point, recommended: Point, spreads: Spreads, level: float
) -> Gain | None:
    before, after = rounds_of(recommended), rounds_of(current)
    pooled = max(filter(None, (spreads.of(current), spreads.of(recommended))), default=None)
    interval = ratio_interval(before, after, alike=pooled, level=level)
    if interval is None:
        return None
    ratio = geometric_mean(after) / geometric_mean(before)
    return Gain(current, recommended, what_changes(current, recommended, recommendation.free), ratio, interval)


def _best_each(gains: Sequence[Gain]) -> list[Gain]:
    """The best alternative of every point."""
    best: dict[str, Gain] = {}
    for gain in gains:
        if gain.current.id not in best or gain.ratio > best[gain.current.id].ratio:
            best[gain.current.id] = gain
    return list(best.values())


def _paid_after(recommendation: Recommendation, gains: Sequence[Gain], points: Sequence[Point]) -> Uses | None:
    """The number of transfers after which the best gain of pinning pays off; None if the run lacks the cost of the
    memory."""
    best = max((gain for gain in gains if gain.is_worthwhile), key=lambda gain: gain.interval.low, default=None)
    if best is None or recommendation.name != "pin":
        return None
    for choice in choices(points):
        if (choice.path, choice.bytes, choice.name) == (best.path, best.current.bytes, best.change):
            return next((one.uses for one in choice.against if one.than == PAGEABLE), None)
    return None
