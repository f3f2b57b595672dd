"""All sections of a run in the terminal, the most important first."""

from collections.abc import Callable, Iterable
from typing import Any

from linkscope.report.managed_peaks import with_nvlink_peaks
from linkscope.report.outcome import run_text
from linkscope.report.section import (
    Bars,
    Block,
    Data,
    Explorer,
    Figure,
    Figures,
    Fold,
    Grid,
    Heading,
    Items,
    Legends,
    Listing,
    Menus,
    Output,
    Paragraph,
    SortedTable,
    Split,
    Table,
    Terms,
    Tiles,
    bar_text,
    grid_table,
    ids_of,
    plain,
)
from linkscope.report.sections import sections
from linkscope.report.terminal import BAD, HEAD, NOTABLE, Line, heading, line_width, printable, render, wrap
from linkscope.report.terminal_table import table_lines
from linkscope.runfile import Run

_MOST_IDS = 2


def details(run: Run, *, width: int | None = None, colour: bool | None = None) -> str:
    """All sections as text, without a newline at the end. None: width and colour of standard output."""
    columns = line_width(width)
    return render(list(_lines(with_nvlink_peaks(run), columns)), columns, colour)


def _lines(run: Run, width: int) -> Iterable[Line]:
    if run.modelled:
        parts = "MODELLED: a machine model gave these numbers, no hardware was measured."
        yield from wrap(parts, width, NOTABLE)
    machine = run.header.machine
    name = ": ".join(str(machine[key]) for key in ("name", "title") if machine.get(key))
    yield from wrap(printable(name) or "a machine without a name", width, HEAD)
    yield from wrap(printable(run_text(run)), width)
    for warning in run.warnings:
        yield from wrap(f"warning: {printable(warning)}", width, NOTABLE)
    for section in sections(run, Output.TERMINAL):
        yield Line("")
        yield from heading(section.title_in(Output.TERMINAL), width)
        yield from _block_lines(section.only(Output.TERMINAL), width)


def _block_lines(blocks: Iterable[Block], width: int) -> Iterable[Line]:
    for block in blocks:
        yield from _RENDERERS[type(block)](block, width)


def _items(block: Items, width: int) -> Iterable[Line]:
    for item in block.items:
        yield from wrap(f"- {printable(plain(item.text))}", width, BAD if item.failed else "")
        ids = ids_of(item.text)
        for id in ids[:_MOST_IDS]:
            yield Line(f"    {printable(id)}")
        if len(ids) > _MOST_IDS:
            yield Line(f"    and {len(ids) - _MOST_IDS} more")


def _tiles(block: Tiles, width: int) -> Iterable[Line]:
    for tile in block.tiles:
        yield from wrap(f"- {printable(f'{tile.label}: ' + '; '.join((tile.value, *tile.lines)))}", width)


def _bars(block: Bars, width: int) -> Iterable[Line]:
    for bar in block.bars:
        parts = "; ".join((*map(bar_text, bar.parts), *bar.notes))
        yield from wrap(f"- {printable(f'{bar.label}: {parts}')}", width)


def _terms(block: Terms, width: int) -> Iterable[Line]:
    for term, meaning in block.terms:
        yield from wrap(f"- {term}: {meaning}", width)


def _fold(fold: Fold, width: int) -> Iterable[Line]:
    yield from heading(printable(fold.title), width)
    yield from _block_lines(fold.blocks, width)


# Drawings, their legends, controls and data exist on the page only.
_RENDERERS: dict[type[Block], Callable[[Any, int], Iterable[Line]]] = {
    Paragraph: lambda block, width: wrap(printable(plain(block.text)), width, BAD if block.bad else ""),
    Heading: lambda block, width: heading(block.text, width),
    Items: _items,
    Tiles: _tiles,
    Bars: _bars,
    Grid: lambda block, width: table_lines(grid_table(block), width),
    Listing: lambda block, width: (line for text in block.lines for line in wrap(printable(text), width)),
    Menus: lambda block, width: table_lines(grid_table(block.grid), width),
    Split: lambda block, width: _block_lines((*block.left, *block.right), width),
    Terms: _terms,
    Table: table_lines,
    Figure: lambda figure, width: table_lines(figure.table, width) if figure.table else (),
    Figures: lambda block, width: _block_lines(block.figures, width),
    Fold: _fold,
    Legends: lambda block, width: (),
    SortedTable: lambda block, width: (),
    Data: lambda block, width: (),
    Explorer: lambda block, width: (),
}
