"""Where the curve of a path breaks: between the two sizes no line is drawn."""

import itertools
from collections.abc import Sequence

from linkscope.runfile import Point
from linkscope.stats import jumps


def breaks(measured: Sequence[Point]) -> list[int]:
    """The sizes at which a curve does not go on from the size before; points with values, by size."""
    return [
        large.bytes
        for small, large in itertools.pairwise(measured)
        if jumps(small.bytes, small.median_s or 0.0, large.bytes, large.median_s or 0.0, _half(small) + _half(large))
    ]


def _half(point: Point) -> float:
    if point.ci95_s is None or not point.median_s:
        return 0.0
    return (point.ci95_s[1] - point.ci95_s[0]) / 2 / point.median_s
