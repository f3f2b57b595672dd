"""The real worker on the fake driver: every copy of a run is compared, and caches are emptied before it."""

import pytest

from fake_driver import needs_fake, needs_worker
from test_driver_matrix import FAMILIES, KIB, MIB, d2d, d2h, failure, h2d, local, opened, prepare, run, worker, works
from worker_pipe import NoAnswer

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

# `run` makes 1 copy to warm up, 16 to rehearse its largest batch, and 2 x (0 + 1 + 8 + 16) that are timed.
UNTIMED, TIMED = 1 + 16, 50
FIRST, ALL = UNTIMED + 1, UNTIMED + TIMED
MANY = 8 * MIB  # more slices than copies: nothing is written twice


@pytest.mark.parametrize("number", [FIRST, FIRST + 1, FIRST + 9, ALL - 1, ALL])
@pytest.mark.parametrize("wanted", [h2d(footprint=MANY), d2h(size=24, footprint=24 * 128)], ids=["packed", "apart"])
@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
def test_every_timed_copy_of_a_run_is_compared(worker, fault, number, wanted):
    pipe, _ = opened(worker, **{fault: number})
    verdict = run(pipe, wanted)["verdict"]
    missing = wanted["bytes"] if fault == "CUDA_SKIP" else 8
    assert (verdict["ok"], verdict["wrong_bytes"]) == (False, missing)
    assert verdict["checked_bytes"] == TIMED * wanted["bytes"]


@pytest.mark.parametrize("wanted", [h2d(footprint=MANY), d2h(size=24, footprint=24 * 128)], ids=["packed", "apart"])
def test_what_is_not_timed_proves_nothing_of_what_is(worker, wanted):
    """The copies to warm up and to rehearse go to the slices that the first timed ones write, too."""
    pipe, _ = opened(worker, CUDA_SKIP=f"{FIRST}+")
    verdict = run(pipe, wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] == TIMED * wanted["bytes"]


@pytest.mark.parametrize("sampled", [1, 2, 3])
def test_earlier_samples_are_compared_before_those_that_are_verified(worker, sampled):
    """After `run`s without a comparison the next one with it compares what they delivered, too."""
    wanted = h2d(footprint=MANY)
    pipe, _ = opened(worker, CUDA_CORRUPT=1 + 8 + 1)  # warm-up, rehearsal, the first timed one
    assert prepare(pipe, wanted)["supported"]
    for _ in range(sampled - 1):
        assert pipe.ask("run", samples=1, batches=[[8]], verify=False)["ok"]
    verdict = pipe.ask("run", samples=1, batches=[[8]], verify=True)["verdict"]
    assert not verdict["ok"] and verdict["checked_bytes"] == sampled * 8 * wanted["bytes"]


ACCESSES = [name for name in FAMILIES if name.startswith(("read", "write", "chase through"))]


# Where in the count of all copies and launches the first and the last timed access are. Reads and chases begin with a
# copy of what they begin with, twice; a batch of a chase is one launch.
ACCESS_AT = {"write": (FIRST, ALL), "read": (FIRST + 2, ALL + 2), "chase": (5, 10)}


@pytest.mark.parametrize("which", range(2), ids=["first", "last"])
@pytest.mark.parametrize("fault", ["CUDA_CORRUPT", "CUDA_SKIP"])
@pytest.mark.parametrize("family", ACCESSES)
def test_an_access_that_is_wrong_once_is_found(worker, family, fault, which):
    wanted = FAMILIES[family] | {"footprint_bytes": MANY}
    number = ACCESS_AT[family.split()[0]][which]
    verdict = run(opened(worker, **{fault: number})[0], wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0 and verdict["first_wrong"]


def test_flows_of_all_gpus_are_each_compared(worker):
    wanted = FAMILIES["all to host and back"]
    for flow in range(4):
        pipe, _ = opened(worker, CUDA_CORRUPT="5+")  # the four flows have been warmed up with one copy each
        assert prepare(pipe, wanted)["supported"]
        only = [8 if number == flow else 0 for number in range(4)]
        assert not pipe.ask("run", samples=1, batches=[only], verify=True)["verdict"]["ok"]


def test_nothing_is_wrong_with_the_copy_after_the_last(worker):
    pipe, _ = opened(worker, CUDA_CORRUPT=ALL + 1)
    assert works(pipe, h2d(footprint=MANY))["verdict"]["wrong_bytes"] == 0


@pytest.mark.parametrize("wanted", [h2d(bidirectional="true"), d2d(bidirectional="true")], ids=["h2d", "d2d"])
@pytest.mark.parametrize("actor", [0, 1])
def test_each_flow_is_compared(worker, wanted, actor):
    pipe, _ = opened(worker, CUDA_CORRUPT="3+")  # both flows have been warmed up with one copy each
    assert prepare(pipe, wanted)["supported"]
    only = [8 if number == actor else 0 for number in (0, 1)]
    verdict = pipe.ask("run", samples=1, batches=[only], verify=True)["verdict"]
    assert not verdict["ok"] and verdict["first_wrong"]


@pytest.mark.parametrize("family", ["h2d pinned", "d2h pageable", "d2d peer", "local", "local by sm"])
def test_what_an_earlier_point_delivered_does_not_count(worker, family):
    """The memory is used again, and so are its sources: without poison a copy that does nothing would look right."""
    wanted = FAMILIES[family]
    by_host = "pageable" in (wanted["src_memory"], wanted["dst_memory"])
    pipe, _ = opened(worker, CUDA_SKIP=f"{ALL - (16 if by_host else 0) + 1}+")
    works(pipe, wanted)
    assert not run(pipe, wanted)["verdict"]["ok"]


@pytest.mark.parametrize("footprint, emptied", [(MIB, True), (256 * MIB, False)])
def test_a_footprint_that_the_cache_holds_is_evicted_before_every_sample(worker, footprint, emptied):
    """The GPU's L2 by writing elsewhere: the first memset poisons, each further one is an eviction."""
    pipe, _ = opened(worker, CUDA_HANG="cuMemsetD8Async:2")
    wanted = local(size=512 * KIB, footprint=footprint)
    assert prepare(pipe, wanted)["supported"]

    def sampled():
        return pipe.ask("run", timeout_s=10 if not emptied else 2, samples=2, batches=[[4]], verify=False)

    if emptied:
        with pytest.raises(NoAnswer):
            sampled()
    else:
        assert sampled()["ok"]


@pytest.mark.parametrize("wanted", [d2h(size=24, footprint=24 * 128), h2d(size=264)], ids=["24 B", "264 B"])
def test_what_is_written_between_slices_is_found(worker, wanted):
    pipe, _ = opened(worker, CUDA_OVERRUN="2+")
    verdict = run(pipe, wanted)["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0


CALLS = {
    "h2d pinned": "cuMemcpyHtoDAsync", "d2h pinned": "cuMemcpyDtoHAsync", "local": "cuMemcpyDtoDAsync",
    "d2d peer": "cuMemcpyDtoDAsync", "d2d by the peer call": "cuMemcpyPeerAsync", "h2d by sm": "cuLaunchKernel:4",
    "after a wait": "cuStreamWaitValue32",
}  # fmt: skip


@pytest.mark.parametrize("family", CALLS)
def test_each_family_makes_the_call_that_it_names(worker, family):
    pipe, _ = opened(worker, CUDA_HANG=CALLS[family])
    with pytest.raises(NoAnswer):
        pipe.ask("prepare", timeout_s=1, case=FAMILIES[family], key="point#0")
        pipe.ask("run", timeout_s=1, samples=1, batches=[[8]], verify=False)


def lasted(answer) -> float:
    assert answer["ok"], answer
    return answer["stamps"][1] - answer["stamps"][0]


@pytest.mark.parametrize("after", ["kernel", "wait"])
def test_behind_the_gate_the_time_of_queueing_is_not_in_the_stamps(worker, after):
    pipe, _ = opened(worker, CUDA_SLOW="cuMemcpyHtoDAsync:1000")
    assert prepare(pipe, h2d(size=8, after=after))["supported"]
    # Not the 10 ms of ten calls; what else runs here holds up one of them at times.
    answers = [pipe.ask("run", samples=1, batches=[[10]], verify=False) for _ in range(5)]
    assert {answer["timing"] for answer in answers} == {"gate"} and min(map(lasted, answers)) < 5e-3


WAYS = {"gate": h2d(size=8), "pageable": d2h("pageable", size=8), "staged": d2d(peer="off")}


@pytest.mark.parametrize("wanted", WAYS.values(), ids=WAYS)
def test_stamps_hold_all_that_the_copies_take(worker, wanted):
    pipe, _ = opened(worker, CUDA_COPY_US=1000, CUDA_STAGING=256 * KIB)
    assert prepare(pipe, wanted)["supported"]
    answer = pipe.ask("run", samples=1, batches=[[8]], verify=False)
    assert answer["timing"] == ("gate" if wanted["benchmark"] == "h2d" else "host")
    assert lasted(answer) >= 8e-3


def test_a_batch_that_went_through_and_then_holds_the_host_up_is_timed_by_its_clock(worker, tmp_path):
    full = tmp_path / "full"
    pipe, _ = opened(worker, CUDA_COPY_US=1000, CUDA_STAGING=256 * KIB, CUDA_STAGING_WHILE=full)
    assert prepare(pipe, WAYS["staged"])["supported"]
    assert pipe.ask("run", samples=1, batches=[[8]], verify=False)["timing"] == "gate"
    full.touch()
    answer = pipe.ask("run", samples=1, batches=[[8]], verify=True)
    assert answer["timing"] == "host" and "waits for the gate" in answer["notes"]["timing"]
    assert lasted(answer) >= 8e-3 and answer["verdict"]["ok"]
    full.unlink()  # for good: one kind of time in a round
    assert pipe.ask("run", samples=1, batches=[[8]], verify=False)["timing"] == "host"
    assert pipe.ask("run", samples=1, batches=[[16]], verify=False)["timing"] == "host"
    assert pipe.ask("run", samples=1, batches=[[4]], verify=False)["timing"] == "gate"


@pytest.mark.parametrize("after", ["kernel", "wait"])
def test_a_host_that_queues_for_too_long_is_told_and_not_timed(worker, tmp_path, after):
    slow = tmp_path / "slow"
    pipe, _ = opened(worker, CUDA_SLOW="cuMemcpyHtoDAsync:2400000", CUDA_SLOW_WHILE=slow)
    assert prepare(pipe, h2d(size=8, after=after))["supported"]
    assert pipe.ask("run", samples=1, batches=[[1]], verify=False)["timing"] == "gate"
    slow.touch()
    error = failure(pipe.ask("run", samples=1, batches=[[1]], verify=False))
    assert error["kind"] == "timeout" and "gate" in error["message"]


@pytest.mark.parametrize("after", ["kernel", "wait"])
@pytest.mark.parametrize("batches", [[[0]], [[0], [1]], [[2], [4]]])
def test_a_host_that_always_queues_for_long_is_timed_by_its_own_clock(worker, after, batches):
    pipe, _ = opened(worker, CUDA_SLOW="cuEventRecord:60000")
    assert prepare(pipe, h2d(size=8, after=after))["supported"]
    answer = pipe.ask("run", samples=2, batches=batches, verify=True)
    assert answer["timing"] == "host" and answer["verdict"]["ok"]
