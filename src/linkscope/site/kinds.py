"""The path kinds of a run, each with the value that machines are compared by.

A cell is one value of one configuration: the best rate over sizes, or the shortest time of an operation without bytes.
It is the value of the median path among those of one configuration.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from linkscope.flow import kind_of
from linkscope.model.curves import Estimate, Path, path_of, rate_of, time_of, total_of
from linkscope.report.headline import best_points, host_memory, is_headline, peaks_of, rates_of
from linkscope.report.trust import has_warning, sign_of
from linkscope.runfile import Point, Run
from linkscope.runfile.methods import current, version
from linkscope.units import format_bytes

_MOST_CELLS = 24  # configurations of one kind that a run contributes
_ENGINES = {
    "ce": "copy engine", "sm": "SM", "tma": "TMA", "cpu": "CPU", "batch": "batched call", "graph": "CUDA graph",
}  # fmt: skip
_NAMES = {
    "h2d": "Host → GPU", "d2h": "GPU → host", "d2d": "GPU → GPU", "local": "Within a GPU", "h2h": "Host → host",
    "launch": "Kernel launch", "launch_to_end": "Kernel, launch to end", "latency": "Pointer chase",
    "atomic": "Atomic operations", "atomic_latency": "Latency of an atomic operation",
    "demand": "Managed memory on demand", "prefetch": "Managed memory, prefetched", "fault_latency": "Page fault",
}  # fmt: skip


class Plain(NamedTuple):
    """A kind of plain copies. `peer`: '' for any; `total`: bidirectional, both directions together."""

    title: str
    benchmark: str
    memory: str
    peer: str = ""
    total: bool = False


PLAIN = {
    "h2d-pinned": Plain("Host → GPU, pinned", "h2d", "pinned"),
    "d2h-pinned": Plain("GPU → host, pinned", "d2h", "pinned"),
    "h2d-pageable": Plain("Host → GPU, pageable", "h2d", "pageable"),
    "d2h-pageable": Plain("GPU → host, pageable", "d2h", "pageable"),
    "h2d-bidirectional": Plain("Host ↔ GPU, pinned, bidirectional", "h2d", "pinned", total=True),
    "d2d-peer": Plain("GPU → GPU, peer access", "d2d", "", "on"),
    "d2d-bidirectional": Plain("GPU ↔ GPU, peer access, bidirectional", "d2d", "", "on", total=True),
    "d2d-peer-off": Plain("GPU → GPU, peer off", "d2d", "", "off"),
    "local": Plain("Within a GPU", "local", ""),
    "h2h": Plain("Host → host, pageable to pinned", "h2h", "pageable→pinned"),
}
_ORDER = [*PLAIN, "h2d-single", "d2h-single", "d2d-single", "launch-cpu", "latency-sm", "atomic-sm"]


class Cell(msgspec.Struct, omit_defaults=True):
    """One value. Rates in GB/s, times in seconds; `share`: of the peak, as a fraction.

    `range`: lowest and highest value over the paths. `curve`: (bytes, rate, low, high) of the median path.
    """

    kind: str
    label: str
    unit: str
    value: float
    point: str
    method: int
    low: float | None = None
    high: float | None = None
    range: tuple[float, float] | None = None
    paths: int = 1
    share: float | None = None
    peak: float | None = None
    bytes: int = 0
    sign: str = ""
    curve: list[tuple[int, float, float | None, float | None]] = []

    @property
    def benchmark(self) -> str:
        """The operation of the point."""
        return self.point.partition("/")[0]

    @property
    def is_current(self) -> bool:
        """Whether this linkscope measures by the same method, so that values can be compared."""
        return self.method == current([self.benchmark])[self.benchmark]


def title_of(kind: str) -> str:
    """'Host → GPU, pinned'; 'Kernel launch by CPU' for kinds that are an operation and an engine."""
    if kind in PLAIN:
        return PLAIN[kind].title
    benchmark, _, engine = kind.rpartition("-")
    name = _NAMES.get(benchmark, benchmark.replace("_", " ").capitalize())
    return f"{name}, single copy" if engine == "single" else f"{name} by {_ENGINES.get(engine, engine)}"


def order_of(kind: str) -> tuple[int, str]:
    """Sorts the most important kinds first."""
    return (_ORDER.index(kind) if kind in _ORDER else len(_ORDER), title_of(kind))


def cells_of(run: Run) -> list[Cell]:
    """The cells of a run, by kind. Points with a warning, without a value and of concurrent flows have none."""
    usable = [
        point
        for point in run.points
        if point.median_s and point.median_s > 0 and not has_warning(point) and "with" not in point.params
    ]
    found = [cell for kind, plain in PLAIN.items() if (cell := _plain_cell(run, usable, kind, plain)) is not None]
    groups: dict[str, dict[str, list[Point]]] = {}
    for point in usable:
        if (kind := _kind_of(point)) is not None:
            groups.setdefault(kind, {}).setdefault(_label(point), []).append(point)
    for kind, by_label in groups.items():
        for label in sorted(by_label, key=lambda text: (len(text), text))[:_MOST_CELLS]:
            found.append(_cell(run, kind, label, by_label[label]))
    return sorted(found, key=lambda cell: (order_of(cell.kind), len(cell.label), cell.label))


def _plain_cell(run: Run, usable: Sequence[Point], kind: str, plain: Plain) -> Cell | None:
    points = [point for point in usable if _is_plain(point) and _belongs(point, plain)]
    rate: Callable[[Point], Estimate | None] = total_of if plain.total else rate_of
    best = best_points(points, rate)
    rates = rates_of(best, best, rate, peaks_of(run.points))
    if rates is None:
        return None
    order = sorted(range(len(rates.values)), key=lambda index: rates.values[index])
    middle = order[len(order) // 2]
    point, peak = rates.points[middle], rates.peaks[middle]
    estimate = rate(point) or Estimate(rates.values[middle])
    curve = sorted(
        ((one.bytes, of.value, of.low, of.high) for one in points if _same(one, point) and (of := rate(one))),
        key=lambda item: item[0],
    )
    return Cell(
        kind, "", "GB/s", estimate.value, point.id, version(run.header, point.benchmark), estimate.low, estimate.high,
        (min(rates.values), max(rates.values)), len(order), estimate.value / peak if peak else None, peak, point.bytes,
        sign_of([point]), curve,
    )  # fmt: skip


def _cell(run: Run, kind: str, label: str, points: Iterable[Point]) -> Cell:
    """The cell of one configuration: of each path its best size, or the smallest size of single copies."""
    timed = kind.endswith("-single")
    by_path: dict[Path, list[Point]] = {}
    for point in points:
        by_path.setdefault(path_of(point), []).append(point)
    best = [_best(of_path, timed=timed) for of_path in by_path.values()]
    best.sort(key=lambda pair: pair[1].value)
    point, estimate, unit = best[len(best) // 2]
    values = [one.value for _, one, _ in best]
    peak = point.limit_gbps if unit == "GB/s" and len(point.flows) < 2 else None
    return Cell(
        kind, label, unit, estimate.value, point.id, version(run.header, point.benchmark), estimate.low, estimate.high,
        (min(values), max(values)), len(best), estimate.value / peak if peak else None, peak, point.bytes,
        sign_of([point]),
    )  # fmt: skip


def _best(points: Sequence[Point], *, timed: bool) -> tuple[Point, Estimate, str]:
    """The point of a path with the best rate, or with the smallest size of single copies, its value and the unit."""
    for point in () if timed else best_points([one for one in points if one.bytes], total_of).values():
        if (rate := total_of(point)) is not None:
            return point, rate, "GB/s"
    point = min(points, key=lambda one: (one.bytes, one.median_s or 0.0))
    return point, time_of(point) or Estimate(point.median_s or 0.0), "s"


def _is_plain(point: Point) -> bool:
    engine = "cpu" if point.benchmark == "h2h" else "ce"
    return is_headline(point) and point.engine == engine and point.params.get("mode", "batched") == "batched"


def _belongs(point: Point, plain: Plain) -> bool:
    return (
        point.benchmark == plain.benchmark
        and host_memory(point) == plain.memory
        and point.bidirectional == plain.total
        and plain.peer in ("", point.params.get("peer", ""))
    )


def _kind_of(point: Point) -> str | None:
    """The kind of a point that is no plain copy."""
    if _is_plain(point) and any(_belongs(point, plain) for plain in PLAIN.values()):
        return None
    if is_headline(point) and point.engine == "ce" and point.params.get("mode") == "single":
        usual = host_memory(point) in ("", "pinned") and not point.bidirectional
        return f"{point.benchmark}-single" if usual else None
    return f"{point.benchmark}-{point.engine}"


def _label(point: Point) -> str:
    """The configuration: kinds of places with their memory, and the parameters.

    Own memory and that of another GPU, NUMA node or host are different configurations.
    """
    ends = [f"{kind_of(point.src)}.{point.src_memory}", f"{_which(point)}{kind_of(point.dst)}.{point.dst_memory}"]
    size = [format_bytes(point.bytes)] if point.bytes and point.params.get("mode") == "single" else []
    params = [f"{name}={value}" for name, value in sorted(point.params.items()) if name != "mode" or value != "batched"]
    return ", ".join([" → ".join(ends), *size, *params])


def _which(point: Point) -> str:
    """'same ' or 'other ' if both ends are of one kind, 'remote ' on another host."""
    if len({place.partition("/")[0] for place in (point.src, point.dst) if place.startswith("host:")}) > 1:
        return "remote "
    if kind_of(point.src) != kind_of(point.dst) or kind_of(point.src) not in ("gpu", "numa"):
        return ""
    return "same " if point.src == point.dst else "other "


def _same(one: Point, other: Point) -> bool:
    return one.src == other.src and one.dst == other.dst and one.params == other.params
