"""Rounds of points, and how much the rounds of similar points differ."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.model.curves import MODE, Method, measured_flows, method_of
from linkscope.runfile import Point
from linkscope.stats import PRIOR_FREEDOM, log_variance

_ALIKE = 4  # number of similar points that determines their spread
_FREEDOM = 2 * PRIOR_FREEDOM  # weight of similar points relative to that of the point
_NEAR = 5  # doublings: noise of more distant sizes is of another kind


def rounds_of(point: Point) -> Sequence[float]:
    """The value of each round in seconds; empty for inherited points, and if a round has no positive time.

    For concurrent flows, the time of all their bytes at the sum of their rates.
    """
    flows = measured_flows(point)
    if point.status not in ("ok", "missed_precision") or not flows:
        return ()
    if any(seconds <= 0 for flow in flows for seconds in flow.round_medians_s):
        return ()
    if len(flows) == 1 or not all(flow.bytes for flow in flows):
        return flows[0].round_medians_s
    size = sum(flow.bytes for flow in flows)
    by_round = zip(*(flow.round_medians_s for flow in flows), strict=True)
    return [size / sum(flow.bytes / s for flow, s in zip(flows, seconds, strict=True)) for seconds in by_round]


class Spreads:
    """The spread between rounds of similar points: the same method on all paths, at the nearest sizes.

    Noise of small copies does not predict that of large ones, whose rounds differ by a tenth as much.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        self._known: dict[object, list[_Known]] = defaultdict(list)
        self._found: dict[object, float | None] = {}
        for point in points:
            rounds = rounds_of(point)
            if len(rounds) > 1:
                self._known[_kind(point)].append(_Known(point.bytes, len(rounds) - 1, log_variance(rounds)))

    def of(self, point: Point) -> float | None:
        """The mean variance of logarithms; None for too few similar points."""
        key = _kind(point), point.bytes
        if key not in self._found:
            self._found[key] = _nearest(self._known[_kind(point)], point.bytes)
        return self._found[key]


@dataclass(frozen=True, slots=True)
class _Known:
    """The size, degrees of freedom and variance of one point."""

    size: int
    freedom: int
    variance: float


def _nearest(known: Sequence[_Known], size: int) -> float | None:
    """The mean variance at the nearest sizes, over as many points as are needed."""
    of_distance: dict[float, list[_Known]] = defaultdict(list)
    for one in known:
        of_distance[abs(math.log2(max(one.size, 1) / max(size, 1)))].append(one)
    taken: list[_Known] = []
    for distance in sorted(of_distance):
        if len(taken) >= _ALIKE and (distance > _NEAR or sum(one.freedom for one in taken) >= _FREEDOM):
            break
        taken += of_distance[distance]
    return sum(one.variance for one in taken) / len(taken) if len(taken) >= _ALIKE else None


def _kind(point: Point) -> tuple[Method, str]:
    return method_of(point), point.params.get(MODE, "")
