"""The links of a machine, each with the rate that it reached in each direction and its peak.

They come from the machine of the run file as plain values: the probe, or the machine file of a model.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from linkscope.model.curves import measured_flows, path_of
from linkscope.model.text import range_share
from linkscope.report.headline import headline_points
from linkscope.report.trust import ABOVE, sign_of
from linkscope.report.usual import most_usual
from linkscope.runfile import Point, Run, once


@dataclass(frozen=True)
class Wire:
    """A link between two places. `best` has the points with the best rates there and back. Peaks are in GB/s."""

    one: str
    other: str
    kind: str
    limit: float | None
    best: tuple[Point | None, Point | None]
    limit_back: float | None = None  # peak of the opposite direction, if it differs

    @property
    def there(self) -> float | None:
        """The best rate towards `other` in GB/s."""
        return self.best[0].gbps if self.best[0] else None

    @property
    def back(self) -> float | None:
        """The best rate towards `one` in GB/s."""
        return self.best[1].gbps if self.best[1] else None

    @property
    def signs(self) -> tuple[str, str]:
        """The signs of the best rates there and back (trust.py)."""
        there, back = (sign_of([point] if point else []) for point in self.best)
        return there, back

    @property
    def ends(self) -> tuple[tuple[float | None, float | None], ...]:
        """The rate and its fraction of the peak, there and back; None where unknown."""
        limits = (self.limit, self.limit_back or self.limit)
        return tuple(
            (rate, rate / limit if rate and limit else None)
            for rate, limit in zip((self.there, self.back), limits, strict=True)
        )

    def shares(self) -> list[float]:
        """The fraction of its own peak for each measured direction."""
        return [share for _, share in self.ends if share is not None]

    def share_text(self) -> str:
        """'95 %' of one direction, '95-96 %' of both; '' if the peak is unknown."""
        shares = self.shares()
        return range_share((min(shares), max(shares))) + (ABOVE if max(shares) > 1 else "") if shares else ""

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


@once
def wires(run: Run) -> Sequence[Wire]:
    """All links that the run file describes."""
    machine = run.header.machine
    model = machine.get("model")
    try:
        return _of_model(model, run.points) if isinstance(model, dict) else _of_probed(machine, run.points)
    except (AttributeError, KeyError, TypeError, ValueError):
        return []  # a machine description in another form has no drawing, but the table shows its facts


def _of_model(model: dict[str, Any], points: Sequence[Point]) -> list[Wire]:
    """The links of the machine file. A point names the links of its route, which reached at least its rate."""
    reached: dict[str, Point] = {}
    for point in _headlines(points):
        for hop in str(point.guards.get("route a0", "")).split(", "):
            ends = hop.partition(" ")[2]
            if ends not in reached or (point.gbps or 0.0) > (reached[ends].gbps or 0.0):
                reached[ends] = point
    return [
        Wire(
            one, other, f"{link['kind']} x{link['lanes']}" if link.get("lanes", 1) > 1 else str(link["kind"]),
            float(link["gbps"]["v"]), (reached.get(f"{one}->{other}"), reached.get(f"{other}->{one}")),
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
    there, back = (max(points, key=lambda point: point.gbps or 0.0, default=None) for points in (sent, got))
    return Wire(place, "NVSwitch", f"NVLink x{count}", limit, (there, back))


def _wire(one: str, other: str, kind: str, best: dict[tuple[str, str], Point]) -> Wire:
    there, back = best.get((one, other)), best.get((other, one))
    limit, limit_back = (point.limit_gbps if point else None for point in (there, back))
    return Wire(one, other, kind, limit or limit_back, (there, back), limit_back or limit)


def _best(points: Iterable[Point]) -> dict[tuple[str, str], Point]:
    found: dict[tuple[str, str], Point] = {}
    for point in _headlines(points):
        key = (point.src, point.dst)
        if key not in found or (point.gbps or 0.0) > (found[key].gbps or 0.0):
            found[key] = point
    return found


def _headlines(points: Iterable[Point]) -> list[Point]:
    """Headline rates of single flows, of the most usual copy. Several flows between two places do not show the rate of
    a link.
    """
    one_flow = (point for point in points if len(measured_flows(point)) < 2 and not path_of(point).joint)
    return most_usual(headline_points(point for point in one_flow if point.gbps is not None))
