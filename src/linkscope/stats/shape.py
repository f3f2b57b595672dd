"""The shape of a set of samples: its width, whether its median is steady, whether it has two modes."""

import itertools
import math
from collections.abc import Sequence

from linkscope.stats.intervals import median

_NORMAL = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
_MEDIAN_COST = 1.2533  # standard error of the median over that of the mean, sqrt(pi / 2)


def mad(samples: Sequence[float], centre: float | None = None) -> float:
    """The median absolute deviation from the median (or from `centre`), in the unit of the samples."""
    middle = median(samples) if centre is None else centre
    return median([abs(sample - middle) for sample in samples])


def median_error(samples: Sequence[float], centre: float | None = None) -> float:
    """The standard error of the median (or of `centre`) by the normal approximation; for planning only."""
    return _MEDIAN_COST * _NORMAL * mad(samples, centre) / math.sqrt(len(samples))


def steady(samples: Sequence[float], relative: float, absolute: float = 0.0) -> bool:
    """Whether the median of one round is known well enough that the differences between rounds dominate.

    True if its standard error is at most a quarter of the target, `relative` to the median or `absolute` in the unit of
    the samples, whichever is larger. For two samples, half of their distance is used; one sample is never steady.
    """
    if len(samples) < 2:
        return False
    middle = median(samples)
    error = median_error(samples, middle) if len(samples) > 2 else abs(samples[0] - samples[1]) / 2
    return error <= max(relative * abs(middle), absolute) / 4


def trend(rounds: Sequence[Sequence[float]]) -> float:
    """How clearly the samples rise (above 0) or fall (below 0) within each round, in standard deviations.

    Kendall's S summed over the rounds (Mann, Nonparametric tests against trend, 1945, variance without ties): about
    normal with mean 0 and deviation 1 without a trend. Differences between rounds do not count. 0 if no round has two
    samples.
    """
    score, variance = 0, 0.0
    for samples in rounds:
        count = len(samples)
        score += sum([(b > a) - (b < a) for a, b in itertools.combinations(samples, 2)])
        variance += count * (count - 1) * (2 * count + 5) / 18
    return score / math.sqrt(variance) if variance else 0.0


def bimodal(samples: Sequence[float], width: float = 5.0) -> tuple[float, float] | None:
    """Both modes (medians of the two sides) if the largest gap in the central 80 % exceeds `width` MADs; else None.

    The deviation is that within the two sides, since distant modes would hide in a common deviation. Fewer than 20
    samples show gaps by chance (one normal sample of 12 in 20), so they have no modes.
    """
    if len(samples) < 20:
        return None
    ordered = sorted(samples)
    first, last = len(ordered) // 10, len(ordered) - 1 - len(ordered) // 10
    gap, at = max((ordered[i + 1] - ordered[i], i + 1) for i in range(first, last))
    low, high = ordered[:at], ordered[at:]
    if min(len(low), len(high)) < 3:
        return None
    modes = median(low), median(high)
    deviation = median([abs(x - modes[0]) for x in low] + [abs(x - modes[1]) for x in high])
    return modes if gap > width * deviation and gap > 0 else None
