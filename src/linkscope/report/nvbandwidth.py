"""The tables of nvbandwidth 0.8 from a run of suite `nvbandwidth`, in its layout, so that both outputs can be compared.

In tables named "read" and "write" the row is the GPU whose stream or threads copy: a read brings data from the GPU of
the column, a write sends data to it. Some names contradict the copy that nvbandwidth makes; a cell then holds that
copy. `all_to_one_read` copies from one GPU to all others and `one_to_all_read` from all others to one. In the SM forms
of these two the source pushes the data, as in their write forms (testcases_sm.cpp of nvbandwidth).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from linkscope.runfile import Flow, Point, Run

Cell = Callable[[int, int], float | None]
Cells = list[list[float | None]]


class Inherited(float):
    """A value that was inherited from another path of the class."""


@dataclass(frozen=True)
class Table:
    """`key` is the name in nvbandwidth's SUM line. A cell without a value is None."""

    key: str
    title: str
    cells: Cells

    @property
    def inherited(self) -> int:
        """The number of cells with an inherited value."""
        return sum(isinstance(value, Inherited) for row in self.cells for value in row)

    @property
    def missing(self) -> int:
        """The number of cells without a value. The diagonal of a matrix never has one and does not count."""
        empty = sum(value is None for row in self.cells for value in row)
        return empty - (len(self.cells) if len(self.cells) > 1 else 0)

    @property
    def sum(self) -> float | None:
        """The sum of all cells. None if one is missing, because a partial sum is not comparable."""
        return None if self.missing else sum(value for row in self.cells for value in row if value is not None)


def tables(run: Run) -> list[Table]:
    """Each table that has at least one value, in the order of nvbandwidth. Rates in GB/s, latencies in ns."""
    return [table for table in _Tables(run).all() if any(value is not None for row in table.cells for value in row)]


def text(run: Run) -> str:
    """The tables in the layout of nvbandwidth. Empty where the run has none."""
    return "\n".join(_text(table) for table in tables(run))


def _text(table: Table) -> str:
    lines = [table.title, "  " + "".join(f"{column:>10}" for column in range(len(table.cells[0])))]
    for number, row in enumerate(table.cells):
        shown = ("N/A" if value is None else f"{value:.2f}" for value in row)
        lines.append(f"{number:>2}" + "".join(f"{value:>10}" for value in shown))
    count = sum(len(row) for row in table.cells) - (len(table.cells) if len(table.cells) > 1 else 0)
    total = f"N/A: {table.missing} of {count} cells have no value" if table.sum is None else f"{table.sum:.2f}"
    parts = [f"{table.inherited} of {count} values were inherited, not measured"] if table.inherited else []
    return "\n".join([*lines, "", f"SUM {table.key} {total}", *parts, ""])


def _title(engine: str, row: str, arrow: str, which: str = "") -> str:
    return f"memcpy {engine.upper()} {row}(row) {arrow} GPU(column){which} bandwidth (GB/s)"


@dataclass(frozen=True)
class _Which:
    """A flow of an operation. `back`: against the direction of the operation. `of`: the flow of that GPU."""

    bidirectional: bool = False
    back: bool = False
    of: str = ""
    initiator: str = ""


_THERE, _BACK = _Which(bidirectional=True), _Which(bidirectional=True, back=True)


class _Tables:
    def __init__(self, run: Run) -> None:
        self._points = _of_one_size([point for point in run.points if point.median_s])
        places = {place for point in run.points for flow in point.flows for place in (flow.src, flow.dst)}
        self._gpus = sorted((place for place in places if place.startswith("gpu:")), key=lambda place: int(place[4:]))
        # nvbandwidth's pointer chase stays in the L2 of the GPU that holds it; by linkscope's rule the lines are cold.
        self._peer_cache = "hot" if run.header.plan.get("rule") == "nvbandwidth" else "cold"

    def all(self) -> list[Table]:
        made: list[Table] = []
        for engine in ("ce", "sm"):
            made += self._with_host(engine)
            made += [self._unidirectional(engine, "read", "dst"), self._unidirectional(engine, "write", "src")]
            made += [*self._bidirectional(engine, "read", "dst"), *self._bidirectional(engine, "write", "src")]
            made += self._host_and_all(engine) + self._one_and_all(engine)
        return made + self._latency_and_local_tables()

    def _latency_and_local_tables(self) -> list[Table]:
        gpus = self._gpus
        host = self._row(lambda _, c: self._latency("numa:", gpus[c], "cold"))
        peer = self._matrix(lambda r, c: self._latency(gpus[c], gpus[r], self._peer_cache))
        local = self._row(lambda _, c: self._rate("local", "ce", gpus[c], gpus[c]))
        return [
            Table("host_device_latency_sm", "memory latency SM CPU(row) <-> GPU(column) (ns)", host),
            Table("device_to_device_latency_sm", "Device to Device Latency SM GPU(row) <-> GPU(column) (ns)", peer),
            Table("device_local_copy", "memcpy local GPU(column) bandwidth (GB/s)", local),
        ]

    def _with_host(self, engine: str) -> list[Table]:
        gpus = self._gpus
        both = "exchange" if engine == "sm" else "h2d"  # threads copy in both directions within one kernel
        there = self._row(lambda _, c: self._rate("h2d", engine, "numa:", gpus[c]))
        back = self._row(lambda _, c: self._rate("d2h", engine, gpus[c], "numa:"))
        there_of_both = self._row(lambda _, c: self._rate(both, engine, "numa:", gpus[c], _THERE))
        back_of_both = self._row(lambda _, c: self._rate(both, engine, "numa:", gpus[c], _BACK))
        return [
            Table(f"host_to_device_memcpy_{engine}", _title(engine, "CPU", "->"), there),
            Table(f"device_to_host_memcpy_{engine}", _title(engine, "CPU", "<-"), back),
            Table(f"host_to_device_bidirectional_memcpy_{engine}", _title(engine, "CPU", "<->"), there_of_both),
            Table(f"device_to_host_bidirectional_memcpy_{engine}", _title(engine, "CPU", "<->"), back_of_both),
        ]

    def _unidirectional(self, engine: str, word: str, initiator: str) -> Table:
        def cell(row: int, column: int) -> float | None:
            src, dst = (column, row) if word == "read" else (row, column)
            return self._rate("d2d", engine, self._gpus[src], self._gpus[dst], _Which(initiator=initiator))

        arrow = "->" if word == "read" else "<-"
        return Table(f"device_to_device_memcpy_{word}_{engine}", _title(engine, "GPU", arrow), self._matrix(cell))

    def _bidirectional(self, engine: str, word: str, initiator: str) -> list[Table]:
        def there(row: int, column: int) -> float | None:
            src, dst = self._gpus[column], self._gpus[row]
            return self._rate("d2d", engine, src, dst, _Which(bidirectional=True, initiator=initiator))

        def back(row: int, column: int) -> float | None:
            return there(column, row)

        def total(row: int, column: int) -> float | None:
            one, other = there(row, column), back(row, column)
            if one is None or other is None:
                return None
            return _marked([one, other], one + other)

        key = f"device_to_device_bidirectional_memcpy_{word}_{engine}"
        return [
            Table(f"{key}_{which}", _title(engine, "GPU", "<->", f" {which.capitalize()}"), self._matrix(cell))
            for which, cell in ((f"{word}1", there), (f"{word}2", back), ("total", total))
        ]

    def _host_and_all(self, engine: str) -> list[Table]:
        both = "exchange_all" if engine == "sm" else "host_to_all"

        def of(benchmark: str, which: _Which = _Which()) -> Cells:
            ends = ("gpu:all", "numa:") if benchmark == "all_to_host" else ("numa:", "gpu:all")
            return self._row(lambda _, c: self._rate(benchmark, engine, *ends, replace(which, of=self._gpus[c])))

        to_host, from_host = of(both, _BACK), of(both, _THERE)
        return [
            Table(f"all_to_host_memcpy_{engine}", _title(engine, "CPU", "<-"), of("all_to_host")),
            Table(f"all_to_host_bidirectional_memcpy_{engine}", _title(engine, "CPU", "<->"), to_host),
            Table(f"host_to_all_memcpy_{engine}", _title(engine, "CPU", "->"), of("host_to_all")),
            Table(f"host_to_all_bidirectional_memcpy_{engine}", _title(engine, "CPU", "<->"), from_host),
        ]

    def _one_and_all(self, engine: str) -> list[Table]:
        by_reader = "dst" if engine == "ce" else "src"
        forms = [
            ("all_to_one_write", "<-", "all_to_one", "src"),
            ("all_to_one_read", "->", "one_to_all", by_reader),
            ("one_to_all_write", "->", "one_to_all", "src"),
            ("one_to_all_read", "<-", "all_to_one", by_reader),
        ]
        return [
            Table(f"{key}_{engine}", _title(engine, "GPU", arrow), self._totals(benchmark, engine, initiator))
            for key, arrow, benchmark, initiator in forms
        ]

    def _totals(self, benchmark: str, engine: str, initiator: str) -> Cells:
        def cell(_: int, column: int) -> float | None:
            one = self._gpus[column]
            ends = (one, "gpu:all") if benchmark == "one_to_all" else ("gpu:all", one)
            found = self._find(benchmark, engine, *ends, initiator=initiator)
            return _value(found.total_gbps, found) if found else None

        return self._row(cell)

    def _row(self, cell: Cell) -> Cells:
        return [[cell(0, column) for column in range(len(self._gpus))]]

    def _matrix(self, cell: Cell) -> Cells:
        each = range(len(self._gpus))
        return [[cell(row, column) if row != column else None for column in each] for row in each]

    def _latency(self, src: str, dst: str, cache: str) -> float | None:
        point = self._find("latency", "sm", src, dst, cache=cache, sm="any")
        return _value(point.median_s * 1e9, point) if point and point.median_s else None

    def _rate(self, benchmark: str, engine: str, src: str, dst: str, which: _Which = _Which()) -> float | None:
        """The rate of a flow of the operation from src to dst."""
        params, back = {"initiator": which.initiator} if which.initiator else {}, which.back
        if which.bidirectional and not benchmark.startswith("exchange"):
            params["bidirectional"] = "true"
        point = self._find(benchmark, engine, src, dst, **params)
        if point is None and which.bidirectional:  # each pair of GPUs is measured once
            point, back = self._find(benchmark, engine, dst, src, **params), not back
        if point is None:
            return None
        if benchmark == "d2d":
            flows = point.flows[back:]
        else:
            to_host = back != (benchmark in ("d2h", "all_to_host"))
            flows = [flow for flow in point.flows if _is_between(flow, to_host, which.of)]
        return _value(flows[0].gbps, point) if flows else None

    def _find(self, benchmark: str, engine: str, src: str, dst: str, **params: str) -> Point | None:
        """The matching point. Among points on several NUMA nodes, the fastest."""
        direction = params.setdefault("bidirectional", "false")
        params.setdefault("cache", "cold")
        found = [
            point
            for point in self._points
            if (point.benchmark, point.engine) == (benchmark, engine)
            and _is(point.src, src)
            and _is(point.dst, dst)
            and point.params.get("bidirectional", "false") == direction
            and all(point.params.get(name, value) == value for name, value in params.items())
        ]
        return min(found, key=lambda point: point.median_s or 0.0, default=None)


def _value(number: float | None, point: Point) -> float | None:
    return Inherited(number) if number is not None and point.status == "inherited" else number


def _marked(parts: list[float], number: float) -> float:
    """The number, marked as inherited if one of its parts is."""
    return Inherited(number) if any(isinstance(part, Inherited) for part in parts) else number


def _of_one_size(points: list[Point]) -> list[Point]:
    """The points of one size for each kind of copy: the size with the most paths, and the largest of these."""
    kinds: dict[object, dict[int, set[tuple[str, str]]]] = {}
    for point in points:
        kinds.setdefault(_kind(point), {}).setdefault(point.bytes, set()).add((point.src, point.dst))
    sizes = {kind: max(paths, key=lambda size: (len(paths[size]), size)) for kind, paths in kinds.items()}
    return [point for point in points if point.bytes == sizes[_kind(point)]]


def _kind(point: Point) -> tuple[object, ...]:
    return point.benchmark, point.engine, point.bidirectional, point.params.get("initiator")


def _is(place: str, wanted: str) -> bool:
    return place.startswith(wanted) if wanted.endswith(":") else place == wanted


def _is_between(flow: Flow, to_host: bool, gpu: str) -> bool:
    one = flow.src if flow.src.startswith("gpu:") else flow.dst
    return flow.dst.startswith("numa:") == to_host and one == (gpu or one)
