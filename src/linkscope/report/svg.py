"""Small charts over size or blocks as SVG text: one path element for each series, regardless of its number of points.

The colours are the classes s0 to s7 of report.css (after Okabe and Ito, distinguishable with colour blindness). Each
series also has its own marker, so that colour is never the only difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import escape

from linkscope.model.curves import Estimate
from linkscope.report.axes import Axis, rate_axis, size_axis, time_axis
from linkscope.units import format_rate

SERIES_COLOURS = 8
WIDTH, HEIGHT = 560, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 30, 14, 40
_SEEN = 2.5  # a shorter interval, in pixels, is hidden by its marker
_MARKERS = (
    "M{x} {y}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0 -6 0",
    "M{x} {y}m-3 -3h6v6h-6z",
    "M{x} {y}m0 -4l4 7h-8z",
    "M{x} {y}m0 -4l4 4l-4 4l-4 -4z",
    "M{x} {y}m0 4l4 -7h-8z",
    "M{x} {y}m-3 -3l6 6m0 -6l-6 6",
    "M{x} {y}m-4 0h8m-4 -4v8",
    "M{x} {y}m-4 -1.5h8v3h-8z",
)


@dataclass(frozen=True)
class Series:
    """Values over bytes, or over positions on another axis. `colour` is 0 to 7; `single`: single operations, drawn
    dashed.
    """

    colour: int
    single: bool
    points: Sequence[tuple[float, Estimate]]
    missed: frozenset[float] = frozenset()  # positions that missed precision; they get a ring
    inherited: frozenset[float] = frozenset()  # positions of inherited values
    breaks: frozenset[float] = frozenset()  # positions without a line from the previous position


def rate_chart(title: str, series: Sequence[Series], limits: Sequence[float], modelled: bool) -> str:
    """GB/s over size, with the peaks as lines."""
    tops = [estimate.high or estimate.value for one in series for _, estimate in one.points]
    y = rate_axis(max([*tops, *limits]), HEIGHT - _BOTTOM, _TOP)
    return _chart(title, series, _sizes(series), (y, "GB/s"), limits, modelled)


def blocks_chart(
    title: str, series: Sequence[Series], names: Sequence[str], limits: Sequence[float], modelled: bool
) -> str:
    """GB/s over the number of blocks; the x of a point is the index of its name."""
    tops = [estimate.high or estimate.value for one in series for _, estimate in one.points]
    y = rate_axis(max([*tops, *limits]), HEIGHT - _BOTTOM, _TOP)
    ticks = tuple((float(index), name) for index, name in enumerate(names))
    x = Axis(-0.5, len(names) - 0.5, _LEFT, WIDTH - _RIGHT, False, ticks)
    return _chart(title, series, (x, "thread blocks"), (y, "GB/s"), limits, modelled)


def time_chart(title: str, series: Sequence[Series], modelled: bool) -> str:
    """Time over size, both logarithmic."""
    times = [estimate.value for one in series for _, estimate in one.points if estimate.value > 0]
    y = time_axis(times or [1e-6], HEIGHT - _BOTTOM, _TOP)
    return _chart(title, series, _sizes(series), (y, "time"), (), modelled)


def load_chart(title: str, series: Sequence[Series], modelled: bool) -> str:
    """Time, logarithmic, over the load of other work: 0 to 10 tenths of the time."""
    times = [estimate.value for one in series for _, estimate in one.points if estimate.value > 0]
    y = time_axis(times or [1e-6], HEIGHT - _BOTTOM, _TOP)
    x = Axis(-0.5, 10.5, _LEFT, WIDTH - _RIGHT, False, tuple((float(load), f"{load}/10") for load in range(11)))
    return _chart(title, series, (x, "load by other work"), (y, "time"), (), modelled)


def uses_chart(title: str, series: Sequence[Series], modelled: bool) -> str:
    """Time over the number of transfers, both logarithmic."""
    times = [estimate.value for one in series for _, estimate in one.points]
    counts = [count for one in series for count, _ in one.points]
    ticks = tuple((float(10**power), f"{10**power:,}") for power in range(round(math.log10(max(counts))) + 1))
    x = Axis(0.8, 1.25 * max(counts), _LEFT, WIDTH - _RIGHT, True, ticks)
    y = time_axis(times, HEIGHT - _BOTTOM, _TOP)
    return _chart(title, series, (x, "number of transfers"), (y, "time"), (), modelled)


def swatch(colour: int) -> str:
    """The line and marker of a colour, for a legend."""
    marker = _MARKERS[colour % SERIES_COLOURS].format(x=14, y=7)
    return (
        f'<svg class="swatch s{colour % SERIES_COLOURS}" width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">'
        f'<path class="line" d="M0 7H28"/><path class="mark" d="{marker}"/></svg>'
    )


def ring() -> str:
    """The ring around a marker, for a legend."""
    return (
        '<svg class="swatch" width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">'
        '<path class="ring" d="M14 7m-6 0a6 6 0 1 0 12 0a6 6 0 1 0 -12 0"/></svg>'
    )


def box() -> str:
    """The mark of inherited values, for a legend."""
    return (
        '<svg class="swatch" width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">'
        '<path class="inherited" d="M14 7m-5 -5h10v10h-10z"/></svg>'
    )


def _sizes(series: Sequence[Series]) -> tuple[Axis, str]:
    sizes = [int(size) for one in series for size, _ in one.points]
    return size_axis(sizes, _LEFT, WIDTH - _RIGHT), "size of one operation"


def _chart(
    title: str, series: Sequence[Series], across: tuple[Axis, str], up: tuple[Axis, str], limits: Sequence[float],
    modelled: bool,
) -> str:  # fmt: skip
    (x, x_name), (y, unit) = across, up
    name = f"MODELLED: {title}" if modelled else title
    parts = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}">',
        f"<title>{escape(name)}</title>",
        _grid(x, x_name, y, unit),
    ]
    if modelled:
        parts.append(
            f'<text class="modelled" x="{WIDTH / 2:g}" y="{HEIGHT / 2:g}" '
            f'transform="rotate(-18 {WIDTH / 2:g} {HEIGHT / 2:g})">MODELLED</text>'
        )
    parts += [_limit_line(limit, y) for limit in limits]
    parts += [_drawn(one, x, y) for one in series]
    return "".join(parts) + "</svg>"


def _grid(x: Axis, x_name: str, y: Axis, unit: str) -> str:
    """Lines, numbers and names of both axes."""
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    lines = "".join(f"M{_LEFT} {y.at(value):.4g}H{right}" for value, _ in y.ticks)
    lines += "".join(f"M{x.at(value):.4g} {bottom}v5" for value, _ in x.ticks)
    texts = "".join(
        f'<text class="num" x="{_LEFT - 6}" y="{y.at(value) + 4:.4g}">{escape(text)}</text>' for value, text in y.ticks
    )
    texts += "".join(
        f'<text class="size{" odd" if index % 2 else ""}" x="{x.at(value):.4g}" y="{bottom + 19}">{escape(text)}</text>'
        for index, (value, text) in enumerate(x.ticks)
    )
    texts += f'<text class="size" x="{(_LEFT + right) / 2:g}" y="{HEIGHT - 4}">{x_name}</text>'
    centre = (bottom + _TOP) / 2
    turned = f'transform="rotate(-90 10 {centre:g})"'
    texts += f'<text class="size unit" x="10" y="{centre:g}" {turned}>{escape(unit)}</text>'
    return f'<path class="grid" d="{lines}"/>{texts}'


def _limit_line(limit: float, y: Axis) -> str:
    height = y.at(limit)
    above, below = height - 5, height + 14
    grid = [y.at(value) for value, _ in y.ticks]
    struck = any(above - 10 < line < above + 2 for line in grid)  # next to a grid line, the text goes below
    at = below if struck or above < 10 else above  # 10: the height of a line of text at the top
    words = f"peak {escape(format_rate(limit))}"
    width = 6.4 * len(words)
    return (
        f'<path class="limit" d="M{_LEFT} {height:.4g}H{WIDTH - _RIGHT}"/>'
        f'<rect class="under" x="{_LEFT + 3}" y="{at - 10:.4g}" width="{width:.0f}" height="13"/>'
        f'<text class="limit" x="{_LEFT + 6}" y="{at:.4g}">{words}</text>'
    )


def _drawn(series: Series, x: Axis, y: Axis) -> str:
    places = [(x.at(size), y.at(estimate.value)) for size, estimate in series.points]
    at = [place for place, _ in series.points]
    line = "".join(
        f"{'M' if not number or place in series.breaks else 'L'}{px:.1f} {py:.1f}"
        for number, (place, (px, py)) in enumerate(zip(at, places, strict=True))
    )
    marker = _MARKERS[series.colour % SERIES_COLOURS]
    measured = [where for place, where in zip(at, places, strict=True) if place not in series.inherited]
    marks = "".join(marker.format(x=f"{px:.1f}", y=f"{py:.1f}") for px, py in measured)
    inherited = [where for place, where in zip(at, places, strict=True) if place in series.inherited]
    boxes = "".join(f"M{px:.1f} {py:.1f}m-5 -5h10v10h-10z" for px, py in inherited)
    bars = "".join(_bar(x.at(size), estimate, y) for size, estimate in series.points)
    drawn_bars = f'<path class="bar" d="{bars}"/>' if bars else ""
    rings = "".join(
        f"M{px:.1f} {py:.1f}m-7 0a7 7 0 1 0 14 0a7 7 0 1 0 -14 0"
        for (px, py), (place, _) in zip(places, series.points, strict=True)
        if place in series.missed
    )
    drawn_bars += f'<path class="ring" d="{rings}"/>' if rings else ""
    drawn_bars += f'<path class="inherited" d="{boxes}"/>' if boxes else ""
    style = f"s{series.colour % SERIES_COLOURS}" + (" single" if series.single else "")
    return f'<g class="{style}"><path class="line" d="{line}"/>{drawn_bars}<path class="mark" d="{marks}"/></g>'


def _bar(px: float, estimate: Estimate, y: Axis) -> str:
    """A vertical bar with caps, unless it is too short to be seen."""
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = y.at(estimate.low), y.at(estimate.high)
    if abs(low - high) < _SEEN:
        return ""
    return f"M{px - 4:.1f} {low:.1f}h8m-4 0V{high:.1f}m-4 0h8"
