"""The real worker on the fake driver: which kernel runs where and in which shape, and how caches are prepared."""

from pathlib import Path

import pytest

from driver_cases import (
    KIB,
    MIB,
    access,
    case,
    d2d,
    d2h,
    failure,
    h2d,
    joint,
    local,
    opened,
    prepare,
    refusal,
    run,
    worker,
    works,
)
from fake_driver import ROOT, needs_fake, needs_worker
from linkscope.run.calibrate import MOST_STEPS

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

SMS, L2 = 132, MIB  # of the fake GPUs
NOT_TIMED = {"gate", "fill", "check", "sum_pattern", "sum_lines", "check_lines", "check_rows", "fill_chain", "empty"}


def by(engine, wanted):
    return wanted | {"engine": engine}


def latency(src, dst, **params):
    """A pointer chase, by a CPU if neither end is a GPU."""
    made = access("latency", src, dst, size=0, **params)
    if "gpu" in src + dst:
        return made
    return made | {"engine": "cpu", "src_memory": "pageable", "dst_memory": "pageable"}


class Logged:
    """The log of one worker's work on the fake driver, as tuples with the GPU by linkscope's number."""

    def __init__(self, worker, folder: Path, **settings):
        self._file = folder / "queued"
        self._file.touch()
        self.pipe, driver = opened(worker, CUDA_LOG=self._file, **settings)
        self._gpus = {gpu["pci"].upper(): f"gpu:{index}" for index, gpu in enumerate(driver["gpus"])}
        self._read = 0

    def more(self):
        """The lines that were added after the previous call."""
        lines = self._file.read_text().splitlines()[self._read :]
        self._read += len(lines)
        return [(what, self._gpus[gpu], *details) for what, gpu, *details in map(str.split, lines)]

    def launches(self):
        """(kernel, gpu, blocks, threads) of the timed kernels."""
        found = [
            (details[0].removeprefix("linkscope_"), gpu, int(details[1]), int(details[2]))
            for what, gpu, *details in self.more()
            if what == "launch"
        ]
        return [one for one in found if one[0] not in NOT_TIMED]


@pytest.mark.parametrize("batches, launches", [([[1], [2]], 3), ([[0], [1]], 1), ([[1], [3]], 3 + 4), ([[5]], 5 + 5)])
def test_a_batch_more_than_twice_as_large_as_any_before_is_rehearsed(worker, tmp_path, batches, launches):
    logged = Logged(worker, tmp_path)
    assert prepare(logged.pipe, access("write", "gpu:0", "gpu:1"))["supported"]
    assert len(logged.launches()) == 1
    assert logged.pipe.ask("run", samples=1, batches=batches, verify=False)["timing"] == "gate"
    assert len(logged.launches()) == launches


@pytest.mark.parametrize(
    "batches, launches",
    [([[40]], 16 + 40), ([[40], [36]], 16 + 40 + 36), ([[8], [64]], 16 + 8 + 64), ([[1], [20], [0]], 16 + 1 + 20)],
)
def test_a_rehearsal_covers_the_memory_at_most_once(worker, tmp_path, batches, launches):
    """The memory has 16 slices. Longer batches are checked by their first sample."""
    logged = Logged(worker, tmp_path)
    assert prepare(logged.pipe, access("write", "gpu:0", "gpu:1"))["supported"]
    assert len(logged.launches()) == 1
    assert logged.pipe.ask("run", samples=1, batches=batches, verify=True)["verdict"]["ok"]
    assert len(logged.launches()) == launches


def test_the_fake_driver_logs_queued_work(worker, tmp_path):
    logged = Logged(worker, tmp_path)
    works(logged.pipe, access("write", "gpu:0", "gpu:1", blocks="8"))
    lines = logged.more()
    assert ("launch", "gpu:0", "linkscope_write", "8", "512") in lines
    assert ("fill", "gpu:1", str(MIB), str(0xA5)) in lines


SMALL = {"bytes": 0, "footprint_bytes": 0, "params": {"size": "small"}}


def test_computations_by_cub_have_a_block_for_each_tile_and_the_threads_of_its_code(worker, tmp_path):
    """65 536 B are 16 384 elements: 5.3 tiles of a scan and 1.9 of a sort."""
    logged = Logged(worker, tmp_path)

    def launches(name):
        works(logged.pipe, by("sm", case(f"compute_{name}", "gpu:0", "gpu:0", "device", "device")) | SMALL)
        found = logged.launches()
        return [(kernel, blocks, threads) for kernel, _, blocks, threads in found]

    assert set(launches("scan")) == {("scan_start", 1, 128), ("scan", 6, 128)}
    sort = launches("sort")
    passes = [one for one in sort if one[0] == "sort_pass"]
    assert set(passes) == {("sort_pass", 2, 384)} and len(passes) == 4 * sort.count(("digit_starts", 4, 256))


# --- the acting GPU -----------------------------------------------------------------------------------------------

# The GPU that runs a kernel: the destination of a read, the source of a write, the initiator of a copy.
ACTORS = {
    "read of host memory": (access("read", "numa:0", "gpu:1"), "read", {"gpu:1"}),
    "read of a peer": (access("read", "gpu:1", "gpu:0"), "read", {"gpu:0"}),
    "read of a peer, other way": (access("read", "gpu:0", "gpu:1"), "read", {"gpu:1"}),
    "read of its own": (access("read", "gpu:1", "gpu:1"), "read", {"gpu:1"}),
    "write to host memory": (access("write", "gpu:1", "numa:0"), "write", {"gpu:1"}),
    "write to a peer": (access("write", "gpu:0", "gpu:1"), "write", {"gpu:0"}),
    "write to a peer, other way": (access("write", "gpu:1", "gpu:0"), "write", {"gpu:1"}),
    "write to its own": (access("write", "gpu:1", "gpu:1"), "write", {"gpu:1"}),
    "narrow read": (access("read", "gpu:1", "gpu:0", width="4"), "read_lines", {"gpu:0"}),
    "random write": (access("write", "gpu:1", "numa:0", order="random"), "write_lines", {"gpu:1"}),
    "bidirectional reads": (access("read", "gpu:0", "gpu:1", bidirectional="true"), "read", {"gpu:0", "gpu:1"}),
    "chase through host memory": (latency("numa:0", "gpu:1"), "chase", {"gpu:1"}),
    "chase through a peer": (latency("gpu:1", "gpu:0"), "chase", {"gpu:0"}),
    "h2d": (by("sm", h2d(gpu=1)), "copy", {"gpu:1"}),
    "d2h": (by("sm", d2h(gpu=1)), "copy", {"gpu:1"}),
    "push": (by("sm", d2d()), "copy", {"gpu:0"}),
    "pull": (by("sm", d2d(initiator="dst")), "copy", {"gpu:1"}),
    "bidirectional push": (by("sm", d2d(bidirectional="true")), "copy", {"gpu:0", "gpu:1"}),
    "tma push": (by("tma", d2d()), "copy_tma", {"gpu:0"}),
    "tma pull": (by("tma", d2d(initiator="dst")), "copy_tma", {"gpu:1"}),
    "tma h2d": (by("tma", h2d(gpu=1)), "copy_tma", {"gpu:1"}),
    "local": (by("sm", local(gpu=1)), "copy", {"gpu:1"}),
    "exchange": (access("exchange", "numa:0", "gpu:1"), "exchange", {"gpu:1"}),
    "exchange with all": (
        access("exchange_all", "numa:0", "gpu:all", others=["gpu:0", "gpu:1"]), "exchange", {"gpu:0", "gpu:1"}
    ),
    "host to all": (by("sm", joint("host_to_all", "numa:0", "gpu:all")), "copy", {"gpu:0", "gpu:1"}),
    "all to one, pulled": (
        by("sm", joint("all_to_one", "gpu:all", "gpu:1", others=["gpu:0"], initiator="dst")), "copy", {"gpu:1"}
    ),
    "one to all, pushed": (by("sm", joint("one_to_all", "gpu:1", "gpu:all", others=["gpu:0"])), "copy", {"gpu:1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ACTORS)
def test_only_the_acting_gpu_launches_the_kernel(worker, tmp_path, name):
    wanted, kernel, gpus = ACTORS[name]
    logged = Logged(worker, tmp_path)
    works(logged.pipe, wanted)
    assert {launch[:2] for launch in logged.launches()} == {(kernel, gpu) for gpu in gpus}


@pytest.mark.parametrize(
    "name", ["read of host memory", "write to a peer", "h2d", "bidirectional push", "exchange", "host to all"]
)
@pytest.mark.parametrize(
    "blocks, threads", [("8", "512"), ("sms", "256"), ("1", "1024"), ("128", "512"), ("sms", None)]
)
def test_the_grid_and_the_block_have_the_shape_of_the_case(worker, tmp_path, name, blocks, threads):
    wanted, kernel, _ = ACTORS[name]
    requested = {key: value for key, value in (("blocks", blocks), ("threads", threads)) if value}
    logged = Logged(worker, tmp_path)
    works(logged.pipe, wanted | {"params": wanted["params"] | requested})
    found = {(launch[0], *launch[2:]) for launch in logged.launches()}
    assert found == {(kernel, SMS if blocks == "sms" else int(blocks), int(threads or 512))}


@pytest.mark.parametrize("name", ["read of host memory", "write to a peer", "bidirectional push", "host to all"])
def test_kernels_without_a_given_shape_have_one_block_of_512_threads_per_sm(worker, tmp_path, name):
    wanted, kernel, _ = ACTORS[name]
    logged = Logged(worker, tmp_path)
    works(
        logged.pipe, wanted | {"params": {k: v for k, v in wanted["params"].items() if k not in ("blocks", "threads")}}
    )
    assert {(launch[0], *launch[2:]) for launch in logged.launches()} == {(kernel, SMS, 512)}


@pytest.mark.parametrize("blocks, threads", [("pieces", "256"), (None, "1024"), ("pieces", "512")])
@pytest.mark.parametrize("size", [8, 24, 8192, 1000024])
def test_an_exchange_by_pieces_has_one_thread_per_16_bytes(worker, tmp_path, size, blocks, threads):
    wanted, kernel, _ = ACTORS["exchange"]
    requested = {"threads": threads} | ({"blocks": blocks} if blocks else {})
    logged = Logged(worker, tmp_path)
    works(logged.pipe, wanted | {"bytes": size, "params": requested})
    each_direction = int(threads) // 2 * 16
    assert {(launch[0], *launch[2:]) for launch in logged.launches()} == {
        (kernel, -(-size // each_direction), int(threads))
    }


@pytest.mark.parametrize("blocks", ["8", "sms"])
def test_tma_copies_use_one_warp_per_block(worker, tmp_path, blocks):
    logged = Logged(worker, tmp_path)
    works(logged.pipe, by("tma", h2d(blocks=blocks)))
    assert {launch[2:] for launch in logged.launches()} == {(SMS if blocks == "sms" else 8, 32)}


def test_a_pointer_chase_is_one_thread_and_its_batch_one_launch(worker, tmp_path):
    logged = Logged(worker, tmp_path)
    assert prepare(logged.pipe, latency("numa:0", "gpu:0"))["supported"]
    assert set(logged.launches()) == {("chase", "gpu:0", 1, 1)}
    for batch in (8, 3000):
        assert logged.pipe.ask("run", samples=3, batches=[[batch]], verify=False)["timing"] == "gate"
        *rehearsal, one, two, three = logged.launches()
        assert one == two == three == ("chase", "gpu:0", 1, 1)
        assert len(rehearsal) in (1, 2)  # two rehearsals if the host was interrupted


@pytest.mark.parametrize("src", ["numa:0", "gpu:0", "gpu:1"])
@pytest.mark.parametrize("sm", ["0", "66", "131"])
def test_a_chase_on_one_sm_has_one_block_with_all_shared_memory_per_sm(worker, tmp_path, src, sm):
    logged = Logged(worker, tmp_path)
    prepared = prepare(logged.pipe, latency(src, "gpu:0", sm=sm))
    assert f"kernel chase <sms, 1> on SM {sm} dependent 1 " in prepared["program"]
    assert logged.pipe.ask("run", samples=2, batches=[[8], [24]], verify=True)["verdict"]["ok"]
    queued = [(gpu, *details) for what, gpu, *details in logged.more() if what == "launch"]
    chased = [one for one in queued if "_chase" in one[1]]
    assert set(chased) == {("gpu:0", "linkscope_chase_on", str(SMS), "1", str(227 * KIB))} and len(chased) > 4


@pytest.mark.parametrize("cache, size", [("cold", "2MiB"), ("hot", "2MiB"), ("cold", "64MiB")])
def test_a_chase_on_a_chosen_sm_takes_as_many_steps_as_on_any_sm(worker, cache, size):
    pipe, _ = opened(worker)
    anywhere = latency("gpu:0", "gpu:0", cache=cache, range=size)
    there = latency("gpu:0", "gpu:0", cache=cache, range=size, sm="7")
    assert steps_compared(pipe, there, 5) == steps_compared(pipe, anywhere, 5) >= 5


def test_a_chase_on_an_sm_without_a_block_is_an_error(worker):
    pipe, _ = opened(worker, CUDA_HELD_SM=33)
    answer = prepare(pipe, latency("gpu:1", "gpu:0", sm="33"))  # preparing runs every step once
    said = "none of 132 blocks came to SM 33 of gpu:0, so that nobody followed the chain there"
    assert failure(answer)["kind"] == "failed" and said in failure(answer)["message"]
    works(pipe, latency("gpu:1", "gpu:0", sm="34"))
    works(pipe, latency("gpu:1", "gpu:0"))


def test_an_sm_that_the_gpu_lacks_is_unsupported(worker):
    pipe, _ = opened(worker)
    for sm in ("132", "200"):
        said = f"gpu:0 has no SM {sm}: it has 132 SMs, numbered from 0"
        assert said == refusal(pipe, latency("gpu:1", "gpu:0", sm=sm))


# --- caches -------------------------------------------------------------------------------------------------------


def sampled(logged, wanted, samples=3, batch=4):
    """The work that rehearsed samples queue: "flush gpu:N" for a fill of twice its L2, or the kernel."""
    assert prepare(logged.pipe, wanted)["supported"]
    assert logged.pipe.ask("run", samples=1, batches=[[batch]], verify=False)["timing"] == "gate"
    logged.more()
    assert logged.pipe.ask("run", samples=samples, batches=[[batch]], verify=False)["ok"]
    queued = []
    for what, gpu, *details in logged.more():
        if what == "fill":
            assert details == [str(2 * L2), "0"]
            queued.append(f"flush {gpu}")
        elif what == "launch" and details[0] != "linkscope_gate":
            queued.append(details[0].removeprefix("linkscope_"))
    return queued


def test_the_preset_of_comm_scope_has_the_papers_shape(worker, tmp_path):
    """CS-14: 256 blocks of 256 threads, 4 bytes per access."""
    for wanted in (access("read", "numa:0", "gpu:0"), access("write", "gpu:0", "numa:0")):
        logged = Logged(worker, tmp_path)
        works(logged.pipe, wanted | {"params": {"blocks": "256", "threads": "256", "width": "4"}})
        assert {launch[2:] for launch in logged.launches()} == {(256, 256)}


# Remote data that a GPU accesses may be in its own L2 and in the L2 of the GPU that owns the memory.
EVICTED = {
    "read of host memory": (access("read", "numa:0", "gpu:1"), ["gpu:1"]),
    "read of registered memory": (access("read", "numa:0", "gpu:0") | {"src_memory": "registered"}, ["gpu:0"]),
    "read of a peer": (access("read", "gpu:1", "gpu:0"), ["gpu:0", "gpu:1"]),
    "read of its own": (access("read", "gpu:0", "gpu:0"), ["gpu:0"]),
    "write to host memory": (access("write", "gpu:1", "numa:0"), ["gpu:1"]),
    "write to a peer": (access("write", "gpu:1", "gpu:0"), ["gpu:0", "gpu:1"]),
    "strided read of a peer": (access("read", "gpu:1", "gpu:0", stride="128"), ["gpu:0", "gpu:1"]),
    "hot read of its own": (access("read", "gpu:0", "gpu:0", cache="hot"), []),
    "hot read of a peer": (access("read", "gpu:1", "gpu:0", cache="hot"), []),
    "hot copy to a peer": (by("sm", d2d(cache="hot")), []),
    "copy from host memory": (by("sm", h2d(gpu=1)), ["gpu:1"]),
    "copy to a peer": (by("sm", d2d()), ["gpu:0", "gpu:1"]),
    "exchange": (access("exchange", "numa:0", "gpu:0"), ["gpu:0"]),
    "cold chase through host memory": (latency("numa:0", "gpu:0", cache="cold"), ["gpu:0"]),
    "cold chase through more than the caches hold": (latency("numa:0", "gpu:0", cache="cold", range="64MiB"), []),
    "cold chase through a peer": (latency("gpu:1", "gpu:0", cache="cold"), ["gpu:0", "gpu:1"]),
    "cold chase through its own": (latency("gpu:0", "gpu:0", cache="cold"), ["gpu:0"]),
    "hot chase through host memory": (latency("numa:0", "gpu:0", cache="hot"), []),
    "hot chase through a peer": (latency("gpu:1", "gpu:0", cache="hot"), []),
    "hot chase through its own": (latency("gpu:0", "gpu:0", cache="hot"), []),
    "more than the caches hold": (access("read", "numa:0", "gpu:0", size=MIB) | {"footprint_bytes": 3 * L2}, []),
}


@pytest.mark.parametrize("name", EVICTED)
def test_gpus_that_could_cache_the_data_are_flushed_before_every_sample(worker, tmp_path, name):
    wanted, gpus = EVICTED[name]
    queued = sampled(Logged(worker, tmp_path), wanted)
    kernel = queued[-1]
    launches = 1 if kernel == "chase" else 4
    each = len(gpus) + launches
    assert len(queued) == 3 * each
    for sample in (queued[at : at + each] for at in range(0, len(queued), each)):
        assert sorted(sample[: len(gpus)]) == [f"flush {gpu}" for gpu in gpus]
        assert sample[len(gpus) :] == [kernel] * launches


def test_nothing_is_flushed_before_an_empty_batch(worker, tmp_path):
    """An empty batch measures the stamps alone and needs no cache state."""
    assert sampled(Logged(worker, tmp_path), access("read", "gpu:1", "gpu:0"), batch=0) == []


def steps_compared(pipe, wanted, batch):
    """The number of steps of a pointer chase that were run and verified."""
    assert prepare(pipe, wanted)["supported"]
    answer = pipe.ask("run", samples=1, batches=[[batch]], verify=True)
    assert answer["ok"] and answer["verdict"]["ok"], answer
    return answer["verdict"]["checked_bytes"] // 8


CHASED = [("numa:0", "numa:0"), ("numa:0", "gpu:0"), ("gpu:0", "gpu:0"), ("gpu:1", "gpu:0")]
RANGES = {"2MiB": 2 * MIB, "64MiB": 64 * MIB}


@pytest.mark.parametrize("src, dst", CHASED[1:])
@pytest.mark.parametrize("size", RANGES)
def test_a_hot_chase_has_visited_all_lines_before_and_a_cold_one_none(worker, tmp_path, src, dst, size):
    logged = Logged(worker, tmp_path)
    lines = RANGES[size] // 256  # one pass, or two if the host was interrupted
    for cache, steps in (("cold", (1, 2)), ("hot", (lines, 2 * lines))):
        assert prepare(logged.pipe, latency(src, dst, cache=cache, range=size))["supported"]
        assert sum(int(details[0]) for what, _, *details in logged.more() if what == "steps") in steps


@pytest.mark.parametrize("src, dst", CHASED)
@pytest.mark.parametrize("size", RANGES)
def test_a_chase_visits_all_of_its_range(worker, src, dst, size):
    """A shorter cycle would be back at an earlier place when this step is verified."""
    pipe, _ = opened(worker)
    prepared = prepare(pipe, latency(src, dst, range=size))
    kind = "device" if "gpu" in src else "pinned" if "gpu" in dst else "pageable"
    assert f"region r0 {src}.{kind} {RANGES[size]} B chain\n" in prepared["program"]
    assert f"r0[0 +{RANGES[size]}]" in prepared["program"]
    assert steps_compared(pipe, latency(src, dst, range=size), batch=2 * MIB // 256 + 5) >= 2 * MIB // 256 + 5


def test_the_two_batches_of_a_chase_together_visit_no_line_of_the_smallest_range_twice(worker):
    """At most 2 L steps per launch: a second visit might find the line in a cache."""
    assert any("linkscope_chain_line = 256," in file.read_text() for file in (ROOT / "core" / "program").glob("*.hpp"))
    assert RANGES["2MiB"] // 256 == 2 * MOST_STEPS
    pipe, _ = opened(worker)
    assert "[0 +2097152]" in prepare(pipe, latency("numa:0", "gpu:0"))["program"]


# --- bidirectional copies by one kernel ---------------------------------------------------------------------------

# `run` launches 1 + 16 kernels, then 50 timed ones. Each is two copies of the fake driver, one per direction.
UNTIMED, TIMED = 1 + 16, 50


@pytest.mark.parametrize("launch", [UNTIMED + 1, UNTIMED + 2, UNTIMED + TIMED])
@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
@pytest.mark.parametrize(
    "direction, found", [(0, "gpu:0.device at byte "), (1, "numa:0.pinned at byte ")], ids=["to", "back"]
)
def test_each_direction_of_an_exchange_is_verified(worker, fault, launch, direction, found):
    wanted = access("exchange", "numa:0", "gpu:0", size=24) | {"footprint_bytes": 24 * 128}  # no slice is written twice
    pipe, _ = opened(worker, **{fault: 2 * launch - 1 + direction})
    verdict = run(pipe, wanted)["verdict"]
    assert (verdict["ok"], verdict["wrong_bytes"]) == (False, 24 if fault == "CUDA_SKIP" else 8)
    assert verdict["first_wrong"].startswith(found)
    assert verdict["checked_bytes"] == 2 * 24 * TIMED


@pytest.mark.parametrize("copy", [1, 2, 3, 4])
def test_each_direction_of_the_exchange_with_each_gpu_is_verified(worker, copy):
    """The first four timed copies belong to the first launches of two kernels, in either order."""
    wanted = access("exchange_all", "numa:0", "gpu:all", others=["gpu:0", "gpu:1"]) | {"footprint_bytes": 16 * MIB}
    pipe, _ = opened(worker, CUDA_CORRUPT=2 * 2 * UNTIMED + copy)
    verdict = run(pipe, wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] == 8


def test_an_exchange_that_writes_too_much_is_found_in_the_opposite_direction(worker):
    pipe, _ = opened(worker, CUDA_OVERRUN=2 * UNTIMED + 2)
    verdict = run(pipe, access("exchange", "numa:0", "gpu:0", size=24) | {"footprint_bytes": 24 * 128})["verdict"]
    assert not verdict["ok"] and verdict["first_wrong"].startswith("numa:0.pinned at byte 24")


def test_the_flows_of_an_exchange_are_opposite_and_of_equal_size(worker):
    pipe, _ = opened(worker)
    prepared = prepare(pipe, access("exchange", "numa:0", "gpu:1", size=64 * KIB))
    there, back = prepared["flows"]
    assert prepared["actors"] == 1 and there["actor"] == back["actor"] == 0
    ends = {"src": "numa:0", "src_memory": "pinned", "dst": "gpu:1", "dst_memory": "device"}
    assert {key: there[key] for key in ends} == ends
    assert (back["src"], back["src_memory"], back["dst"], back["dst_memory"]) == ("gpu:1", "device", "numa:0", "pinned")
    assert there["bytes"] == back["bytes"] == 64 * KIB
