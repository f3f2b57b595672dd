"""Section: heat maps from each place to each place."""

from linkscope.report.heat import Heat, heat_svg, heats
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Block, Column, Figure, Figures, Fold, Paragraph, Section, Span, Text, table

_MOST_OPEN, _FIRST_OPEN = 4, 2  # a page with many families shows only the first ones open
_MARGIN = 16  # around a map, in pixels
_NOTE = (
    "Row: source; column: destination. Rates are the best batched rates over all sizes, coloured by % of peak, or "
    "relative to the best path. Bidirectional rates are totals; their % of peak is that of the direction named. Times "
    "are coloured relative to the shortest. {}; a cell that missed precision has a dashed outline. A cell without "
    "colour is not comparable; the reason is below its map. Empty: not measured. "
)


def section(view: RunView) -> Section:
    """The maps by family, with the usual values of each family."""
    families: dict[tuple[str, str], list[Heat]] = {}
    for heat in heats(view.single.points):
        families.setdefault((heat.family, heat.usual), []).append(heat)
    if not families:
        return Section("pairs", "Heat maps", (Paragraph("No method has values on two paths or more."),))
    blocks: list[Block] = [Paragraph((_NOTE.format(view.sign_means), METHOD), note=True)]
    for number, ((family, usual), maps) in enumerate(families.items()):
        figures = Figures(tuple(_figure(heat, view.run.modelled) for heat in maps), maps=True)
        summary: Text = (" ", Span(f"unless given: {usual}", "folded")) if usual else ""
        is_open = number < _FIRST_OPEN or len(families) <= _MOST_OPEN
        blocks.append(Fold(summary, (figures,), heading=family, open=is_open))
    return Section("pairs", "Heat maps", tuple(blocks))


def _figure(heat: Heat, modelled: bool) -> Figure:
    what = f"{heat.what[:1].upper()}{heat.what[1:]}"
    caption = (Span(what, "strong"), f": {heat.method}" if heat.method else "")
    columns = (Column("from \\ to"), *(Column(column, right=True) for column in heat.columns))
    rows = [(row, *(_cell(heat, row, column) for column in heat.columns)) for row in heat.rows]
    return Figure(
        f"heat {heat.title}", heat_svg(heat, modelled), caption, label=heat.title,
        table=table(f"{heat.title}, table", columns, rows),
        anchor=heat.anchor, width=heat.width + _MARGIN,
    )  # fmt: skip


def _cell(heat: Heat, row: str, column: str) -> Text:
    cell = heat.cells.get((row, column))
    return (f"{cell.text} ", Span(cell.below, "count")) if cell else ""
