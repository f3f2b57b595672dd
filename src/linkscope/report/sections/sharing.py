"""Section: several clients of one GPU, as threads, processes, processes under MPS or green contexts."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace

from linkscope.report.family_words import operation_text, work_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Column,
    Group,
    Items,
    Output,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    Text,
    more,
    prose,
)
from linkscope.report.trust import has_warning, sign_of, signed
from linkscope.runfile import Flow, Point
from linkscope.stats import jain_index
from linkscope.units import format_rate, format_seconds

_TITLE = "Sharing one GPU"
_NOTE = (
    "Each client does the same work. A rate is that of the slowest and the fastest client. Jain's index is 1 if all "
    "clients get the same. p99 is the time that 1 % of the operations exceed, over alone: of the slowest client over "
    "that of one client alone in the same way. "
)
_ALONE = "The run has values of single clients alone. `linkscope run --suite sharing` measures several at once."
_WAYS = {
    "threads": "threads of one process", "processes": "processes in turn", "mps": "processes under MPS",
    "green": "green contexts",
}  # fmt: skip
_COLUMNS = (
    Column("Work", strong=True), Column("Clients", label="Clients"), Column("Each", right=True, label="Each"),
    Column("Total", right=True, label="Total"), Column("Jain", right=True, label="Jain's index"),
    Column("Median", right=True, label="Median"), Column("p99", right=True, label="p99"),
    Column("p99 over alone", right=True, label="p99 over alone"),
)  # fmt: skip
_PREFIX = "shared_"


def section(view: RunView) -> Section | None:
    """A row for each work, way and number of clients. None for a run without clients of one GPU."""
    points = [point for point in view.run.points if "clients" in point.params and point.flows and point.median_s]
    if not points:
        return None
    found: dict[tuple[str, str, str, str], dict[int, Point]] = {}
    for point in points:
        key = (point.benchmark, point.src, point.dst, point.params["way"])
        found.setdefault(key, {})[int(point.params["clients"])] = point
    order = list(_WAYS)
    several = _of_several_paths(points)
    groups = tuple(
        Group(tuple(_row(point, one.get(1), _path(point, several)) for _, point in sorted(one.items())))
        for _, one in sorted(found.items(), key=lambda item: (item[0][:3], order.index(item[0][3])))
    )
    table = Table(_TITLE, _COLUMNS, groups, stacks=True)
    count = sum(len(group.rows) for group in groups)
    answers = tuple(_findings([point for point in points if not has_warning(point)], several))
    return Section("sharing", _TITLE, (
        Items.of(answers, on=Output.PAGE) if answers else Paragraph(prose(_ALONE), on=Output.PAGE),
        more(f"All {count} rows as a table", Paragraph((_NOTE, METHOD), note=True), table),
        Paragraph(_NOTE.strip(), on=Output.TERMINAL | Output.MARKDOWN),
        replace(table, on=Output.TERMINAL | Output.MARKDOWN),
    ), label="Sharing", answers=answers)  # fmt: skip


def _of_several_paths(points: Sequence[Point]) -> set[str]:
    """The benchmarks that ran on several paths."""
    ends = {(point.benchmark, point.src, point.dst) for point in points}
    return {name for name, count in Counter(name for name, *_ in ends).items() if count > 1}


def _path(point: Point, several: Collection[str]) -> str:
    """', numa:0 and gpu:1' where its benchmark ran on several paths; '' elsewhere."""
    return f", {point.src} and {point.dst}" if point.benchmark in several else ""


def _findings(points: Sequence[Point], several: Collection[str]) -> list[Text]:
    """For each work and path with several clients what all of the largest number get together, by each way, the best
    first, and its ratio to one client alone in the same way.
    """
    works: dict[str, list[Point]] = {}
    for point in points:
        name = work_text(point.benchmark.removeprefix(_PREFIX)) + _path(point, several)
        works.setdefault(name, []).append(point)
    texts: list[Text] = []
    for work, of in sorted(works.items()):
        most = max(len(point.flows) for point in of)
        if most == 1:
            continue
        alone = {point.params["way"]: point for point in of if len(point.flows) == 1}
        together = sorted((point for point in of if len(point.flows) == most), key=_sum, reverse=True)
        listed = ", ".join(_against_one(point, alone.get(point.params["way"])) for point in together)
        texts.append((Span(f"{work}, {most} clients: ", "strong"), f"{listed}."))
    return texts


def _against_one(point: Point, alone: Point | None) -> str:
    """'processes under MPS ~413,229 /s (×3.9 of one alone)'."""
    ratio = "" if alone is None else f" ({sign_of((point, alone))}×{_sum(point) / _sum(alone):.2g} of one alone)"
    return f"{_WAYS[point.params['way']]} {signed(_total(point), [point])}{ratio}"


def _sum(point: Point) -> float:
    return sum(_per_s(flow) for flow in point.flows)


def _total(point: Point) -> str:
    return _written(point, _sum(point))


def _row(point: Point, alone: Point | None, path: str) -> Row:
    rates = [_per_s(flow) for flow in point.flows]
    tails = [flow.p99_s for flow in point.flows if flow.p99_s]
    medians = [flow.p50_s for flow in point.flows if flow.p50_s]
    before = alone.flows[0].p99_s if alone else None
    clients, jain = len(point.flows), jain_index(rates)
    return Row((
        operation_text(point.benchmark.removeprefix(_PREFIX)) + path,
        f"{clients} {_WAYS[point.params['way']]}" if clients > 1 else f"1, as {_WAYS[point.params['way']]}",
        " to ".join(dict.fromkeys((_written(point, min(rates)), _written(point, max(rates))))),
        _total(point), f"{jain:.4f}" if clients > 1 and jain is not None else "-",
        format_seconds(max(medians)) if medians else "-", format_seconds(max(tails)) if tails else "-",
        f"{max(tails) / before:.3g}" if tails and before and clients > 1 else "-",
    ))  # fmt: skip


def _per_s(flow: Flow) -> float:
    return 1 / flow.median_s if flow.median_s else 0.0


def _written(point: Point, per_s: float) -> str:
    """A rate: GB/s where the operation has bytes, otherwise operations a second."""
    size = point.flows[0].bytes
    return format_rate(per_s * size / 1e9) if size else f"{per_s:,.0f} /s"
