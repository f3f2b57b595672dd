"""Heat maps from each place (row) to each place (column), one map for each method, as a figure and as a table."""

import itertools
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import escape

from linkscope.model.curves import Curve, Family, Method, Path, curves, natural, share_of, total_of
from linkscope.model.text import params_text, usual, varying
from linkscope.report.sweep import without_sweeps
from linkscope.report.trust import INHERITED, SIGN, TOO_UNCERTAIN, is_too_uncertain, sign_of
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_fraction, format_seconds

STEPS = 7  # colours h0 (low) to h6 (high) of figure.css
_CELL_W, _CELL_H, _HEAD_W, _TOP, _FOOT = 74, 40, 64, 42, 30
_NOTE = 16  # height of a line of notes
_LETTER = 6.4  # average width of a letter
_SCALE_W = 320  # width of the colour scale and its labels
_MIN_SCALE = 0.85  # minimum scale: a smaller map is unreadable and scrolls instead


@dataclass(frozen=True)
class Cell:
    """A number, the text below it, and `share` (0 to 1) for the colour."""

    number: str
    below: str
    share: float | None  # None: no colour, the cell is not comparable with the others
    sign: str = ""  # '~' or '^' (trust.py)

    @property
    def text(self) -> str:
        """The number, with its sign where it missed precision or was inherited."""
        return self.sign + self.number


@dataclass(frozen=True)
class Heat:
    """One map. `usual` has the values that hold unless `method` gives another; `colour` says what 100 % stands for."""

    anchor: str
    family: str
    usual: str
    method: str
    what: str
    colour: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    @property
    def title(self) -> str:
        """The title, unique among the maps of a run."""
        return f"{self.what}: {self.family}" + (f" ({self.method})" if self.method else "")

    @property
    def notes(self) -> list[str]:
        """The meanings of the outline, the hatching and the missing colour, if the map has them."""
        signs = {cell.sign for cell in self.cells.values()}
        found = [f"{SIGN} and an outline: missed precision"] if SIGN in signs else []
        found += [f"{INHERITED} and hatched: inherited, not measured"] if INHERITED in signs else []
        bare = [cell for cell in self.cells.values() if cell.share is None]
        if any(cell.below.startswith("at ") for cell in bare):
            found.append("no colour: larger sizes have no total, because their flows did not run together")
        if any(not cell.below.startswith("at ") for cell in bare):
            found.append(f"no colour: the interval is wider than +-{TOO_UNCERTAIN:.0%} of the value")
        return found

    @property
    def width(self) -> int:
        """Width of the figure in pixels."""
        return max(_HEAD_W + _CELL_W * len(self.columns) + 6, _SCALE_W)


_Values = tuple[str, str, dict[Path, Cell]]  # the quantity, what 100 % stands for, and the cells


def heats(points: Iterable[Point]) -> list[Heat]:
    """Maps of best rates, single small operations and operations without bytes, for each method with several paths."""
    found: list[Heat] = []
    made = [curve for curve in without_sweeps(curves(points)) if curve.measured and not curve.path.joint]
    for family, group in itertools.groupby(made, key=lambda curve: curve.method.family):
        of_family = list(group)
        shown = varying(curve.method for curve in of_family)
        common = [pair for pair in usual(of_family) if pair[0] in shown]
        for method, of_method in itertools.groupby(of_family, key=lambda curve: curve.method):
            distinction = _distinction(
                method, [name for name in shown if (name, dict(method.params).get(name)) not in common]
            )
            listed = list(of_method)
            batched = [curve for curve in listed if curve.batched]
            for values in (_rates(batched), _latencies(batched), _times([c for c in listed if not c.batched])):
                heat = _heat(len(found), family, method, params_text(common), distinction, values)
                found += [heat] if heat else []
    return found


def _distinction(method: Method, names: Sequence[str]) -> str:
    """The parameters that distinguish a map from its neighbours, the direction first. Bidirectional maps show
    totals.
    """
    others = params_text(pair for pair in method.params if pair[0] in names and pair[0] != "bidirectional")
    both = dict(method.params).get("bidirectional") == "true"
    direction = "bidirectional, total" if both else "unidirectional" if "bidirectional" in names else ""
    return ", ".join(filter(None, (direction, others)))


def _heat(number: int, family: Family, method: Method, common: str, distinction: str, values: _Values) -> Heat | None:
    what, colour, by_path = values
    if len(by_path) < 2:
        return None
    rows = tuple(sorted({path.src for path in by_path}, key=natural))
    columns = tuple(sorted({path.dst for path in by_path}, key=natural))
    cells = {(path.src, path.dst): cell for path, cell in by_path.items()}
    if all(path.src == path.dst for path in by_path):  # within each place: one row
        rows, cells = ("itself",), {("itself", path.dst): cell for path, cell in by_path.items()}
    return Heat(f"heat-{number}", str(family), common, distinction, what, colour, rows, columns, cells)


def _rates(of_method: Sequence[Curve]) -> _Values:
    """GB/s, coloured by % of peak where every path has a peak, otherwise by the best path."""
    bests = {c.path: best for c in of_method if (best := c.best()) is not None and total_of(best) is not None}
    if not bests:
        return "", "", {}
    shares = {path: share_of(best) for path, best in bests.items()}
    limited = all(share is not None for share in shares.values())
    without_total = {curve.path for curve in of_method if curve.without_total()}
    highest = max(
        (_total(best) for path, best in bests.items() if path not in without_total and not is_too_uncertain(best)),
        default=0.0,
    )
    cells = {}
    for path, best in bests.items():
        share = shares[path] if limited else _total(best) / highest if highest else 0.0
        below = format_fraction(share) if limited else format_bytes(best.bytes)
        number = f"{_total(best):.3g}" if _total(best) < 1000 else f"{_total(best):.0f}"
        if path in without_total:
            cells[path] = Cell(number, f"at {format_bytes(best.bytes)}", None, sign_of([best]))
        else:
            cells[path] = Cell(number, below, None if is_too_uncertain(best) else share or 0.0, sign_of([best]))
    return "best rate, GB/s", "100 % of peak" if limited else "100 % of the best path", cells


def _latencies(of_method: Sequence[Curve]) -> _Values:
    """Nanoseconds of operations without bytes, coloured relative to the shortest."""
    times = {c.path: p for c in of_method for p in c.measured if not p.bytes and p.median_s}
    shares = _by_shortest(times)
    cells = {
        path: Cell(f"{(p.median_s or 0.0) * 1e9:.4g}", "ns", shares[path], sign_of([p])) for path, p in times.items()
    }
    return "time", "100 %: the shortest", cells


def _times(of_method: Sequence[Curve]) -> _Values:
    """Seconds of a single operation at the smallest size that all paths have, coloured relative to the shortest."""
    sizes = [{point.bytes for point in curve.measured} for curve in of_method]
    common = set.intersection(*sizes) if sizes else set()
    if not common:
        return "", "", {}
    size = min(common)
    times = {c.path: p for c in of_method for p in c.measured if p.bytes == size and p.median_s}
    if not times:
        return "", "", {}
    shares = _by_shortest(times)
    cells = {}
    for path, point in times.items():
        number, unit = format_seconds(float(f"{point.median_s:.3g}")).split(" ")
        cells[path] = Cell(number, unit, shares[path], sign_of([point]))
    return f"time of a single {format_bytes(size)}", "100 %: the shortest", cells


def _by_shortest(times: Mapping[Path, Point]) -> dict[Path, float | None]:
    """The shortest time divided by each time. None for a time that is too uncertain; it is not the shortest either."""
    shortest = min((point.median_s or 0.0 for point in times.values() if not is_too_uncertain(point)), default=0.0)
    return {
        path: None if is_too_uncertain(point) else shortest / (point.median_s or 1.0) for path, point in times.items()
    }


def heat_svg(heat: Heat, modelled: bool) -> str:
    """The map as a figure with numbers in its cells. Row: source; column: destination."""
    width = heat.width
    bottom = _TOP + _CELL_H * len(heat.rows)
    notes = [line for note in heat.notes for line in textwrap.wrap(note, round((width - 8) / _LETTER))]
    height = bottom + _FOOT + _NOTE * len(notes)
    name = ("MODELLED: " if modelled else "") + heat.title
    parts = [
        f'<svg class="chart heatmap" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'style="min-width:{width * _MIN_SCALE:.0f}px" role="img" '
        f'aria-label="{escape(name)}"><title>{escape(name)}</title>',
        '<text x="4" y="34">from</text>',
        f'<text class="size" x="{_HEAD_W + _CELL_W * len(heat.columns) / 2:g}" y="13">to</text>',
    ]
    for index, column in enumerate(heat.columns):
        parts.append(f'<text class="size" x="{_HEAD_W + _CELL_W * (index + 0.5):g}" y="34">{escape(column)}</text>')
    for index, row in enumerate(heat.rows):
        y = _TOP + _CELL_H * index
        parts.append(f'<text x="4" y="{y + 25}">{escape(row)}</text>')
        parts += [_cell(heat.cells.get((row, column)), x, y) for x, column in _columns(heat)]
    parts.append(_scale(bottom + 12, heat.colour))
    for index, note in enumerate(notes):
        parts.append(f'<text x="4" y="{bottom + _FOOT + _NOTE * index + 12}">{escape(note)}</text>')
    if modelled:
        middle, centre = width / 2, (_TOP + bottom) / 2
        size = min(64, width / 6)
        parts.append(
            f'<text class="modelled" style="font-size:{size:.3g}px" x="{middle:g}" y="{centre:g}" '
            f'transform="rotate(-12 {middle:g} {centre:g})">MODELLED</text>'
        )
    return "".join(parts) + "</svg>"


def step(share: float) -> int:
    """The colour index of a fraction."""
    return min(STEPS - 1, max(0, int(share * STEPS)))


def _columns(heat: Heat) -> list[tuple[int, str]]:
    return [(_HEAD_W + _CELL_W * index, column) for index, column in enumerate(heat.columns)]


def _cell(cell: Cell | None, x: int, y: int) -> str:
    box = f'x="{x + 1}" y="{y + 1}" width="{_CELL_W - 2}" height="{_CELL_H - 2}" rx="3"'
    if cell is None:
        return f'<rect class="none" {box}/>'
    middle = x + _CELL_W / 2
    fill, ink = ("bare", " tb") if cell.share is None else (f"h{step(cell.share)}", f" t{step(cell.share)}")
    outline = f'<rect class="missed" x="{x + 3}" y="{y + 3}" width="{_CELL_W - 6}" height="{_CELL_H - 6}" rx="2"/>'
    return (
        f'<rect class="{fill}" {box}/>'
        + (f'<g class="on{ink}">{outline}</g>' if cell.sign == SIGN else "")
        + (f'<g class="on{ink}">{_hatch(x, y)}</g>' if cell.sign == INHERITED else "")
        + f'<text class="cell{ink}" x="{middle:g}" y="{y + 18}">{escape(cell.text)}</text>'
        f'<text class="below{ink}" x="{middle:g}" y="{y + 32}">{escape(cell.below)}</text>'
    )


def _hatch(x: int, y: int) -> str:
    """Thin diagonal lines across a cell."""
    lines = "".join(f"M{x + at} {y + _CELL_H - 2}l{_CELL_H - 4} {4 - _CELL_H}" for at in range(4, _CELL_W - _CELL_H, 8))
    return f'<path class="inherited" d="{lines}"/>'


def _scale(y: int, colour: str) -> str:
    boxes = "".join(f'<rect class="h{n}" x="{_HEAD_W + 18 * n}" y="{y}" width="18" height="10"/>' for n in range(STEPS))
    left, right = _HEAD_W - 6, _HEAD_W + 18 * STEPS + 6
    zero = f'<text class="num" x="{left}" y="{y + 9}">0</text>'
    return f'{boxes}{zero}<text x="{right}" y="{y + 9}">{escape(colour)}</text>'


def _total(point: Point) -> float:
    total = total_of(point)
    return total.value if total else 0.0
