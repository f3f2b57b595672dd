"""Measures what a gate needs, compares it with a reference, measures suspects again, and gives a verdict.

A point is a suspect when it is slower than the reference at a level that bounds the suspects of a whole check to
`SUSPECTS`. Suspects are measured again in new processes. A point is at fault only if both measurements together are
slower at a level that bounds the false alarms of the whole check to `FALSE_ALARMS`, and the second one by itself shows
half of the margin. The levels are not multiplied: both
measurements are compared with the same reference, so they are not independent.

Points that the reference does not judge are judged by physics and by the bundled summary. Such a fault counts only if
both measurements show it.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from linkscope.check.bundled import faults_by_summary
from linkscope.check.faults import Fault
from linkscope.check.links import faults_of_links
from linkscope.check.notes import absent, busy, not_compared, unread
from linkscope.check.parts import Part, parts_at_fault
from linkscope.check.physics import faults_by_physics, unsupported_since
from linkscope.check.references import SAVE, SUITE, Reference
from linkscope.check.sensitivity import margin_of, sensitivity_text
from linkscope.compare import Comparison, Pair, compare
from linkscope.errors import FINE, INCONCLUSIVE, SOMETHING_FAILED
from linkscope.model.text import count_text
from linkscope.plan import Plan, expected_s, make_plan
from linkscope.run import Controls, StopFlag, benchmark_table, measure
from linkscope.run.target import Target
from linkscope.runfile import Run, read_run
from linkscope.stats import median
from linkscope.units import format_fraction, format_seconds

_ENOUGH = 3  # a check is inconclusive if fewer than one point of this many can be judged
SUSPECTS = 0.01  # probability that a check of an unchanged node has a suspect
FALSE_ALARMS = 1e-4  # probability that it fails
_SCATTER = 5.0  # times the scatter of the reference: something else uses the link
_INTERRUPTED = "the check was interrupted"

Status = Literal["pass", "fail", "inconclusive"]
EXIT_CODES: dict[Status, int] = {"pass": FINE, "fail": SOMETHING_FAILED, "inconclusive": INCONCLUSIVE}
Again = Callable[[Sequence[str]], Run | str]  # measures the points of these ids, or all: the run, or why there is none


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check: one line for a log, the evidence, and the parts at fault. `measured`: the first run."""

    status: Status
    summary: str
    evidence: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    compared: Comparison | None = None
    measured: Run | None = None

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 5 inconclusive."""
        return EXIT_CODES[self.status]


@dataclass(frozen=True)
class Check:
    """What to check: the machine, the reference, and the budget in seconds."""

    target: Target
    reference: Reference
    budget_s: float
    seed: int


def check(asked: Check, folder: Path, stop: StopFlag) -> Verdict:
    """Measures into `folder` and gives the verdict. Raises UserError for a machine without a GPU."""
    started = time.monotonic()
    facts = asked.target.facts
    plan = make_plan(facts, benchmark_table(), suite=SUITE, seed=asked.seed)
    needed_s = sum(expected_s(plan, facts).values())
    if needed_s > asked.budget_s:
        return Verdict(
            "inconclusive",
            f"the budget of {format_seconds(asked.budget_s)} is too small: the check takes about "
            f"{format_seconds(needed_s)} on {facts.name}",
        )
    first = _measured(asked, plan, folder / "first.jsonl", stop)
    if first is None:
        return Verdict("inconclusive", _INTERRUPTED)

    def again(ids: Sequence[str]) -> Run | str:
        left_s = asked.budget_s - (time.monotonic() - started)
        plan = make_plan(facts, benchmark_table(), suite=SUITE, only=ids, seed=asked.seed + 1)
        if sum(expected_s(plan, facts).values()) > left_s:
            return f"the budget of {format_seconds(asked.budget_s)} ran out"
        return _measured(asked, plan, folder / "again.jsonl", stop) or _INTERRUPTED

    return replace(judge(asked, first, again), measured=first)


def judge(asked: Check, first: Run, again: Again) -> Verdict:
    """The verdict on a first measurement; suspects are measured by `again` before they count."""
    reference, disturbing = asked.reference, busy(first.header.machine, first.header.environment)
    notes = [*reference.notes, *disturbing, *unread(first)]
    if missing := absent(reference.run, first):
        return Verdict("fail", f"{', '.join(missing)} of the reference is missing on this node", notes)
    compared = _compared(reference, [first], SUSPECTS) if reference.run else None
    if reference.run and compared:
        notes += not_compared(reference.run, first, compared)
    slow = compared.worse() if compared else []
    faults = _faults(asked, first, compared)
    if not slow and not faults:
        return _no_fault(asked, first, compared, notes)
    # Faults without a reference need the other paths of the class, so all points are measured again.
    second = again([] if faults else [pair.id for pair in slow])
    suspects = [*map(_evidence, slow), *_texts(faults)]
    if isinstance(second, str):
        text = f"{second} before {count_text(len(suspects), 'suspect')} could be measured again"
        return Verdict("inconclusive", text, [*suspects, *notes], compared=compared)
    if slow and compared:
        slow = _confirmed(reference, first, second, slow, FALSE_ALARMS * len(slow) / len(compared.pairs))
    still = {fault.key for fault in _faults(asked, second, compared)}
    faults = [fault for fault in faults if fault.key in still]
    if not slow and not faults:
        text = f"{count_text(len(suspects), 'point')} seemed slow, and not when measured again"
        return Verdict("pass", text, [*suspects, *notes], compared=compared)
    return _at_fault(asked, first, slow, faults, compared, notes)


def _compared(reference: Reference, runs: Sequence[Run], false_alarms: float, only: Sequence[str] = ()) -> Comparison:
    assert reference.run is not None
    return compare(
        [reference.run], runs, only=only, false_alarms=false_alarms, margins_by_id=reference.margins
    )  # fmt: skip


def _confirmed(reference: Reference, first: Run, second: Run, suspects: Sequence[Pair], level: float) -> list[Pair]:
    """The suspects that both measurements together show at this level of false alarms, and the second one by itself.

    A single measurement far off must not accuse a part, so the second one must show half of the margin at least.
    """
    ids = [pair.id for pair in suspects]
    both, alone = (_compared(reference, runs, level, ids) for runs in ([first, second], [second]))
    shown = {
        pair.id
        for pair in alone.pairs
        if pair.ratio is None or pair.ratio > 1 + margin_of(pair, alone, reference.margins) / 2
    }
    # The suspects were judged already; at this stricter level a smaller change of some would not be seen.
    return [pair for pair in both.worse(noisy=True) if pair.id in shown]


def _faults(asked: Check, run: Run, compared: Comparison | None) -> list[Fault]:
    """Faults of links and lost data, and those of points that no reference judges, or whose rounds scatter too much."""
    judged = {pair.id for pair in compared.pairs if pair.judged} if compared else set()
    points = [*faults_by_physics(run, asked.target.facts.kind_of_path), *faults_by_summary(run)]
    found = [fault for fault in points if fault.point is None or fault.point.id not in judged]
    reference = asked.reference.run
    gone = unsupported_since(run, reference) if reference else []
    return [*faults_of_links(run, reference), *gone, *found]


def _no_fault(asked: Check, first: Run, compared: Comparison | None, notes: list[str]) -> Verdict:
    """The verdict without any suspect."""
    name, measured = asked.reference.name, sum(point.median_s is not None for point in first.points)
    if not measured:
        return Verdict("inconclusive", "no point could be measured", notes, compared=compared)
    if asked.reference.unusable:
        text = f"{asked.reference.unusable}; physics and the bundled summary show no fault"
        return Verdict("inconclusive", text, notes)
    if compared is None:
        text = "links at full width, rates near their peaks, paths of a class alike"
        return Verdict("pass", f"{count_text(measured, 'point')} against {name}: {text}", notes)
    judged = sum(pair.judged for pair in compared.pairs)
    if judged * _ENOUGH < len(compared.pairs) or not judged:
        few = f"only {judged} of {count_text(len(compared.pairs), 'point')}" if judged else "no point of the reference"
        text = f"{few} can be judged; physics and the bundled summary show no fault. {_cure_of_scatter(compared)}"
        return Verdict("inconclusive", text, notes, compared=compared)
    text = f"{count_text(judged, 'point')} as in {name}. {sensitivity_text(compared, asked.reference.margins)}"
    return Verdict("pass", text, notes, compared=compared)


def _at_fault(
    asked: Check,
    first: Run,
    slow: Sequence[Pair],
    faults: Sequence[Fault],
    compared: Comparison | None,
    notes: list[str],
) -> Verdict:
    """The verdict on confirmed faults. Slow points of a busy GPU or link accuse no hardware."""
    evidence = [*map(_evidence, slow), *_texts(faults)]
    of_points = [fault.point for fault in faults if fault.point]
    reason = _disturbed(slow, len(slow) + len(of_points), busy(first.header.machine, first.header.environment))
    if reason and len(of_points) == len(faults):
        return Verdict("inconclusive", reason, [*evidence, *notes], compared=compared)
    paths = [*((pair.path.src, pair.path.dst) for pair in slow), *((point.src, point.dst) for point in of_points)]
    known = [(point.src, point.dst) for point in first.points if point.median_s is not None]
    parts = parts_at_fault(paths, [*known, *paths])
    named = [part.text for part in parts] + [fault.place for fault in faults if fault.point is None]
    head = f"slower than {asked.reference.name}" if slow else "at fault"
    return Verdict("fail", f"{head}: {'; '.join(dict.fromkeys(named))}", [*evidence, *notes], parts, compared)


def _measured(asked: Check, plan: Plan, path: Path, stop: StopFlag) -> Run | None:
    """The run of a plan; None if the user stopped it."""
    outcome = measure(asked.target, plan, path, controls=Controls(stop=stop))
    return read_run(path) if outcome.complete else None


def _texts(faults: Sequence[Fault]) -> list[str]:
    return list(dict.fromkeys(fault.evidence for fault in faults))


def _evidence(pair: Pair) -> str:
    if pair.ratio is None or pair.interval is None:
        return f"{pair.path}: {pair.after.reason or 'failed'} ({pair.id})"
    change, low, high = (f"{100 * (end - 1):+.3g} %" for end in (pair.ratio, pair.interval.low, pair.interval.high))
    return f"{pair.path}: time {change} [{low}, {high}] ({pair.id})"


def _disturbed(slow: Sequence[Pair], count: int, disturbing: Sequence[str]) -> str:
    """Why `count` slow points, `slow` those slower than a reference, may not be the fault of the hardware; '' if
    nothing says so."""
    if disturbing and count:
        return f"{count_text(count, 'point')} slow, and {disturbing[0]}: check an idle node"
    ratios = []
    for pair in slow:
        scatters = [_range(point.flows[0].round_medians_s) for point in (pair.before, pair.after) if point.flows]
        if len(scatters) == 2 and scatters[0] > 0:
            ratios.append(scatters[1] / scatters[0])
    if ratios and median(ratios) > _SCATTER:
        return (
            f"{count_text(count, 'point')} slow, and rounds scatter {median(ratios):.0f} × as widely as in the "
            "reference: another load uses the same link or memory"
        )
    return ""


def _cure_of_scatter(compared: Comparison) -> str:
    """Whether the rounds of the reference or those of the node scatter more, and what to do."""
    wide = [pair for pair in compared.pairs if not pair.judged and pair.before.flows and pair.after.flows]
    if not wide:
        return f"Save a new baseline: {SAVE}"
    there, here = (
        median([_range(point.flows[0].round_medians_s) for point in side])
        for side in ([pair.before for pair in wide], [pair.after for pair in wide])
    )
    by = f"Rounds of the reference differ by {format_fraction(there)}, those of this node by {format_fraction(here)}"
    if there >= here:
        return f"{by}: save a new baseline on an idle node, {SAVE}"
    return f"{by}: check again when nothing else runs here; `linkscope doctor` names other load"


def _range(medians: Sequence[float]) -> float:
    return (max(medians) - min(medians)) / median(medians) if medians else 0.0
