"""Simulates the methods of one transfer on a machine file without noise, alone or beside other transfers."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from linkscope.errors import UserError
from linkscope.flow import kind_of
from linkscope.plan import SUITES, Benchmark
from linkscope.plan.enumerate import points_of
from linkscope.run.simulate import simulation
from linkscope.run.steady import steady_rates
from linkscope.run.table import benchmark_table
from linkscope.run.target import modelled
from linkscope.runfile import PointId

if TYPE_CHECKING:
    from linkscope.machine.model import Model

_ONCE = ("allocation", "graph")  # operations of what a transfer costs once
# Parameters whose values a program chooses among. Of the others, such as threads of a kernel, the default counts.
_CHOICES = ("access", "call", "chunk", "depth", "helpers", "initiator", "mode", "pages", "peer", "slots", "streams")
_USUAL_OF_GPU = ("device", "managed", "system")  # the others serve sharing, and copies of them take as long
_CALLED = 1000  # copies of which a call has its share
_OF_PIECES = {"pieces": "piece", "strided": "row"}  # the parameter with the size of a piece


class Foretelling:
    """The points of one transfer on a model, and their times. `src`, `dst`: its places."""

    def __init__(self, model: "Model", src: str, dst: str) -> None:
        self._model, self._src, self._dst = model, src, dst
        self._table = benchmark_table()
        facts = modelled(model, seed=1).facts
        self._gpus = facts.of_kind("gpu")
        # The suite has most methods on one path of each class only. A model can run them on any.
        suite = dataclasses.replace(
            SUITES["full"], rules=tuple(dataclasses.replace(rule, one_path=False) for rule in SUITES["full"].rules)
        )
        ends = dict.fromkeys([*facts.of_kind("numa"), src, dst, *self._gpus[:1]])
        self._all = points_of(suite, dataclasses.replace(facts, places=tuple(ends)), self._table)
        self._here = [point for point in self._all if (point.src, point.dst) == (src, dst)]

    def methods(self, size: int) -> list[PointId]:
        """The unidirectional operations of suite `full` on the path, at this size, with usual parameters."""
        found = (point for point in self._here if point.bytes and point.benchmark not in _OF_PIECES)
        sized = [dataclasses.replace(point, bytes=size) for point in found if not point.bidirectional]
        return list(dict.fromkeys(filter(self._is_usual, sized)))

    def _is_usual(self, point: PointId) -> bool:
        ends = ((point.src, point.src_memory), (point.dst, point.dst_memory))
        if any(kind_of(place) == "gpu" and memory not in _USUAL_OF_GPU for place, memory in ends):
            return False
        rows = [row for row in self._table if (row.name, row.engine) == (point.benchmark, point.engine)]
        if "disk" in (kind_of(point.src), kind_of(point.dst)):
            return True
        defaults = {param.name: param.values[0] for row in rows for param in row.params}
        chosen = (*_CHOICES, "threads") if "slots" in defaults else _CHOICES  # of the CPU, which fill slots
        return all(name in chosen or value == defaults[name] for name, value in point.params)

    def of_pieces(self, count: int, piece: int) -> list[PointId]:
        """The operations on `count` pieces, with the sizes of pieces next to `piece` that a point can have, and plain
        copies of one piece of pageable memory."""
        found = [
            dataclasses.replace(point, bytes=piece)
            for point in self._here
            if point.benchmark in ("h2d", "d2h") and point.engine == "ce" and not point.bidirectional
            if "pageable" in (point.src_memory, point.dst_memory) and self._is_usual(point)
        ]
        for point in self._here:
            name = _OF_PIECES.get(point.benchmark)
            # CPU threads pack pieces of pageable memory, so only the host's clock times them.
            if name and ("pageable" in (point.src_memory, point.dst_memory) or point.param("clock") == "host"):
                for size in _neighbours(_sizes(self._table, point, name), piece):
                    params = tuple((key, str(size) if key == name else value) for key, value in point.params)
                    found.append(dataclasses.replace(point, bytes=count * size, params=params))
        return list(dict.fromkeys(found))

    def calls(self, size: int) -> list[PointId]:
        """The operations that tell what the host takes for one of many copies of `size` bytes: batches and graphs of
        scattered pieces of the sizes next to it by the host's clock, calls for a copy, and launches.

        Without pieces on this path, those of another one.
        """
        by_host = [point for point in self._all if point.benchmark == "pieces" and point.param("clock") == "host"]
        by_host = [point for point in by_host if point.engine in ("batch", "graph")]
        here = [point for point in by_host if (point.src, point.dst) == (self._src, self._dst)]
        found: dict[PointId, None] = {}
        for point in here or [one for one in by_host if (one.src, one.dst) == (by_host[0].src, by_host[0].dst)]:
            for near in _neighbours(_sizes(self._table, point, "piece"), size):
                params = tuple((key, str(near) if key == "piece" else value) for key, value in point.params)
                found[dataclasses.replace(point, bytes=_CALLED * near, params=params)] = None
        found |= dict.fromkeys(one for one in self._all if one.benchmark in ("copy_call", "launch"))
        return list(found)

    def once(self) -> list[PointId]:
        """The allocations of host memory and the graphs, whose costs a transfer between these places may pay.

        Suites have them on one path. A model can run them on any.
        """
        host = next((place for place in (self._src, self._dst) if kind_of(place) == "numa"), None)
        gpus = [place for place in (self._src, self._dst) if kind_of(place) == "gpu"]
        gpu = next(iter([*gpus, *self._gpus]), None)
        places = {"numa": host, "gpu": gpu}
        found: dict[PointId, None] = {}
        for point in self._all:
            src, dst = places.get(kind_of(point.src)), places.get(kind_of(point.dst))
            of_host = kind_of(point.src) == "numa"
            if point.benchmark in _ONCE and of_host and src and dst:
                found[dataclasses.replace(point, src=src, dst=dst)] = None
        return list(found)

    def seconds(self, points: Iterable[PointId]) -> dict[PointId, float | str]:
        """The seconds of one operation of each point, whose flows end together, or why the model cannot run it."""
        listed = list(points)
        with simulation() as machine:
            found = machine.seconds(self._model.to_json(), listed)
        return {
            point: times if isinstance(times, str) else max(times) for point, times in zip(listed, found, strict=True)
        }

    def seconds_beside(self, points: Iterable[PointId], others: Sequence[PointId]) -> dict[PointId, float | str]:
        """The same while all others run. Operations without a steady state, such as page faults, have a reason."""
        found: dict[PointId, float | str] = {}
        for point in points:
            try:
                flows = steady_rates(self._model, [point, *others])
            except UserError as problem:
                found[point] = str(problem)
                continue
            own = flows[: len(flows) - len(others)]  # each of the others is one flow
            found[point] = max(flow.seconds for flow in own)
        return found


def _sizes(table: Sequence[Benchmark], point: PointId, name: str) -> list[int]:
    rows = [row for row in table if (row.name, row.engine) == (point.benchmark, point.engine)]
    return sorted({int(value) for row in rows if (param := row.param(name)) for value in param.values})


def _neighbours(sizes: Sequence[int], wanted: int) -> list[int]:
    """The size itself if it is there, else the next smaller and the next larger one."""
    if wanted in sizes:
        return [wanted]
    below, above = [size for size in sizes if size < wanted], [size for size in sizes if size > wanted]
    return [*below[-1:], *above[:1]]
