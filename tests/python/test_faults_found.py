"""Regression tests of faults that a review found."""

import pytest

from driver_cases import KIB, MIB, d2d, failure, h2d, opened, prepare, run, worker
from fake_driver import needs_fake, needs_worker
from fakes import facts, plan
from linkscope.run.assemble import Assembler
from test_assemble import BOTH, ONE, round_of

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]


def test_batches_of_equal_total_are_distinct_for_staging_memory(worker):
    """4 + 4 copies fit the staging memory of two streams, 1 + 7 do not; neither batch may wait behind a closed gate."""
    pipe, _ = opened(worker, CUDA_STAGING=256 * KIB)
    assert prepare(pipe, d2d(peer="off", bidirectional="true"))["supported"]
    for batch in ([4, 4], [1, 7]):
        answer = pipe.ask("run", samples=1, batches=[batch], verify=False)
        assert answer["ok"], answer
    assert answer["timing"] == "host"


@pytest.mark.parametrize("wanted", [h2d(size=MIB, footprint=MIB), d2d(size=MIB, footprint=MIB)], ids=["h2d", "d2d"])
def test_data_of_the_warm_up_does_not_verify_timed_copies(worker, wanted):
    """Sizes of 1 GiB and more have one slice: the warm-up fills it, and here no timed copy does anything."""
    pipe, _ = opened(worker, CUDA_SKIP="2+")
    assert not run(pipe, wanted)["verdict"]["ok"]


@pytest.mark.parametrize("error", [226, 911])  # cuda.h: "to continue using CUDA, the process must be terminated"
def test_errors_that_persist_in_the_process_lose_the_worker(worker, error):
    pipe, _ = opened(worker, CUDA_LOST_AFTER=f"12:{error}")
    assert failure(run(pipe, h2d()))["kind"] == "lost"


def test_flows_that_barely_overlap_have_no_total_with_status_ok() -> None:
    """A published run had 5.8 and 36.2 GB/s at an overlap of 0.21 with status ok; the next run had 64 GB/s."""
    rounds = [round_of(n, [20e-6], [100e-6], guards={"joint_overlap": 0.21 if n < 5 else 0.95}) for n in range(6)]
    found = Assembler(plan(BOTH), facts(), lambda point: None).point(BOTH, rounds)
    assert found.guards["joint_overlap"] == 0.21  # the worst of the rounds
    assert found.status != "ok"


def test_a_point_throttled_in_every_round_is_not_ok() -> None:
    rounds = [round_of(n // 2, [2e-6], guards={"throttled": ["hw_thermal"]}) for n in range(12)]
    found = Assembler(plan(ONE), facts(), lambda point: None).point(ONE, rounds)
    assert len(found.flows[0].round_medians_s) <= 6  # each round was repeated once and counts once
    assert found.status != "ok"
