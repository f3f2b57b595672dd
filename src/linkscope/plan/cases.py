"""Turns a point into a request to the worker, and estimates its cost."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from linkscope.plan.durations import lasts, time_of
from linkscope.plan.facts import MachineFacts, all_gpus, host_of, kind_of
from linkscope.plan.rules import RULES, RuleName
from linkscope.runfile import PointId

MOST_FOOTPRINT = 1 << 30
_WORD = 8
_CACHES = 3  # a batch rotates over this multiple of the largest cache, so that it meets no line twice
# Host copies rotate over at most this size. Caches on their path are flushed before each batch, and a batch has hardly
# more bytes. Making pinned memory takes 250 us per MiB, which was two fifths of the time of such points.
HOST_FOOTPRINT = 64 << 20
_DIRTY_FOOTPRINT = 1 << 20  # modified data that a core's own cache can hold
_SLICES = 512  # the worker rotates over at most this many slices
# The same for CPU threads, whose batches are not queued. The bytes are those that a thread copies in 0.6 ms
# (run/recipes.py).
_SLICES_OF_CPU, _SMALL, _SMALL_FOOTPRINT = 32768, 1 << 20, 16 << 20
# Estimated cost of a point, fitted to results/h200x4-standard-e: half of the points lie within a factor of 1.5.
_SETUP_S = 2.4e-3
_TOUCHED = {"numa": 13e9, "gpu": 300e9}  # bytes per second to make, fill, flush and compare memory
_SINGLE_S, _BATCH_S, _LARGE_BATCH_S = 0.05e-3, 0.3e-3, 1.3e-3
_JOINT_FACTOR = 2.5  # flows that end together need longer batches and more trials
# A single operation of this length is compared with an empty batch, once in a round (run/calibrate.py, stopping.py).
_LONG_SINGLE_S = 8e-3
_COMPUTATION_S = 10e-3
_OPERATION_S = 10e-6  # of a small operation on a model, with its queueing
_COPIED_BY_CPU, _FROM_HOST, _STAGED, _WITHIN_GPUS = 8e9, 50e9, 36e9, 350e9  # bytes per second


def pages_move(point: PointId) -> bool:
    """Returns whether the memory's pages migrate to the processor that touches them."""
    return not {"managed", "system"}.isdisjoint((point.src_memory, point.dst_memory))


def once_only(point: PointId) -> bool:
    """Returns whether only the first access of a sample finds the required state: modified data in CPU caches."""
    return point.param("cache") in ("written", "dirty")


def footprint(point: PointId, machine: MachineFacts) -> int:
    """Returns the bytes that a batch rotates over: three times the largest cache on the path, at most 1 GiB or one
    slice.

    Copies to and from host memory rotate over at most 64 MiB, kernels over what the cache of their GPU requires. Hot
    caches and migrating pages need one slice. Data that a core holds modified needs at most 1 MiB. Operations without
    bytes need 0. Several paths divide the footprint, because allocation takes most of the time of such points.
    """
    size = moved_bytes(point)
    if size == 0 or point.param("cache") == "hot" or pages_move(point):
        return size
    if once_only(point):
        return size * max(1, min(_DIRTY_FOOTPRINT // size, _SLICES))
    ends = [*itertools.chain(*point.paths), *_other_gpus(point, machine)]
    if point.engine == "nccl" and machine.ranks:
        ends = [rank["gpu"] for rank in machine.ranks if "gpu" in rank]
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


def _other_gpus(point: PointId, machine: MachineFacts) -> list[str]:
    """Returns the GPUs that `gpu:all` stands for; empty if no end is `gpu:all`."""
    for place, other in ((point.src, point.dst), (point.dst, point.src)):
        if place.endswith("gpu:all") and place == all_gpus(other):
            return machine.gpus_but(other)
    return []


def moved_bytes(point: PointId) -> int:
    """Returns the bytes that one operation moves: those of the point, padded to words of 8 B for the comparison."""
    return -(-point.bytes // _WORD) * _WORD


def case_of(point: PointId, machine: MachineFacts) -> dict[str, Any]:
    """Returns the `case` of a prepare request (docs/reference/worker.md)."""
    others = _other_gpus(point, machine)
    if point.param("sets") == "all":
        others = [gpu for gpu in machine.of_kind("gpu") if host_of(gpu) == host_of(point.src)]
    return {
        "benchmark": point.benchmark,
        "engine": point.engine,
        "src": point.src,
        "dst": point.dst,
        "src_memory": point.src_memory,
        "dst_memory": point.dst_memory,
        "bytes": moved_bytes(point),
        "params": dict(point.params),
        "footprint_bytes": footprint(point, machine),
        **({"others": others} if others else {}),
        **({"ranks": list(machine.ranks)} if kind_of(point.src) == "rank" else {}),
        **({"cpus": _cpus(point, machine)} if point.param("messages") and kind_of(point.src) == "numa" else {}),
    }


def _cpus(point: PointId, machine: MachineFacts) -> list[int]:
    """Returns the number of CPUs of each NUMA node of the source's host."""
    nodes = [node for node in machine.of_kind("numa") if host_of(node) == host_of(point.src)]
    return [machine.cpus.get(node, 0) for node in nodes]


def most_memory(points: Iterable[PointId], machine: MachineFacts) -> list[dict[str, Any]]:
    """Returns the field `most` of an open request (docs/reference/worker.md): the largest demand of the points for
    each kind of host memory."""
    most: dict[tuple[str, str], int] = {}
    for point in points:
        if pages_move(point):
            continue
        for end in ((point.src, point.src_memory), (point.dst, point.dst_memory)):
            if kind_of(end[0]) == "numa":
                most[end] = max(most.get(end, 0), footprint(point, machine))
    return [{"at": at, "memory": memory, "bytes": size} for (at, memory), size in most.items() if size]


def estimated_seconds(point: PointId, machine: MachineFacts, rule: RuleName = "linkscope") -> float:
    """Estimates the seconds of one round of a point: making and touching memory, and a few samples."""
    flows = max(len(point.paths), len(_other_gpus(point, machine))) * (1 + point.bidirectional)
    of_flows = sum(footprint(point, machine) / _TOUCHED.get(kind_of(end), 8e9) for end in _ends(point))
    touched = _SETUP_S + of_flows
    if lasts(point):
        return (0.0 if machine.modelled else touched) + time_of(point, _COMPUTATION_S, modelled=machine.modelled)[0]
    rated = flows * point.bytes / _rate(point)
    if point.param("mode") == "single" and rated >= _LONG_SINGLE_S and rule == "linkscope":
        return (0.0 if machine.modelled else touched) + rated + (0.0 if machine.modelled else point.idle_gap_s)
    samples = 2 if point.bytes >= MOST_FOOTPRINT // 4 else 4
    batch = _LARGE_BATCH_S if point.bytes >= 1 << 20 else _BATCH_S
    if point.param("mode") == "single":
        batch = _SINGLE_S
    each = max(batch, rated) * (_JOINT_FACTOR if flows > 1 else 1.0)
    least_s = RULES[rule].point_s
    if machine.modelled:
        return min(least_s, RULES[rule].modelled_operations * max(rated, _OPERATION_S)) + samples * 3 * each
    return touched + least_s + samples * 3 * each + samples * point.idle_gap_s


def _ends(point: PointId) -> Iterator[str]:
    """Yields both ends of every path, or the single place of a path within one place."""
    return itertools.chain.from_iterable(map(dict.fromkeys, point.paths))


def _rate(point: PointId) -> float:
    if point.engine == "cpu" or pages_move(point) or "pageable" in (point.src_memory, point.dst_memory):
        return _COPIED_BY_CPU
    if "numa" in (kind_of(point.src), kind_of(point.dst)):
        return _FROM_HOST
    return _STAGED if point.param("peer") == "off" else _WITHIN_GPUS
