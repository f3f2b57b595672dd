"""Finds breaks in a curve of times over bytes. Nothing is drawn or interpolated across a break."""

import math
from collections.abc import Sequence

from linkscope.stats.intervals import median

# Half of the 95 % interval of a median of n normal values, in deviations, is this number over the root of n.
_HALF_WIDTH = 2.456
JUMP = 0.03  # smaller differences from a line do not count
NEAR = 2  # ratio of sizes: a wider interval may hold a steep ramp that is not a step
BELOW = 0.25  # error of a line extended by the ratio FAR, when the rate gains 11 % per doubling
FAR = 4  # ratio of sizes beyond which no line predicts a time

_Time = tuple[int, float, float]  # bytes, seconds, and the relative uncertainty of the seconds


def doubts(rounds: Sequence[Sequence[float]], half_widths: Sequence[float | None]) -> list[float]:
    """The relative uncertainty of the median at each size of one curve; inf if unknown.

    It is at most half of the interval. Few rounds of a family with modes have a wide interval, so the differences
    between rounds, and those at other sizes, bound it too.
    """
    relative = [[value / median(of) - 1 for value in of] if of and median(of) > 0 else [] for of in rounds]
    freedom = sum(len(of) - 1 for of in relative if of)
    squares = sum((value - sum(of) / len(of)) ** 2 for of in relative for value in of)
    pooled = math.sqrt(squares / freedom) if freedom else math.inf
    found = []
    for of, width in zip(relative, half_widths, strict=True):
        bounds = [] if width is None else [width]
        if of:
            bounds.append(max(_HALF_WIDTH * pooled / math.sqrt(len(of)), (max(of) - min(of)) / 2))
        found.append(min(bounds, default=math.inf))
    return found


def breaks(sizes: Sequence[int], seconds: Sequence[float], doubts: Sequence[float]) -> list[int]:
    """The places of a curve by size where no line continues to the next size. `doubts`: relative uncertainty of each
    time.

    There are three kinds of break. A larger size takes clearly less time, or more time than its bytes explain. The
    lines on both sides of two neighbouring sizes do not meet; sizes further apart do not count, because a ramp looks
    the same. The largest size takes far less time than the line before it predicts.
    """
    curve = [*zip(sizes, seconds, doubts, strict=True)]
    found = [at for at in range(len(curve) - 1) if _jumps(*curve[at], *curve[at + 1]) or _steps(curve, at)]
    unbroken = curve[found[-1] + 1 :] if found else curve
    return [*found, len(curve) - 2] if _ends_below(unbroken) else found


def _jumps(small: int, small_s: float, doubt: float, large: int, large_s: float, other_doubt: float) -> bool:
    if small <= 0 or small_s <= 0:
        return False
    ratio, beyond = large_s / small_s, 1 + JUMP + doubt + other_doubt
    return ratio * beyond < 1 or ratio > large / small * beyond


def _steps(curve: Sequence[_Time], at: int) -> bool:
    if at < 1 or at > len(curve) - 3 or curve[at + 1][0] > NEAR * curve[at][0]:
        return False
    up = _off_the_line(curve[at - 1], curve[at], curve[at + 1])
    down = _off_the_line(curve[at + 2], curve[at + 1], curve[at])
    return up * down < 0


def _ends_below(curve: Sequence[_Time]) -> bool:
    """Whether the largest size takes far less time than the line through the sizes before it predicts.

    The slowest stage of a copy determines its time, so a curve bends upwards only. A time below the line means another
    method. The line must be as long as its extension. The smallest size is not tested, because a line may predict twice
    the time of a ramp there.
    """
    if len(curve) < 3 or _times(curve[-2], curve[-1]) > FAR:
        return False
    *before, near, end = curve
    far = next((one for one in reversed(before) if _times(one, near) >= _times(near, end)), before[0])
    return _off_the_line(far, near, end, BELOW) < 0


def _times(small: _Time, large: _Time) -> float:
    return large[0] / small[0] if small[0] > 0 else math.inf


def _off_the_line(far: _Time, near: _Time, here: _Time, least: float = JUMP) -> float:
    """Relative difference of a time from the line through two others; 0 if it is small or may be chance."""
    if near[0] == far[0]:
        return 0.0
    part = (here[0] - near[0]) / (near[0] - far[0])
    line = near[1] + part * (near[1] - far[1])
    doubt = math.hypot((1 + part) * near[1] * near[2], part * far[1] * far[2], here[1] * here[2])
    off = here[1] - line
    return off / here[1] if here[1] > 0 and abs(off) > least * here[1] + doubt else 0.0
