"""The cost of one method on one path over size: at most five segments of latency plus bytes over rate, and cliffs.

Segments are chosen by dynamic programming over the squared residuals of logarithms, with a penalty of 2 ln n for each
parameter: twice the Schwarz penalty, because a segment also starts where it fits best. With a smaller penalty straight
curves are divided by chance.

A cliff lies between two neighbouring sizes whose segments pass through different values: something changes there, such
as a driver's method, and sizes in between have no prediction.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from linkscope.model.curves import Estimate
from linkscope.stats.least_squares import Vector

MOST_SEGMENTS = 5
_CLIFF = 0.10  # difference of two segments where they meet, as a logarithm
_Z = 1.96
_ROUNDS = 4


@dataclass(frozen=True)
class Segment:
    """T(s) = `latency_s` + s / `rate` from `first` to `last` bytes; a rate of inf: the time does not grow.

    Intervals have 95 % confidence, for segments with more than two points.
    """

    first: int
    last: int
    latency_s: Estimate
    seconds_a_byte: Estimate

    @property
    def parameters(self) -> int:
        """Two for a line; one for a single size."""
        return 1 if self.first == self.last else 2

    @property
    def rate(self) -> float:
        """B/s."""
        return 1 / self.seconds_a_byte.value if self.seconds_a_byte.value > 0 else math.inf

    @property
    def half_bytes(self) -> float:
        """The size with half of the rate: latency times rate (Hockney's n1/2)."""
        return self.latency_s.value * self.rate if self.latency_s.value > 0 else 0.0

    def seconds(self, size: float) -> float:
        """Seconds at a size."""
        return self.latency_s.value + size * self.seconds_a_byte.value


@dataclass(frozen=True)
class Costs:
    """A whole curve. `cliffs` are pairs of sizes between which it jumps."""

    segments: tuple[Segment, ...]
    cliffs: tuple[tuple[int, int], ...]

    def seconds(self, size: int) -> float | None:
        """Seconds at a size; None outside the measured sizes and on a cliff."""
        if not self.segments[0].first <= size <= self.segments[-1].last:
            return None
        before: Segment | None = None
        for segment in self.segments:
            if segment.first <= size <= segment.last:
                return segment.seconds(size)
            if before and before.last < size < segment.first:
                if (before.last, segment.first) in self.cliffs:
                    return None
                return _between(before, segment, size)
            before = segment
        return None


def costs(sizes: Sequence[int], seconds: Sequence[float], sigmas: Sequence[float]) -> Costs:
    """The segments of points sorted by size. `sigmas` are the standard deviations of the logarithms of the times."""
    count = len(sizes)
    if count == 0 or count != len(seconds) or count != len(sigmas):
        raise ValueError("a curve needs at least one size, and a time and a deviation for each size")
    found = {
        (i, j): _line(sizes[i:j], seconds[i:j], sigmas[i:j]) for i in range(count) for j in range(i + 1, count + 1)
    }
    each = 2 * math.log(max(count, 2))
    best: dict[tuple[int, int], tuple[float, list[int]]] = {(0, 0): (0.0, [0])}
    for end in range(1, count + 1):
        for parts in range(1, MOST_SEGMENTS + 1):
            options = [
                (before[0] + found[start, end][1] + each * found[start, end][0].parameters, [*before[1], end])
                for start in range(end)
                if end - start > 1 or start == 0  # except for the smallest size, one point alone is not a line
                if (before := best.get((start, parts - 1))) is not None
            ]
            if options:
                best[end, parts] = min(options)
    _, breaks = min(best[count, parts] for parts in range(1, MOST_SEGMENTS + 1) if (count, parts) in best)
    segments = tuple(found[start, end][0] for start, end in itertools.pairwise(breaks))
    cliffs = [(a.last, b.first) for a, b in itertools.pairwise(segments) if _jumps(a, b)]
    return Costs(segments, tuple(cliffs))


def _between(one: Segment, other: Segment, size: int) -> float:
    """Seconds between two segments: along both up to their crossing, or from the end of one to the start of the
    other."""
    if (one.seconds(one.last) - other.seconds(one.last)) * (one.seconds(other.first) - other.seconds(other.first)) <= 0:
        both = one.seconds(size), other.seconds(size)
        return max(both) if one.seconds(one.last) >= other.seconds(one.last) else min(both)
    part = math.log(size / one.last) / math.log(other.first / one.last)
    ends = math.log(one.seconds(one.last)), math.log(other.seconds(other.first))
    return math.exp(ends[0] + part * (ends[1] - ends[0]))


def _jumps(one: Segment, other: Segment) -> bool:
    """Whether the two lines stay apart, on the same side, from one size to the other."""
    ends = [math.log(other.seconds(size) / one.seconds(size)) for size in (one.last, other.first)]
    return min(map(abs, ends)) > _CLIFF and ends[0] * ends[1] > 0


def _line(sizes: Sequence[int], seconds: Sequence[float], sigmas: Sequence[float]) -> tuple[Segment, float]:
    """Latency and time per byte, neither below 0, and the sum of squares."""
    size, time, sigma = (np.array(of, dtype=np.float64) for of in (sizes, seconds, sigmas))
    scale = float(size.max()) or 1.0
    part, predicted = size / scale, time
    latency, slope = 0.0, 0.0
    for _ in range(_ROUNDS):  # a residual of a logarithm is a relative residual, to first order
        latency, slope = _not_negative(part, time, 1 / (sigma**2 * time * predicted), len(sizes) > 1)
        predicted = np.maximum(latency + slope * part, 1e-15)
    residuals = np.log(predicted / time) / sigma
    cost = float(residuals @ residuals)
    known = _deviations(part, 1 / (sigma * predicted) ** 2, cost, (latency > 0, slope > 0))
    ends = [
        Estimate(value / unit, max(value - _Z * deviation, 0) / unit, (value + _Z * deviation) / unit)
        if math.isfinite(deviation)
        else Estimate(value / unit)
        for value, deviation, unit in zip((latency, slope), known, (1.0, scale), strict=True)
    ]
    return Segment(sizes[0], sizes[-1], ends[0], ends[1]), cost


def _not_negative(part: Vector, time: Vector, weight: Vector, sloped: bool) -> tuple[float, float]:
    """Both parameters of a weighted line, or the better one alone if a parameter would be negative."""
    w, wx, wxx, wt, wxt = (float(np.sum(weight * of)) for of in (1.0, part, part**2, time, part * time))
    determinant = w * wxx - wx**2
    if sloped and determinant > 1e-12 * w * wxx:
        latency, slope = (wxx * wt - wx * wxt) / determinant, (w * wxt - wx * wt) / determinant
        if latency >= 0 and slope >= 0:
            return latency, slope
    flat, through = wt / w, wxt / wxx if wxx > 0 else 0.0
    return (0.0, through) if sloped and wxt**2 / wxx > wt**2 / w else (flat, 0.0)


def _deviations(part: Vector, weight: Vector, cost: float, used: tuple[bool, bool]) -> tuple[float, float]:
    """Deviations of latency and slope; inf for an unused one, and without more points than parameters."""
    freedom = part.size - sum(used)
    if freedom <= 0:
        return math.inf, math.inf
    scale = max(1.0, cost / freedom)
    w, wx, wxx = (float(np.sum(weight * of)) for of in (1.0, part, part**2))
    if not all(used):
        alone = math.sqrt(scale / (w if used[0] else wxx))
        return (alone, math.inf) if used[0] else (math.inf, alone)
    determinant = w * wxx - wx**2
    if determinant <= 0:
        return math.inf, math.inf
    return math.sqrt(scale * wxx / determinant), math.sqrt(scale * w / determinant)
