"""Long tables of the page. An open one shows its first rows. In a folded part, tables of many rows are aligned text:
one element in place of thousands.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from linkscope.report.section import Block, Group, Listing, Table, more, plain
from linkscope.report.terminal_table import table_lines

MOST_ROWS = 40  # of all tables of a folded part; beyond that they are text
MOST_OPEN, OPEN = 8, 6  # an open table of more than 8 rows shows 6
_EMPTY = ("", "-")  # cells without a value
_WIDEST = 10_000  # no line is wrapped


def row_count(table: Table) -> int:
    """The number of rows in all groups."""
    return sum(len(group.rows) for group in table.groups)


def with_rests_folded(blocks: Iterable[Block]) -> list[Block]:
    """The open blocks of a section; behind the first rows of a long table, all of its rows are folded."""
    made: list[Block] = []
    for block in blocks:
        if isinstance(block, Table) and row_count(block) > MOST_OPEN:
            first = without_empty_columns(replace(block, groups=_first(block.groups)))
            made += [first, more(f"All {row_count(block)} rows", block)]
        elif isinstance(block, Table):
            made.append(without_empty_columns(block))
        else:
            made.append(block)
    return made


def without_empty_columns(table: Table) -> Table:
    """The table without the columns of which no row has a value ('' or '-'). A table without rows stays as it is."""
    rows = [row.cells for group in table.groups for row in group.rows]
    kept = [at for at in range(len(table.columns)) if any(plain(cells[at]) not in _EMPTY for cells in rows)]
    if len(kept) in (0, len(table.columns)):
        return table
    groups = (
        replace(group, rows=tuple(replace(row, cells=tuple(row.cells[at] for at in kept)) for row in group.rows))
        for group in table.groups
    )
    return replace(table, columns=tuple(table.columns[at] for at in kept), groups=tuple(groups))


def _first(groups: Sequence[Group]) -> tuple[Group, ...]:
    kept: list[Group] = []
    left = OPEN
    for group in groups:
        if left <= 0:
            break
        kept.append(replace(group, rows=group.rows[:left]))
        left -= len(group.rows)
    return tuple(kept)


def with_long_tables_as_text(blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a folded part; its tables are text if they have more than MOST_ROWS rows together."""
    if sum(row_count(block) for block in blocks if isinstance(block, Table)) <= MOST_ROWS:
        return list(blocks)
    return [_as_text(block) if isinstance(block, Table) else block for block in blocks]


def _as_text(table: Table) -> Listing:
    return Listing(tuple(line.text for line in table_lines(table, _WIDEST)), aligned=True)
