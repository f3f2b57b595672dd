"""The status of points: those without a value or with a wider interval than the target, grouped by reason."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from linkscope.model.curves import Family, method_of
from linkscope.model.text import count_text
from linkscope.report.trust import flows_ran_apart, reason_text, widest
from linkscope.runfile import TOO_SHORT, Point, Run, is_too_short, shown_status
from linkscope.stats import EARLY_ROUNDS
from linkscope.units import format_against, format_seconds

STATUS_WORDS = {
    "ok": "ok",
    "inherited": "inherited",
    "missed_precision": "missed precision",
    "unsupported": "not supported",
    "failed": "failed",
    "skipped": "not measured",
    "too_short": TOO_SHORT,
}
APART = "flows that did not run together"
TOO_SHORT_CURE = "measure again with more --rounds"
_LONGEST_ONLY = 60
_ENOUGH_ROUNDS = 6  # for an interval by order statistics
_WITHOUT_VALUE = ("failed", "unsupported", "skipped")


@dataclass(frozen=True)
class Problem:
    """Points with one status and one reason. Numbers in the reasons may differ; `reason` is that of the first point."""

    status: str
    reason: str
    ids: list[str]
    fault: str = ""  # replaces the words of the status, if given

    @property
    def missed(self) -> bool:
        """Whether wide intervals are the only problem."""
        return self.status == "missed_precision" and not self.fault

    @property
    def failed(self) -> bool:
        """Whether the points failed. Those that were too short for the clock did not."""
        return self.status == "failed" and not self.fault

    def text(self) -> str:
        """'failed, 3 points: wrong data: …'."""
        return f"{self.fault or STATUS_WORDS[self.status]}, {count_text(len(self.ids), 'point')}: {self.reason}"


def too_short_cure(run: Run) -> str:
    """What gives points that were too short for the clock a value. Ranks that poll wait for milliseconds for one that
    shares its CPU with another rank or with linkscope, which more rounds hardly average out.
    """
    of_host: dict[str, list[list[int]]] = {}
    for one in run.header.machine.get("mpi", {}).get("ranks", ()):
        of_host.setdefault(one.get("host", "a host"), []).append(one.get("cpus", []))
    for host, ranks in of_host.items() if any(map(_among_ranks, run.points)) else ():
        cpus = {cpu for one in ranks for cpu in one}
        if min(map(len, ranks)) == 1 and len(of_host) > 1:  # on one host, times count from the last start
            return (
                "a rank with one CPU starts late, because linkscope shares it, and the others wait; give each rank two "
                "CPUs (`mpirun --map-by slot:PE=2 --bind-to core`), or start fewer ranks"
            )
        if len(ranks) >= len(cpus) > 0 and sum(map(len, ranks)) > len(cpus):
            return (
                f"{len(ranks)} ranks on {host} share {count_text(len(cpus), 'CPU')} and wait for each other; give each "
                "rank a core (`mpiexec --bind-to core`), or start fewer ranks"
            )
    return TOO_SHORT_CURE


def _among_ranks(point: Point) -> bool:
    return is_too_short(point) and point.src.startswith("rank:")


def problems(points: Iterable[Point], cure: str = TOO_SHORT_CURE) -> list[Problem]:
    """The problems of a run: the worst status first, then the most frequent reason. `cure`: of points that were too
    short for the clock.
    """
    listed = list(points)
    found: dict[tuple[str, str], Problem] = {}
    for point in listed:
        if point.status in _WITHOUT_VALUE:
            reason, fault = reason_text(point.reason or "no reason was given"), ""
            if is_too_short(point):
                reason, fault = f"{reason.partition(f'{TOO_SHORT}: ')[2]}; {cure}", TOO_SHORT
            key = (fault or point.status, "" if fault else re.sub(r"\d+(\.\d+)?(e-?\d+)?", "#", reason))
            found.setdefault(key, Problem(point.status, reason, [], fault)).ids.append(point.id)
    ordered = sorted(found.values(), key=lambda problem: (_WITHOUT_VALUE.index(problem.status), -len(problem.ids)))
    return ordered + _imprecise(listed)


def counts_text(points: Iterable[Point]) -> str:
    """'12 points: 10 ok, 2 missed precision'."""
    counts = Counter[str](map(shown_status, points))
    parts = ", ".join(f"{counts[status]} {words}" for status, words in STATUS_WORDS.items() if counts[status])
    return count_text(counts.total(), "point") + (f": {parts}" if parts else "")


def run_text(run: Run) -> str:
    """'suite quick, 6 rounds, seed 1; 12 points: 12 ok; took 3.2 s'. Also names the rule of another tool, and an
    early end.
    """
    plan = run.header.plan
    named = [suite_text(run)] if "suite" in plan else []
    early = f"{EARLY_ROUNDS} to " if plan.get("early") else ""
    rounds = early + count_text(plan["rounds"], "round") if "rounds" in plan else ""
    if classes := plan.get("classes"):
        rounds = f"at least {EARLY_ROUNDS} rounds, {len(classes)} path classes"
    named += [rounds] if rounds else []
    named += [f"seed {plan['seed']}"] if "seed" in plan else []
    named += [f"measured by the rule of {plan['rule']}"] if plan.get("rule", "linkscope") != "linkscope" else []
    parts = [", ".join(named), counts_text(run.points)]
    took = took_text(run) if run.modelled else f"took {took_text(run)}"
    parts.append(took if run.end is not None else "no end record: the run was cut off, or it is still running")
    if run.end is not None and not run.end.complete:
        parts.append("stopped early")
    return "; ".join(part for part in parts if part)


_INTERVAL_METHODS = {
    "order_statistics": "An interval comes from the order of the rounds: for six, from the lowest to the highest, "
    "which covers the true median in 96.9 % of cases.",
    "pooled": "Below twelve rounds, most intervals come from the scatter of the rounds and of similar points. They "
    "cover the true median in at least 95 % of cases.",
    "next_round": "Where the rounds of similar points fall into modes, or where few similar points are known, fewer "
    "than six rounds have the interval in which a further round would lie.",
    "older": "This file was written by an older version of linkscope, which gave fewer than six rounds an interval as "
    "wide as the target. The tables state its level.",
}


def has_older_interval(point: Point) -> bool:
    """Whether the interval is the target itself, which older versions of linkscope wrote after too few rounds."""
    return bool(point.ci95_s) and _interval_method(point) == "older"


def older_text(points: Iterable[Point]) -> str:
    """What 'precision not known' means; '' where no point has such an interval."""
    if not any(map(has_older_interval, points)):
        return ""
    return (
        "Precision not known: an older version of linkscope wrote an interval as wide as the target for fewer than six "
        "rounds. The values hold; measure again for their precision."
    )


def intervals_text(points: Iterable[Point]) -> str:
    """How the intervals of these points were computed: one sentence or two for each method that occurs."""
    found = {_interval_method(point) for point in points if point.ci95_s}
    return " ".join(text for method, text in _INTERVAL_METHODS.items() if method in found)


def _interval_method(point: Point) -> str:
    few = bool(point.flows) and len(point.flows[0].round_medians_s) < _ENOUGH_ROUNDS
    return point.ci_method or ("older" if few and point.status != "inherited" else "order_statistics")


def suite_text(run: Run) -> str:
    """'suite standard (only d2d/*)'; '' if the plan names no suite."""
    plan = run.header.plan
    return f"suite {plan['suite']}{_only_text(plan.get('only'))}" if "suite" in plan else ""


def took_text(run: Run) -> str:
    """'110.5 s'. For a modelled run also the modelled time, which the budget limits."""
    least = "at least " if len(run.earlier_ends) < len(run.resumes) else ""  # a killed session records no time
    took = f"{least}{format_seconds(run.wall_s)}"
    took += f" in {count_text(len(run.resumes) + 1, 'part')}" if run.resumes else ""
    if not run.modelled:
        return took
    modelled_s = sum(point.device_s or 0.0 for point in run.points)
    return f"{format_seconds(modelled_s)} of modelled time, simulated in {took}"


def _only_text(only: Any) -> str:
    """' (only d2d/*)' for a part of a suite; '152 points' or '9 patterns' if the list is long."""
    patterns = [str(one) for one in only] if isinstance(only, list) else []
    parts = " ".join(patterns)
    if len(parts) > _LONGEST_ONLY:
        # The first ? of an id is the mark in front of its parameters.
        has_wildcard = any(re.search(r"[*?[]", one.replace("?", "", 1)) for one in patterns)
        parts = count_text(len(patterns), "pattern" if has_wildcard else "point")
    return f" (only {parts})" if parts else ""


def _imprecise(points: Iterable[Point]) -> list[Problem]:
    """Points whose flows did not run together, then those that missed precision, one entry for each family."""
    groups: dict[Family, list[Point]] = {}
    apart: dict[Family, list[Point]] = {}
    for point in points:
        if point.status == "missed_precision":
            (apart if flows_ran_apart(point) else groups).setdefault(method_of(point).family, []).append(point)
    found = [_apart_problem(family, group) for family, group in sorted(apart.items())]
    return found + [_wide_problem(family, group) for family, group in sorted(groups.items())]


def _apart_problem(family: Family, group: list[Point]) -> Problem:
    group = sorted(group, key=lambda point: point.guards.get("joint_overlap", 1.0))
    reason = f"{family}; {reason_text(group[0].reason or 'no reason was given')}"
    return Problem("missed_precision", reason, [point.id for point in group], APART)


def _wide_problem(family: Family, group: list[Point]) -> Problem:
    wide = [(width / point.precision_target, width, point) for point in group if (width := widest(point)) is not None]
    if not wide:
        reason = reason_text(group[0].reason or "no interval")
        return Problem("missed_precision", f"{family}: {reason}", [p.id for p in group])
    ratio, width, worst = max(wide, key=lambda one: one[0])
    ids = [worst.id] + [point.id for point in group if point is not worst]
    if ratio <= 1 and worst.reason:  # the interval is narrow enough, but rounds are missing or disagree
        return Problem("missed_precision", f"{family}; {reason_text(worst.reason)}", ids)
    return Problem("missed_precision", f"{family}; widest {format_against(width, worst.precision_target)}", ids)
