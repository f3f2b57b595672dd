"""Whether the rounds of similar points fall into separate modes, such as good and bad placement of pages.

Three rounds of such a point may all be of one mode, and then agree although the median lies elsewhere. One point does
not show this, but a family of points does.
"""

import math
from collections.abc import Iterable, Sequence

LEAST_POINTS = 12  # fewer points do not show modes reliably
_CLEAR_POINTS = 4  # enough for modes that are far apart
_LIMIT = 0.005  # probability that a family of normal noise is taken for one with modes
_EFFECT = 1.5  # mean of the angles' logarithms; 1 without modes, 2.6 with two modes of 40 % and 60 %
_TRIPLE = 3
_NEAREST = 1e-4  # equal rounds, for example by the tick of a clock, count as this near


def is_regular(rounds: Iterable[Sequence[float]], least: int = LEAST_POINTS, *, unknown: bool = False) -> bool:
    """Whether the rounds of a family's points show no separate modes; `unknown` if there are fewer than `least`.

    The direction of the residuals of three normal values is uniform on a circle, whatever their deviation. So the
    place of the second value between the others, as an angle, has a known distribution without any estimate. Modes
    put it near one of the others. Fisher's product of probabilities combines the points.
    """
    angles = [angle for of in rounds for angle in _angles(of)]
    total = -sum(math.log(max(angle, _NEAREST)) for angle in angles)
    if len(angles) >= _CLEAR_POINTS and total >= _EFFECT * len(angles) and _gamma_tail(total, len(angles)) < _LIMIT:
        return False
    return len(angles) >= least or unknown


def _angles(rounds: Sequence[float]) -> Iterable[float]:
    """For every three consecutive rounds, the place of the middle value: 1 half way between the others, near 0 beside
    one of them. Uniform for normal noise."""
    for at in range(0, len(rounds) - _TRIPLE + 1, _TRIPLE):
        low, middle, high = sorted(rounds[at : at + _TRIPLE])
        near, far = sorted((middle - low, high - middle))
        if far > 0:
            # In the plane of residuals, the tangent is sqrt(3) times the small gap over the small gap plus twice the
            # large one.
            yield math.atan(math.sqrt(3) * near / (near + 2 * far)) / (math.pi / 6)


def _gamma_tail(value: float, count: int) -> float:
    """The probability that the sum of `count` exponential values exceeds `value`."""
    logs, term = [0.0], 0.0
    for k in range(1, count):
        term += math.log(value / k)
        logs.append(term)
    most = max(logs)
    return min(1.0, math.exp(most - value) * sum(math.exp(one - most) for one in logs))
