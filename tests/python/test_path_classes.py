"""The number of rounds that a point gets, given the rounds of its class: known answers."""

import pytest
from msgspec import structs

from fakes import flow, late_work, point
from linkscope.plan import Plan
from linkscope.plan.shares import share_s, wanted
from linkscope.runfile import Point, PointId
from test_planner import KIB, PAIR, pairs_plan


def three_rounds(values: dict[int, list[float]]) -> dict[str, Point]:
    """Points of one pair by size, with a target of 5 % below 1 MiB."""
    found = {}
    for size, medians in values.items():
        middle, ends = sorted(medians)[1], (min(medians), max(medians))
        status = "ok" if ends[1] - ends[0] <= 0.05 * middle else "missed_precision"
        id = PAIR.format(0, 1, size)
        found[id] = point(
            id, status=status, flows=[flow(medians)], median_s=middle, ci95_s=ends, device_s=1e-3, precision_target=0.05
        )
    return found


def by_size(plan: Plan, points: dict[str, Point]) -> dict[int, int]:
    return {PointId.parse(work.id).bytes: work.rounds for work in wanted(plan, points)}


QUIET, LOUD = [1e-6, 1.01e-6, 0.99e-6], [1e-6, 1.08e-6, 0.97e-6]


def test_three_agreeing_rounds_are_not_enough_where_most_of_the_class_disagree() -> None:
    """Only sizes within a factor of 32 are compared."""
    plan = pairs_plan()

    def doubted(values: dict[int, list[float]]) -> set[int]:
        return {
            size
            for size, rounds in by_size(plan, three_rounds(values)).items()
            if rounds == 6 and values[size] is QUIET
        }

    assert doubted({8: QUIET, 16: QUIET, 32: LOUD, 64: LOUD}) == set()
    assert doubted({8: QUIET, 16: LOUD, 32: LOUD, 64: LOUD}) == {8}
    assert doubted({8: QUIET, 16: QUIET, 32: QUIET, 64 * KIB: LOUD, 128 * KIB: LOUD, 256 * KIB: QUIET}) == {256 * KIB}
    assert doubted({8: QUIET, 16: QUIET}) == {8, 16}  # too few points to compare
    far = {64 * KIB << at: LOUD for at in range(4)}  # too far from the small sizes to be compared with them
    assert doubted({8: QUIET, 16: QUIET, 32: QUIET} | far) == set()
    assert doubted({8 << at: LOUD for at in range(4)} | {64 * KIB << at: QUIET for at in range(3)}) == set()
    throttled = three_rounds({8: QUIET})
    for of in throttled.values():
        of.guards["throttled_rounds"] = []
    assert wanted(plan, throttled) == []  # a repeated round makes six rounds


def test_one_outlier_among_three_rounds_takes_two_more_where_most_of_the_class_agree() -> None:
    plan = pairs_plan()
    assert by_size(plan, three_rounds({8: LOUD, 16: QUIET})) == {8: 6, 16: 6}  # too few points to compare
    assert by_size(plan, three_rounds({8: LOUD, 16: QUIET, 32: QUIET})) == {8: 5}
    assert by_size(plan, three_rounds({8: LOUD, 16: LOUD, 32: QUIET, 64: QUIET})) == {8: 5, 16: 5}
    assert by_size(plan, three_rounds({8: LOUD, 16: LOUD, 32: LOUD, 64: QUIET})) == {8: 6, 16: 6, 32: 6, 64: 6}
    assert by_size(plan, three_rounds({64 * KIB: LOUD, 8: QUIET, 16: QUIET, 32: QUIET})) == {
        64 * KIB: 6
    }  # too far from the others
    with_outlier = three_rounds({8: LOUD, 16: QUIET, 32: QUIET})
    expensive = next(iter(with_outlier.values()))
    for device_s, rounds in ((share_s(plan) * 3 / 4.99, []), (share_s(plan) * 3 / 5.01, [5])):
        expensive.device_s = device_s  # from three rounds: five cost slightly more than its share, or slightly less
        assert [work.rounds for work in wanted(plan, with_outlier)] == rounds
    assert wanted(plan, with_outlier | {expensive.id: structs.replace(expensive, guards={"trend": 0.1})}) == []


def test_a_point_with_five_rounds_continues_if_the_inner_rounds_disagree() -> None:
    plan = pairs_plan()
    of = point(PAIR.format(0, 1, 8), status="missed_precision", flows=[flow([1e-6, 1.04e-6, 0.96e-6, 1e-6, 1.03e-6])],
               device_s=1e-3, precision_target=0.05)  # fmt: skip
    assert [work.rounds for work in wanted(plan, {of.id: of})] == [6]


def test_points_of_the_class_count_by_their_first_three_rounds() -> None:
    """Later rounds, and the precision that they reach, do not matter."""
    calm = three_rounds({8: LOUD, 16: QUIET, 32: QUIET, 64: QUIET})
    for of in list(calm.values())[1:]:
        of.flows[0].round_medians_s = [*QUIET, *QUIET]
    assert by_size(pairs_plan(), calm) == {8: 5}
    loud = three_rounds({8: QUIET, 16: LOUD, 32: LOUD, 64: LOUD})
    for of in list(loud.values())[1:]:
        of.status, of.flows[0].round_medians_s = "ok", [*LOUD, *[1e-6] * 9]
    assert by_size(pairs_plan(), loud) == {8: 6}
    for of in list(calm.values())[1:]:
        of.status = "failed"
    assert by_size(pairs_plan(), calm) == {8: 6}


def test_after_five_rounds_the_scheduled_looks_decide() -> None:
    found = three_rounds({8: LOUD, 16: QUIET, 32: QUIET})
    found[PAIR.format(0, 1, 8)].flows[0].round_medians_s = [1e-6, 1.04e-6, 0.96e-6, 1e-6, 1.03e-6]
    assert by_size(pairs_plan(), found) == {8: 6}


def test_six_rounds_of_a_point_that_agrees_by_chance_must_fit_its_share() -> None:
    plan = pairs_plan()
    found = three_rounds({8: QUIET, 16: LOUD, 32: LOUD, 64: LOUD})
    quiet = found[PAIR.format(0, 1, 8)]
    for most, expected in ((5.99, None), (6.01, 6)):
        quiet.device_s = share_s(plan) * 3 / most
        assert by_size(plan, found).get(8) == expected


@pytest.mark.parametrize("expensive", [False, True])
def test_with_the_remaining_time_expensive_points_get_five_rounds_too(expensive: bool) -> None:
    """One outlier makes 36 rounds look hopeless, but the rest of the class agrees."""
    plan = pairs_plan()
    found = three_rounds({8: [1e-6, 1.5e-6, 1.001e-6], 16: QUIET, 32: QUIET})
    if expensive:
        found[PAIR.format(0, 1, 8)].device_s = share_s(plan)
    assert by_size(plan, found) == ({} if expensive else {8: 5})
    assert [work.rounds for work in late_work(plan, found, 1000.0)] == [5]


def test_no_path_is_called_slow_by_three_rounds() -> None:
    """One of several equal paths is slower: this path and the compared ones get three more rounds if these help."""
    plan = pairs_plan()
    (kind,) = plan.classes
    steady = [1.0e-3, 1.0005e-3, 0.9995e-3]

    def at_16_mib(slow: float) -> dict[str, Point]:
        found = {}
        for number, path in enumerate(kind.paths):
            src, dst = (place.rpartition(":")[2] for place in path.split("->"))
            rounds = [of * (slow if number == 5 else 1.0) for of in steady]
            id = PAIR.format(src, dst, 16 << 20)
            found[id] = point(
                id, flows=[flow(rounds)], median_s=rounds[0], ci95_s=(rounds[2], rounds[1]), device_s=1e-3,
                precision_target=0.01,
            )  # fmt: skip
        return found

    assert wanted(plan, at_16_mib(1.0)) == []
    points = at_16_mib(1.1)
    slow = next(id for id, of in points.items() if of.median_s > 1.05e-3)
    requested = {work.id: work.rounds for work in wanted(plan, points)}
    assert slow in requested and len(requested) == 2 and set(requested.values()) == {6}
    points = at_16_mib(1.1)
    points[slow].guards["trend"] = 0.1
    assert slow not in {work.id for work in wanted(plan, points)}
