"""Sections of the terminal: the best rates of plain copies, of operations without bytes, and of all others."""

from collections.abc import Sequence

from linkscope.model.text import range_share
from linkscope.report.finding import LARGE
from linkscope.report.headline import COPIES, ENGINES
from linkscope.report.overview import FamilyRows, Row
from linkscope.report.run_view import RunView
from linkscope.report.section import Column, Group, Output, Section, Table
from linkscope.report.section import Row as TableRow

_AT = 5  # the column of the size


def copies(view: RunView) -> Section | None:
    """Plain copies, ordered by direction and engine."""
    directions, engines = list(COPIES), list(ENGINES)
    found = sorted(
        filter(_is_copy, view.families),
        key=lambda of: (directions.index(of.family.benchmark), engines.index(of.family.engine)),
    )
    return _section("copies", "Plain copies", found)


def latencies(view: RunView) -> Section | None:
    """Operations without bytes, latencies first."""
    found = sorted(filter(_is_timed, view.families), key=lambda of: of.family.benchmark != "latency")
    return _section("latencies", "Latencies and costs of calls", found)


def others(view: RunView) -> Section | None:
    """All other operations."""
    return _section(
        "others", "Other operations", [of for of in view.families if not _is_copy(of) and not _is_timed(of)]
    )


def _is_copy(of: FamilyRows) -> bool:
    return of.family.benchmark in COPIES and of.family.engine in ENGINES


def _is_timed(of: FamilyRows) -> bool:
    return not _is_copy(of) and all(row.time is not None for row in of.rows)


def _section(anchor: str, title: str, families: Sequence[FamilyRows]) -> Section | None:
    if not families:
        return None
    timed = all(row.time is not None for family in families for row in family.rows)
    columns = (
        Column("path"), Column("", joins=True), Column("time" if timed else "GB/s", right=True), Column("interval"),
        Column("% of peak", right=True, drop=5), Column("at", right=True, drop=4),
        Column("half from", right=True, drop=1), Column("smallest, batched", drop=3), Column("single", drop=2),
    )  # fmt: skip
    made = Table(title, columns, tuple(map(_group, families)), on=Output.TERMINAL)
    return Section(anchor, title, (made,))


def _group(family: FamilyRows) -> Group:
    parts = [family.minor_params_text] if family.minor_params else []
    parts += [f"unless given: {family.usual}"] if family.usual else []
    head = f"{family.family}" + (f" ({'; '.join(parts)})" if parts else "")
    foot = f"{family.sweep} (other numbers of blocks: see the page)" if family.sweep else ""
    return Group(tuple(map(_row, family.rows)), head, foot, f"peak: {family.limits}" if family.limits else "")


def _row(row: Row) -> TableRow:
    # A run that was stopped early may have its best rate at an unexpectedly small size.
    instead = (_AT, f" (at {row.at_text})") if 0 < row.at_bytes < LARGE else None
    return TableRow(_cells(row), row.note, bool(row.share and row.share[0] < 0.5), instead)


def _cells(row: Row) -> tuple[str, ...]:
    number, unit, interval = f"{row.best_text} ".split(" ", 2)
    number += f" {unit.rstrip(',')}" if row.time is not None else ""
    if "unresolved" in row.best_text:
        number, interval = row.best_text.split(", ")
    smallest = f"{row.smallest_text}: {row.batched_text}" if row.batched_s else ""
    alone = row.single_text if smallest or not row.single_text else f"{row.smallest_text}: {row.single_text}"
    counts = ", ".join(filter(None, (str(row.path_count) if row.path_count > 1 else "", row.missed_text)))
    return (
        row.paths + (f" ({counts})" if counts else ""), row.params, number, interval.strip() or "no interval",
        range_share(row.share), row.at_text, row.half_text, smallest, alone,
    )  # fmt: skip
