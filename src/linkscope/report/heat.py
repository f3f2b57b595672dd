"""Heat maps: from each place (row) to each place (column), one map a method, as a picture and as a table."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import escape

from linkscope.report.curves import Curve, Family, Method, Path, curves, natural, share_of, total_of
from linkscope.report.words import params_text, varying
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_fraction, format_seconds

STEPS = 7  # colours h0 (little) to h6 (all) of figure.css
_CELL_W, _CELL_H, _HEAD_W, _TOP, _FOOT = 74, 40, 64, 42, 44


@dataclass(frozen=True)
class Cell:
    """A number, what is told below it, and 0 to 1 for the colour."""

    number: str
    below: str
    share: float


@dataclass(frozen=True)
class Heat:
    """One map. `colour` says in words what the colour shows."""

    anchor: str
    family: str
    method: str
    what: str
    colour: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]

    @property
    def title(self) -> str:
        """All that tells this map from others."""
        return f"{self.what}: {self.family}" + (f" ({self.method})" if self.method else "")


def heats(points: Iterable[Point]) -> list[Heat]:
    """A map of best rates and one of the times of the smallest operation, for every method that has several paths."""
    found: list[Heat] = []
    for family, group in itertools.groupby(curves(points), key=lambda curve: curve.method.family):
        of_family = [curve for curve in group if curve.measured]
        shown = varying(curve.method for curve in of_family)
        for method, of_method in itertools.groupby(of_family, key=lambda curve: curve.method):
            told = params_text(pair for pair in method.params if pair[0] in shown)
            listed = list(of_method)
            for what, value, modes in (("best rate", _rates, True), ("time of one small operation", _times, False)):
                heat = _heat(len(found), family, method, told, what, value([c for c in listed if c.batched is modes]))
                found += [heat] if heat else []
    return found


def _heat(
    number: int, family: Family, method: Method, told: str, what: str, made: tuple[str, dict[Path, Cell]]
) -> Heat | None:
    colour, by_path = made
    if len(by_path) < 2:
        return None
    rows = tuple(sorted({path.src for path in by_path}, key=natural))
    columns = tuple(sorted({path.dst for path in by_path}, key=natural))
    cells = {(path.src, path.dst): cell for path, cell in by_path.items()}
    if all(path.src == path.dst for path in by_path):  # within each place: one row
        rows, cells = ("itself",), {("itself", path.dst): cell for path, cell in by_path.items()}
    name = "both ways, total" if dict(method.params).get("bidirectional") == "true" else "one way"
    kept = ", ".join(part for part in told.split(", ") if part not in ("both ways", "one way"))
    return Heat(
        f"heat-{number}", str(family), ", ".join(filter(None, (name, kept))), what, colour, rows, columns, cells
    )


def _rates(of_method: Sequence[Curve]) -> tuple[str, dict[Path, Cell]]:
    """GB/s; coloured by the share of the limit where every path has one, else of the best path."""
    bests = {c.path: best for c in of_method if (best := c.best()) is not None and total_of(best) is not None}
    if not bests:
        return "", {}
    shares = {path: share_of(best) for path, best in bests.items()}
    limited = all(share is not None for share in shares.values())
    highest = max(_total(best) for best in bests.values())
    cells = {}
    for path, best in bests.items():
        share = shares[path] if limited else _total(best) / highest
        below = format_fraction(share) if limited else format_bytes(best.bytes)
        cells[path] = Cell(f"{_total(best):.3g}" if _total(best) < 1000 else f"{_total(best):.0f}", below, share or 0.0)
    return ("GB/s; colour and second line: share of the limit" if limited else "GB/s; colour: share of the best"), cells


def _times(of_method: Sequence[Curve]) -> tuple[str, dict[Path, Cell]]:
    """Seconds of one operation alone at the smallest size that all paths have; coloured by the shortest over it."""
    sizes = [{point.bytes for point in curve.measured} for curve in of_method]
    common = set.intersection(*sizes) if sizes else set()
    if not common:
        return "", {}
    size = min(common)
    times = {c.path: p.median_s for c in of_method for p in c.measured if p.bytes == size and p.median_s}
    if not times:
        return "", {}
    shortest = min(times.values())
    cells = {}
    for path, seconds in times.items():
        number, unit = format_seconds(float(f"{seconds:.3g}")).split(" ")
        cells[path] = Cell(number, unit, shortest / seconds)
    return f"one operation of {format_bytes(size)} alone; colour: the shortest time over this one", cells


def heat_svg(heat: Heat, modelled: bool) -> str:
    """The map as a picture with its numbers in the cells; row: from, column: to."""
    width = _HEAD_W + _CELL_W * len(heat.columns) + 6
    width = max(width, 250)
    bottom = _TOP + _CELL_H * len(heat.rows)
    height = bottom + _FOOT
    name = ("MODELLED: " if modelled else "") + heat.title
    parts = [
        f'<svg class="chart heatmap" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" '
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
    parts.append(_scale(bottom + 12))
    if modelled:
        middle, centre = width / 2, (_TOP + bottom) / 2
        size = min(64, width / 6)
        parts.append(
            f'<text class="modelled" style="font-size:{size:.3g}px" x="{middle:g}" y="{centre:g}" '
            f'transform="rotate(-12 {middle:g} {centre:g})">MODELLED</text>'
        )
    return "".join(parts) + "</svg>"


def step(share: float) -> int:
    """The colour of a share."""
    return min(STEPS - 1, max(0, int(share * STEPS)))


def _columns(heat: Heat) -> list[tuple[int, str]]:
    return [(_HEAD_W + _CELL_W * index, column) for index, column in enumerate(heat.columns)]


def _cell(cell: Cell | None, x: int, y: int) -> str:
    box = f'x="{x + 1}" y="{y + 1}" width="{_CELL_W - 2}" height="{_CELL_H - 2}" rx="3"'
    if cell is None:
        return f'<rect class="none" {box}/>'
    middle, colour = x + _CELL_W / 2, step(cell.share)
    return (
        f'<rect class="h{colour}" {box}/>'
        f'<text class="cell t{colour}" x="{middle:g}" y="{y + 18}">{escape(cell.number)}</text>'
        f'<text class="below t{colour}" x="{middle:g}" y="{y + 32}">{escape(cell.below)}</text>'
    )


def _scale(y: int) -> str:
    boxes = "".join(f'<rect class="h{n}" x="{_HEAD_W + 18 * n}" y="{y}" width="18" height="10"/>' for n in range(STEPS))
    left, right = _HEAD_W - 6, _HEAD_W + 18 * STEPS + 6
    return f'{boxes}<text class="num" x="{left}" y="{y + 9}">0</text><text x="{right}" y="{y + 9}">100 %</text>'


def _total(point: Point) -> float:
    total = total_of(point)
    return total.value if total else 0.0
