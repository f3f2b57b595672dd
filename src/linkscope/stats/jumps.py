"""Where a curve of times over bytes breaks: nothing is to be drawn or interpolated across that."""

import math
from collections.abc import Sequence

from linkscope.stats.intervals import median
from linkscope.stats.stopping import HALF_WIDTH

JUMP = 0.03  # what is not told apart from a line
NEAR = 2  # times: sizes further apart leave room for a steep part that is no step
BELOW = 0.25  # by which the line to a size FAR from the next errs where the rate gains 11 % by each doubling
FAR = 4  # times: beyond that no line tells what a size should take

_Time = tuple[int, float, float]  # bytes, seconds, and by what fraction these may be off


def doubts(rounds: Sequence[Sequence[float]], half_widths: Sequence[float | None]) -> list[float]:
    """How far the median of each size of one curve may be off, as a fraction of it; inf where nothing tells.

    Half of its interval at most, where it has one; but that of rounds that agree is as wide as was asked. What they
    differ by tells more, and what those of all sizes do.
    """
    relative = [[value / median(of) - 1 for value in of] if of and median(of) > 0 else [] for of in rounds]
    freedom = sum(len(of) - 1 for of in relative if of)
    squares = sum((value - sum(of) / len(of)) ** 2 for of in relative for value in of)
    pooled = math.sqrt(squares / freedom) if freedom else math.inf
    found = []
    for of, width in zip(relative, half_widths, strict=True):
        told = [] if width is None else [width]
        if of:
            told.append(max(HALF_WIDTH * pooled / math.sqrt(len(of)), (max(of) - min(of)) / 2))
        found.append(min(told, default=math.inf))
    return found


def breaks(sizes: Sequence[int], seconds: Sequence[float], doubts: Sequence[float]) -> list[int]:
    """Of a curve by size the places where no line goes on to the next size. `doubts`: of each time, as a fraction.

    Where more bytes take clearly less time, or more than so many times the time; and where the lines on both sides of
    near sizes do not meet in between: the one ends below what follows, and the other above what is before, or both the
    other way. A ramp from one to the other would do so too; between sizes further apart it may well be one. Behind
    the largest size there is no line: there it is far less time than that of the line before.
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
    """Whether the largest size takes far less than the line through those before it says.

    The slowest of its stages says how long a copy takes: such a curve bends upwards only, and its end is not below the
    line. One that is was copied another way. The line is as long as the way to the end: from sizes close together it
    would tell nothing. The smallest size is no such end: what a line says there may well be twice the time of a ramp.
    """
    if len(curve) < 3 or _times(curve[-2], curve[-1]) > FAR:
        return False
    *before, near, end = curve
    far = next((one for one in reversed(before) if _times(one, near) >= _times(near, end)), before[0])
    return _off_the_line(far, near, end, BELOW) < 0


def _times(small: _Time, large: _Time) -> float:
    return large[0] / small[0] if small[0] > 0 else math.inf


def _off_the_line(far: _Time, near: _Time, here: _Time, least: float = JUMP) -> float:
    """By how much a time is off the line through two others, as a fraction; 0 where it is less, or may be chance."""
    if near[0] == far[0]:
        return 0.0
    part = (here[0] - near[0]) / (near[0] - far[0])
    line = near[1] + part * (near[1] - far[1])
    doubt = math.hypot((1 + part) * near[1] * near[2], part * far[1] * far[2], here[1] * here[2])
    off = here[1] - line
    return off / here[1] if here[1] > 0 and abs(off) > least * here[1] + doubt else 0.0
