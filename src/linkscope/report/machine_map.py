"""The map of a machine: hosts above their GPUs, switches below, every link as wide as its rate.

Each GPU, adapter and disk has a column. A link stands in the column of its lower end, so its numbers never meet those
of another link. Links between places of one row are arcs.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import escape

from linkscope.model.curves import natural
from linkscope.model.text import count_text, range_share, sizes_text
from linkscope.report.anchors import path_anchor
from linkscope.report.headline import is_plain_copy
from linkscope.report.section import Legend, Legends
from linkscope.report.trust import ABOVE, INHERITED, SIGN, inherited
from linkscope.report.wires import Wire
from linkscope.runfile import Point
from linkscope.units import format_rate

GRADES = (0.9, 0.8, 0.5)  # edges of the colours g0 (best) to g3 of figure.css, as fractions of the peak
GRADE_TEXTS = ("90 % of peak or more", "80 to 90 %", "50 to 80 %", "below 50 %")
_WIDTH, _LEFT = 640.0, 92.0  # the map and its headings, in pixels
_LEAST_COLUMN, _MOST_COLUMN, _MOST_BOX = 36.0, 160.0, 104.0
_DENSE = 46.0  # narrower columns have smaller letters
_MIN_SCALE = 0.85  # a smaller map is unreadable and scrolls instead
_BOX_H, _GAP_H, _LINE_H, _ARC_H = 26.0, 84.0, 13.0, 30.0
_LETTER = 6.9  # width of a letter, in pixels: an upper bound for common fonts of this size
_MOST_LABELS = 6  # arcs with numbers; the numbers of more arcs are only in the table
_MOST_STROKE = 8.0


@dataclass(frozen=True)
class _Layout:
    """`x`: left and right end of each box; `row`: 0 for hosts, `leaf` for GPUs, `leaf` + 1 for switches below them."""

    x: dict[str, tuple[float, float]]
    row: dict[str, int]
    parent: dict[str, str]
    leaf: int
    width: float
    dense: bool

    def middle(self, place: str) -> float:
        return sum(self.x[place]) / 2


def machine_svg(found: Sequence[Wire], modelled: bool) -> str:
    """The map as SVG. '' if no link is known."""
    if not found:
        return ""
    layout = _layout(found)
    most = max((rate for wire in found for rate, _ in wire.ends if rate), default=1.0)
    trunks = [wire for wire in found if _child(wire, layout)]
    arcs = [wire for wire in found if wire not in trunks and layout.row[wire.one] == layout.row[wire.other]]
    above, high = _arcs([wire for wire in arcs if layout.row[wire.one] == 0], layout, most, up=True)
    below, low = _arcs([wire for wire in arcs if layout.row[wire.one] != 0], layout, most, up=False)
    tops = _tops(layout, high, low)
    height = max(tops.values()) + _BOX_H + 6 + (low if max(layout.row.values()) <= layout.leaf else 0.0)
    leaf_bottom = tops[layout.leaf] + _BOX_H
    parts = [_head(layout.width, height, modelled)]
    parts += [
        f'<g transform="translate(0 {tops[0]:g})">{above}</g>',
        f'<g transform="translate(0 {leaf_bottom:g})">{below}</g>',
    ]
    others = [wire for wire in found if wire not in trunks and wire not in arcs]
    parts += [_slanted(wire, layout, tops, most) for wire in others]
    parts += _headings(trunks, layout, tops)
    parts += [_trunk(wire, layout, tops, most) for wire in trunks]
    parts += [_box(place, layout.x[place], tops[layout.row[place]]) for place in layout.x]
    return "".join(parts) + "</svg>"


def grade(share: float | None) -> str:
    """The class of the colour of a fraction of the peak; '' if it is unknown."""
    if share is None:
        return ""
    return f"g{next((index for index, edge in enumerate(GRADES) if share >= edge), len(GRADES))}"


def legends(svg: str) -> Legends:
    """What the colours, the lines and the signs of this map mean."""
    entries = [Legend(_swatch(f"wire g{index}", 5), text) for index, text in enumerate(GRADE_TEXTS)]
    entries += [Legend(_swatch("wire", 3), "peak unknown")] if 'class="wire "' in svg else []
    if "stroke-dasharray" in svg:
        entries.append(Legend(_swatch("wire", 3, dashed=True), f"{INHERITED} inherited"))
    return Legends(tuple(entries), f"{SIGN} missed precision" if f">{SIGN}" in svg else "")


def _swatch(style: str, width: int, *, dashed: bool = False) -> str:
    dash = ' stroke-dasharray="5 3"' if dashed else ""
    return (
        '<svg class="swatch" width="22" height="12" viewBox="0 0 22 12" aria-hidden="true">'
        f'<path class="{style}" d="M0 7H22" stroke-width="{width}"{dash}/></svg>'
    )


def _kind(place: str) -> str:
    return place.rpartition("/")[2].partition(":")[0]


def _layout(found: Sequence[Wire]) -> _Layout:
    places = sorted({place for wire in found for place in (wire.one, wire.other)}, key=natural)
    parent, row = _tree(places, found)
    children: dict[str, list[str]] = {}
    for place, above in parent.items():
        children.setdefault(above, []).append(place)
    lowest = [place for place in places if place not in row]
    tops = [place for place in places if row.get(place) == 0]
    leaves = [leaf for top in tops for leaf in _leaves(top, children)]
    leaves += [place for place in lowest if _kind(place) not in ("switch", "NVSwitch")]
    column = min(_MOST_COLUMN, max(_LEAST_COLUMN, (_WIDTH - _LEFT) / max(1, len(leaves))))
    half = min(column - 6, _MOST_BOX) / 2
    at = {leaf: _LEFT + column * (index + 0.5) for index, leaf in enumerate(leaves)}
    x = {leaf: (middle - half, middle + half) for leaf, middle in at.items()}
    deepest = max(row.values(), default=0)
    for place in places:
        if place in at:
            row[place] = row[place] if row.get(place) == 0 else deepest
            continue
        under = _leaves(place, children) if place in row else _neighbours(place, found)
        ends = [at[leaf] for leaf in under if leaf in at] or [_LEFT + half]
        x[place] = (min(ends) - half, max(ends) + half)
        row.setdefault(place, deepest + 1)
    return _Layout(x, row, parent, deepest, _LEFT + column * max(1, len(leaves)), column < _DENSE)


def _tree(places: Sequence[str], found: Sequence[Wire]) -> tuple[dict[str, str], dict[str, int]]:
    """The place above each place, and the rows of the hosts and of all below them. Nothing hangs below a GPU."""
    row = {place: 0 for place in places if _kind(place) == "numa"}
    parent: dict[str, str] = {}
    for level in itertools.count(1):
        above = [place for place, at in row.items() if at == level - 1 and _kind(place) in ("numa", "switch")]
        links: dict[str, list[tuple[float, bool, str]]] = {}
        for wire in found:
            for high, low in ((wire.one, wire.other), (wire.other, wire.one)):
                if high in above and low not in row:
                    same = high.rpartition(":")[2] == low.rpartition(":")[2]
                    links.setdefault(low, []).append((wire.limit or 0.0, same, high))
        if not links:
            return parent, row
        for place, of in links.items():
            parent[place], row[place] = max(of, key=lambda link: link[:2])[2], level
    raise AssertionError("count() has no end")


def _leaves(place: str, children: dict[str, list[str]]) -> list[str]:
    below = sorted(children.get(place, ()), key=natural)
    return [leaf for child in below for leaf in _leaves(child, children)] or [place]


def _neighbours(place: str, found: Iterable[Wire]) -> list[str]:
    return [wire.other if wire.one == place else wire.one for wire in found if place in (wire.one, wire.other)]


def _tops(layout: _Layout, high: float, low: float) -> dict[int, float]:
    """The upper edge of each row of boxes."""
    last = max(layout.row.values())
    tops = {row: 6 + high + row * (_BOX_H + _GAP_H) for row in range(layout.leaf + 1)}
    if last > layout.leaf:
        tops[last] = tops[layout.leaf] + _BOX_H + low + _GAP_H
    return tops


def _child(wire: Wire, layout: _Layout) -> str:
    """The end of a vertical link in whose column it stands: the lower end, or the GPU above a switch; '' of others."""
    for high, low in ((wire.one, wire.other), (wire.other, wire.one)):
        if layout.parent.get(low) == high:
            return low
        if layout.row[low] > layout.leaf and layout.row[high] == layout.leaf:
            return high
    return ""


def _head(width: float, height: float, modelled: bool) -> str:
    name = ("MODELLED: " if modelled else "") + "the machine and the rates of its links"
    mark = f'<text class="modelled" style="font-size:64px" x="{width / 2:g}" y="{height / 2:g}">MODELLED</text>'
    return (
        f'<svg class="chart drawing" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        f'style="min-width:{_MIN_SCALE * width:.0f}px" '
        f'role="group" aria-label="{name}"><title>{name}</title>{mark if modelled else ""}'
    )


def _headings(trunks: Sequence[Wire], layout: _Layout, tops: dict[int, float]) -> list[str]:
    """For each gap between rows: the kind of its links, and what the lines of numbers are."""
    kinds: dict[float, set[str]] = {}
    for wire in trunks:
        kinds.setdefault(_text_top(wire, layout, tops), set()).add(wire.kind)
    parts = []
    for top, of in kinds.items():
        lines = (next(iter(of)) if len(of) == 1 else "links", "GB/s down", "GB/s up", "% of peak")
        for index, line in enumerate(lines):
            y, style = top + _LINE_H * (index - 1), "lead" if index else "place"
            parts.append(f'<text class="{style}" x="0" y="{y:g}">{escape(line)}</text>')
    return parts


def _text_top(wire: Wire, layout: _Layout, tops: dict[int, float]) -> float:
    """The baseline of the first line of numbers."""
    child = _child(wire, layout)
    lower = tops[max(layout.row.values()) if _is_down(wire, layout) else layout.row[child]]
    return lower - _GAP_H / 2 - 2


def _is_down(wire: Wire, layout: _Layout) -> bool:
    """Whether a vertical link leads from a GPU to a switch below it."""
    return max(layout.row[wire.one], layout.row[wire.other]) > layout.leaf


def _trunk(wire: Wire, layout: _Layout, tops: dict[int, float], most: float) -> str:
    """Two vertical lines, down and up, and the numbers across them."""
    child = _child(wire, layout)
    other = wire.other if child == wire.one else wire.one
    upper, lower = sorted((child, other), key=lambda place: layout.row[place])
    x, start, stop = layout.middle(child), tops[layout.row[upper]] + _BOX_H, tops[layout.row[lower]]
    down, up = (0, 1) if wire.one == upper else (1, 0)
    lines = "".join(
        _stroke(f"M{x + shift:g} {start:g}V{stop:g}", wire, which, most) for which, shift in ((down, -5), (up, 5))
    )
    first = _text_top(wire, layout, tops)
    half = min(layout.x[child][1] - layout.x[child][0], 66) / 2
    under = (
        f'<rect class="under" x="{x - half:g}" y="{first - 12:g}" width="{2 * half:g}" height="{3 * _LINE_H + 5:g}"/>'
    )
    reached, size = wire.reached(), "size many" if layout.dense else "size"
    texts = "".join(
        _linked(
            wire.best[which],
            f'<text class="{size} reached" x="{x:g}" y="{first + _LINE_H * line:g}">{escape(reached[which])}</text>',
        )
        for line, which in enumerate((down, up))
    )
    shares = f'<text class="{size}" x="{x:g}" y="{first + 2 * _LINE_H:g}">{_shares_text(wire, down, up)}</text>'
    return f"<g><title>{escape(_title(wire))}</title>{lines}{under}{texts}{shares}</g>"


def _slanted(wire: Wire, layout: _Layout, tops: dict[int, float], most: float) -> str:
    """A link past the places between its ends. Its numbers are only in its tooltip and in the table."""
    upper, lower = sorted((wire.one, wire.other), key=lambda place: layout.row[place])
    start, stop = tops[layout.row[upper]] + _BOX_H, tops[layout.row[lower]]
    which = 0 if wire.best[0] is not None else 1
    line = _stroke(f"M{layout.middle(upper):g} {start:g}L{layout.middle(lower):g} {stop:g}", wire, which, most)
    return _linked(wire.best[which], f"<g><title>{escape(_title(wire))}</title>{line}</g>")


def _shares_text(wire: Wire, down: int, up: int) -> str:
    shares = (wire.ends[down][1], wire.ends[up][1])
    texts = ["-" if share is None else f"{100 * share:.0f}" for share in shares]
    above = ABOVE if any(share is not None and share > 1 for share in shares) else ""
    return "" if set(texts) == {"-"} else "/".join(dict.fromkeys(texts)) + above


def _title(wire: Wire) -> str:
    """The tooltip: 'numa:0 to gpu:0, PCIe 5.0 x16: 55.5 GB/s there at 1 GiB, 55.3 GB/s back at 1 GiB, 95 % of peak'."""
    rates = [
        f"{sign}{format_rate(point.gbps)} {word}{sizes_text([point.bytes])}"
        for point, sign, word in zip(wire.best, wire.signs, ("there", "back"), strict=True)
        if point is not None and point.gbps
    ]
    share = f"{wire.share_text()} of peak" if wire.shares() else ""
    return f"{wire.one} to {wire.other}, {wire.kind}: " + (", ".join(filter(None, (*rates, share))) or "not measured")


def _stroke(path: str, wire: Wire, which: int, most: float) -> str:
    """A line as wide as its rate. Inherited rates are dashed; a link without a rate is thin and dotted."""
    point, (rate, share) = wire.best[which], wire.ends[which]
    if not rate or point is None:
        return f'<path class="wire unmeasured" d="{path}"/>'
    dash = ' stroke-dasharray="5 3"' if inherited(point) else ""
    width = 1.5 + (_MOST_STROKE - 1.5) * (rate / most) ** 0.5
    return f'<path class="wire {grade(share)}" d="{path}" stroke-width="{width:.1f}"{dash}/>'


def _linked(point: Point | None, text: str) -> str:
    """A text with a link to the row of the path; only plain copies have one."""
    if point is None or not is_plain_copy(point):
        return text
    return f'<a href="#{path_anchor(point.benchmark, point.src, point.dst)}">{text}</a>'


def _arcs(wires: Sequence[Wire], layout: _Layout, most: float, *, up: bool) -> tuple[str, float]:
    """Arcs from an edge at y = 0, upwards or downwards, and their height. Many arcs have one common text."""
    if not wires:
        return "", 0.0
    sign = -1 if up else 1
    if len(wires) > _MOST_LABELS:
        depth = 70.0
        drawn = "".join(_curve(wire, layout, most, sign, depth) for wire in wires)
        text = _together_text(wires)
        y = sign * (depth + 4) + (0 if up else 12)
        return (
            f'{drawn}<text class="size" x="{(_LEFT + layout.width) / 2:g}" y="{y:g}">{escape(text)}</text>',
            depth + 20,
        )
    levels = _levels(wires, layout)
    drawn = "".join(
        _arc(wire, layout, most, sign, level, index)
        for index, (wire, level) in enumerate(zip(wires, levels, strict=True))
    )
    return drawn, _ARC_H * (max(levels) + 1) + 6


def _curve(wire: Wire, layout: _Layout, most: float, sign: int, depth: float) -> str:
    left, right = sorted((layout.middle(wire.one), layout.middle(wire.other)))
    bend = sign * depth * (0.35 + 0.9 * (right - left) / layout.width)
    path = f"M{left:g} 0C{left:g} {bend:g} {right:g} {bend:g} {right:g} 0"
    which = 0 if wire.best[0] is not None else 1
    point = wire.best[which]
    return _linked(point, f"<g><title>{escape(_title(wire))}</title>{_stroke(path, wire, which, most)}</g>")


def _together_text(wires: Sequence[Wire]) -> str:
    """'16 links between GPUs: 22.9 to 48.3 GB/s, 91-96 % of peak'."""
    rates = [rate for wire in wires for rate, _ in wire.ends if rate]
    shares = [share for wire in wires for share in wire.shares()]
    text = f"{count_text(len(wires), 'direct link')} ({', '.join(sorted({wire.kind for wire in wires}))})"
    if not rates:
        return f"{text}: not measured"
    spread = f"{min(rates):.3g} to {format_rate(max(rates))}" if min(rates) < max(rates) else format_rate(rates[0])
    return f"{text}: {spread}" + (f", {range_share((min(shares), max(shares)))} of peak" if shares else "")


def _label(wire: Wire) -> str:
    share = f" · {wire.share_text()}" if wire.shares() else ""
    return f"{wire.kind} · {' / '.join(wire.reached())}{share}"


def _levels(wires: Sequence[Wire], layout: _Layout) -> list[int]:
    """The level of each arc, short ones first. Arcs of a level overlap neither each other nor their labels."""
    ends = []
    for wire in wires:
        left, right = sorted((layout.middle(wire.one), layout.middle(wire.other)))
        middle = _label_middle(wire, (left + right) / 2, layout)
        half = _LETTER * len(_label(wire)) / 2
        ends.append((min(left, middle - half), max(right, middle + half)))
    used: dict[int, list[tuple[float, float]]] = {}
    found = [0] * len(wires)
    for index in sorted(range(len(wires)), key=lambda index: ends[index][1] - ends[index][0]):
        low, high = ends[index]
        found[index] = next(
            level for level in itertools.count() if all(high <= a or low >= b for a, b in used.get(level, []))
        )
        used.setdefault(found[index], []).append((low, high))
    return found


def _label_middle(wire: Wire, middle: float, layout: _Layout) -> float:
    """The middle of a label that stays within the map."""
    half = _LETTER * len(_label(wire)) / 2
    return min(max(middle, half), layout.width - half)


def _arc(wire: Wire, layout: _Layout, most: float, sign: int, level: int, index: int) -> str:
    left, right = sorted((layout.middle(wire.one), layout.middle(wire.other)))
    shift = (index % 3 - 1) * 9
    y = sign * (_ARC_H * (level + 1) - 6)
    which = 0 if wire.best[0] is not None else 1
    path = f"M{left + 16 + shift:g} 0V{y:g}H{right - 16 + shift:g}V0"
    middle, half = _label_middle(wire, (left + right) / 2, layout), _LETTER * len(_label(wire)) / 2
    under = f'<rect class="under" x="{middle - half:g}" y="{y - 9:g}" width="{2 * half:g}" height="17"/>'
    text = f'<text class="size reached" x="{middle:g}" y="{y + 4:g}">{escape(_label(wire))}</text>'
    drawn = f"<title>{escape(_title(wire))}</title>{_stroke(path, wire, which, most)}{under}"
    return f"<g>{drawn}{_linked(wire.best[which], text)}</g>"


def _box(place: str, ends: tuple[float, float], y: float) -> str:
    width = ends[1] - ends[0]
    name = place.rpartition("/")[2] if "host:" in place and width < _LETTER * len(place) else place
    short = name.partition(":")[2] if width < _LETTER * len(name) and ":" in name else name
    return (
        f'<rect class="box" x="{ends[0]:g}" y="{y:g}" width="{width:g}" height="{_BOX_H:g}" rx="4"/>'
        f'<text class="size place" x="{sum(ends) / 2:g}" y="{y + 17.5:g}"><title>{escape(place)}</title>'
        f"{escape(short)}</text>"
    )
