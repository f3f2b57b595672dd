"""When a point has enough rounds, in plans whose points share a budget: few looks at its interval.

Every look that may end the sampling reduces the coverage of the interval (Wald, Sequential Analysis, 1947). There are
five looks, and the last two require more than 95 %. Another look after five rounds is only for points whose three
rounds disagree although those of most similar points agree: noise is small there except for single rounds.
tools/planner_proofs.py draws the resulting coverage (docs/notes/planner-evidence.md).
"""

import math
from collections.abc import Sequence

from linkscope.stats.intervals import EARLY_ROUNDS, Interval, median, median_interval
from linkscope.stats.ratios import student_interval
from linkscope.stats.variance import deviation

LOOKS = (EARLY_ROUNDS, 6, 12, 22, 36)  # total rounds
DISAGREEING_ROUNDS = 5  # if one of three rounds disagrees while similar points agree, four of five rounds decide
# Noise with few values lets three rounds agree by chance, but then the rounds of similar points rarely agree.
_MOST, _LEAST_ALIKE = 0.5, 3
_LATE, _LATE_CONFIDENCE = 12, 0.98
_AS_WIDE = 0.999  # of the target precision
_WORST = 0.87  # level of agreeing rounds for a point with two modes among calm ones
# Half of the 95 % interval of a median of n normal values, in deviations, is this number over the root of n.
HALF_WIDTH = 2.456
_DOUBT = 1.25  # the effect of more rounds is itself estimated from few


def agree(medians: Sequence[float], precision: float) -> bool:
    """Whether the first three rounds lie within `precision` of each other."""
    first = medians[:EARLY_ROUNDS]
    return len(first) == EARLY_ROUNDS and max(first) - min(first) <= precision * median(first)


def mostly(agreed: Sequence[bool]) -> bool:
    """Whether the three rounds of enough similar points agree, so that agreement is not chance."""
    return len(agreed) >= _LEAST_ALIKE and sum(agreed) >= _MOST * len(agreed)


def rounds_interval(medians: Sequence[float], precision: float) -> Interval | None:
    """The interval of the median of all rounds; None for fewer than two, or if few rounds include one that is not
    positive.

    Three rounds that agree, or four of five: as wide as the target. Six or more: order statistics. Otherwise Student's
    t of the logarithms.
    """
    count = len(medians)
    if count >= LOOKS[1]:
        return median_interval(medians, _confidence(count))
    if (count == EARLY_ROUNDS and agree(medians, precision)) or (
        count == DISAGREEING_ROUNDS and _but_one(medians, precision)
    ):
        centre = median(medians)
        return Interval(centre * (1 - _AS_WIDE * precision), centre * (1 + _AS_WIDE * precision), _WORST)
    return student_interval(medians)


def _but_one(medians: Sequence[float], precision: float) -> bool:
    """Whether all rounds except one at an end lie within `precision` of each other."""
    ordered = sorted(medians)
    return min(ordered[-2] - ordered[0], ordered[-1] - ordered[1]) <= precision * median(medians)


def half_width_after(medians: Sequence[float], rounds: int) -> float:
    """The expected half-width of the interval after `rounds` rounds, as a fraction of the median, from at least two
    rounds.

    From six rounds up, the order statistics of `rounds` values are placed among the known ones. With fewer, the values
    count as normal.
    """
    count, centre = len(medians), median(medians)
    if count < LOOKS[1]:
        return HALF_WIDTH * deviation(medians) / math.sqrt(rounds) / centre
    ranks = median_interval(range(1, rounds + 1), _confidence(rounds))
    assert ranks is not None
    ordered = sorted(medians)
    low, high = (_between(ordered, rank / (rounds + 1) * (count + 1) - 1) for rank in (ranks.low, ranks.high))
    return (high - low) / 2 / centre


def next_look(medians: Sequence[float], precision: float) -> int | None:
    """The number of rounds after which to look again: the next, or the one after that where the next is too early.

    None after the last look, and where the last look cannot reach the precision. Three rounds are too few to skip a
    look.
    """
    later = [look for look in LOOKS if look > len(medians)]
    if not later or (len(medians) > 1 and half_width_after(medians, later[-1]) > _DOUBT * precision):
        return None
    early = len(medians) >= LOOKS[1] and half_width_after(medians, later[0]) > _DOUBT * precision
    return later[1] if early and len(later) > 1 else later[0]


def _confidence(rounds: int) -> float:
    return _LATE_CONFIDENCE if rounds > _LATE else 0.95


def _between(ordered: Sequence[float], at: float) -> float:
    """The interpolated value at a place in the order; the outermost value beyond either end."""
    place = min(max(at, 0.0), len(ordered) - 1.0)
    below = min(int(place), len(ordered) - 2)
    return ordered[below] + (place - below) * (ordered[below + 1] - ordered[below])
