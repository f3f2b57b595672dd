"""Section: recommendations."""

from linkscope.advise import worthwhile
from linkscope.advise.text import details, headline
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Fold, Items, Output, Paragraph, Section, prose

_MOST = 5  # in the terminal
_NOTE = (
    "Each recommendation compares points of this run that differ in one thing. The speed-up is the ratio of their "
    "times, with its interval. In 95 % of runs all these intervals contain the true ratio. `linkscope advise` shows "
    "all comparisons."
)


def section(view: RunView) -> Section | None:
    """Each recommendation; on the page with its numbers. None where no recommendation is worthwhile."""
    found = worthwhile(view.single.points)
    if not found:
        return None
    folds = [
        Fold(headline(one), (Items.of(details(one)),), open=not number, on=Output.PAGE)
        for number, one in enumerate(found)
    ]
    blocks: list[Block] = [Paragraph(prose(_NOTE), note=True, on=Output.PAGE), *folds]
    blocks.append(Items.of([headline(one) for one in found[:_MOST]], on=Output.TERMINAL))
    how = [f"{headline(one)}; {one.recommendation.how}" for one in found]
    blocks.append(Items.of(how, on=Output.MARKDOWN))
    titles = {Output.TERMINAL: "Recommendations (how: linkscope advise)"}
    return Section("actions", "Recommendations", tuple(blocks), titles)
