"""Robust nonlinear least squares: Levenberg-Marquardt steps, Huber's weights, numeric derivatives."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_HUBER = 1.345  # standard deviations from which a residual counts linearly: 95 % efficient for a normal distribution
_STEP = -0.004  # of a derivative; downwards, since a capacity above that of another part has no effect
_MOST_STEPS = 25
_SETTLED = 1e-5
_PRIOR = 2.0  # standard deviation of every parameter around its start, which keeps undetermined parameters there


@dataclass(frozen=True)
class Fitted:
    """Parameters, their standard deviations (those of the prior if the data determine nothing), and the loss."""

    x: Vector
    deviation: Vector
    loss: float


def huber(residuals: Vector) -> float:
    """Huber's loss: half the square up to a bound, linear beyond it (Huber 1964)."""
    size = np.abs(residuals)
    return float(np.sum(np.where(size <= _HUBER, size**2 / 2, _HUBER * (size - _HUBER / 2))))


def least_squares(
    residuals: Callable[[Vector], Vector], start: Vector, low: Vector, high: Vector, most_steps: int = _MOST_STEPS
) -> Fitted:
    """The parameters within [low, high] with the least Huber loss of the residuals, starting at `start`.

    Residuals are in standard deviations. Steps follow Marquardt (1963); weights are those of iteratively reweighted
    least squares.
    """
    if start.size == 0:
        return Fitted(start, start.copy(), huber(residuals(start)))
    x = np.clip(start, low, high)
    value = residuals(x)
    loss, damping = _loss(value, x, start), 1e-3
    jacobian = _jacobian(residuals, x, value, low)
    for _ in range(most_steps):
        weights = _weights(value)
        normal = (jacobian.T * weights) @ jacobian + np.eye(x.size) / _PRIOR**2
        slope = (jacobian.T * weights) @ value + (x - start) / _PRIOR**2
        moved = False
        while damping < 1e6:
            candidate = np.clip(x - np.linalg.solve(normal + damping * np.diag(np.diag(normal)), slope), low, high)
            tried = residuals(candidate)
            after = _loss(tried, candidate, start)
            if after < loss:
                moved = True
                break
            damping *= 5
        if not moved:
            break
        gain, x, value, loss = loss - after, candidate, tried, after
        damping = max(damping / 10, 1e-6)
        jacobian = _jacobian(residuals, x, value, low)
        if gain < _SETTLED * (1 + loss):
            break
    return Fitted(x, _deviation(jacobian, value), huber(value))


def _loss(value: Vector, x: Vector, start: Vector) -> float:
    return huber(value) + float(np.sum((x - start) ** 2)) / _PRIOR**2 / 2


def _weights(value: Vector) -> Vector:
    return np.minimum(1.0, _HUBER / np.maximum(np.abs(value), 1e-12))


def _jacobian(residuals: Callable[[Vector], Vector], x: Vector, value: Vector, low: Vector) -> Vector:
    columns = []
    for at in range(x.size):
        step = _STEP if x[at] + _STEP >= low[at] else -_STEP
        moved = x.copy()
        moved[at] += step
        columns.append((residuals(moved) - value) / step)
    return np.stack(columns, axis=1)


def _deviation(jacobian: Vector, value: Vector) -> Vector:
    """Deviations from the curvature and the prior, widened if the residuals exceed their own deviations."""
    weights = _weights(value)
    freedom = max(value.size - jacobian.shape[1], 1)
    scale = max(1.0, float(np.sum(weights * value**2)) / freedom)
    normal = (jacobian.T * weights) @ jacobian / scale + np.eye(jacobian.shape[1]) / _PRIOR**2
    deviation: Vector = np.sqrt(np.maximum(np.diag(np.linalg.inv(normal)), 0))
    return deviation
