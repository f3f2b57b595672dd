"""Long tables of the page: an open one shows its first rows, and a folded one is text."""

import pytest

from linkscope.report.long_tables import MOST_OPEN, MOST_ROWS, OPEN, with_long_tables_as_text, with_rests_folded
from linkscope.report.section import Column, Fold, Listing, Paragraph, Span, Table, table


def rows(count: int) -> Table:
    return table("Rows", (Column("Name"), Column("Value", right=True)), [(f"row {i}", str(i)) for i in range(count)])


@pytest.mark.parametrize(("count", "shown"), [(MOST_OPEN, MOST_OPEN), (MOST_OPEN + 1, OPEN)])
def test_an_open_table_shows_its_first_rows_and_a_long_one_folds_all_of_them(count: int, shown: int) -> None:
    given = rows(count)
    first, *folds = with_rests_folded([given])
    assert isinstance(first, Table) and [row.cells[0] for row in first.groups[0].rows] == [
        f"row {i}" for i in range(shown)
    ]
    assert [fold.blocks for fold in folds if isinstance(fold, Fold)] == ([(given,)] if shown < count else [])


def test_the_first_rows_of_a_table_may_be_of_several_groups() -> None:
    one = rows(OPEN - 2).groups[0]
    made = Table("Rows", rows(1).columns, (one, one, one))
    first = with_rests_folded([made])[0]
    assert isinstance(first, Table) and [len(group.rows) for group in first.groups] == [OPEN - 2, 2]


def test_folded_tables_of_many_rows_together_are_text_with_every_cell_and_texts_stay() -> None:
    note, half = Paragraph("what they are"), rows(MOST_ROWS // 2 + 1)
    assert with_long_tables_as_text([note, half]) == [note, half]
    first, *listings = with_long_tables_as_text([note, half, half])
    assert first == note
    for listing in listings:
        assert isinstance(listing, Listing) and listing.aligned
        text = [line.split() for line in listing.lines]
        assert ["Name", "Value"] in text and all(["row", str(i), str(i)] in text for i in range(MOST_ROWS // 2 + 1))


def test_a_column_without_a_value_is_left_out_of_an_open_table() -> None:
    columns = (Column("a"), Column("b"), Column("c"))
    made = table("x", columns, [("1", "-", (Span("2"),)), ("3", "", "4")])
    (shown,) = with_rests_folded([made])
    assert isinstance(shown, Table) and [column.name for column in shown.columns] == ["a", "c"]
    assert [len(row.cells) for row in shown.groups[0].rows] == [2, 2]
    assert with_rests_folded([table("x", columns, [])]) == [table("x", columns, [])]
