"""Plans: the order of the points, the rounds that are next, and the precision that ends them."""

from itertools import pairwise

import msgspec
import pytest

from fakes import facts, flow, plan, point
from linkscope.plan import Plan, in_order, make_plan, next_work, precision_target, rounds_wanted
from linkscope.run import benchmark_table
from linkscope.runfile import PointId


def test_the_order_is_random_by_round_and_seed_and_keeps_peer_blocks_together() -> None:
    made = plan(suite="quick", gpus=4, seed=3)
    standard = plan("d2d/*", gpus=3)
    first, second = in_order(made, made.points, 0), in_order(made, made.points, 1)
    assert sorted(first) == sorted(second) == sorted(made.points)
    assert first != second and first == in_order(made, reversed(made.points), 0)
    assert first != in_order(msgspec.structs.replace(made, order_seed=4), made.points, 0)
    peers = [PointId.parse(id).param("peer") for id in in_order(standard, standard.points, 0)]
    assert sum(one != other for one, other in pairwise(peers)) == 1


def test_base_rounds_come_first_then_cheap_points_that_missed_precision() -> None:
    made = plan("d2h/*pinned/8?*", "d2h/*pinned/4096?mode=batched")
    assert [work.rounds for work in next_work(made, {})] == [6] * len(made.points)
    points = {id: point(id, flows=[flow([1.0] * 6)]) for id in made.points}
    assert next_work(made, points) == []
    expensive, cheap = made.points[0], made.points[-1]
    for id, cost in ((expensive, 2.0), (cheap, 1.0)):
        points[id] = point(id, status="missed_precision", flows=[flow([1.0] * 6)], device_s=cost)
    assert [(work.id, work.rounds) for work in next_work(made, points)] == [(cheap, 9), (expensive, 9)]


@pytest.mark.parametrize(
    "rounds, budget, wanted", [(6, None, 9), (7, None, 9), (9, None, 9), (9, 60.0, 12), (12, 60.0, 12)]
)
def test_the_number_of_rounds_is_bounded(rounds: int, budget: float | None, wanted: int) -> None:
    made = plan("d2h/*", budget_s=budget)
    missed = point(made.points[0], status="missed_precision", flows=[flow([1.0] * rounds)])
    assert rounds_wanted(made, missed) == wanted
    assert rounds_wanted(made, point(made.points[0], flows=[flow([1.0] * rounds)])) == rounds
    missed.guards["stopped"] = "the budget"
    assert rounds_wanted(made, missed) == rounds


@pytest.mark.parametrize("inner, wanted", [(0.019, 9), (0.021, 6)])
def test_more_rounds_are_given_only_if_the_inner_rounds_meet_the_precision(inner: float, wanted: int) -> None:
    """Nine rounds drop one more value at each end than six, so the outermost values may lie anywhere."""
    made = plan("d2h/*", precision=0.01)
    medians = [0.5, 1.0 - inner / 2, 1.0, 1.0, 1.0 + inner / 2, 3.0]
    assert rounds_wanted(made, point(made.points[0], status="missed_precision", flows=[flow(medians)])) == wanted


def early(rounds: int = 6) -> Plan:
    return make_plan(facts(gpus=2), benchmark_table(), suite="nvbandwidth", rounds=rounds)


def test_early_plans_take_three_rounds_and_six_if_these_disagree() -> None:
    made = early()
    assert made.early and [work.rounds for work in next_work(made, {})] == [3] * len(made.points)
    missed = made.points[1]
    three, six = [flow([1.0] * 3)], [flow([1.0] * 6)]
    points = {id: point(id, flows=three) for id in made.points}
    assert next_work(made, points) == []
    points[missed] = point(missed, status="missed_precision", flows=three)
    assert [(work.id, work.rounds) for work in next_work(made, points)] == [(missed, 6)]
    points[missed] = point(missed, status="missed_precision", flows=six)
    assert next_work(made, points) == []  # the points are finished
    for status in ("failed", "unsupported", "skipped"):
        points[missed] = point(missed, status=status, flows=[])
        assert next_work(made, points) == []


def test_an_explicit_number_of_rounds_is_always_measured() -> None:
    assert not early(rounds=4).early
    assert {work.rounds for work in next_work(early(rounds=4), {})} == {4}


def test_only_the_rule_of_nvbandwidth_measures_its_hot_latencies() -> None:
    theirs = make_plan(facts(gpus=2), benchmark_table(), suite="nvbandwidth", rounds=1, rule="nvbandwidth").points
    ours = early().points
    assert set(ours) < set(theirs) and all("cache=hot" in id for id in set(theirs) - set(ours))


def test_the_precision_target_depends_on_the_size_unless_given() -> None:
    default, requested = plan("d2h/*"), plan("d2h/*", precision=0.002)
    copy = "d2h/ce/gpu:0.device->numa:0.pinned/{}?after=kernel&mode=batched"
    at = {size: PointId.parse(copy.format(size)) for size in (8, (1 << 20) - 8, 1 << 20)}
    assert [precision_target(default, point) for point in at.values()] == [0.05, 0.05, 0.01]
    assert precision_target(default, at[8], resolution=0.1) == 0.2
    assert precision_target(requested, at[8], resolution=0.1) == 0.002


def test_concurrent_points_have_a_precision_target_of_three_percent() -> None:
    default, requested = plan("d2h/*"), plan("d2h/*", precision=0.002)
    at_once = PointId.parse("concurrent/ce/gpu:0.device->numa:0.pinned/16777216?with=gpu:1->numa:0")
    assert precision_target(default, at_once) == 0.03
    assert precision_target(requested, at_once) == 0.002
