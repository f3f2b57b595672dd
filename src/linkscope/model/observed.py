"""What a run measured, as a model is fitted to it: times of flows and how well each is known."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from linkscope.runfile import Flow, Point, PointId, half_width
from linkscope.stats import doubts

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
    standard deviation of its logarithm, as its interval tells or the rounds of its curve; `sigma` that with what a
    model leaves unsaid even where it is right. `overlap`: for how much of the time all flows ran.
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
        """The same of all that differ in size only."""
        point = self.point
        ends = (point.src, point.dst, point.src_memory, point.dst_memory)
        return (point.benchmark, point.engine, *ends, point.params, self.flow)

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
    found: list[Observation] = []
    flows: list[Flow | None] = []
    for point in points:
        if point.status in ("ok", "missed_precision") and not point.guards.get("in_turn"):
            for one, flow in _of(point):
                found.append(one)
                flows.append(flow)
    return _by_their_rounds(found, flows)


def totals(observations: Iterable[Observation]) -> list[Observation]:
    """The same, of several paths at once the total: what they share is what they carry together, however those that
    it holds back divide it. As they are where a flow of the point is not among them."""
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
    """Its observations as their intervals tell, each with the flow that it is of; None: of all."""
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
    """The same, where rounds tell more than the interval does: that of three that agree is as wide as was asked for,
    however near they are, and would make a steady point say less than one with many rounds that scatter."""
    curves: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for at, (one, flow) in enumerate(zip(found, flows, strict=True)):
        if flow is not None:
            curves[one.curve].append(at)
    told = list(found)
    for of in curves.values():
        known = [flow for at in of if (flow := flows[at]) is not None]
        off = doubts([flow.round_medians_s for flow in known], [half_width(flow) for flow in known])
        for at, doubt in zip(of, off, strict=True):
            if doubt < math.inf:
                told[at] = _spread_by(told[at], doubt)
    return told


def _observation(
    point: PointId, flow: int, sizes: tuple[int, ...], seconds: float, off: float | None, overlap: float
) -> Observation:
    one = Observation(point, flow, sizes, seconds, _UNKNOWN, math.hypot(_FLOOR, _UNKNOWN), overlap)
    return one if off is None else _spread_by(one, off)


def _spread_by(one: Observation, off: float) -> Observation:
    """With the spread of what may be `off` by such a fraction, half of an interval."""
    spread = min(off / _LEVEL_SIGMAS, _WIDEST)
    return replace(one, spread=spread, sigma=math.hypot(_FLOOR, spread))
