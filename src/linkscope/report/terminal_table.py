"""Tables of the report in a terminal: columns that fit the width, groups of rows, notes below rows."""

import textwrap
from collections.abc import Iterable, Sequence

from linkscope.report.section import Column, Row, Table, plain
from linkscope.report.terminal import HEAD, NOTABLE, Line, heading, printable, wrap

_GAP = 2
_GOOD_FIRST, _LEAST_FIRST = 34, 16  # widths of the first column; longer cells are wrapped


def table_lines(table: Table, width: int) -> Iterable[Line]:
    """A table in lines of at most `width` characters."""
    columns = table.columns
    listed = [[[printable(plain(cell)) for cell in row.cells] for row in group.rows] for group in table.groups]
    names = [printable(column.name) for column in columns]
    widths, shown = _fit(columns, [cells for rows in listed for cells in rows], width)
    last, joins = max(range(len(columns)), key=lambda at: columns[at].drop), _joining(columns)
    if joins and last not in shown and any(cells[last] for rows in listed for cells in rows):
        listed = [[_joined_cells(cells, joins) for cells in rows] for rows in listed]
        widths, shown = _fit(columns, [cells for rows in listed for cells in rows], width)
    if table.caption:
        yield from heading(printable(plain(table.caption)), width)
    if any(names):
        yield Line(_aligned(names, columns, widths, shown), HEAD)
    for group, rows in zip(table.groups, listed, strict=True):
        if group.head:
            yield from heading(printable(plain(group.head)), width)
        if group.details:
            yield from wrap(f"    {printable(group.details)}", width)
        for row, cells in zip(group.rows, rows, strict=True):
            yield from _row_lines(row, _with_instead(row, cells, shown), columns, (widths, shown))
        if group.foot:
            yield Line(f"    {printable(plain(group.foot))}")


def _joining(columns: Sequence[Column]) -> int:
    """The column that may join the first one; 0 if none may."""
    return next((at for at, column in enumerate(columns) if column.joins), 0)


def _joined_cells(cells: Sequence[str], joins: int) -> list[str]:
    joined = ", ".join(filter(None, (cells[0], cells[joins])))
    return [joined, *("" if at == joins else cell for at, cell in enumerate(cells) if at)]


def _with_instead(row: Row, cells: Sequence[str], shown: Sequence[int]) -> Sequence[str]:
    if row.instead is None or row.instead[0] in shown:
        return cells
    return [cells[0] + row.instead[1], *cells[1:]]


def _row_lines(
    row: Row, cells: Sequence[str], columns: Sequence[Column], layout: tuple[list[int], list[int]]
) -> Iterable[Line]:
    widths, shown = layout
    style = NOTABLE if row.notable else ""
    first, *more = textwrap.wrap(cells[0], widths[0] - 2, break_on_hyphens=False) or [""]
    yield Line(_aligned(["  " + first, *cells[1:]], columns, widths, shown), style)
    for rest in more:
        yield Line("    " + rest, style)
    if row.note:
        yield from wrap(f"    {printable(row.note)}", sum(widths[column] + _GAP for column in shown), style)


def _fit(columns: Sequence[Column], listed: Sequence[Sequence[str]], width: int) -> tuple[list[int], list[int]]:
    """Widths of the columns, and the columns that fit on a line. The first column gets the remaining width."""
    widths = [max([len(column.name), *(len(cells[at]) for cells in listed)]) for at, column in enumerate(columns)]
    widths[0] += 2
    shown = [at for at in range(len(columns)) if any(cells[at] for cells in listed)]
    drops = sorted((at for at, column in enumerate(columns) if column.drop), key=lambda at: columns[at].drop)
    for at in drops:
        wanted = _LEAST_FIRST if at == drops[-1] else min(widths[0], _GOOD_FIRST)
        if at in shown and wanted + _others(widths, shown) > width:
            shown.remove(at)
    widths[0] = max(_LEAST_FIRST, min(widths[0], width - _others(widths, shown)))
    return widths, shown


def _others(widths: Sequence[int], shown: Sequence[int]) -> int:
    """The width of a line without its first column."""
    return sum(widths[column] + _GAP for column in shown if column)


def _aligned(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], shown: Sequence[int]) -> str:
    texts = [cells[at].rjust(widths[at]) if columns[at].right else cells[at].ljust(widths[at]) for at in shown]
    return (" " * _GAP).join(texts).rstrip()
