"""Intervals of ratios that must hold jointly in their thousands, and significant trends."""

import itertools
import math

import numpy as np
import pytest

from linkscope.stats import geometric_mean, log_variance, ratio_interval, student_interval, trend_chance
from linkscope.stats.pooling import SIGMAS, Ratio
from linkscope.stats.ratios import PRIOR_FREEDOM, student_quantile, student_tail

SPREAD = 0.02
SHAPES = {
    "normal": lambda rng, size: np.exp(SPREAD * rng.standard_normal(size)),
    "heavy": lambda rng, size: np.exp(SPREAD * rng.standard_t(3, size) / math.sqrt(3)),
    "uniform": lambda rng, size: np.exp(SPREAD * math.sqrt(3) * rng.uniform(-1, 1, size)),
    "two modes": lambda rng, size: np.where(rng.random(size) < 0.5, 1.0, 1.04) * np.exp(0.001 * rng.normal(size=size)),
    "a rare mode": lambda rng, size: (
        np.where(rng.random(size) < 0.15, 1.06, 1.0) * np.exp(0.001 * rng.normal(size=size))
    ),
}


@pytest.mark.parametrize(
    ("freedom", "tail", "known"),  # published tables
    [
        (1, 0.025, 12.706),
        (2, 0.025, 4.303),
        (5, 0.005, 4.032),
        (10, 0.0005, 4.587),
        (16, 0.0005, 4.015),
        (30, 0.05, 1.697),
    ],
)
def test_the_t_distribution_matches_published_tables(freedom, tail, known) -> None:
    assert student_quantile(tail, freedom) == pytest.approx(known, abs=6e-4)
    assert student_tail(student_quantile(tail, freedom), freedom) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("level", [0.95, 0.99, 0.999])
def test_intervals_miss_at_most_as_often_as_their_level_allows(shape, level) -> None:
    rng = np.random.default_rng(7)
    count = 60_000
    logs = np.log(SHAPES[shape](rng, (2, count, 6)))
    variances = logs.var(axis=2, ddof=1)
    alike = variances.mean()
    pooled = (PRIOR_FREEDOM * alike + 5 * variances.sum(axis=0)) / (PRIOR_FREEDOM + 10)
    reach = student_quantile((1 - level) / 2, PRIOR_FREEDOM + 10) * np.sqrt(pooled / 3)
    missed = np.mean(np.abs(logs[1].mean(axis=1) - logs[0].mean(axis=1)) > reach)
    chance = 1 - level
    assert missed <= 1.1 * chance + 2 * math.sqrt(chance / count)
    # The intervals of all draws at once equal those of single calls.
    for k in range(3):
        found = ratio_interval(np.exp(logs[0, k]), np.exp(logs[1, k]), alike=alike, level=level)
        centre = math.exp(logs[1, k].mean() - logs[0, k].mean())
        assert (found.low, found.high) == pytest.approx((centre * math.exp(-reach[k]), centre * math.exp(reach[k])))


def test_a_known_ratio_has_a_known_interval() -> None:
    before, after = [1.0, 1.1, 1.21], [2.0, 2.2, 2.42]
    found = ratio_interval(before, after, alike=None, level=0.95)
    error = math.log(1.1) * math.sqrt(2 / 3)  # the logarithms deviate by log 1.1 on both sides
    assert math.log(found.high / 2) == pytest.approx(2.7764 * error, rel=1e-4)
    assert found.low * found.high == pytest.approx(4.0)
    assert log_variance(before) == pytest.approx(math.log(1.1) ** 2)
    assert geometric_mean(before) == pytest.approx(1.1)


def test_rounds_without_scatter_get_the_scatter_of_their_class() -> None:
    same = [1.0, 1.0, 1.0]
    single = ratio_interval(same, same, alike=None, level=0.95)
    assert single.low == single.high == 1.0
    kind = ratio_interval(same, same, alike=0.01**2, level=0.95)
    assert kind.high - kind.low > 0.02


def test_one_sample_per_side_gives_no_interval_without_its_class() -> None:
    assert ratio_interval([1.0], [2.0], alike=None, level=0.95) is None
    assert ratio_interval([1.0], [2.0], alike=0.01**2, level=0.95) is not None


def test_the_p_value_of_a_trend_is_exact() -> None:
    for count in (3, 4, 5, 6):
        orders = list(itertools.permutations(range(count)))
        chances = [trend_chance(order) for order in orders]
        for level in sorted(set(chances)):
            if level < 1:
                assert sum(chance <= level for chance in chances) / len(orders) == pytest.approx(level)
    assert trend_chance(range(10)) == pytest.approx(2 / math.factorial(10))
    assert trend_chance([1.0] * 8) == 1.0


def test_students_interval_matches_the_tables_and_has_its_nominal_coverage():
    found = student_interval([1.0, math.e**0.1, math.e**0.2])  # mean 0.1, deviation 0.1, t = 4.303 at 2 degrees
    assert found is not None
    assert math.log(found.low) == pytest.approx(0.1 - 4.303 * 0.1 / math.sqrt(3), rel=1e-3)
    assert math.log(found.high) == pytest.approx(0.1 + 4.303 * 0.1 / math.sqrt(3), rel=1e-3)
    rng = np.random.default_rng(7)
    inside = sum(
        interval.low <= 1 <= interval.high
        for drawn in np.exp(0.1 * rng.standard_normal((2000, 3)))
        if (interval := student_interval(drawn))
    )
    assert 0.935 < inside / 2000 < 0.965


@pytest.mark.parametrize("samples", [[], [1.0], [1.0, 2.0, 0.0], [1.0, -2.0]])
def test_samples_without_a_logarithm_have_no_interval(samples):
    assert student_interval(samples) is None


def test_two_differing_rounds_give_no_interval_at_an_extreme_level() -> None:
    """With two degrees of freedom Student's interval would exceed the largest floating-point number."""
    few = ratio_interval([1e-6, 3e-6], [2e-6, 9e-6], alike=None, level=1 - 1e-7)
    assert few is None and student_interval([1e-6, 9e-6], level=1 - 1e-7) is None
    wide = ratio_interval([1e-6, 3e-6], [2e-6, 9e-6], alike=None, level=0.95)
    assert wide is not None and 0 < wide.low < 1 < wide.high


def test_the_smallest_detectable_change_is_that_of_a_normal_test() -> None:
    """Where one deviation is certain, a two-sided test at 1 % with a power of 95 % needs 2.576 + 1.645 errors."""
    at = 36
    weights = np.zeros(len(SIGMAS))
    weights[at] = 1.0
    error = float(SIGMAS[at]) * math.sqrt(0.5)
    assert Ratio(0.0, weights, 0.5).detectable(0.99) == pytest.approx(math.expm1((2.576 + 1.645) * error), rel=0.005)
