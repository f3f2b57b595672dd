"""A drawing of the machine: NUMA nodes, GPUs, switches and links, each link with the rate it reached and its peak.

The drawing reads the machine of the run file as plain values: the probe, or the machine file of a model.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import escape

from linkscope.model.curves import measured_flows, natural, path_of
from linkscope.model.text import range_share
from linkscope.report.headline import headline_points
from linkscope.report.trust import sign_of
from linkscope.runfile import Point, Run

_BOX_W, _BOX_H, _STEP, _LEFT = 132, 40, 176, 12
_LEVEL_STEP = 46  # distance between the lines of two pairs, in pixels
_ROW_STEP = 120  # distance between two rows of boxes, in pixels
_MIN_SCALE = 0.85  # minimum scale: a smaller drawing is unreadable and scrolls instead


@dataclass(frozen=True)
class Wire:
    """A link between two places. `there` and `back` are the best rates in GB/s in each direction."""

    one: str
    other: str
    kind: str
    limit: float | None
    there: float | None
    back: float | None
    limit_back: float | None = None  # peak of the opposite direction, if it differs
    signs: tuple[str, str] = ("", "")  # signs of the best rates there and back (trust.py)

    def shares(self) -> list[float]:
        """The fraction of its own peak for each measured direction."""
        limits = (self.limit, self.limit_back or self.limit)
        return [best / limit for best, limit in zip((self.there, self.back), limits, strict=True) if best and limit]

    def share_text(self) -> str:
        """'95 %' of one direction, '95-96 %' of both; '' if the peak is unknown."""
        shares = self.shares()
        return range_share((min(shares), max(shares))) if shares else ""

    def limit_text(self) -> str:
        """'58.45'; '58.45 / 57.61' if the directions have different peaks."""
        ends = (self.limit, self.limit_back) if self.limit_back not in (None, self.limit) else (self.limit,)
        return " / ".join(f"{one:.4g}" for one in ends if one)

    def text(self) -> str:
        """'55.6 / 55.4 of 58.4 GB/s'."""
        if self.there is None and self.back is None:
            return "not measured"
        reached = " / ".join(self.reached())
        return f"{reached} of {self.limit_text()}" if self.limit else reached

    def reached(self) -> list[str]:
        """The best rate in each direction, with its sign."""
        ends = zip((self.there, self.back), self.signs, strict=True)
        return ["-" if one is None else sign + f"{one:.3g}" for one, sign in ends]


def wires(run: Run) -> list[Wire]:
    """All links that the run file describes."""
    machine = run.header.machine
    model = machine.get("model")
    try:
        return _of_model(model, run.points) if isinstance(model, dict) else _of_probed(machine, run.points)
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # a machine description in another form has no drawing, but the table shows its facts


def _of_model(model: dict[str, Any], points: Sequence[Point]) -> list[Wire]:
    """The links of the machine file. A point names the links of its route, which reached at least its rate."""
    reached: dict[str, float] = {}
    for point in _headlines(points):
        for hop in str(point.guards.get("route a0", "")).split(", "):
            ends = hop.partition(" ")[2]
            reached[ends] = max(reached.get(ends, 0.0), point.gbps or 0.0)
    return [
        Wire(
            one, other, f"{link['kind']} x{link['lanes']}" if link.get("lanes", 1) > 1 else str(link["kind"]),
            float(link["gbps"]["v"]), reached.get(f"{one}->{other}"), reached.get(f"{other}->{one}"),
        )
        for link in model["link"]
        for one, other in link["between"]
    ]  # fmt: skip


def _of_probed(machine: dict[str, Any], points: Sequence[Point]) -> list[Wire]:
    """Links to the host, to switches and to other GPUs, if the probe found them."""
    best = _best(points)
    nodes = [f"numa:{node['index']}" for node in machine.get("numa", [])]
    found: list[Wire] = []
    for gpu in machine.get("gpus", []):
        place = f"gpu:{gpu['index']}"
        node = f"numa:{gpu.get('numa') or 0}"
        if node in nodes:
            found.append(_wire(node, place, _host_link(gpu), best))
        if any(link.get("remote") == "switch" and link.get("active") for link in gpu.get("nvlinks", [])):
            found.append(_switch_wire(place, gpu, best))
        links = [link.get("remote_gpu") for link in gpu.get("nvlinks", []) if link.get("active")]
        for other in sorted({one for one in links if one is not None and one > gpu["index"]}):
            found.append(_wire(place, f"gpu:{other}", f"NVLink x{links.count(other)}", best))
    found += [_wire(one, other, "CPU to CPU", best) for one, other in itertools.pairwise(nodes)]
    return found


def _host_link(gpu: dict[str, Any]) -> str:
    pcie = gpu.get("pcie") or {}
    if gpu.get("c2c_gbps"):
        return "chip to chip"
    generation, width = pcie.get("max_generation"), pcie.get("width") or pcie.get("max_width")
    return f"PCIe {generation}.0 x{width}" if generation and width else "host link"


def _switch_wire(place: str, gpu: dict[str, Any], best: dict[tuple[str, str], Point]) -> Wire:
    """The link from a GPU to the switch: the best rates at which the GPU sent to, and received from, another GPU."""
    limit = gpu.get("nvlink_gbps")
    count = sum(bool(link.get("active")) for link in gpu["nvlinks"])
    sent = [p for (src, dst), p in best.items() if src == place != dst and dst.startswith("gpu:") and p.gbps]
    got = [p for (src, dst), p in best.items() if dst == place != src and src.startswith("gpu:") and p.gbps]
    ends = [max(points, key=lambda point: point.gbps or 0.0, default=None) for points in (sent, got)]
    there, back = (end.gbps if end else None for end in ends)
    signs = [sign_of([end] if end else []) for end in ends]
    return Wire(place, "NVSwitch", f"NVLink x{count}", limit, there, back, signs=(signs[0], signs[1]))


def _wire(one: str, other: str, kind: str, best: dict[tuple[str, str], Point]) -> Wire:
    there, back = best.get((one, other)), best.get((other, one))
    limit, limit_back = (point.limit_gbps if point else None for point in (there, back))
    return Wire(
        one, other, kind, limit or limit_back, there.gbps if there else None, back.gbps if back else None,
        limit_back or limit, (sign_of([there] if there else []), sign_of([back] if back else [])),
    )  # fmt: skip


def _best(points: Iterable[Point]) -> dict[tuple[str, str], Point]:
    found: dict[tuple[str, str], Point] = {}
    for point in _headlines(points):
        key = (point.src, point.dst)
        if key not in found or (point.gbps or 0.0) > (found[key].gbps or 0.0):
            found[key] = point
    return found


def _headlines(points: Iterable[Point]) -> list[Point]:
    """Headline rates of single flows. Several flows between two places do not show the rate of a link."""
    one_flow = (point for point in points if len(measured_flows(point)) < 2 and not path_of(point).joint)
    return headline_points(point for point in one_flow if point.gbps is not None)


def machine_svg(found: Sequence[Wire], modelled: bool) -> str:
    """Hosts in the top row, GPUs below, switches at the bottom. '' if no link is known."""
    if not found:
        return ""
    x, row = _layout(found)
    across = [wire for wire in found if row[wire.one] == row[wire.other]]
    levels = _levels(across, x, row)
    hosts_up = _LEVEL_STEP * max((levels[i] + 1 for i, w in enumerate(across) if row[w.one] == 0), default=0)
    gpus_down = _LEVEL_STEP * max((levels[i] + 1 for i, w in enumerate(across) if row[w.one] == 1), default=0)
    tops: dict[int, float] = {
        0: 12 + hosts_up,
        1: 12 + hosts_up + _ROW_STEP,
        2: 12 + hosts_up + 2 * _ROW_STEP + gpus_down,
    }
    width = max(x.values()) + _STEP / 2 + _LEFT
    height = tops[max(row.values())] + _BOX_H + 12 + (gpus_down if max(row.values()) == 1 else 0)
    name = ("MODELLED: " if modelled else "") + "the machine and the rates of its links"
    parts = [
        f'<svg class="chart heatmap" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        f'style="min-width:{width * _MIN_SCALE:.0f}px" role="img" aria-label="{name}"><title>{name}</title>'
    ]
    for index, wire in enumerate(across):
        parts.append(_across(wire, x, tops, row, levels[index], index))
    for wire in found:
        if row[wire.one] != row[wire.other]:
            parts.append(_down(wire, x, tops, row))
    parts += [_box(place, x[place], tops[row[place]]) for place in x]
    if modelled:
        size, middle, centre = min(84.0, width / 6), width / 2, height / 2
        parts.append(
            f'<text class="modelled" style="font-size:{size:.3g}px" x="{middle:g}" y="{centre:g}" '
            f'transform="rotate(-12 {middle:g} {centre:g})">MODELLED</text>'
        )
    return "".join(parts) + "</svg>"


def _layout(found: Sequence[Wire]) -> tuple[dict[str, float], dict[str, int]]:
    """Positions: GPUs side by side, grouped by host; hosts and switches centred over and under their GPUs."""
    places = sorted({place for wire in found for place in (wire.one, wire.other)}, key=natural)
    row = {place: {"gpu": 1, "numa": 0}.get(place.partition(":")[0], 2) for place in places}
    near = {gpu: _host_of(gpu, found, row) for gpu in places if row[gpu] == 1}
    gpus = sorted(near, key=lambda gpu: (natural(near[gpu]), natural(gpu)))
    x = {gpu: _LEFT + _STEP * (index + 0.5) for index, gpu in enumerate(gpus)}
    for level in (0, 2):
        used: set[float] = set()
        for place in (one for one in places if row[one] == level):
            below = [x[gpu] for gpu in gpus if near[gpu] == place or (level == 2 and _are_linked(found, gpu, place))]
            at = sum(below) / len(below) if below else _LEFT + _STEP / 2
            while any(abs(at - other) < _STEP for other in used):
                at += _STEP
            used.add(at)
            x[place] = at
    return x, row


def _host_of(gpu: str, found: Sequence[Wire], row: dict[str, int]) -> str:
    hosts = [_other(wire, gpu) for wire in found if gpu in (wire.one, wire.other)]
    return min((host for host in hosts if row[host] == 0), key=natural, default="")


def _other(wire: Wire, place: str) -> str:
    return wire.other if wire.one == place else wire.one


def _are_linked(found: Sequence[Wire], one: str, other: str) -> bool:
    return any({wire.one, wire.other} == {one, other} for wire in found)


def _levels(across: Sequence[Wire], x: dict[str, float], row: dict[str, int]) -> list[int]:
    """The level of each line. Lines of a row share a level only if they do not overlap. Short lines are placed
    first.
    """
    order = sorted(range(len(across)), key=lambda i: abs(x[across[i].one] - x[across[i].other]))
    used: dict[tuple[int, int], list[tuple[float, float]]] = {}
    found = [0] * len(across)
    for i in order:
        low, high = sorted((x[across[i].one], x[across[i].other]))
        free = (
            level
            for level in itertools.count()
            if all(high <= a or low >= b for a, b in used.get((row[across[i].one], level), []))
        )
        found[i] = next(free)
        used.setdefault((row[across[i].one], found[i]), []).append((low, high))
    return found


def _down(wire: Wire, x: dict[str, float], tops: dict[int, float], row: dict[str, int]) -> str:
    """A line from a box to one in another row. The text is at the end of the GPU, where lines are apart."""
    upper, lower = (wire.one, wire.other) if row[wire.one] < row[wire.other] else (wire.other, wire.one)
    start, stop = tops[row[upper]] + _BOX_H, tops[row[lower]]
    to_switch = row[lower] == 2
    gpu = upper if to_switch else lower
    text_y = start + 34 if to_switch else stop - 46
    straight = f"M{x[gpu]:g} {start if to_switch else stop:g}V{text_y + 30 if to_switch else text_y - 18:g}"
    end = f"L{x[lower if to_switch else upper]:g} {stop if to_switch else start:g}"
    return _link(straight + end, wire, x[gpu], text_y)


def _across(
    wire: Wire, x: dict[str, float], tops: dict[int, float], row: dict[str, int], level: int, index: int
) -> str:
    up = row[wire.one] == 0
    edge = tops[row[wire.one]] + (0 if up else _BOX_H)
    y = edge - _LEVEL_STEP * (level + 0.9) if up else edge + _LEVEL_STEP * level + 14
    left, right = sorted((x[wire.one], x[wire.other]))
    shift = (index % 5 - 2) * 12
    return _link(
        f"M{left + 34 + shift:g} {edge:g}V{y:g}H{right - 34 + shift:g}V{edge:g}", wire, (left + right) / 2, y + 16
    )


def _link(path: str, wire: Wire, x: float, y: float) -> str:
    kind = ", ".join(filter(None, (wire.kind, wire.share_text())))
    wide = len(wire.text()) > 22  # number of letters that fit the narrower background
    half = 86 if wide else 74
    return (
        f'<path class="wire" d="{path}"/>'
        f'<rect class="under" x="{x - half:g}" y="{y - 14:g}" width="{2 * half}" height="31"/>'
        f'<text class="size" x="{x:g}" y="{y - 2:g}">{escape(kind)}</text>'
        f'<text class="size reached{" many" if wide else ""}" x="{x:g}" y="{y + 13:g}">{escape(wire.text())}</text>'
    )


def _box(place: str, x: float, y: float) -> str:
    return (
        f'<rect class="box" x="{x - _BOX_W / 2:g}" y="{y:g}" width="{_BOX_W}" height="{_BOX_H}" rx="6"/>'
        f'<text class="size place" x="{x:g}" y="{y + 25:g}">{escape(place)}</text>'
    )
