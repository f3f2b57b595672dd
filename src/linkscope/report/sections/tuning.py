"""Section: what tuning gains here."""

from collections.abc import Sequence

from linkscope.model.text import rate_text
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Block, Column, Ids, Output, Paragraph, Section, Table, Text, more, table
from linkscope.report.tuning import TuningRow, tuning_rows
from linkscope.units import format_fraction

_HEADING = "What tuning gains here"
_NOTE = (
    "The largest gains of staged, split or gathered copies, and of copies to new memory by several threads, against "
    "the plain copy of the same bytes between the same memories. The peak is that of the slowest leg. Times of "
    "scattered pieces include the calls if the host's clock timed them; other times leave the calls out. "
)
_COLUMNS = (
    Column("Path", wraps=True), Column("Size", right=True, label="Size"),
    Column("Plain copy [interval]", label="Plain copy"), Column("Best [interval]", strong=True, label="Best"),
    Column("Gain", right=True, strong=True, label="Gain"), Column("% of peak", right=True, label="% of peak"),
    Column("Method", wraps=True, label="Method"), Column("Points"),
)  # fmt: skip
_BRIEF = tuple(map(Column, ("path", "size", "plain copy", "best", "speed-up", "% of peak", "method")))
_MOST = 12  # in the terminal
_MOST_OPEN = 3  # on the page


def section(view: RunView) -> Section | None:
    """The largest gains, and a table of all sizes. None without a staged, split or scattered copy."""
    rows = tuning_rows(view.single.points)
    if not rows:
        return None
    largest = sorted((row for row in rows if row.shows), key=lambda row: -row.gain)[:_MOST]
    blocks: list[Block] = [Paragraph((_NOTE, METHOD), note=True, on=Output.PAGE)]
    if largest:
        cells = [_cells(row) for row in largest[:_MOST_OPEN]]
        blocks.append(table(_HEADING, _COLUMNS[:-1], cells, on=Output.PAGE, stacks=True))
    blocks.append(more(f"All {len(rows)} rows", _table(rows)))
    blocks.append(table(_HEADING, _BRIEF, [_cells(row) for row in rows], on=Output.MARKDOWN))
    if largest:
        blocks.append(table(_HEADING, _BRIEF, [_cells(row) for row in largest], on=Output.TERMINAL))
    else:
        none = "No method is faster than the plain copy."
        blocks.append(Paragraph(none, on=Output.TERMINAL | Output.PAGE))
    return Section("transfers", _HEADING, tuple(blocks))


def _table(rows: Sequence[TuningRow]) -> Table:
    cells = [(*_cells(row), (Ids(row.ids),)) for row in rows]
    return table(_HEADING, _COLUMNS, cells, on=Output.PAGE, stacks=True)


def _cells(row: TuningRow) -> tuple[Text, ...]:
    gain = f"×{row.gain:.3g}" if row.shows else "none"
    share = "" if row.share is None else format_fraction(row.share)
    return (
        row.where, row.size, rate_text(row.plain), rate_text(row.best), gain, share, row.method,
    )  # fmt: skip
