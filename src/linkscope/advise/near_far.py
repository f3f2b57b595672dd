"""What it costs to use a GPU from another NUMA node (Spafford et al. 3, Jorda et al. III.A).

One code path for points of a run and of a model.

A node is near a GPU if copies between them are the fastest. The topology is not asked: a virtual machine may hide it or
state it wrongly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linkscope.flow import kind_of
from linkscope.runfile import Point, PointId
from linkscope.units import format_rate_interval, format_seconds_interval

FORMULAS = "over the good value: |good - bad| / good; over the bad value: |good - bad| / bad"
DIRECTIONS = {"h2d": "host to GPU", "d2h": "GPU to host", "both": "both directions", "latency": "load by a GPU"}
_LEVEL = 0.95
_ALIKE = 0.02  # nodes whose rates differ by less are equally near
SIZES = tuple(1 << power for power in range(10, 27))  # the paper's
_USUAL = {"mode": "batched", "after": "kernel"}


@dataclass(frozen=True)
class NearFar:
    """One direction and size at one GPU: GB/s from each NUMA node, or seconds of a latency (`bytes` 0).

    `values` has two nodes or more. `intervals`: their 95 % intervals, where they have one.
    """

    gpu: str
    direction: str
    bytes: int
    values: dict[str, float]
    ids: tuple[str, ...] = ()
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def near(self) -> str:
        """The node with the best value."""
        return (max if self.bytes else min)(self.values, key=lambda node: self.values[node])

    @property
    def far(self) -> str:
        """The node with the worst value."""
        return (min if self.bytes else max)(self.values, key=lambda node: self.values[node])

    @property
    def over_good(self) -> float:
        """The penalty over the good value."""
        good, bad = self.values[self.near], self.values[self.far]
        return abs(good - bad) / good

    @property
    def over_bad(self) -> float:
        """The penalty over the bad value."""
        good, bad = self.values[self.near], self.values[self.far]
        return abs(good - bad) / bad


def near_far(points: Iterable[Point]) -> list[NearFar]:
    """Every GPU, direction and size with values from two NUMA nodes: pinned copies by copy engine in batches, and
    loads of host memory by a GPU; sorted."""
    found: dict[tuple[str, str, int], dict[str, tuple[float, Point]]] = {}
    for point in points:
        direction = _direction(point)
        value = (point.total_gbps or point.gbps or _gbps(point)) if point.bytes else point.median_s
        if direction is None or not value:
            continue
        gpu, node = (point.dst, point.src) if kind_of(point.src) == "numa" else (point.src, point.dst)
        found.setdefault((gpu, direction, point.bytes), {})[node] = (value, point)
    made = [NearFar(*key, *_of_nodes(of)) for key, of in found.items() if len(of) > 1]
    order = list(DIRECTIONS)
    return sorted(made, key=lambda one: (_number(one.gpu), order.index(one.direction), one.bytes))


def largest(found: Sequence[NearFar]) -> list[NearFar]:
    """Of each GPU and direction, the largest size."""
    return list({(one.gpu, one.direction): one for one in found}.values())


def nearest(found: Sequence[NearFar]) -> dict[str, tuple[str, ...]]:
    """The nodes of each GPU whose rates at the largest size are within 2 % of the best in each direction; the best node
    of the direction with the largest penalty where no node is good in all."""
    made: dict[str, tuple[str, ...]] = {}
    rated = [one for one in largest(found) if one.bytes]
    for gpu in dict.fromkeys(one.gpu for one in rated):
        of_gpu = [one for one in rated if one.gpu == gpu]
        good = [set(_good(one)) for one in of_gpu]
        common = sorted(set.intersection(*good), key=_number)
        made[gpu] = tuple(common) or (max(of_gpu, key=lambda one: one.over_good).near,)
    return made


def value_text(one: NearFar, node: str) -> str:
    """'5.95 GB/s [5.93, 5.96]', or the time of a latency."""
    text = format_rate_interval if one.bytes else format_seconds_interval
    return text(one.values[node], *one.intervals.get(node, (None, None)))


def hidden_numa(machine: Mapping[str, Any]) -> str:
    """Why a detected machine does not show its NUMA nodes; '' if it does."""
    return next((str(one.get("why")) for one in machine.get("hidden", []) if one.get("fact") == "numa"), "")


def wanted(nodes: Sequence[str], gpus: Sequence[str]) -> list[PointId]:
    """The points that a model is asked for: all directions at the paper's sizes, between all nodes and GPUs."""
    points = []
    for node in nodes:
        for gpu in gpus:
            for size in SIZES:
                points.append(PointId("h2d", "ce", node, "pinned", gpu, "device", size))
                points.append(PointId("d2h", "ce", gpu, "device", node, "pinned", size))
    return points


def _of_nodes(
    of: Mapping[str, tuple[float, Point]],
) -> tuple[dict[str, float], tuple[str, ...], dict[str, tuple[float, float]]]:
    """Values, ids and intervals by node."""
    intervals = {}
    for node, (value, point) in of.items():
        if point.ci95_s and point.median_s and (point.ci_level or 0) >= _LEVEL and min(point.ci95_s) > 0:
            low, high = (end / point.median_s for end in point.ci95_s)
            intervals[node] = (value / high, value / low) if point.bytes else (value * low, value * high)
    return {node: value for node, (value, _) in of.items()}, tuple(one.id for _, one in of.values()), intervals


def _good(one: NearFar) -> list[str]:
    best = one.values[one.near]
    return [node for node, gbps in one.values.items() if gbps >= best * (1 - _ALIKE)]


def _direction(point: Point) -> str | None:
    params = {name: value for name, value in point.params.items() if _USUAL.get(name) != value}
    kinds = {kind_of(point.src), kind_of(point.dst)}
    if kinds != {"numa", "gpu"} or point.src.endswith(":all") or point.dst.endswith(":all"):
        return None
    if point.benchmark == "latency" and (point.engine, point.src_memory) == ("sm", "pinned"):
        return "latency" if set(params) <= {"range"} and params.get("range", "2MiB") == "2MiB" else None
    pinned = "pinned" in (point.src_memory, point.dst_memory)
    if point.benchmark not in ("h2d", "d2h") or point.engine != "ce" or not pinned:
        return None
    params.pop("bidirectional", None)
    if params:
        return None
    return "both" if point.bidirectional else point.benchmark


def _gbps(point: Point) -> float | None:
    """The rate of a point without flows, as a model gives it."""
    return point.bytes / point.median_s / 1e9 if point.median_s else None


def _number(place: str) -> int:
    return int(place.rpartition(":")[2])
