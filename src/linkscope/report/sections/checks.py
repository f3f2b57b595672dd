"""Section: points to check, and the status of points."""

from linkscope.model.text import count_text
from linkscope.report.outcome import Problem, problems, too_short_cure
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Heading, Ids, Item, Items, Output, Paragraph, Section
from linkscope.runfile import Run

_MOST_MISSED = 10  # operations with points that missed precision, in the terminal


def section(view: RunView) -> Section:
    """Reasons to distrust results, then all problems by status and reason. The terminal has only the latter."""
    blocks: list[Block] = []
    if listed := view.doubts:
        texts = [(doubt.text, Ids(doubt.ids)) if doubt.ids else doubt.text for doubt in listed]
        blocks.append(Items.of(texts, on=Output.MARKDOWN))
        of_points = [text for text, doubt in zip(texts, listed, strict=True) if doubt.ids]
        blocks += [Items.of(of_points, on=Output.PAGE)] if of_points else []  # the page lists the warnings open
    else:
        blocks.append(Paragraph("None: every point has its value.", on=Output.MARKDOWN))
    found = problems(view.run.points, too_short_cure(view.run))
    if found:
        blocks += [Heading("By reason", on=Output.PAGE), Items(tuple(map(_item, found)), on=Output.PAGE)]
        blocks += _terminal(view.run, found)
    else:
        blocks.append(Paragraph("None: each point has a value within its target precision.", on=Output.PAGE))
    return Section(
        "checks",
        "Points to check by reason",
        tuple(blocks),
        {Output.TERMINAL: "Status of points", Output.MARKDOWN: "Points to check"},
    )


def _item(problem: Problem) -> Item:
    ids = Ids(tuple(problem.ids), "Which point" if len(problem.ids) == 1 else "Which points")
    return Item((problem.text(), ids), problem.failed)


def _terminal(run: Run, found: list[Problem]) -> list[Block]:
    missed = sorted((one for one in found if one.missed), key=lambda one: -len(one.ids))
    left = missed[_MOST_MISSED:]
    items = [
        _item(problem) if problem.status == "failed" else Item(problem.text())
        for problem in found
        if problem not in left
    ]
    if left:
        points = count_text(sum(len(one.ids) for one in left), "point")
        others = count_text(len(left), "other operation")
        items.append(Item(f"missed precision, {points} more of {others}: see the page"))
    blocks: list[Block] = [Items(tuple(items), on=Output.TERMINAL)]
    if not run.modelled:
        text = "`linkscope doctor` lists settings of this machine that disturb measurements."
        blocks.append(Paragraph(text, on=Output.TERMINAL))
    return blocks
