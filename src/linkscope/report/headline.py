"""Headline rates: plain copies only, one value per path, in rows of paths that perform alike.

A plain copy moves one contiguous buffer and has no special parameters. Copies in pieces, copies of discarded, cached or
managed memory, and batches queued by one call reach other rates than ordinary copies, so they are not headlines. Points
with a warning are not headlines either.
"""

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.advise import plain
from linkscope.model.curves import Estimate, Path, measured_flows, path_of, rate_of, total_of
from linkscope.model.rounds import rounds_of
from linkscope.report.trust import has_warning, inherited, missed
from linkscope.report.usual import most_usual
from linkscope.runfile import Point, Run, once

COPIES = {
    "h2d": "host → GPU",
    "d2h": "GPU → host",
    "d2d": "GPU → GPU",
    "local": "within a GPU",
    "h2h": "host → host",
}
ENGINES = ("ce", "cpu", "sm", "tma")  # in order of preference: `cudaMemcpyAsync` uses a copy engine
_SIZES_APART = 4  # largest sizes of two paths whose best rates are compared
SAME = 0.02  # rates that differ by less are shown as one
# half the range of the rounds, as a fraction of the value; above this one value cannot represent the rounds
UNSTABLE = 0.10
_ORDINARY = frozenset({"mode", "bidirectional", "peer", "initiator", "after", "call", "blocks", "threads"})
_MEMORIES = ("pinned", "registered", "pageable")
_USUAL = ("", *_MEMORIES, "pageable→pinned", "pinned→pageable")
_MOST_ROWS = 3  # rows for one memory kind; a larger number of classes becomes one row with a range
Peaks = Mapping[tuple[str, str, str], float]  # GB/s by source, destination and peer access
_LINKS = {"nvlink": "NVLink", "pcie": "PCIe", "smp": "SMP", "upi": "UPI", "qpi": "QPI", "infiniband": "InfiniBand"}


@dataclass(frozen=True)
class Rates:
    """The best points of a row, one for each path, and their rates in GB/s.

    `unstable`: the lowest and highest rate over rounds and paths; None if the paths are stable. `peaks`: what the
    hardware allows for each value, in GB/s; None where it is unknown.
    """

    points: tuple[Point, ...]
    values: tuple[float, ...]
    unstable: tuple[float, float] | None
    peaks: tuple[float | None, ...]

    @property
    def median(self) -> float:
        """The median over the paths."""
        return statistics.median(self.values)

    @property
    def alike(self) -> bool:
        """Whether one value can represent all paths."""
        return max(self.values) <= min(self.values) * (1 + 2 * SAME)

    @property
    def shares(self) -> tuple[float, float] | None:
        """The lowest and highest fraction of the peak; None where a path has no known peak."""
        shares = [value / peak for value, peak in zip(self.values, self.peaks, strict=True) if peak]
        return (min(shares), max(shares)) if len(shares) == len(self.points) else None

    @property
    def measured(self) -> int:
        """The number of measured points. The other points inherited their value."""
        return sum(not inherited(point) for point in self.points)

    @property
    def missed(self) -> bool:
        """Whether a point missed its precision."""
        return any(map(missed, self.points))


@dataclass(frozen=True)
class RateRow:
    """Paths of one direction and memory kind, unidirectional and bidirectional. Bidirectional rates are totals."""

    where: str
    memory: str
    paths: tuple[Path, ...]
    unidirectional: Rates | None
    bidirectional: Rates | None

    @property
    def first(self) -> Rates:
        """The unidirectional rates, or the bidirectional ones if nothing else was measured."""
        rates = self.unidirectional or self.bidirectional
        assert rates is not None  # a row has at least one point
        return rates


def is_headline(point: Point) -> bool:
    """Whether a point is a plain copy without a warning of its own."""
    return is_plain_copy(point) and not has_warning(point)


def is_plain_copy(point: Point) -> bool:
    """Whether a point copies one contiguous buffer, and no parameter makes it a special case."""
    if point.benchmark not in COPIES or point.engine not in ENGINES or path_of(point).joint:
        return False
    return _ORDINARY.issuperset(point.params) and "managed" not in (point.src_memory, point.dst_memory)


def headline_points(points: Iterable[Point]) -> list[Point]:
    """The plain copies. A path without any is represented by its plain reads, writes and copies in parts."""
    listed = [point for point in points if not has_warning(point)]
    copies = [point for point in listed if is_plain_copy(point)]
    paths = {path_of(point) for point in copies}
    others = (point for point in listed if path_of(point) not in paths and point.engine in ENGINES)
    return copies + [point for point in others if plain(point)]


@once
def headline_rows(run: Run) -> Sequence[RateRow]:
    """Rows in the order of `COPIES`, of the most usual copy of each path. Less common memory kinds appear only if
    nothing else was measured.
    """
    plain = [point for point in run.points if is_headline(point) and total_of(point) is not None]
    classes, peaks = path_classes(run), peaks_of(run.points)
    rows: list[RateRow] = []
    for benchmark, where in COPIES.items():
        of_direction = most_usual(_preferred([point for point in plain if point.benchmark == benchmark]))
        groups: dict[tuple[str, str], list[Point]] = {}
        for point in of_direction:
            groups.setdefault((host_memory(point), point.params.get("peer", "")), []).append(point)
        for (memory, peer), points in sorted(groups.items(), key=lambda item: _order(*item[0])):
            rows += _rows(where, memory, peer, _of_large_sizes(points), classes, peaks)
    return rows


def _of_large_sizes(points: Sequence[Point]) -> list[Point]:
    """The points of the paths that have large sizes, as others have. Where a budget left these out, the best rate of a
    path is that of a small copy, which says nothing of its link."""
    largest: dict[Path, int] = {}
    for point in points:
        largest[path_of(point)] = max(point.bytes, largest.get(path_of(point), 0))
    most = max(largest.values())
    return [point for point in points if most <= _SIZES_APART * largest[path_of(point)]]


def path_classes(run: Run) -> dict[str, str]:
    """The class of each path ('gpu:0->gpu:1'), as the plan has them; empty for runs without classes."""
    return {path: of["kind"] for of in run.header.plan.get("classes") or [] for path in of["paths"]}


def best_points(points: Iterable[Point], rate: Callable[[Point], Estimate | None] = rate_of) -> dict[Path, Point]:
    """The best point of each path. Among rates within 2 %, the most trusted: measured, then inherited, then missed
    precision.
    """
    by_path: dict[Path, list[tuple[float, Point]]] = {}
    for point in points:
        if (found := rate(point)) is not None:
            by_path.setdefault(path_of(point), []).append((found.value, point))
    best = {}
    for path, rated in sorted(by_path.items(), key=lambda item: item[0]):
        most = max(value for value, _ in rated)
        near = [(value, point) for value, point in rated if value >= most * (1 - SAME)]
        best[path] = min(near, key=lambda pair: (_distrust(pair[1]), -pair[0]))[1]
    return best


def host_memory(point: Point) -> str:
    """The kind of host memory at one end; 'pageable→pinned' between two places of the host, '' between GPUs."""
    if point.benchmark == "h2h":
        return f"{point.src_memory}→{point.dst_memory}"
    if point.benchmark in ("h2d", "d2h"):
        return point.src_memory if point.benchmark == "h2d" else point.dst_memory
    return "" if point.src_memory == "device" else point.src_memory


def peaks_of(points: Iterable[Point]) -> Peaks:
    """What the hardware allows in each direction."""
    return {
        (point.src, point.dst, point.params.get("peer", "")): point.limit_gbps
        for point in points
        if point.limit_gbps and not path_of(point).joint
    }


def _peak(point: Point, peaks: Peaks) -> float | None:
    """The peak of a point's rate; of a bidirectional total, the sum of both directions'."""
    if not point.limit_gbps or path_of(point).joint:
        return None
    back = (point.dst, point.src, point.params.get("peer", ""))
    return point.limit_gbps + (peaks.get(back, point.limit_gbps) if point.bidirectional else 0.0)


def round_rates(point: Point) -> tuple[float, float] | None:
    """The lowest and highest rate over the rounds. For an inherited point, the ends of its interval."""
    seconds = rounds_of(point)
    if len(seconds) > 1:
        moved = sum(flow.bytes for flow in measured_flows(point))
        return moved / max(seconds) / 1e9, moved / min(seconds) / 1e9
    rate = total_of(point)
    return None if rate is None or rate.low is None or rate.high is None else (rate.low, rate.high)


def is_unstable(point: Point) -> bool:
    """Whether the rounds of a point scatter too much for one value to represent them."""
    ends, rate = round_rates(point), total_of(point)
    return ends is not None and rate is not None and (ends[1] - ends[0]) / 2 > UNSTABLE * rate.value


def _preferred(points: list[Point]) -> list[Point]:
    """Batched copies by the preferred engine from the usual memory kinds. A criterion that no point meets is
    ignored.
    """
    for engine in ENGINES:
        if by_engine := [point for point in points if point.engine == engine]:
            points = by_engine
            break
    points = [point for point in points if point.params.get("mode", "batched") == "batched"] or points
    points = [point for point in points if host_memory(point) in _USUAL] or points
    if any(host_memory(point) == "pinned" for point in points):  # registered memory performs as pinned memory does
        points = [point for point in points if host_memory(point) != "registered"]
    return points


def _order(memory: str, peer: str) -> tuple[bool, int, str]:
    known = _MEMORIES.index(memory) if memory in _MEMORIES else len(_MEMORIES)
    return peer == "off", known, memory


def _rows(
    where: str, memory: str, peer: str, points: Sequence[Point], classes: dict[str, str], peaks: Peaks
) -> list[RateRow]:
    single = best_points(point for point in points if not point.bidirectional)
    double = best_points((point for point in points if point.bidirectional), total_of)
    groups: dict[object, list[Path]] = {}
    for path in dict.fromkeys([*single, *double]):
        point = single.get(path) or double[path]
        limit = f"{point.limit_gbps:.3g}" if point.limit_gbps else ""
        groups.setdefault(classes.get(f"{path.src}->{path.dst}", limit), []).append(path)
    clusters = _merged(list(groups.values()), single or double, rate_of if single else total_of)
    if len(clusters) > _MOST_ROWS:
        clusters = [sorted(path for cluster in clusters for path in cluster)]
    firsts = [(single or double).get(cluster[0]) or double[cluster[0]] for cluster in clusters]
    labels = _labels(memory, peer, firsts)
    return [
        RateRow(
            where, label, tuple(cluster), rates_of(cluster, single, rate_of), rates_of(cluster, double, total_of, peaks)
        )
        for label, cluster in zip(labels, clusters, strict=True)
    ]


def _labels(memory: str, peer: str, firsts: Sequence[Point]) -> list[str]:
    """The memory kind of each row, or the link between GPUs. Rows of one kind are distinguished by link or by an
    example.
    """
    links = [_link(point) for point in firsts]
    between_gpus = firsts[0].benchmark == "d2d"
    base = [
        "peer off" if peer == "off" else (memory or link or "peer on") if between_gpus else memory for link in links
    ]
    if len(firsts) < 2:
        return base
    details = links if len(set(links)) == len(links) else [f"{point.src}→{point.dst}" for point in firsts]
    return [", ".join(dict.fromkeys(filter(None, pair))) for pair in zip(base, details, strict=True)]


def _merged(
    groups: list[list[Path]], best: dict[Path, Point], rate: Callable[[Point], Estimate | None]
) -> list[list[Path]]:
    """Groups in the order of their rates, fastest first. Classes whose medians are within 2 % become one row."""

    def median(paths: Sequence[Path]) -> float:
        return statistics.median(
            [of.value for path in paths if path in best and (of := rate(best[path])) is not None] or [0.0]
        )

    merged: list[list[Path]] = []
    for group in sorted(groups, key=median, reverse=True):
        if merged and median(group) >= median(merged[-1]) * (1 - SAME):
            merged[-1] = sorted([*merged[-1], *group])
        else:
            merged.append(sorted(group))
    return merged


def rates_of(
    paths: Iterable[Path], best: dict[Path, Point], rate: Callable[[Point], Estimate | None], peaks: Peaks | None = None
) -> Rates | None:
    """The rates of the paths that have a best point. None if no path has one. `peaks`: as from peaks_of()."""
    points = tuple(best[path] for path in paths if path in best)
    if not points:
        return None
    values = tuple(of.value if (of := rate(point)) else 0.0 for point in points)
    allowed = tuple(_peak(point, peaks or {}) for point in points)
    scattered = [point for point in points if is_unstable(point)]
    if 2 * len(scattered) < len(points):
        return Rates(points, values, None, allowed)
    ends = [pair for point in points if (pair := round_rates(point)) is not None]
    return Rates(points, values, (min(low for low, _ in ends), max(high for _, high in ends)), allowed)


def _link(point: Point) -> str:
    """'NVLink' or 'PCIe', from the derivation of the peak; '' if unknown."""
    source = point.limit_source or ""
    modelled = re.search(r"\S+->\S+ \(([a-z0-9-]+)", source)  # 'nvlink gpu:0->gpu:1 (nvlink x3), 75 GB/s raw ...'
    word = modelled[1] if modelled else source.partition(" ")[0].rstrip(",:")
    return _LINKS.get(word, word) if modelled or word in _LINKS.values() else ""


def _distrust(point: Point) -> int:
    return 2 if missed(point) else 1 if inherited(point) else 0
