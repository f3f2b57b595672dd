"""Rates of paths alone and of concurrent flows, from points of plain batched copies by copy engine."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.flow import kind_of
from linkscope.model.curves import Path, measured_flows
from linkscope.runfile import Flow, Point, PointId
from linkscope.stats import median

# The parameter values of a plain copy.
_PLAIN = {
    "mode": "batched", "after": "kernel", "bidirectional": "false", "peer": "on", "initiator": "src", "call": "memcpy",
}  # fmt: skip
_MEMORIES = {"numa": "pinned", "gpu": "device"}


@dataclass(frozen=True)
class Joint:
    """Concurrent flows: for each path the seconds of one operation, as round medians."""

    id: str
    bytes: int
    rounds: Mapping[Path, Sequence[float]]

    def totals(self) -> list[float]:
        """GB/s of all flows together, round by round."""
        return [sum(self.bytes / each / 1e9 for each in of) for of in zip(*self.rounds.values(), strict=False)]

    def gbps(self, path: Path) -> float:
        """The median rate of a flow."""
        return self.bytes / median(self.rounds[path]) / 1e9


def is_plain(point: PointId) -> bool:
    """Whether the point is a plain copy, on one path or on several."""
    params = [(name, value) for name, value in point.params if name != "with"]
    return point.engine == "ce" and point.bytes > 0 and all(_PLAIN.get(name) == value for name, value in params)


@functools.lru_cache(maxsize=1 << 16)
def names_plain(id: str) -> bool:
    """is_plain() for the text of an id."""
    return is_plain(PointId.parse(id))


def rates_alone(points: Iterable[Point]) -> dict[tuple[Path, int], Sequence[float]]:
    """The round medians of plain copies on one path, by path and size, for pinned and device memory."""
    found: dict[tuple[Path, int], Sequence[float]] = {}
    for point, flows in _plain(points):
        if len(flows) == 1 and point.src != point.dst:
            found[Path(point.src, point.dst), point.bytes] = flows[0].round_medians_s
    return found


def joints(points: Iterable[Point]) -> list[Joint]:
    """Sets of concurrent paths without a common GPU, at the size that most of them have."""
    found: dict[int, dict[frozenset[Path], Joint]] = {}
    for point, flows in _plain(points):
        paths = [Path(flow.src, flow.dst) for flow in flows]
        if len(flows) > 1 and are_apart(paths) and not point.guards.get("in_turn"):
            of = dict(zip(paths, (flow.round_medians_s for flow in flows), strict=True))
            found.setdefault(point.bytes, {})[frozenset(paths)] = Joint(point.id, point.bytes, of)
    return list(max(found.items(), key=lambda of: (len(of[1]), of[0]))[1].values()) if found else []


def are_apart(paths: Iterable[Path]) -> bool:
    """Whether no two paths have a common GPU, whose link and engines they would share."""
    gpus = [place for path in paths for place in (path.src, path.dst) if "gpu:" in place]
    return len(set(gpus)) == len(gpus)


def _plain(points: Iterable[Point]) -> Iterable[tuple[Point, list[Flow]]]:
    for point in points:
        if point.status not in ("ok", "missed_precision") or not names_plain(point.id):
            continue
        flows = measured_flows(point)
        usual = all(_usual(flow) and flow.bytes == point.bytes for flow in flows)
        if flows and usual and all(flow.round_medians_s and min(flow.round_medians_s) > 0 for flow in flows):
            yield point, flows


def _usual(flow: Flow) -> bool:
    ends = ((flow.src, flow.src_memory), (flow.dst, flow.dst_memory))
    return all(_MEMORIES.get(kind_of(place)) == memory for place, memory in ends)
