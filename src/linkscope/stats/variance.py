"""How much of the spread lies within rounds and how much between them.

Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM'13, section 6.2: S_i squared is the variance of the
means of level i, T_1^2 = S_1^2 and T_i^2 = S_i^2 - S_{i-1}^2 / r_{i-1}.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """Variances in the squared unit of the samples; `between` is 0 if chance explains the differences between
    rounds."""

    within: float
    between: float


def _variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum([(value - mean) ** 2 for value in values]) / (len(values) - 1)


def deviation(values: Sequence[float]) -> float:
    """Standard deviation of two values or more, in their unit."""
    return math.sqrt(_variance(values))


def variance_split(rounds: Sequence[Sequence[float]]) -> Split | None:
    """The split over rounds of samples; None for fewer than two rounds, or where no round has two samples.

    Rounds may differ in length: their mean reciprocal length stands for 1 / r.
    """
    repeated = [samples for samples in rounds if len(samples) > 1]
    if len(rounds) < 2 or not repeated:
        return None
    freedom = sum(len(samples) - 1 for samples in repeated)
    within = sum([_variance(samples) * (len(samples) - 1) for samples in repeated]) / freedom
    of_means = _variance([sum(samples) / len(samples) for samples in rounds])
    reciprocal = sum(1 / len(samples) for samples in rounds) / len(rounds)
    return Split(within, max(0.0, of_means - within * reciprocal))
