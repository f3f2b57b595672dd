"""Chooses the number of operations of each concurrent flow, so that all flows end together."""

import math
from collections.abc import Sequence

MOST_COUNT = 256  # maximum operations of all flows in a batch
STRETCH_S = 0.12  # longest joint batch that is tried to make flows end together
# flows whose ends differ by less than this end together; slightly below the limit of TOGETHER in calibrate.py
EVEN = 0.03
VERY_UNEVEN = 2.0


def balanced(each_s: list[float], least_s: float, max_total: int = MOST_COUNT) -> list[int]:
    """Returns the operations of each actor so that all actors end together, given the seconds of one operation of each.

    Every batch takes at least `least_s`, within `max_total` operations. If whole operations do not end together, longer
    batches are tried, up to STRETCH_S.
    """
    best, smallest, most, slowest = [1] * len(each_s), math.inf, max_total // len(each_s), max(each_s)
    least = math.ceil(least_s / slowest)  # operations of the slowest actor
    for count in range(least, 8 * least + 1) if len(each_s) > 1 else [least]:
        if count > least and count * slowest > STRETCH_S:
            break
        rounded = math.ceil if len(each_s) == 1 else round
        # a full queue of the fastest flow must not end before the others
        span = min(count * slowest, most * min(each_s))
        counts = [min(max(rounded(span / each), 1), most) for each in each_s]
        ends = [count * each for count, each in zip(counts, each_s, strict=True)]
        uneven = max(ends) / min(ends) - 1
        if uneven < smallest:
            best, smallest = counts, uneven
        if uneven <= EVEN or span < count * slowest:
            break
    return best


def is_served_in_turn(batch: Sequence[int], gain: float) -> bool:
    """Returns whether one engine serves the flows in turn: very unequal counts gain almost nothing over equal counts.

    `gain` is the ratio of operations per second. Concurrent flows gain, because equal counts make all of them wait for
    the slowest. Flows that one engine serves in turn do not gain: those with few operations end with the others only
    because they wait (H200: 1, 85 and 1 operations from one GPU to three).
    """
    apart = sum(batch) / len(batch) / min(batch)
    return apart > VERY_UNEVEN and gain < math.sqrt(apart)
