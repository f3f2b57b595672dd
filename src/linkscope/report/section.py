"""A section of the report as one value, without HTML. Page, terminal and Markdown render every section.

A text is a string, or a tuple of strings and marked parts. A block names the outputs that show it; by default all do.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto


class Output(Flag):
    """Where a section or a block appears."""

    PAGE = auto()
    TERMINAL = auto()
    MARKDOWN = auto()
    ALL = PAGE | TERMINAL | MARKDOWN


@dataclass(frozen=True)
class Span:
    """A part of a text. `style` is em, strong or code, or a class of the stylesheet; `link` is an anchor.

    Without either, the text keeps the names of links whole: "nvlink gpu:0->gpu:1".
    """

    text: str
    style: str = ""
    link: str = ""


@dataclass(frozen=True)
class Ids:
    """The ids of the points of a statement: folded on the page, the first two in the terminal, none in Markdown."""

    ids: tuple[str, ...]
    title: str = "Which points"


Text = str | tuple[str | Span | Ids, ...]


@dataclass(frozen=True)
class Block:
    """A part of a section, and the outputs that show it."""

    on: Output = field(default=Output.ALL, kw_only=True)


@dataclass(frozen=True)
class Paragraph(Block):
    """A paragraph. `note`: an explanation, in small letters; `lead`: the answer, in large ones.

    `bad`: red in the terminal.
    """

    text: Text
    note: bool = False
    bad: bool = False
    lead: bool = False


@dataclass(frozen=True)
class Heading(Block):
    """A heading within a section."""

    text: str


@dataclass(frozen=True)
class Item:
    """An entry of a list. `failed`: red."""

    text: Text
    failed: bool = False


@dataclass(frozen=True)
class Items(Block):
    """A list of findings, sentences or reasons."""

    items: tuple[Item, ...]

    @classmethod
    def of(cls, texts: Sequence[Text], *, on: Output = Output.ALL) -> "Items":
        """A list of texts."""
        return cls(tuple(map(Item, texts)), on=on)


@dataclass(frozen=True)
class Tile:
    """The answer to one question: a large `value`, `lines` below it, and a link to the details."""

    label: str
    value: str
    lines: tuple[str, ...]
    link: str
    numbers: tuple[tuple[str, str], ...] = ()  # the name of each number, and the id of its point


@dataclass(frozen=True)
class Tiles(Block):
    """The most important answers side by side."""

    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class BarPart:
    """A value and its bar: `of_peak` is the fraction of the peak as text, `share` that of the highest peak of the bars
    that stand together. `hollow`: inherited.

    `at`: the sizes of the value, 'at 256 MiB'.
    """

    name: str
    value: str
    share: float | None
    of_peak: str
    hollow: bool = False
    at: str = ""


@dataclass(frozen=True)
class Bar:
    """One line of bars: the first part is the answer, the others compare with it. `notes` follow; `link` has more."""

    label: str
    parts: tuple[BarPart, ...]
    notes: tuple[str, ...]
    link: str


@dataclass(frozen=True)
class Bars(Block):
    """Values as bars to their peaks."""

    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Split(Block):
    """Blocks side by side; on a narrow page one after the other."""

    left: tuple[Block, ...]
    right: tuple[Block, ...]


@dataclass(frozen=True)
class Terms(Block):
    """Terms and their meanings."""

    terms: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Column:
    """A column of a table. A narrow page shows `label` before each of its cells.

    A narrow terminal drops the columns with the lowest positive `drop` first. A column that `joins` becomes part of the
    first one before the column with the highest `drop` is dropped.
    """

    name: str
    right: bool = False
    strong: bool = False
    wraps: bool = False
    label: str = ""
    drop: int = 0
    joins: bool = False


@dataclass(frozen=True)
class Row:
    """One row, and a `note` on it. The terminal colours `notable` rows. Where it drops the column `instead[0]`, the
    text `instead[1]` follows the first cell.
    """

    cells: tuple[Text, ...]
    note: str = ""
    notable: bool = False
    instead: tuple[int, str] | None = None


@dataclass(frozen=True)
class Group:
    """Rows with a common heading and its details, and a line below them."""

    rows: tuple[Row, ...]
    head: Text = ""
    foot: Text = ""
    details: str = ""


@dataclass(frozen=True)
class Table(Block):
    """A table. `label` is its name for screen readers.

    `stacks`: each row becomes a block on a narrow page. `dense`: thousands of rows, so no cell has an attribute.
    """

    label: str
    columns: tuple[Column, ...]
    groups: tuple[Group, ...]
    caption: Text = ""
    stacks: bool = False
    dense: bool = False


@dataclass(frozen=True)
class Listing(Block):
    """Many lines of plain text, as one element: the page stays small with thousands of them. `aligned`: in columns."""

    lines: tuple[str, ...]
    aligned: bool = False


@dataclass(frozen=True)
class Legend:
    """One entry of a legend: a small SVG drawing and a text."""

    swatch: str
    text: str


@dataclass(frozen=True)
class Legends(Block):
    """The legend of one or more charts. `more` follows the last entry."""

    entries: tuple[Legend, ...]
    more: str = ""


@dataclass(frozen=True)
class GridCell:
    """A number, the text below it, the classes of its colour and outline (figure.css), and a link ('': none)."""

    text: str
    below: str
    style: str
    link: str


@dataclass(frozen=True)
class Grid(Block):
    """A matrix of coloured cells. A cell that is None is empty. `corner` names rows and columns."""

    label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[GridCell | None, ...], ...]
    corner: str = "from \\ to"


@dataclass(frozen=True)
class Menus(Block):
    """A grid that the page exchanges by menus. `data`: JSON of pair_grid.data()."""

    grid: Grid
    legend: Legends
    data: str


@dataclass(frozen=True)
class Figure(Block):
    """An SVG drawing. The terminal shows only its table, Markdown its caption and table. `report --figure` knows it by
    `name`.

    `label`: the name of a drawing that may be wider than the page and scrolls then. `width` in pixels.
    """

    name: str
    svg: str
    caption: Text = ""
    below: bool = False  # the caption stands below the drawing
    legend: Legends | None = None
    table: Table | None = None
    label: str = ""
    anchor: str = ""
    width: int = 0


@dataclass(frozen=True)
class Figures(Block):
    """Figures side by side: charts of equal width, or maps of their own width."""

    figures: tuple[Figure, ...]
    maps: bool = False


@dataclass(frozen=True)
class Fold(Block):
    """Blocks that the page shows on request. `role` is a class of the stylesheet."""

    summary: Text
    blocks: tuple[Block, ...]
    heading: str = ""  # stands before the summary
    role: str = ""
    anchor: str = ""
    open: bool = False

    @property
    def title(self) -> str:
        """Heading and summary on one line."""
        return f"{self.heading} {plain(self.summary).strip()}".strip()


@dataclass(frozen=True)
class SortedRow:
    """A row with an anchor ('' for none), a link of its first cell, and a number for each cell that sorts as one."""

    anchor: str
    link: str
    cells: tuple[str, ...]
    values: tuple[float | None, ...]


@dataclass(frozen=True)
class SortedTable(Block):
    """A table that the page filters, and sorts by any column. `most`: rows that the page shows at first."""

    label: str
    columns: tuple[Column, ...]
    rows: tuple[SortedRow, ...]
    most: int


@dataclass(frozen=True)
class Data(Block):
    """Every point as CSV of data_csv.py with the columns ON_PAGE, and downloads with all. `file`: their base name."""

    csv: str
    count: int
    file: str


@dataclass(frozen=True)
class Explorer(Block):
    """Curves of chosen paths and methods, drawn from the Data. `names`: operations, engines and memory kinds in words,
    as JSON. `defaults`: parameters that names leave out, as JSON.
    `chosen`: the query of the address of the curves that appear first. `file`: the base name of saved figures.
    """

    names: str
    defaults: str
    chosen: str
    file: str


MOST_ANSWERS = 6  # of a section in the summary


@dataclass(frozen=True)
class Section:
    """One section. `titles` has the titles of outputs that show another one; '' is none.

    `answers`: what the section found, a sentence each, the most important first. The summary of the run shows them, in
    the terminal behind `label`, which has at most nine letters.
    """

    anchor: str
    title: str
    blocks: tuple[Block, ...]
    titles: dict[Output, str] = field(default_factory=dict)
    label: str = field(default="", kw_only=True)
    answers: tuple[Text, ...] = field(default=(), kw_only=True)

    def title_in(self, output: Output) -> str:
        """The title that this output shows."""
        return self.titles.get(output, self.title)

    def only(self, output: Output) -> tuple[Block, ...]:
        """The blocks that this output shows. A section without any is left out."""
        return tuple(block for block in self.blocks if output in block.on)


def table(
    label: str, columns: Sequence[Column], rows: Sequence[Sequence[Text]], *, on: Output = Output.ALL,
    stacks: bool = False,
) -> Table:  # fmt: skip
    """A plain table without groups."""
    return Table(label, tuple(columns), (Group(tuple(Row(tuple(cells)) for cells in rows)),), stacks=stacks, on=on)


def grid_table(grid: Grid) -> Table:
    """The numbers of a grid as a table."""
    columns = (Column("from \\ to"), *(Column(column, right=True) for column in grid.columns))
    rows = [
        (row, *(f"{cell.text} {cell.below}".strip() if cell else "" for cell in cells))
        for row, cells in zip(grid.rows, grid.cells, strict=True)
    ]
    return table(grid.label, columns, rows)


def bar_text(part: BarPart) -> str:
    """'pinned 55.5 GB/s, 95 % of 58.5 GB/s'."""
    return f"{part.name} {part.value}, {part.of_peak}"


def more(summary: Text, *blocks: Block, on: Output = Output.PAGE) -> Fold:
    """What the page shows on request. The summary says what is inside and how much: 'All 56 pairs as a table'."""
    return Fold(summary, blocks, role="more", on=on)


def folded(summary: Text, *blocks: Block) -> list[Block]:
    """Blocks that the page folds, and terminal and Markdown show."""
    return [more(summary, *blocks), *(replace(one, on=Output.TERMINAL | Output.MARKDOWN) for one in blocks)]


def counted(paths: int) -> tuple[str | Span, ...]:
    """' 3 paths' after the paths of a row; nothing after a single one."""
    return (" ", Span(f"{paths} paths", "count")) if paths > 1 else ()


def prose(text: str) -> Text:
    """A text with *emphasis*, `code` and [links](#anchor). Not for names from a run file, which may hold such signs."""
    found: list[str | Span | Ids] = []
    for part in re.split(r"(\*[^*]+\*|`[^`]+`|\[[^\]]+\]\(#[\w-]+\))", text):
        if part.startswith("*"):
            found.append(Span(part.strip("*"), "em"))
        elif part.startswith("`"):
            found.append(Span(part.strip("`"), "code"))
        elif link := re.fullmatch(r"\[(.+)\]\((#[\w-]+)\)", part):
            found.append(Span(link[1], link=link[2]))
        elif part:
            found.append(part)
    return tuple(found)


def plain(text: Text) -> str:
    """The text without marks and ids."""
    if isinstance(text, str):
        return text
    return "".join(part if isinstance(part, str) else part.text for part in text if not isinstance(part, Ids))


def ids_of(text: Text) -> tuple[str, ...]:
    """The ids of all points that a text names."""
    parts = () if isinstance(text, str) else text
    return tuple(id for part in parts if isinstance(part, Ids) for id in part.ids)


METHOD = Span("Method", link="#method")  # the link with which notes end
