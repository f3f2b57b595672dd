"""Section: a blocked LU over GPUs by placement, beside what copies and products predict (Spafford et al. 4.2)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from linkscope.flow import kind_of
from linkscope.model.computing import peak_of_gpu
from linkscope.model.lu import LuParts, factor_s, lu_s
from linkscope.model.text import count_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Items, Output, Paragraph, Row, Section, Table
from linkscope.report.sections.lu import ranks_of
from linkscope.report.trust import sign_of
from linkscope.runfile import Point, Run
from linkscope.stats import median
from linkscope.units import format_fraction, format_seconds

_TITLE = "Blocked LU over GPUs"
_NOTE = (
    "A digit is a GPU. Panels of 512 columns are dealt to the GPUs in turn. The prediction follows each panel: its GPU "
    "loads it, updates and factors it; the others take it. Copies have their measured rates, and updates that of a "
    "product of f64 matrices (or its peak). Factorizations never run at once, and need what updates leave of the time "
    "of one GPU. Look-ahead on one GPU shows whether it factors beside an update, with panels on an "
    "urgent stream or on a usual one. Words between threads, and loads of "
    "some of the GPUs that share a link, are not predicted. A placement's predicted rank is its place by that, of all "
    "placements of as many GPUs. Equal predictions share a place. The gap is the time of the worst placement over that "
    "of the best, less one."
)
_COLUMNS = (
    Column("GPUs", strong=True), Column("Matrix", label="Matrix on"), Column("Threads", label="Threads on"),
    Column("By", label="Panels by"), Column("Ahead", label="Look-ahead"), Column("Stream", label="Panel stream"),
    Column("Time", right=True, label="Time"),
    Column("Rate", right=True, label="TFLOP/s"), Column("Over best", right=True, label="Over best"),
    Column("Predicted", right=True, label="Predicted"), Column("Rank", right=True, label="Predicted rank"),
    Column("Gap", right=True, label="Gap"),
)  # fmt: skip
_DOUBLE = 8  # bytes
_COPIES = ("h2d", "d2h", "d2d")
_TOGETHER = {"host_to_all": "h2d", "one_to_all": "d2d"}

Costs = Mapping[tuple[str, str, str], float]  # seconds of a byte, by benchmark and ends


@dataclass(frozen=True)
class LuPlacement:
    """A placement of an LU over GPUs: its parameters, seconds with their 95 % interval, operations, and predicted
    seconds; None: unknown. `sign`: before numbers of a point that missed its precision."""

    params: Mapping[str, str]
    seconds: float
    operations: float
    predicted: float | None
    interval: Sequence[float] | None = None
    sign: str = ""

    @property
    def gpus(self) -> str:
        return self.params["gpus"]


def lu_placements(*runs: Run) -> dict[tuple[int, int], list[LuPlacement]]:
    """By order of the matrix and number of GPUs, the fastest placement first. The runs are of one machine."""
    points = [point for run in runs for point in run.points]
    found = [point for point in points if point.benchmark == "lu_gpus" and point.median_s]
    rate = next((one for one in map(_product_rate, runs) if one), None)
    costs = _Predictor(points, 1 / rate).learn(found) if rate else None
    groups: dict[tuple[int, int], list[LuPlacement]] = {}
    for point in found:
        params = point.params
        predicted = costs.predicted(params) if costs else None
        made = LuPlacement(
            params, point.median_s or 0.0, point.flows[0].operations or 0.0, predicted, point.ci95_s, sign_of([point])
        )  # fmt: skip
        groups.setdefault((_order(params), len(made.gpus)), []).append(made)
    return {key: sorted(groups[key], key=lambda one: one.seconds) for key in sorted(groups)}


def _order(params: Mapping[str, str]) -> int:
    return int(params["n"])


def _width(order: int) -> int:
    """Columns of a panel, as core/benchmarks/lu_gpus.cpp has them."""
    return 64 if order < 4096 else 512


def _product_rate(run: Run) -> float | None:
    """Operations a second of a product of f64 matrices on gpu:0: measured, or else the peak."""
    for point in run.points:
        if point.benchmark == "compute_dgemm" and point.src == point.dst and point.median_s:
            return (point.flows[0].operations or 0.0) / point.median_s or None
    return peak_of_gpu(run.header.machine, run.header.environment, "gpu:0", "f64")[0]


class _Predictor:
    """Times of LUs from rates of copies and products, and from LUs on one GPU."""

    def __init__(self, points: Sequence[Point], operation: float) -> None:
        self._operation = operation
        self._alone = {
            (point.benchmark, point.src, point.dst): 1 / (point.gbps * 1e9)
            for point in points if point.benchmark in _COPIES and point.gbps
        }  # fmt: skip
        self._together = {
            (_TOGETHER[point.benchmark], flow.src, flow.dst): 1 / (flow.gbps * 1e9)
            for point in points if point.benchmark in _TOGETHER
            for flow in point.flows if flow.gbps
        }  # fmt: skip
        self._gpus = len({dst for name, _, dst in self._alone if name == "h2d"})
        self._overlaps: dict[str, bool] = {}  # by priority of the stream that factors
        self._factors: dict[int, float] = {}  # seconds of a panel, by order of the matrix

    def learn(self, points: Sequence[Point]) -> "_Predictor":
        """Takes from LUs on one GPU what a factorization needs, and whether it runs beside an update."""
        single = [point for point in points if len(point.params["gpus"]) == 1]
        in_turn = [point for point in single if point.params["ahead"] == "0"]
        for point in in_turn:
            for stream in sorted({_stream(other.params) for other in single}):
                ahead = [
                    other.median_s or 0.0 for other in single
                    if other.params["ahead"] == "1" and _same_place(other.params, point.params)
                    and _stream(other.params) == stream
                ]  # fmt: skip
                parts = self._parts(point.params, overlaps=False)
                if parts and ahead:
                    self._learn_overlap(stream, point, parts, median(ahead))
        for point in single:  # orders without an LU that has no look-ahead
            parts = self._parts(point.params, overlaps=False)
            if parts and self._overlaps.get(_stream(point.params)) is False:
                self._factors.setdefault(_order(point.params), factor_s(parts, point.median_s or 0.0))
        return self

    def _learn_overlap(self, stream: str, in_turn: Point, parts: LuParts, ahead_s: float) -> None:
        """Takes whether look-ahead saves more than half of what it could on one GPU."""
        order, seconds = _order(in_turn.params), in_turn.median_s or 0.0
        self._factors[order] = factor_s(parts, seconds)
        both = replace(parts, overlaps=True, ahead=True, factor=self._factors[order])
        self._overlaps[stream] = seconds - ahead_s > (seconds - lu_s(both)) / 2

    def predicted(self, params: Mapping[str, str]) -> float | None:
        """Seconds; None without the rates of its copies, or without LUs on one GPU."""
        factor = self._factors.get(_order(params))
        overlaps = self._overlaps.get(_stream(params))
        if factor is None or overlaps is None:
            return None
        parts = self._parts(params, overlaps=overlaps)
        return lu_s(replace(parts, factor=factor)) if parts else None

    def _parts(self, params: Mapping[str, str], *, overlaps: bool) -> LuParts | None:
        gpus = [f"gpu:{digit}" for digit in params["gpus"]]
        node, order, by_peer = f"numa:{params['node']}", _order(params), params["by"] == "peer"
        panel = _DOUBLE * order * _width(order)
        loads = self._costs("h2d", [(node, gpu) for gpu in gpus])
        stores = self._costs("d2h", [(gpu, node) for gpu in gpus])
        pairs = [(a, b) for a in range(len(gpus)) for b in range(len(gpus)) if a != b]
        ends = [(gpus[a], gpus[b]) if by_peer else (node, gpus[b]) for a, b in pairs]
        takes = self._costs("d2d" if by_peer else "h2d", ends)
        if loads is None or stores is None or takes is None:
            return None
        if len(gpus) == self._gpus:  # all load at once
            loads = [self._together.get(("h2d", node, gpu), cost) for gpu, cost in zip(gpus, loads, strict=True)]
        return LuParts(
            order, _width(order), [panel * cost for cost in loads], [panel * cost for cost in stores],
            {pair: panel * cost for pair, cost in zip(pairs, takes, strict=True)}, self._crowd(gpus), self._operation,
            by_peer, params["ahead"] == "1", overlaps,
        )  # fmt: skip

    def _costs(self, benchmark: str, ends: Sequence[tuple[str, str]]) -> list[float] | None:
        found = [self._alone.get((benchmark, *one)) for one in ends]
        return None if None in found else [cost or 0.0 for cost in found]

    def _crowd(self, gpus: Sequence[str]) -> float:
        """How much longer a copy from one GPU to all others takes than one alone; their number where not measured."""
        ratios = [cost / self._alone[name, src, dst] for (name, src, dst), cost in self._together.items()
                  if name == "d2d" and (name, src, dst) in self._alone]  # fmt: skip
        others = max(1, len(gpus) - 1)
        return max(1.0, max(ratios) * others / max(1, self._gpus - 1)) if ratios else float(others)


def _stream(params: Mapping[str, str]) -> str:
    return params.get("panels", "usual")


def _same_place(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return all(one[key] == other[key] for key in ("gpus", "node", "n"))


def section(view: RunView) -> Section | None:
    """A group for each order and number of GPUs. None without an LU over GPUs."""
    groups, answers = [], []
    for (order, count), group in lu_placements(view.run).items():
        best = group[0].seconds
        ranks = ranks_of([one.predicted for one in group])
        rows = [
            Row((
                one.gpus, f"numa:{one.params['node']}", _threads(one), one.params["by"] if len(one.gpus) > 1 else "-",
                "yes" if one.params["ahead"] == "1" else "no", _stream(one.params),
                one.sign + format_seconds(one.seconds), f"{one.sign}{one.operations / one.seconds / 1e12:.3g}",
                format_fraction(one.seconds / best - 1), format_seconds(one.predicted) if one.predicted else "-",
                str(rank or "-"),
                format_fraction(group[-1].seconds / best - 1) if one is group[0] else "",
            ))
            for one, rank in zip(group, ranks, strict=True)
        ]  # fmt: skip
        groups.append(Group(tuple(rows)))
        answers.append(_answer(view.run, order, count, group))
    if not groups:
        return None
    table = Table(_TITLE, _COLUMNS, tuple(groups), stacks=True)
    blocks = (Items.of(answers, on=Output.PAGE), Paragraph(_NOTE, note=True), table)
    return Section("lu-gpus", _TITLE, blocks, label="LU", answers=tuple(answers))


def _answer(run: Run, order: int, count: int, group: Sequence[LuPlacement]) -> str:
    """The rate of the best variant and its share of the GPUs' peak, and how much longer the worst takes."""
    best, worst = group[0], group[-1]
    rate = best.operations / best.seconds
    peak = peak_of_gpu(run.header.machine, run.header.environment, "gpu:0", "f64")[0]
    share = f" ({format_fraction(rate / (count * peak))} of the peak)" if peak else ""
    text = f"n = {order} on {count_text(count, 'GPU')}: {best.sign}{rate / 1e12:.3g} TFLOP/s{share}"
    longer = (best.sign or worst.sign) + format_fraction(worst.seconds / best.seconds - 1)
    alike = {"by"} if count == 1 else set()  # parameters whose values mean the same here
    if sum(kind_of(place) == "numa" for place in run.header.machine["places"]) == 1:
        alike |= {"threads_on", "node"}  # the only NUMA node is the near one
    differ = [name for name in _VARIES if name not in alike and best.params.get(name) != worst.params.get(name)]
    if not differ:
        return f"{text}."
    if best.interval and worst.interval and worst.interval[0] <= best.interval[1]:
        return f"{text}. Its {len(group)} variants do not clearly differ."
    bad, good = (", ".join(_VARIES[name](one) for name in differ) for one in (worst, best))
    return f"{text}. The worst of {len(group)} variants takes {longer} longer: {bad} instead of {good}."


# How the name of a variant is built from its parameters.
_VARIES: Mapping[str, Callable[[LuPlacement], str]] = {
    "gpus": lambda one: f"on GPU{'s' * (len(one.gpus) > 1)} {','.join(one.gpus)}",
    "node": lambda one: f"the matrix on numa:{one.params['node']}",
    "threads_on": lambda one: f"threads on {_threads(one)}",
    "by": lambda one: "panels by peer copies" if one.params["by"] == "peer" else "panels through the host",
    "panels": lambda one: f"{'an' if _stream(one.params) == 'urgent' else 'a'} {_stream(one.params)} panel stream",
    "ahead": lambda one: "look-ahead" if one.params["ahead"] == "1" else "no look-ahead",
}


def _threads(one: LuPlacement) -> str:
    where = one.params["threads_on"]
    return where if where == "near" else f"numa:{where}"
