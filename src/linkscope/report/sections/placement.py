"""Section: near and far NUMA nodes of each GPU."""

from collections.abc import Sequence

from linkscope.advise.near_far import DIRECTIONS, FORMULAS, NearFar, hidden_numa, largest, near_far, nearest, value_text
from linkscope.model.text import count_text
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Ids, Paragraph, Row, Section, Table, Text, folded, more
from linkscope.units import format_bytes, format_fraction

_TITLE = "Placement"
_COLUMNS = (
    Column("GPU", strong=True), Column("Direction", label="Direction"), Column("At", right=True, label="At"),
    Column("Near", label="Near"), Column("Far", label="Far"), Column("Over good", right=True, label="Over good"),
    Column("Over bad", right=True, label="Over bad"),
)  # fmt: skip
_NOTE = (
    "Pinned memory on each NUMA node, by copy engine in batches. Near is the node with the best value. Brackets are 95 "
    f"% intervals. Penalties {FORMULAS}. `linkscope advise RUN --placement` prints the lines that bind processes."
)


def section(view: RunView) -> Section | None:
    """Near and far values with both penalties. None without copies from two NUMA nodes, unless NUMA is hidden."""
    found = near_far(view.single.points)
    if not found:
        hidden = "" if view.run.modelled else hidden_numa(view.run.header.machine)
        text = f"NUMA is hidden here ({hidden}), so no near node is known."
        return Section("placement", _TITLE, (Paragraph(text),)) if hidden and _has_copies(view) else None
    at_most = largest(found)
    near = nearest(found)
    means = [
        f"{name} {format_fraction(_mean([one.over_good for one in at_most if one.direction == direction]))}"
        for direction, name in DIRECTIONS.items()
        if any(one.direction == direction for one in at_most)
    ]
    places = "; ".join(f"{gpu} is near {', '.join(nodes)}" for gpu, nodes in near.items())
    answer = f"{places}. Mean loss of rate from the far node: {', '.join(means)}."
    blocks = (
        Paragraph(answer),
        *folded(f"Near and far nodes, {count_text(len(at_most), 'row')}", _table(at_most, "Near and far nodes")),
        more(f"All {len(found)} sizes and directions as a table", _table(found, "Near and far nodes, all sizes")),
        Paragraph(_NOTE, note=True),
    )
    return Section("placement", _TITLE, blocks, label="Placement", answers=(answer,))


def _has_copies(view: RunView) -> bool:
    return any(point.benchmark in ("h2d", "d2h") and point.median_s for point in view.single.points)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _table(found: Sequence[NearFar], label: str) -> Table:
    return Table(label, _COLUMNS, (Group(tuple(Row(_cells(one)) for one in found)),), stacks=True)


def _cells(one: NearFar) -> tuple[Text, ...]:
    near, far = (f"{node} {value_text(one, node)}" for node in (one.near, one.far))
    return (
        one.gpu, DIRECTIONS[one.direction], format_bytes(one.bytes) if one.bytes else "-", near, (far, Ids(one.ids)),
        format_fraction(one.over_good), format_fraction(one.over_bad),
    )  # fmt: skip
