"""A race of candidates whose times scatter: laps measure all that are left, and a lap ends the race of those that are
certainly slower.

The differences within a lap are compared, so that drift of the machine does not count. This is a race as in Maron and
Moore (1994) with paired differences and levels that hold over all laps.
"""

import math
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from linkscope.stats import Interval, median, student_interval
from linkscope.stats.ratios import student_quantile

Candidate = TypeVar("Candidate", bound=Hashable)

LEVEL = 0.05  # chance that the fastest candidate ever leaves the race
MARGIN = 0.02  # candidates that differ by less are alike
_LEAST_LAPS = 3
_PRIOR_FREEDOM = 4  # laps that the scatter of all candidates is worth for that of one


@dataclass(frozen=True)
class Winner(Generic[Candidate]):
    """The result of a race. `seconds`: the median time of every candidate over its laps.

    `decided`: no candidate that was left can be faster by more than MARGIN. Otherwise the time was up.
    """

    best: Candidate
    seconds: dict[Candidate, float]
    laps: int
    decided: bool
    logs: dict[Candidate, list[float]]

    def against(self, other: Candidate, level: float = 0.95) -> Interval | None:
        """The ratio of the other's time to the winner's, with its interval over the laps that both ran; None for fewer
        than two laps."""
        return interval_of_ratio(self.logs[other], self.logs[self.best], level)


def interval_of_ratio(ours: Sequence[float], theirs: Sequence[float], level: float = 0.95) -> Interval | None:
    """The ratio of two candidates' times from the logarithms of their laps; None for fewer than two common laps."""
    return student_interval([math.exp(one) for one in _differences(ours, theirs)], level)


def race(
    candidates: Sequence[Candidate],
    lap: Callable[[Candidate], float],
    is_over: Callable[[], bool],
    *,
    most_laps: int = 40,
    seed: int = 1,
) -> Winner[Candidate]:
    """Finds the fastest candidate. `lap` measures one of them once, in seconds.

    `is_over` ends the race after a lap, when the time is up. Raises ValueError without a candidate.
    """
    if not candidates:
        raise ValueError("a race needs a candidate")
    order, shuffled = list(dict.fromkeys(candidates)), random.Random(seed)
    logs: dict[Candidate, list[float]] = {one: [] for one in order}
    left, laps, decided = list(order), 0, len(order) == 1
    while laps < most_laps:
        shuffled.shuffle(left)
        for one in left:
            logs[one].append(math.log(lap(one)))
        laps += 1
        if laps >= _LEAST_LAPS:
            left, decided = _left(left, logs, laps, len(order))
        if (decided and laps >= _LEAST_LAPS) or is_over():
            break
    best = min(left, key=lambda one: median(logs[one]))
    return Winner(best, {one: math.exp(median(values)) for one, values in logs.items()}, laps, decided, logs)


def _left(
    left: Sequence[Candidate], logs: dict[Candidate, list[float]], laps: int, count: int
) -> tuple[list[Candidate], bool]:
    """The candidates that stay, and whether the leader is as good as any of them."""
    leader = min(left, key=lambda one: median(logs[one]))
    differences = {one: _differences(logs[one], logs[leader]) for one in left if one != leader}
    if not differences:
        return list(left), True
    pooled = median([_variance(values) for values in differences.values()])
    tail = LEVEL / count / (laps * (laps + 1))  # the levels of all laps and candidates add up to LEVEL
    freedom = laps - 1 + _PRIOR_FREEDOM
    reach = student_quantile(tail, freedom)
    stay, decided = [leader], True
    for one, values in differences.items():
        variance = ((laps - 1) * _variance(values) + _PRIOR_FREEDOM * pooled) / freedom
        centre, width = sum(values) / laps, reach * math.sqrt(variance / laps)
        if centre - width <= 0:
            stay.append(one)
        if centre - width <= -math.log1p(MARGIN):
            decided = False
    return stay, decided


def _differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of the laps that both ran: the first ones, since who leaves does not return."""
    return [one - other for one, other in zip(ours, theirs, strict=False)]


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / max(len(values) - 1, 1)
