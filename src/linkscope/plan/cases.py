"""From a point to what the worker is asked, and what that may cost."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from linkscope.plan.facts import MachineFacts, all_gpus, kind_of
from linkscope.plan.rules import RULES, RuleName
from linkscope.runfile import PointId

MOST_FOOTPRINT = 1 << 30
_CACHES = 3  # how many times the largest cache in the way a batch rotates over, so that it meets no line twice
# Copies to and from host memory rotate over no more. Caches on their way are flushed before each batch, and a batch has
# hardly more bytes; pinned memory takes 250 us for each MiB to make, which was two fifths of the time of such points.
HOST_FOOTPRINT = 64 << 20
_DIRTY_FOOTPRINT = 1 << 20  # what a core's own cache holds modified
_SLICES = 512  # the most that the worker rotates over
# The same of a CPU thread, whose batches are not queued; their bytes are what it copies in 0.6 ms (run/sampler.py).
_SLICES_OF_CPU, _SMALL, _SMALL_FOOTPRINT = 32768, 1 << 20, 16 << 20
# What a point costs before anything is known, by results/h200x4-standard-e: half of them lie within a factor 1.5.
_SETUP_S = 2.4e-3
_TOUCHED = {"numa": 13e9, "gpu": 300e9}  # bytes a second of memory made, filled, flushed and compared
_ALONE_S, _BATCH_S, _LARGE_BATCH_S = 0.05e-3, 0.3e-3, 1.3e-3
_AT_ONCE = 2.5  # flows that are to end together have longer batches, and are tried more often
_COPIED_BY_CPU, _FROM_HOST, _STAGED, _WITHIN_GPUS = 8e9, 50e9, 36e9, 350e9  # bytes a second


def pages_move(point: PointId) -> bool:
    """Whether it is of memory whose pages move to who touches them."""
    return not {"managed", "system"}.isdisjoint((point.src_memory, point.dst_memory))


def once_only(point: PointId) -> bool:
    """Whether a sample finds each byte as it should be only once: CPU caches hold it modified."""
    return point.param("cache") in ("written", "dirty")


def footprint(point: PointId, machine: MachineFacts) -> int:
    """Bytes that a batch rotates over: three times the largest cache in the way, 1 GiB or one slice at most.

    Copies to and from host memory rotate over 64 MiB at most; what a kernel touches there, over what its GPU asks for.
    One slice where caches are to be hot, and of memory whose pages are moved once a sample; 1 MiB at most where a core
    is to hold it modified; 0 for an operation without bytes. Of several paths each has its part: making memory is what
    such a point takes longest for.
    """
    size = point.bytes
    if size == 0 or point.param("cache") == "hot" or pages_move(point):
        return size
    if once_only(point):
        return size * max(1, min(_DIRTY_FOOTPRINT // size, _SLICES))
    ends = [*itertools.chain(*point.paths), *_others(point, machine)]
    caches = {place: _CACHES * machine.cache_bytes.get(place, 0) for place in ends}
    wanted = max(caches.values())
    if any(kind_of(place) == "numa" for place in ends):
        of_gpus = [wanted for place, wanted in caches.items() if "gpu:" in place] if point.engine == "sm" else []
        wanted = min(wanted, max([HOST_FOOTPRINT, *of_gpus]))
    wanted //= len(point.paths)
    slices = _SLICES
    if point.engine == "cpu" and point.param("mode") != "single" and size < _SMALL:
        slices = min(_SLICES_OF_CPU, _SMALL_FOOTPRINT // size)
    return size * max(1, min(-(-wanted // size), MOST_FOOTPRINT // size, slices))


def _others(point: PointId, machine: MachineFacts) -> list[str]:
    """The GPUs that `gpu:all` stands for, where an end is that."""
    for place, other in ((point.src, point.dst), (point.dst, point.src)):
        if place.endswith("gpu:all") and place == all_gpus(other):
            return machine.gpus_but(other)
    return []


def case_of(point: PointId, machine: MachineFacts) -> dict[str, Any]:
    """The `case` of a prepare request (docs/reference/worker.md)."""
    others = _others(point, machine)
    return {
        "benchmark": point.benchmark,
        "engine": point.engine,
        "src": point.src,
        "dst": point.dst,
        "src_memory": point.src_memory,
        "dst_memory": point.dst_memory,
        "bytes": point.bytes,
        "params": dict(point.params),
        "footprint_bytes": footprint(point, machine),
        **({"others": others} if others else {}),
    }


def most_memory(points: Iterable[PointId], machine: MachineFacts) -> list[dict[str, Any]]:
    """`most` of an open request (docs/reference/worker.md): what the points want of each kind of host memory at
    most.
    """
    most: dict[tuple[str, str], int] = {}
    for point in points:
        if pages_move(point):
            continue
        for end in ((point.src, point.src_memory), (point.dst, point.dst_memory)):
            if kind_of(end[0]) == "numa":
                most[end] = max(most.get(end, 0), footprint(point, machine))
    return [{"at": at, "memory": memory, "bytes": size} for (at, memory), size in most.items() if size]


def estimated_seconds(point: PointId, machine: MachineFacts, rule: RuleName = "linkscope") -> float:
    """Roughly what one round of a point costs before anything is known: memory made and touched, a few samples."""
    flows = max(len(point.paths), len(_others(point, machine))) * (1 + point.bidirectional)
    of_flows = sum(footprint(point, machine) / _TOUCHED.get(kind_of(end), 8e9) for end in _ends(point))
    touched = _SETUP_S + of_flows
    samples = 2 if point.bytes >= MOST_FOOTPRINT // 4 else 4
    batch = _LARGE_BATCH_S if point.bytes >= 1 << 20 else _BATCH_S
    if point.param("mode") == "single":
        batch = _ALONE_S
    each = max(batch, flows * point.bytes / _rate(point)) * (_AT_ONCE if flows > 1 else 1.0)
    idle = 0.0 if machine.modelled else samples * point.idle_gap_s
    return (0.0 if machine.modelled else touched) + RULES[rule].point_s + samples * 3 * each + idle


def _ends(point: PointId) -> Iterator[str]:
    """Of every path both ends, or the one place that it is within."""
    return itertools.chain.from_iterable(map(dict.fromkeys, point.paths))


def _rate(point: PointId) -> float:
    if point.engine == "cpu" or pages_move(point) or "pageable" in (point.src_memory, point.dst_memory):
        return _COPIED_BY_CPU
    if "numa" in (kind_of(point.src), kind_of(point.dst)):
        return _FROM_HOST
    return _STAGED if point.param("peer") == "off" else _WITHIN_GPUS
