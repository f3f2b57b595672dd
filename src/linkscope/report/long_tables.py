"""Long tables in folded parts of the page, as aligned text: one element in place of thousands."""

from collections.abc import Sequence

from linkscope.report.section import Block, Listing, Table
from linkscope.report.terminal_table import table_lines

MOST_ROWS = 40  # of all tables of a part; beyond that they are text
_WIDEST = 10_000  # no line is wrapped


def with_long_tables_as_text(blocks: Sequence[Block]) -> list[Block]:
    """The blocks of a folded part; its tables are text if they have more than MOST_ROWS rows together."""
    tables = [block for block in blocks if isinstance(block, Table)]
    if sum(len(group.rows) for table in tables for group in table.groups) <= MOST_ROWS:
        return list(blocks)
    return [_as_text(block) if isinstance(block, Table) else block for block in blocks]


def _as_text(table: Table) -> Listing:
    return Listing(tuple(line.text for line in table_lines(table, _WIDEST)), aligned=True)
