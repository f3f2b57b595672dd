"""Section: the most important answers, what to do first, and what to check before using them."""

import textwrap

from linkscope.advise import Advice
from linkscope.model.text import sizes_text
from linkscope.report.directions import direction_bars, shown_points
from linkscope.report.doubts_table import counts_text, reason_of, sound_text
from linkscope.report.head import tiles
from linkscope.report.headline import headline_rows
from linkscope.report.machine_map import legends, machine_svg
from linkscope.report.managed import managed_rates
from linkscope.report.pair_rates import main_matrix
from linkscope.report.pair_strip import strip_svg, strip_text
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    Bars,
    Block,
    Column,
    Figure,
    Output,
    Paragraph,
    Section,
    Span,
    Split,
    Text,
    Tiles,
    table,
)
from linkscope.report.sections.advice import GAIN, SIZES, by_use, gain_cells, is_first
from linkscope.report.uniformity import between_gpus
from linkscope.report.verdict import (
    failed_text,
    other_warnings,
    too_short_text,
    verdict,
    warning_count,
    warnings,
)

_MOST_ACTIONS = 3
_LONGEST = 90  # letters of a warning
_ACTIONS = (GAIN, Column("Do first", wraps=True), SIZES, Column("CUDA call", wraps=True, label="call"))


def section(view: RunView) -> Section:
    """Map, rates, slowest pair, trust and actions, for the page."""
    blocks: list[Block] = [_verdict(view), _picture(view)]
    if first := [one for one in by_use(view.advice) if is_first(one)][:_MOST_ACTIONS]:
        blocks.append(_actions(first))
    return Section("summary", "Summary", tuple(blocks))


def brief(view: RunView) -> Section:
    """Tiles, for Markdown."""
    return Section("brief", "", (Tiles(tuple(tiles(view.run)), on=Output.MARKDOWN),))


def _verdict(view: RunView) -> Paragraph:
    """The verdict; failed points and warnings are links to their place, and the first warning is named."""
    parts: list[str | Span] = [verdict(view.run, headline_rows(view.run))]
    listed, others = warnings(view.run), other_warnings(view.run)
    first = (
        textwrap.shorten(others[0].partition(". ")[0], _LONGEST, placeholder=" …").removesuffix(".") if others else ""
    )
    for count, named in (
        (failed_text(view.run.points), ""),
        (too_short_text(view.run.points), ""),
        (warning_count(view.run), f": {first}" if first else ""),
    ):
        before, found, after = str(parts[-1]).partition(count) if count and listed else ("", "", "")
        if found:
            parts[-1:] = [before, Span(count.removesuffix("."), link="#trust"), f"{named}.{after}"]
    return Paragraph(tuple(parts), lead=True, on=Output.PAGE)


def _picture(view: RunView) -> Block:
    """The map and all pairs on the left, the rates and the trust in them on the right."""
    left: list[Block] = []
    if view.wires:
        name = "The machine and the rates of its links"
        at = sizes_text(point.bytes for wire in view.wires for point in wire.best if point is not None)
        best = (f"The best plain copy over each link, down and up{at}. ", Span("Links", link="#machine"))
        svg = machine_svg(view.wires, view.run.modelled)
        left.append(Figure("machine", svg, best, label=name, legend=legends(svg)))
    matrix = main_matrix(view.matrices)
    uniform, slowest = strip_text(matrix, between_gpus(view.run)) if matrix is not None else ("", "")
    if matrix is not None and uniform:
        caption = (Span(f"{uniform}.", "strong"), f" {slowest}. ", Span("All pairs", link="#pairs"))
        left.append(Figure("strip of pairs", strip_svg(matrix, view.run.modelled), caption))
    bars = direction_bars(view.single, [lines.benchmark for lines in view.curve_lines])
    right: tuple[Block, ...] = (*([Bars(tuple(bars))] if bars else []), _trust(view))
    return Split(tuple(left), right, on=Output.PAGE)


def _trust(view: RunView) -> Paragraph:
    """A few lines: what is within its precision, what is not, and whether the rates above are affected."""
    points, ids = view.run.points, {id for doubt in view.doubts for id in doubt.ids}
    affected = list(dict.fromkeys(name for name, point in shown_points(view.single) if point.id in ids))
    affected += ["managed memory"] if any(rates.unstable for rates in managed_rates(view.single).values()) else []
    counts = counts_text(points)
    text = f" {sound_text(points)}" + (f" ({counts}). " if counts else ". ")
    if affected:
        text += f"Do not rely on: {'; '.join(affected)}. "
    elif (shown := shown_points(view.single)) and all(reason_of(point) is None for _, point in shown):
        text += "Every rate above is one of them. "
    made: Text = (Span("Trust", "strong"), text, Span("What not to trust, and why", link="#trust"))
    return Paragraph(made, on=Output.PAGE)


def _actions(first: list[Advice]) -> Block:
    rows = [gain_cells(one) for one in first]
    return table("The best actions", _ACTIONS, rows, on=Output.PAGE, stacks=True)
