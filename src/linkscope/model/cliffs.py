"""Breaks in the curve of a path. No line is drawn between the two sizes of a break."""

from collections.abc import Sequence

from linkscope import stats
from linkscope.runfile import Point, half_width


def breaks(measured: Sequence[Point]) -> list[int]:
    """The sizes at which a new piece of the curve begins; `points` have values and are sorted by size."""
    rounds = [point.flows[0].round_medians_s if point.flows else [] for point in measured]
    doubts = stats.doubts(rounds, [half_width(point) for point in measured])
    sizes, seconds = [point.bytes for point in measured], [point.median_s or 0.0 for point in measured]
    return [sizes[at + 1] for at in stats.breaks(sizes, seconds, doubts)]
