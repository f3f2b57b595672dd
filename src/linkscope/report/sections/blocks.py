"""Section: the number of blocks that a copy by SM or TMA needs."""

from linkscope.model.text import rate_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Column,
    Figure,
    Figures,
    Group,
    Legends,
    Output,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    Text,
    counted,
    table,
)
from linkscope.report.sweep import ENOUGH, SweepRow, sweep_rows
from linkscope.report.sweep_charts import SweepChart, sweep_charts
from linkscope.units import format_bytes, format_fraction

_NOTE = (
    "The number of thread blocks with which copies by SM or TMA reach {} of their best rate; the other SMs are free "
    "for other work. 8-32 means that more than 32 blocks are slower. SMs: those of the GPU whose threads copy. The "
    "last column has the rate of a copy engine on the same path at the same size. "
)
_COLUMNS = (
    Column("Path"), Column("Operation", wraps=True), Column("Method", wraps=True),
    Column("Best rate [interval]", strong=True), Column("At", right=True, label="At"),
    Column("Blocks", right=True, strong=True, label="Blocks"), Column("SMs", right=True, label="SMs"),
    Column("Copy engine [interval]", wraps=True, label="Copy engine"),
)  # fmt: skip
_MARKDOWN_COLUMNS = tuple(
    map(
        Column,
        ("operation", "path", "how", "at", "best rate [interval]", "blocks for 95 %", "SMs", "copy engine [interval]"),
    )
)


def section(view: RunView) -> Section | None:
    """A table of all sweeps over blocks, and a chart for each operation. None without a sweep."""
    rows = sweep_rows(view.single)
    if not rows:
        return None
    charts = sweep_charts(rows, modelled=view.run.modelled)
    group = Group(tuple(Row(_cells(row)) for row in rows))
    short = [(str(row.family), row.paths, row.params, *_numbers(row)) for row in rows]
    return Section(
        "blocks", "Number of blocks",
        (
            Paragraph((_NOTE.format(format_fraction(ENOUGH)), METHOD), note=True, on=Output.PAGE),
            Table("Number of blocks", _COLUMNS, (group,), stacks=True, on=Output.PAGE),
            table("Number of blocks", _MARKDOWN_COLUMNS, short, on=Output.MARKDOWN),
            Figures(tuple(map(_figure, charts)), on=Output.PAGE),
        ),
    )  # fmt: skip


def _cells(row: SweepRow) -> tuple[Text, ...]:
    size, best, needed, sms, other = _numbers(row)
    return (row.paths, *counted(row.path_count)), str(row.family), row.params, best, size, needed, sms, other


def _numbers(row: SweepRow) -> tuple[str, str, str, str, str]:
    return format_bytes(row.bytes), row.drawn.best_text, row.needed, row.sms, rate_text(row.other)


def _figure(chart: SweepChart) -> Figure:
    caption = (
        f"Rate over blocks, GB/s, {chart.operation}; all numbers are in the tables of ",
        Span("Paths", link="#paths"),
    )
    more = f"and {chart.not_drawn} more in the table" if chart.not_drawn else ""
    return Figure(f"blocks {chart.operation}", chart.svg, caption, legend=Legends(tuple(chart.legend), more))
