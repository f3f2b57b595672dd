"""Computations with their transfers, from near and far NUMA nodes: suites `sp-5` and `sp-6` (Spafford et al. 4.1)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linkscope.report.trust import sign_of
from linkscope.runfile import Point, Run

PREFIX = "compute_"
ALONE = "none"  # beside nothing, for a fixed time
_COPIES = ("h2d", "d2h")


@dataclass(frozen=True)
class Placed:
    """A computation with its transfers from a near and a far node. Times in seconds, sizes in bytes.

    `alone`: seconds of the computation without transfers. `extra`: how much longer copies of its bytes take from the
    far node. None: not measured. `sign`: before its ratios, ~ if one of the times missed its precision.
    """

    name: str
    memory: str
    size: str
    beside: str
    near: float
    far: float | None
    alone: float | None
    moved: int
    operations: float
    extra: float | None
    sign: str

    @property
    def is_undisturbed(self) -> bool:
        """Whether nothing runs beside it."""
        return self.beside in ("", ALONE)

    @property
    def over_good(self) -> float | None:
        """The penalty of the rate over the good value: (good - bad) / good."""
        return None if self.far is None else 1 - self.near / self.far

    @property
    def over_bad(self) -> float | None:
        """The penalty of the rate over the bad value: (good - bad) / bad."""
        return None if self.far is None else self.far / self.near - 1

    @property
    def predicted(self) -> float | None:
        """The penalty over the good value that copies predict: extra transfer time over total time."""
        return None if self.extra is None else self.extra / (self.near + self.extra)

    @property
    def per_byte(self) -> float:
        """Operations for each byte that it transfers."""
        return self.operations / self.moved


def placements(run: Run) -> list[Placed]:
    """All computations with transfers from a near node, by name, host memory, size and what runs beside them."""
    near_nodes = _near_nodes(run.header.machine)
    valued = [point for point in run.points if point.median_s]
    of_kind = [point for point in valued if point.benchmark.startswith(PREFIX)]
    alone = {(point.benchmark, _size(point)): point for point in of_kind if point.src == point.dst}
    costs = _costs(valued, near_nodes)
    found: dict[tuple[str, ...], dict[bool, Point]] = {}
    for point in of_kind:
        if point.src != point.dst:
            key = (point.benchmark, point.src_memory, _size(point), _beside(point))
            found.setdefault(key, {}).setdefault(near_nodes.get(point.dst) in (None, point.src), point)
    return [_placed(key, ends, alone, costs) for key, ends in sorted(found.items()) if True in ends]


def _near_nodes(machine: Mapping[str, Any]) -> dict[str, str]:
    """The NUMA node of each GPU, of a computer or of a model, where known."""
    gpus, model = machine.get("gpus") or (), machine.get("model")
    found = {
        f"gpu:{gpu['index']}": f"numa:{gpu['numa']}"
        for gpu in gpus
        if isinstance(gpu, Mapping) and gpu.get("numa") is not None
    }
    for table in model.get("gpu", ()) if isinstance(model, Mapping) else ():
        found |= {gpu: node for node, gpus in table["at"].items() for gpu in gpus}
    return found


def _beside(point: Point) -> str:
    """What runs beside it: copies by their kind, or a second task by its NUMA node."""
    second = point.params.get("second", ALONE)
    return point.params.get("beside", "") if second == ALONE else f"task of numa:{second}"


def _size(point: Point) -> str:
    return point.params.get("size", "")


def _costs(points: Sequence[Point], near_nodes: Mapping[str, str]) -> dict[tuple[str, str, bool], float]:
    """Seconds per byte of copies, by benchmark, host memory and whether the node is near."""
    found: dict[tuple[str, str, bool], float] = {}
    for point in points:
        if point.benchmark in _COPIES and point.gbps:
            node, gpu = sorted((point.src, point.dst), reverse=True)
            memory = point.src_memory if point.src == node else point.dst_memory
            key = (point.benchmark, memory, near_nodes.get(gpu) in (None, node))
            found[key] = max(found.get(key, 0.0), 1 / (point.gbps * 1e9))
    return found


def _placed(
    key: tuple[str, ...],
    ends: Mapping[bool, Point],
    alone: Mapping[tuple[str, str], Point],
    costs: Mapping[tuple[str, str, bool], float],
) -> Placed:
    benchmark, memory, size, beside = key
    near, far = ends[True], ends.get(False)
    of_task = {near.src, near.dst}  # a second task has another GPU
    measured = [flow for flow in near.flows if flow.role == "measured" and {flow.src, flow.dst} == of_task]
    extra: float | None = 0.0
    for flow, copy in zip(measured, _COPIES, strict=False):
        good, bad = (costs.get((copy, memory, is_near)) for is_near in (True, False))
        extra = None if extra is None or good is None or bad is None else extra + flow.bytes * (bad - good)
    by_itself = alone.get((benchmark, size))
    sign = sign_of(point for point in (near, far, by_itself) if point)
    return Placed(
        benchmark.removeprefix(PREFIX), memory, size, beside, near.median_s or 0.0, far.median_s if far else None,
        by_itself.median_s if by_itself else None, sum(flow.bytes for flow in measured), measured[0].operations or 0.0,
        extra, sign,
    )  # fmt: skip
