"""Section: what not to trust."""

import itertools
from collections.abc import Sequence

from linkscope.model.curves import BATCHED, MODE, method_of, path_of
from linkscope.model.text import count_text, paths_text
from linkscope.report.anchors import explorer_link, path_anchor
from linkscope.report.doubts_table import Reason, excess, reasons, sound_text, strips, worst_points
from linkscope.report.outcome import older_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    Block,
    Column,
    Figure,
    Group,
    Item,
    Items,
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
    Column("Operation with the most", label="Operation", wraps=True),
    Column("Its widest interval", label="Widest interval"), Column("At", label="At"),
)  # fmt: skip
_FAMILY = Column("Operation", label="Operation", wraps=True)
_MOST_WARNINGS = 2
_DOTS = (
    "The rounds of the points with the widest intervals. A dot is the median of a round against the median of all; the "
    "band is the target precision. Two groups of dots are two modes."
)


def section(view: RunView) -> Section:
    """The warnings of the run, points without a sound value by reason and family, and the rounds of the worst ten."""
    points = view.run.points
    blocks: list[Block] = []
    if listed := sorted(warnings(view.run), key=lambda warning: warning[1]):  # the table has the failed points
        items = tuple(Item((Span("Warning", "strong"), f" {text}"), failed) for text, failed in listed)
        most = len(items) if len(items) <= _MOST_WARNINGS else _MOST_WARNINGS - 1
        blocks.append(Items(items[:most]))
        blocks += [more(f"{len(items) - most} more warnings", Items(items[most:]))] if items[most:] else []
    found = reasons(points)
    text = " ".join(filter(None, (f"{sound_text(points)}.", older_text(points))))
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
        blocks.append(Figure("trust", strips(worst, view.run.modelled), _DOTS, label="Rounds of the worst points"))
    return Section("trust", "What not to trust", tuple(blocks))


def _by_reason(view: RunView, found: Sequence[Reason]) -> tuple[Row, ...]:
    """A row for each reason with all its points; the operation is the one with the most."""
    rows = []
    for _, of in itertools.groupby(found, key=lambda one: one.reason):
        first, *others = of
        count = len(first.points) + sum(len(one.points) for one in others)
        left = f": {len(first.points)}; {count_text(len(others), 'other operation')}" if others else ""
        rows.append(_row(view, first, count, left))
    return tuple(rows)


def _row(view: RunView, one: Reason, count: int | None = None, left: str = "") -> Row:
    """`count`: the points of all families of the reason; `left` is the text on the other families."""
    worst = one.worst
    interval = format_against(one.width, worst.precision_target) if one.width is not None else "-"
    size = f", {format_bytes(worst.bytes)}" if worst.bytes else ""
    where = f"{paths_text([path_of(worst)])}{size}".replace("->", "→")
    link = _link(view, worst)
    cells: tuple[Text, ...] = (
        one.reason, str(count or len(one.points)), f"{one.family}{left}", interval,
        (Span(where, link=link),) if link else where,
    )  # fmt: skip
    return Row(cells, notable=excess(worst) > 1)


def _link(view: RunView, point: Point) -> str:
    """The row of the path of a plain copy, or else its curve in the explorer; '' where the page has neither."""
    if any((row.kind, row.path) == (point.benchmark, path_of(point)) for row in view.path_rows):
        return f"#{path_anchor(point.benchmark, point.src, point.dst)}"
    if is_concurrent(point) or is_contended(point) or not point.bytes or point.median_s is None:
        return ""  # the explorer has no such curve
    single = "" if point.params.get(MODE, "") in BATCHED else "&mode=all"
    return explorer_link(point.benchmark, point.src, point.dst, method_of(point)) + single
