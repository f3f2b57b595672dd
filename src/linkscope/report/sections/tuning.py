"""Section: what tuning gains here."""

from linkscope.model.text import rate_text
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Block, Column, Ids, Output, Paragraph, Section, Text, table
from linkscope.report.tuning import TuningRow, tuning_rows
from linkscope.units import format_bytes, format_fraction

_HEADING = "What tuning gains here"
_NOTE = (
    "The best measured method at each size, against the plain copy of the same bytes between the same memories: "
    "staged through pinned slots, split over streams, or scattered pieces by one call or kernel. The peak is that of "
    "the slowest leg of the path. "
)
_COLUMNS = (
    Column("Path", wraps=True), Column("Size", right=True, label="Size"),
    Column("Plain copy [interval]", label="Plain copy"), Column("Best [interval]", strong=True, label="Best"),
    Column("Speed-up", right=True, strong=True, label="Speed-up"), Column("% of peak", right=True, label="% of peak"),
    Column("Method", wraps=True, label="Method"), Column("Points"),
)  # fmt: skip
_BRIEF = tuple(map(Column, ("path", "size", "plain copy", "best", "speed-up", "% of peak", "method")))
_MOST = 12  # in the terminal


def section(view: RunView) -> Section | None:
    """A table of all sizes; in the terminal the largest gains. None without a staged, split or scattered copy."""
    rows = tuning_rows(view.single.points)
    if not rows:
        return None
    largest = sorted((row for row in rows if row.shows), key=lambda row: -row.gain)[:_MOST]
    blocks: list[Block] = [Paragraph((_NOTE, METHOD), note=True, on=Output.PAGE)]
    blocks.append(
        table(_HEADING, _COLUMNS, [(*_cells(row), (Ids(row.ids),)) for row in rows], on=Output.PAGE, stacks=True)
    )
    blocks.append(table(_HEADING, _BRIEF, [_cells(row) for row in rows], on=Output.MARKDOWN))
    if largest:
        blocks.append(table(_HEADING, _BRIEF, [_cells(row) for row in largest], on=Output.TERMINAL))
    else:
        blocks.append(Paragraph("No method is faster than the plain copy.", on=Output.TERMINAL))
    return Section("transfers", _HEADING, tuple(blocks))


def _cells(row: TuningRow) -> tuple[Text, ...]:
    gain = f"{row.gain:.3g}×" if row.shows else "none"
    share = "" if row.share is None else format_fraction(row.share)
    return (
        row.where, format_bytes(row.bytes), rate_text(row.plain), rate_text(row.best), gain, share, row.method,
    )  # fmt: skip
