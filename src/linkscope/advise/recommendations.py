"""The recommendations: what programs do, what they could do instead, and how. Each recommendation is a row.

Two points are compared when they are equal except for the fields that a row frees: a copy of pageable memory and one of
pinned memory, on one path, at one size, both single or both batched.
"""

from collections.abc import Callable
from dataclasses import dataclass

from linkscope.model.text import param_text
from linkscope.runfile import Point

HOST_COPIES = ("h2d", "d2h")
COPIES = (*HOST_COPIES, "d2d", "local")


@dataclass(frozen=True)
class Recommendation:
    """`free`: fields and parameters that may differ; `is_current`, `is_recommended`: the points of each practice."""

    name: str
    title: str
    how: str
    free: frozenset[str]
    is_current: Callable[[Point], bool]
    is_recommended: Callable[[Point], bool]


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
        "cudaMallocHost, or cudaHostRegister for an existing buffer; pin_memory() in PyTorch",
        _MEMORIES, _all(_is(HOST_COPIES, ("ce",)), _host_memory("pageable")), _host_memory("pinned", "registered"),
    ),
    Recommendation(
        "peer", "enable peer access between GPUs",
        "cudaDeviceEnablePeerAccess, once per pair, before the copies",
        frozenset({"peer", "call"}), _all(_is(("d2d",), ("ce",)), _param("peer", "off")), _param("peer", "on"),
    ),
    Recommendation(
        "node", "keep a GPU's input data and the copying thread on its fastest NUMA node",
        "numactl --cpunodebind=N --membind=N, or the MPI launcher's binding",
        frozenset({"src"}), _is(("h2d",), ("ce",)), _is(("h2d",), ("ce",)),
    ),
    Recommendation(
        "node back", "copy a GPU's results to its fastest NUMA node",
        "numactl --cpunodebind=N --membind=N, or the MPI launcher's binding",
        frozenset({"dst"}), _is(("d2h",), ("ce",)), _is(("d2h",), ("ce",)),
    ),
    Recommendation(
        "queue", "queue copies and wait once, after the last",
        "cudaMemcpyAsync on a stream, without synchronization between copies",
        frozenset({"mode"}), _all(_BY_CE, _param("mode", "single")), _param("mode", "batched"),
    ),
    Recommendation(
        "kernel", "copy by a kernel",
        "a kernel that loads and stores 16 B per thread; it occupies multiprocessors",
        _KERNEL, _all(_BY_CE, _PLAIN, _param("after", "kernel", "")),
        lambda point: point.engine in ("sm", "tma") and not point.params.get("blocks", "sms").isdecimal(),
    ),
    Recommendation(
        "pieces at once", "combine many small copies",
        "cudaMemcpyBatchAsync, a graph, or one kernel that gathers the pieces",
        # By the host's clock, since the time behind a gate leaves out the calls.
        frozenset({"engine", "blocks", "threads"}), _all(_is(("pieces",), ("ce",)), _param("clock", "host")),
        lambda point: point.engine != "ce",
    ),
    Recommendation(
        "prefetch", "prefetch managed memory before it is accessed",
        "cudaMemPrefetchAsync",
        _MANAGED, _all(_is(("demand",), ("fault",)), _param("advice", "")), _is(("prefetch",), ("prefetch",)),
    ),
    Recommendation(
        "advice", "advise the driver how managed memory is used",
        "cudaMemAdvise with this advice",
        frozenset({"advice"}), _all(_is(("demand",), ("fault",)), _param("advice", "")), lambda point: True,
    ),
    Recommendation(
        "touching threads", "fetch managed memory to the host with several CPU threads",
        "access the pages in a parallel loop, each thread its own part",
        frozenset({"threads"}), _all(_is(("demand",), ("fault",)), _param("threads", "1")), lambda point: True,
    ),
    Recommendation(
        "pool", "allocate GPU memory from a pool",
        "cudaMallocAsync with a release threshold above the memory in use",
        _MEMORIES, _all(_is(("allocation",), ("cpu",)), _param("phase", "allocate", "free"),
                        lambda point: point.src_memory == point.dst_memory == "device"),
        lambda point: point.src_memory == "pool",
    ),
)  # fmt: skip


def same_but(point: Point, free: frozenset[str]) -> tuple[object, ...]:
    """Everything that describes a point except the free fields; equal for points that are compared."""
    fields = ("benchmark", "engine", "src", "dst", "src_memory", "dst_memory", "bytes", "bidirectional")
    kept = [getattr(point, name) for name in fields if name not in free]
    params = (pair for pair in point.params.items() if pair[0] not in free and pair[0] != "bidirectional")
    return (*kept, *sorted(params))


def what_changes(current: Point, recommended: Point, free: frozenset[str]) -> str:
    """The change in a word or two: 'pinned', 'threads 8', 'batch'."""
    fields = [name for name in ("src", "dst", "engine", "src_memory", "dst_memory") if name in free]
    words = [getattr(recommended, name) for name in fields if getattr(recommended, name) != getattr(current, name)]
    if not words:
        changed = (name for name in sorted(free) if recommended.params.get(name, "") != current.params.get(name, ""))
        words = [param_text(name, recommended.params[name]) for name in changed if name in recommended.params]
    return ", ".join(dict.fromkeys(words))
