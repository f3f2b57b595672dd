"""The methods that move many scattered pieces, for a number and a size of pieces that need not have been measured."""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

from linkscope.advise.methods import FAR, TransferMethod, between, transfer_methods
from linkscope.model.curves import BATCHED, MODE, Curve, Estimate, Method, method_of, path_of, time_of
from linkscope.runfile import Point

# The parameter with the size of a piece. Rows that lie at equal distances are pieces too.
SIZE_PARAM = {"pieces": "piece", "strided": "row"}
_HOST_CLOCK = "host"
# The largest ratio of two sizes of pieces between which a time is interpolated. Suite `full` has 64 B and 4 KiB.
_APART = 64

_Reading = tuple[Estimate, tuple[Point, ...]]


def piece_methods(points: Iterable[Point], src: str, dst: str, size: int, piece: int) -> list[TransferMethod]:
    """The methods that move `size` bytes in pieces of `piece` bytes, the fastest first.

    A loop over pieces of pageable memory takes the time of as many plain copies.

    A time at another number of pieces is proportional to that number, at most 16 times as many or as few. A time at
    another size of pieces is interpolated linearly between its neighbours.
    """
    listed_points = list(points)
    groups: dict[Method, dict[int, list[Point]]] = {}
    for point in listed_points:
        if (point.src, point.dst) == (src, dst) and is_of_pieces(point):
            name = SIZE_PARAM[point.benchmark]
            of_method = groups.setdefault(method_of(point).without((name, "clock")), {})
            of_method.setdefault(int(point.params[name]), []).append(point)
    found = []
    for method, by_piece in groups.items():
        reading = _at({one: _by_host_clock(listed) for one, listed in by_piece.items()}, piece, size // piece)
        if reading:
            first = next(iter(by_piece.values()))[0]
            listed = tuple(point for of_piece in by_piece.values() for point in of_piece)
            found.append(TransferMethod(Curve(path_of(first), method, BATCHED[0], listed), *reading))
    found += _pageable_loops(listed_points, src, dst, size // piece, piece)
    return sorted(found, key=lambda one: one.time.value)


def _pageable_loops(points: Sequence[Point], src: str, dst: str, count: int, piece: int) -> Iterator[TransferMethod]:
    """A call for each piece of pageable memory: as many copies of the size of a piece, one after the other."""
    for one in transfer_methods(points, src, dst, piece):
        family, time = one.curve.method.family, one.time
        if (
            family.benchmark in ("h2d", "d2h")
            and family.engine == "ce"
            and "pageable" in (family.src_memory, family.dst_memory)
        ):
            low, high = (None if end is None else count * end for end in (time.low, time.high))
            method = Method(dataclasses.replace(family, benchmark="pieces"))
            curve = Curve(one.curve.path, method, BATCHED[0], one.points)
            yield TransferMethod(curve, Estimate(count * time.value, low, high), one.points)


def is_of_pieces(point: Point) -> bool:
    """Whether the point is a time of scattered pieces that an application would see.

    The time of many calls is that of the host's clock, because the clock of the GPU leaves out the calls behind a gate.
    Both clocks agree for one call, as for rows at equal distances.
    """
    params = point.params
    if point.median_s is None or point.bidirectional or params.get("blocks", "").isdecimal():
        return False
    if params.get(MODE, "") not in BATCHED:
        return False
    if point.benchmark == "strided":
        return params.get("shape", "2d") == "2d" and params.get("gaps", "both") == "both" and "row" in params
    by_host = params.get("clock") == _HOST_CLOCK or "pageable" in (point.src_memory, point.dst_memory)
    return point.benchmark == "pieces" and by_host and "piece" in params


def _by_host_clock(points: Sequence[Point]) -> list[Point]:
    return [point for point in points if point.params.get("clock") == _HOST_CLOCK] or list(points)


def _at(by_piece: Mapping[int, Sequence[Point]], piece: int, count: int) -> _Reading | None:
    if piece in by_piece:
        return _scaled(by_piece[piece], piece, count)
    for low, high in pairwise(sorted(by_piece)):
        if low < piece < high <= _APART * low:
            one, other = _scaled(by_piece[low], low, count), _scaled(by_piece[high], high, count)
            if one is None or other is None:
                return None
            part = (piece - low) / (high - low)
            return between(one[0], other[0], part), (*one[1], *other[1])
    return None


def _scaled(points: Sequence[Point], piece: int, count: int) -> _Reading | None:
    """The time of `count` pieces, from the point whose number of pieces is nearest."""
    nearest = min(points, key=lambda point: abs(math.log(point.bytes / piece / count)))
    factor = count * piece / nearest.bytes
    time = time_of(nearest)
    if time is None or not 1 / FAR <= factor <= FAR:
        return None
    low, high = (None if end is None else factor * end for end in (time.low, time.high))
    return Estimate(factor * time.value, low, high), (nearest,)
