"""The times of a transfer beside other transfers, where a run measured exactly these flows at once."""

from collections.abc import Iterable, Sequence

from linkscope.advise.methods import TransferMethod
from linkscope.advise.question import Question
from linkscope.flow import MEMORIES, Transfer, kind_of
from linkscope.model.curves import BATCHED, Curve, Estimate, Family, Method, Path, measured_flows
from linkscope.runfile import Flow, Point

# Points of several flows state none of these. Their copies are made like single flows with these parameters.
_OF_ONE_FLOW = {
    "h2d": (("after", "kernel"),),
    "d2h": (("after", "kernel"),),
    "d2d": (("after", "kernel"), ("call", "memcpy"), ("initiator", "src"), ("peer", "on")),
    "local": (("after", "kernel"),),
}


def methods_together(points: Iterable[Point], asked: Question) -> list[TransferMethod]:
    """The methods of the transfer that the run measured while all other transfers ran, the fastest first."""
    found = []
    for point in points:
        own = _own_flow(point, asked)
        if own is not None and own.median_s is not None:
            name = _benchmark(asked)
            method = Method(Family(name, point.engine, own.src_memory, own.dst_memory), _OF_ONE_FLOW[name])
            time = Estimate(own.median_s, *(own.ci95_s or (None, None)))
            curve = Curve(Path(asked.src, asked.dst), method, BATCHED[0], (point,))
            found.append(TransferMethod(curve, time, (point,)))
    return sorted(found, key=lambda one: one.time.value)


def _benchmark(asked: Question) -> str:
    kinds = kind_of(asked.src), kind_of(asked.dst)
    if kinds == ("gpu", "gpu"):
        return "local" if asked.src == asked.dst else "d2d"
    return "h2d" if kinds[0] == "numa" else "d2h"


def _own_flow(point: Point, asked: Question) -> Flow | None:
    """The flow of the point that is the transfer, if the other flows are exactly the other transfers."""
    flows = measured_flows(point)
    if (
        len(flows) != 1 + len(asked.others)
        or "in_turn" in point.guards
        or "numa" == kind_of(asked.src) == kind_of(asked.dst)
    ):
        return None
    for at, flow in enumerate(flows):
        if (flow.src, flow.dst, flow.bytes) == (asked.src, asked.dst, asked.bytes):
            rest = [*flows[:at], *flows[at + 1 :]]
            if _are(rest, asked.others, point, asked.bytes):
                return flow
    return None


def _are(flows: Sequence[Flow], others: Sequence[Transfer], point: Point, size: int) -> bool:
    """Whether each transfer is one of the flows."""
    left = list(flows)
    for other in others:
        match = next((flow for flow in left if _is(flow, other, point, size)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _is(flow: Flow, other: Transfer, point: Point, size: int) -> bool:
    memories = (other.src_memory or _default(other.src), other.dst_memory or _default(other.dst))
    peer = other.kinds != ("gpu", "gpu") or point.params.get("peer", "on") == (other.option("peer") or "on")
    return (
        (flow.src, flow.dst, flow.bytes) == (other.src, other.dst, other.bytes or size)
        and (flow.src_memory, flow.dst_memory) == memories
        and point.engine == (other.engine or "ce")
        and peer
    )


def _default(place: str) -> str:
    return MEMORIES[kind_of(place)][0]
