"""Section: the rates of all pairs of places as one matrix; the others are folded tables."""

from linkscope.model.text import count_text
from linkscope.report.pair_grid import best_each, data, grid, legends, method_names, shows_share
from linkscope.report.pair_rates import Matrix, main_matrix
from linkscope.report.run_view import RunView
from linkscope.report.section import METHOD, Block, Menus, Paragraph, Section, grid_table, more
from linkscope.report.trust import INHERITED, SIGN

_MOST_MATRICES = 600  # of the menus
_MOST_CELLS = 3000  # of the folded tables; the page stays small with 16 GPUs
_NOTE = (
    "Row: source; column: destination. A cell has the rate and its difference to the median of the measured paths of "
    "its class, which are expected to perform alike. "
)
_SIGNS = (
    f"{SIGN} missed precision; {INHERITED} and a dashed outline: inherited; !: has a warning; (!): above its peak. "
)


def section(view: RunView) -> Section | None:
    """The matrix of plain copies between GPUs, or else the first one. None without two paths of one direction."""
    found = view.matrices
    if not found:
        return None
    shown = main_matrix(found) or found[0]
    names = method_names(found)
    order = [shown, *(one for one in found if one is not shown)][:_MOST_MATRICES]
    made = Menus(grid(shown, names[shown.method]), legends(by_share=shows_share(shown)), data(order))
    blocks: list[Block] = [Paragraph((_NOTE, _SIGNS, METHOD), note=True), made]
    others = [one for key, one in best_each(found).items() if one is not shown]
    kept, cells = [], 0
    for one in others:
        cells += len(one.cells)
        if cells <= _MOST_CELLS:
            kept.append(one)
    if kept:
        left = f"; {len(others) - len(kept)} more are in the data" if len(kept) < len(others) else ""
        tables = (_table(one, names[one.method]) for one in kept)
        blocks.append(more(f"{count_text(len(kept), 'other method')} as tables, each at one size{left}", *tables))
    return Section("pairs", f"All pairs, {shown.direction}" if len(found) == 1 else "All pairs", tuple(blocks))


def _table(matrix: Matrix, name: str) -> Block:
    return grid_table(grid(matrix, name))
