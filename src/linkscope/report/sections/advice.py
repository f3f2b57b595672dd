"""Section: recommendations, with their gains."""

from collections.abc import Sequence

from linkscope.advise import Advice
from linkscope.advise.text import details, headline, how_text, ratio_text
from linkscope.model.text import count_text, paths_text, size_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Block, Column, Fold, Items, Output, Paragraph, Section, Text, more, prose, table

LEAST_GAIN = 1.05  # typical gains below this are worth a change only at some sizes
_MOST = 5  # in the terminal
_MOST_OPEN = 4  # on the page
_NOTE = (
    "×2 halves the time. A gain is the median of all paths at 1 to 64 MiB, or at all sizes if none of these was "
    "compared. The surest gain is the one whose interval begins highest."
)
_TOGETHER = "In 95 % of runs, all intervals together contain the true ratio."
GAIN = Column("Gain", strong=True)
SIZES = Column("Gains at", label="at")
_COLUMNS = (
    GAIN, Column("Action", wraps=True), SIZES, Column("Gains on", label="on"),
    Column("Surest gain [interval]", wraps=True, label="surest"), Column("CUDA call", wraps=True, label="call"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """Each recommendation; on the page as a table. None where no recommendation is worthwhile."""
    found = view.advice
    if not found:
        return None
    ordered = by_use(found)
    rows = [_cells(one) for one in ordered]
    left = rows[_MOST_OPEN:]
    folds = tuple(Fold(headline(one), (Items.of(details(one)),)) for one in ordered)
    blocks: list[Block] = [
        Paragraph(prose(_NOTE), note=True, on=Output.PAGE),
        table("Recommendations", _COLUMNS, rows[:_MOST_OPEN], on=Output.PAGE, stacks=True),
        *([_left(left)] if left else []),
        more(
            f"The numbers of all {len(found)} recommendations, by size" if len(found) > 1 else "Its numbers by size",
            Paragraph(_TOGETHER, note=True),
            *folds,
        ),
        Items.of([headline(one) for one in found[:_MOST]], on=Output.TERMINAL),
    ]
    how = [f"{headline(one)}; {how_text(one)}" for one in found]
    blocks.append(Items.of(how, on=Output.MARKDOWN))
    titles = {Output.TERMINAL: "Recommendations (how: linkscope advise)", Output.PAGE: "Recommended actions"}
    return Section("actions", "Recommendations", tuple(blocks), titles)


def _left(rows: Sequence[tuple[Text, ...]]) -> Block:
    return more(f"{len(rows)} more recommendations", table("Recommendations", _COLUMNS, rows, stacks=True))


def is_first(one: Advice) -> bool:
    """Whether a recommendation gains at usual sizes, not only at some."""
    return one.is_typical and one.typical_gain >= LEAST_GAIN


def by_use(found: Sequence[Advice]) -> list[Advice]:
    """Those that gain at usual sizes first; of these, a gain at a single size comes after gains at several."""
    return sorted(found, key=lambda one: (not is_first(one), one.sizes[0] == one.sizes[1]))


def gain_cells(one: Advice) -> tuple[Text, ...]:
    """Gain, title, sizes and CUDA call."""
    title = one.recommendation.title
    gain = f"×{one.typical_gain:.3g}" if one.typical_gain >= LEAST_GAIN else "at some sizes"
    return gain, f"{title[:1].upper()}{title[1:]}", _sizes(one), how_text(one)


def _cells(one: Advice) -> tuple[Text, ...]:
    *first, how = gain_cells(one)
    surest = one.gains[0]
    size = f", {size_text(surest.current)}" if surest.current.bytes else ""
    where = f"{paths_text([surest.path])}{size}".replace("->", "→")
    return (*first, _paths(one), f"{ratio_text(surest)}: {where}", how)


def _paths(one: Advice) -> str:
    """'all 12 paths', '3 of 12 paths'."""
    gaining, compared = len(one.paths), len({gain.path for gain in one.compared})
    if gaining < compared:
        return f"{gaining} of {count_text(compared, 'path')}"
    return f"all {compared} paths" if compared > 1 else "1 path"


def _sizes(one: Advice) -> str:
    ends = [extreme((gain.current for gain in one.gains), key=lambda point: point.bytes) for extreme in (min, max)]
    return " to ".join(dict.fromkeys(map(size_text, ends))) if ends[-1].bytes else "any"
