"""What a method costs once, however often the same memory is copied: its host memory, its registration, its graph."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.advise.methods import FRESH
from linkscope.flow import kind_of
from linkscope.model.break_even import cost_at
from linkscope.model.curves import Estimate, Method, Path
from linkscope.model.memory_costs import BUILT_ON, Amount, Kind, MemoryCosts, over_size, together
from linkscope.runfile import Point

_USUAL_GPU_MEMORY = "device"


@dataclass(frozen=True)
class Part:
    """One cost that is paid once: 'pinned memory', 'registering', 'preparing the graph'."""

    what: str
    amount: Amount


@dataclass(frozen=True)
class Once:
    """All costs that are paid once. `missing`: what is not known; '' if everything is."""

    parts: tuple[Part, ...] = ()
    missing: str = ""

    @property
    def time(self) -> Estimate | None:
        """Seconds of all parts; None if one is not known."""
        return None if self.missing else together(part.amount for part in self.parts).time

    def besides(self, other: "Once") -> Estimate:
        """Seconds of the parts that the other does not have. Parts that both have cancel."""
        return together(part.amount for part in self.parts if part not in other.parts).time


class OnceCosts:
    """Costs from the first source of points that knows each of them: a run before a model."""

    def __init__(self, sources: Iterable[Sequence[Point]]) -> None:
        self._memory: list[MemoryCosts] = []
        self._graphs: list[dict[str, dict[int, Point]]] = []  # by GPU and number of nodes
        for points in sources:
            self._memory.append(MemoryCosts(points))
            graphs: dict[str, dict[int, Point]] = {}
            for point in points:
                if point.benchmark == "graph" and point.params.get("what") == "instantiate" and point.median_s:
                    graphs.setdefault(point.dst, {})[int(point.params.get("nodes", "1"))] = point
            self._graphs.append(graphs)

    def of(self, method: Method, path: Path, size: int, copies: int) -> Once:
        """The costs of a method for memory of `size` bytes, with a graph of `copies` nodes. None for new memory: each
        copy pays for its pages."""
        if method.family.benchmark in FRESH:
            return Once()
        parts: list[Part] = []
        for place, memory in ((path.src, method.family.src_memory), (path.dst, method.family.dst_memory)):
            if kind_of(place) == "disk":
                continue  # the file is there
            if kind_of(place) == "gpu":
                if memory != _USUAL_GPU_MEMORY:
                    return Once(missing=f"the cost of {memory} memory")
                continue
            kind = Kind(memory, dict(method.params).get("pages", ""))
            of_memory = self._of_memory(path, kind, size)
            if not of_memory:
                return Once(missing=f"the cost of {kind} memory")
            parts += of_memory
        if method.family.engine == "graph":
            amount = self._of_graph(path, copies)
            if amount is None:
                return Once(missing="the cost of preparing a graph")
            parts.append(Part("preparing the graph", amount))
        return Once(tuple(parts))

    def _of_memory(self, path: Path, kind: Kind, size: int) -> list[Part]:
        for costs in self._memory:
            for where in _like(path, costs):
                cost = cost_at(costs, where, "host", kind, size)
                base, shared = BUILT_ON.get(kind.memory, ("", ()))
                built_on = cost_at(costs, where, "host", Kind(base), size) if base else None
                as_there = "" if where == path else f", as on {where}"
                if cost and built_on:
                    registering = Part(f"registering{as_there}", cost.without(shared))
                    return [Part(f"{base} memory", built_on.total), registering]
                if cost:
                    return [Part(f"{kind} memory{as_there}", cost.total)]
        return []

    def _of_graph(self, path: Path, copies: int) -> Amount | None:
        """The graphs of the GPU of the path, otherwise those of another GPU."""
        for graphs in self._graphs:
            for _, by_nodes in sorted(graphs.items(), key=lambda pair: pair[0] not in (path.src, path.dst)):
                if amount := over_size(by_nodes, copies):
                    return amount
        return None


def _like(path: Path, costs: MemoryCosts) -> list[Path]:
    """The path, and others of the same host. Suites measure the cost of memory with one GPU of a node."""
    host = path.src if kind_of(path.src) == "numa" else path.dst
    others = [where for where, _ in costs.kinds() if where.src == host and where.dst != host]
    return list(dict.fromkeys([path, *others]))
