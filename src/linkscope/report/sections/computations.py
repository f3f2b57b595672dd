"""Section: computations with their transfers, from near and far NUMA nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from linkscope.model.text import count_text
from linkscope.report.computations import Placed, placements
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
_BESIDE = {"same": "copies to the same GPU", "other": "copies to another GPU"}


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
    of_sound = placements(sound)
    answers = tuple(filter(None, (_by_transfers(of_sound), _by_far_node(of_sound), *_by_neighbours(of_sound))))
    blocks[:0] = [Paragraph(answer, on=Output.PAGE) for answer in answers]
    return Section("computations", _TITLE, tuple(blocks), label="Compute", answers=answers)


def _by_transfers(found: Sequence[Placed]) -> str:
    """The computations that near transfers lengthen least and most; '' if no computation was measured alone."""
    by_cost = [(one.near / one.alone, one.sign, one) for one in found if one.alone and one.is_undisturbed]
    if not by_cost:
        return ""
    if len(by_cost) == 1:
        return f"Transfers lengthen an iteration of {_range(by_cost)}, against the computation alone."
    return f"Transfers lengthen iterations by {_range(by_cost)}, against computations alone."


def _by_far_node(found: Sequence[Placed]) -> str:
    """The penalty of the far node over the good value: the largest and the mean; '' without far nodes."""
    penalties = [(one.over_good, one) for one in found if one.over_good is not None and one.is_undisturbed]
    if not penalties:
        return ""
    most, worst = max(penalties, key=lambda pair: pair[0])
    mean = sum(penalty for penalty, _ in penalties) / len(penalties)
    return (
        f"From the far NUMA node, {count_text(len(penalties), 'computation')} lose {format_fraction(mean)} of the near "
        f"node's rate on average, and up to {worst.sign}{format_fraction(most)} ({_named(worst)})."
    )


def _by_neighbours(found: Sequence[Placed]) -> Iterable[str]:
    """For each kind of neighbour how much longer iterations from the near node take beside it."""
    quiet = {(one.name, one.memory, one.size): one for one in found if one.is_undisturbed}
    for beside, what in _BESIDE.items():
        slowed = [(one.near / quiet[key].near, one.sign or quiet[key].sign, one) for one in found
                  if one.beside == beside and (key := (one.name, one.memory, one.size)) in quiet]  # fmt: skip
        if slowed:
            yield f"Beside {what}, iterations take {_range(slowed)} as long as undisturbed."


def _range(found: Sequence[tuple[float, str, Placed]]) -> str:
    """'×1.03 (stencil, pinned) to ~×35.9 (scan, pageable)'."""
    ends = dict.fromkeys(end(found, key=lambda of: of[0]) for end in (min, max))
    return " to ".join(f"{sign}×{ratio:.3g} ({_named(one)})" for ratio, sign, one in ends)


def _named(one: Placed) -> str:
    return f"{one.name}, {one.memory}"


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
