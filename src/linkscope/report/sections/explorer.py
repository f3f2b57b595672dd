"""Section: a chart of chosen curves."""

import json

from linkscope.report.anchors import explorer_query
from linkscope.report.path_rows import DEFAULTS, PathRow
from linkscope.report.run_view import RunView
from linkscope.report.section import Explorer, Paragraph, Section
from linkscope.report.sections.data import file_name

_NOTE = (
    "Shaded bands are intervals, hollow points are inherited, ringed points missed their precision. Dashes tell the "
    "curves apart. The address of the page holds the chosen curves."
)


def section(view: RunView) -> Section | None:
    """The explorer of all curves over size. None where no point with a size has a value."""
    if not view.has_curves:
        return None
    block = Explorer(json.dumps(dict(DEFAULTS)), _chosen(view.path_rows), file_name(view.run))
    return Section("explorer", "Explorer", (Paragraph(_NOTE, note=True), block))


def _chosen(rows: list[PathRow]) -> str:
    """The curves that appear first: the first path of each direction by its most important method."""
    first: dict[str, PathRow] = {}
    for row in rows:
        if row.rate and row.kind in ("h2d", "d2h", "d2d"):
            first.setdefault(row.kind, row)
    found = [*first.values()] or rows[:1]
    return explorer_query((row.kind, row.path.src, row.path.dst, row.method) for row in found)
