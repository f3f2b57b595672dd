"""Carries out a plan: passes in the outer loop. Every record is written at once, whatever happens to the workers.

Each pass runs one more round of every unfinished point, in a new random order, with a fresh worker (on a model, a fresh
session). Whenever a point is done, the plan may add more points to the next pass.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from linkscope.errors import FINE, NOT_HERE, SOMETHING_FAILED, STOPPED_EARLY
from linkscope.plan import Plan, next_work
from linkscope.run.assemble import Assembler
from linkscope.run.budget import Budget
from linkscope.run.forecast import Forecast
from linkscope.run.noise import RunNoise
from linkscope.run.passes import Passes
from linkscope.run.progress import WorkLeft
from linkscope.run.records import Journal, Records
from linkscope.run.round_parts import WrongData
from linkscope.run.sampler import Unsupported
from linkscope.run.services import Services
from linkscope.run.states import INTERRUPTED, Ledger, Phase, State
from linkscope.run.target import Target
from linkscope.run.worker import Interrupted, RequestFailed, WorkerGone
from linkscope.run.workers import CannotStart
from linkscope.runfile import End, Point, Round, Run, RunWriter, shown_status
from linkscope.stats import EARLY_ROUNDS

# Maximum passes in a row without a record. A few are normal when the budget refuses everything that is due.
_MAX_IDLE_PASSES = 100
_FEW = 0.05  # of all rounds: as few new rounds change the noise little


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    points: dict[str, Point]
    complete: bool
    wall_s: float
    gave_up: bool = False  # no worker starts any more, before all points had the rounds that they need

    @property
    def exit_code(self) -> int:
        """The exit code of `linkscope run` (docs/reference/commands.md)."""
        if not self.complete:
            return STOPPED_EARLY
        found = {shown_status(point) for point in self.points.values()}
        if self.gave_up or "failed" in found:
            return SOMETHING_FAILED
        if not found or any(point.median_s is not None for point in self.points.values()):
            return FINE
        return SOMETHING_FAILED if "too_short" in found else NOT_HERE


class Supervisor:
    """One run, from its plan to its end record. `earlier`: the earlier sessions of a resumed run."""

    def __init__(
        self, target: Target, plan: Plan, writer: RunWriter, services: Services, earlier: Run | None = None
    ) -> None:
        self._plan = plan
        self._writer = writer
        self._services = services
        self._ledger = Ledger(plan, target.facts, earlier)
        states = self._ledger.states
        self._noise = RunNoise(states)
        spent = sum(round.device_s for state in states.values() for round in state.rounds)
        self._budget = Budget(plan.budget_s, modelled=target.modelled, spent_s=spent)
        self._forecast = Forecast(plan, states, self._budget, self._noise, modelled=target.modelled)
        self._journal = Journal(writer, services.progress)
        assembler = Assembler(plan, target.facts, target.limit, self._noise.of)
        self._records = Records(plan, self._ledger, assembler, self._budget, self._noise, self._journal)
        self._passes = Passes(target, plan, states, services)
        self._kept_s = 0.0  # time that the first rounds leave for later rounds
        self._ended_in = ""  # the point that was measured when a worker last ended

    def carry_out(self) -> Outcome:
        """Measures until nothing is left, the budget is spent, or the user stops the run."""
        started = time.monotonic()
        complete, gave_up = True, False
        try:
            self._measure_all()
            self._records.finish_measured(self._budget.reason())
            self._records.finish_unmeasured(self._forecast.enough_s)
        except Interrupted:
            complete = False
            self._conclude_done(self._ledger.unfinished())
            self._records.finish_measured(INTERRUPTED)
        except CannotStart as problem:
            ended = f"; a worker last ended while it measured {self._ended_in}" if self._ended_in else ""
            why = f"{problem}{ended}"
            gave_up = self._records.give_up(why)
        finally:
            self._passes.stop()
            self._services.progress.stop()
            self._services.monitor.stop()
        wall_s = round(time.monotonic() - started, 3)
        points = self._ledger.results()
        counts: dict[str, int] = dict(sorted(Counter(point.status for point in points.values()).items()))
        gained, contexts = self._services.tally.gained(), self._passes.contexts.tally()
        self._writer.write(End(wall_s=wall_s, complete=complete, counts=counts, gained=gained, contexts=contexts))
        return Outcome(points, complete, wall_s, gave_up)

    def _measure_all(self) -> None:
        if self._plan.classes:
            self._noise.refresh()
            self._records.resume()
        self._ask_for_more()
        idle = 0
        while self._ledger.unfinished() or self._reassess():
            unfinished, written = self._ledger.unfinished(), self._journal.written
            if due := {id: number for id, state in unfinished.items() if (number := state.next_round) is not None}:
                self._one_pass(due)
            if self._ended(unfinished):
                self._ask_for_more()
            idle = 0 if self._journal.written > written else idle + 1
            assert idle < _MAX_IDLE_PASSES, f"planned but never measured: {list(unfinished)}"

    def _ask_for_more(self) -> None:
        """Adds the work that the plan wants in addition to the unfinished points."""
        underway = self._ledger.underway()
        underway = replace(underway, seconds=underway.seconds + self._further_s())
        work = next_work(self._plan, self._ledger.known(), self._budget.left(), underway)
        asked = [self._ledger.ask(item.id, item.rounds) for item in work]
        if self._plan.budget_s is not None and any(not state.rounds for state in asked):
            # With classes, the first rounds cover few points, and each is the most expensive of three.
            first_share = 0.5 if self._plan.classes else 1 / self._plan.rounds
            self._kept_s = self._budget.left() * (1 - first_share)

    def _further_s(self) -> float:
        """Returns the seconds of the further rounds that points under way are expected to need, by their families."""
        if not self._plan.early:
            return 0.0
        return sum(
            state.expected_s * (self._noise.expected_rounds(self._plan, state) - EARLY_ROUNDS)
            for state in self._ledger.unfinished().values()
            if 0 < len(state.rounds) < EARLY_ROUNDS
        )

    def _ended(self, unfinished: Mapping[str, State]) -> bool:
        """After a pass over the unfinished points: concludes those that are done or get no more rounds. Returns whether
        there were any."""
        self._conclude_done(unfinished)
        left = self._ledger.unfinished()
        if self._ledger.waiting() and not any(map(self._in_first_rounds, left.values())):
            self._let_in()
        return any(not state.is_unfinished for state in unfinished.values())

    def _conclude_done(self, points: Mapping[str, State]) -> None:
        """Concludes those of the points that are done or get no more rounds, by the noise that all rounds so far
        show."""
        done = [id for id, state in points.items() if state.phase is not Phase.WAITING and state.next_round is None]
        if done and self._plan.early:
            self._noise.refresh(_FEW)
        for id in done:
            if points[id].is_unfinished:
                self._records.conclude(id)

    def _reassess(self) -> bool:
        """Before the end: renews the records of points with few rounds. Returns whether the plan then wants more
        rounds."""
        if not self._plan.early or not self._records.renew():
            return False
        self._ask_for_more()
        return bool(self._ledger.unfinished())

    def _in_first_rounds(self, state: State) -> bool:
        """Returns whether a point still lacks the rounds that give it a value."""
        if state.phase is Phase.WAITING:
            return False
        return not self._plan.classes or len(state.rounds) < EARLY_ROUNDS

    def _let_in(self) -> None:
        """Gives waiting points the remaining time. If not even one fits, all inherit from other paths of their
        class."""
        waiting = self._ledger.waiting()
        cost_s = {id: state.expected_s * state.wanted for id, state in waiting.items()}
        left, admitted = self._budget.left() - self._ledger.underway().seconds + sum(cost_s.values()), False
        for id, cost in cost_s.items():
            if cost <= left:
                left, admitted = left - cost, True
                self._ledger.admit(id)
        if admitted:
            return
        for id, state in waiting.items():
            state.stopped = self._budget.reason()
            self._records.conclude(id)

    def _one_pass(self, due: Mapping[str, int]) -> None:
        """Measures one round of each point. Opening the machine is the fixed cost of a pass."""
        again: list[str] = []
        states = self._ledger.states
        order = self._passes.begin(due, opened=self._budget.allows(min(states[id].expected_s for id in due)))
        for id in order:
            record = self._run_round(id, due[id])
            if record is not None and "throttled" in record.guards:
                again.append(id)
            elif record is not None and due[id] + 1 == states[id].wanted and not self._plan.early:
                self._records.conclude(id)
            self._tick(max(due.values()))
        self._passes.all_measured()
        for id in again:  # the GPU may have recovered; both records stay
            self._run_round(id, due[id])
            self._tick(max(due.values()))

    def _tick(self, furthest: int) -> None:
        def left() -> WorkLeft:
            wanted = {id: state.wanted for id, state in self._ledger.unfinished().items()}
            return self._forecast.left(self._ledger.results(), wanted, furthest)

        self._services.progress.tick(left)

    def _run_round(self, id: str, number: int) -> Round | None:
        """Measures one point in one round if it may still run."""
        state = self._ledger.states[id]
        if self._services.stop_asked():
            raise Interrupted
        if lost := self._passes.lost_gpus & state.places:
            state.stopped = f"{', '.join(sorted(lost))} was lost: a worker that used it could not be killed"
        elif not self._budget.allows(state.expected_s):
            state.stopped = self._budget.reason()
        elif not (state.rounds or state.phase is Phase.ADMITTED or self._budget.allows(state.expected_s, self._kept_s)):
            # First rounds get only a share of the remaining time, since few points with an interval are worth more than
            # many without. Waiting points get the rest.
            self._ledger.wait(id)
            return None
        return None if state.stopped else self._measure_and_store(state, id, number)

    def _measure_and_store(self, state: State, id: str, number: int) -> Round | None:
        """Measures and writes the round, or the point if it can have no value."""
        try:
            record = self._passes.measure(state, number)
        except Unsupported as reason:
            self._records.unsupported(id, str(reason))
        except WrongData as wrong:
            self._records.failed(id, f"wrong data: {wrong}", verified=False)
        except (RequestFailed, WorkerGone) as failure:
            if isinstance(failure, WorkerGone):
                self._ended_in = id
            self._records.failed(id, str(failure))
        else:
            self._records.add_round(state, record)
            return record
        return None
