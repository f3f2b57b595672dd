"""Robust least squares on problems with known answers."""

import numpy as np
import pytest

from linkscope.stats.least_squares import huber, least_squares

SIZES = np.logspace(1, 9, 40)


def problem(truth, seconds, sigma=0.01):
    """The residuals of log(latency) and log(seconds per byte)."""

    def residuals(x):
        return (np.log(np.exp(x[0]) + np.exp(x[1]) * SIZES) - np.log(seconds)) / sigma

    return residuals, np.log(truth)


def fit(residuals, start):
    return least_squares(residuals, start, np.full(start.size, -60.0), np.full(start.size, 20.0))


def test_a_line_is_found_from_a_distant_start() -> None:
    truth = np.array([3e-6, 2e-11])
    residuals, x = problem(truth, truth[0] + truth[1] * SIZES)
    assert np.exp(fit(residuals, x + np.array([1.5, -1.5])).x) == pytest.approx(truth, rel=0.002)


def test_ten_percent_of_outliers_change_little() -> None:
    truth = np.array([3e-6, 2e-11])
    seconds = truth[0] + truth[1] * SIZES
    seconds[::10] *= 3
    residuals, x = problem(truth, seconds)
    assert np.exp(fit(residuals, x + 0.5).x) == pytest.approx(truth, rel=0.02)


def test_deviations_match_those_of_repeated_measurements() -> None:
    truth, generator = np.array([3e-6, 2e-11]), np.random.default_rng(1)
    found, estimated = [], []
    for _ in range(100):
        seconds = (truth[0] + truth[1] * SIZES) * np.exp(generator.normal(0, 0.01, SIZES.size))
        residuals, x = problem(truth, seconds)
        fitted = fit(residuals, x + 0.2)
        found.append(fitted.x)
        estimated.append(fitted.deviation)
    assert np.std(found, axis=0) == pytest.approx(np.median(estimated, axis=0), rel=0.3)


def test_residuals_beyond_their_own_deviations_widen_the_deviations_of_the_parameters() -> None:
    sides = np.where(np.arange(20) % 2, 1.0, -1.0)
    expected, larger = (fit(lambda x, size=size: x[0] + size * sides, np.zeros(1)).deviation[0] for size in (0.5, 3.0))
    assert expected == pytest.approx(1 / np.sqrt(20), rel=0.02) and larger > 2 * expected


def test_undetermined_parameters_keep_their_start_and_are_uncertain() -> None:
    fitted = fit(lambda x: (x[:1] + x[1:2] - 1.0) / 0.01, np.zeros(2))
    assert fitted.x.sum() == pytest.approx(1.0, abs=1e-3) and fitted.x[0] == pytest.approx(fitted.x[1], abs=1e-3)
    assert min(fitted.deviation) > 0.5


def test_bounds_are_respected() -> None:
    fitted = least_squares(lambda x: (x - 5.0) / 0.1, np.array([0.0]), np.array([-1.0]), np.array([2.0]))
    assert fitted.x == pytest.approx([2.0])


def test_the_huber_loss_is_quadratic_and_then_linear() -> None:
    assert huber(np.array([1.0])) == pytest.approx(0.5)
    assert huber(np.array([10.0])) == pytest.approx(1.345 * (10 - 1.345 / 2))
