"""The time of the transfers of a trace, by kind and part of the trace: Comm|Scope's figure 1 (CS-27).

The sum of single transfers as the run measured them: the communication time of a program without any overlap.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from linkscope.model.curves import Estimate, time_of
from linkscope.report.trust import signed
from linkscope.runfile import Point
from linkscope.trace import KINDS, Part
from linkscope.units import format_bytes, format_fraction, format_seconds, format_seconds_interval

_LEFT, _ROW, _BAR, _PLOT, _TOP = 190, 34, 20, 520, 40


@dataclass(frozen=True)
class Sum:
    """The transfers of one kind in one part."""

    count: int
    bytes: int
    time: Estimate
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Bar:
    """A part of the trace: the time of each kind and of all kinds."""

    name: str
    kinds: Mapping[str, Sum]

    @property
    def total(self) -> Sum:
        return _together(self.kinds.values())


def replay(parts: Iterable[Part], points: Iterable[Point]) -> tuple[list[Bar], list[str]]:
    """The bars, and the ids of the transfers without a value in the run. The bars leave these out."""
    known = {point.id: point for point in points}
    bars: list[Bar] = []
    missing: dict[str, bool] = {}
    for part in parts:
        sums: dict[str, list[Sum]] = {}
        for transfer in part.transfers:
            id = str(transfer.point)
            time = time_of(known[id]) if id in known else None
            if time is None:
                missing[id] = True
                continue
            ends = [None if end is None else end * transfer.count for end in (time.low, time.high)]
            took = Estimate(time.value * transfer.count, *ends)
            one = Sum(transfer.count, transfer.count * transfer.point.bytes, took, (known[id],))
            sums.setdefault(transfer.kind, []).append(one)
        bars.append(Bar(part.name, {kind: _together(sums[kind]) for kind in KINDS if kind in sums}))
    return bars, list(missing)


def cells(bars: Sequence[Bar]) -> list[tuple[str, ...]]:
    """Rows of a table: part, kind, number, bytes, time with its interval, share of the time of the part."""
    rows: list[tuple[str, ...]] = []
    for bar in bars:
        for name, one in (*((KINDS[kind], one) for kind, one in bar.kinds.items()), ("total", bar.total)):
            time = signed(format_seconds_interval(one.time.value, one.time.low, one.time.high), one.points)
            share = format_fraction(one.time.value / bar.total.time.value) if bar.total.time.value else ""
            rows.append((bar.name, name, str(one.count), format_bytes(one.bytes), time, share))
    return rows


def bars_svg(bars: Sequence[Bar], *, modelled: bool) -> str:
    """A bar for each part, stacked by kind; its length is the time."""
    longest = max((bar.total.time.value for bar in bars), default=0.0) or 1.0
    width, height = _LEFT + _PLOT + 110, _TOP + _ROW * len(bars) + 16
    title = escape(("MODELLED: " if modelled else "") + "time of all transfers by kind")
    svg = [f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{title}"><title>{title}</title>']
    x = _LEFT
    for colour, name in enumerate(KINDS.values()):
        svg.append(f'<g class="s{colour}"><rect class="mark" x="{x}" y="12" width="12" height="12"/></g>')
        svg.append(f'<text x="{x + 18}" y="22">{name}</text>')
        x += 130
    for row, bar in enumerate(bars):
        y, x_end = _TOP + _ROW * row, float(_LEFT)
        svg.append(f'<text class="num" x="{_LEFT - 8}" y="{y + 14}">{escape(bar.name)}</text>')
        for colour, kind in enumerate(KINDS):
            one = bar.kinds.get(kind)
            if one is None:
                continue
            wide = _PLOT * one.time.value / longest
            label_text = escape(f"{bar.name}, {KINDS[kind]}: {format_seconds(one.time.value)}")
            svg.append(
                f'<g class="s{colour}"><rect class="mark" x="{x_end:.1f}" y="{y}" width="{wide:.1f}" height="{_BAR}">'
                f"<title>{label_text}</title></rect></g>"
            )
            x_end += wide
        svg.append(f'<text x="{x_end + 8:.1f}" y="{y + 14}">{format_seconds(bar.total.time.value)}</text>')
    if modelled:
        middle, centre = width / 2, (_TOP + height) / 2
        svg.append(f'<text class="modelled" style="font-size:48px" x="{middle:g}" y="{centre:g}">MODELLED</text>')
    return "".join(svg) + "</svg>"


def _together(sums: Iterable[Sum]) -> Sum:
    listed = list(sums)
    lows = [one.time.low for one in listed if one.time.low is not None]
    highs = [one.time.high for one in listed if one.time.high is not None]
    whole = listed and len(lows) == len(highs) == len(listed)
    value = sum(one.time.value for one in listed)
    time = Estimate(value, sum(lows), sum(highs)) if whole else Estimate(value)
    points = {point.id: point for one in listed for point in one.points}
    return Sum(sum(one.count for one in listed), sum(one.bytes for one in listed), time, tuple(points.values()))
