"""Changes and drifts over many runs of one machine.

A change point splits the runs of a point in two parts so that the interval of their ratio lies wholly beyond the
margin. The split that explains most is taken, and then each part is searched again (binary segmentation: Scott and
Knott, Biometrics 30, 1974).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from linkscope.compare.verdict import LEVEL, MARGIN, verdict_of
from linkscope.model.rounds import rounds_of
from linkscope.runfile import Point, Run
from linkscope.stats import Interval, geometric_mean, log_variance, ratio_interval, trend_chance

FEWEST = 3  # least number of runs of a history


@dataclass(frozen=True)
class Change:
    """A change of a point: slower or faster from run `at` (0 is the first), or a drift, with `at` 0.

    `ratio` is of times: after / before, or for a drift the last run over the first.
    """

    point: Point
    kind: Literal["change", "drift"]
    at: int
    ratio: float
    interval: Interval | None


def changes(runs: Sequence[Run], margin: float = MARGIN) -> list[Change]:
    """The changes of all points that every run measured, in the order of the first run; runs are in the order of
    time."""
    by_id = [{point.id: point for point in run.points} for run in runs]
    series: list[tuple[Point, list[Sequence[float]]]] = []
    for point in runs[0].points:
        of_all = [rounds_of(found[point.id]) if point.id in found else () for found in by_id]
        if all(of_all):
            series.append((point, of_all))
    chance = (1 - LEVEL) / max(1, len(series))
    found: list[Change] = []
    for point, rounds in series:
        steps = _steps(rounds, 0, 1 - chance / (len(runs) - 1), margin)
        found += [Change(point, "change", at, ratio, interval) for at, ratio, interval in steps]
        if not steps:
            found += _drift(point, rounds, chance, margin)
    return found


def _steps(
    rounds: Sequence[Sequence[float]], start: int, level: float, margin: float
) -> list[tuple[int, float, Interval]]:
    splits = []
    for at in range(1, len(rounds)):
        before, after = (list(itertools.chain(*side)) for side in (rounds[:at], rounds[at:]))
        interval = ratio_interval(before, after, alike=_within(rounds), level=level)
        if interval and verdict_of(interval, margin) in ("slower", "faster"):
            ratio = geometric_mean(after) / geometric_mean(before)
            width = math.log(interval.high / interval.low)
            certainty = abs(math.log(ratio)) / width if width else math.inf  # equal rounds have no width
            splits.append((certainty, at, ratio, interval))
    if not splits:
        return []
    _, at, ratio, interval = max(splits)
    earlier, later = _steps(rounds[:at], start, level, margin), _steps(rounds[at:], start + at, level, margin)
    return [*earlier, (start + at, ratio, interval), *later]


def _within(rounds: Sequence[Sequence[float]]) -> float | None:
    """The mean variance of logarithms within runs."""
    variances = [log_variance(one) for one in rounds if len(one) > 1]
    return sum(variances) / len(variances) if variances else None


def _drift(point: Point, rounds: Sequence[Sequence[float]], chance: float, margin: float) -> list[Change]:
    means = [geometric_mean(one) for one in rounds]
    ratio = means[-1] / means[0]
    if max(ratio, 1 / ratio) <= 1 + margin or trend_chance(means) > chance:
        return []
    return [Change(point, "drift", 0, ratio, None)]
