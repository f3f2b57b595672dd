"""Messages between nodes: each pair alone or beside pairs of other nodes, and links that pairs at once share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from linkscope.runfile import Flow, Point

KEPT = 0.9  # of the sum of the rates alone: pairs that get less share something
Pair = tuple[str, str]


@dataclass(frozen=True)
class Together:
    """Pairs at once: GB/s of all of them with an interval, and the sum of their rates alone. `to`: the node that all
    pairs have in common, or ''. `slowed`: pairs that are slower than alone."""

    pairs: tuple[Pair, ...]
    gbps: float
    interval: tuple[float, float] | None
    alone_gbps: float
    to: str
    slowed: tuple[Pair, ...]

    @property
    def shares(self) -> bool:
        """Whether the pairs share a link: with an interval, only if it excludes the rate of links of their own."""
        most = self.interval[1] if self.interval else self.gbps
        return most < KEPT * self.alone_gbps


@dataclass(frozen=True)
class Between:
    """A pair of nodes: seconds of half a round trip, and GB/s; None: not measured."""

    latency_s: float | None
    gbps: float | None


def hosts_of(machine: Mapping[str, Any]) -> dict[str, str]:
    """Returns the name of the host of each rank; of a model the host of its places."""
    ranks = machine.get("mpi", {}).get("ranks", ())
    return {f"rank:{one['rank']}": str(one.get("host") or one["numa"].partition("/")[0]) for one in ranks}


def pairs_of(points: Iterable[Point]) -> dict[Pair, Between]:
    """Returns latency and rate of each pair. Of several values the best counts: pairs of one round share no node, but
    may share other links."""
    latency: dict[Pair, float] = {}
    rate: dict[Pair, float] = {}
    for point in points:
        for flow in _measured(point):
            pair = flow.src, flow.dst
            if point.benchmark == "node_ping_pong" and flow.median_s:
                latency[pair] = min(flow.median_s / 2, latency.get(pair, flow.median_s))
            elif point.benchmark == "node_rate" and flow.gbps and not _common(point):
                rate[pair] = max(flow.gbps, rate.get(pair, 0.0))
    return {
        pair: Between(latency.get(pair) or latency.get(pair[::-1]), rate.get(pair))
        for pair in sorted({*latency, *rate}, key=lambda one: [int(end.rpartition(":")[2]) for end in one])
    }


def together_of(points: Iterable[Point]) -> list[Together]:
    """Returns the sets of pairs at once whose pairs were also measured alone."""
    rates = [point for point in points if point.benchmark == "node_rate" and point.median_s]
    alone = {(p.src, p.dst): (p.gbps, p.median_s) for p in rates if len(_measured(p)) == 1}
    found = []
    for point in rates:
        flows = _measured(point)
        pairs = tuple((flow.src, flow.dst) for flow in flows)
        known = [alone[pair] for pair in pairs if pair in alone]
        if len(flows) < 2 or len(known) < len(flows) or not point.total_gbps:
            continue
        slowed = [
            pair
            for pair, flow, (_, seconds) in zip(pairs, flows, known, strict=True)
            if flow.median_s and seconds and flow.median_s > seconds / KEPT
        ]
        total = sum(gbps or 0.0 for gbps, _ in known)
        found.append(Together(pairs, point.total_gbps, _interval(point), total, _common(point), tuple(slowed)))
    return found


def _measured(point: Point) -> list[Flow]:
    return [flow for flow in point.flows if flow.role == "measured"]


def _common(point: Point) -> str:
    """The node to which all pairs of the point send; '' if there is one pair, or several nodes."""
    ends = [flow.dst for flow in _measured(point)]
    return ends[0] if len(ends) > 1 and len(set(ends)) == 1 else ""


def _interval(point: Point) -> tuple[float, float] | None:
    """GB/s of all flows, by the interval of their common time."""
    times, together_s = point.guards.get("together_ci95_s"), point.guards.get("together_s")
    if not times or not together_s or not point.total_gbps or times[0] <= 0:
        return None
    low, high = (point.total_gbps * together_s / time for time in reversed(times))
    return low, high
