"""Chooses sizes for a curve (SKaMPI's refinement of 1999 is prior art).

A copy's time is linear in its bytes while nothing changes. If a point lies off the line through its neighbours, the
curve bends or breaks there. The intervals on both sides are then halved, down to half a power of two.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from linkscope.stats import breaks

TOLERANCE = 0.02
RISING_GAIN = 0.02  # relative gain of a rate per doubling, above which the rate still rises
LARGEST = 1 << 30
WIDEST = 8  # ratio of two sizes: a wider interval may hide a step and its return
GRID = tuple(sorted([1 << power for power in range(3, 31)] + [3 << power for power in range(3, 29)]))
LEAST_CURVE = 8  # minimum number of sizes: fewer are a sample of a curve and are not refined


class Timed(NamedTuple):
    """Seconds, their relative uncertainty, and the cost of the first rounds."""

    seconds: float
    doubt: float
    cost_s: float = 0.0


def finer_sizes(measured: Mapping[int, Timed]) -> list[int]:
    """Returns the next sizes, ascending; empty once the curve is known."""
    sizes = _timed_sizes(measured)
    if len(sizes) < LEAST_CURVE:
        return []
    split = {at for at in range(len(sizes) - 1) if sizes[at + 1] > WIDEST * sizes[at]}
    split |= set(_breaks(measured, sizes))
    for at in range(1, len(sizes) - 1):
        if _bends(measured, sizes[at - 1], sizes[at], sizes[at + 1]):
            split |= {at - 1, at}
    split |= {at for at in range(1, len(sizes) - 2) if _may_bend(measured, sizes[at - 1 : at + 3])}
    return _between(sizes, split) + _larger(measured, sizes)


def bracketing_sizes(measured: Mapping[int, Timed]) -> list[int]:
    """Returns sizes between both sides of a break. Charts draw nothing there, so both sides should be close to it."""
    sizes = _timed_sizes(measured)
    return _between(sizes, _breaks(measured, sizes)) if len(sizes) >= LEAST_CURVE else []


def _timed_sizes(measured: Mapping[int, Timed]) -> list[int]:
    return sorted(size for size, of in measured.items() if size > 0 and of.seconds > 0)


def _breaks(measured: Mapping[int, Timed], sizes: Sequence[int]) -> list[int]:
    return breaks(sizes, [measured[at].seconds for at in sizes], [measured[at].doubt for at in sizes])


def _between(sizes: Sequence[int], split: Iterable[int]) -> list[int]:
    candidates = {_between_sizes(sizes[at], sizes[at + 1]) for at in split}
    return sorted(size for size in candidates if size is not None)


def _bends(measured: Mapping[int, Timed], small: int, size: int, large: int) -> bool:
    line, doubt = _line(measured, small, large, size)
    here = measured[size]
    return abs(line - here.seconds) > TOLERANCE * here.seconds + math.hypot(doubt, here.doubt * here.seconds)


def _may_bend(measured: Mapping[int, Timed], sizes: Sequence[int]) -> bool:
    """Returns whether the lines on both sides of the middle interval leave room for a bend or a step inside it.

    A curve that bends in one direction lies between the chord of the interval and these lines. A curve with a step
    follows one line and then the other.
    """
    before, small, large, after = sizes
    middle = math.sqrt(small * large)
    chord, unsure = _line(measured, small, large, middle)
    sides = [_line(measured, *of, middle) for of in ((before, small), (large, after))]
    beyond = [abs(line - chord) - math.hypot(doubt, unsure) for line, doubt in sides]
    step = min(beyond) > 0 > (sides[0][0] - chord) * (sides[1][0] - chord)
    return (max(beyond) if step else min(beyond)) > TOLERANCE * chord


def _line(measured: Mapping[int, Timed], one: int, other: int, size: float) -> tuple[float, float]:
    """Returns the seconds at a size on the line through two others, and their uncertainty."""
    part = (size - one) / (other - one)
    ends = measured[one], measured[other]
    unsure = math.hypot((1 - part) * ends[0].seconds * ends[0].doubt, part * ends[1].seconds * ends[1].doubt)
    return (1 - part) * ends[0].seconds + part * ends[1].seconds, unsure


def _between_sizes(small: int, large: int) -> int | None:
    """Returns a power of two near the middle of both, or 1.5 times the smaller one; None for neighbours."""
    power = 1 << round((math.log2(small) + math.log2(large)) / 2)
    if small * 1.5 < power and power * 1.5 < large:
        return power
    half_more = small * 3 // 2
    return half_more if large == 2 * small and half_more in GRID else None


def _larger(measured: Mapping[int, Timed], sizes: list[int]) -> list[int]:
    """Returns twice the largest size while the rate still rises."""
    before, last = sizes[-2], sizes[-1]
    if 2 * last > LARGEST:
        return []
    doublings = math.log2(last / before)
    gain = last / measured[last].seconds / (before / measured[before].seconds)
    doubt = measured[before].doubt + measured[last].doubt
    return [2 * last] if gain - doubt > (1 + RISING_GAIN) ** doublings else []
