"""A run as Markdown, short enough for a pull request: best rates, anomalies, points to check."""

import re
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
    Text,
    Tiles,
    bar_text,
    grid_table,
    plain,
)
from linkscope.report.sections import sections
from linkscope.runfile import Run
from linkscope.units import with_signs

_MARKS = "|*_`#~@"  # brackets too, except in the names of columns, such as "rate [interval]"


def to_markdown(run: Run) -> str:
    """The report as Markdown."""
    run = with_nvlink_peaks(run)
    machine = run.header.machine
    name = " - ".join(str(machine[key]) for key in ("name", "title") if machine.get(key)) or "a machine without a name"
    parts = [f"## {'MODELLED: ' if run.modelled else ''}{_safe(name)}"]
    if run.modelled:
        parts.append("**MODELLED**: a machine model gave these numbers. No hardware was measured.")
    parts.append(_safe(run_text(run)))
    for section in sections(run, Output.MARKDOWN):
        title = section.title_in(Output.MARKDOWN)
        parts += [f"### {title}"] if title else []
        parts += _texts(section.only(Output.MARKDOWN))
    return "\n\n".join(parts) + "\n"


def section_markdown(run: Run, anchor: str) -> str:
    """The tables and texts of the section with this anchor, without its title; empty if the run has no such section."""
    found = (section for section in sections(run, Output.MARKDOWN) if section.anchor == anchor)
    return "\n\n".join(text for section in found for text in _texts(section.only(Output.MARKDOWN)))


def _texts(blocks: Iterable[Block]) -> list[str]:
    made = (_RENDERERS[type(block)](block) for block in blocks)
    return [text for text in made if text]


def _table(table: Table) -> str:
    rule = "|" + "".join("--:|" if column.right else "---|" for column in table.columns)
    lines = [_row(_safe(column.name, _MARKS) for column in table.columns), rule]
    empty = [""] * (len(table.columns) - 1)
    for group in table.groups:
        if group.head:
            lines.append(_row([_joined(group.head, group.details), *empty]))
        lines += [_row([_joined(row.cells[0], row.note), *map(_joined, row.cells[1:])]) for row in group.rows]
        if group.foot:
            lines.append(_row([_joined(group.foot), *empty]))
    return "\n".join([f"**{_joined(table.caption)}**", "", *lines] if table.caption else lines)


def _joined(text: Text, more: str = "") -> str:
    return _safe("; ".join(filter(None, (plain(text), more))))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _tiles(block: Tiles) -> str:
    return "\n".join(f"- **{tile.label}**: {_safe('; '.join((tile.value, *tile.lines)))}" for tile in block.tiles)


def _bars(block: Bars) -> str:
    lines = ((bar, "; ".join((*map(bar_text, bar.parts), *bar.notes))) for bar in block.bars)
    return "\n".join(f"- **{bar.label}**: {_safe(text)}" for bar, text in lines)


def _figure(figure: Figure) -> str:
    """The caption of a figure and its table; several figures of a section differ by their captions alone."""
    if not figure.table:
        return ""
    caption = plain(figure.caption).strip()
    return "\n\n".join([*([_safe(caption)] if caption else []), _table(figure.table)])


def _fold(fold: Fold) -> str:
    return "\n\n".join([f"**{_safe(fold.title)}**", *_texts(fold.blocks)])


# Drawings, their legends, controls and data exist on the page only.
_RENDERERS: dict[type[Block], Callable[[Any], str]] = {
    Paragraph: lambda block: _safe(plain(block.text)),
    Heading: lambda block: f"#### {block.text}",
    Items: lambda block: "\n".join(f"- {_safe(plain(item.text))}" for item in block.items),
    Tiles: _tiles,
    Bars: _bars,
    Grid: lambda block: _table(grid_table(block)),
    Listing: lambda block: "\n".join(f"- {_safe(line)}" for line in block.lines),
    Menus: lambda block: _table(grid_table(block.grid)),
    Split: lambda block: "\n\n".join(_texts((*block.left, *block.right))),
    Terms: lambda block: "\n".join(f"- **{term}**: {_safe(meaning)}" for term, meaning in block.terms),
    Table: _table,
    Figure: _figure,
    Figures: lambda block: "\n\n".join(_texts(block.figures)),
    Fold: _fold,
    Legends: lambda block: "",
    SortedTable: lambda block: "",
    Data: lambda block: "",
    Explorer: lambda block: "",
}


def _safe(text: str, marks: str = rf"{_MARKS}\[\]") -> str:
    """The text for people on one line, with HTML characters and these marks of Markdown escaped."""
    flat = re.sub(r"\s+", " ", with_signs(text)).replace("\\", "\\\\")
    flat = flat.replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(f"([{marks}])", r"\\\1", flat)
