"""Statistics: known answers, properties, coverage by simulation, and no difference claimed between equal work."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linkscope.stats import (
    bimodal,
    mad,
    median,
    median_interval,
    more_rounds,
    slope,
    steady,
    trend,
    variance_split,
)
from linkscope.stats.modes import LEAST_POINTS, is_regular

samples = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=40)


# Ranks and levels of the interval of the median: Hahn and Meeker, table A.15a.
@pytest.mark.parametrize(
    "count, low, high, level",
    [(6, 1, 6, 0.969), (9, 2, 8, 0.961), (10, 2, 9, 0.979), (16, 4, 13, 0.979), (20, 6, 15, 0.959), (30, 10, 21, 0.957),
     (50, 18, 33, 0.967), (100, 40, 61, 0.965)],
)  # fmt: skip
def test_the_ranks_of_the_interval_match_the_table(count: int, low: int, high: int, level: float) -> None:
    interval = median_interval([float(n) for n in range(count, 0, -1)])
    assert interval is not None
    assert (interval.low, interval.high) == (low, high)
    assert interval.level == pytest.approx(level, abs=5e-4)


@pytest.mark.parametrize("count", range(1, 6))
def test_fewer_than_six_values_have_no_interval(count: int) -> None:
    assert median_interval([1.0] * count) is None


@pytest.mark.parametrize("draw", [random.Random.gauss, random.Random.lognormvariate, random.Random.uniform])
@pytest.mark.parametrize("count", [6, 9, 15])
def test_the_interval_covers_the_median(draw, count: int) -> None:
    chance = random.Random(7)
    truth = {"gauss": 0.0, "lognormvariate": 1.0, "uniform": 0.5}[draw.__name__]
    covered = 0
    for _ in range(2000):
        interval = median_interval([draw(chance, 0, 1) for _ in range(count)])
        assert interval is not None
        covered += interval.low <= truth <= interval.high
    assert covered / 2000 > 0.94


def test_more_rounds_narrow_the_interval() -> None:
    assert [more_rounds(count) for count in (1, 5, 6, 7, 8, 9, 12)] == [6, 6, 9, 9, 9, 12, 15]


@given(samples, st.floats(1e-3, 1e3))
def test_median_and_mad_scale_with_the_values(values: list[float], factor: float) -> None:
    assert median([value * factor for value in values]) == pytest.approx(median(values) * factor)
    assert mad([value * factor for value in values]) == pytest.approx(mad(values) * factor, abs=1e-9)


@given(samples, st.randoms())
def test_the_median_ignores_the_order(values: list[float], chance: random.Random) -> None:
    shuffled = values.copy()
    chance.shuffle(shuffled)
    assert median(shuffled) == median(values)
    assert sum(value < median(values) for value in values) <= len(values) / 2


@given(st.floats(0, 1e-3), st.floats(1e-8, 1e-2), st.integers(1, 256))
def test_the_slope_recovers_a_line(once: float, each: float, count: int) -> None:
    line = slope(once + count * each, once + 2 * count * each, count, 2 * count)
    assert line.each_s == pytest.approx(each, rel=1e-6, abs=1e-15 + once * 1e-12)
    assert line.once_s == pytest.approx(once, abs=1e-9 + count * each * 1e-9)


def test_the_slope_of_a_single_operation_removes_the_stamps() -> None:
    line = slope(1.25e-6, 9.65e-6, 0, 1)
    assert line.each_s == pytest.approx(8.4e-6)
    assert line.once_s == pytest.approx(1.25e-6)


def test_steady_samples_are_recognised() -> None:
    assert steady([1.0, 1.0, 1.0], 0.01)
    assert not steady([1.0], 0.01)
    assert steady([1.0, 1.004], 0.01) and not steady([1.0, 1.01], 0.01)
    assert not steady([1.0, 1.1, 1.2], 0.01) and steady([1.0, 1.1, 1.2], 0.01, absolute=0.5)


def test_the_variance_split_has_a_known_answer() -> None:
    # Kalibera and Jones 6.2 by hand: variances within 2, 2; means 2, 6; S2^2 = 8; T2^2 = 8 - 2/2 = 7.
    split = variance_split([[1.0, 3.0], [5.0, 7.0]])
    assert split is not None and (split.within, split.between) == (2.0, 7.0)
    # Rounds of two and one: variance within 2; means 10, 20; S2^2 = 50; the mean of 1/2 and 1/1 is 3/4: T2^2 = 48.5.
    uneven = variance_split([[9.0, 11.0], [20.0]])
    assert uneven is not None and (uneven.within, uneven.between) == (2.0, 48.5)
    assert variance_split([[1.0, 2.0]]) is None
    assert variance_split([[1.0], [2.0]]) is None


def test_the_variance_split_recovers_both_levels() -> None:
    chance = random.Random(3)
    rounds = []
    for _ in range(2000):
        centre = chance.gauss(10, 3)
        rounds.append([chance.gauss(centre, 1) for _ in range(5)])
    split = variance_split(rounds)
    assert split is not None
    assert split.within == pytest.approx(1, rel=0.1) and split.between == pytest.approx(9, rel=0.1)


def test_both_modes_are_found() -> None:
    chance = random.Random(1)
    values = [chance.gauss(1, 0.01) for _ in range(18)] + [chance.gauss(1.5, 0.01) for _ in range(12)]
    modes = bimodal(values)
    assert modes is not None and modes == pytest.approx((1, 1.5), abs=0.02)


@pytest.mark.parametrize("draw", [random.Random.gauss, random.Random.lognormvariate, random.Random.uniform])
def test_one_mode_is_not_called_two(draw) -> None:
    chance = random.Random(5)
    alarms = sum(bimodal([draw(chance, 0, 0.5) for _ in range(30)]) is not None for _ in range(1000))
    assert alarms <= 10


@pytest.mark.parametrize("gap, two", [(4.9, False), (5.1, True)])
def test_two_modes_are_at_least_five_deviations_apart(gap: float, two: bool) -> None:
    """The median distance from either mode's median is 1."""
    low = [-2.0, -1.5, -1.0, -1.0, -0.5, 0.0, 0.5, 1.0, 1.0, 1.5, 2.0]
    values = low + [4.0 + gap + value for value in low]
    assert (bimodal(values) is not None) is two


def test_few_samples_show_no_modes() -> None:
    assert bimodal([1.0] * 9 + [2.0] * 9) is None
    assert bimodal([1.0] * 30) is None


def test_three_samples_are_a_mode_and_two_are_not() -> None:
    assert bimodal([1.0] * 3 + [2.0] * 17) == (1.0, 2.0) == bimodal([1.0] * 17 + [2.0] * 3)
    assert bimodal([1.0] * 2 + [2.0] * 18) is None


def test_a_trend_is_sought_within_rounds_and_not_between_them() -> None:
    falling = [[5.0, 4.0, 3.0, 2.0, 1.0]] * 4
    assert trend(falling) == pytest.approx(-40 / (4 * 5 * 4 * 15 / 18) ** 0.5)
    assert trend([of[::-1] for of in falling]) == -trend(falling)
    assert trend([[9.0] * 5, [8.0] * 5, [7.0] * 5]) == 0 == trend([[1.0]]) == trend([])


def test_without_a_trend_the_test_statistic_is_standard_normal() -> None:
    chance = random.Random(7)
    found = [trend([[chance.random() for _ in range(6)] for _ in range(6)]) for _ in range(4000)]
    assert 0.035 < sum(abs(z) > 1.96 for z in found) / len(found) < 0.065
    assert not any(abs(z) > 4.5 for z in found)


def test_each_round_of_a_point_belongs_to_one_triple_of_the_search_for_modes() -> None:
    even = [1.0, 2.0, 3.0, 2.0]  # four rounds have one triple, so twelve points are enough and eleven are not
    assert is_regular([even] * LEAST_POINTS) and not is_regular([even] * (LEAST_POINTS - 1))


@pytest.mark.parametrize("total, regular", [(22.3, True), (23.5, False)])
def test_a_family_has_modes_where_chance_gives_its_angles_at_most_once_in_200_families(
    total: float, regular: bool
) -> None:
    """The sum of twelve exponential values exceeds 22.8 with this probability."""
    tangent = math.tan(math.exp(-total / 12) * math.pi / 6)
    near = 2 * tangent / (math.sqrt(3) - tangent)
    assert is_regular([[1.0, 1.0 + near, 2.0 + near]] * 12) is regular
