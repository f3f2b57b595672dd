"""Section: a blocked LU over GPUs by placement, beside what rates of copies predict (Spafford et al. 4.2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Paragraph, Row, Section, Table
from linkscope.report.sections.lu import ranks_of
from linkscope.runfile import Point
from linkscope.units import format_fraction, format_seconds

_TITLE = "Blocked LU over GPUs"
_NOTE = (
    "A digit is a GPU. Panels of 512 columns are dealt to the GPUs in turn. The prediction from rates of copies is the "
    "longest load, then the computation of one GPU divided among all (or the taking of panels, if longer), then the "
    "last panel's way back. A placement's predicted rank is its place by that, of all placements of as many GPUs. "
    "Equal predictions share a place. The gap is the time of the worst placement over that of the best, less one."
)
_COLUMNS = (
    Column("GPUs", strong=True), Column("Matrix", label="Matrix on"), Column("Threads", label="Threads on"),
    Column("By", label="Panels by"), Column("Ahead", label="Look-ahead"), Column("Time", right=True, label="Time"),
    Column("Rate", right=True, label="TFLOP/s"), Column("Over best", right=True, label="Over best"),
    Column("Predicted", right=True, label="Predicted"), Column("Rank", right=True, label="Predicted rank"),
    Column("Gap", right=True, label="Gap"),
)  # fmt: skip
_DOUBLE = 8  # bytes

Costs = Mapping[tuple[str, str, str], float]  # seconds of a byte, by benchmark and ends


@dataclass(frozen=True)
class LuPlacement:
    """A placement of an LU over GPUs: its parameters, seconds, operations, and predicted seconds; None: unknown."""

    params: Mapping[str, str]
    seconds: float
    operations: float
    predicted: float | None

    @property
    def gpus(self) -> str:
        return self.params["gpus"]


def lu_placements(points: Sequence[Point]) -> dict[tuple[int, int], list[LuPlacement]]:
    """By order of the matrix and number of GPUs, the fastest placement first."""
    costs = {
        (point.benchmark, point.src, point.dst): 1 / (point.gbps * 1e9)
        for point in points if point.benchmark in ("h2d", "d2h", "d2d") and point.gbps
    }  # fmt: skip
    found = [point for point in points if point.benchmark == "lu_gpus" and point.median_s]
    computing = {order: _computing_s(found, costs, order) for order in {_order(point) for point in found}}
    groups: dict[tuple[int, int], list[LuPlacement]] = {}
    for point in found:
        order, params = _order(point), point.params
        made = LuPlacement(
            params, point.median_s or 0.0, point.flows[0].operations or 0.0, _predicted(params, costs, computing[order])
        )
        groups.setdefault((order, len(made.gpus)), []).append(made)
    return {key: sorted(groups[key], key=lambda one: one.seconds) for key in sorted(groups)}


def _order(point: Point) -> int:
    return int(point.params["n"])


def _width(order: int) -> int:
    """Columns of a panel, as core/benchmarks/lu_gpus.cpp has them."""
    return 64 if order < 4096 else 512


def _computing_s(points: Sequence[Point], costs: Costs, order: int) -> float | None:
    """Seconds that the best single GPU computes: its time without the load and the last panel's way back."""
    times = [
        (point.median_s or 0.0) - moved
        for point in points
        if _order(point) == order and len(point.params["gpus"]) == 1 and point.params["ahead"] == "1"
        if (moved := _load_and_store(point.params, costs)) is not None
    ]
    return min(times, default=None)


def _load_and_store(params: Mapping[str, str], costs: Costs) -> float | None:
    """Seconds of the longest load, and of the last panel's way back."""
    gpus, node, order = params["gpus"], f"numa:{params['node']}", int(params["n"])
    panel, panels = _DOUBLE * order * _width(order), order // _width(order)
    loads = [costs.get(("h2d", node, f"gpu:{gpu}")) for gpu in gpus]
    last = gpus[(panels - 1) % len(gpus)]
    back = costs.get(("d2h", f"gpu:{last}", node))
    if back is None or None in loads:
        return None
    shares = [len(range(rank, panels, len(gpus))) for rank in range(len(gpus))]
    return max(share * panel * (cost or 0.0) for share, cost in zip(shares, loads, strict=True)) + panel * back


def _predicted(params: Mapping[str, str], costs: Costs, computing: float | None) -> float | None:
    moved, taken = _load_and_store(params, costs), _taking_s(params, costs)
    if moved is None or taken is None or computing is None:
        return None
    return moved + max(computing / len(params["gpus"]), taken)


def _taking_s(params: Mapping[str, str], costs: Costs) -> float | None:
    """Seconds of the panels that a GPU takes from the others, of the GPU that needs longest."""
    gpus, order = params["gpus"], int(params["n"])
    panel, panels = _DOUBLE * order * _width(order), order // _width(order)
    longest = 0.0
    for rank, gpu in enumerate(gpus):
        last = range(rank, panels, len(gpus))[-1]
        seconds = 0.0
        for owner in (k % len(gpus) for k in range(last) if k % len(gpus) != rank):
            by_peer = params["by"] == "peer"
            ends = ("d2d", f"gpu:{gpus[owner]}") if by_peer else ("h2d", f"numa:{params['node']}")
            cost = costs.get((*ends, f"gpu:{gpu}"))
            if cost is None:
                return None
            seconds += panel * cost
        longest = max(longest, seconds)
    return longest


def section(view: RunView) -> Section | None:
    """A group for each order and number of GPUs. None without an LU over GPUs."""
    groups = []
    for group in lu_placements(view.run.points).values():
        best = group[0].seconds
        ranks = ranks_of([one.predicted for one in group])
        rows = [
            Row((
                one.gpus, f"numa:{one.params['node']}", _threads(one), one.params["by"] if len(one.gpus) > 1 else "-",
                "yes" if one.params["ahead"] == "1" else "no", format_seconds(one.seconds),
                f"{one.operations / one.seconds / 1e12:.3g}", format_fraction(one.seconds / best - 1),
                format_seconds(one.predicted) if one.predicted else "-", str(rank or "-"),
                format_fraction(group[-1].seconds / best - 1) if one is group[0] else "",
            ))
            for one, rank in zip(group, ranks, strict=True)
        ]  # fmt: skip
        groups.append(Group(tuple(rows)))
    if not groups:
        return None
    return Section(
        "lu-gpus", _TITLE, (Paragraph(_NOTE, note=True), Table(_TITLE, _COLUMNS, tuple(groups), stacks=True))
    )


def _threads(one: LuPlacement) -> str:
    where = one.params["threads_on"]
    return where if where == "near" else f"numa:{where}"
