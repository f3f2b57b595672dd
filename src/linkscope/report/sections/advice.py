"""Section: recommendations, with their gains."""

from linkscope.advise import Advice
from linkscope.advise.text import details, headline, ratio_text
from linkscope.model.text import paths_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Column, Fold, Items, Output, Paragraph, Section, Text, more, prose, table
from linkscope.units import format_bytes

LEAST_GAIN = 1.05  # typical gains below this are worth a change only at some sizes
_MOST = 5  # in the terminal
_MOST_OPEN = 5  # on the page
_NOTE = (
    "Each recommendation compares points of this run that differ in one thing. The gain is the median speed-up from 1 "
    "to 64 MiB; in 95 % of runs all intervals contain the true ratio."
)
_COLUMNS = (
    Column("Gain", strong=True), Column("Action", wraps=True), Column("Sizes", label="at"), Column("Paths", wraps=True),
    Column("Most certain gain [interval]"), Column("CUDA call", wraps=True),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """Each recommendation; on the page as a table. None where no recommendation is worthwhile."""
    found = view.advice
    if not found:
        return None
    ordered = sorted(found, key=lambda one: not is_first(one))
    rows = [_cells(one) for one in ordered]
    left = rows[_MOST_OPEN:]
    folds = tuple(Fold(headline(one), (Items.of(details(one)),)) for one in ordered)
    blocks: list[Block] = [
        Paragraph(prose(_NOTE), note=True, on=Output.PAGE),
        table("Recommendations", _COLUMNS, rows[:_MOST_OPEN], on=Output.PAGE),
        *([more(f"{len(left)} more recommendations", table("Recommendations", _COLUMNS, left))] if left else []),
        more(
            f"The numbers of all {len(found)} recommendations, by size" if len(found) > 1 else "Its numbers by size",
            *folds,
        ),
        Items.of([headline(one) for one in found[:_MOST]], on=Output.TERMINAL),
    ]
    how = [f"{headline(one)}; {one.recommendation.how}" for one in found]
    blocks.append(Items.of(how, on=Output.MARKDOWN))
    titles = {Output.TERMINAL: "Recommendations (how: linkscope advise)"}
    return Section("actions", "Recommendations", tuple(blocks), titles)


def is_first(one: Advice) -> bool:
    """Whether a recommendation gains at usual sizes, not only at some."""
    return one.is_typical and one.typical_gain >= LEAST_GAIN


def gain_cells(one: Advice) -> tuple[Text, ...]:
    """Gain, title, sizes and CUDA call."""
    title = one.recommendation.title
    title += f" ({one.gains[0].change})" if one.recommendation.name == "advice" else ""  # one of several
    gain = f"×{one.typical_gain:.3g}" if one.typical_gain >= LEAST_GAIN else "at some sizes"
    return gain, f"{title[:1].upper()}{title[1:]}", _sizes(one), one.recommendation.how


def _cells(one: Advice) -> tuple[Text, ...]:
    *first, how = gain_cells(one)
    return (*first, paths_text(one.paths), ratio_text(one.gains[0]), how)


def _sizes(one: Advice) -> str:
    least, most = one.sizes
    if not most:
        return "any"
    return format_bytes(least) if least == most else f"{format_bytes(least)} to {format_bytes(most)}"
