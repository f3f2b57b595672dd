"""The real worker on the fake driver: each driver fault becomes the answer that docs/reference/worker.md promises.

Drivers that are old, new, missing, incomplete, full, busy, lost, hung or wrong, through the pipe only.
"""

import pytest

from driver_cases import (
    BY_BATCH,
    BY_GRAPH,
    DIRTY,
    FAMILIES,
    H2H,
    KIB,
    MIB,
    PACKED,
    ROWS,
    TOGETHER,
    WITHOUT_GPU,
    access,
    case,
    d2d,
    failure,
    h2d,
    local,
    opened,
    prepare,
    refusal,
    run,
    worker,
    works,
)
from fake_driver import needs_fake, needs_worker
from worker_pipe import NoAnswer

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]


# --- healthy drivers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [12000, 12040, 12080, 13000])
def test_every_family_runs_on_every_driver_version(worker, version):
    pipe, driver = opened(worker, CUDA_VERSION=version)
    assert driver["driver_present"] and driver["version"] == version
    # Earlier versions have other arguments or lack the call.
    of_13 = {
        "cuMemcpyBatchAsync", "cuMemPrefetchBatchAsync", "cuMemDiscardBatchAsync", "cuMemDiscardAndPrefetchBatchAsync",
    }  # fmt: skip
    of_12_2 = {"cuMemPrefetchAsync", "cuMemAdvise"}
    of_12_4 = {
        "cuDeviceGetDevResource", "cuDevSmResourceSplitByCount", "cuDevResourceGenerateDesc", "cuGreenCtxCreate",
        "cuGreenCtxDestroy",
    }  # fmt: skip
    newer = {12020: of_12_2, 12040: of_12_4, 12050: {"cuGreenCtxStreamCreate"}, 13000: of_13}
    assert set(driver["missing"]) == {name for since, names in newer.items() if version < since for name in names}
    here = {name: wanted for name, wanted in FAMILIES.items() if version >= 13000 or name not in BY_BATCH}
    for name in FAMILIES.keys() - here.keys():
        why = refusal(pipe, FAMILIES[name])
        assert "lacks cuMemcpyBatchAsync as CUDA 13.0 has it" in why and "driver 580" in why
    timings = {name: works(pipe, wanted)["timing"] for name, wanted in here.items()}
    by_host = {"h2h", "h2d pageable", "d2h pageable", "chase by a CPU"} | DIRTY
    assert timings == {name: "host" if name in by_host else "gate" for name in here}
    assert pipe.ask("release")["ok"]


def test_gpus_are_in_bus_order(worker):
    _, driver = opened(worker, CUDA_GPUS=4)
    assert [gpu["pci"][5:7] for gpu in driver["gpus"]] == ["1B", "43", "9B", "DB"]
    assert driver["gpus"][0]["uuid"] == "GPU-fa4ec0da-0000-4200-8000-00000000001b"
    assert len(driver["peers"]) == 12 and all(peer["access"] for peer in driver["peers"])


def test_unknown_attributes_are_absent(worker):
    known = [set(opened(worker, CUDA_VERSION=v)[1]["gpus"][0]["attributes"]) for v in (12000, 13000)]
    assert known[1] - known[0] == {
        "HANDLE_TYPE_FABRIC_SUPPORTED", "HOST_NUMA_MEMORY_POOLS_SUPPORTED", "MULTICAST_SUPPORTED", "NUMA_ID",
    }  # fmt: skip


@pytest.mark.parametrize("capability", [60, 70, 75, 80, 86, 89, 90, 100, 103, 120])
def test_every_architecture_has_device_code(worker, capability):
    pipe, _ = opened(worker, CUDA_CAPABILITY=capability)
    works(pipe, h2d())


def test_future_gpus_get_code_that_the_driver_compiles(worker):
    pipe, _ = opened(worker, CUDA_CAPABILITY=140)
    works(pipe, h2d())


def test_gpus_that_are_too_old_are_named_with_their_capability(worker):
    pipe, _ = opened(worker, CUDA_CAPABILITY=35)
    message = failure(prepare(pipe, h2d()))["message"]
    assert "3.5" in message and "no device code" in message


def test_memory_that_could_not_be_filled_is_not_reused(worker):
    """The next program with such memory fails like the first, instead of finding wrong data."""
    pipe, _ = opened(worker, CUDA_CAPABILITY=35)
    host_only = case("h2h", "numa:0", "numa:0", "pinned", "pageable", initiator="src", mode="batched")
    for wanted in (h2d(), host_only, host_only):
        assert "no device code" in failure(prepare(pipe, wanted))["message"]


# --- missing or unusable drivers ----------------------------------------------------------------------------------

UNUSABLE = {
    "damaged driver": ({"library": "broken"}, ["the CUDA driver cannot be loaded", "too short"]),
    "too old": ({"library": "old"}, ["too old", "11.4", "12.0", "525", "update the driver"]),
    "no device": ({"CUDA_INIT": 100}, ["CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"]),
    "no GPUs": ({"CUDA_GPUS": 0}, ["CUDA_ERROR_NO_DEVICE"]),
    "stub library": ({"CUDA_INIT": 34}, ["CUDA_ERROR_STUB_LIBRARY"]),
    "mismatch": ({"CUDA_INIT": 803}, ["CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"]),
    "unknown error": ({"CUDA_INIT": 999}, ["CUDA_ERROR_UNKNOWN"]),
    "an error without a name": ({"CUDA_INIT": 12345}, ["12345"]),
    "a needed symbol missing": ({"CUDA_MISSING": "cuLaunchKernel"}, ["cuLaunchKernel"]),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_without_a_usable_driver_host_paths_are_measured_and_others_state_the_reason(worker, name):
    settings, words = UNUSABLE[name]
    pipe, driver = opened(worker, **settings)
    assert not driver["driver_present"] and driver["gpus"] == []
    assert all(word in driver["why_not"] for word in words), driver["why_not"]
    for family, wanted in FAMILIES.items():
        if family in WITHOUT_GPU:
            works(pipe, wanted)
        else:
            assert driver["why_not"] in refusal(pipe, wanted), family


def test_a_missing_gpu_is_reported_with_the_number_of_gpus(worker):
    pipe, _ = opened(worker)
    assert "gpu:5 is not here" in refusal(pipe, h2d(gpu=5))
    works(pipe, h2d())


# --- drivers without some calls -----------------------------------------------------------------------------------

PEER = {"d2d peer", "d2d by the peer call", "d2d by the destination"}
PEER |= {f"d2d {way} by {engine}" for way in ("push", "pull") for engine in ("sm", "tma")}
IN_PARTS = TOGETHER | ROWS | PACKED
PEER |= {name for name in IN_PARTS if "d2d" in name or "peer" in name or name.startswith("halo in")}
PEER -= {"halo in y, packed, within a GPU"}
PEER |= {"on several paths, one between GPUs"}
PEER |= {"read of a peer", "write to a peer", "chase through a peer", "one to all", "all to one, pulled by sm"}
PEER |= {"strided read of a peer", "narrow write to a peer", "bidirectional reads"}
REGISTERED = {"h2d registered", *(f"d2h registered by {engine}" for engine in ("sm", "tma", "batch", "graph"))}
NEEDED_BY = {
    "cuMemHostRegister": REGISTERED,
    "cuMemHostUnregister": REGISTERED,
    "cuMemcpyPeerAsync": {"d2d by the peer call"},
    "cuStreamWaitValue32": {"after a wait"},
    "cuFuncSetAttribute": {"chase on one SM", "chase on one SM, caches hot"},
    "cuStreamWaitEvent": {"halo in x, packed, to a peer"},
    "cuMemcpy2DAsync": {f"rows to {where} by ce" for where in ("a GPU", "the host", "a peer")} | {"halo in x by ce"},
    "cuMemcpy3DAsync": {"planes within a GPU by ce", "planes to a GPU by ce"},
    "cuMemcpyBatchAsync": BY_BATCH,
    "cuGraphCreate": BY_GRAPH,
    "cuGraphInstantiateWithFlags": BY_GRAPH,
    "cuGraphExecMemcpyNodeSetParams": BY_GRAPH,
    "cuGraphDestroy": BY_GRAPH,
    "cuDeviceCanAccessPeer": PEER,
    "cuCtxEnablePeerAccess": PEER,
    "cuCtxDisablePeerAccess": PEER,
    "cuDeviceGetP2PAttribute": set(),
}


@pytest.mark.parametrize("symbol", NEEDED_BY)
def test_only_families_that_need_a_missing_symbol_are_unsupported(worker, symbol):
    pipe, driver = opened(worker, CUDA_MISSING=symbol)
    assert driver["driver_present"] and driver["missing"] == [symbol]
    for family, wanted in FAMILIES.items():
        if family in NEEDED_BY[symbol]:
            assert f"lacks {symbol}" in refusal(pipe, wanted), family
        else:
            works(pipe, wanted)


def test_gpus_without_peer_access_copy_through_the_host(worker):
    pipe, driver = opened(worker, CUDA_NO_PEER=1)
    assert not any(peer["access"] for peer in driver["peers"])
    assert "gpu:0 cannot access the memory of gpu:1" in refusal(pipe, d2d())
    works(pipe, d2d(peer="off"))


def test_copies_that_wait_for_staging_memory_are_timed_by_the_host(worker):
    pipe, _ = opened(worker, CUDA_STAGING=256 * KIB)
    answer = works(pipe, d2d(peer="off"))
    assert answer["timing"] == "host" and "waits for the gate" in answer["notes"]["timing"]
    assert works(pipe, d2d())["timing"] == "gate"


def test_blocking_launches_are_timed_without_a_gate(worker):
    pipe, _ = opened(worker, extra={"CUDA_LAUNCH_BLOCKING": "1"})
    answer = works(pipe, h2d())
    assert answer["timing"] == "events" and "CUDA_LAUNCH_BLOCKING" in answer["notes"]["timing"]


@pytest.mark.parametrize("value", ["0", ""])
def test_a_setting_that_blocks_nothing_keeps_the_gate(worker, value):
    pipe, _ = opened(worker, extra={"CUDA_LAUNCH_BLOCKING": value})
    assert works(pipe, h2d())["timing"] == "gate"


def test_streams_without_a_gate_are_timed_by_events(worker):
    pipe, _ = opened(worker)
    for wanted in (h2d(), h2d("pageable"), d2d(), access("read", "numa:0", "gpu:0")):
        answer = works(pipe, wanted | {"held": False})
        assert answer["timing"] == "events" and "nothing holds the streams" in answer["notes"]["timing"]
    assert works(pipe, H2H | {"held": False})["timing"] == "host"  # a CPU thread has no stream


# --- exhausted memory ---------------------------------------------------------------------------------------------


def test_a_failed_allocation_is_reported_and_the_worker_continues(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=48 * MIB)
    error = failure(prepare(pipe, local(size=32 * MIB, footprint=0)))
    assert error["kind"] == "memory" and "CUDA_ERROR_OUT_OF_MEMORY" in error["message"]
    works(pipe, H2H)


def test_a_region_larger_than_the_gpu_is_refused_with_a_message(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=16 * MIB)
    assert "32 MiB do not fit gpu:0" in refusal(pipe, h2d(size=32 * MIB))


# --- GPUs in use by another process -------------------------------------------------------------------------------


def test_a_gpu_held_by_another_process_is_reported_as_such(worker):
    pipe, _ = opened(worker, CUDA_MODE="exclusive")
    error = failure(prepare(pipe, h2d()))
    assert error["kind"] == "failed"
    assert all(word in error["message"] for word in ("gpu:0", "exclusive process", "another process holds it"))


def test_a_free_gpu_in_exclusive_mode_is_used(worker):
    pipe, _ = opened(worker, CUDA_MODE="exclusive-free")
    works(pipe, h2d())


def test_a_prohibited_gpu_is_unsupported(worker):
    pipe, _ = opened(worker, CUDA_MODE="prohibited")
    assert "gpu:0 is in compute mode 'prohibited'" in refusal(pipe, h2d())


@pytest.mark.parametrize("mode", ["prohibited", "exclusive"])
def test_the_other_gpus_and_the_host_are_still_measured(worker, mode):
    pipe, _ = opened(worker, CUDA_MODE=f"{mode}:1")  # ordinal 1 is the first on the bus
    works(pipe, h2d(gpu=1))
    works(pipe, H2H)


@pytest.mark.parametrize("mode", ["prohibited", "exclusive"])
def test_the_host_is_measured_if_no_gpu_may_be_used(worker, mode):
    pipe, _ = opened(worker, CUDA_MODE=mode)
    works(pipe, H2H)


# --- failing GPUs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", ["", ":46", ":700", ":719", ":999"])
def test_a_gpu_lost_during_a_run_ends_the_worker_only(worker, error):
    pipe, _ = opened(worker, CUDA_LOST_AFTER=f"12{error}")
    lost = failure(run(pipe, h2d()))
    assert lost["kind"] == "lost" and "CUDA_ERROR_" in lost["message"]
    assert pipe.process.poll() is None  # the worker still answers; the parent has to replace it
    assert failure(prepare(pipe, h2d()))["kind"] == "lost"


@pytest.mark.parametrize("symbol", ["cuStreamSynchronize", "cuMemcpyHtoDAsync", "cuEventRecord"])
def test_a_hanging_call_gets_no_answer_and_the_worker_can_be_killed(worker, symbol):
    pipe, _ = opened(worker, CUDA_HANG=f"{symbol}:4")
    with pytest.raises(NoAnswer):
        prepared = pipe.ask("prepare", timeout_s=2, case=h2d(), key="point#0")
        assert prepared["supported"]
        pipe.ask("run", timeout_s=2, samples=2, batches=[[0], [1], [8]], verify=True)
    assert pipe.process.poll() is None
    pipe.process.kill()
    assert pipe.process.wait(300) != 0


@pytest.mark.parametrize("symbol", ["cuInit", "cuDevicePrimaryCtxRetain"])
def test_a_driver_that_hangs_at_start_gets_no_answer(worker, symbol):
    pipe = worker(CUDA_HANG=symbol)
    with pytest.raises(NoAnswer):
        pipe.ask("open", timeout_s=2, platform="cuda")
        pipe.ask("prepare", timeout_s=2, case=h2d(), key="point#0")


# --- wrong data ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in WITHOUT_GPU])
def test_wrong_bytes_are_found(worker, family):
    # The last copies of a run; later ones may overwrite an earlier one. A pointer chase has fewer launches.
    pipe, _ = opened(worker, CUDA_CORRUPT="6+" if "chase" in family else "40+")
    verdict = run(pipe, FAMILIES[family])["verdict"]
    assert not verdict["ok"] and 0 < verdict["wrong_bytes"] < verdict["checked_bytes"]
    assert " at byte " in verdict["first_wrong"]


def test_one_wrong_copy_is_found_and_the_next_run_is_clean(worker):
    pipe, _ = opened(worker, CUDA_CORRUPT=60)
    wanted = h2d(footprint=8 * MIB)  # more slices than copies, so nothing is written twice
    verdict = run(pipe, wanted)["verdict"]
    assert (verdict["ok"], verdict["wrong_bytes"]) == (False, 8)  # words are compared
    works(pipe, wanted)


def test_peers_that_deliver_wrong_data_are_found(worker):
    pipe, _ = opened(worker, CUDA_LYING_PEER=1)
    for wanted in (d2d(), d2d(call="peer")):
        assert not run(pipe, wanted)["verdict"]["ok"]
    works(pipe, d2d(peer="off"))


def test_tma_copies_are_unsupported_on_gpus_without_tma(worker):
    pipe, _ = opened(worker, CUDA_CAPABILITY=80)
    assert "compute capability 9.0" in refusal(pipe, h2d() | {"engine": "tma"})
    works(pipe, h2d() | {"engine": "sm"})
