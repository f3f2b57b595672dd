"""The verdict on a run in a few sentences, and the warnings that it counts."""

import re
import textwrap
from collections.abc import Iterable, Sequence

from linkscope.model.slow_paths import slow_paths
from linkscope.model.text import count_text
from linkscope.report.counters import counter_findings
from linkscope.report.headline import RateRow
from linkscope.report.managed import managed_rates
from linkscope.report.outcome import problems, too_short_cure
from linkscope.report.uniformity import Comparison, comparisons
from linkscope.runfile import TOO_SHORT, Point, Run, is_too_short, shown_status
from linkscope.units import format_bytes, format_fraction

FEW = 0.01  # of the points; fewer failed points do not decide on the run
_LONGEST = 140
_THROTTLED = frozenset({"throttled", "throttled_rounds"})


def verdict(run: Run, rows: Sequence[RateRow]) -> str:
    """'Links uniform: ... 1 warning. Pageable rates are unstable.' Failed points come first if they are many."""
    if not any(point.median_s is not None for point in run.points):
        return "Nothing was measured: no point has a value."
    first, last = failed_text(run.points), ""
    if sum(shown_status(point) == "failed" for point in run.points) <= FEW * len(run.points):
        first, last = last, first
    counted = (last, too_short_text(run.points), warning_count(run))
    return " ".join(filter(None, [first, *_path_sentences(run), *counted, _unstable_text(run, rows)]))


def warnings(run: Run) -> list[tuple[str, bool]]:
    """Each warning as text, and whether something failed; the most serious first."""
    found = [(text, True) for text in _failures(run.points)]
    found += [(text, False) for text in _too_short(run)]
    found += [(text, False) for text in incomplete(run)]
    found += [(finding.text, finding.kind == "errors") for finding in counter_findings(run)]
    for guards, text in (
        (_THROTTLED, "measured while a GPU was throttled"),
        ({"above_limit"}, "faster than the peak of the hardware"),
    ):
        if count := sum(not guards.isdisjoint(point.guards) and point.status != "failed" for point in run.points):
            found.append((f"{count_text(count, 'point')} {text}.", False))
    return found + [(text, False) for text in run.warnings]


def incomplete(run: Run) -> list[str]:
    """One sentence if points are missing because the run ended early."""
    if run.end is None:
        return ["The run has no end record. It was cut off, or it is still running."]
    if not run.end.complete:
        return [f"The run was stopped early. `{with_its_ranks(run)}linkscope run --resume RUN` measures the rest."]
    return []


def with_its_ranks(run: Run) -> str:
    """'mpiexec -n 2 ' before a command that goes on with a run of two ranks; '' of one process, and on a model."""
    ranks = len(run.header.machine.get("mpi", {}).get("ranks", ()))
    return f"mpiexec -n {ranks} " if ranks and not run.modelled else ""


def failed_text(points: Iterable[Point]) -> str:
    """'3 points failed.', as the verdict says it; '' where none did."""
    failed = sum(shown_status(point) == "failed" for point in points)
    return f"{count_text(failed, 'point')} failed." if failed else ""


def too_short_text(points: Iterable[Point]) -> str:
    """'5 points were too short for the clock.', as the verdict says it; '' where none was."""
    count = sum(map(is_too_short, points))
    return f"{count_text(count, 'point')} {'was' if count == 1 else 'were'} {TOO_SHORT}." if count else ""


def other_warnings(run: Run) -> list[str]:
    """The warnings that the verdict only counts: it names failed points and points that were too short itself."""
    named = (*_failures(run.points), *_too_short(run))
    return [text for text, _ in warnings(run) if text not in named]


def _path_sentences(run: Run) -> list[str]:
    slow = sorted(slow_paths(run), key=lambda one: -one.low)
    found = comparisons(run)
    differing = sorted((one for one in found if one.differs), key=lambda one: -one.ratio)
    sentences = []
    if slow:
        worst, others = slow[0], len({one.path for one in slow}) - 1
        more = f", and {count_text(others, 'other path')} too" if others else ""
        sentences.append(
            f"Slow path: {worst.path.replace('->', ' → ')} takes {worst.ratio:.2f} × the time of its class "
            f"[{worst.low:.2f}, {worst.high:.2f}]{more}."
        )
    if differing:
        sentences += [_differs_text(differing[0], [one.where for one in differing[1:]])]
    if not differing and not slow:
        sentences.append(_uniform_text(found) if found else _measured_text(run))
    return sentences


def _differs_text(worst: Comparison, others: Sequence[str]) -> str:
    """The slowest path against the fastest one of its direction, with the interval of the ratio."""
    assert worst.interval is not None  # `differs` implies an interval
    low, high = worst.interval.low, worst.interval.high
    text = (
        f"{worst.where} paths differ: {_path_text(worst.slowest)} is slowest, {worst.ratio:.2f} × the time of "
        f"{_path_text(worst.fastest)} [{low:.2f}, {high:.2f}] at {format_bytes(worst.bytes)}."
    )
    return text + (f" {' and '.join(others)} paths differ too." if others else "")


def _path_text(point: Point) -> str:
    return f"{point.src} → {point.dst}"


def _uniform_text(found: Sequence[Comparison]) -> str:
    parts = ", ".join(
        f"{one.count} {one.where} paths within {format_fraction(one.spread)}{_slowest_of(one)}" for one in found
    )
    sizes = " and ".join(dict.fromkeys(format_bytes(one.bytes) for one in found))
    if all(one.interval is None for one in found):
        return f"Too few rounds to judge the links: {parts} at {sizes}. Measure again with more --rounds."
    head = "Links uniform" if all(one.is_uniform for one in found) else "Links may differ"
    return f"{head}: {parts} at {sizes}."


def _slowest_of(one: Comparison) -> str:
    """' (slowest: gpu:3 → gpu:7)' where the paths are not uniform."""
    return "" if one.is_uniform or one.interval is None else f" (slowest: {_path_text(one.slowest)})"


def _measured_text(run: Run) -> str:
    """The verdict on a run without paths to compare."""
    count = sum(point.status in ("ok", "missed_precision") for point in run.points)
    return f"{count_text(count, 'point')} {'modelled' if run.modelled else 'measured'}."


def warning_count(run: Run) -> str:
    """'2 warnings.', as the verdict says it; failed points have their own sentence."""
    count = len(other_warnings(run))
    return f"{count_text(count, 'warning')}." if count else "" if warnings(run) else "No warnings."


def _unstable_text(run: Run, rows: Sequence[RateRow]) -> str:
    """'Pageable and managed rates are unstable.'"""
    kinds = [row.memory or row.where for row in rows if row.first.unstable]
    kinds += ["managed"] if any(rates.unstable for rates in managed_rates(run).values()) else []
    named = list(dict.fromkeys("pageable" if "pageable" in kind else kind for kind in kinds))
    if not named:
        return ""
    text = f"{' and '.join(filter(None, (', '.join(named[:-1]), named[-1])))} rates are unstable."
    return text[:1].upper() + text[1:]


def _failures(points: Sequence[Point]) -> list[str]:
    return [
        f"{count_text(len(problem.ids), 'point')} failed: {_short(problem.reason)}"
        for problem in problems(points)
        if problem.failed
    ]


def _too_short(run: Run) -> list[str]:
    """'5 points have no value, too short for the clock: measure again with more --rounds.'"""
    count = sum(map(is_too_short, run.points))
    verb = "has" if count == 1 else "have"
    return [f"{count_text(count, 'point')} {verb} no value, {TOO_SHORT}: {too_short_cure(run)}."] if count else []


_IN_BRACKETS = re.compile(r" \((?:[^()]|\([^()]*\))*\)")  # one pair may hold others


def _short(reason: str) -> str:
    """The reason without what it has in brackets if it is long, and then without its end."""
    short = reason if len(reason) <= _LONGEST else _IN_BRACKETS.sub("", reason)
    return textwrap.shorten(short, _LONGEST, placeholder=" …")
