"""Section: what not to trust."""

from collections.abc import Sequence

from linkscope.model.curves import path_of
from linkscope.model.text import count_text, paths_text
from linkscope.report.doubts_table import Reason, excess, reason_of, reasons, strips, worst_points
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Column, Figure, Group, Paragraph, Row, Section, Table, Text, more
from linkscope.units import format_against, format_bytes

_MOST, _MOST_OF_REASON = 6, 2  # rows that are not folded
_COLUMNS = (
    Column("Reason", strong=True), Column("Operation", label="Operation", wraps=True),
    Column("Points", right=True, label="Points"), Column("Widest interval", label="Widest interval"),
    Column("At", label="At"),
)  # fmt: skip
_DOTS = (
    "The rounds of the points with the widest intervals. A dot is the median of a round, as a difference to the "
    "median of all; the band is the target precision. Dots in two groups show two modes."
)


def section(view: RunView) -> Section:
    """Points without a sound value by reason and family, and the rounds of the worst ten."""
    points = view.run.points
    sound = sum(reason_of(point) is None for point in points)
    text = f"{sound} of {count_text(len(points), 'point')} are measured within their target precision."
    found = reasons(points)
    if not found:
        return Section("trust", "What not to trust", (Paragraph(f"{text} Every value can be used."),))
    blocks: list[Block] = [Paragraph(f"{text} The table names the others, the most serious reason first.")]
    shown, rest = _divided(found)
    blocks.append(_table(shown))
    if rest:
        blocks.append(more(f"{count_text(len(rest), 'more row')} of the table", _table(rest)))
    if worst := worst_points(points):
        blocks.append(Figure("trust", strips(worst, view.run.modelled), _DOTS, label="Rounds of the worst points"))
    return Section("trust", "What not to trust", tuple(blocks))


def _divided(found: Sequence[Reason]) -> tuple[list[Reason], list[Reason]]:
    """The rows that are shown, which leave room for each reason, and the others."""
    shown: list[Reason] = []
    for one in found:
        if len(shown) < _MOST and sum(other.reason == one.reason for other in shown) < _MOST_OF_REASON:
            shown.append(one)
    return shown, [one for one in found if one not in shown]


def _table(found: Sequence[Reason]) -> Table:
    return Table("What not to trust", _COLUMNS, (Group(tuple(map(_row, found))),), stacks=True)


def _row(one: Reason) -> Row:
    worst = one.worst
    interval = format_against(one.width, worst.precision_target) if one.width is not None else "-"
    size = f", {format_bytes(worst.bytes)}" if worst.bytes else ""
    cells: tuple[Text, ...] = (
        one.reason, one.family, str(len(one.points)), interval, f"{paths_text([path_of(worst)])}{size}",
    )  # fmt: skip
    return Row(cells, notable=excess(worst) > 1)
