"""Habits: what programs do, what they could do instead, and how. A habit is a row here.

Two points are held against each other where they are the same in all but what the row calls free: a copy from pageable
memory and one from pinned memory, on one path, of one size, alone or in a batch as each is.
"""

from collections.abc import Callable
from dataclasses import dataclass

from linkscope.model.text import param_text
from linkscope.runfile import Point

HOST_COPIES = ("h2d", "d2h")
COPIES = (*HOST_COPIES, "d2d", "local")


@dataclass(frozen=True)
class Recommendation:
    """`free`: fields and parameters that may differ. `now`, `then`: which points are the habit, and which its cure."""

    name: str
    title: str
    how: str
    free: frozenset[str]
    now: Callable[[Point], bool]
    then: Callable[[Point], bool]


def _param(name: str, *values: str) -> Callable[[Point], bool]:
    return lambda point: point.params.get(name, "") in values


def _is(benchmarks: tuple[str, ...], engines: tuple[str, ...]) -> Callable[[Point], bool]:
    return lambda point: point.benchmark in benchmarks and point.engine in engines


def _all(*tests: Callable[[Point], bool]) -> Callable[[Point], bool]:
    return lambda point: all(test(point) for test in tests)


def _host_memory(*kinds: str) -> Callable[[Point], bool]:
    def test(point: Point) -> bool:
        host, gpu = (point.src_memory, point.dst_memory)
        if point.benchmark == "d2h":
            host, gpu = gpu, host
        return host in kinds and gpu == "device"

    return test


_MEMORIES = frozenset({"src_memory", "dst_memory"})
_KERNEL = frozenset({"engine", "blocks", "threads", "after", "call", "peer"})
_MANAGED = frozenset({"benchmark", "engine", "access", "threads"})
_BY_CE = _is(COPIES, ("ce",))
_PLAIN = _all(_param("cache", ""), _param("peer", "", "on"), _param("call", "", "memcpy"))

RECOMMENDATIONS = (
    Recommendation(
        "pin", "pin host memory that is copied to or from a GPU",
        "cudaMallocHost, or cudaHostRegister for a buffer that is there; pin_memory() in PyTorch",
        _MEMORIES, _all(_is(HOST_COPIES, ("ce",)), _host_memory("pageable")), _host_memory("pinned", "registered"),
    ),
    Recommendation(
        "peer", "let GPUs reach each other directly",
        "cudaDeviceEnablePeerAccess once for each pair, before the copies",
        frozenset({"peer", "call"}), _all(_is(("d2d",), ("ce",)), _param("peer", "off")), _param("peer", "on"),
    ),
    Recommendation(
        "node", "keep a GPU's data and the thread that copies them on the NUMA node that serves it best",
        "numactl --cpunodebind=N --membind=N, or the MPI launcher's binding",
        frozenset({"src"}), _is(("h2d",), ("ce",)), _is(("h2d",), ("ce",)),
    ),
    Recommendation(
        "node back", "bring a GPU's results to the NUMA node that serves it best",
        "numactl --cpunodebind=N --membind=N, or the MPI launcher's binding",
        frozenset({"dst"}), _is(("d2h",), ("ce",)), _is(("d2h",), ("ce",)),
    ),
    Recommendation(
        "queue", "queue copies one behind the other and wait once, after the last",
        "cudaMemcpyAsync on a stream, and no synchronization in between",
        frozenset({"mode"}), _all(_BY_CE, _param("mode", "single")), _param("mode", "batched"),
    ),
    Recommendation(
        "kernel", "copy by the threads of a kernel",
        "a kernel that loads and stores 16 B a thread; it takes multiprocessors from what else runs",
        _KERNEL, _all(_BY_CE, _PLAIN, _param("after", "kernel", "")),
        lambda point: point.engine in ("sm", "tma") and not point.params.get("blocks", "sms").isdecimal(),
    ),
    Recommendation(
        "pieces at once", "hand many small copies over at once",
        "cudaMemcpyBatchAsync, a graph that is launched again, or one kernel that gathers them",
        # By the host's clock: behind a gate a GPU's time leaves out what handing them over takes the caller.
        frozenset({"engine", "blocks", "threads"}), _all(_is(("pieces",), ("ce",)), _param("clock", "host")),
        lambda point: point.engine != "ce",
    ),
    Recommendation(
        "prefetch", "prefetch managed memory before it is touched",
        "cudaMemPrefetchAsync",
        _MANAGED, _all(_is(("demand",), ("fault",)), _param("advice", "")), _is(("prefetch",), ("prefetch",)),
    ),
    Recommendation(
        "advice", "tell the driver how managed memory is used",
        "cudaMemAdvise, with what is named here",
        frozenset({"advice"}), _all(_is(("demand",), ("fault",)), _param("advice", "")), lambda point: True,
    ),
    Recommendation(
        "touching threads", "bring managed memory back to the host by several CPU threads",
        "touch the pages from a parallel loop, each thread a part of its own",
        frozenset({"threads"}), _all(_is(("demand",), ("fault",)), _param("threads", "1")), lambda point: True,
    ),
    Recommendation(
        "pool", "allocate GPU memory from a pool",
        "cudaMallocAsync, with a release threshold above what is in use",
        _MEMORIES, _all(_is(("allocation",), ("cpu",)), _param("phase", "allocate", "free"),
                        lambda point: point.src_memory == point.dst_memory == "device"),
        lambda point: point.src_memory == "pool",
    ),
)  # fmt: skip


def same_but(point: Point, free: frozenset[str]) -> tuple[object, ...]:
    """All that a point is but what is free; equal of points that a habit compares."""
    fields = ("benchmark", "engine", "src", "dst", "src_memory", "dst_memory", "bytes", "bidirectional")
    kept = [getattr(point, name) for name in fields if name not in free]
    params = (pair for pair in point.params.items() if pair[0] not in free and pair[0] != "bidirectional")
    return (*kept, *sorted(params))


def instead(now: Point, then: Point, free: frozenset[str]) -> str:
    """What is done otherwise, in a word or two: 'pinned', 'threads 8', 'batch'."""
    fields = [name for name in ("src", "dst", "engine", "src_memory", "dst_memory") if name in free]
    words = [getattr(then, name) for name in fields if getattr(then, name) != getattr(now, name)]
    if not words:
        changed = (name for name in sorted(free) if then.params.get(name, "") != now.params.get(name, ""))
        words = [param_text(name, then.params[name]) for name in changed if name in then.params]
    return ", ".join(dict.fromkeys(words))
