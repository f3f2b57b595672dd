"""What not to trust: the points without a sound value by reason and family, and the rounds of the worst ten."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import escape

from linkscope.model.curves import measured_flows, method_of, path_of
from linkscope.model.text import count_text, paths_text
from linkscope.report.family_words import family_text
from linkscope.report.outcome import has_older_interval
from linkscope.report.trust import flows_ran_apart, widest
from linkscope.runfile import TOO_SHORT, Flow, Point, half_width, shown_status
from linkscope.stats import median
from linkscope.units import format_bytes, format_fraction

STRIPS = 10  # points whose rounds are drawn
_GUARDS = {
    "above_limit": "above the peak", "throttled": "throttled", "throttled_rounds": "throttled",
    "nonlinear": "did not converge", "timings": "several timing methods",
}  # fmt: skip
_STATUS = {
    "failed": "failed", "too_short": TOO_SHORT, "missed_precision": "missed precision", "skipped": "not measured",
    "unsupported": "not supported", "inherited": "inherited",
}  # fmt: skip
_APART = "flows did not run together"
_OLDER = "precision not known"
_FAILED_ABOVE = "failed: above the peak"
_FIRST = (_FAILED_ABOVE, "above the peak", "failed", TOO_SHORT, _APART)
_ORDER = tuple(dict.fromkeys((*_FIRST, *_GUARDS.values(), *_STATUS.values(), _OLDER)))
_ROW, _LEFT, _RIGHT, _WIDTH, _TOP, _LETTERS = 38, 8, 74, 560, 4, 60
_HALF = STRIPS // 2
_TICKS = (1.01, 1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0, 10.0, 100.0)


@dataclass(frozen=True)
class Reason:
    """Points of one family, in words, with one reason. The point with the widest interval against its target is first.

    `width`: half the interval of this point as a fraction of its value; None if no point has an interval.
    """

    reason: str
    family: str
    points: tuple[Point, ...]
    width: float | None

    @property
    def worst(self) -> Point:
        """The point with the widest interval against its target."""
        return self.points[0]


def reasons(points: Iterable[Point]) -> list[Reason]:
    """One entry for each reason and family, the most serious reason first, then the most points."""
    found: dict[tuple[str, str], list[Point]] = {}
    for point in points:
        if (reason := reason_of(point)) is not None:
            found.setdefault((reason, family_text(method_of(point).family)), []).append(point)
    made = []
    for (reason, family), of in found.items():
        ordered = sorted(of, key=lambda point: -excess(point))
        made.append(Reason(reason, family, tuple(ordered), widest(ordered[0]) if excess(ordered[0]) else None))
    return sorted(made, key=lambda one: (_ORDER.index(one.reason), -len(one.points), -excess(one.worst)))


def reason_of(point: Point) -> str | None:
    """The most serious reason to distrust a point; None for a sound value."""
    if point.status == "missed_precision" and flows_ran_apart(point):
        return _APART
    if point.status == "failed" and "above_limit" in point.guards:
        return _FAILED_ABOVE
    named = [words for guard, words in _GUARDS.items() if guard in point.guards]
    status = shown_status(point)
    named += [_STATUS[status]] if status in _STATUS else []
    named += [_OLDER] if has_older_interval(point) else []
    return min(named, key=_ORDER.index, default=None)


def sound_text(points: Iterable[Point]) -> str:
    """'724 of 1486 points are measured within their target precision', the same for summary and table."""
    listed = list(points)
    sound = sum(reason_of(point) is None for point in listed)
    within = "is measured within its" if sound == 1 else "are measured within their"
    return f"{sound} of {count_text(len(listed), 'point')} {within} target precision"


def counts_text(points: Iterable[Point]) -> str:
    """'3 failed, 361 missed precision': the points of each reason, the most serious first; '' where all are sound."""
    counts = Counter(reason for point in points if (reason := reason_of(point)) is not None)
    failed = counts.pop(_FAILED_ABOVE, 0)  # said in one number with the other failed points
    counts["failed"] += failed
    return ", ".join(f"{counts[reason]} {reason}" for reason in _ORDER if counts[reason])


def excess(point: Point) -> float:
    """Half the interval over the target precision; 0 without an interval."""
    width = widest(point)
    return width / point.precision_target if width is not None and point.precision_target else 0.0


def worst_points(points: Iterable[Point]) -> list[Point]:
    """At most ten points: those that exceed their target precision most, then those whose rounds differ most."""
    listed = [point for point in points if point.status == "missed_precision" and len(_rounds(point)) > 1]
    return sorted(listed, key=lambda point: (-excess(point), -max(_ratios(point)) / min(_ratios(point))))[:STRIPS]


def strips(points: Sequence[Point], modelled: bool) -> list[str]:
    """A row for each point: the medians of its rounds over the point's value, on one logarithmic scale, as SVG.

    Two drawings with half of the points each, which stand side by side or, on a phone, one below the other.
    """
    ratios = [_ratios(point) for point in points]
    reach = max(0.02, *(abs(math.log(ratio)) for of in ratios for ratio in of)) * 1.05
    rows = list(zip(points, ratios, strict=True))
    return [_drawing(some, reach, modelled) for some in (rows[:_HALF], rows[_HALF:]) if some]


def _drawing(rows: Sequence[tuple[Point, Sequence[float]]], reach: float, modelled: bool) -> str:
    bottom = _TOP + _ROW * len(rows)
    name = ("MODELLED: " if modelled else "") + "round medians of the points with the widest intervals"
    parts = [
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {bottom + 24}" role="img" aria-label="{name}"><title>{name}</title>'
    ]
    if modelled:
        parts.append(f'<text class="modelled" x="{_WIDTH / 2}" y="{bottom / 2}">MODELLED</text>')
    tick = max((tick for tick in _TICKS if math.log(tick) <= reach), default=1.0)
    for ratio in (1.0, tick, 1 / tick):
        x = _at(ratio, reach)
        text = "value" if ratio == 1 else f"{100 * (ratio - 1):+.2g} %" if tick < 2 else f"× {ratio:.2g}"
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>')
        parts.append(f'<text class="size" x="{max(x, 26):.1f}" y="{bottom + 16}">{text}</text>')
    for number, (point, of) in enumerate(rows):
        parts.append(_strip(point, of, _TOP + _ROW * number, reach))
    return "".join([*parts, "</svg>"])


def _strip(point: Point, ratios: Sequence[float], top: float, reach: float) -> str:
    size = f", {format_bytes(point.bytes)}" if point.bytes else ""
    where = f"{paths_text([path_of(point)])}{size}".replace("->", "→")
    what, room = family_text(method_of(point).family), _LETTERS - len(where) - 2
    label = (
        f"{what if len(what) <= room else f'{what[: room - 1]}…'}, {where}"  # a long operation leaves the size whole
    )
    width, y = widest(point), top + 26
    target = point.precision_target
    low, high = _at(1 / (1 + target), reach), _at(1 + target, reach)
    dots = "".join(f"M{_at(ratio, reach) - 4:.1f} {y:.1f}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0" for ratio in ratios)
    return (
        f'<text x="{_LEFT}" y="{top + 13:g}">{escape(label)}</text>'
        f'<rect class="h1" x="{low:.1f}" y="{y - 7:.1f}" width="{max(1.0, high - low):.1f}" height="14"/>'
        f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/><path class="ring" d="{dots}"/>'
        f'<text x="{_WIDTH - _RIGHT + 14}" y="{y + 4:.1f}">{f"±{format_fraction(width)}" if width else ""}</text>'
    )


def _at(ratio: float, reach: float) -> float:
    share = (min(max(math.log(ratio) / reach, -1.0), 1.0) + 1) / 2
    return _LEFT + share * (_WIDTH - _RIGHT - _LEFT)


def _rounds(point: Point) -> list[float]:
    """The round medians in seconds of the flow with the widest interval."""
    flows: list[Flow] = measured_flows(point)
    chosen = max(flows, key=lambda flow: half_width(flow) or 0.0, default=None)
    return [seconds for seconds in chosen.round_medians_s if seconds > 0] if chosen else []


def _ratios(point: Point) -> list[float]:
    rounds = _rounds(point)
    middle = median(rounds)
    return [seconds / middle for seconds in rounds]
