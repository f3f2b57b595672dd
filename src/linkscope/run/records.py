"""The records of a run: every round and every point is written at once, and each point gets a last record."""

from collections.abc import Callable, Collection, Sequence

from linkscope.plan import Plan, inheritances, left_over, rounds_wanted
from linkscope.plan.shares import late_rounds
from linkscope.run.assemble import Assembler
from linkscope.run.budget import Budget
from linkscope.run.noise import RunNoise
from linkscope.run.progress import Progress
from linkscope.run.states import Ledger, Phase, State
from linkscope.runfile import Point, Round, RunWriter
from linkscope.stats import EARLY_ROUNDS, LOOKS

_STALE = 0.1  # of its half-width: a smaller move of an interval needs no new record


class Journal:
    """Writes records into the run file, and shows them. `written` counts them."""

    def __init__(self, writer: RunWriter, progress: Progress) -> None:
        self._writer = writer
        self._progress = progress
        self.written = 0

    def write(self, record: Round | Point) -> None:
        """Writes a record."""
        self.written += 1
        self._writer.write(record)
        self._progress.record(record)


class Records:
    """Makes the record of every point, and decides whether it is the last one."""

    def __init__(
        self, plan: Plan, ledger: Ledger, assembler: Assembler, budget: Budget, noise: RunNoise, journal: Journal
    ) -> None:
        self._plan = plan
        self._ledger = ledger
        self._assembler = assembler
        self._budget = budget
        self._noise = noise
        self._journal = journal
        self._assessed = 0  # rounds that the last renewal knew

    def resume(self) -> None:
        """Continues the unfinished points of an earlier session from its last decision about them."""
        for id, state in self._ledger.states.items():
            if state.record is None and 0 < len(state.rounds) < EARLY_ROUNDS:
                self._ledger.ask(id, EARLY_ROUNDS)
            elif state.record is None or 0 < _rounds_of(state.record) < len(state.rounds):
                self._repeat_decisions(id, state.rounds)

    def _repeat_decisions(self, id: str, rounds: Sequence[Round]) -> None:
        """Repeats the decisions of the earlier session. Otherwise a point could end with rounds that nobody
        evaluates."""
        have = {round.round for round in rounds}
        look: int | None = LOOKS[0]
        while look and have.issuperset(range(look)):
            seen = [round for round in rounds if round.round < look]
            point = self._assembler.point(id, seen)
            self._ledger.leave_open(point)
            wanted = [rounds_wanted(self._plan, point)]
            wanted += [work.rounds for work in late_rounds(self._plan, {id: point})]
            if len(seen) == len(rounds) and wanted[0] <= look:
                self.finish(point)
            look = next((more for more in (*wanted, LOOKS[1]) if more > look), None)

    def add_round(self, state: State, record: Round) -> None:
        """Adds a round to its point."""
        state.rounds.append(record)
        state.cost_s = record.device_s
        self._budget.add(record.device_s)
        self._journal.write(record)

    def unsupported(self, id: str, reason: str) -> None:
        """Finishes a point that the platform does not support."""
        self.finish(self._assembler.without_value(id, "unsupported", reason))

    def failed(self, id: str, reason: str, *, verified: bool | None = None) -> None:
        """Finishes a point that failed. `verified` False: with wrong data."""
        self.finish(self._assembler.failed(id, self._ledger.states[id].rounds, reason, verified=verified))

    def conclude(self, id: str) -> None:
        """Makes the record of a point that has its rounds or gets no more. It is open if the point needs more rounds,
        or may inherit."""
        state = self._ledger.states[id]
        if not state.rounds:
            point = self._assembler.without_value(id, "skipped", state.stopped or "not measured")
            may_inherit = state.stopped == self._budget.reason()
            (self._ledger.leave_open if may_inherit else self.finish)(point)
            return
        point = self._assembler.point(id, state.rounds, state.stopped)
        kept = len(point.flows[0].round_medians_s)
        wanted = rounds_wanted(self._plan, point)
        if wanted <= kept:
            self.finish(point)
        elif all(state.has(number) for number in range(wanted)):
            self.finish(self._assembler.point(id, state.rounds, "the GPU was throttled in the other rounds"))
        else:
            self._ledger.leave_open(point)

    def renew(self) -> bool:
        """Renews the records of points with few rounds, since later rounds show their noise better. Returns whether
        there were later rounds."""
        self._noise.refresh()
        if self._noise.rounds == self._assessed:
            return False
        self._assessed = self._noise.rounds
        for id, old in sorted(self._ledger.final().items()):
            if old.status in ("ok", "missed_precision") and old.ci_method in ("pooled", "next_round"):
                new = self._assembler.point(id, self._ledger.states[id].rounds, old.guards.get("stopped"))
                if new.status != old.status or _moved(new.ci95_s, old.ci95_s):
                    self.finish(new)
        return True

    def finish_measured(self, why: str) -> None:
        """Finishes every point that has some of its rounds, so that readers need no rounds. `why`: the reason why it
        gets no more."""
        for id, state in sorted(self._ledger.states.items()):
            if state.phase is not Phase.FINAL and state.rounds:
                self.finish(self._assembler.point(id, state.rounds, why))

    def finish_unmeasured(self, enough_s: Callable[[Collection[str]], float]) -> None:
        """Finishes the points without a measurement: they inherit within their class, or get a record with the
        reason. `enough_s`: the seconds that are enough for points that the budget left out."""
        final = self._ledger.final()
        for inheritance in inheritances(self._plan, final):
            self.finish(self._assembler.inherited(inheritance, final[inheritance.source]))
        left = left_over(self._plan, self._ledger.final())
        for id, reason in left.items():
            if reason:
                self.finish(self._assembler.without_value(id, "unsupported", reason))
        for point in self._ledger.open().values():
            if point.status != "skipped":
                self.finish(point)
        out = [*self._ledger.open(), *(id for id, reason in left.items() if not reason)]
        why = self._budget.reason_and_cure(enough_s(out)) if out else ""
        for id in out:
            self.finish(self._assembler.without_value(id, "skipped", why))

    def give_up(self, problem: str) -> bool:
        """Ends a run whose workers no longer start: points with rounds keep their value, the others fail.

        Returns whether a point lacks rounds that it needs.
        """
        needed = EARLY_ROUNDS if self._plan.early else self._plan.rounds
        lacking = any(len(state.rounds) < needed for state in self._ledger.unfinished().values())
        for id, state in self._ledger.states.items():
            if state.phase is Phase.FINAL:
                continue
            if state.rounds:
                self.finish(self._assembler.point(id, state.rounds, problem))
            elif state.phase is Phase.OPEN and state.record:  # the budget refused the point
                self.finish(state.record)
            else:
                self.failed(id, problem)
        return lacking

    def finish(self, point: Point) -> None:
        """Writes the last record of a point."""
        self._ledger.finish(point)
        self._journal.write(point)


def _moved(new: tuple[float, float] | None, old: tuple[float, float] | None) -> bool:
    """Returns whether an end of an interval moved by more than a tenth of its half-width."""
    if new is None or old is None:
        return new is not old
    return max(abs(one - other) for one, other in zip(new, old, strict=True)) > _STALE / 2 * (old[1] - old[0])


def _rounds_of(point: Point) -> int:
    """Returns the number of rounds in a point's record, including throttled ones."""
    kept = point.flows[0].round_medians_s if point.flows else []
    return len(kept) + len(point.guards.get("throttled_rounds", ()))
