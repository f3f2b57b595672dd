"""Changes and drifts over many runs of one machine.

A change point splits the runs of a point in two parts so that the interval of their ratio lies wholly beyond the
margin. The split that explains most is taken, and then each part is searched again (binary segmentation: Scott and
Knott, Biometrics 30, 1974).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from linkscope.compare.verdict import JUDGED, MARGINS, noise_of, one_method
from linkscope.model.rounds import rounds_of
from linkscope.runfile import Point, Run, family_of, size_class
from linkscope.stats import Interval, geometric_mean, trend_chance
from linkscope.stats.pooling import Noise, ratio

FEWEST = 3  # least number of runs of a history
LEVEL = 0.95  # that all intervals hold together


@dataclass(frozen=True)
class Change:
    """A change of a point: slower or faster from run `at` (0 is the first), or a drift, with `at` 0.

    `ratio` is of times: after / before, or for a drift the last run over the first. `judged`: whether a change of 10 %
    would have been detected.
    """

    point: Point
    kind: Literal["change", "drift"]
    at: int
    ratio: float
    interval: Interval | None
    judged: bool = True


def changes(runs: Sequence[Run], margin: float | None = None) -> list[Change]:
    """The changes of all points that every run measured by one method, in the order of the first run; runs are in the
    order of time.

    `margin` replaces the margins by size class (verdict.py).
    """
    by_id = [{point.id: point for point in run.points} for run in runs]
    series: list[tuple[Point, list[Sequence[float]]]] = []
    alike = {name for name in {point.benchmark for point in runs[0].points} if one_method(runs, name)}
    for point in runs[0].points:
        if point.benchmark not in alike:
            continue
        of_all = [rounds_of(found[point.id]) if point.id in found else () for found in by_id]
        if all(of_all):
            series.append((point, of_all))
    noise = noise_of(series)
    chance = (1 - LEVEL) / max(1, len(series))
    found: list[Change] = []
    for point, rounds in series:
        least = MARGINS[size_class(point.bytes)] if margin is None else margin
        search = _Search(noise[family_of(point)], 1 - chance / (len(runs) - 1), least)
        steps = search.steps(rounds, 0)
        found += [Change(point, "change", *step) for step in steps]
        if not steps and (drift := _drift_ratio(rounds, chance, least)):
            found.append(Change(point, "drift", 0, drift, None, search.judges(rounds)))
    return found


@dataclass(frozen=True)
class _Search:
    """A search for steps: the noise of the family, the level of every interval, and the margin."""

    noise: Noise
    level: float
    margin: float

    def steps(self, rounds: Sequence[Sequence[float]], start: int) -> list[tuple[int, float, Interval, bool]]:
        """The runs at which the point changed, each with the ratio, its interval, and whether it is judged."""
        splits = []
        for at in range(1, len(rounds)):
            of = ratio(rounds[:at], rounds[at:], self.noise)
            interval = of.interval(self.level) if of else None
            if of and interval and (interval.low > 1 + self.margin or interval.high < 1 / (1 + self.margin)):
                error = of.error(self.level)
                certainty = abs(of.log_ratio) / error if error else math.inf
                splits.append((certainty, at, of.value, interval, of.detectable(self.level) <= JUDGED))
        if not splits:
            return []
        _, at, value, interval, judged = max(splits)
        earlier, later = self.steps(rounds[:at], start), self.steps(rounds[at:], start + at)
        return [*earlier, (start + at, value, interval, judged), *later]

    def judges(self, rounds: Sequence[Sequence[float]]) -> bool:
        """Whether a change of 10 % between the earlier and the later half of the runs is detectable."""
        of = ratio(rounds[: len(rounds) // 2], rounds[len(rounds) // 2 :], self.noise)
        return of is not None and of.detectable(self.level) <= JUDGED


def _drift_ratio(rounds: Sequence[Sequence[float]], chance: float, margin: float) -> float | None:
    """The last run over the first, if the runs drift; None otherwise."""
    means = [geometric_mean(one) for one in rounds]
    of_ends = means[-1] / means[0]
    if max(of_ends, 1 / of_ends) <= 1 + margin or trend_chance(means) > chance:
        return None
    return of_ends
