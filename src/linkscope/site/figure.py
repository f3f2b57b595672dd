"""The figures that compare machines: a dot with its interval for each machine, and curves over size."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from linkscope.model.curves import Estimate
from linkscope.report.axes import Axis, rate_axis, time_axis
from linkscope.report.svg import SERIES_COLOURS, Series, rate_chart
from linkscope.site.kinds import Cell
from linkscope.units import format_rate, format_seconds, with_signs

MOST_ROWS = 40  # machines in a figure; the table has all
_WIDTH, _LEFT, _RIGHT, _ROW, _TOP, _BOTTOM = 760, 230, 120, 26, 8, 40
_LETTERS = 32  # of a machine's name beside its row


@dataclass(frozen=True)
class Bar:
    """A machine's name and value."""

    name: str
    cell: Cell


def dots(title: str, bars: Sequence[Bar], *, modelled: bool) -> str:
    """One row a machine: a dot (hollow: inherited, ring: missed precision), its interval, and its peak as a line."""
    shown = bars[:MOST_ROWS]
    height = _TOP + _ROW * len(shown) + _BOTTOM
    axis = _axis([bar.cell for bar in shown])
    name = f"MODELLED: {title}" if modelled else title
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(name)}">',
        f"<title>{escape(name)}</title>",
        _grid(axis, height, shown[0].cell.unit),
    ]
    if modelled:
        middle = height / 2
        parts.append(
            f'<text class="modelled" style="font-size:{min(64, 2 * _ROW + height / 6):.0f}px" x="{_WIDTH / 2:g}" '
            f'y="{middle:g}">MODELLED</text>'
        )
    parts += [_row(bar, axis, _TOP + _ROW * (index + 0.5)) for index, bar in enumerate(shown)]
    return "".join(parts) + "</svg>"


def curves(title: str, bars: Sequence[Bar], *, modelled: bool) -> tuple[str, list[str]]:
    """Rates over size of the first machines that have more than one size, and their names by colour; '' without."""
    drawn = [bar for bar in bars if len(bar.cell.curve) > 1][:SERIES_COLOURS]
    if not drawn:
        return "", []
    series = [
        Series(colour, False, [(size, Estimate(value, low, high)) for size, value, low, high in bar.cell.curve])
        for colour, bar in enumerate(drawn)
    ]
    return rate_chart(title, series, (), modelled), [bar.name for bar in drawn]


def _axis(cells: Sequence[Cell]) -> Axis:
    stop = _WIDTH - _RIGHT
    if cells[0].unit == "s":
        ends = [end for cell in cells for end in (cell.value, cell.low, cell.high) if end and end > 0]
        return time_axis(ends, _LEFT, stop)
    return rate_axis(max(max(cell.value, cell.high or 0.0, cell.peak or 0.0) for cell in cells), _LEFT, stop)


def _grid(axis: Axis, height: int, unit: str) -> str:
    bottom = height - _BOTTOM
    lines = "".join(f"M{axis.at(value):.1f} {_TOP}V{bottom}" for value, _ in axis.ticks)
    texts = "".join(
        f'<text class="size" x="{axis.at(value):.1f}" y="{bottom + 16}">{escape(text)}</text>'
        for value, text in axis.ticks
    )
    name = "time of one operation, logarithmic" if unit == "s" else "GB/s"
    texts += f'<text class="size" x="{(_LEFT + _WIDTH - _RIGHT) / 2:g}" y="{height - 5}">{name}</text>'
    return f'<path class="grid" d="{lines}"/>{texts}'


def _row(bar: Bar, axis: Axis, y: float) -> str:
    cell = bar.cell
    name = bar.name if len(bar.name) <= _LETTERS else bar.name[: _LETTERS - 1] + "…"
    x = axis.at(cell.value)
    parts = [f'<text class="num" x="{_LEFT - 10}" y="{y + 4:g}">{escape(name)}</text>', '<g class="s0">']
    if cell.low is not None and cell.high is not None and axis.at(cell.high) - axis.at(cell.low) > 2:
        low, high = axis.at(cell.low), axis.at(cell.high)
        parts.append(f'<path class="bar" d="M{low:.1f} {y - 4:g}v8m0 -4H{high:.1f}m0 -4v8"/>')
    dot = f"M{x:.1f} {y:g}m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0"
    parts.append(f'<path class="{"bar" if cell.sign == "^" else "mark"}" d="{dot}"/></g>')
    if cell.sign == "~":
        parts.append(f'<path class="ring" d="M{x:.1f} {y:g}m-8 0a8 8 0 1 0 16 0a8 8 0 1 0 -16 0"/>')
    if cell.peak:
        parts.append(f'<path class="limit" d="M{axis.at(cell.peak):.1f} {y - 9:g}v18"/>')
    text = with_signs(format_seconds(cell.value)) if cell.unit == "s" else format_rate(cell.value)
    parts.append(f'<text x="{_WIDTH - _RIGHT + 12}" y="{y + 4:g}">{escape(cell.sign + text)}</text>')
    return "".join(parts)
