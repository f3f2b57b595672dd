"""The ways of moving so many bytes from one place to another that a run knows, the fastest first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.model.cliffs import breaks
from linkscope.model.curves import Curve, Estimate, curves, time_of
from linkscope.runfile import Point

_MOVES = ("h2h", "h2d", "d2h", "d2d", "local", "split", "read", "write", "demand", "prefetch")
_QUEUED = ("read", "write")  # measured one behind the other only
_APART = (
    "stride",
    "order",
    "width",
    "cache",
    "discard",
    "ranges",
    "advice",
)  # what data must be like for it, or is odd
_FAR = 16  # sizes so many times apart tell nothing of what is between


@dataclass(frozen=True)
class TransferMethod:
    """One method: seconds for the bytes asked for, and the points that say so (two: read between them)."""

    curve: Curve
    time: Estimate
    points: tuple[Point, ...]


def transfer_methods(
    points: Iterable[Point], src: str, dst: str, size: int, *, memory: str = "", alone: bool = False
) -> list[TransferMethod]:
    """One way, the fastest first; with `memory` of the host only, those that start or end in such; `alone`: one
    transfer with nothing before it, where that was measured."""
    found = []
    for curve in _of_mode(points, src, dst, memory, alone):
        of = at(curve.measured, size)
        if of:
            found.append(TransferMethod(curve, *of))
    return sorted(found, key=lambda way: way.time.value)


def kinds(points: Iterable[Point], src: str, dst: str) -> list[str]:
    """The kinds of host memory that the ways from one place to another start or end in."""
    return sorted({kind for point in points if _asked(point, src, dst, "") for kind in _host_kinds(point)})


def sizes(points: Iterable[Point], src: str, dst: str, *, memory: str = "", alone: bool = False) -> list[int]:
    """The bytes that these ways, as `ways` has them, were measured with."""
    return sorted({point.bytes for curve in _of_mode(points, src, dst, memory, alone) for point in curve.measured})


def _of_mode(points: Iterable[Point], src: str, dst: str, memory: str, alone: bool) -> list[Curve]:
    asked = [point for point in points if _asked(point, src, dst, memory)]
    if alone:
        return [of for of in curves(p for p in asked if p.benchmark not in _QUEUED) if of.mode != "batched"]
    return [of for of in curves(asked) if of.mode != "single"]


def at(measured: Sequence[Point], size: int) -> tuple[Estimate, tuple[Point, ...]] | None:
    """Seconds at a size: as measured, else by the latency and the rate that join its neighbours; None beyond them, far
    from them, and where the curve breaks between them."""
    exact = next((point for point in measured if point.bytes == size), None)
    if exact is not None:
        time = time_of(exact)
        return None if time is None else (time, (exact,))
    below = max((point for point in measured if 0 < point.bytes < size), key=lambda point: point.bytes, default=None)
    above = min((point for point in measured if point.bytes > size), key=lambda point: point.bytes, default=None)
    if below is None or above is None or above.bytes > _FAR * below.bytes:
        return None
    low, high = time_of(below), time_of(above)
    if low is None or high is None or above.bytes in breaks(measured):
        return None
    part = (size - below.bytes) / (above.bytes - below.bytes)

    def between(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one + part * (other - one)

    value = low.value + part * (high.value - low.value)
    return Estimate(value, between(low.low, high.low), between(low.high, high.high)), (below, above)


def plain(point: Point) -> bool:
    """Whether it moves data one way, whatever they are: neither from caches, nor thrown away, nor in odd steps."""
    return point.benchmark in _MOVES and not point.bidirectional and not any(name in point.params for name in _APART)


def _asked(point: Point, src: str, dst: str, memory: str) -> bool:
    if (point.src, point.dst) != (src, dst) or not plain(point) or point.params.get("blocks", "").isdecimal():
        return False
    return not memory or memory in _host_kinds(point)


def _host_kinds(point: Point) -> list[str]:
    ends = ((point.src, point.src_memory), (point.dst, point.dst_memory))
    return [kind for place, kind in ends if "numa:" in place]
