"""The sizes of a curve and the clusters of a class: known answers."""

import itertools
import math
import random

import pytest

from linkscope.plan.classes import checks
from linkscope.plan.curve import Timed, bracketing_sizes, finer_sizes
from linkscope.stats import breaks, clusters, holm

KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, 256, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)


def timed(seconds: float, doubt: float = 0.002) -> Timed:
    return Timed(seconds, doubt)


# --- sizes ---


def test_a_straight_line_needs_no_more_sizes() -> None:
    wanted = {size: timed(2e-6 + size / 50e9) for size in (*SIZES, 64, KIB)}  # no gap wider than a factor of 8
    assert finer_sizes(wanted) == []


def broken(measured: dict[int, Timed]) -> list[tuple[int, int]]:
    sizes = sorted(measured)
    found = breaks(sizes, [measured[size].seconds for size in sizes], [measured[size].doubt for size in sizes])
    return [(sizes[at], sizes[at + 1]) for at in found]


def test_a_cliff_is_bracketed() -> None:
    """From 100 KiB all operations take 3 times the time."""

    def seconds(size: int) -> float:
        return (2e-6 + size / 50e9) * (3 if size > 100 * KIB else 1)

    measured = {size: timed(seconds(size)) for size in SIZES}
    while wanted := finer_sizes(measured):
        assert not set(wanted) & set(measured)
        measured |= {size: timed(seconds(size)) for size in wanted}
    assert broken(measured) == [(96 * KIB, 128 * KIB)]
    assert len(measured) <= 20  # of 28 powers of two and as many sizes between them


def test_a_cliff_before_the_largest_size_is_bracketed() -> None:
    """Copies above 225 MiB are streamed at 12.8 GB/s instead of 7.9: 4 times the bytes take 2.5 times the time."""

    def seconds(size: int) -> float:
        return 1e-7 + size / (12.8e9 if size > 225 * MIB else 7.9e9)

    measured = {size: timed(seconds(size), 0.01) for size in SIZES}
    found = [broken(measured)]
    while wanted := bracketing_sizes(measured):
        assert set(wanted) <= set(finer_sizes(measured))
        measured |= {size: timed(seconds(size), 0.01) for size in wanted}
        found.append(broken(measured))
    assert found == [[(64 * MIB, 256 * MIB)], [(128 * MIB, 256 * MIB)], [(192 * MIB, 256 * MIB)]]


def test_a_break_is_bracketed_and_a_bend_is_not() -> None:
    bend = {size: timed(max(2e-6 + size / 400e9, 1e-6 + size / 150e9), 0.0) for size in SIZES}
    assert finer_sizes(bend) and bracketing_sizes(bend) == []
    slower = {size: timed((2e-6 + size / 50e9) * (3 if size > 100 * KIB else 1)) for size in SIZES}
    assert bracketing_sizes(slower) == [128 * KIB] and len(finer_sizes(slower)) > 1
    few = {size: of for size, of in slower.items() if size >= 64 * KIB}
    assert len(few) == 7 and broken(few) and bracketing_sizes(few) == []  # a sample of the curve


def test_a_bend_is_refined_until_lines_between_sizes_describe_the_curve() -> None:
    """The maximum of two lines. Interpolation between the chosen sizes has an error of at most 3 %."""

    def seconds(size: int) -> float:
        return max(2.5e-6 + size / 400e9, 1.5e-6 + size / 150e9)

    measured = {size: timed(seconds(size), 0.0) for size in SIZES}
    while wanted := finer_sizes(measured):
        measured |= {size: timed(seconds(size), 0.0) for size in wanted}
    sizes = sorted(measured)
    for small, large in itertools.pairwise(sizes):
        for share in (0.2, 0.5, 0.8):
            at = round(small + share * (large - small))
            line = seconds(small) + (at - small) / (large - small) * (seconds(large) - seconds(small))
            assert line == pytest.approx(seconds(at), rel=0.03)


def test_larger_sizes_are_added_while_the_rate_grows() -> None:
    rising = {size: timed(20e-3 + size / 50e9) for size in SIZES}  # half of the best rate at 1 GB
    assert finer_sizes(rising)[-1] == 512 * MIB
    assert 512 * MIB not in finer_sizes({size: timed(20e-6 + size / 50e9) for size in SIZES})


@pytest.mark.parametrize("doubt, wanted", [(0.001, True), (0.02, False)])
def test_a_rate_counts_as_rising_only_beyond_its_uncertainty(doubt: float, wanted: bool) -> None:
    """The rate gains 3 % per doubling; 2 % would be too little."""
    measured = {1 << at: timed((1 << at) / (50e9 * 1.03**at), doubt) for at in range(20, 29)}
    assert (finer_sizes(measured)[-1:] == [512 * MIB]) is wanted


@pytest.mark.parametrize("doubt, wanted", [(0.001, True), (0.017, True), (0.02, False)])
def test_a_bend_exceeds_the_uncertainty_of_the_line_through_its_neighbours(doubt: float, wanted: bool) -> None:
    """The size takes 4.3 % more. Allowed are 2 % plus 1.25 times the uncertainty of each: 0.75 from the line, and 1."""
    measured = {8 << at: timed(1e-6 * (1.043 if at == 5 else 1), doubt) for at in range(10)}
    assert ({192, 384} <= set(finer_sizes(measured))) is wanted


@pytest.mark.parametrize("doubt, wanted", [(0.001, True), (0.03, False)])
def test_a_bend_between_two_sizes_is_sought_only_beyond_the_uncertainty(doubt: float, wanted: bool) -> None:
    """Two lines that meet between 64 and 128 B, 3.4 % below the chord."""
    bend = 64 * math.sqrt(2)
    measured = {size: timed(1e-6 * (1 + 0.0023 * max(0.0, size - bend)), doubt) for size in (8, 16, 32, 64, 128, 256)}
    measured |= {size: timed(measured[256].seconds * size / 256, doubt) for size in (512, 1024)}
    assert (96 in finer_sizes(measured)) is wanted


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("doubt, wanted", [(0.002, True), (0.04, False)])
def test_a_step_is_bracketed_even_if_the_time_grows_across_it(factor: float, doubt: float, wanted: bool) -> None:
    """From 100 KiB all operations take about 10 % longer; a line could join two sizes alone."""

    def seconds(size: int) -> float:
        return (2e-6 + size / 50e9) * (factor if size > 100 * KIB else 1)

    measured = {size: timed(seconds(size), doubt) for size in SIZES}
    while more := finer_sizes(measured):
        measured |= {size: timed(seconds(size), doubt) for size in more}
    assert broken(measured) == ([(96 * KIB, 128 * KIB)] if wanted else [])


def test_a_possible_step_is_judged_by_the_more_distant_of_two_lines() -> None:
    sizes = [8 << 2 * at for at in range(8)]
    measured = {size: timed(size + (0.022 * 2048 if size >= 2048 else 0), 0.0) for size in sizes}
    assert 1024 in finer_sizes(measured)


@pytest.mark.parametrize("noise", [1e-9, 0.0, -1e-9])
def test_a_straight_line_before_a_bend_needs_no_more_sizes(noise: float) -> None:
    """Slopes 1, 1.001 and, from 2 KiB, 1.031; the sign of a negligible bend does not matter."""
    sizes = [8 << 2 * at for at in range(8)]
    measured = {at: timed(at + 0.001 * max(0, at - 512) + 0.03 * max(0, at - 2048), 1e-6) for at in sizes}
    measured[512] = timed(measured[512].seconds * (1 + noise), 1e-6)
    assert finer_sizes(measured) == []


@pytest.mark.parametrize("end", [512, 2048])
def test_either_end_of_a_gap_may_have_the_uncertainty(end: int) -> None:
    measured = {
        8 << at: timed((8 << at) + (0.022 * 2048 if 8 << at >= 2048 else 0), 0.0) for at in range(12) if at != 7
    }
    assert 1024 in finer_sizes(measured)
    measured[end] = timed(measured[end].seconds, 0.04)
    assert 1024 not in finer_sizes(measured)


@pytest.mark.parametrize("off", [1 << 27, 1 << 28])
def test_either_of_the_last_two_sizes_may_have_the_uncertainty(off: int) -> None:
    measured = {
        1 << at: timed((1 << at) / (50e9 * 1.03**at), 0.02 if 1 << at == off else 0.001) for at in range(20, 29)
    }
    assert 512 * MIB not in finer_sizes(measured)


@pytest.mark.parametrize("by_doubling, wanted", [(1.015, False), (1.025, True)])
def test_the_gain_of_a_rate_is_measured_per_doubling(by_doubling: float, wanted: bool) -> None:
    measured = {1 << at: timed((1 << at) / (50e9 * by_doubling**at), 0.0) for at in range(12, 29, 2)}
    assert (512 * MIB in finer_sizes(measured)) is wanted


def test_the_largest_size_is_1_gib() -> None:
    rising = {size: timed(20e-3 + size / 50e9) for size in (*SIZES, 512 * MIB)}
    assert finer_sizes(rising)[-1] == 1024 * MIB
    assert max(finer_sizes(rising | {1024 * MIB: timed(20e-3 + 1024 * MIB / 50e9)}), default=0) < 1024 * MIB


def test_a_size_without_a_time_is_ignored() -> None:
    measured = {size: timed(20e-3 + size / 50e9) for size in SIZES}
    assert finer_sizes(measured | {512 * MIB: timed(0.0)}) == finer_sizes(measured)


def test_a_break_is_bisected_even_if_three_sizes_are_on_a_line() -> None:
    """32 B takes 2.09 times the time of 16 B."""
    assert 24 in finer_sizes({8 << at: timed(0.15 * (8 << at) - 0.2, 0.0) for at in range(10)})


def test_checked_sizes_are_one_small_one_large_and_one_between() -> None:
    assert checks(SIZES) == [8, 64 * KIB, 16 * MIB]
    assert checks([4 * KIB, MIB, 64 * MIB]) == [4 * KIB, MIB, 64 * MIB]
    assert checks([MIB, 16 * MIB, 64 * MIB]) == [MIB, 16 * MIB]  # the largest size is expensive and adds nothing
    assert checks([0]) == [0]
    assert checks([8, 64, 4 * KIB, 16 * MIB]) == [8, 4 * KIB, 16 * MIB]  # the larger of the two sizes between


# --- clusters ---


def test_holm_rejects_step_by_step() -> None:
    """Holm 1979: 0.01 <= 0.05/3, then 0.02 <= 0.05/2, then 0.06 > 0.05."""
    assert holm([0.06, 0.01, 0.02], 0.05) == [False, True, True]
    assert holm([0.03, 0.02, 0.04], 0.05) == [False, False, False]


Drawn = dict[str, dict[int, list[float]]]


def drawn(chance: random.Random, slow: dict[int, float], noise: float, members: int = 12) -> Drawn:
    return {
        f"m{member}": {
            size: [slow.get(member, 1.0) * math.exp(chance.gauss(0, noise)) for _ in range(3)] for size in (8, 64, 512)
        }
        for member in range(members)
    }


def test_equal_members_stay_in_one_cluster() -> None:
    """At any noise level, equal members are separated in at most as many runs as the level allows."""
    for noise in (0.001, 0.01, 0.05):
        chance = random.Random(f"alike {noise}")
        apart = 0
        for _ in range(300):
            rounds = drawn(chance, {}, noise)
            apart += any(of.verdict == "other" or of.leader != "m0" for of in
                         clusters(list(rounds), rounds, lambda size: 0.03, 0.05).values())  # fmt: skip
        assert apart <= 0.05 * 300


@pytest.mark.parametrize("factor", [1.05, 1.1, 1.3])
def test_a_member_that_differs_leads_its_own_cluster(factor: float) -> None:
    chance = random.Random(f"slow {factor}")
    for _ in range(50):
        rounds = drawn(chance, {3: factor, 7: factor}, 0.002)
        found = clusters(list(rounds), rounds, lambda size: 0.03, 0.01)
        assert found["m3"].leader == "m3" and found["m7"].leader == "m3" and found["m7"].verdict == "same"
        assert {name for name, of in found.items() if of.leader == "m0"} == rounds.keys() - {"m3", "m7"}


def test_if_the_first_member_differs_all_others_share_a_cluster() -> None:
    rounds = drawn(random.Random(1), {0: 1.2}, 0.002)
    found = clusters(list(rounds), rounds, lambda size: 0.03, 0.01)
    assert {of.leader for name, of in found.items() if name != "m0"} == {"m1"}


def test_members_are_the_same_only_if_equal_at_every_size() -> None:
    """At 8 B noise hides a possible difference, at 64 MiB there is none: undecided."""
    wide, still = (0.5, 1.0, 2.0), (0.999, 1.0, 1.001)
    rounds = {name: {8: wide, 64 << 20: still} for name in ("a", "b")}
    assert clusters(["a", "b"], rounds, lambda size: 0.03, 0.01)["b"].verdict == "undecided"
    same = {name: {8: still, 64 << 20: still} for name in ("a", "b")}
    assert clusters(["a", "b"], same, lambda size: 0.03, 0.01)["b"].verdict == "same"
    apart = {"a": {8: still}, "b": {64 << 20: still}}
    assert clusters(["a", "b"], apart, lambda size: 0.03, 0.01)["b"].verdict == "undecided"


def test_differences_hidden_by_noise_are_undecided() -> None:
    rounds = drawn(random.Random(2), {}, 0.1)
    found = clusters(list(rounds), rounds, lambda size: 0.03, 0.01)
    assert {of.verdict for name, of in found.items() if name != "m0"} == {"undecided"}
