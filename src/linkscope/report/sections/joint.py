"""Section: copies between one place and all GPUs at once."""

import itertools

from linkscope.model.text import rate_text
from linkscope.report.joint import Joint, JointLine, JointRow, joint_lines, joints
from linkscope.report.joint_bars import joint_figures
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Figures,
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
    table,
)
from linkscope.units import format_bytes, format_fraction

_TITLE = "One place and all GPUs at once"
_COLUMNS = (Column("Path"), Column("At", right=True, label="At"), Column("Total [interval]", strong=True))
_MARKDOWN_COLUMNS = tuple(map(Column, ("pattern", "path", "at", "total [interval]", "each flow's rate and share")))


def section(view: RunView) -> Section | None:
    """A table for each pattern; in the terminal and in Markdown one line for rows with similar totals."""
    found = joints(view.single.points)
    if not found:
        return None
    note = "The total of all flows in GB/s; the parts of a bar are the flows. "
    lines = joint_lines(view.single.points)
    short = [(line.pattern, line.paths, format_bytes(line.bytes), line.total, line.each) for line in lines]
    rows = sum(len(one.rows) for one in found)
    blocks: list[Block] = [
        Paragraph((note, METHOD), note=True, on=Output.PAGE),
        Figures(tuple(joint_figures(found, view.run.modelled)), on=Output.PAGE),
        more(f"All {rows} totals with the rate of each flow", *map(_table, found)),
    ]
    for pattern, of_pattern in itertools.groupby(lines, key=lambda line: line.pattern):
        blocks.append(Paragraph(pattern, on=Output.TERMINAL))
        blocks.append(Items.of([_line_text(line) for line in of_pattern], on=Output.TERMINAL))
    blocks.append(table(_TITLE, _MARKDOWN_COLUMNS, short, on=Output.MARKDOWN))
    titles = {Output.TERMINAL: f"{_TITLE}: totals of all flows"}
    return Section("joint", _TITLE, tuple(blocks), titles)


def _table(joint: Joint) -> Table:
    caption = (str(joint.family), *((" ", Span(joint.params, "folded")) if joint.params else ()))
    columns = (*_COLUMNS, *(Column(name, label=name) for name in joint.names))
    group = Group(tuple(Row(_cells(row, joint.names)) for row in joint.rows))
    return Table(f"{joint.family} {joint.params}", columns, (group,), caption, stacks=True, on=Output.PAGE)


def _cells(row: JointRow, names: tuple[str, ...]) -> tuple[Text, ...]:
    return (str(row.path), format_bytes(row.bytes), row.total_text, *(_part_text(row, name) for name in names))


def _part_text(row: JointRow, name: str) -> Text:
    part = row.part(name)
    return (f"{rate_text(part.rate)} ", Span(format_fraction(part.share), "count")) if part else ""


def _line_text(line: JointLine) -> str:
    each = f"; {line.each}" if line.each else ""
    return f"{line.paths}: {line.total} at {format_bytes(line.bytes)}{each}"
