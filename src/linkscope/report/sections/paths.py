"""Section: the charts and all numbers of every path."""

import re

from linkscope.report.panels import DRAWN_AS_ONE, Cells, Panel, panels
from linkscope.report.panels import Table as PanelTable
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Controls,
    Figure,
    Figures,
    Fold,
    Group,
    Legends,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    prose,
)
from linkscope.runfile import Run

_NOTE = (
    "Solid lines: batched copies. Dashed lines: single copies. Rates are those of the named direction, also in "
    "bidirectional copies; to or from all GPUs they are totals. Sweeps over blocks are drawn with the usual number of "
    "blocks. Bars are intervals; an interval shorter than its marker is hidden. A ring marks missed precision. Methods "
    f"that agree at all sizes within {DRAWN_AS_ONE:.0%} or within their intervals are drawn as one line."
)
_DOWNLOAD = (
    "A download holds the numbers of these tables as shown, in bytes, seconds and GB/s. `linkscope export RUN.jsonl -o "
    "RUN.csv` writes all digits and flows. A printed page holds the charts and the open tables. The line below each "
    "table states the timing method of its values and the confidence level of their intervals: [Method](#method)."
)
_COLUMNS = (
    Column("Size", right=True), Column("Mode"), Column("Time [interval]"), Column("Rate [interval]"),
    Column("Total [interval]"), Column("% of peak", right=True), Column("Within a round", right=True),
    Column("Between rounds", right=True), Column("Rounds", right=True), Column("Status"),
)  # fmt: skip
_TOTAL = 4  # the column of totals


def section(view: RunView) -> Section:
    """A fold for each path."""
    found = panels(view.single.points, modelled=view.run.modelled)
    folds = (_fold(panel, number == 0) for number, panel in enumerate(found))
    notes = Paragraph(_NOTE, note=True), Controls(_file_name(view.run)), Paragraph(prose(_DOWNLOAD), note=True)
    return Section("paths", "Every path", (*notes, *folds))


def _fold(panel: Panel, is_open: bool) -> Fold:
    blocks: list[Block] = []
    charts = (("rate", panel.rate_svg, "Rate over size, GB/s"), ("time", panel.time_svg, "Time over size"))
    if figures := tuple(Figure(f"{what} {panel.path}", svg, text, below=True) for what, svg, text in charts if svg):
        more = f"and {panel.not_drawn} more in the tables" if panel.not_drawn else ""
        blocks += [Figures(figures), Legends(tuple(panel.legend), more)]
    blocks += [Paragraph((Span(f"Peak {limit}"),), note=True) for limit in panel.limits]
    blocks += [Paragraph((f"Timing method {panel.timed}: ", METHOD), note=True)] if panel.timed else []
    numbers: list[Block] = []
    for one in panel.tables:
        numbers += [_table(one), *([Paragraph(one.basis, note=True)] if one.basis else [])]
    blocks.append(Fold("Numbers", tuple(numbers), role="numbers"))
    summary = (" ", Span(panel.best, "value"))
    return Fold(summary, tuple(blocks), heading=panel.path, role="panel", anchor=panel.anchor, open=is_open)


def _table(of: PanelTable) -> Table:
    shown = [index for index in range(len(_COLUMNS)) if of.has_total or index != _TOTAL]
    rows = (_cells(row) for row in of.rows)
    group = Group(tuple(Row(tuple(cells[index] for index in shown)) for cells in rows))
    return Table(of.heading, tuple(_COLUMNS[index] for index in shown), (group,), of.heading, dense=True)


def _cells(row: Cells) -> tuple[str, ...]:
    status = f"{row.status}: {row.reason}" if row.reason else row.status
    return (
        row.size, row.mode, row.time, row.rate, row.total, row.share, row.within, row.between, row.rounds, status,
    )  # fmt: skip


def _file_name(run: Run) -> str:
    """The base name of downloads: the name of the run file, with MODELLED for modelled runs."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", run.path.name.split(".jsonl")[0]) or "run"
    return f"MODELLED-{name}" if run.modelled else name
