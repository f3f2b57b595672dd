"""From a point to what the worker is asked, and what that may cost."""

from typing import Any

from linkscope.plan.facts import MachineFacts, all_gpus
from linkscope.plan.rules import RULES, RuleName
from linkscope.runfile import PointId

MOST_FOOTPRINT = 1 << 30
_CACHES = 3  # how many times the largest cache in the way a batch rotates over, so that it meets no line twice
_HOST_FOOTPRINT = 256 << 20  # CPU caches that are larger are flushed instead: the memory would take seconds to make
_DIRTY_FOOTPRINT = 1 << 20  # what another core's own cache holds modified
_SLICES = 512  # the most that the worker rotates over
_GUESSED_RATE = 5e9  # bytes a second
_GUESSED_SETUP_S = 5e-3


def pages_move(point: PointId) -> bool:
    """Whether it is of memory whose pages move to who touches them."""
    return not {"managed", "system"}.isdisjoint((point.src_memory, point.dst_memory))


def footprint(point: PointId, machine: MachineFacts) -> int:
    """Bytes that a batch rotates over: three times the largest cache in the way, 1 GiB or one slice at most.

    One slice where caches are to be hot, and of memory whose pages are moved once a sample; 1 MiB at most where another
    core is to hold it modified; 0 for an operation without bytes.
    """
    size = point.bytes
    if size == 0 or point.param("cache") == "hot" or pages_move(point):
        return size
    if point.param("cache") == "dirty":
        return size * max(1, min(_DIRTY_FOOTPRINT // size, _SLICES))
    ends = [point.src, point.dst, *_others(point, machine)]
    wanted = max([_wanted(machine, place) for place in ends])
    return size * max(1, min(-(-wanted // size), MOST_FOOTPRINT // size, _SLICES))


def _others(point: PointId, machine: MachineFacts) -> list[str]:
    """The GPUs that `gpu:all` stands for, where an end is that."""
    for place, other in ((point.src, point.dst), (point.dst, point.src)):
        if place.endswith("gpu:all") and place == all_gpus(other):
            return machine.gpus_but(other)
    return []


def _wanted(machine: MachineFacts, place: str) -> int:
    wanted = _CACHES * machine.cache_bytes.get(place, 0)
    return wanted if "gpu:" in place else min(wanted, _HOST_FOOTPRINT)


def case_of(point: PointId, machine: MachineFacts) -> dict[str, Any]:
    """The `case` of a prepare request (docs/worker.md)."""
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


def estimated_seconds(point: PointId, machine: MachineFacts, rule: RuleName = "linkscope") -> float:
    """Roughly what one round of a point costs before anything is known: memory made and touched, a few samples."""
    touched = 0 if machine.modelled else 2 * footprint(point, machine) / _GUESSED_RATE + _GUESSED_SETUP_S
    samples = 2 if point.bytes >= MOST_FOOTPRINT // 4 else 6
    return touched + RULES[rule].point_s + samples * 3 * max(50e-6, point.bytes / _GUESSED_RATE)
