"""Section: links that several paths share."""

from linkscope.model.interference import Group
from linkscope.model.text import paths_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Figure,
    Fold,
    Items,
    Output,
    Paragraph,
    Section,
    table,
)
from linkscope.report.shared import HEADING, NOTE, PairRow, group_svg, shares, totals_without_single_rates

_PAIR_COLUMNS = (
    Column("Concurrent paths"), Column("Rate kept by the slower path [interval]"), Column("Slowed"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """Sentences; on the page also a drawing for each group, and all pairs. None without concurrent flows."""
    found = shares(view.run.points)
    if found is None:
        sentences = totals_without_single_rates(view.run.points)
        return Section("shared", HEADING, (Items.of(sentences, on=Output.TERMINAL),)) if sentences else None
    blocks: list[Block] = [
        Paragraph((f"{NOTE} {found.summary}. ", METHOD), note=True, on=Output.PAGE),
        Paragraph(f"{found.summary}.", on=Output.TERMINAL | Output.MARKDOWN),
    ]
    if found.sentences:
        blocks.append(Items.of(found.sentences))
    else:
        blocks.append(Paragraph("None: all paths kept their rates.", on=Output.PAGE))
    blocks += [_drawing(group, view.run.modelled) for group in found.groups]
    blocks += [_pairs(found.pairs)] if found.pairs else []
    return Section("shared", HEADING, tuple(blocks))


def _drawing(group: Group, modelled: bool) -> Figure:
    return Figure(f"shared {paths_text(group.paths)}", group_svg(group, modelled), on=Output.PAGE)


def _pairs(pairs: tuple[PairRow, ...]) -> Fold:
    rows = [(row.paths, row.kept, "yes" if row.slowed else "") for row in pairs]
    made = table("Concurrent pairs of paths", _PAIR_COLUMNS, rows)
    return Fold(f"All pairs: {len(pairs)}", (made,), role="table", on=Output.PAGE)
