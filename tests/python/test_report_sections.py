"""Sections: one value each, in the page, the terminal and Markdown. A new one is one file and one entry of a list."""

import re

import pytest
from browser import CHROMIUM, Browser

from invented import run, small_run
from linkscope.report.details import details
from linkscope.report.figures import figures
from linkscope.report.html import page
from linkscope.report.markdown import to_markdown
from linkscope.report.section import (
    Bar,
    BarPart,
    Bars,
    Block,
    Column,
    Data,
    Explorer,
    Figure,
    Figures,
    Fold,
    Grid,
    GridCell,
    Group,
    Heading,
    Ids,
    Item,
    Items,
    Legend,
    Legends,
    Listing,
    Menus,
    Output,
    Paragraph,
    Row,
    Section,
    SortedRow,
    SortedTable,
    Span,
    Split,
    Table,
    Terms,
    Tile,
    Tiles,
    plain,
    prose,
    table,
)
from linkscope.report.sections import SECTIONS, sections

SVG = '<svg class="chart" viewBox="0 0 9 9"><title>{}</title><path class="line" d="M0 0H9"/></svg>'
EVIL = "<b>|`x`\x1b[31m"
GRID = Grid("word-grid", ("gpu:0",), ("gpu:1",), ((GridCell("word-number", "word-below", "d3", "#dummy"),),))


def every_block() -> tuple[Block, ...]:
    """Each kind of block, with its own word."""
    pairs = table("word-label", (Column("word-column"), Column("rate", right=True)), [("word-cell", "7 GB/s")])
    groups = (Group((Row(("numa:0", "5 GB/s"), note="word-note"),), "word-head", "word-foot", "word-details"),)
    drawn = Figure("word-figure", SVG.format("word-svg"), "word-caption", table=pairs)
    return (
        Tiles((Tile("word-tile", "55 GB/s", ("word-line",), "#dummy"),)),
        Paragraph(prose("a *word-em* and `word-code`: [word-link](#paths)"), note=True),
        Heading("word-heading"),
        Items((Item(("word-item", Ids(("word-id",))), failed=True), Item("plain"))),
        Table("grouped", (Column("path"), Column("rate", right=True)), groups, "word-table", stacks=True),
        Figures((drawn,)),
        Legends((Legend(SVG.format("swatch"), "word-legend"),), "word-more"),
        Fold("word-summary", (Paragraph("word-folded"),), heading="word-fold"),
        Terms((("word-term", "word-meaning"),)),
        Split(
            (Bars((Bar("word-bar", (BarPart("pinned", "word-value", 0.9, "word-peak"),), ("word-bit",), "#dummy"),)),),
            (),
        ),
        SortedTable("word-sorted", (Column("word-sortcolumn"),), (SortedRow("", "", ("word-row",), (None,)),), 9),
        GRID,
        Listing(("word-listed", "other")),
        Menus(GRID, Legends(()), "[]"),
    )


def add(monkeypatch: pytest.MonkeyPatch, section: Section) -> None:
    """Adds the section to those of every run."""
    monkeypatch.setattr("linkscope.report.sections.SECTIONS", [*SECTIONS, (lambda view: section, Output.ALL, "Dummy")])


def test_a_new_section_appears_in_page_terminal_and_markdown(monkeypatch) -> None:
    """The whole of what a new section needs: a function that returns a value, and its entry in the list."""
    rows = [("numa:0 -> gpu:0", "55 GB/s"), ("numa:0 -> gpu:1", "54 GB/s")]
    made = table("Dummy rates", (Column("Path"), Column("Rate", right=True)), rows)
    finding = Items.of([("gpu:1 is slow", Ids(("h2d/ce/a->b/8",)))])
    add(monkeypatch, Section("dummy", "Dummy section", (Paragraph("Why it is here."), made, finding)))
    html = page(small_run())
    assert '<a href="#dummy">Dummy</a></div></nav>' in html and "<h2>Dummy section</h2>" in html
    assert '<td class="n">55 GB/s</td>' in html and "h2d/ce/a-&gt;b/8" in html
    terminal = details(small_run(), width=80, colour=False).split("\n\nDummy section\n")[1]
    assert terminal.splitlines() == [
        "Why it is here.", "Path                 Rate", "  numa:0 → gpu:0  55 GB/s", "  numa:0 → gpu:1  54 GB/s",
        "- gpu:1 is slow", "    h2d/ce/a->b/8",
    ]  # fmt: skip
    assert to_markdown(small_run()).split("\n\n### Dummy section\n\n")[1] == (
        "Why it is here.\n\n| Path | Rate |\n|---|--:|\n| numa:0 → gpu:0 | 55 GB/s |\n"
        "| numa:0 → gpu:1 | 54 GB/s |\n\n- gpu:1 is slow\n"
    )


def test_each_output_renders_each_kind_of_block(monkeypatch) -> None:
    kinds = set(Block.__subclasses__()) - {Data, Explorer}  # the page has these once
    assert {type(block) for block in every_block()} | {Bars, Figure} == kinds
    add(monkeypatch, Section("dummy", "Dummy", every_block()))
    words = set(re.findall(r"word-[a-z]+", repr(every_block())))
    html = page(small_run()).split('<section id="dummy"')[1]
    assert words - set(re.findall(r"word-[a-z]+", html)) == {"word-figure"} <= set(figures(small_run()))
    drawings = {"word-svg", "word-caption", "word-legend", "word-more", "word-figure", "word-sortcolumn", "word-row"}
    terminal = details(small_run(), width=100, colour=False)
    assert words - set(re.findall(r"word-[a-z]+", terminal)) == drawings | {"word-label", "word-grid", "word-sorted"}
    markdown = to_markdown(small_run())
    assert words - set(re.findall(r"word-[a-z]+", markdown)) == drawings - {"word-caption"} | {
        "word-label",
        "word-grid",
        "word-sorted",
        "word-id",
    }


def test_a_block_appears_only_where_it_says(monkeypatch) -> None:
    blocks = tuple(Paragraph(f"only-{output.name}", on=output) for output in Output)
    titles = {Output.TERMINAL: "Short title", Output.MARKDOWN: ""}
    add(monkeypatch, Section("dummy", "Long title", blocks, titles))
    texts = (page(small_run()), details(small_run(), colour=False), to_markdown(small_run()))
    for output, text in zip(Output, texts, strict=True):
        assert re.findall(r"only-[A-Z]+", text) == [f"only-{output.name}"]
        assert ("long title" in text.lower()) == (output == Output.PAGE) and ("Short title" in text) == (
            output is Output.TERMINAL
        )
    add(monkeypatch, Section("dummy", "Long title", blocks[:1]))
    assert "Long title" not in details(small_run()) + to_markdown(small_run())  # without blocks there is no section


def test_names_of_a_run_are_escaped_in_each_kind_of_block(monkeypatch) -> None:
    parts = (EVIL, Span(EVIL, "count"), Ids((EVIL,)))
    cells = Group((Row((parts, parts)),), parts, parts)
    blocks = (
        Paragraph(parts), Items((Item(parts),)), Table(EVIL, (Column(EVIL, label=EVIL),) * 2, (cells,), parts),
        Fold(parts, (), heading=EVIL), Legends((Legend("", EVIL),)), Figure("", "", parts, label=EVIL),
    )  # fmt: skip
    add(monkeypatch, Section("dummy", "Dummy", blocks))
    assert "<b>" not in page(small_run())
    assert "\x1b" not in details(small_run(), colour=False)
    markdown = to_markdown(small_run()).split("### Dummy")[1]
    assert "<b>" not in markdown and "`x`" not in markdown.replace("\\`", "")


def test_anchors_are_unique_and_every_run_has_the_same_order() -> None:
    for output in Output:
        few, many = ([one.anchor for one in sections(made, output)] for made in (run([]), small_run()))
        assert len(set(many)) == len(many) and [one for one in many if one in few] == few


def test_prose_marks_emphasis_code_and_links() -> None:
    text = prose("a *b c* `d` [e](#f).")
    assert text == ("a ", Span("b c", "em"), " ", Span("d", "code"), " ", Span("e", link="#f"), ".")
    assert plain(text) == "a b c d e." and plain(("x", Ids(("y",)))) == "x"


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [390, 1280])
def test_a_new_table_fits_the_page(monkeypatch, tmp_path, width) -> None:
    add(monkeypatch, Section("dummy", "Dummy", every_block()))
    file = tmp_path / "page.html"
    file.write_text(page(small_run()), encoding="utf-8")
    with Browser(tmp_path / "profile") as browser:
        browser.open(file, width=width)
        assert browser.ask("document.documentElement.scrollWidth") <= width
