"""The methods that a run measured for one transfer, the fastest first."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from linkscope.model.cliffs import breaks
from linkscope.model.curves import Curve, Estimate, Method, curves, time_of
from linkscope.model.files import is_whole_file
from linkscope.runfile import Point

_MOVES = ("h2h", "h2d", "d2h", "d2d", "local", "split", "relayed", "read", "write", "demand", "prefetch")
# Kernels that access the data where they are: nothing is copied. They are measured batched only.
IN_PLACE = ("read", "write")
# Parameters of points that need special data or access patterns.
_SPECIAL = ("stride", "order", "width", "cache", "discard", "ranges", "advice")
STAGED = "staged"  # copies through pinned slots
RELAYED = "relayed"  # copies over the links of several GPUs
PLAIN_FRESH, STAGED_FRESH = "fresh", "fresh_staged"  # copies to host memory that nobody has touched
FRESH = (PLAIN_FRESH, STAGED_FRESH)
_KNOBS = ("chunk", "slots", "threads", "sms")  # of staged and relayed copies, which a tuner chooses
_OF_NEW_PAGES = ("pageable", "hugepage")  # memory that the kernel provides at the first touch
FILES = ("file_copies", "file_direct", "file_mapped")  # through pinned slots, by cuFile, from the page cache
_KNOBS_OF_FILES = ("chunk", "slots", "ring", "node", "depth", "threads")
FAR = 16  # largest ratio of two sizes between which a time is interpolated


@dataclass(frozen=True)
class TransferMethod:
    """A method with its time for the requested bytes, in seconds, and the points behind it: one, or two neighbours.

    `by_host`: the calls of the host take longer than the GPU, and this is their time.
    """

    curve: Curve
    time: Estimate
    points: tuple[Point, ...]
    by_host: bool = False


def transfer_methods(
    points: Iterable[Point], src: str, dst: str, size: int, *, alone: bool = False
) -> list[TransferMethod]:
    """Unidirectional methods from one place to another, the fastest first; staged and relayed ones and those of files
    with the best knobs.

    `alone` takes single operations instead of batched ones.
    """
    found = []
    for curve in _of_mode(points, src, dst, alone):
        of = at(curve.measured, size)
        if of:
            found.append(TransferMethod(curve, *of))
    return list(_best_knobs(sorted(found, key=lambda method: method.time.value)))


def in_state(points: Iterable[Point], *, untouched: bool) -> list[Point]:
    """The points that fit the state of the destination. `untouched`: copies to memory that nobody has touched, and to
    memory that is allocated once, such as pinned memory; otherwise all others."""
    if not untouched:
        return [point for point in points if point.benchmark not in FRESH]
    return [point for point in points if point.benchmark in FRESH or point.dst_memory not in _OF_NEW_PAGES]


def kinds(points: Iterable[Point], src: str, dst: str) -> list[str]:
    """The kinds of host memory of the methods from one place to another."""
    return sorted({kind for point in points if _is_on_path(point, src, dst) for kind in host_kinds(point)})


def sizes(points: Iterable[Point], src: str, dst: str, *, alone: bool = False) -> list[int]:
    """The measured sizes of these methods, in bytes."""
    return sorted({point.bytes for curve in _of_mode(points, src, dst, alone) for point in curve.measured})


def _of_mode(points: Iterable[Point], src: str, dst: str, alone: bool) -> list[Curve]:
    listed = [point for point in points if _is_on_path(point, src, dst)]
    if alone:
        return [of for of in curves(p for p in listed if p.benchmark not in IN_PLACE) if of.mode != "batched"]
    return [of for of in curves(listed) if of.mode != "single"]


def at(measured: Sequence[Point], size: int) -> tuple[Estimate, tuple[Point, ...]] | None:
    """Seconds at a size, measured or interpolated linearly between its neighbours, and the points behind it.

    None outside the measured sizes, between sizes more than 16 times apart, and across a break of the curve.
    """
    exact = next((point for point in measured if point.bytes == size), None)
    if exact is not None:
        time = time_of(exact)
        return None if time is None else (time, (exact,))
    below = max((point for point in measured if 0 < point.bytes < size), key=lambda point: point.bytes, default=None)
    above = min((point for point in measured if point.bytes > size), key=lambda point: point.bytes, default=None)
    if below is None or above is None or above.bytes > FAR * below.bytes:
        return None
    low, high = time_of(below), time_of(above)
    if low is None or high is None or above.bytes in breaks(measured):
        return None
    part = (size - below.bytes) / (above.bytes - below.bytes)
    return between(low, high, part), (below, above)


def between(low: Estimate, high: Estimate, part: float) -> Estimate:
    """The time at a part of the way from one time to another. It has an interval if both have one."""

    def on_line(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one + part * (other - one)

    return Estimate(
        low.value + part * (high.value - low.value), on_line(low.low, high.low), on_line(low.high, high.high)
    )


def plain(point: Point) -> bool:
    """Whether the point moves data in one direction, without a special cache state, discard or access pattern."""
    return point.benchmark in _MOVES and not point.bidirectional and not any(name in point.params for name in _SPECIAL)


def host_kinds(of: Point) -> list[str]:
    """The kinds of host memory at the ends of a point."""
    ends = ((of.src, of.src_memory), (of.dst, of.dst_memory))
    return [kind for place, kind in ends if "numa:" in place]


def reads_whole(method: Method) -> bool:
    """Whether a file is read into one buffer and then copied, or the reverse: nothing overlaps."""
    return is_whole_file(method.family.benchmark, dict(method.params))


def _overlaps_copies_only(method: Method) -> bool:
    """Whether each of several slots holds a whole file, so that only copies of several files overlap."""
    params = dict(method.params)
    return method.family.benchmark in FILES and params.get("chunk") == "whole" and params.get("slots") != "1"


def _knobless(method: Method) -> tuple[Method, bool, bool]:
    """The method without the knobs of a tuner. Whole-file copies, and several requests in flight, stay separate."""
    if method.family.benchmark in FILES:
        return method.without(_KNOBS_OF_FILES), reads_whole(method), "depth" in dict(method.params)
    return method.without(_KNOBS), False, False


def _best_knobs(fastest_first: Iterable[TransferMethod]) -> Iterator[TransferMethod]:
    seen: set[object] = set()
    for one in fastest_first:
        method = one.curve.method
        if _overlaps_copies_only(method):
            continue
        if method.family.benchmark in (STAGED, RELAYED, STAGED_FRESH, *FILES):
            if (kind := _knobless(method)) in seen:
                continue
            seen.add(kind)
        yield one


def _is_on_path(point: Point, src: str, dst: str) -> bool:
    of_few_blocks = point.params.get("blocks", "").isdecimal()
    staged = point.benchmark in (STAGED, *FRESH, *FILES) and not point.bidirectional
    return (point.src, point.dst) == (src, dst) and (plain(point) or staged) and not of_few_blocks
