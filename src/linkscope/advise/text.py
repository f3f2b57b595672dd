"""Recommendations as text, with their numbers."""

from linkscope.advise.gains import Advice, Gain
from linkscope.model.curves import time_of
from linkscope.model.text import count_text, paths_text, point_text
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_seconds_interval

_MOST_SIZES = 8
_ADVICE = {
    "advice read_mostly": "cudaMemAdvise with cudaMemAdviseSetReadMostly",
    "advice preferred_src": "cudaMemAdvise with cudaMemAdviseSetPreferredLocation: where the data are",
    "advice preferred_dst": "cudaMemAdvise with cudaMemAdviseSetPreferredLocation: where the data are used",
    "advice accessed_by": "cudaMemAdvise with cudaMemAdviseSetAccessedBy: the GPU or the CPU that uses the data",
}
_MOST_LOSING = 3


def headline(one: Advice) -> str:
    """'Pin host memory that is copied to or from a GPU: ×4.2 (median, 1 to 64 MiB, 2 paths)'."""
    title = one.recommendation.title
    return f"{title[:1].upper()}{title[1:]}: ×{one.main_gain:.3g} ({typical_text(one)})"


def how_text(one: Advice) -> str:
    """How to follow a recommendation; for advice on managed memory the constant of the surest gain."""
    return _ADVICE.get(one.gains[0].change if one.gains else "", one.recommendation.how)


def typical_text(one: Advice) -> str:
    """'median, 1 to 64 MiB, 2 paths': the values whose median is the main gain."""
    if one.is_general and not one.is_typically_worthwhile:
        ends = list(dict.fromkeys(map(format_bytes, (one.helpful_sizes[0], one.helpful_sizes[-1]))))
        among = {gain.path for gain in one.compared if gain.current.bytes in one.helpful_sizes}
        return f"median, {' to '.join(ends)}, {count_text(len(among), 'path')}"
    sizes = "1 to 64 MiB" if one.is_typical else "sizes outside 1 to 64 MiB" if one.sizes[1] else "all measured sizes"
    return f"median, {sizes}, {count_text(len({gain.path for gain in one.compared}), 'path')}"


def details(one: Advice) -> list[str]:
    """The largest gain, the paths and sizes where the recommendation is worthwhile, its cost, and how to follow it."""
    best = one.gains[0]
    paths = {gain.path for gain in one.compared}
    least, most = map(format_bytes, one.sizes)
    between = "" if not one.sizes[1] else f", {least} to {most}" if least != most else f", at {most}"
    by_size = [(size, ratio) for size, ratio in one.by_size() if size]
    between += _except([size for size, ratio in by_size if ratio < 1])
    lines = [
        f"most certain gain: {ratio_text(best)}: {point_text(best.current)} {_time(best.current)}; "
        f"{best.change} {_time(best.recommended)}",
        f"worthwhile on {len(one.paths)} of {count_text(len(paths), 'path')}{between}: {paths_text(one.paths)}",
    ]
    sizes = [f"{format_bytes(size)} ×{ratio:.3g}" for size, ratio in by_size]
    if len(sizes) > 1:
        lines.append(f"median speed-up by size: {', '.join(_thinned(sizes))}")
    if one.paid_after:
        lines.append(_paid(one.paid_after.first, best))
    return [*lines, f"how: {how_text(one)}"]


def ratio_text(gain: Gain) -> str:
    """'×5.79 [5.58, 6.01]'."""
    return f"×{gain.ratio:.3g} [{gain.interval.low:.3g}, {gain.interval.high:.3g}]"


def _except(losing: list[int]) -> str:
    """', but not at 4 KiB': the sizes at which the median path loses; the ends of many."""
    if not losing:
        return ""
    if len(losing) > _MOST_LOSING:
        return f", but not at {len(losing)} sizes from {format_bytes(losing[0])} to {format_bytes(losing[-1])}"
    *others, last = map(format_bytes, losing)
    return f", but not at {', '.join(others)} and {last}" if others else f", but not at {last}"


def _paid(first: int | None, best: Gain) -> str:
    copy = f"of {format_bytes(best.current.bytes)} on {best.path}"
    more = "other sizes and paths: linkscope report --break-even"
    if first is None:
        return f"allocating and freeing this memory never pays off for copies {copy} ({more})"
    return f"allocating and freeing this memory pays off with the {_ordinal(first)} copy {copy} ({more})"


def _time(point: Point) -> str:
    time = time_of(point)
    return format_seconds_interval(time.value, time.low, time.high) if time else ""


def _thinned(sizes: list[str]) -> list[str]:
    """At most eight of the texts, with both ends."""
    step = -(-(len(sizes) - 1) // (_MOST_SIZES - 1))
    return [*sizes[:-1:step], sizes[-1]]


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
