"""The page of a comparison: what changed, all pairs of values, what is not compared, and what else differs."""

from collections.abc import Sequence
from dataclasses import dataclass

from linkscope.compare.environment import Difference
from linkscope.compare.headline import headline
from linkscope.compare.ratio_figure import ratio_figure, reach_text
from linkscope.compare.text import PathVerdict, by_path, cells, difference_cells, left_out
from linkscope.compare.verdict import CHANGED, Comparison
from linkscope.model.text import count_text
from linkscope.report.heading import machine_title
from linkscope.report.html import framed
from linkscope.report.section import (
    Block,
    Column,
    Figure,
    Group,
    Items,
    Legends,
    Paragraph,
    Row,
    Section,
    Span,
    Table,
    Text,
    more,
    table,
)
from linkscope.runfile import Run
from linkscope.units import format_fraction

_MOST = 15  # rows that are not folded
_COLUMNS = (
    Column("Verdict", strong=True), Column("Time after over before", label="Change"),
    Column("Before", right=True, label="Before"), Column("After", right=True, label="After"),
    Column("At", right=True, label="At"), Column("Path and method", label="Path", wraps=True),
)  # fmt: skip


@dataclass(frozen=True)
class Sides:
    """The runs before and after, whether they are of one machine, and the facts that differ."""

    before: Sequence[Run]
    after: Sequence[Run]
    same_machine: bool
    differs: Sequence[Difference]


def comparison_page(sides: Sides, compared: Comparison, *, noisy: bool = False) -> str:
    """The HTML of a comparison. `noisy`: points whose noise hides a change of 10 % are judged as well."""
    runs = [*sides.before, *sides.after]
    modelled = any(run.modelled for run in runs)
    made = [_changes(compared, noisy), _values(compared, modelled), _not_compared(compared, runs), _differs(sides)]
    notes = [] if sides.same_machine else ["The runs are of different machines: paths of the same name are compared."]
    about = [_about(run) for run in runs]
    return runs_page(f"{machine_title(sides.before[-1])} before and after", about, runs, made, notes)


def runs_page(
    title: str, about: Sequence[str], runs: Sequence[Run], made: Sequence[Section], warnings: Sequence[str]
) -> str:
    """The page of several runs: `about` stands below the title, and the sections are the chapters."""
    return framed(
        "runs.html",
        title=title,
        modelled=any(run.modelled for run in runs),
        version=str(runs[-1].header.tool.get("version", "")),
        nav=[(section.anchor, section.title.split(":")[0]) for section in made],
        scripts=("frame.js",),
        about=about,
        warnings=[*warnings, *(f"{run.path}: {text}" for run in runs for text in run.warnings)],
        sections=made,
    )


def _about(run: Run) -> str:
    mark = "MODELLED, " if run.modelled else ""
    return f"{run.path}: {mark}{machine_title(run)}, started {run.header.started}"


def _changes(compared: Comparison, noisy: bool) -> Section:
    paths = by_path(compared)
    changed = sorted((one for one in paths if one.verdict in CHANGED), key=lambda one: -_size(one))
    others = [one for one in paths if one.verdict not in CHANGED]
    margins = " and ".join(dict.fromkeys(format_fraction(one) for one in reversed(compared.margins)))
    blocks: list[Block] = [Paragraph((Span(headline(compared, noisy=noisy), "strong"),))]
    blocks.append(Paragraph(f"Brackets are 95 % intervals of the ratio of times. The margin is {margins}."))
    if changed:
        blocks.append(_table("Paths that changed", changed[:_MOST]))
        if rest := changed[_MOST:]:
            blocks.append(more(f"{count_text(len(rest), 'smaller change')}", _table("Smaller changes", rest)))
    if others:
        blocks.append(more(f"All {len(others)} paths without a change", _table("Paths without a change", others)))
    return Section("changes", "What changed", tuple(blocks))


def _size(one: PathVerdict) -> float:
    """The change as a factor; a path that broke or was mended comes first."""
    return max(one.worst.ratio, 1 / one.worst.ratio) if one.worst.ratio else float("inf")


def _table(label: str, paths: Sequence[PathVerdict]) -> Table:
    rows: list[Row] = []
    for one in paths:
        texts: tuple[Text, ...] = cells(one)
        rows.append(Row(texts))
    return Table(label, _COLUMNS, (Group(tuple(rows)),), stacks=True)


def _values(compared: Comparison, modelled: bool) -> Section:
    svg, legend = ratio_figure(compared, modelled)
    if not svg:
        return Section("values", "All values", (Paragraph("No point has a value on both sides."),))
    text = f"A mark is a point. The band is the wider margin{reach_text(compared)}."
    figure = Figure("values", svg, legend=Legends(tuple(legend)))
    return Section("values", "All values: time after over time before", (Paragraph(text), figure))


def _not_compared(compared: Comparison, runs: Sequence[Run]) -> Section:
    found = left_out(compared, runs)
    block: Block = Items.of([f"{one}." for one in found]) if found else Paragraph("Every point is compared.")
    return Section("not-compared", "Not compared", (block,))


def _differs(sides: Sides) -> Section:
    if not sides.differs:
        return Section("differs", "What else differs", (Paragraph("Nothing else that linkscope records differs."),))
    columns = (Column("Fact", strong=True), Column("Before", label="Before"), Column("After", label="After"))
    rows = [difference_cells(one) for one in sides.differs]
    blocks: list[Block] = [table("What else differs", columns, rows[:_MOST])]
    if rest := rows[_MOST:]:
        blocks.append(more(f"{count_text(len(rest), 'more difference')}", table("More differences", columns, rest)))
    return Section("differs", "What else differs", tuple(blocks))
