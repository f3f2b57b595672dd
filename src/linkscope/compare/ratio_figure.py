"""The figure of all pairs of values: time after over time before, against the time before, as SVG for pages."""

import math
from collections.abc import Sequence

from linkscope.compare.verdict import Comparison, Pair, Verdict
from linkscope.model.text import count_text
from linkscope.report.axes import Axis, time_axis
from linkscope.report.section import Legend
from linkscope.report.svg import WIDTH

_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 320, 70, 36, 14, 40
_MOST = 2.0  # larger ratios are drawn at the edge
_STYLES: dict[Verdict, tuple[int, str]] = {  # colour, and the marker around a place
    "slower": (1, "m0 -5l5 9h-10z"), "faster": (0, "m0 5l5 -9h-10z"),
    "no change seen": (6, "m-2 0a2 2 0 1 0 4 0a2 2 0 1 0 -4 0"), "equivalent": (2, "m-1.5 -1.5h3v3h-3z"),
}  # fmt: skip
_TICKS = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0)


def ratio_figure(comparison: Comparison, modelled: bool) -> tuple[str, list[Legend]]:
    """The drawing and its legend. Points without a value on one side are left out; '' if none is left."""
    pairs = [pair for pair in comparison.pairs if pair.ratio and pair.before.median_s]
    if not pairs:
        return "", []
    reach = min(max(1 + 2 * max(comparison.margins), *(max(p.ratio or 1, 1 / (p.ratio or 1)) for p in pairs)), _MOST)
    ticks = tuple((tick, _percent(tick)) for tick in _ticks(reach))
    x = _turned(time_axis([pair.before.median_s or 0.0 for pair in pairs], 0, 1))
    y = Axis(1 / reach, reach, _HEIGHT - _BOTTOM, _TOP, True, ticks)
    by_verdict = {verdict: [pair for pair in pairs if pair.verdict == verdict] for verdict in reversed(_STYLES)}
    title = f"{'MODELLED: ' if modelled else ''}time after over time before, of {len(pairs)} points"
    parts = [
        f'<svg class="chart" style="max-width:760px" viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{title}"><title>{title}</title>',
        _axes(x, y, max(comparison.margins)),
        *(_marks(verdict, of, x, y) for verdict, of in by_verdict.items() if of),
    ]
    if modelled:
        parts.append(f'<text class="modelled" x="{WIDTH / 2}" y="{_HEIGHT / 2}">MODELLED</text>')
    legend = [
        Legend(_swatch(verdict), f"{verdict}: {len(by_verdict[verdict])}") for verdict in _STYLES if by_verdict[verdict]
    ]
    return "".join([*parts, "</svg>"]), legend


def _ticks(reach: float) -> list[float]:
    """The ticks within reach whose labels do not touch."""
    apart = math.log(reach) / 8
    positive: list[float] = [1.0]
    for tick in (tick for tick in _TICKS if 1 < tick <= reach):
        positive += [tick] if math.log(tick / positive[-1]) > apart else []
    return [*(1 / tick for tick in reversed(positive[1:])), *positive]


def _percent(ratio: float) -> str:
    return "0 %" if ratio == 1 else f"{100 * (ratio - 1):+.2g} %"


def _turned(axis: Axis) -> Axis:
    """A vertical axis as a horizontal one."""
    return Axis(axis.low, axis.high, _LEFT, WIDTH - _RIGHT, axis.logarithmic, axis.ticks)


def _axes(x: Axis, y: Axis, margin: float) -> str:
    bottom = _HEIGHT - _BOTTOM
    top, low = y.at(1 + margin), y.at(1 / (1 + margin))
    lines = "".join(f"M{_LEFT} {y.at(value):.1f}H{WIDTH - _RIGHT}" for value, _ in y.ticks)
    texts = "".join(
        f'<text class="num" x="{_LEFT - 6}" y="{y.at(value) + 4:.1f}">{text}</text>' for value, text in y.ticks
    )
    texts += "".join(
        f'<text class="size" x="{x.at(value):.1f}" y="{bottom + 18}">{text}</text>' for value, text in x.ticks
    )
    return (
        f'<rect class="h0" x="{_LEFT}" y="{top:.1f}" width="{WIDTH - _RIGHT - _LEFT}" height="{low - top:.1f}"/>'
        f'<path class="grid" d="{lines}"/>{texts}'
        f'<text class="size" x="{(_LEFT + WIDTH - _RIGHT) / 2:g}" y="{_HEIGHT - 5}">time before</text>'
    )


def _marks(verdict: Verdict, pairs: Sequence[Pair], x: Axis, y: Axis) -> str:
    colour, marker = _STYLES[verdict]
    places = "".join(f"M{x.at(p.before.median_s or x.low):.1f} {y.at(p.ratio or 1):.1f}{marker}" for p in pairs)
    return f'<g class="s{colour}"><path class="mark" d="{places}"/></g>'


def _swatch(verdict: Verdict) -> str:
    colour, marker = _STYLES[verdict]
    return (
        f'<svg class="swatch s{colour}" width="16" height="14" viewBox="0 0 16 14" aria-hidden="true">'
        f'<path class="mark" d="M8 7{marker}"/></svg>'
    )


def reach_text(comparison: Comparison) -> str:
    """The bounds of the figure in words."""
    beyond = sum(bool(pair.ratio) and abs(math.log(pair.ratio or 1)) > math.log(_MOST) for pair in comparison.pairs)
    return f"; {count_text(beyond, 'point')} beyond a factor of 2 at the edge" if beyond else ""
