"""The interval of a point, and when it has enough rounds, in plans whose points may stop early.

Every look that may end the sampling reduces the coverage of an interval (Wald, Sequential Analysis, 1947). There are
five looks, and the last two require more than 95 %. tools/interval_proofs.py draws the resulting coverage
(docs/notes/interval-evidence.md).
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal

import numpy as np

from linkscope.stats.intervals import EARLY_ROUNDS, Interval, median, median_interval
from linkscope.stats.pooling import SIGMAS, Noise, scatter, spread_quantile

CiMethod = Literal["order_statistics", "pooled", "next_round"]

LOOKS = (EARLY_ROUNDS, 6, 12, 22, 36)  # total rounds
_LATE, _LATE_CONFIDENCE = 12, 0.98
_LEVEL, _DRAWN_AT = 0.95, 0.96  # the difference covers the error of the estimated noise
# The standard error of n rounds, for noise with a deviation of 1. From six rounds up it is that of the median of normal
# values (David and Nagaraja, Order Statistics, 2003), for few rounds that of the mean. It grows from one to the other.
_ERRORS = {2: 0.7071, 3: 0.5774, 4: 0.525, 5: 0.492, 6: 0.4634, 7: 0.4587, 8: 0.4101, 9: 0.4075, 10: 0.3719, 11: 0.3704}
_NORMAL_REACH = NormalDist().inv_cdf((1 + _DRAWN_AT) / 2)
_LARGE = 1.2533  # the same times the root of n, for many values
_DOUBT = 1.25  # the effect of more rounds is itself estimated from few


def rounds_interval(rounds: Sequence[float], noise: Noise | None) -> tuple[Interval, CiMethod] | None:
    """The interval of the median of all rounds, and its method. None for fewer than two rounds, for unknown noise
    with fewer than six, and if few rounds include one that is not positive.

    Noise without modes gives a pooled interval around the mean. With more rounds it becomes as wide as one around the
    median, because the mean of skewed noise is not its median. With modes, fewer than six rounds have the interval of
    a further round, and others order statistics. So do twelve rounds in any case. An interval always contains the
    median, the value that linkscope states.
    """
    count = len(rounds)
    pooled = noise is not None and noise.regular and count < _LATE and min(rounds, default=0.0) > 0
    if count >= LOOKS[1] and not pooled:
        interval = median_interval(rounds, _confidence(count))
        return (interval, "order_statistics") if interval else None
    seen = scatter(rounds)
    if noise is None or seen is None:
        return None
    logs, weights = [math.log(one) for one in rounds], noise.posterior([seen])
    if not noise.regular:
        reach = max(spread_quantile(of, 1 + 1 / count, _DRAWN_AT) for of in (weights, noise.prior()))
        return _around(sum(logs) / count, reach, min(logs), max(logs)), "next_round"
    reach = spread_quantile(weights, _error(count) ** 2, _DRAWN_AT)
    return _around(sum(logs) / count, reach, median(logs), median(logs)), "pooled"


def half_width_after(medians: Sequence[float], half_width: float, method: CiMethod, rounds: int) -> float:
    """The expected half-width of the interval after `rounds` rounds, as a fraction of the median.

    `half_width` and `method` are those of the interval of the present rounds. With few rounds it shows how the family
    scatters. From six rounds up, the order statistics of `rounds` values are placed among the known ones.
    """
    count = len(medians)
    if count < LOOKS[1]:
        error = math.sqrt(1 + 1 / count) if method == "next_round" else _error(count)
        return half_width / error * _error(rounds)
    ranks = median_interval(range(1, rounds + 1), _confidence(rounds))
    assert ranks is not None
    ordered = sorted(medians)
    low, high = (_between(ordered, rank / (rounds + 1) * (count + 1) - 1) for rank in (ranks.low, ranks.high))
    return (high - low) / 2 / median(medians)


def next_look(medians: Sequence[float], half_width: float, method: CiMethod, precision: float) -> int | None:
    """The number of rounds after which to look again; None where even the last look cannot reach the precision.

    Below six rounds of regular noise, the number that is expected to reach it. Otherwise the next look, or the one
    after that where the next is too early. `half_width` and `method` as in half_width_after().
    """
    later = [look for look in LOOKS if look > len(medians)]
    if not later or half_width_after(medians, half_width, method, later[-1]) > _DOUBT * precision:
        return None
    if len(medians) < LOOKS[1] and method == "pooled":
        few = range(len(medians) + 1, LOOKS[1])
        return next((at for at in few if half_width_after(medians, half_width, method, at) <= precision), later[0])
    early = len(medians) >= LOOKS[1] and half_width_after(medians, half_width, method, later[0]) > _DOUBT * precision
    return later[1] if early and len(later) > 1 else later[0]


def expected_rounds(noise: Noise, rounds: Sequence[float], precision: float, most: int) -> float:
    """The number of rounds, at most `most`, that a point of the family is expected to need to reach the precision.

    `rounds`: the fewer than three rounds that the point has. Two of them count as evidence; before, the family alone
    shows how the point may scatter. A point that cannot reach the precision stops after the first interval.
    """
    first = EARLY_ROUNDS if noise.regular else LOOKS[1]
    seen = scatter(rounds)
    weights = noise.prior() if seen is None else noise.posterior([seen])
    needed = np.full(len(SIGMAS), float(first))
    unmet = np.full(len(SIGMAS), True)
    for count in range(first, min(most, LOOKS[2]) + 1):
        if count <= LOOKS[1] or count in LOOKS:
            meets = unmet & (_NORMAL_REACH * SIGMAS * _error(count) <= precision)
            needed[meets] = count
            unmet &= ~meets
    return float(weights @ needed)


def _error(rounds: int) -> float:
    """The standard error that the interval of regular noise assumes, for a standard deviation of 1."""
    return _ERRORS[rounds] if rounds in _ERRORS else _LARGE / math.sqrt(rounds)


def _around(centre: float, reach: float, low: float, high: float) -> Interval:
    """The interval of logarithms, extended to contain `low` and `high`."""
    return Interval(math.exp(min(centre - reach, low)), math.exp(max(centre + reach, high)), _LEVEL)


def _confidence(rounds: int) -> float:
    return _LATE_CONFIDENCE if rounds > _LATE else 0.95


def _between(ordered: Sequence[float], at: float) -> float:
    """The interpolated value at a place in the order; the outermost value beyond either end."""
    place = min(max(at, 0.0), len(ordered) - 1.0)
    below = min(int(place), len(ordered) - 2)
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])
