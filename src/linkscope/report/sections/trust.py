"""Section: what not to trust."""

import itertools
from collections.abc import Sequence

from linkscope.model.curves import BATCHED, MODE, method_of, path_of
from linkscope.model.text import count_text, paths_text
from linkscope.report.anchors import explorer_link, path_anchor
from linkscope.report.doubts_table import Reason, excess, reasons, sound_text, strips, worst_points
from linkscope.report.managed_peaks import mended_text
from linkscope.report.outcome import older_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    Block,
    Column,
    Figure,
    Figures,
    Group,
    Item,
    Items,
    Output,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    Text,
    more,
)
from linkscope.report.shared import is_concurrent, is_contended
from linkscope.report.verdict import warnings
from linkscope.runfile import Point
from linkscope.units import format_against, format_bytes

_COLUMNS = (
    Column("Reason", strong=True), Column("Points", right=True, label="Points"),
    Column("Most of them", label="Most of them", wraps=True),
    Column("Widest interval", label="Widest interval"), Column("At", label="At", wraps=True),
)  # fmt: skip
_FAMILY = Column("Operation", label="Operation", wraps=True)
_MOST_WARNINGS = 3
_DOTS = (
    "The points with the widest intervals, or else rounds, against their target, which is the band. A dot is the "
    "median time of a round against that of all. Two groups of dots are two modes."
)


def section(view: RunView) -> Section:
    """The warnings of the run, points without a sound value by reason and family, and the rounds of the worst ten."""
    points = view.run.points
    blocks: list[Block] = []
    if listed := sorted(warnings(view.run), key=lambda warning: warning[1]):  # those of the whole run first
        items = tuple(Item((Span("Warning", "strong"), f" {text}"), failed) for text, failed in listed)
        most = len(items) if len(items) <= _MOST_WARNINGS else _MOST_WARNINGS - 1
        blocks.append(Items(items[:most]))
        blocks += [more(f"{len(items) - most} more warnings", Items(items[most:]))] if items[most:] else []
    found = reasons(points)
    text = " ".join(filter(None, (f"{sound_text(points)}.", older_text(points), mended_text(points))))
    if not found:
        return Section("trust", "What not to trust", (*blocks, Paragraph(f"{text} Every value can be used.")))
    blocks.append(Paragraph(f"{text} The others, by reason:"))
    blocks.append(Table("What not to trust", _COLUMNS, (Group(_by_reason(view, found)),), stacks=True))
    if len(found) > len({one.reason for one in found}):
        columns = (*_COLUMNS[:2], _FAMILY, *_COLUMNS[3:])
        rows = tuple(_row(view, one) for one in found)
        table = Table("What not to trust, by operation", columns, (Group(rows),), stacks=True)
        blocks.append(more(f"All {len(found)} rows by reason and operation", table))
    if worst := worst_points(points):
        blocks.append(Paragraph(_DOTS, note=True, on=Output.PAGE | Output.MARKDOWN))
        blocks.append(Figures(tuple(Figure("trust", one) for one in strips(worst, view.run.modelled)), on=Output.PAGE))
    return Section("trust", "What not to trust", tuple(blocks))


def _by_reason(view: RunView, found: Sequence[Reason]) -> tuple[Row, ...]:
    """A row for each reason with all its points: the operation with the most of them, and the widest interval of all
    operations, with its place.
    """
    rows = []
    for reason, of in itertools.groupby(found, key=lambda one: one.reason):
        listed = list(of)
        first, others = listed[0], listed[1:]
        left = f": {len(first.points)}; {count_text(len(others), 'other operation')}" if others else ""
        widest = max(listed, key=lambda one: excess(one.worst))
        count = sum(len(one.points) for one in listed)
        rows.append(_cells(view, widest, (reason, str(count), f"{first.family}{left}"), named=bool(others)))
    return tuple(rows)


def _row(view: RunView, one: Reason) -> Row:
    return _cells(view, one, (one.reason, str(len(one.points)), one.family), named=False)


def _cells(view: RunView, one: Reason, first: tuple[str, str, str], *, named: bool) -> Row:
    """`first`: the cells before the widest interval, which is that of `one`. `named`: its place has the operation."""
    worst = one.worst
    interval = format_against(one.width, worst.precision_target) if one.width is not None else "-"
    size = f", {format_bytes(worst.bytes)}" if worst.bytes else ""
    where = f"{paths_text([path_of(worst)])}{size}".replace("->", "→")
    link = _link(view, worst)
    place: Text = ((f"{one.family}: " if named else ""), Span(where, link=link) if link else where)
    return Row((*first, interval, place), notable=excess(worst) > 1)


def _link(view: RunView, point: Point) -> str:
    """The row of the path of a plain copy, or else its curve in the explorer; '' where the page has neither."""
    if any((row.kind, row.path) == (point.benchmark, path_of(point)) for row in view.path_rows):
        return f"#{path_anchor(point.benchmark, point.src, point.dst)}"
    if is_concurrent(point) or is_contended(point) or not point.bytes or not _has_values(view, point):
        return ""  # the explorer has no such curve
    single = "" if point.params.get(MODE, "") in BATCHED else "&mode=all"
    return explorer_link(point.benchmark, point.src, point.dst, method_of(point)) + single


def _has_values(view: RunView, point: Point) -> bool:
    """Whether the curve of a point has a value at any size."""
    curve = (path_of(point), method_of(point))
    return point.median_s is not None or any(
        other.median_s is not None and other.bytes and (path_of(other), method_of(other)) == curve
        for other in view.run.points
        if other.benchmark == point.benchmark
    )
