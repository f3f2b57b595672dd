"""What is advised, in sentences with their numbers."""

from linkscope.advise.gains import Advice, Gain
from linkscope.model.curves import time_of
from linkscope.model.text import count_text, paths_text, point_text
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_seconds_interval

_MOST_SIZES = 8
_MOST_LOSING = 3


def headline(one: Advice) -> str:
    """'Pin host memory that is copied to or from a GPU: up to 5.8 [5.6, 6.0] times as fast', of one that has gains."""
    return f"{one.habit.title[:1].upper()}{one.habit.title[1:]}: up to {ratio_text(one.gains[0])} times as fast"


def details(one: Advice) -> list[str]:
    """Where that was seen, where else it is worth it, when it has paid, and how it is done."""
    best = one.gains[0]
    paths = {gain.path for gain in one.compared}
    least, most = map(format_bytes, one.sizes)
    between = "" if not one.sizes[1] else f", from {least} to {most}" if least != most else f", at {most}"
    by_size = [(size, ratio) for size, ratio in one.by_size() if size]
    between += _though([size for size, ratio in by_size if ratio < 1])
    lines = [
        f"{point_text(best.now)}: {_time(best.now)}; {best.instead}: {_time(best.then)}",
        f"worth it on {len(one.paths)} of {count_text(len(paths), 'path')}{between}: {paths_text(one.paths)}",
    ]
    sizes = [f"{format_bytes(size)} {ratio:.3g}" for size, ratio in by_size]
    if len(sizes) > 1:
        lines.append(f"times as fast by size, the middle of these paths: {', '.join(_thinned(sizes))}")
    if one.paid_after:
        lines.append(_paid(one.paid_after.first, best))
    return [*lines, f"how: {one.habit.how}"]


def ratio_text(gain: Gain) -> str:
    """'5.79 [5.58, 6.01]'."""
    return f"{gain.ratio:.3g} [{gain.interval.low:.3g}, {gain.interval.high:.3g}]"


def _though(losing: list[int]) -> str:
    """', though not at 4 KiB', of the sizes at which the middle of the paths loses; of many the ends."""
    if not losing:
        return ""
    if len(losing) > _MOST_LOSING:
        return f", though not at {len(losing)} sizes from {format_bytes(losing[0])} to {format_bytes(losing[-1])}"
    *others, last = map(format_bytes, losing)
    return f", though not at {', '.join(others)} and {last}" if others else f", though not at {last}"


def _paid(first: int | None, best: Gain) -> str:
    size = format_bytes(best.now.bytes)
    if first is None:
        return f"getting the memory and giving it back costs more than any number of copies of {size} gains"
    return f"getting the memory and giving it back is paid for by the {_ordinal(first)} copy of {size}"


def _time(point: Point) -> str:
    time = time_of(point)
    return format_seconds_interval(time.value, time.low, time.high) if time else ""


def _thinned(sizes: list[str]) -> list[str]:
    """A few, with both ends."""
    step = -(-(len(sizes) - 1) // (_MOST_SIZES - 1))
    return [*sizes[:-1:step], sizes[-1]]


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
