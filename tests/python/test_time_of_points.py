"""How long points last whose actors run for a duration, and what their plans say of it."""

import dataclasses

import pytest

from linkscope.machine import model
from linkscope.plan import DURATION_S, estimated_seconds, expected_s, lasts, make_plan, time_of
from linkscope.run import benchmark_table
from linkscope.run.target import modelled
from linkscope.runfile import PointId

MD = PointId.parse("compute_md/sm/numa:0.pinned->gpu:0.device/0?beside=none&size=shoc")
COPY = PointId.parse("contended_h2d/ce/numa:0.pinned->gpu:0.device/0?beside=gemm")


@pytest.mark.parametrize(
    ("operation_s", "interval_s"), [(1e-4, 0.01), (0.01, 0.01), (0.011, 0.02), (0.07, 0.08), (5.0, 0.1), (None, 0.1)]
)
def test_a_sample_of_a_computation_holds_at_least_one_as_far_as_ten_tasks_may_last(operation_s, interval_s):
    seconds, sample_s = time_of(MD, operation_s, modelled=False)
    assert sample_s == pytest.approx(interval_s)
    assert seconds == pytest.approx(20 * interval_s), "twenty samples a round"


def test_three_rounds_of_work_beside_other_work_have_enough_samples_for_a_p99():
    seconds, sample_s = time_of(COPY, 5.0, modelled=True)
    assert seconds == DURATION_S, "the time of an operation matters to computations only"
    assert 3 * (seconds / sample_s - 2) >= 100


def test_bystanders_last_as_long_as_other_work_on_hardware_and_a_fraction_of_that_on_a_model():
    point = PointId.parse("bystander/sm/gpu:0.device->numa:0.pinned/0?beside=post&blocks=32")
    measured, simulated = (time_of(point, modelled=modelled) for modelled in (False, True))
    assert measured == time_of(COPY, modelled=False)
    assert simulated[0] < measured[0] / 5 and simulated[0] >= 5 * simulated[1]


def test_a_plan_expects_at_least_the_duration_of_each_round():
    facts = modelled(model.load("h200x1"), 1).facts
    costs = expected_s(make_plan(facts, benchmark_table(), suite="contention"), facts)
    assert all(lasts(PointId.parse(id)) for id in costs)
    assert min(costs.values()) >= 3 * DURATION_S


def test_suite_comm_scope_takes_two_calls_of_nine_minutes_on_one_gpu_with_half_to_spare():
    facts = dataclasses.replace(modelled(model.load("h200x1"), 1).facts, modelled=False)
    costs = expected_s(make_plan(facts, benchmark_table(), suite="comm-scope"), facts)
    sizes = {PointId.parse(id).bytes for id in costs}
    assert {1 << exponent for exponent in range(8, 33)} <= sizes, "every size of the paper"
    assert sum(costs.values()) < 2 * 540 / 2


def test_a_long_single_operation_costs_one_operation_a_round():
    facts = modelled(model.load("h200x1"), 1).facts
    id = "h2d/ce/numa:0.registered->gpu:0.device/4294967296?after=wait&bidirectional=false&mode=single"
    assert estimated_seconds(PointId.parse(id), facts) == pytest.approx((4 << 30) / 50e9)
    batched = id.replace("single", "batched")
    assert estimated_seconds(PointId.parse(batched), facts) > 5 * (4 << 30) / 50e9
