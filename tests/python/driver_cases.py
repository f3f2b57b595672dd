"""Cases for the real worker on the fake driver, one of each family, and the requests that run them."""

import pytest

from fake_driver import WORKER, environment
from worker_pipe import Pipe

KIB, MIB = 1 << 10, 1 << 20


def case(benchmark, src, dst, src_memory, dst_memory, size=64 * KIB, footprint=MIB, **params):
    return {
        "benchmark": benchmark, "engine": "cpu" if benchmark == "h2h" else "ce", "src": src, "dst": dst,
        "src_memory": src_memory, "dst_memory": dst_memory, "bytes": size, "footprint_bytes": footprint,
        "params": params,
    }  # fmt: skip


def h2d(memory="pinned", gpu=0, **more):
    return case("h2d", "numa:0", f"gpu:{gpu}", memory, "device", **more)


def d2h(memory="pinned", gpu=0, **more):
    return case("d2h", f"gpu:{gpu}", "numa:0", "device", memory, **more)


def d2d(**more):
    return case("d2d", "gpu:0", "gpu:1", "device", "device", **more)


def local(gpu=0, **more):
    return case("local", f"gpu:{gpu}", f"gpu:{gpu}", "device", "device", **more)


def access(benchmark, src, dst, size=64 * KIB, **more):
    memories = ["pinned" if place.startswith("numa") else "device" for place in (src, dst)]
    others = more.pop("others", [])
    made = case(benchmark, src, dst, *memories, size=size, footprint=16 * size, **more) | {"engine": "sm"}
    return made | {"others": others} if others else made


def joint(benchmark, src, dst, others=("gpu:0", "gpu:1"), **more):
    return access(benchmark, src, dst, others=list(others), **more) | {"engine": "ce"}


H2H = case("h2h", "numa:0", "numa:0", "pageable", "pinned")
FAMILIES = {
    "h2h": H2H,
    "h2d pinned": h2d(),
    "h2d registered": h2d("registered"),
    "h2d pageable": h2d("pageable"),
    "h2d bidirectional": h2d(bidirectional="true"),
    "d2h pinned": d2h(),
    "d2h pageable": d2h("pageable"),
    "d2d peer": d2d(),
    "d2d staged": d2d(peer="off"),
    "d2d by the peer call": d2d(call="peer"),
    "d2d by the destination": d2d(initiator="dst"),
    "local": local(),
    "after a wait": h2d(after="wait"),
    **{
        f"{name} by {engine}": wanted | {"engine": engine}
        for engine in ("sm", "tma")
        for name, wanted in {
            "h2d": h2d(blocks="8"),
            "h2d bidirectional": h2d(bidirectional="true"),
            "d2h registered": d2h("registered"),
            "d2d push": d2d(size=24),
            "d2d pull": d2d(initiator="dst"),
            "local": local(),
        }.items()
    },
    "read of host memory": access("read", "numa:0", "gpu:0"),
    "read of a peer": access("read", "gpu:1", "gpu:0", size=24),
    "read of its own": access("read", "gpu:0", "gpu:0"),
    "write to host memory": access("write", "gpu:0", "numa:0"),
    "write to a peer": access("write", "gpu:0", "gpu:1", size=24),
    "write to its own": access("write", "gpu:0", "gpu:0", blocks="8"),
    "narrow read of host memory": access("read", "numa:0", "gpu:0", width="4", blocks="256", threads="256"),
    "strided read of a peer": access("read", "gpu:1", "gpu:0", width="8", stride="256"),
    "random read of its own": access("read", "gpu:0", "gpu:0", order="random", cache="hot"),
    "narrow write to a peer": access("write", "gpu:0", "gpu:1", width="4"),
    "strided write to host memory": access("write", "gpu:0", "numa:0", width="4", stride="64"),
    "random write to its own": access("write", "gpu:0", "gpu:0", order="random"),
    "bidirectional reads": access("read", "gpu:0", "gpu:1", bidirectional="true"),
    "bidirectional: host memory read and written": access(
        "read", "numa:0", "gpu:0", bidirectional="true", order="random"
    ),
    "written by the same core before": h2d("pinned", cache="written"),
    "written by another core before": h2d("pageable", cache="dirty"),
    "h2h, written by another core before": case("h2h", "numa:0", "numa:0", "pageable", "pinned", cache="dirty"),
    "chase through host memory": access("latency", "numa:0", "gpu:0", size=0),
    "chase through a peer": access("latency", "gpu:1", "gpu:0", size=0),
    "chase by a CPU": case("latency", "numa:0", "numa:0", "pageable", "pageable", size=0, footprint=0)
    | {"engine": "cpu"},
    "chase on one SM": access("latency", "numa:0", "gpu:0", size=0, sm="131"),
    "chase on one SM, caches hot": access("latency", "gpu:0", "gpu:0", size=0, sm="0", cache="hot", range="64MiB"),
    "chase, caches hot": access("latency", "gpu:0", "gpu:0", size=0, cache="hot"),
    "bidirectional by one kernel": access("exchange", "numa:0", "gpu:0", size=24),
    "bidirectional by a kernel of each": access("exchange_all", "numa:0", "gpu:all", others=["gpu:0", "gpu:1"]),
    "host to all": joint("host_to_all", "numa:0", "gpu:all"),
    "all to host and back": joint("host_to_all", "numa:0", "gpu:all", bidirectional="true"),
    "all to host by sm": joint("all_to_host", "gpu:all", "numa:0") | {"engine": "sm"},
    "one to all": joint("one_to_all", "gpu:0", "gpu:all", others=("gpu:1",)),
    "on several paths": case("concurrent", "numa:0", "gpu:0", "pinned", "device", **{"with": "gpu:1->numa:0"}),
    "on several paths, one between GPUs": case(
        "concurrent", "gpu:0", "gpu:1", "device", "device", **{"with": "numa:0->gpu:0,gpu:0->numa:0"}
    ),
    "all to one, pulled by sm": joint("all_to_one", "gpu:all", "gpu:1", others=("gpu:0",), initiator="dst")
    | {"engine": "sm"},
}
TOGETHER = {
    f"{name} by {engine}": wanted | {"engine": engine}
    for engine in ("batch", "graph")
    for name, wanted in {
        "h2d": h2d(),
        "d2h registered": d2h("registered"),
        "d2d push": d2d(size=24),
        "d2d pull": d2d(initiator="dst"),
        "local": local(),
        "pieces": case("pieces", "gpu:0", "numa:0", "device", "pinned", size=1600, footprint=64 * KIB, piece="64"),
    }.items()
}
ROWS = {
    f"{name} by {engine}": wanted | {"engine": engine}
    for engine in ("ce", "sm")
    for name, wanted in {
        "pieces": case("pieces", "numa:0", "gpu:0", "pinned", "device", size=32 * KIB, piece="512"),
        "rows to a GPU": case("strided", "numa:0", "gpu:0", "pinned", "device", row="64"),
        "rows to the host": case("strided", "gpu:0", "numa:0", "device", "pinned", row="8", gaps="src", size=4 * KIB),
        "rows to a peer": case("strided", "gpu:0", "gpu:1", "device", "device", gaps="dst"),
        "planes within a GPU": case("strided", "gpu:0", "gpu:0", "device", "device", shape="3d"),
        "planes to a GPU": case("strided", "numa:0", "gpu:0", "pinned", "device", shape="3d", gaps="dst"),
        "halo in x": case("halo", "gpu:0", "gpu:1", "device", "device", size=4 * KIB, face="x"),
        "halo in z": case("halo", "gpu:0", "gpu:1", "device", "device", size=4 * KIB, face="z"),
    }.items()
}
PACKED = {
    f"halo in {face}, packed, {where}": case(
        "halo", "gpu:0", dst, "device", "device", size=2 * KIB, face=face, way="packed"
    )
    for face, where, dst in (("x", "to a peer", "gpu:1"), ("y", "within a GPU", "gpu:0"))
}
FAMILIES |= TOGETHER | ROWS | PACKED
DIRTY = {name for name in FAMILIES if "another core" in name}
WITHOUT_GPU = {"h2h", "h2h, written by another core before", "chase by a CPU"}
BY_BATCH = {name for name in TOGETHER if name.endswith("by batch")}
BY_GRAPH = {name for name in TOGETHER if name.endswith("by graph")}


@pytest.fixture
def worker():
    """Opens workers on a fake driver. They end with the test."""
    pipes = []

    def start(library="driver", extra=None, **settings):
        pipes.append(Pipe(WORKER, environment(library, **settings) | (extra or {})))
        return pipes[-1]

    yield start
    for pipe in pipes:
        pipe.__exit__()


def opened(worker, *arguments, **settings):
    pipe = worker(*arguments, **settings)
    answer = pipe.ask("open", platform="cuda")
    assert answer["ok"], answer
    return pipe, answer["driver"]


def prepare(pipe, wanted):
    return pipe.ask("prepare", case=wanted, key="point#0")


def refusal(pipe, wanted):
    """The reason why the worker does not support a case."""
    answer = prepare(pipe, wanted)
    assert answer["ok"] and not answer["supported"], answer
    return answer["reason"]


def failure(answer):
    assert not answer["ok"], answer
    return answer["error"]


def run(pipe, wanted, verify=True):
    """Prepares and runs a case; returns the answer to `run`."""
    prepared = prepare(pipe, wanted)
    assert prepared["ok"] and prepared["supported"], prepared
    actors = prepared["actors"]
    return pipe.ask("run", samples=2, batches=[[n] * actors for n in (0, 1, 8, 16)], verify=verify)


def works(pipe, wanted):
    answer = run(pipe, wanted)
    assert answer["ok"] and answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] > 0, answer
    stamps = list(zip(answer["stamps"][::2], answer["stamps"][1::2], strict=True))
    assert all(enter <= leave for enter, leave in stamps)
    return answer
