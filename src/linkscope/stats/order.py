"""Tests whether a sequence of values has a trend.

Mann, Nonparametric tests against trend, Econometrica 13, 1945; Kendall, Rank Correlation Methods, 1948.
"""

import functools
from collections.abc import Sequence


def trend_chance(values: Sequence[float]) -> float:
    """The probability that values in random order rise, or fall, at least as steadily as these (two-sided).

    Exact without ties; ties count for neither direction, which makes the probability larger.
    """
    count = len(values)
    pairs = [(i, j) for i in range(count) for j in range(i + 1, count)]
    rising = sum(values[i] < values[j] for i, j in pairs)
    falling = sum(values[i] > values[j] for i, j in pairs)
    disorder = len(pairs) - max(rising, falling)
    orders = _inversions(count)
    return min(1.0, 2 * sum(orders[: disorder + 1]) / sum(orders))


@functools.lru_cache(maxsize=64)
def _inversions(count: int) -> tuple[int, ...]:
    """The number of orders of `count` things with 0, 1, 2, … pairs out of order."""
    orders = [1]
    for size in range(2, count + 1):
        longer = [0] * (len(orders) + size - 1)
        for at, ways in enumerate(orders):
            for more in range(size):
                longer[at + more] += ways
        orders = longer
    return tuple(orders)
