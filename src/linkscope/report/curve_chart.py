"""A figure of rates over size with the name of each line at its end, as SVG text."""

from collections.abc import Sequence

from markupsafe import escape

from linkscope.model.cliffs import breaks
from linkscope.model.curves import Curve, rate_of
from linkscope.report.axes import Axis, log_rate_axis, rate_axis, size_axis
from linkscope.report.curve_lines import Line, Lines
from linkscope.report.headline import best_points
from linkscope.report.trust import ABOVE, above_peak, inherited, missed, sign_of
from linkscope.units import digits3, format_bytes, format_rate

WIDTH, HEIGHT = 400, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 116, 12, 38
_APART = 14.0  # distance between two names, in pixels
_DASHES = ("", "7 3", "2 3", "9 3 2 3")  # by style
_DOT = 2.4
_LETTER = 6.6  # width of a letter, in pixels: an upper bound for common fonts


def curve_svg(lines: Lines, modelled: bool, *, logarithmic: bool) -> str:
    """The lines over size, on a linear or logarithmic axis of rates; the peak as a dotted line."""
    points = [point for line in lines.lines for point in line.curve.measured]
    peaks = sorted({p.limit_gbps for p in lines.lines[0].curve.measured if p.limit_gbps})
    x = size_axis([point.bytes for point in points], _LEFT, WIDTH - _RIGHT)
    rates = [rate.value for point in points if (rate := rate_of(point)) is not None and rate.value > 0]
    if logarithmic:
        y = log_rate_axis([*rates, *peaks], HEIGHT - _BOTTOM, _TOP)
    else:
        y = rate_axis(max([*rates, *peaks]), HEIGHT - _BOTTOM, _TOP)
    kind = "logarithmic" if logarithmic else "linear"
    name = ("MODELLED: " if modelled else "") + f"rate over size, {lines.direction}, {lines.path}, {kind}"
    parts = [
        f'<svg class="chart curves" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}">'
        f"<title>{escape(name)}</title>",
        _grid(x, y),
        _watermark() if modelled else "",
        *(_peak(peak, y) for peak in peaks[-1:]),
        *(_drawn(line, x, y) for line in reversed(lines.lines)),
        _half(lines.lines[0].curve, x, y),
        *_names(lines.lines, x, y),
    ]
    return "".join(parts) + "</svg>"


def _grid(x: Axis, y: Axis) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    lines = "".join(f"M{_LEFT} {y.at(value):.1f}H{right}" for value, _ in y.ticks)
    lines += "".join(f"M{x.at(value):.1f} {bottom}v4" for value, _ in x.ticks)
    texts = "".join(
        f'<text class="num" x="{_LEFT - 5}" y="{y.at(value) + 4:.1f}">{escape(text)}</text>' for value, text in y.ticks
    )
    texts += "".join(
        f'<text class="size" x="{x.at(value):.1f}" y="{bottom + 16}">{escape(text)}</text>'
        for value, text in x.ticks[::2]
    )
    return f'<path class="grid" d="{lines}"/>{texts}<text x="{_LEFT}" y="{HEIGHT - 5}">GB/s over size</text>'


def _watermark() -> str:
    middle, centre = (WIDTH - _RIGHT + _LEFT) / 2, HEIGHT / 2
    return f'<text class="modelled" style="font-size:48px" x="{middle:g}" y="{centre:g}">MODELLED</text>'


def _peak(peak: float, y: Axis) -> str:
    height = y.at(peak)
    text = f"peak {escape(format_rate(peak))}"
    return (
        f'<path class="limit" d="M{_LEFT} {height:.1f}H{WIDTH - _RIGHT}"/>'
        f'<text class="limit" x="{_LEFT + 4}" y="{height + 14:.1f}">{text}</text>'
    )


def _drawn(line: Line, x: Axis, y: Axis) -> str:
    """The band of the intervals, the line, and the dots: filled measured, hollow inherited, ringed missed."""
    known = [(point, rate) for point in line.curve.measured if (rate := rate_of(point)) is not None and rate.value > 0]
    cuts = breaks([point for point, _ in known])
    path = "".join(
        f"{'M' if not index or point.bytes in cuts else 'L'}{x.at(point.bytes):.1f} {y.at(rate.value):.1f}"
        for index, (point, rate) in enumerate(known)
    )
    ends = [(x.at(p.bytes), y.at(r.low), y.at(r.high)) for p, r in known if r.low is not None and r.high is not None]
    band = ""
    if len(ends) == len(known) > 1:
        there = "L".join(f"{px:.1f} {high:.1f}" for px, _, high in ends)
        back = "L".join(f"{px:.1f} {low:.1f}" for px, low, _ in reversed(ends))
        band = f'<path class="band" d="M{there}L{back}Z"/>'
    dots: dict[str, str] = {"dot": "", "dot hollow": "", "ring": ""}
    for point, rate in known:
        px, py = x.at(point.bytes), y.at(rate.value)
        dots["dot hollow" if inherited(point) else "dot"] += _circle(px, py, _DOT)
        dots["ring"] += _circle(px, py, _DOT + 2) if missed(point) else ""
    drawn = "".join(f'<path class="{style}" d="{of}"/>' for style, of in dots.items() if of)
    dash = f' stroke-dasharray="{_DASHES[line.style]}"' if _DASHES[line.style] else ""
    return f'<g class="k{line.style}">{band}<path class="line" d="{path}"{dash}/>{drawn}</g>'


def _circle(x: float, y: float, radius: float) -> str:
    around = f"a{radius:g} {radius:g} 0 1 0"
    return f"M{x - radius:.1f} {y:.1f}{around} {2 * radius:g} 0{around} -{2 * radius:g} 0"


def _half(curve: Curve, x: Axis, y: Axis) -> str:
    """A dotted line from the first size with half of the best rate down to the axis, with the size."""
    size = curve.half_rate_bytes()
    point = next((point for point in curve.measured if point.bytes == size), None)
    rate = rate_of(point) if point else None
    if size is None or rate is None:
        return ""
    px, py = x.at(size), y.at(rate.value)
    text = f"half from {format_bytes(size)}"
    left = px - 8 - _LETTER * len(text)
    label = f'<text class="num" x="{px - 8:.1f}" y="{py + 4:.1f}">{escape(text)}</text>'
    if left < _LEFT:  # no room on the left
        label = f'<text x="{px + 8:.1f}" y="{py + 16:.1f}">{escape(text)}</text>'
    return f'<path class="half" d="M{px:.1f} {py:.1f}V{HEIGHT - _BOTTOM}"/>{label}'


def _names(lines: Sequence[Line], x: Axis, y: Axis) -> list[str]:
    """The name of each line with its best rate, beside its last point. Names that would meet move apart."""
    ends: list[tuple[float, float, Line, str]] = []
    for line in lines:
        rated = [(point, rate) for point in line.curve.measured if (rate := rate_of(point)) is not None]
        if rated:
            last, rate = rated[-1]
            above = ABOVE if any(map(above_peak, line.curve.measured)) else ""
            best = best_points(line.curve.measured)[line.curve.path]
            most = rate_of(best) or rate
            text = f"{line.name} {sign_of([best])}{digits3(most.value)}{above}"
            ends.append((y.at(rate.value), x.at(last.bytes), line, text))
    ends.sort(key=lambda end: end[0])
    heights = spread([end[0] for end in ends], _APART, _TOP + 4.0, HEIGHT - _BOTTOM - 2.0)
    parts = []
    for (py, px, line, text), height in zip(ends, heights, strict=True):
        start = WIDTH - _RIGHT + 14
        parts.append(
            f'<g class="k{line.style}"><path class="leader" d="M{px + 4:.1f} {py:.1f}L{start - 2} {height:.1f}"/>'
            f'<text x="{start}" y="{height + 4:.1f}">{escape(text)}</text></g>'
        )
    return parts


def spread(wanted: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Places near the sorted wanted ones, at least `apart` from each other; between low and high if there is room."""
    places: list[float] = []
    for place in wanted:
        places.append(max(place, low, places[-1] + apart if places else low))
    limit = high
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], limit)
        limit = places[index] - apart
    return places
