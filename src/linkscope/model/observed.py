"""The observations that a model is fitted to: times of flows and their uncertainty."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from linkscope.runfile import Flow, Point, PointId, half_width
from linkscope.stats import doubts

# The part of a time that any model of causes leaves unexplained; and the spread of a point without an interval.
_FLOOR, _UNKNOWN = 0.01, 0.04
_WIDEST = 0.3
_LEVEL_SIGMAS = 2.15  # deviations of a normal distribution to the end of an interval of 96.9 %
_TOTAL = -1

Times = list[float] | str


class Simulation(Protocol):
    """The simulation of a machine file, passed in by the caller because models do not run anything.

    A machine is the content of a machine file.
    """

    def seconds(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[Times]:
        """Seconds of one operation of every flow of each point, or the reason why the machine cannot run it."""

    def carried(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[dict[str, int]]:
        """Bytes over each directed link in one operation of every flow of each point."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One flow of a point, or the total of flows between one place and all GPUs.

    `seconds` is of one operation (for a total: of the bytes of one operation of each flow). `spread` is the standard
    deviation of its logarithm, from its interval or from the rounds of its curve; `sigma` adds what a model leaves
    unexplained. `overlap` is the fraction of the time in which all flows ran.
    """

    point: PointId
    flow: int
    flow_bytes: tuple[int, ...]
    seconds: float
    spread: float
    sigma: float
    overlap: float

    @property
    def curve(self) -> tuple[object, ...]:
        """Key of the observations that differ only in size."""
        point = self.point
        ends = (point.src, point.dst, point.src_memory, point.dst_memory)
        return (point.benchmark, point.engine, *ends, point.params, self.flow)

    @property
    def joint(self) -> bool:
        """Whether several flows ran concurrently."""
        return len(self.flow_bytes) > 1

    def of(self, times: Times) -> float | None:
        """The observation with other times of all flows."""
        if isinstance(times, str) or len(times) != len(self.flow_bytes):
            return None
        if self.flow != _TOTAL:
            return times[self.flow]
        rate = sum(size / each for size, each in zip(self.flow_bytes, times, strict=True))
        return sum(self.flow_bytes) / rate


def observed(points: Iterable[Point]) -> list[Observation]:
    """All points that have a value and were measured. Inherited points add no information."""
    found: list[Observation] = []
    flows: list[Flow | None] = []
    for point in points:
        if point.status in ("ok", "missed_precision") and not point.guards.get("in_turn"):
            for one, flow in _of(point):
                found.append(one)
                flows.append(flow)
    return _by_their_rounds(found, flows)


def totals(observations: Iterable[Observation]) -> list[Observation]:
    """The observations, with the total in place of concurrent flows on several paths.

    A shared capacity shows in the total, however it divides among flows. Points of which a flow is missing stay as they
    are.
    """
    points: dict[str, list[Observation]] = defaultdict(list)
    for one in observations:
        points[str(one.point)].append(one)
    found: list[Observation] = []
    for flows in points.values():
        several = len(flows[0].point.paths) > 1 and len(flows) == len(flows[0].flow_bytes)
        found += [_total(flows)] if several else flows
    return found


def _total(flows: Sequence[Observation]) -> Observation:
    sizes = flows[0].flow_bytes
    rates = [sizes[one.flow] / one.seconds for one in flows]
    spread = math.hypot(*(rate * one.spread for rate, one in zip(rates, flows, strict=True))) / sum(rates)
    total = replace(flows[0], flow=_TOTAL, seconds=sum(sizes) / sum(rates))
    return replace(total, spread=spread, sigma=math.hypot(_FLOOR, spread))


def _of(point: Point) -> Iterator[tuple[Observation, Flow | None]]:
    """The observations of a point with its interval, each with its flow; None for a total."""
    parsed = PointId.parse(point.id)
    sizes = tuple(flow.bytes for flow in point.flows)
    overlap = float(point.guards.get("joint_overlap", 1.0))
    if "all" in (point.src.rpartition(":")[2], point.dst.rpartition(":")[2]):
        if point.total_gbps and all(sizes):
            seconds = sum(sizes) / point.total_gbps / 1e9
            yield _observation(parsed, _TOTAL, sizes, seconds, half_width(point), overlap), None
        return
    for at, flow in enumerate(point.flows):
        if flow.role == "measured" and flow.median_s:
            yield _observation(parsed, at, sizes, flow.median_s, half_width(flow), overlap), flow


def _by_their_rounds(found: Sequence[Observation], flows: Sequence[Flow | None]) -> list[Observation]:
    """The observations with the spread of their rounds, where this is more precise than the interval.

    The interval of three agreeing rounds is as wide as the target, so a steady point would otherwise weigh less than a
    scattered one with many rounds.
    """
    curves: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, (one, flow) in enumerate(zip(found, flows, strict=True)):
        if flow is not None:
            curves[one.curve].append(at)
    weighed = list(found)
    for of in curves.values():
        known = [flow for at in of if (flow := flows[at]) is not None]
        off = doubts([flow.round_medians_s for flow in known], [half_width(flow) for flow in known])
        for at, doubt in zip(of, off, strict=True):
            if doubt < math.inf:
                weighed[at] = _spread_by(weighed[at], doubt)
    return weighed


def _observation(
    point: PointId, flow: int, sizes: tuple[int, ...], seconds: float, off: float | None, overlap: float
) -> Observation:
    one = Observation(point, flow, sizes, seconds, _UNKNOWN, math.hypot(_FLOOR, _UNKNOWN), overlap)
    return one if off is None else _spread_by(one, off)


def _spread_by(one: Observation, off: float) -> Observation:
    """The observation with a spread from `off`, half of its interval as a fraction."""
    spread = min(off / _LEVEL_SIGMAS, _WIDEST)
    return replace(one, spread=spread, sigma=math.hypot(_FLOOR, spread))
