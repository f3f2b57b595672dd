"""How many operations each of several flows does, so that all end together."""

import math
from collections.abc import Sequence

MOST_COUNT = 256  # operations of all flows in a batch
STRETCH_S = 0.12  # joint batches are not made longer than that to end together
EVEN = 0.03  # flows whose ends differ by less end together: a little less than what the sampler's TOGETHER asks for
FAR_APART = 2.0


def balanced(each_s: list[float], least_s: float, most_in_all: int = MOST_COUNT) -> list[int]:
    """Counts an actor, from the seconds that one operation of each takes, so that all end together.

    Every batch takes `least_s` or longer, as far as `most_in_all` goes; where whole operations do not fit together,
    longer batches are tried as long as they stay short.
    """
    best, smallest, most, slowest = [1] * len(each_s), math.inf, most_in_all // len(each_s), max(each_s)
    least = math.ceil(least_s / slowest)  # operations of the slowest
    for count in range(least, 8 * least + 1) if len(each_s) > 1 else [least]:
        if count > least and count * slowest > STRETCH_S:
            break
        rounded = math.ceil if len(each_s) == 1 else round
        span = min(count * slowest, most * min(each_s))  # with the fastest flow's queue full no other runs on alone
        counts = [min(max(rounded(span / each), 1), most) for each in each_s]
        ends = [count * each for count, each in zip(counts, each_s, strict=True)]
        uneven = max(ends) / min(ends) - 1
        if uneven < smallest:
            best, smallest = counts, uneven
        if uneven <= EVEN or span < count * slowest:
            break
    return best


def takes_turns(batch: Sequence[int], gain: float) -> bool:
    """Whether counts that are far apart get hardly more done than equal ones, `gain` times as many operations a second.

    Flows that run at once, each at its pace, do: equal counts make all wait for the slowest. Where one engine serves
    all in turn, those with few operations end with the others since they wait for them (1, 85, 1 from a GPU to three).
    """
    apart = sum(batch) / len(batch) / min(batch)
    return apart > FAR_APART and gain < math.sqrt(apart)
