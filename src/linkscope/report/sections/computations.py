"""Section: computations with their transfers, from near and far NUMA nodes."""

from collections.abc import Sequence
from dataclasses import replace

from linkscope.report.computations import ALONE, Placed, placements
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Output, Paragraph, Row, Section, Table, folded
from linkscope.report.trust import has_warning
from linkscope.units import format_fraction, format_seconds

_TITLE = "Computations with their transfers"
_NOTE = (
    "Time of an iteration: the computation alone, and with its transfers from the near and from the far NUMA node. "
    "Operations count for each transferred byte."
)
_FAR = (
    " The penalty over the good value is (good - bad) / good of the rates, over the bad value (good - bad) / bad. The "
    "prediction is the extra time that copies of as many bytes take from the far node, over the total time."
)
_COLUMNS = (
    Column("Computation", strong=True), Column("Host memory", label="Memory"), Column("Beside", label="Beside"),
    Column("Op/B", right=True, label="Op/B"), Column("Rate alone", right=True, label="Rate alone"),
    Column("Alone", right=True, label="Alone"), Column("Near", right=True, label="Near"),
    Column("Far", right=True, label="Far"), Column("Over good", right=True, label="Over good"),
    Column("Over bad", right=True, label="Over bad"), Column("Predicted", right=True, label="Predicted"),
)  # fmt: skip


def section(view: RunView) -> Section | None:
    """A table with a row for each computation and kind of memory. None without computations with transfers."""
    found = placements(view.run)
    if not found:
        return None
    found = sorted(found, key=lambda one: (one.name, one.memory, one.beside))
    table = Table(_TITLE, _COLUMNS, (Group(tuple(Row(_cells(one)) for one in found)),), stacks=True)
    text = _NOTE + (_FAR if any(one.far is not None for one in found) else "")
    blocks = folded(f"All {len(found)} computations as a table", Paragraph(text, note=True), table)
    sound = replace(view.run, points=[point for point in view.run.points if not has_warning(point)])
    answers = tuple(filter(None, (_finding(placements(sound)),)))
    blocks[:0] = [Paragraph(answer, on=Output.PAGE) for answer in answers]
    return Section("computations", _TITLE, tuple(blocks), label="Compute", answers=answers)


def _finding(found: Sequence[Placed]) -> str:
    """The computations that near transfers lengthen least and most; '' if no computation was measured alone."""
    undisturbed = [one for one in found if one.alone and one.beside in ("", ALONE)]  # copies beside cost time, too
    by_cost = sorted((one.near / one.alone, f"{one.name}, {one.memory}") for one in undisturbed if one.alone)
    if not by_cost:
        return ""
    (least, first), (most, last) = by_cost[0], by_cost[-1]
    if first == last:
        return f"Transfers lengthen an iteration of {last} by ×{most:.3g}, against the computation alone."
    return (
        f"Transfers lengthen iterations by ×{least:.3g} ({first}) to ×{most:.3g} ({last}), against computations alone."
    )


def _cells(found: Placed) -> tuple[str, ...]:
    rate = f"{found.operations / found.alone / 1e9:.4g} Gop/s" if found.alone and found.operations else "-"
    return (
        found.name, found.memory, found.beside or "-", f"{found.per_byte:.3g}" if found.operations else "-", rate,
        _seconds(found.alone), _seconds(found.near), _seconds(found.far), _fraction(found.over_good),
        _fraction(found.over_bad), _fraction(found.predicted),
    )  # fmt: skip


def _seconds(value: float | None) -> str:
    return "-" if value is None else format_seconds(value)


def _fraction(value: float | None) -> str:
    return "-" if value is None else format_fraction(value)
