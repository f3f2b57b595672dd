"""What a run measured, as a model is fitted to it: times of flows and how well each is known."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from linkscope.runfile import Point, PointId

# What a model of causes leaves unsaid even where everything is right; and the spread of a point without an interval.
_FLOOR, _UNKNOWN = 0.01, 0.04
_WIDEST = 0.3
_LEVEL_SIGMAS = 2.15  # an interval of 96.9 % on either side of a normal's middle
_TOTAL = -1

Times = list[float] | str


class Simulation(Protocol):
    """The simulation that a machine file is for, behind a door: a model runs nothing, so who calls it hands this in.

    A machine is the content of a machine file.
    """

    def seconds(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[Times]:
        """Seconds of one operation of every flow of each point, or why the machine cannot do it."""

    def carried(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[dict[str, int]]:
        """Bytes over each directed link in one operation of every flow of each point."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One flow of a point, or the total of flows between one place and all GPUs.

    `seconds` is of one operation (of a total: of as many bytes as one operation of each flow has). `spread` is the
    standard deviation of its logarithm, `sigma` that with what a model leaves unsaid even where it is right. `overlap`:
    for how much of the time all flows ran.
    """

    point: PointId
    flow: int
    flow_bytes: tuple[int, ...]
    seconds: float
    spread: float
    sigma: float
    overlap: float

    @property
    def joint(self) -> bool:
        """Whether several flows ran at once."""
        return len(self.flow_bytes) > 1

    def of(self, times: Times) -> float | None:
        """What these times of all flows say of it."""
        if isinstance(times, str) or len(times) != len(self.flow_bytes):
            return None
        if self.flow != _TOTAL:
            return times[self.flow]
        rate = sum(size / each for size, each in zip(self.flow_bytes, times, strict=True))
        return sum(self.flow_bytes) / rate


def observed(points: Iterable[Point]) -> list[Observation]:
    """All that has a value and was measured, not inherited: a point taken over from another path says nothing new."""
    found = []
    for point in points:
        if point.status in ("ok", "missed_precision") and not point.guards.get("in_turn"):
            found += _of(point)
    return found


def _of(point: Point) -> list[Observation]:
    parsed = PointId.parse(point.id)
    sizes = tuple(flow.bytes for flow in point.flows)
    overlap = float(point.guards.get("joint_overlap", 1.0))
    if "all" in (point.src.rpartition(":")[2], point.dst.rpartition(":")[2]):
        if not point.total_gbps or not all(sizes):
            return []
        seconds = sum(sizes) / point.total_gbps / 1e9
        return [_observation(parsed, _TOTAL, sizes, seconds, _spread(point.median_s, point.ci95_s), overlap)]
    return [
        _observation(parsed, at, sizes, flow.median_s, _spread(flow.median_s, flow.ci95_s), overlap)
        for at, flow in enumerate(point.flows)
        if flow.role == "measured" and flow.median_s
    ]


def _observation(
    point: PointId, flow: int, sizes: tuple[int, ...], seconds: float, spread: float, overlap: float
) -> Observation:
    return Observation(point, flow, sizes, seconds, spread, math.hypot(_FLOOR, spread), overlap)


def _spread(seconds: float | None, interval: tuple[float, float] | None) -> float:
    if not seconds or interval is None or interval[0] <= 0:
        return _UNKNOWN
    return min(math.log(interval[1] / interval[0]) / 2 / _LEVEL_SIGMAS, _WIDEST)
