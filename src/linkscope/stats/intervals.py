"""The median and its interval by order statistics.

Hoefler and Belli, Scientific Benchmarking of Parallel Computing Systems, SC'15, rule 5 and section 3.1.3; the exact
ranks are those of Hahn and Meeker, Statistical Intervals, 1991, section 5.2.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`, in the unit of the samples; `level` is the exact probability that it covers the median."""

    low: float
    high: float
    level: float

    def half_width(self, centre: float) -> float:
        """Half of the interval as a fraction of `centre`."""
        return (self.high - self.low) / 2 / centre if centre > 0 else math.inf


def median(samples: Sequence[float]) -> float:
    """The median. Plain Python, which is faster than numpy for few samples."""
    ordered = sorted(samples)
    count = len(ordered)
    middle = count // 2
    return ordered[middle] if count % 2 else (ordered[middle - 1] + ordered[middle]) / 2


@functools.lru_cache(maxsize=1024)
def _ranks(count: int, confidence: float) -> tuple[int, float] | None:
    """The rank l of the interval [x(l), x(n+1-l)] and its level; None if even all samples cover too little."""
    tail = (1 - confidence) / 2
    below = 0.0  # BinomCDF(rank - 1; n, 1/2)
    rank = 0
    for successes in range(count // 2):
        more = below + math.comb(count, successes) / 2**count
        if more > tail:
            break
        below, rank = more, successes + 1
    return (rank, 1 - 2 * below) if rank else None


def median_interval(samples: Sequence[float], confidence: float = 0.95) -> Interval | None:
    """The interval of the median of the distribution, whatever its shape; None for fewer than six samples."""
    ranks = _ranks(len(samples), confidence)
    if ranks is None:
        return None
    rank, level = ranks
    ordered = sorted(samples)
    return Interval(ordered[rank - 1], ordered[-rank], level)


EARLY_ROUNDS = 3  # that may be enough


def more_rounds(count: int, confidence: float = 0.95) -> int:
    """The next number of samples at which the interval excludes one more sample at each end, and so may become
    narrower."""
    now = _ranks(count, confidence)
    larger = count + 1
    while (then := _ranks(larger, confidence)) is None or (now is not None and then[0] == now[0]):
        larger += 1
    return larger
