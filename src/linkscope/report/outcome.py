"""What went wrong in a run: points without a value, or with a wider interval than asked for, grouped by reason."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from linkscope.report.curves import Family, method_of
from linkscope.report.words import count_text
from linkscope.runfile import Point, Run
from linkscope.units import format_fraction, format_seconds

STATUS_WORDS = {
    "ok": "ok",
    "inherited": "inherited",
    "missed_precision": "missed precision",
    "unsupported": "not supported here",
    "failed": "failed",
    "skipped": "not measured",
}
_WITHOUT_VALUE = ("failed", "unsupported", "skipped")


@dataclass(frozen=True)
class Problem:
    """Points that share a status and a reason; numbers in reasons may differ, `reason` is the first one's."""

    status: str
    reason: str
    ids: list[str]

    def text(self) -> str:
        """'failed, 3 points: wrong data: …'."""
        return f"{STATUS_WORDS[self.status]}, {count_text(len(self.ids), 'point')}: {self.reason}"


def problems(points: Iterable[Point]) -> list[Problem]:
    """The worst status first, then the most frequent reason."""
    listed = list(points)
    found: dict[tuple[str, str], Problem] = {}
    for point in listed:
        if point.status in _WITHOUT_VALUE:
            reason = point.reason or "no reason was given"
            key = (point.status, re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", reason))
            found.setdefault(key, Problem(point.status, reason, [])).ids.append(point.id)
    ordered = sorted(found.values(), key=lambda problem: (_WITHOUT_VALUE.index(problem.status), -len(problem.ids)))
    return ordered + _imprecise(listed)


def counts_text(points: Iterable[Point]) -> str:
    """'12 points: 10 ok, 2 missed precision'."""
    counts = Counter[str](point.status for point in points)
    told = ", ".join(f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status])
    return count_text(counts.total(), "point") + (f": {told}" if told else "")


def run_text(run: Run) -> str:
    """'suite quick, 6 rounds, seed 1; 12 points: 12 ok; 3.2 s'; says so where the run did not come to its end."""
    plan = run.header.plan
    named = [f"suite {plan['suite']}"] if "suite" in plan else []
    named += [count_text(plan["rounds"], "round")] if "rounds" in plan else []
    named += [f"seed {plan['seed']}"] if "seed" in plan else []
    parts = [", ".join(named), counts_text(run.points)]
    parts.append("has no end record" if run.end is None else f"took {format_seconds(run.end.wall_s)}")
    if run.end is not None and not run.end.complete:
        parts.append("stopped early")
    return "; ".join(part for part in parts if part)


def half_width(point: Point) -> float | None:
    """Half of the interval as a fraction of the median."""
    if point.ci95_s is None or not point.median_s:
        return None
    return (point.ci95_s[1] - point.ci95_s[0]) / 2 / point.median_s


def _imprecise(points: Iterable[Point]) -> list[Problem]:
    """Missed precision, one entry a family: the reason of each point is only its own width."""
    groups: dict[Family, list[Point]] = {}
    for point in points:
        if point.status == "missed_precision":
            groups.setdefault(method_of(point).family, []).append(point)
    return [_of_family(family, group) for family, group in sorted(groups.items())]


def _of_family(family: Family, group: list[Point]) -> Problem:
    wide = [(width, point) for point in group if (width := half_width(point)) is not None]
    if not wide:
        return Problem("missed_precision", f"{family}: {group[0].reason or 'no interval'}", [p.id for p in group])
    width, widest = max(wide, key=lambda pair: pair[0])
    ids = [widest.id] + [point.id for point in group if point is not widest]
    asked = format_fraction(widest.precision_target)
    return Problem("missed_precision", f"{family}; widest +-{format_fraction(width)}, asked was {asked}", ids)
