"""How two sets of round medians differ: the interval of their ratio, narrow enough for thousands of them at once.

Order statistics of six rounds end at 96.9 %; whoever asks which of a thousand points have changed needs 99.995 %.
So the rounds' logarithms are taken as normal here, and their variance is steadied by that of points of the same kind
(Smyth, Linear Models and Empirical Bayes Methods, 2004, section 4): of a thousand sets of six, some agree by chance far
better than they should. Means of the logarithms and not medians: where processes fall into two modes, medians of six
jump from one mode to the other.
"""

import functools
import math
from collections.abc import Sequence

from linkscope.stats.intervals import Interval
from linkscope.stats.variance import deviation

_LARGEST_LOG = 700.0  # exp() of more overflows
PRIOR_FREEDOM = 12  # what the points of the same kind weigh: as much as twelve further rounds


def geometric_mean(samples: Sequence[float]) -> float:
    """Of positive samples, in their unit."""
    return math.exp(sum([math.log(sample) for sample in samples]) / len(samples))


def log_variance(samples: Sequence[float]) -> float:
    """Variance of the logarithms of two positive samples or more: about the square of their relative deviation."""
    return deviation([math.log(sample) for sample in samples]) ** 2


def ratio_interval(
    before: Sequence[float], after: Sequence[float], *, alike: float | None, level: float
) -> Interval | None:
    """The interval of the ratio of geometric means, after / before; None where both sides have but one sample, and
    where few samples and a high level say nothing: where an end of it is no number that a computer holds.

    `alike` is the mean `log_variance` of points of the same kind, None where there are none. Both sides are taken to
    spread alike. tests/python/test_ratios.py draws five shapes of noise: of intervals of 95 %, 99 % and 99.9 % no more
    miss than 1.1 times as many as should.
    """
    variances = [(len(side) - 1, log_variance(side)) for side in (before, after) if len(side) > 1]
    if alike is not None:
        variances.append((PRIOR_FREEDOM, alike))
    freedom = sum(weight for weight, _ in variances)
    if not freedom:
        return None
    pooled = sum(weight * variance for weight, variance in variances) / freedom
    error = math.sqrt(pooled * (1 / len(before) + 1 / len(after)))
    centre = math.log(geometric_mean(after) / geometric_mean(before))
    return _interval(centre, student_quantile((1 - level) / 2, freedom) * error, level)


def student_interval(samples: Sequence[float], level: float = 0.95) -> Interval | None:
    """Of few samples whose logarithms are taken as normal, by Student's t; None for fewer than two, and where one is
    not positive: a slope that the noise of a busy machine turned round has no logarithm."""
    if len(samples) < 2 or min(samples) <= 0:
        return None
    centre = math.log(geometric_mean(samples))
    error = math.sqrt(log_variance(samples) / len(samples))
    return _interval(centre, student_quantile((1 - level) / 2, len(samples) - 1) * error, level)


def _interval(centre: float, reach: float, level: float) -> Interval | None:
    """Of logarithms."""
    if abs(centre) + reach > _LARGEST_LOG:
        return None
    return Interval(math.exp(centre - reach), math.exp(centre + reach), level)


@functools.lru_cache(maxsize=1024)
def student_quantile(tail: float, freedom: int) -> float:
    """What Student's t exceeds with probability `tail` (0 to 0.5), by bisection."""
    low, high = 0.0, 1.0
    while student_tail(high, freedom) > tail:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student_tail(middle, freedom) > tail else (low, middle)
    return high


def student_tail(t: float, freedom: int) -> float:
    """The probability that Student's t exceeds `t` >= 0: finite sums (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine = math.cos(angle)
    term = cosine if freedom % 2 else 1.0
    total = term if freedom > 1 or not freedom % 2 else 0.0
    for k in range(3 if freedom % 2 else 2, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    within = 2 / math.pi * (angle + math.sin(angle) * total) if freedom % 2 else math.sin(angle) * total
    return (1 - within) / 2
