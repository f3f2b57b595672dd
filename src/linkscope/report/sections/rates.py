"""Section of terminal and Markdown: best rates."""

from linkscope.model.text import range_share
from linkscope.report.overview import ALIKE, FamilyRows, Row
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    Block,
    Column,
    Items,
    Output,
    Paragraph,
    Section,
    table,
)
from linkscope.report.trust import signs_mean

_ROW = (
    f"A row holds paths whose best rates agree within {ALIKE:.0%} or within their intervals: the median, and the range "
    "from the lowest to the highest end of their intervals. Brackets hold the interval of one path. Bidirectional "
    "rates are totals; their % of peak is that of the direction named."
)
_MARKDOWN_COLUMNS = (
    *map(Column, ("method", "path", "how", "best rate [interval]")),
    *(Column(name, right=True) for name in ("% of peak", "at", "half from", "smallest", "batched", "single")),
)


def section(view: RunView) -> Section:
    """The best rates of all families. The terminal has only the notes here, because rates_by_group.py has the rates."""
    blocks = [*_terminal(view), *_markdown(view.families)]
    return Section("best", "Best rates", tuple(blocks), titles={Output.TERMINAL: ""})


def _terminal(view: RunView) -> list[Block]:
    if view.families:
        cells = " ".join(text for family in view.families for row in family.rows for text in signed_texts(row))
        means = "".join(f" {text}." for text in signs_mean(cells))
        return [Paragraph(_ROW + means, on=Output.TERMINAL)]
    if any(point.median_s is not None for point in view.run.points):
        return []
    return [Paragraph("No point has a value.", bad=True, on=Output.TERMINAL)]


def signed_texts(row: Row) -> tuple[str, ...]:
    """The texts of a row that may have a sign."""
    return (row.best_text, row.missed_text, row.batched_text, row.single_text)


def _markdown(families: list[FamilyRows]) -> list[Block]:
    rows = [(str(family.family), *_markdown_cells(row)) for family in families for row in family.rows]
    if not rows:
        return [Paragraph("No point has a value.", on=Output.MARKDOWN)]
    notes = [
        f"{family.family}: {text}"
        for family in families
        for text in (family.minor_params_text, f"peak: {family.limits}" if family.limits else "")
        if text
    ]
    notes += signs_mean(" ".join(cell for row in rows for cell in row))
    found: list[Block] = [table("Best rates", _MARKDOWN_COLUMNS, rows, on=Output.MARKDOWN)]
    return [*found, Items.of(notes, on=Output.MARKDOWN)] if notes else found


def _markdown_cells(row: Row) -> tuple[str, ...]:
    return (
        row.paths, "; ".join(filter(None, (row.params, row.note))),
        " ".join(filter(None, (row.best_text, f"({row.missed_text})" if row.missed_text else ""))),
        range_share(row.share), row.at_text, row.half_text, row.smallest_text, row.batched_text, row.single_text,
    )  # fmt: skip
