"""Draws the changes as SVG: for every path the ratio of times with its interval, and the margin as a band."""

import math

from markupsafe import escape

from linkscope.compare.text import PathVerdict, by_path
from linkscope.compare.verdict import Comparison
from linkscope.model.text import method_text
from linkscope.units import format_bytes

# colours of Okabe and Ito
_COLOURS = {"slower": "#d55e00", "faster": "#0072b2", "no change seen": "#777777", "equivalent": "#009e73"}
_TITLE = "Time after over time before: the size that changed most of each path"
_MOST = 60  # rows; the worst come first
_ROW, _LEFT, _WIDTH, _TOP = 18, 520, 900, 52


def forest(comparison: Comparison, modelled: bool) -> str:
    """The figure: time after over time before, on a logarithmic scale; paths without an interval are left out."""
    rows = [one for one in by_path(comparison) if one.worst.interval and one.worst.ratio]
    shown = rows[:_MOST]
    margin = max(comparison.margins)
    far = max([margin * 2, *(_reach(one) for one in shown)])
    scale = _Scale(math.log1p(min(far, 10.0)))
    height = _TOP + _ROW * len(shown) + 28
    band = scale.at(1 / (1 + margin)), scale.at(1 + margin)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        'font-family="sans-serif" font-size="11" role="img">',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="18" font-size="14">{_TITLE}</text>',
        f'<text x="10" y="36" fill="#555555">{escape(_legend(comparison, len(rows), len(shown)))}</text>',
        f'<rect x="{band[0]:.1f}" y="{_TOP - 8}" width="{band[1] - band[0]:.1f}" height="{height - _TOP - 16}" '
        'fill="#eeeeee"/>',
        f'<path d="M{scale.at(1):.1f} {_TOP - 8}V{height - 24}" stroke="#555555"/>',
    ]
    for number, one in enumerate(shown):
        parts += _row(one, _TOP + _ROW * number + 4, scale)
    for value in scale.ticks():
        percent = f"{100 * (value - 1):+.3g} %"
        parts.append(f'<text x="{scale.at(value):.1f}" y="{height - 8}" text-anchor="middle">{percent}</text>')
    if modelled:
        parts.append(
            f'<text x="{_WIDTH / 2}" y="{height / 2}" font-size="60" fill="#000000" fill-opacity="0.08" '
            'text-anchor="middle">MODELLED</text>'
        )
    return "".join([*parts, "</svg>\n"])


class _Scale:
    def __init__(self, reach: float) -> None:
        self.reach = reach

    def at(self, ratio: float) -> float:
        share = (max(-self.reach, min(self.reach, math.log(ratio))) / self.reach + 1) / 2
        return _LEFT + share * (_WIDTH - _LEFT - 30)

    def ticks(self) -> list[float]:
        return [math.exp(self.reach * share) for share in (-1, -0.5, 0, 0.5, 1)]


def _row(one: PathVerdict, y: float, scale: _Scale) -> list[str]:
    interval, ratio = one.worst.interval, one.worst.ratio
    assert interval and ratio
    colour = _COLOURS[one.verdict]
    size = f" {format_bytes(one.worst.before.bytes)}" if one.worst.before.bytes else ""
    label = f"{one.verdict}: {method_text(one.method)} {one.path}{size}"
    return [
        f'<text x="{_LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(label[:90])}</text>',
        f'<path d="M{scale.at(interval.low):.1f} {y}H{scale.at(interval.high):.1f}" stroke="{colour}" '
        'stroke-width="2"/>',
        f'<circle cx="{scale.at(ratio):.1f}" cy="{y}" r="4" fill="{colour}"/>',
    ]


def _reach(one: PathVerdict) -> float:
    interval = one.worst.interval
    return max(interval.high, 1 / interval.low) - 1 if interval else 0.0


def _legend(comparison: Comparison, count: int, shown: int) -> str:
    margins = " and ".join(dict.fromkeys(f"{100 * margin:.3g} %" for margin in reversed(comparison.margins)))
    text = f"95 % intervals; margin {margins}; the grey band is the wider one"
    return text if count == shown else f"{text}; the first {shown} of {count} paths"
