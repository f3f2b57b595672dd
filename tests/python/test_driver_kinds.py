"""Kinds of memory on the fake driver: copies, allocation costs, exhausted memory, and no leaks."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from driver_cases import case, d2d, d2h, failure, h2d, local, opened, prepare, refusal, worker
from fake_driver import calls_between, environment, needs_fake, needs_worker, too_short
from linkscope.runfile import read_run

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def memories(wanted, src, dst):
    return wanted | {"src_memory": src, "dst_memory": dst}


def by_sm(wanted):
    return wanted | {"engine": "sm"}


COPIES = {
    "h2d wc": h2d("wc"),
    "h2d mapped": h2d("mapped"),
    "h2d to a pool": memories(h2d(), "pinned", "pool"),
    "h2d to virtual memory, bidirectional": memories(h2d(bidirectional="true"), "pinned", "vmm"),
    "d2h wc": d2h("wc"),
    "d2h from virtual memory": memories(d2h(), "vmm", "pinned"),
    "d2d pool": memories(d2d(), "pool", "pool"),
    "d2d vmm": memories(d2d(), "vmm", "vmm"),
    "local pool": memories(local(), "pool", "pool"),
    "local vmm, 24 B": memories(local(size=24), "vmm", "vmm"),
    "h2d mapped by sm": by_sm(h2d("mapped")),
    "d2h wc by sm": by_sm(d2h("wc")),
    "d2d vmm by sm": by_sm(memories(d2d(), "vmm", "vmm")),
    "read of mapped memory": case("read", "numa:0", "gpu:0", "mapped", "device") | {"engine": "sm"},
    "read of a peer's pool": case("read", "gpu:1", "gpu:0", "pool", "pool") | {"engine": "sm"},
    "write to mapped memory": case("write", "gpu:0", "numa:0", "device", "mapped") | {"engine": "sm"},
    "write to a peer's virtual memory": case("write", "gpu:0", "gpu:1", "vmm", "vmm") | {"engine": "sm"},
    "a CPU writes wc": case("h2h", "numa:0", "numa:0", "pageable", "wc"),
    "a CPU reads wc": case("h2h", "numa:0", "numa:0", "wc", "pageable"),
}
TRANSPARENT = {
    "transparent": h2d("hugepage", pages="transparent"),
    "registered, transparent": d2h("registered_hugepage", pages="transparent"),
}


def run(pipe, wanted, counts=((1,), (3,)), verify=True):
    prepared = prepare(pipe, wanted)
    assert prepared["ok"] and prepared["supported"], prepared
    batches = [[count] * prepared["actors"] for (count,) in counts]
    return pipe.ask("run", samples=2, batches=batches, verify=verify)


@pytest.mark.parametrize("name", COPIES)
def test_copies_from_and_to_every_kind_arrive(worker, name):
    pipe, _ = opened(worker)
    answer = run(pipe, COPIES[name])
    assert answer["ok"] and answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] > 0, answer
    assert answer["timing"] == ("host" if "CPU" in name else "gate")
    notes = answer["notes"]
    for place, memory in (("src", "src_memory"), ("dst", "dst_memory")):
        if COPIES[name][place] == "numa:0":
            assert notes[f"pages numa:0.{COPIES[name][memory]}"] in ("numa:0", "hidden")


@pytest.mark.parametrize("name", ["h2d wc", "d2d pool", "d2d vmm", "read of mapped memory", "a CPU writes wc"])
def test_wrong_data_is_found(worker, name):
    if "CPU" in name:
        pytest.skip("a CPU's copy is no call of the driver")
    verdict = run(opened(worker, CUDA_CORRUPT="2+")[0], COPIES[name])["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0


@pytest.mark.parametrize("name", TRANSPARENT)
def test_transparent_huge_pages_are_verified_or_the_point_fails(worker, name):
    pipe, _ = opened(worker)
    prepared = prepare(pipe, TRANSPARENT[name])
    if prepared["ok"] and not prepared["supported"]:
        assert "transparent huge pages" in prepared["reason"]
        return
    if not prepared["ok"]:
        assert "the kernel gave 2 MiB in" in prepared["error"]["message"]
        return
    answer = pipe.ask("run", samples=1, batches=[[2]], verify=True)
    assert answer["verdict"]["ok"]
    sizes = [value for note, value in answer["notes"].items() if note.startswith("page size numa:0.")]
    assert sizes and all(size == "hidden" or size.startswith("2 MiB in ") for size in sizes)
    assert answer["timing"] == ("gate" if "registered" in name else "host")


def reserved(kib):
    file = Path(f"/sys/kernel/mm/hugepages/hugepages-{kib}kB/nr_hugepages")
    return int(file.read_text()) if file.exists() else 0


@pytest.mark.parametrize("pages, kib", [("2MiB", 2 * KIB), ("1GiB", MIB)])
def test_unreserved_huge_pages_are_unsupported_with_the_cure(worker, pages, kib):
    if reserved(kib) > 0:
        pytest.skip(f"this machine has reserved pages of {pages}")
    reason = refusal(opened(worker)[0], h2d("hugepage", pages=pages))
    if "this kernel has no huge pages" not in reason:
        size = pages.replace("iB", " iB").replace("M ", " M").replace("G ", " G")
        assert f"0 huge pages of {size} are reserved on numa:0, and 1 are needed" in reason
        assert "an administrator can reserve them: echo 1 > /sys/" in reason
        assert ("hugepagesz=1G hugepages=1" in reason) == (pages == "1GiB")


def test_reserved_huge_pages_are_used(worker):
    if reserved(2 * KIB) < 16:
        pytest.skip("this machine has no 16 reserved huge pages of 2 MiB: echo 16 > /proc/sys/vm/nr_hugepages")
    answer = run(opened(worker)[0], h2d("registered_hugepage", pages="2MiB"))
    assert answer["verdict"]["ok"]
    assert answer["notes"]["page size numa:0.registered_hugepage"] == "2 MiB"


@pytest.mark.parametrize(
    "settings, wanted, words",
    [
        ({"CUDA_MISSING": "cuMemAllocAsync"}, COPIES["local pool"], "lacks cuMemAllocAsync"),
        ({"CUDA_MISSING": "cuMemSetAccess"}, COPIES["d2d vmm"], "lacks cuMemSetAccess"),
        ({"CUDA_NO_PEER": 1}, COPIES["d2d pool"], "cannot access the memory"),
        ({"CUDA_GPUS": 0}, case("h2h", "numa:0", "numa:0", "pageable", "wc"), "wc memory is the driver's to give"),
    ],
)
def test_a_driver_without_a_feature_gives_a_stated_reason(worker, settings, wanted, words):
    pipe, _ = opened(worker, **settings)
    assert words in refusal(pipe, wanted)


# --- costs of memory -----------------------------------------------------------------------------------------------

PHASES = {
    "pageable": ("allocate", "touch", "free"),
    "pinned": ("allocate", "map", "touch", "free"),
    "wc": ("allocate", "map", "touch", "free"),
    "mapped": ("allocate", "map", "touch", "free"),
    "registered": ("allocate", "touch", "register", "map", "unregister", "free"),
    "device": ("allocate", "touch", "free"),
    "pool": ("allocate", "grow", "touch", "free"),
    "vmm": ("allocate", "map", "touch", "unmap", "free"),
}
OF_GPUS = ("device", "pool", "vmm")


def allocation(kind, phase, size="1MiB", **params):
    src, dst, other = ("gpu:0", "gpu:0", kind) if kind in OF_GPUS else ("numa:0", "gpu:0", "device")
    if kind in ("pageable", "hugepage"):
        dst, other = "numa:0", kind
    wanted = case("allocation", src, dst, kind, other, size=0, footprint=0)
    return wanted | {"engine": "cpu", "params": {"phase": phase, "size": size} | params}


@pytest.mark.parametrize("kind, phase", [(kind, phase) for kind, phases in PHASES.items() for phase in phases])
def test_every_phase_of_every_kind_is_timed_by_the_host_clock(worker, kind, phase):
    pipe, _ = opened(worker)
    prepared = prepare(pipe, allocation(kind, phase))
    assert prepared["ok"] and prepared["supported"] and prepared["most_iterations"] == 32, prepared
    answer = pipe.ask("run", samples=2, batches=[[0], [1], [32]], verify=True)
    assert answer["ok"] and answer["verdict"]["ok"] and answer["timing"] == "host", answer
    assert "at most 32" in failure(pipe.ask("run", samples=1, batches=[[33]], verify=False))["message"]


@pytest.mark.parametrize(
    "kind, phase, symbol",
    [
        ("pinned", "allocate", "cuMemHostAlloc"),
        ("wc", "free", "cuMemFreeHost"),
        ("registered", "register", "cuMemHostRegister"),
        ("registered", "unregister", "cuMemHostUnregister"),
        ("device", "allocate", "cuMemAlloc"),
        ("device", "touch", "cuMemsetD8Async"),
        ("pool", "allocate", "cuMemAllocAsync"),
        ("pool", "free", "cuMemFreeAsync"),
        ("vmm", "allocate", "cuMemCreate"),
        ("vmm", "map", "cuMemMap"),
        ("vmm", "unmap", "cuMemUnmap"),
    ],
)
def test_only_the_requested_phase_is_timed(worker, tmp_path, kind, phase, symbol):
    """Between the stamps is only the call of the requested phase, once for each piece."""
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)
    for other in PHASES[kind]:
        assert prepare(pipe, allocation(kind, other))["supported"]
        stamps = pipe.ask("run", samples=1, batches=[[3]], verify=False)["stamps"]
        same = phase == other or {phase, other} == {"allocate", "grow"}
        assert calls_between(log, symbol, *stamps) == (3 if same else 0), other


def test_no_memory_is_leaked(worker):
    """Consecutive sessions, on a GPU and with pinned memory that have room for few of them."""
    pipe, _ = opened(worker, CUDA_MEMORY=256 * MIB, CUDA_PINNED=128 * MIB)
    for kind, phases in PHASES.items():
        for phase in phases:
            answer = run(pipe, allocation(kind, phase), counts=((7,), (32,)))
            assert answer["ok"], (kind, phase, answer)


def test_a_grown_pool_is_emptied_before_it_grows_again(worker):
    """Memory in a pool is unavailable to others: 4 x 16 MiB grow twice on a GPU of 100 MiB, then device memory fits."""
    pipe, _ = opened(worker, CUDA_MEMORY=100 * MIB)
    assert run(pipe, allocation("pool", "grow", size="16MiB"), counts=((1,), (1,)))["ok"]
    assert run(pipe, allocation("device", "touch", size="16MiB"), counts=((1,),))["ok"]


def test_a_point_without_enough_pinned_memory_fails_and_the_run_continues(tmp_path):
    path = tmp_path / "run.jsonl"
    only = ["allocation/cpu/numa:0.*size=4KiB", "allocation/cpu/numa:0.*size=16MiB"]
    command = [sys.executable, "-m", "linkscope", "run", "--suite", "full", "--rounds", "1", "--precision", "99%"]
    command += ["-o", str(path), "--json", *itertools.chain(*(("--only", one) for one in only))]
    scarce = environment(CUDA_GPUS=1, CUDA_PINNED=12 * MIB)
    done = subprocess.run(command, env=scarce, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr  # the run is complete, and a point failed
    points = read_run(path).points
    failed = {point.id for point in points if point.status == "failed"}
    for point in points:
        phase, size = (dict(point.params)[name] for name in ("phase", "size"))
        pins = point.src_memory in ("pinned", "wc", "mapped") or phase in ("register", "map", "unregister")
        if size == "16MiB" and pins and point.status != "unsupported":
            assert point.id in failed, point.id
        if size == "4KiB":
            assert point.id not in failed or too_short(point), (point.id, point.reason)
        if point.id in failed:
            assert "CUDA_ERROR_OUT_OF_MEMORY" in point.reason or too_short(point)
    assert any("CUDA_ERROR_OUT_OF_MEMORY" in (point.reason or "") for point in points)
    assert any(point.status in ("ok", "missed_precision") for point in points)


def most(size):
    return [{"at": "numa:0", "memory": "pinned", "bytes": size}]


def test_memory_is_allocated_once_if_the_largest_size_is_announced(worker, tmp_path) -> None:
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)

    def memory_calls():
        calls = [line.split()[0] for line in log.read_text().splitlines()]
        log.write_text("")
        return [name for name in calls if name in ("cuMemHostAlloc", "cuMemFreeHost")]

    def sizes_make(*expected):
        assert run(pipe, local())["ok"]  # the platform's own allocations
        memory_calls()
        for size, calls in expected:
            assert run(pipe, h2d(size=MIB, footprint=size * MIB))["ok"]
            assert memory_calls() == calls, size

    makes, makes_again = ["cuMemHostAlloc"], ["cuMemFreeHost", "cuMemHostAlloc"]
    sizes_make((2, makes), (2, []), (8, makes_again), (4, []))
    assert pipe.ask("open", platform="cuda", most=most(16 * MIB))["ok"]
    sizes_make((2, makes), (16, []), (32, makes_again))


def test_memory_that_cannot_have_the_announced_size_gets_the_current_size(worker) -> None:
    pipe, _ = opened(worker, CUDA_PINNED=8 * MIB)
    assert pipe.ask("open", platform="cuda", most=most(64 * MIB))["ok"]
    assert run(pipe, h2d(size=MIB, footprint=2 * MIB))["ok"]
    assert failure(prepare(pipe, h2d(size=MIB, footprint=64 * MIB)))["kind"] == "memory"
