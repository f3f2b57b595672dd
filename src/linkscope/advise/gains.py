"""What each habit costs on this machine: times of both ways held against each other, all intervals together at 95 %."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.advise.recommendations import RECOMMENDATIONS, Recommendation, instead, same_but
from linkscope.model.break_even import PAGEABLE, Uses, choices
from linkscope.model.curves import Path, path_of
from linkscope.model.rounds import Spreads, rounds_of
from linkscope.runfile import Point
from linkscope.stats import Interval, geometric_mean, median, ratio_interval

LEVEL = 0.95  # that all intervals hold together (Bonferroni)
WORTH = 0.05  # what is shown to gain less is not worth a change


@dataclass(frozen=True)
class Gain:
    """One point done otherwise: `ratio` is how many times as fast it is, with its interval."""

    now: Point
    then: Point
    instead: str
    ratio: float
    interval: Interval

    @property
    def worth(self) -> bool:
        """Whether the whole interval is."""
        return self.interval.low >= 1 + WORTH

    @property
    def path(self) -> Path:
        """Where the habit was measured."""
        return path_of(self.now)


@dataclass(frozen=True)
class Advice:
    """A habit with all that was compared. `paid_after`: for how many transfers the best gain has paid for itself."""

    habit: Recommendation
    compared: tuple[Gain, ...]
    paid_after: Uses | None = None

    @property
    def gains(self) -> list[Gain]:
        """What is worth it, the most certain gain first."""
        return sorted((gain for gain in self.compared if gain.worth), key=lambda gain: -gain.interval.low)

    @property
    def sizes(self) -> tuple[int, int]:
        """The least and the largest size at which it is worth it, (0, 0) where there is none."""
        found = [gain.now.bytes for gain in self.gains] or [0]
        return min(found), max(found)

    @property
    def paths(self) -> list[Path]:
        """On which it is worth it, at one size or more."""
        return sorted({gain.path for gain in self.gains})

    def by_size(self) -> list[tuple[int, float]]:
        """The middle ratio at every size, over the paths on which it is worth it."""
        worth = set(self.paths)
        ordered = sorted((gain for gain in self.compared if gain.path in worth), key=lambda gain: gain.now.bytes)
        groups = itertools.groupby(ordered, lambda gain: gain.now.bytes)
        return [(size, median([gain.ratio for gain in of_size])) for size, of_size in groups]


def advice(points: Iterable[Point]) -> list[Advice]:
    """Every habit that was measured both ways; what gains most first, what gains nothing last."""
    everything = list(points)
    listed = [point for point in everything if rounds_of(point)]
    pairs = {habit.name: _pairs(habit, listed) for habit in RECOMMENDATIONS}
    count = sum(map(len, pairs.values()))
    level = 1 - (1 - LEVEL) / max(count, 1)
    spreads = Spreads(listed)
    found = []
    for habit in RECOMMENDATIONS:
        gains = [gain for now, then in pairs[habit.name] if (gain := _gain(habit, now, then, spreads, level))]
        if gains:
            best = _best_each(gains)
            found.append(Advice(habit, tuple(best), _paid_after(habit, best, everything)))
    return sorted(found, key=lambda one: -max((gain.interval.low for gain in one.gains), default=0.0))


def is_worthwhile(points: Iterable[Point]) -> list[Advice]:
    """Those of them that gain something."""
    return [one for one in advice(points) if one.gains]


def untried(found: Sequence[Advice]) -> list[Recommendation]:
    """The habits of which the run has not both ways."""
    told = {one.habit.name for one in found}
    return [habit for habit in RECOMMENDATIONS if habit.name not in told]


def _pairs(habit: Recommendation, points: Sequence[Point]) -> list[tuple[Point, Point]]:
    groups: dict[object, tuple[list[Point], list[Point]]] = {}
    for point in points:
        if habit.now(point) or habit.then(point):
            now, then = groups.setdefault(same_but(point, habit.free), ([], []))
            if habit.now(point):
                now.append(point)
            if habit.then(point):
                then.append(point)
    return [(one, other) for now, then in groups.values() for one in now for other in then if one.id != other.id]


def _gain(habit: Recommendation, now: Point, then: Point, spreads: Spreads, level: float) -> Gain | None:
    before, after = rounds_of(then), rounds_of(now)
    alike = max(filter(None, (spreads.of(now), spreads.of(then))), default=None)
    interval = ratio_interval(before, after, alike=alike, level=level)
    ratio = geometric_mean(after) / geometric_mean(before)
    return None if interval is None else Gain(now, then, instead(now, then, habit.free), ratio, interval)


def _best_each(gains: Sequence[Gain]) -> list[Gain]:
    """Of every point the best that could be done instead."""
    best: dict[str, Gain] = {}
    for gain in gains:
        if gain.now.id not in best or gain.ratio > best[gain.now.id].ratio:
            best[gain.now.id] = gain
    return list(best.values())


def _paid_after(habit: Recommendation, gains: Sequence[Gain], points: Sequence[Point]) -> Uses | None:
    """Of the best gain, where memory of another kind is what is done instead and what both cost was measured."""
    best = max((gain for gain in gains if gain.worth), key=lambda gain: gain.interval.low, default=None)
    if best is None or habit.name != "pin":
        return None
    for choice in choices(points):
        if (choice.path, choice.bytes, choice.name) == (best.path, best.now.bytes, best.instead):
            return next((one.uses for one in choice.against if one.than == PAGEABLE), None)
    return None
