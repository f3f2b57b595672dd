"""Section: the cost of memory kinds, and the number of transfers after which each pays off."""

from linkscope.report.break_even import HEADING, NOTE, PHASES, SHORT_HEADING, BreakEvens, PayRow, PayTable, break_evens
from linkscope.report.cost_chart import cost_charts
from linkscope.report.run_view import RunView
from linkscope.report.section import (
    METHOD,
    Block,
    Column,
    Figures,
    Fold,
    Group,
    Ids,
    Items,
    Output,
    Paragraph,
    Row,
    Section,
    Table,
    Text,
    counted,
    more,
    table,
)
from linkscope.units import format_bytes

_CHART = (
    "The time to allocate a buffer, copy it n times and free it; the lowest line is the cheapest. Kinds within 10 % "
    "share a line."
)


def section(view: RunView) -> Section | None:
    """A table for each end and the costs by phase; in the terminal and in Markdown one line for each path and size."""
    found = break_evens(view.single.points)
    if found is None:
        return None
    charts = cost_charts(view.single.points, view.run.modelled)
    blocks: list[Block] = [Paragraph(_CHART, on=Output.PAGE)] if charts else []
    blocks += [Figures(tuple(charts), on=Output.PAGE)] if charts else []
    tables = [_table(one) for one in found.tables]
    count = sum(len(one.rows) for one in found.tables)
    note = Paragraph((f"{NOTE} ", METHOD), note=True)
    blocks.append(more(f"All {count} comparisons of memory kinds as tables", note, *tables, _costs(found)))
    brief = Output.TERMINAL | Output.MARKDOWN
    blocks += [Items.of(found.lines, on=brief)] if found.lines else []
    return Section("memory", HEADING, tuple(blocks), dict.fromkeys(brief, SHORT_HEADING))


def _table(found: PayTable) -> Table:
    columns = (
        Column(found.end), Column("Allocate and free [interval]", label="Allocate and free"),
        Column("One transfer [interval]", label="One transfer"),
        *(Column(f"Cheaper than {name}", label=f"Cheaper than {name}") for name in found.than),
        Column("Points"),
    )  # fmt: skip
    return Table(found.end, columns, tuple(map(_group, found.groups)), stacks=True, on=Output.PAGE)


def _group(rows: list[PayRow]) -> Group:
    first = rows[0]
    head = (f"{first.paths}, {format_bytes(first.bytes)}", *counted(first.path_count))
    return Group(tuple(Row(_cells(row)) for row in rows), head)


def _cells(row: PayRow) -> tuple[Text, ...]:
    return (row.kind, row.cost, row.transfer, *row.than, (Ids(row.ids),))


def _costs(found: BreakEvens) -> Fold:
    phases = (Column(phase.capitalize(), right=True) for phase in PHASES)
    columns = (Column("Memory"), Column("Kind"), Column("Size", right=True), *phases, Column("Total [interval]"))
    rows = [(row.where, row.kind, format_bytes(row.bytes), *row.phases, row.total) for row in found.costs]
    return Fold("Cost of each phase", (table("Memory costs", columns, rows),), role="table", on=Output.PAGE)
