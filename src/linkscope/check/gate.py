"""Measures what a gate needs, compares it with a reference, measures suspects again, and gives a verdict.

A point is a suspect when it is slower than the reference at a level that bounds the suspects of a whole check to
`SUSPECTS`. Suspects are measured again in new processes. A point is at fault only if both measurements together are
slower at a level that bounds the false alarms of the whole check to `FALSE_ALARMS`. The levels are not multiplied: both
measurements are compared with the same reference, so they are not independent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from linkscope.check.parts import Part, parts_at_fault
from linkscope.check.references import Fault, faults_by_physics
from linkscope.compare import Comparison, Pair, compare
from linkscope.compare.text import headline
from linkscope.errors import FINE, INCONCLUSIVE, SOMETHING_FAILED
from linkscope.model.text import count_text
from linkscope.plan import Plan, expected_s, make_plan
from linkscope.run import StopFlag, benchmark_table, measure
from linkscope.run.target import Target
from linkscope.runfile import Run, read_run
from linkscope.stats import median
from linkscope.units import format_seconds

SUSPECTS = 0.01  # probability that a check of an unchanged node has a suspect
FALSE_ALARMS = 1e-4  # probability that it fails
SUITE = "check"
_SCATTER = 5.0  # times the scatter of the reference: something else uses the link

Status = Literal["pass", "fail", "inconclusive"]
EXIT_CODES: dict[Status, int] = {"pass": FINE, "fail": SOMETHING_FAILED, "inconclusive": INCONCLUSIVE}


@dataclass(frozen=True)
class Verdict:
    """The outcome of a check: one line for a log, the evidence, and the parts at fault."""

    status: Status
    summary: str
    evidence: list[str] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    compared: Comparison | None = None

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 5 inconclusive."""
        return EXIT_CODES[self.status]


@dataclass(frozen=True)
class Check:
    """What to check: the machine, the reference (None: physics), its margin, and the budget in seconds.

    `margin`: the change that counts as none; None: that of `linkscope compare`. `notes`: what limits the reference.
    """

    target: Target
    reference: Run | None
    name: str
    budget_s: float
    seed: int
    margin: float | None = None
    notes: tuple[str, ...] = ()


def check(asked: Check, folder: Path, stop: StopFlag) -> Verdict:
    """Measures into `folder` and gives the verdict. Raises UserError for a machine without a GPU."""
    plan = make_plan(asked.target.facts, benchmark_table(), suite=SUITE, seed=asked.seed)
    needed_s = sum(expected_s(plan, asked.target.facts).values())
    if needed_s > asked.budget_s:
        return Verdict(
            "inconclusive",
            f"the budget of {format_seconds(asked.budget_s)} is too small: the check takes about "
            f"{format_seconds(needed_s)} on {asked.target.facts.name}",
        )
    first = _measured(asked, plan, folder / "first.jsonl", stop)
    if first is None:
        return Verdict("inconclusive", "the check was interrupted")
    busy = _busy(first)
    if absent := _absent(asked.reference, first):
        return Verdict("fail", f"{', '.join(absent)} of the reference is missing on this node", busy)
    if asked.reference is None:
        return _by_physics(asked, first, folder, stop, busy)
    compared = compare([asked.reference], [first], asked.margin, false_alarms=SUSPECTS)
    notes = [*asked.notes, *busy, *_left_out(compared)]
    judged = [pair for pair in compared.pairs if pair.judged]
    if not judged:
        return Verdict("inconclusive", "no point of the reference can be judged", notes, compared=compared)
    suspects = compared.worse()
    if not suspects:
        text = headline(compared)
        return Verdict(
            "pass", f"{count_text(len(judged), 'point')} as in {asked.name}. {text}", notes, compared=compared
        )
    confirmed = _confirmed(asked, first, suspects, FALSE_ALARMS * len(suspects) / len(compared.pairs), folder, stop)
    if not confirmed:
        text = f"{count_text(len(suspects), 'point')} seemed slow, and not when measured again"
        return Verdict("pass", text, [*notes, *map(_evidence, suspects)], compared=compared)
    if reason := _disturbed(confirmed, busy):
        return Verdict("inconclusive", reason, [*notes, *map(_evidence, confirmed)], compared=compared)
    slow = [(pair.path.src, pair.path.dst) for pair in confirmed]
    parts = parts_at_fault(slow, [(pair.path.src, pair.path.dst) for pair in compared.pairs])
    summary = f"slower than {asked.name}: {'; '.join(part.text for part in parts)}"
    return Verdict("fail", summary, [*map(_evidence, confirmed), *notes], parts, compared)


def _measured(asked: Check, plan: Plan, path: Path, stop: StopFlag) -> Run | None:
    """The run of a plan; None if the user stopped it."""
    outcome = measure(asked.target, plan, path, stop=stop)
    return read_run(path) if outcome.complete else None


def _confirmed(
    asked: Check, first: Run, suspects: Sequence[Pair], false_alarms: float, folder: Path, stop: StopFlag
) -> list[Pair]:
    """The suspects that are slower than the reference in the first and a second measurement together."""
    assert asked.reference is not None
    ids = [pair.id for pair in suspects]
    plan = make_plan(asked.target.facts, benchmark_table(), suite=SUITE, only=ids, seed=asked.seed + 1)
    again = _measured(asked, plan, folder / "again.jsonl", stop)
    if again is None:
        return []
    # The suspects were judged already; at this stricter level a smaller change of some would not be seen.
    return compare([asked.reference], [first, again], asked.margin, ids, false_alarms).worse(noisy=True)


def _by_physics(asked: Check, first: Run, folder: Path, stop: StopFlag, busy: list[str]) -> Verdict:
    """The verdict without a reference: link widths, shares of the peak, like paths, lost data."""
    faults = faults_by_physics(first, asked.target.facts.kind_of_path)
    if faults:
        plan = make_plan(asked.target.facts, benchmark_table(), suite=SUITE, seed=asked.seed + 1)
        again = _measured(asked, plan, folder / "again.jsonl", stop)
        still = {fault.key for fault in faults_by_physics(again, asked.target.facts.kind_of_path)} if again else set()
        faults = [fault for fault in faults if fault.key in still]
    checked = sum(point.median_s is not None for point in first.points)
    if not checked:
        return Verdict("inconclusive", "no point could be measured", busy)
    if not faults:
        text = "links at full width, rates near their peaks, paths of a class alike (no earlier run given)"
        return Verdict("pass", f"{count_text(checked, 'point')}: {text}", busy)
    if busy and all(fault.point is not None for fault in faults):
        return Verdict(
            "inconclusive",
            f"{count_text(len(faults), 'point')} slow, and {busy[0]}: check an idle node",
            _texts(faults),
        )
    slow_paths = [(fault.point.src, fault.point.dst) for fault in faults if fault.point]
    parts = parts_at_fault(slow_paths, [(p.src, p.dst) for p in first.points if p.median_s])
    named = [part.text for part in parts] + [fault.place for fault in faults if fault.point is None]
    return Verdict("fail", f"at fault: {'; '.join(dict.fromkeys(named))}", [*_texts(faults), *busy], parts)


def _texts(faults: Sequence[Fault]) -> list[str]:
    return list(dict.fromkeys(fault.evidence for fault in faults))


def _evidence(pair: Pair) -> str:
    if pair.ratio is None or pair.interval is None:
        return f"{pair.path}: {pair.after.reason or 'failed'} ({pair.id})"
    change, low, high = (f"{100 * (end - 1):+.3g} %" for end in (pair.ratio, pair.interval.low, pair.interval.high))
    return f"{pair.path}: time {change} [{low}, {high}] ({pair.id})"


def _busy(run: Run) -> list[str]:
    """Other processes that used a GPU before the check."""
    states = run.header.environment.get("gpus") or []
    counts = [
        (f"gpu:{number}", state.get("processes")) for number, state in enumerate(states) if isinstance(state, dict)
    ]
    return [
        f"{gpu} was used by {count} other process{'es' * (count > 1)}"
        for gpu, count in counts
        if isinstance(count, int) and count
    ]


def _disturbed(confirmed: Sequence[Pair], busy: Sequence[str]) -> str:
    """Why slow points may not be the fault of the hardware; '' if nothing says so."""
    if busy:
        return f"{count_text(len(confirmed), 'point')} slower than the reference, and {busy[0]}: check an idle node"
    ratios = []
    for pair in confirmed:
        scatters = [_range(point.flows[0].round_medians_s) for point in (pair.before, pair.after) if point.flows]
        if len(scatters) == 2 and scatters[0] > 0:
            ratios.append(scatters[1] / scatters[0])
    if ratios and median(ratios) > _SCATTER:
        return (
            f"{count_text(len(confirmed), 'point')} slower than the reference, and their rounds have "
            f"{median(ratios):.0f} × the scatter: another load uses the same link or memory"
        )
    return ""


def _range(medians: Sequence[float]) -> float:
    return (max(medians) - min(medians)) / median(medians) if medians else 0.0


def _absent(reference: Run | None, run: Run) -> list[str]:
    """GPUs of the reference that this node lacks."""
    if reference is None:
        return []
    here = set(run.header.machine.get("places") or [])
    return [place for place in reference.header.machine.get("places") or [] if "gpu:" in place and place not in here]


def _left_out(compared: Comparison) -> list[str]:
    names = ", ".join(sorted(compared.other_method))
    return [f"not compared: {names}, which the reference measured by an older method"] if names else []
