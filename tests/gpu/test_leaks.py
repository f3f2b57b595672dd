"""Nothing outlives a run, and nothing accumulates in a worker: GPU memory, host memory, processes, shared memory."""

import os
from pathlib import Path

from fake_driver import WORKER
from group import Group
from on_gpus import ENVIRONMENT, FAKE, free_bytes, measured, needs, only
from processes import children

pytestmark = needs(1)

KIB, MIB = 1 << 10, 1 << 20
OF_THE_DRIVER = 16 * MIB  # memory that the driver may keep for itself
OF_THE_HOST = 512 * MIB  # other processes start and end
FEW = ("h2d/ce/*->gpu:0.*/4096?*mode=batched*", "d2d/ce/gpu:0.ipc*/4096?*", "ping_pong/*gpu*")
# Streams of messages last 0.2 s each: those of 4 connections stand for all.
STREAMS = ("put/*/4096?*connections=4*", "get/*/4096?*connections=4*", "queued_put/*/4096?*connections=4*")
SIZED = ("[!gpq]*/4096?*", "p[ir]*/4096?*", "*_ping_pong/*/4096?*", "*/65536?*")
BROAD = (*SIZED, *STREAMS, "allocation/*size=1MiB*", "ping_pong/*")


def available_bytes() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * KIB for line in lines if line.startswith("MemAvailable"))


def shared_files() -> set[str]:
    return set(os.listdir("/dev/shm"))


def test_a_run_leaves_nothing_behind(tmp_path) -> None:
    before, host, shared = free_bytes(), available_bytes(), shared_files()
    run = measured(
        tmp_path / "a.jsonl", "--suite", "full", "--rounds", "1", *only(*(FEW if FAKE else BROAD)), timeout_s=1500
    )
    assert run.end is not None and run.end.complete and any(point.status != "unsupported" for point in run.points)
    assert children(os.getpid()) == []
    assert FAKE or shared_files() <= shared  # on the fake driver other tests run at the same time
    for gpu, (one, other) in enumerate(zip(before, free_bytes(), strict=True)):
        assert one - other <= OF_THE_DRIVER, f"gpu {gpu}: {one} B were free, now {other} B"
    assert FAKE or host - available_bytes() <= OF_THE_HOST


def case(benchmark: str, engine: str, src: str, dst: str, memory: str, count: int, **params: str) -> dict:
    name = {"numa": "pinned"}
    memories = [name.get(place[:4], memory) for place in (src, dst)]
    return {
        "benchmark": benchmark, "engine": engine, "src": src, "dst": dst, "src_memory": memories[0],
        "dst_memory": memories[1], "bytes": count, "footprint_bytes": 4 * count, "params": params,
    }  # fmt: skip


CASES = [
    case(benchmark, engine, src, dst, memory, 4 * MIB)
    for memory in ("device", "vmm", "pool", "ipc", "posix_fd")
    for benchmark, engine, src, dst in (
        ("h2d", "ce", "numa:0", "gpu:0"), ("d2h", "sm", "gpu:0", "numa:0"), ("local", "ce", "gpu:0", "gpu:0"),
        ("d2d", "ce", "gpu:0", "gpu:1"), ("d2d", "sm", "gpu:0", "gpu:1"),
    )
] + [
    case("pieces", "graph", "numa:0", "gpu:0", "device", 64 * KIB, piece="4096"),
    case("prefetch", "prefetch", "numa:0", "gpu:0", "managed", 4 * MIB) | {"src_memory": "managed"},
    *(case("ping_pong", "sm", "gpu:0", "gpu:1", memory, 0) for memory in ("device", "ipc", "posix_fd")),
    *(
        case("allocation", "cpu", "gpu:0", "gpu:0", memory, 0, phase="touch", size="1MiB")
        for memory in ("device", "vmm", "pool", "ipc", "posix_fd")
    ),
]  # fmt: skip


def test_repeated_points_take_no_more_memory() -> None:
    """A worker keeps its buffers for the next point, so the second pass must not need more memory than the first."""

    def all_of_them() -> int:
        ran = 0
        for wanted in CASES:
            prepared = pipe.ask("prepare", case=wanted, key="point#0", timeout_s=120)
            assert prepared["ok"], (wanted, prepared)
            if not prepared["supported"]:
                continue
            answer = pipe.ask("run", samples=1, batches=[[1] * prepared["actors"]], verify=True, timeout_s=120)
            assert answer["ok"] and answer["verdict"]["ok"], (wanted, answer)
            ran += 1
        return ran

    def open_files() -> list[int]:
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in (pipe.worker.pid, *pipe.peers())]

    with Group(WORKER, ENVIRONMENT) as pipe:
        assert pipe.ask("open", platform="cuda")["ok"]
        assert all_of_them() >= 8
        free, files = free_bytes(), open_files()
        all_of_them()
        for gpu, (one, other) in enumerate(zip(free, free_bytes(), strict=True)):
            assert one - other <= OF_THE_DRIVER, f"gpu {gpu}: {one} B were free after one pass, {other} B after two"
        assert open_files() == files
