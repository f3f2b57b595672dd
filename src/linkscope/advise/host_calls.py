"""The time of the host's calls for copies. The GPU's time of queued copies does not contain it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from linkscope.advise.methods import IN_PLACE, TransferMethod, between
from linkscope.flow import kind_of
from linkscope.model.curves import BATCHED, MODE, Estimate, Method, Path, path_of, time_of
from linkscope.runfile import Point

_IN_ONE_CALL = ("batch", "graph")
_KERNELS = ("sm", "tma")
_COPIES = ("h2d", "d2h", "d2d", "local")
# The driver copies this memory in the calling thread, or moves its pages, so the measured times contain the calls.
_WITH_CALLS = ("pageable", "hugepage", "managed", "system")
_APART = 64  # the largest ratio of two sizes between which a time is interpolated, as for pieces
# A call for one copy among many takes at most 4.7 us in all committed runs, so longer copies hide the calls.
_HIDDEN_S = 10e-6

_Reading = tuple[Estimate, tuple[Point, ...]]


class HostCalls:
    """Seconds of the host's calls for one of many copies, from points.

    Batches and graphs: scattered pieces by the host's clock. Kernels: a launch. Other copies: a call.
    """

    def __init__(self, points: Iterable[Point]) -> None:
        self._pieces: dict[str, dict[Path, dict[int, _Reading]]] = {}
        self._single: dict[Path, _Reading] = {}
        self._launches: dict[str, _Reading] = {}
        for point in points:
            time, params = time_of(point), point.params
            if time is None:
                continue
            if point.benchmark == "pieces" and point.engine in _IN_ONE_CALL and params.get("clock") == "host":
                size, of_engine = int(params["piece"]), self._pieces.setdefault(point.engine, {})
                of_engine.setdefault(path_of(point), {})[size] = _part(time, size / point.bytes), (point,)
            elif point.benchmark == "copy_call" and params.get("size") == "4KiB":
                self._single[path_of(point)] = time, (point,)
            elif point.benchmark == "launch" and _is_usual_launch(point):
                self._launches[point.dst] = time, (point,)

    @property
    def known(self) -> bool:
        """Whether the points have any such time."""
        return bool(self._pieces or self._single or self._launches)

    def of(self, method: Method, path: Path, size: int) -> _Reading | None:
        """Seconds of the host for one copy of `size` bytes; None if the method needs no calls, or no point has them.

        The time of the same path; else the longest time of paths between the same kinds of places; else the longest of
        all paths. The launch of a graph takes a few ns a copy, so only the time of the same path counts.
        """
        family = method.family
        if family.engine in _KERNELS and family.benchmark in (*_COPIES, *IN_PLACE):
            return self._launches.get(path.dst) or self._launches.get(path.src) or _longest(self._launches.values())
        if family.benchmark not in _COPIES or {family.src_memory, family.dst_memory} & set(_WITH_CALLS):
            return None
        if family.engine == "ce":
            return _nearest(self._single, path)
        by_path = {one: _at(sizes, size) for one, sizes in self._pieces.get(family.engine, {}).items()}
        return by_path.get(path) if family.engine == "graph" else _nearest(by_path, path)


def with_calls(found: Sequence[TransferMethod], calls: HostCalls, size: int) -> tuple[list[TransferMethod], int]:
    """The methods, with the host's time where it exceeds the GPU's, and the number of methods that are left out.

    These are batches of short copies without a known time of their calls.
    """
    kept, left_out = [], 0
    for one in found:
        reading = calls.of(one.curve.method, one.curve.path, size)
        if reading is not None and reading[0].value > one.time.value:
            kept.append(replace(one, time=reading[0], points=reading[1], by_host=True))
        elif reading is None and one.curve.method.family.engine == "batch" and one.time.value < _HIDDEN_S:
            left_out += 1
        else:
            kept.append(one)
    return kept, left_out


def without_calls(found: Iterable[TransferMethod], calls: HostCalls) -> bool:
    """Whether some methods are short enough for their calls to matter, and no point has the time of calls."""
    of_gpu = (*_COPIES, *IN_PLACE)
    return not calls.known and any(
        one.time.value < _HIDDEN_S and one.curve.method.family.benchmark in of_gpu for one in found
    )


def _is_usual_launch(point: Point) -> bool:
    params = point.params
    return (params.get("arguments"), params.get("threads")) == ("0", "1") and params.get(MODE, "") in BATCHED


def _kinds(path: Path) -> tuple[str, str]:
    return kind_of(path.src), kind_of(path.dst)


def _nearest(by_path: Mapping[Path, _Reading], path: Path) -> _Reading | None:
    alike = [reading for one, reading in by_path.items() if _kinds(one) == _kinds(path)]
    return by_path.get(path) or _longest(alike) or _longest(by_path.values())


def _part(time: Estimate, part: float) -> Estimate:
    low, high = (None if end is None else part * end for end in (time.low, time.high))
    return Estimate(part * time.value, low, high)


def _longest(readings: Iterable[_Reading]) -> _Reading | None:
    return max(readings, key=lambda reading: reading[0].value, default=None)


def _at(sizes: Mapping[int, _Reading], size: int) -> _Reading:
    """The time at a size, interpolated linearly between neighbours.

    Without near neighbours, the time of the next smaller size, or of the smallest size: the time of a call hardly
    depends on the size.
    """
    if size in sizes:
        return sizes[size]
    for low, high in pairwise(sorted(sizes)):
        if low < size < high <= _APART * low:
            (below, first), (above, second) = sizes[low], sizes[high]
            return between(below, above, (size - low) / (high - low)), (*first, *second)
    return sizes[max((one for one in sizes if one <= size), default=min(sizes))]
