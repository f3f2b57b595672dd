"""The sizes by which a curve grows beyond those of its suite, up to 1 GiB."""

from collections.abc import Mapping

import pytest
from msgspec import structs

from linkscope.plan import Plan, class_curves, next_work
from linkscope.plan.stages import _curve_of
from linkscope.runfile import Point, PointId
from test_planner import MIB, all_done, pairs_plan, slower


def rising(points: Mapping[str, Point], cost_s: float = 1e-3) -> dict[str, Point]:
    """The points with 20 ms before the first byte: half of the best rate at 1 GB, so the rate still rises there."""
    return {
        id: structs.replace(slower(of, (20e-3 + of.bytes / 50e9) / of.median_s), device_s=cost_s)
        for id, of in points.items()
    }


def grown(plan: Plan, points: Mapping[str, Point]) -> set[str]:
    """The planned sizes that the plan did not contain."""
    return {work.id for work in next_work(plan, points, 0.0) if PointId.parse(work.id).bytes > 256 * MIB}


def test_a_curve_grows_by_doubling_to_1_gib_while_its_rate_rises() -> None:
    plan = pairs_plan()
    (curve,) = class_curves(plan.points, plan.classes, plan.order_seed)
    settled = all_done(plan, {work.id for work in next_work(plan, {}, 10.0)})
    assert grown(plan, settled) == set()
    points = rising(settled)
    for size in (512 * MIB, 1024 * MIB):
        larger = curve.id_of(curve.representative, size)
        assert grown(plan, points) == {larger}
        points |= rising(all_done(plan, {larger}))
    assert max(_curve_of(curve, curve.representative, points)) == 1024 * MIB
    assert {PointId.parse(id).bytes for id in grown(plan, points)} <= {384 * MIB, 768 * MIB}  # sizes between them


@pytest.mark.parametrize(
    "rounds, cost_s, expected", [(3, 0.14, True), (3, 0.16, False), (6, 0.28, True), (6, 0.32, False)]
)
def test_a_curve_grows_only_if_the_next_size_costs_at_most_half_a_share(
    rounds: int, cost_s: float, expected: bool
) -> None:
    plan = pairs_plan(budget_s=6.6)  # 66 points: a share of 0.6 s each
    (curve,) = class_curves(plan.points, plan.classes, plan.order_seed)
    points = rising(all_done(plan, {work.id for work in next_work(plan, {}, 10.0)}))
    largest = points[curve.ids[curve.representative][256 * MIB]]
    largest.flows[0].round_medians_s *= rounds // 3
    largest.device_s = cost_s
    assert grown(plan, points) == ({curve.id_of(curve.representative, 512 * MIB)} if expected else set())


@pytest.mark.parametrize("memory, expected", [("pageable", True), ("managed", False), ("system", False)])
def test_only_memory_without_page_migration_grows_beyond_256_mib(memory: str, expected: bool) -> None:
    plan = pairs_plan()
    plan = structs.replace(plan, points=[id.replace(".device", f".{memory}") for id in plan.points])
    first = {work.id for work in next_work(plan, {}, 10.0)}
    assert bool(grown(plan, rising(all_done(plan, first)))) is expected
