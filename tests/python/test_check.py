"""How a model is held against what it has not seen: the halves are two, and errors are what they say."""

import pytest

from invented import point
from linkscope.model.check import MOST, MOST_JOINT, Check, Held, family_of, split, summary
from linkscope.model.observed import observed

H2D = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?bidirectional={}&mode={}"


def of_family(mode: str = "batched") -> list:
    return [point(H2D.format(gpu, 8 << at, "false", mode), 1e-6) for gpu in range(2) for at in range(5)]


def test_what_is_held_out_was_not_fitted_to_and_every_family_is_in_both_halves() -> None:
    points = [*of_family(), *of_family("single")]
    kept, out = split(points, 1)
    assert {one.id for one in kept}.isdisjoint(one.id for one in out)
    assert sorted(one.id for one in [*kept, *out]) == sorted(one.id for one in points)
    for half in (kept, out):
        assert sorted(one.params["mode"] for one in half) == ["batched"] * 5 + ["single"] * 5


def test_halves_are_a_draw_of_the_seed_and_not_of_the_order() -> None:
    points = of_family()
    ids = [[one.id for one in split(points, seed)[0]] for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]
    assert [one.id for one in split(points[::-1], 1)[0]] == ids[0]


def held(errors: list[float | None], both: str = "false") -> list[Held]:
    (one, *_) = observed([point(H2D.format(0, 8, both, "batched"), 1e-6)])
    return [Held(one, error, None) for error in errors]


def test_errors_are_sizes_and_what_has_no_prediction_is_counted() -> None:
    found = summary(held([-0.04, 0.01, None, 0.02, -0.03, 0.0]), lambda one: one.by_file)
    assert (found.count, found.untold, found.median, found.worst) == (6, 1, 0.02, 0.04)
    assert found.ninety == pytest.approx(0.036)
    none = summary(held([None, None]), lambda one: one.by_file)
    assert (none.count, none.untold, none.median, none.ninety, none.worst) == (2, 2, None, None, None)


@pytest.mark.parametrize(
    "alone, joint, told",
    [(0.029, 0.029, []), (0.031, 0.029, ["all"]), (0.01, 0.09, []), (0.01, 0.11, ["joint transfers"])],
)
def test_bounds_are_3_percent_of_all_and_10_of_joint_transfers(alone: float, joint: float, told: list[str]) -> None:
    assert (MOST, MOST_JOINT) == (0.03, 0.10)
    found = Check({}, 0, tuple([*held([alone] * 3), *held([joint] * 2, "true")])).too_far()
    assert [one.partition(":")[0] for one in found] == told


def test_joint_transfers_and_single_ones_are_families_of_their_own() -> None:
    def name(both: str, mode: str) -> str:
        return family_of(observed([point(H2D.format(0, 8, both, mode), 1e-6)])[0])

    assert [name("false", "batched"), name("true", "batched"), name("false", "single")] == [
        "h2d by ce, pinned -> device", "h2d by ce, pinned -> device, both ways", "h2d by ce, pinned -> device, single"
    ]  # fmt: skip
