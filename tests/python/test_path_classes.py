"""The number of rounds that a point gets: known answers."""

import pytest
from msgspec import structs

from fakes import flow, late_work, point
from linkscope.plan.shares import share_s, wanted
from linkscope.runfile import Point
from test_planner import PAIR, pairs_plan


def missed(half_width: float, method: str = "pooled", rounds: int = 3, device_s: float = 1e-3) -> Point:
    """A point of 8 B that missed its target of 5 %."""
    return point(
        PAIR.format(0, 1, 8), status="missed_precision", flows=[flow([1e-6] * rounds, half_width)], ci_method=method,
        device_s=device_s, precision_target=0.05,
    )  # fmt: skip


@pytest.mark.parametrize("half_width, rounds", [(0.052, 4), (0.057, 5), (0.06, 6), (0.1, 6)])
def test_the_interval_of_three_rounds_predicts_how_many_are_needed(half_width: float, rounds: int) -> None:
    of = missed(half_width)
    assert [work.rounds for work in wanted(pairs_plan(), {of.id: of})] == [rounds]


def test_a_point_of_a_family_with_modes_gets_six_rounds() -> None:
    of = missed(0.052, "next_round")
    assert [work.rounds for work in wanted(pairs_plan(), {of.id: of})] == [6]


def test_a_point_that_missed_its_precision_after_five_rounds_gets_a_sixth() -> None:
    of = missed(0.06, rounds=5)
    assert [work.rounds for work in wanted(pairs_plan(), {of.id: of})] == [6]


def test_more_rounds_must_fit_into_the_share_of_the_point_until_time_is_left_at_the_end() -> None:
    plan = pairs_plan()
    for most, expected in ((4.99, []), (5.01, [5])):
        of = missed(0.057, device_s=share_s(plan) * 3 / most)
        assert [work.rounds for work in wanted(plan, {of.id: of})] == expected
        assert [work.rounds for work in late_work(plan, {of.id: of}, 1000.0)] == [5]


def test_points_whose_state_changes_get_no_more_rounds() -> None:
    plan = pairs_plan()
    for guard in ("trend", "in_turn"):
        of = structs.replace(missed(0.057), guards={guard: 0.1})
        assert wanted(plan, {of.id: of}) == late_work(plan, {of.id: of}, 1000.0) == []


def at_16_mib(slow: float) -> dict[str, Point]:
    """All pairs after three rounds. One of them takes longer by the factor `slow`."""
    (kind,) = pairs_plan().classes
    found = {}
    for number, path in enumerate(kind.paths):
        src, dst = (place.rpartition(":")[2] for place in path.split("->"))
        rounds = [of * (slow if number == 5 else 1.0) for of in (1.0e-3, 1.0005e-3, 0.9995e-3)]
        id = PAIR.format(src, dst, 16 << 20)
        found[id] = point(
            id, flows=[flow(rounds)], median_s=rounds[0], ci95_s=(rounds[2], rounds[1]), ci_method="pooled",
            device_s=1e-3, precision_target=0.01,
        )  # fmt: skip
    return found


def test_six_rounds_of_a_seemingly_slow_path_must_fit_its_share() -> None:
    plan, points = pairs_plan(), at_16_mib(1.1)
    slow = next(id for id, of in points.items() if of.median_s and of.median_s > 1.05e-3)
    for most, expected in ((5.99, False), (6.01, True)):
        points[slow].device_s = share_s(plan) * 3 / most
        assert (slow in {work.id for work in wanted(plan, points)}) == expected


def test_no_path_is_called_slow_by_three_rounds() -> None:
    """One of several equal paths is slower: this path and the compared ones get three more rounds if these help."""
    plan = pairs_plan()
    assert wanted(plan, at_16_mib(1.0)) == []
    points = at_16_mib(1.1)
    slow = next(id for id, of in points.items() if of.median_s > 1.05e-3)
    requested = {work.id: work.rounds for work in wanted(plan, points)}
    assert slow in requested and len(requested) == 2 and set(requested.values()) == {6}
    points = at_16_mib(1.1)
    points[slow].guards["trend"] = 0.1
    assert slow not in {work.id for work in wanted(plan, points)}
