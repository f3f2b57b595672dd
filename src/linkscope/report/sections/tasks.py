"""Section: several tasks that copy to or from each GPU at once (Spafford et al. 5.2)."""

import dataclasses
from collections.abc import Sequence

from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Items, Output, Paragraph, Row, Section, Table
from linkscope.report.trust import sign_of
from linkscope.runfile import Point, PointId
from linkscope.units import format_fraction

_TITLE = "Several tasks for each GPU"
_COLLAPSED = 0.5  # of an equal share
_NOTE = (
    "The rate of a task: good is the slowest of one task for each GPU, bad the slowest of several. The penalty over "
    "the good value is (good - bad) / good, over the bad value (good - bad) / bad. An equal share is good over the "
    "number of tasks; below half of it the rate has collapsed. Drift is the change of the slowest of one task for each "
    "GPU from before the others to after them."
)
_COLUMNS = (
    Column("Path", label="Path"), Column("Tasks", right=True, label="Tasks"),
    Column("Slowest, GB/s", right=True, strong=True), Column("Mean", right=True, label="Mean"),
    Column("Fastest", right=True, label="Fastest"), Column("Over good", right=True, label="Over good"),
    Column("Over bad", right=True, label="Over bad"), Column("Share", right=True, label="Of an equal share"),
    Column("Drift", right=True, label="Drift"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """A table with a row for each number of tasks. None without several tasks."""
    points = {PointId.parse(point.id): point for point in view.run.points if _rates(point)}
    rates = {id: _rates(point) for id, point in points.items()}
    several = sorted(((int(id.param("tasks")), id) for id in rates if id.param("tasks")), key=lambda of: of[0])
    groups: dict[PointId, list[Row]] = {}
    compared: list[tuple[PointId, PointId, int]] = []
    for tasks, id in several:
        once = dataclasses.replace(id, params=tuple(pair for pair in id.params if pair[0] != "tasks"))
        if once in rates:
            compared.append((once, id, tasks))
            good = min(rates[once])
            again = rates.get(dataclasses.replace(once, params=tuple(sorted((*once.params, ("again", "true"))))))
            drift = f"{100 * (min(again) / good - 1):+.1f} %" if again else "-"
            groups.setdefault(once, [_row(once, 1, rates[once], good, drift)]).append(_row(id, tasks, rates[id], good))
    if not groups:
        return None
    made = Table(_TITLE, _COLUMNS, tuple(Group(tuple(rows)) for rows in groups.values()), stacks=True)
    shares = [
        (id, tasks, min(rates[id]) * tasks / min(rates[once]), sign_of((points[once], points[id])))
        for once, id, tasks in compared
    ]
    answers = (_answer(shares),)
    blocks = (Items.of(answers, on=Output.PAGE), Paragraph(_NOTE, note=True), made)
    return Section("tasks", _TITLE, blocks, label="Tasks", answers=answers)


def _answer(shares: Sequence[tuple[PointId, int, float, str]]) -> str:
    """The smallest share of an equal share with its sign, and whether the rate collapses."""
    id, tasks, least, sign = min(shares, key=lambda one: one[2])
    most = max(tasks for _, tasks, *_ in shares)
    verdict = "the rate collapses" if least < _COLLAPSED else "no rate collapses"
    return (
        f"Up to {most} tasks for each GPU: {verdict}. The slowest task gets {sign}{format_fraction(least)} of an equal "
        f"share or more ({tasks} tasks, {id.src} → {id.dst})."
    )


def _rates(point: Point) -> list[float]:
    return [flow.gbps for flow in point.flows if flow.gbps is not None and flow.role == "measured"]


def _row(id: PointId, tasks: int, found: list[float], good: float, drift: str = "") -> Row:
    bad = min(found)
    share = bad * tasks / good
    collapsed = share < _COLLAPSED
    cells = (
        f"{id.src} -> {id.dst}", str(tasks), f"{bad:.4g}", f"{sum(found) / len(found):.4g}", f"{max(found):.4g}",
        format_fraction((good - bad) / good), format_fraction((good - bad) / bad),
        f"{format_fraction(share)}{', collapsed' if collapsed else ''}", drift,
    )  # fmt: skip
    return Row(cells, notable=collapsed)
