"""Sizes at which a path is slower than at a smaller size: a driver or a cache changes its method, or there is a
fault."""

from collections.abc import Iterable
from dataclasses import dataclass

from linkscope.model.curves import Curve, alike, rate_of, total_of
from linkscope.runfile import Point

DIP = 0.15  # fraction by which a larger size must be slower than a smaller one


@dataclass(frozen=True)
class Dip:
    """`point` is slower than `top`, the best smaller size, and their intervals do not overlap."""

    curve: Curve
    top: Point
    point: Point

    @property
    def lost(self) -> float:
        """The lost fraction of the rate."""
        return 1 - total(self.point) / total(self.top)


def dips(curves: Iterable[Curve]) -> list[Dip]:
    """All dips, curve by curve, in the order of sizes."""
    found = []
    for curve in curves:
        top: Point | None = None
        for point in (one for one in curve.measured if total_of(one) is not None):
            if top is not None and total(point) < total(top) * (1 - DIP) and not alike_points(point, top):
                found.append(Dip(curve, top, point))
            if top is None or total(point) > total(top):
                top = point
    return found


def total(point: Point) -> float:
    """GB/s of all flows; 0 without a total."""
    found = total_of(point)
    return found.value if found else 0.0


def alike_points(one: Point, other: Point) -> bool:
    """Whether the intervals of their rates overlap."""
    first, second = rate_of(one), rate_of(other)
    return first is not None and second is not None and alike(first, second, 0.0)
