"""The real worker on the fake driver: every copy of a run is verified, and caches are emptied before it."""

import os
import subprocess
import sys

import pytest

from driver_cases import FAMILIES, KIB, MIB, d2d, d2h, failure, h2d, local, opened, prepare, run, worker, works
from fake_driver import needs_fake, needs_worker
from worker_pipe import NoAnswer

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

# `run` makes 1 warm-up copy, 16 to rehearse its largest batch, and 2 x (0 + 1 + 8 + 16) timed copies.
UNTIMED, TIMED = 1 + 16, 50
FIRST, ALL = UNTIMED + 1, UNTIMED + TIMED
MANY = 8 * MIB  # more slices than copies, so nothing is written twice


@pytest.mark.parametrize("number", [FIRST, FIRST + 1, FIRST + 9, ALL - 1, ALL])
@pytest.mark.parametrize("wanted", [h2d(footprint=MANY), d2h(size=24, footprint=24 * 128)], ids=["packed", "apart"])
@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
def test_every_timed_copy_of_a_run_is_verified(worker, fault, number, wanted):
    pipe, _ = opened(worker, **{fault: number})
    verdict = run(pipe, wanted)["verdict"]
    missing = wanted["bytes"] if fault == "CUDA_SKIP" else 8
    assert (verdict["ok"], verdict["wrong_bytes"]) == (False, missing)
    assert verdict["checked_bytes"] == TIMED * wanted["bytes"]


@pytest.mark.parametrize("wanted", [h2d(footprint=MANY), d2h(size=24, footprint=24 * 128)], ids=["packed", "apart"])
def test_untimed_copies_do_not_verify_timed_ones(worker, wanted):
    """Warm-up and rehearsal write the slices that the first timed copies write again."""
    pipe, _ = opened(worker, CUDA_SKIP=f"{FIRST}+")
    verdict = run(pipe, wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] == TIMED * wanted["bytes"]


@pytest.mark.parametrize("sampled", [1, 2, 3])
def test_earlier_samples_are_verified_with_the_next_verified_request(worker, sampled):
    """After requests without verification the next request with it checks their data too."""
    wanted = h2d(footprint=MANY)
    pipe, _ = opened(worker, CUDA_CORRUPT=1 + 8 + 1)  # warm-up, rehearsal, the first timed copy
    assert prepare(pipe, wanted)["supported"]
    for _ in range(sampled - 1):
        assert pipe.ask("run", samples=1, batches=[[8]], verify=False)["ok"]
    verdict = pipe.ask("run", samples=1, batches=[[8]], verify=True)["verdict"]
    assert not verdict["ok"] and verdict["checked_bytes"] == sampled * 8 * wanted["bytes"]


ACCESSES = [name for name in FAMILIES if name.startswith(("read", "write", "chase through"))]


# The positions of the first and the last timed access among all copies and launches. Reads and chases copy their
# initial data twice; a batch of a chase is one launch.
ACCESS_AT = {"write": (FIRST, ALL), "read": (FIRST + 2, ALL + 2), "chase": (5, 10)}


@pytest.mark.parametrize("which", range(2), ids=["first", "last"])
@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
@pytest.mark.parametrize("family", ACCESSES)
def test_one_wrong_access_is_found(worker, family, fault, which):
    wanted = FAMILIES[family] | {"footprint_bytes": MANY}
    number = ACCESS_AT[family.split()[0]][which]
    verdict = run(opened(worker, **{fault: number})[0], wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0 and verdict["first_wrong"]


def test_each_flow_of_all_gpus_is_verified(worker):
    wanted = FAMILIES["all to host and back"]
    for flow in range(4):
        pipe, _ = opened(worker, CUDA_CORRUPT="5+")  # after one warm-up copy of each of the four flows
        assert prepare(pipe, wanted)["supported"]
        only = [8 if number == flow else 0 for number in range(4)]
        assert not pipe.ask("run", samples=1, batches=[only], verify=True)["verdict"]["ok"]


def test_a_copy_after_the_last_one_of_the_run_is_not_counted(worker):
    pipe, _ = opened(worker, CUDA_CORRUPT=ALL + 1)
    assert works(pipe, h2d(footprint=MANY))["verdict"]["wrong_bytes"] == 0


@pytest.mark.parametrize("wanted", [h2d(bidirectional="true"), d2d(bidirectional="true")], ids=["h2d", "d2d"])
@pytest.mark.parametrize("actor", [0, 1])
def test_each_flow_is_verified(worker, wanted, actor):
    pipe, _ = opened(worker, CUDA_CORRUPT="3+")  # after one warm-up copy of each flow
    assert prepare(pipe, wanted)["supported"]
    only = [8 if number == actor else 0 for number in (0, 1)]
    verdict = pipe.ask("run", samples=1, batches=[only], verify=True)["verdict"]
    assert not verdict["ok"] and verdict["first_wrong"]


@pytest.mark.parametrize("family", ["h2d pinned", "d2h pageable", "d2d peer", "local", "local by sm"])
def test_data_of_an_earlier_point_is_not_accepted(worker, family):
    """Memory and sources are reused: without poison, a copy that does nothing would look right."""
    wanted = FAMILIES[family]
    by_host = "pageable" in (wanted["src_memory"], wanted["dst_memory"])
    pipe, _ = opened(worker, CUDA_SKIP=f"{ALL - (16 if by_host else 0) + 1}+")
    works(pipe, wanted)
    assert not run(pipe, wanted)["verdict"]["ok"]


@pytest.mark.parametrize("footprint, emptied", [(MIB, True), (256 * MIB, False)])
def test_a_footprint_that_fits_the_cache_is_evicted_before_every_sample(worker, footprint, emptied):
    """The GPU's L2 is evicted by a memset elsewhere: the first memset poisons, each further one evicts."""
    pipe, _ = opened(worker, CUDA_HANG="cuMemsetD8Async:2")
    wanted = local(size=512 * KIB, footprint=footprint)
    assert prepare(pipe, wanted)["supported"]

    def sampled():
        return pipe.ask("run", timeout_s=2 if emptied else 300, samples=2, batches=[[4]], verify=False)

    if emptied:
        with pytest.raises(NoAnswer):
            sampled()
    else:
        assert sampled()["ok"]


@pytest.mark.parametrize("wanted", [d2h(size=24, footprint=24 * 128), h2d(size=264)], ids=["24 B", "264 B"])
def test_writes_between_slices_are_found(worker, wanted):
    pipe, _ = opened(worker, CUDA_OVERRUN="2+")
    verdict = run(pipe, wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0


CALLS = {
    "h2d pinned": "cuMemcpyHtoDAsync", "d2h pinned": "cuMemcpyDtoHAsync", "local": "cuMemcpyDtoDAsync",
    "d2d peer": "cuMemcpyDtoDAsync", "d2d by the peer call": "cuMemcpyPeerAsync", "h2d by sm": "cuLaunchKernel:4",
    "after a wait": "cuStreamWaitValue32",
}  # fmt: skip


@pytest.mark.parametrize("family", CALLS)
def test_each_family_uses_the_call_in_its_name(worker, family):
    pipe, _ = opened(worker, CUDA_HANG=CALLS[family])
    with pytest.raises(NoAnswer):
        pipe.ask("prepare", timeout_s=1, case=FAMILIES[family], key="point#0")
        pipe.ask("run", timeout_s=1, samples=1, batches=[[8]], verify=False)


def lasted(answer) -> float:
    assert answer["ok"], answer
    return answer["stamps"][1] - answer["stamps"][0]


@pytest.mark.parametrize("after", ["kernel", "wait"])
def test_the_time_of_queueing_behind_the_gate_is_not_in_the_stamps(worker, after):
    pipe, _ = opened(worker, CUDA_SLOW="cuMemcpyHtoDAsync:1000")
    assert prepare(pipe, h2d(size=8, after=after))["supported"]
    # Less than the 10 ms of ten calls. Other programs on this machine delay some of the calls.
    answers = [pipe.ask("run", samples=1, batches=[[10]], verify=False) for _ in range(5)]
    assert {answer["timing"] for answer in answers} == {"gate"} and min(map(lasted, answers)) < 5e-3


def test_a_host_that_waits_for_a_cpu_is_not_taken_for_one_that_the_gate_blocks(impatient, worker):
    """The calls take 8 ms, and longer than the 20 ms of a rehearsal if the worker shares a CPU with busy programs."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cpus)})  # of the programs that start here, too
    try:
        pipe, _ = opened(worker, CUDA_SLOW="cuMemcpyHtoDAsync:500")
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(8)]
    finally:
        os.sched_setaffinity(0, cpus)
    try:
        assert prepare(pipe, h2d(size=8))["supported"]
        assert pipe.ask("run", samples=1, batches=[[16]], verify=False)["timing"] == "gate"
    finally:
        for one in busy:
            one.kill()
            one.wait()


METHODS = {"gate": h2d(size=8), "pageable": d2h("pageable", size=8), "staged": d2d(peer="off")}


@pytest.mark.parametrize("wanted", METHODS.values(), ids=METHODS)
def test_stamps_include_all_the_time_of_the_copies(worker, wanted):
    pipe, _ = opened(worker, CUDA_COPY_US=1000, CUDA_STAGING=256 * KIB)
    assert prepare(pipe, wanted)["supported"]
    answer = pipe.ask("run", samples=1, batches=[[8]], verify=False)
    assert answer["timing"] == ("gate" if wanted["benchmark"] == "h2d" else "host")
    assert lasted(answer) >= 8e-3


def test_a_batch_that_blocks_the_host_after_its_rehearsal_is_timed_by_the_host_clock(impatient, worker, tmp_path):
    full = tmp_path / "full"
    pipe, _ = opened(worker, CUDA_COPY_US=1000, CUDA_STAGING=256 * KIB, CUDA_STAGING_WHILE=full)
    assert prepare(pipe, METHODS["staged"])["supported"]
    assert pipe.ask("run", samples=1, batches=[[8]], verify=False)["timing"] == "gate"
    full.touch()
    answer = pipe.ask("run", samples=1, batches=[[8]], verify=True)
    assert answer["timing"] == "host" and "waits for the gate" in answer["notes"]["timing"]
    assert lasted(answer) >= 8e-3 and answer["verdict"]["ok"]
    full.unlink()  # for the rest: a round has one kind of timing
    assert pipe.ask("run", samples=1, batches=[[8]], verify=False)["timing"] == "host"
    assert pipe.ask("run", samples=1, batches=[[16]], verify=False)["timing"] == "host"
    assert pipe.ask("run", samples=1, batches=[[4]], verify=False)["timing"] == "gate"


@pytest.mark.parametrize("after", ["kernel", "wait"])
def test_a_host_that_queues_for_too_long_gives_a_time_out(impatient, worker, tmp_path, after):
    slow = tmp_path / "slow"
    pipe, _ = opened(worker, CUDA_SLOW="cuMemcpyHtoDAsync:2400000", CUDA_SLOW_WHILE=slow)
    assert prepare(pipe, h2d(size=8, after=after))["supported"]
    assert pipe.ask("run", samples=1, batches=[[1]], verify=False)["timing"] == "gate"
    slow.touch()
    error = failure(pipe.ask("run", samples=1, batches=[[1]], verify=False))
    assert error["kind"] == "timeout" and "gate" in error["message"]


@pytest.mark.parametrize("after", ["kernel", "wait"])
@pytest.mark.parametrize("batches", [[[0]], [[0], [1]], [[2], [4]]])
def test_a_host_that_always_queues_slowly_is_timed_by_its_own_clock(impatient, worker, after, batches):
    pipe, _ = opened(worker, CUDA_SLOW="cuEventRecord:60000")
    assert prepare(pipe, h2d(size=8, after=after))["supported"]
    answer = pipe.ask("run", samples=2, batches=batches, verify=True)
    assert answer["timing"] == "host" and answer["verdict"]["ok"]


def test_a_gate_that_begins_after_a_slow_host_has_queued_all_is_no_proof_that_the_host_is_fast(impatient, worker):
    """The host needs 60 ms to queue a batch. The stream begins 200 ms after the first call: its gate is open then."""
    pipe, _ = opened(worker, CUDA_SLOW="cuEventRecord:30000", CUDA_LATE_US=200000)
    assert prepare(pipe, h2d(size=8))["supported"]
    assert pipe.ask("run", samples=1, batches=[[1]], verify=False)["timing"] == "host"
