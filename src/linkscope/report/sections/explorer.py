"""Section: a chart of chosen curves."""

import json

from linkscope.model.curves import curves
from linkscope.report.anchors import explorer_query
from linkscope.report.family_words import ENGINES, MEMORIES, OPERATIONS
from linkscope.report.headline import COPIES
from linkscope.report.path_rows import PathRow, importance
from linkscope.report.run_view import RunView
from linkscope.report.section import Explorer, Paragraph, Section
from linkscope.report.sections.data import file_name
from linkscope.report.usual import DEFAULTS

_NOTE = (
    "Shaded bands are intervals, hollow points are inherited, ringed points missed their precision. The address of the "
    "page holds the chosen curves."
)


def section(view: RunView) -> Section | None:
    """The explorer of all curves over size. None where no point with a size has a value."""
    if not view.has_curves:
        return None
    block = Explorer(
        _names(), json.dumps(dict(DEFAULTS)), _chosen(view.path_rows) or _longest(view), file_name(view.run)
    )
    return Section("explorer", "Explorer", (Paragraph(_NOTE, note=True), block))


def _names() -> str:
    """The words of ids that are not themselves words; the places of a copy say its direction."""
    operations = OPERATIONS | dict.fromkeys(COPIES, "copy")
    return json.dumps([operations, ENGINES, MEMORIES], ensure_ascii=False)


def _chosen(rows: list[PathRow]) -> str:
    """The curves that appear first: the first path of each direction by its most important method."""
    first: dict[str, PathRow] = {}
    for row in sorted(rows, key=importance):
        if row.rate and row.kind in ("h2d", "d2h", "d2d"):
            first.setdefault(row.kind, row)
    found = [*first.values()] or rows[:1]
    return explorer_query((row.kind, row.path.src, row.path.dst, row.method) for row in found) if found else ""


def _longest(view: RunView) -> str:
    """The curve with the most sizes, for runs without plain copies; a batched one where there is any."""
    sized = [(sum(bool(point.bytes) for point in one.measured), one) for one in curves(view.single.points)]
    _, curve = max(sized, key=lambda pair: (pair[0] > 0 and pair[1].batched, pair[0]))
    query = explorer_query([(curve.method.family.benchmark, curve.path.src, curve.path.dst, curve.method)])
    return query if curve.batched else f"{query}&mode=all"
