"""The time that a copy should take on a machine: from a run (measured) or from a machine file (simulated)."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from linkscope.errors import NOT_HERE, UserError
from linkscope.explain.events import HOST, Copy
from linkscope.runfile import Point, PointId

Simulated = Callable[[dict[str, Any], Sequence[PointId]], list[list[float] | str]]
_SIZES = tuple(1 << power for power in range(3, 33))  # of a simulated curve
_HOST_KINDS = ("pinned", "pageable", "registered")


@dataclass(frozen=True)
class PathKind:
    """What decides the time of a copy besides its size. Of host memory, the nearest NUMA node is meant."""

    src: str
    dst: str
    src_memory: str
    dst_memory: str

    @property
    def pinned(self) -> "PathKind":
        """The same with pinned host memory."""
        return replace(
            self,
            src_memory="pinned" if self.src == HOST else self.src_memory,
            dst_memory="pinned" if self.dst == HOST else self.dst_memory,
        )


def kind_of(copy: Copy) -> PathKind:
    """What decides the time of this copy."""
    return PathKind(copy.src, copy.dst, copy.src_memory, copy.dst_memory)


class Expected:
    """Times of unidirectional copies by copy engine, with nothing beside them. `name`: where they come from."""

    def __init__(self, name: str, curves: dict[PathKind, list[tuple[int, float]]], *, modelled: bool) -> None:
        self.name, self.modelled = name, modelled
        self._curves = {kind: sorted(points) for kind, points in curves.items() if points}

    def seconds(self, kind: PathKind, size: int) -> float | None:
        """Linear between two sizes, the smallest size's time below it, and the largest size's rate above it; None for a
        path without any value."""
        curve = self._curves.get(kind)
        if curve is None or size <= 0:
            return None
        sizes, times = [point[0] for point in curve], [point[1] for point in curve]
        if size > sizes[-1]:
            return times[-1] * size / sizes[-1]
        return float(np.interp(size, sizes, times))


def expected_by_run(points: Iterable[Point], name: str, *, modelled: bool) -> Expected:
    """Batched copies of a run: the driver's part of a copy is not in the times of a profiler either."""
    curves: dict[PathKind, dict[int, float]] = {}
    for point in points:
        params = point.params
        usual = (
            point.benchmark in ("h2d", "d2h", "d2d", "local")
            and point.engine == "ce"
            and not point.bidirectional
            and params.get("mode", "batched") == "batched"
            and params.get("peer", "on") == "on"
            and "cache" not in params
        )
        if usual and point.median_s:
            kind = PathKind(_host(point.src), _host(point.dst), point.src_memory, point.dst_memory)
            of_kind = curves.setdefault(kind, {})
            of_kind[point.bytes] = min(point.median_s, of_kind.get(point.bytes, np.inf))
    if not curves:
        raise UserError(f"{name} has no copies by copy engine to compare with: run suite standard or quick", NOT_HERE)
    return Expected(name, {kind: list(of_kind.items()) for kind, of_kind in curves.items()}, modelled=modelled)


def expected_by_model(content: dict[str, Any], numa: Sequence[str], copies: Iterable[Copy], run: Simulated) -> Expected:
    """Simulated copies of every path and memory of the trace, and the same with pinned memory."""
    kinds = {kind for copy in copies for kind in (kind_of(copy), kind_of(copy).pinned)}
    wanted = [(kind, point) for kind in sorted(kinds, key=str) for node in numa for point in _points(kind, node)]
    times = run(content, [point for _, point in wanted])
    curves: dict[PathKind, dict[int, float]] = {}
    for (kind, point), seconds in zip(wanted, times, strict=True):
        if isinstance(seconds, list):
            of_kind = curves.setdefault(kind, {})
            of_kind[point.bytes] = min(seconds[0], of_kind.get(point.bytes, np.inf))
    name = str(content["machine"]["name"])
    return Expected(name, {kind: list(of_kind.items()) for kind, of_kind in curves.items()}, modelled=True)


def _points(kind: PathKind, node: str) -> Iterable[PointId]:
    ends = [node if place == HOST else place for place in (kind.src, kind.dst)]
    memories = (kind.src_memory, kind.dst_memory)
    known = all(
        memory in (_HOST_KINDS if place == HOST else ("device",))
        for place, memory in zip((kind.src, kind.dst), memories, strict=True)
    )
    if not known:
        return []
    if kind.src == kind.dst:
        name = "local"
    elif HOST not in (kind.src, kind.dst):
        name = "d2d"
    else:
        name = "h2d" if kind.src == HOST else "d2h"
    params = (("peer", "on"),) if name == "d2d" else ()
    return [PointId(name, "ce", ends[0], memories[0], ends[1], memories[1], size, params) for size in _SIZES]


def _host(place: str) -> str:
    return HOST if place.startswith("numa:") else place
