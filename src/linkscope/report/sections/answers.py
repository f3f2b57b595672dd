"""Section: the most important answers, and what to check before using them."""

from linkscope.report.head import doubts, tiles
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Output, Paragraph, Section, Span, Tiles

_MOST_DOUBTS = 3


def section(view: RunView) -> Section:
    """Tiles; on the page also the most serious doubts."""
    blocks: list[Block] = [Tiles(tuple(tiles(view.run)))]
    if found := doubts(view.run):
        first = "; ".join(doubt.text.split(" (")[0] for doubt in found[:_MOST_DOUBTS])
        link = Span("All points to check", link="#trust")
        blocks.append(Paragraph((Span("Check", "strong"), f" {first}. ", link), note=True, on=Output.PAGE))
    return Section("summary", "Summary", tuple(blocks), titles=dict.fromkeys(Output, ""))
