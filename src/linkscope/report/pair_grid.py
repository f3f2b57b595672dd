"""A matrix of paths as a grid of coloured cells, and the data with which the page shows another one."""

import itertools
import json
from collections import Counter
from collections.abc import Mapping, Sequence

from linkscope.model.curves import Family, Method, natural
from linkscope.model.text import params_text
from linkscope.report.anchors import path_anchor
from linkscope.report.family_words import family_text
from linkscope.report.headline import COPIES, is_plain_copy
from linkscope.report.machine_map import GRADE_TEXTS, GRADES
from linkscope.report.pair_rates import Cell, Matrix
from linkscope.report.section import Grid, GridCell, Legend, Legends
from linkscope.report.trust import ABOVE, above_peak, has_warning, inherited, sign_of
from linkscope.units import digits4, format_bytes, format_fraction, format_seconds

EDGES = (-0.05, -0.025, -0.01, 0.01, 0.025, 0.05)  # of the deviations: colours d0 (slow) to d6 (fast) of figure.css
_SHARES = ("d6", "d5", "d1", "d0")  # the colours of machine_map.GRADES, best first
_TYPICAL = {"d2d": "device -> device", "h2d": "pinned -> device", "d2h": "device -> pinned"}


def legends(*, by_share: bool) -> Legends:
    """The colours of the cells: the edges of deviations, or of shares of the peak."""
    if by_share:
        return Legends(tuple(Legend(_swatch(style), text) for style, text in zip(_SHARES, GRADE_TEXTS, strict=True)))
    ends = [f"{100 * edge:+.3g}" for edge in EDGES]
    texts = [
        f"below {ends[0]} %",
        *(f"{low} to {high} %" for low, high in itertools.pairwise(ends)),
        f"above {ends[-1]} %",
    ]
    return Legends(tuple(Legend(_swatch(f"d{index}"), text) for index, text in enumerate(texts)))


def _swatch(style: str) -> str:
    return f'<svg class="swatch {style}" width="14" height="12" aria-hidden="true"><rect width="14" height="12"/></svg>'


def grid(matrix: Matrix, name: str) -> Grid:
    """The matrix, coloured by the deviation from the median of each class; where that is unknown, by share of peak."""
    rows, columns = _axes(matrix)
    by_share = shows_share(matrix)
    known = {(path.src, path.dst): _grid_cell(cell, by_share) for path, cell in matrix.cells.items()}
    cells = tuple(tuple(known.get((row, column)) for column in columns) for row in rows)
    unit = "GB/s" if matrix.bytes else "time"
    return Grid(f"{matrix.direction}, {name}, at {size_text(matrix)}, {unit}", rows, columns, cells)


def shows_share(matrix: Matrix) -> bool:
    """Whether a matrix has no deviations to show."""
    return not any(cell.deviation is not None for cell in matrix.cells.values())


def size_text(matrix: Matrix) -> str:
    """'1 GiB'; '8 B, single' for single operations; 'no bytes' for operations without any."""
    size = format_bytes(matrix.bytes) if matrix.bytes else "no bytes"
    return f"{size}, single" if matrix.mode == "single" else size


def method_names(found: Sequence[Matrix]) -> dict[Method, str]:
    """A short name for each method: without typical memory kinds, and without the commonest value of a parameter."""
    methods = list(dict.fromkeys(matrix.method for matrix in found))
    counts: dict[tuple[Family, str], Counter[str]] = {}
    for matrix in found:
        for name, value in matrix.method.params:
            counts.setdefault((matrix.method.family, name), Counter())[value] += len(matrix.cells)
    usual = {key: of.most_common(1)[0][0] for key, of in counts.items()}
    names = {method: _name(method, usual) for method in methods}
    taken = Counter((method.family.benchmark, name) for method, name in names.items())  # the menu has one direction
    return {
        method: name if taken[method.family.benchmark, name] == 1 else _name(method, {})
        for method, name in names.items()
    }


def _name(method: Method, usual: Mapping[tuple[Family, str], str]) -> str:
    family = method.family
    memories = f"{family.src_memory} -> {family.dst_memory}"
    typical = memories == _TYPICAL.get(family.benchmark, "device -> device")
    text = family_text(Family(family.benchmark, family.engine, "device", "device") if typical else family)
    parts = [text.removeprefix(f"{COPIES[family.benchmark]}, ") if family.benchmark in COPIES else text]
    parts += [params_text(pair for pair in method.params if usual.get((family, pair[0])) != pair[1])]
    return ", ".join(filter(None, parts))


def data(found: Sequence[Matrix]) -> str:
    """All matrices as JSON: a list of direction, method, size, unit, kind (of path_anchor), rows, columns, and cells of
    the indices of row and column, number, deviation and share of the peak (null: none).
    """
    names = method_names(found)
    listed = []
    for matrix in found:
        rows, columns = _axes(matrix)
        cells = [
            [
                rows.index(path.src),
                columns.index(path.dst),
                _number(cell),
                _rounded(cell.deviation),
                _rounded(cell.share),
            ]
            for path, cell in matrix.cells.items()
        ]
        listed.append({
            "direction": matrix.direction, "method": names[matrix.method], "size": size_text(matrix),
            "unit": "GB/s" if matrix.bytes else "time", "kind": matrix.method.family.benchmark,
            "rows": rows, "columns": columns, "cells": cells,
        })  # fmt: skip
    scale: dict[str, tuple[object, ...]] = {"edges": EDGES, "grades": GRADES, "shares": _SHARES}
    scale |= {
        name: tuple(one.text for one in legends(by_share=name == "share").entries) for name in ("deviation", "share")
    }
    return json.dumps({"scale": scale, "matrices": listed}, ensure_ascii=False, separators=(",", ":"))


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 6)


def _grid_cell(cell: Cell, by_share: bool) -> GridCell:
    colour, below = share_colour(cell.share) if by_share else deviation_colour(cell.deviation)
    point = cell.point
    link = f"#{path_anchor(point.benchmark, point.src, point.dst)}" if is_plain_copy(point) else ""
    return GridCell(_number(cell), below, " ".join(filter(None, (colour, _kind(cell)))), link)


def deviation_colour(deviation: float | None) -> tuple[str, str]:
    """The class of a deviation and its text: ('d1', '-3.0 %'); ('', '') without one."""
    if deviation is None:
        return "", ""
    return f"d{sum(deviation >= edge for edge in EDGES)}", f"{round(100 * deviation, 1) + 0.0:+.1f} %"


def share_colour(share: float | None) -> tuple[str, str]:
    """The class of a fraction of the peak and its text; a value above the peak is marked."""
    if share is None:
        return "", ""
    index = next((at for at, edge in enumerate(GRADES) if share >= edge), len(GRADES))
    return _SHARES[index], format_fraction(share) + (ABOVE if share > 1 else "")


def _number(cell: Cell) -> str:
    above = ABOVE if above_peak(cell.point) else ""
    sign = sign_of([cell.point]) + ("!" if has_warning(cell.point) and not above else "")
    if not cell.point.bytes:
        return sign + format_seconds(float(f"{cell.value.value:.3g}"))
    return sign + digits4(cell.value.value) + above


def _kind(cell: Cell) -> str:
    """'inherited', 'missed' or '': the outline of a cell."""
    sign = sign_of([cell.point])
    return "inherited" if inherited(cell.point) else "missed" if sign else ""


def _axes(matrix: Matrix) -> tuple[tuple[str, ...], tuple[str, ...]]:
    rows = tuple(sorted({path.src for path in matrix.cells}, key=natural))
    columns = tuple(sorted({path.dst for path in matrix.cells}, key=natural))
    return rows, columns


def best_each(found: Sequence[Matrix]) -> Mapping[tuple[str, Method, str], Matrix]:
    """The matrix with the most measured paths at the largest size, for each direction, method and mode."""
    best: dict[tuple[str, Method, str], Matrix] = {}
    for matrix in found:
        key = (matrix.direction, matrix.method, matrix.mode)
        if key not in best or (matrix.measured, matrix.bytes) > (best[key].measured, best[key].bytes):
            best[key] = matrix
    return best
