"""Carries out a plan: passes in the outer loop. Every record is written at once, whatever happens to the workers.

Each pass runs one more round of every unfinished point, in a new random order, with a fresh worker (on a model, a fresh
session). Whenever a point is done, the plan may add more points to the next pass.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from linkscope.errors import FINE, NOT_HERE, SOMETHING_FAILED, STOPPED_EARLY
from linkscope.plan import (
    Plan,
    RuleName,
    Underway,
    in_order,
    inheritances,
    left_over,
    most_memory,
    next_work,
    representatives,
    rounds_wanted,
)
from linkscope.plan.shares import late_rounds
from linkscope.run.ahead import WORTH_IT, Ahead, Failure
from linkscope.run.assemble import Assembler
from linkscope.run.budget import Budget
from linkscope.run.comm_scope import CommScopeSampler
from linkscope.run.contexts import Contexts
from linkscope.run.forecast import Forecast
from linkscope.run.monitor import Monitor, NoTally, Tally
from linkscope.run.noise import RunNoise
from linkscope.run.nvbandwidth import NvbandwidthSampler
from linkscope.run.progress import Progress
from linkscope.run.sampler import NEARLY_TOGETHER, Sampler, Task, Unsupported, WrongData
from linkscope.run.states import INTERRUPTED, State, finished, state_of, states_of
from linkscope.run.target import Target
from linkscope.run.worker import Interrupted, RequestFailed, WorkerGone
from linkscope.run.workers import CannotStart, Workers, twice
from linkscope.runfile import End, Point, Round, Run, RunWriter
from linkscope.stats import EARLY_ROUNDS, LOOKS

_SAMPLERS: dict[RuleName, type[Sampler]] = {
    "linkscope": Sampler,
    "nvbandwidth": NvbandwidthSampler,
    "comm-scope": CommScopeSampler,
}
# Maximum passes in a row without a record. A few are normal when the budget refuses everything that is due.
_MAX_IDLE_PASSES = 100
_FEW = 0.05  # of all rounds: as few new rounds change the noise little
_STALE = 0.1  # of its half-width: a smaller move of an interval needs no new record


@dataclass(frozen=True)
class Outcome:
    """The result of a run."""

    points: dict[str, Point]
    complete: bool
    wall_s: float

    @property
    def exit_code(self) -> int:
        """The exit code of `linkscope run` (docs/reference/commands.md)."""
        if not self.complete:
            return STOPPED_EARLY
        found = {point.status for point in self.points.values()}
        if "failed" in found:
            return SOMETHING_FAILED
        has_value = any(point.median_s is not None for point in self.points.values())
        return FINE if has_value or not found else NOT_HERE


class Supervisor:
    """One run, from its plan to its end record."""

    def __init__(
        self,
        target: Target,
        plan: Plan,
        writer: RunWriter,
        *,
        command: Sequence[str],
        progress: Progress,
        monitor: Monitor,
        tally: Tally | NoTally,
        stop_asked: Callable[[], bool],
        earlier: Run | None = None,
    ) -> None:
        self._target = target
        self._plan = plan
        self._writer = writer
        self._progress = progress
        self._monitor = monitor
        self._tally = tally
        self._stop_asked = stop_asked
        self._contexts = Contexts()
        contexts = self._contexts if plan.alike_contexts else None
        self._workers = Workers(command, target.open_request, stop_asked, contexts)
        self._command = command
        self._ahead: Ahead | None = None
        self._results: Iterator[Round | Failure] | None = None  # results of this pass, if several processes measure it
        self._points = finished(earlier.points) if earlier else {}
        self._final = set(self._points)  # points with a final record
        self._states = states_of(plan, target.facts, earlier)
        self._noise = RunNoise(self._states)
        self._assembler = Assembler(plan, target.facts, target.limit, self._noise.of)
        self._base = EARLY_ROUNDS if plan.early else plan.rounds  # rounds after which a point has a value
        spent = sum(round.device_s for state in self._states.values() for round in state.rounds)
        self._budget = Budget(plan.budget_s, modelled=target.modelled, spent_s=spent)
        self._forecast = Forecast(plan, self._states, self._budget, self._noise, modelled=target.modelled)
        # With classes, the first rounds cover few points, and each is the most expensive of three.
        self._first_share = 0.5 if plan.classes else 1 / plan.rounds
        self._representative_of = representatives(plan) if plan.classes else {}
        self._passes = 0
        self._written = 0  # records so far
        self._assessed = 0  # rounds that the last reassessment knew
        self._lost_gpus: set[str] = set()
        self._wanted: dict[str, int] = {}  # rounds of each unfinished point
        self._earlier_points: dict[str, Point] = {}  # earlier records of unfinished points
        self._kept_s = 0.0  # time that the first rounds leave for later rounds
        self._waiting: dict[str, None] = {}  # points whose first round did not fit into the share of first rounds
        self._admitted: set[str] = set()  # waiting points that got time later

    def carry_out(self) -> Outcome:
        """Measures until nothing is left, the budget is spent, or the user stops the run."""
        started = time.monotonic()
        complete = True
        try:
            if self._plan.classes:
                self._noise.refresh()
                self._resume_points()
            self._ask_for_more()
            idle = 0
            while self._wanted or self._reassess():
                written = self._written
                if due := self._due():
                    self._one_pass(due)
                if self._ended():
                    self._ask_for_more()
                idle = 0 if self._written > written else idle + 1
                assert idle < _MAX_IDLE_PASSES, f"planned but never measured: {list(self._wanted)}"
            self._save_unfinished(self._budget.reason())
            self._store_unmeasured()
        except Interrupted:
            complete = False
            self._conclude_done()
            self._save_unfinished(INTERRUPTED)
        except CannotStart as problem:
            self._give_up(str(problem))
        finally:
            self._workers.drop()
            if self._ahead:
                self._ahead.stop()
            self._progress.stop()
            self._monitor.stop()
        wall_s = round(time.monotonic() - started, 3)
        counts: dict[str, int] = dict(sorted(Counter(point.status for point in self._points.values()).items()))
        self._writer.write(
            End(
                wall_s=wall_s, complete=complete, counts=counts, gained=self._tally.gained(),
                contexts=self._contexts.tally(),
            )
        )  # fmt: skip
        return Outcome(self._points, complete, wall_s)

    def _resume_points(self) -> None:
        """Continues the unfinished points of an earlier session from its last decision about them."""
        for id, state in self._states.items():
            point = self._points.get(id)
            if point is None and 0 < len(state.rounds) < EARLY_ROUNDS:
                self._wanted[id] = EARLY_ROUNDS
            elif point is None or 0 < _rounds_of(point) < len(state.rounds):
                self._repeat_decisions(id, state.rounds)

    def _repeat_decisions(self, id: str, rounds: Sequence[Round]) -> None:
        """Repeats the decisions of the earlier session. Otherwise a point could end with rounds that nobody
        evaluates."""
        have = {round.round for round in rounds}
        look: int | None = LOOKS[0]
        while look and have.issuperset(range(look)):
            seen = [round for round in rounds if round.round < look]
            point = self._points[id] = self._assembler.point(id, seen)
            self._final.discard(id)
            wanted = [rounds_wanted(self._plan, point)]
            wanted += [work.rounds for work in late_rounds(self._plan, {id: point})]
            if len(seen) == len(rounds) and wanted[0] <= look:
                self._store(point)
            look = next((more for more in (*wanted, LOOKS[1]) if more > look), None)

    def _ask_for_more(self) -> None:
        """Adds the work that the plan wants in addition to the unfinished points."""
        known = {**self._points, **self._earlier_points}
        underway = self._underway()
        underway = replace(underway, seconds=underway.seconds + self._further_s())
        work = next_work(self._plan, known, self._budget.left(), underway)
        for item in work:
            if item.id in self._points:
                self._earlier_points[item.id] = self._points.pop(item.id)
            self._final.discard(item.id)
            if item.id not in self._states:  # a size added at a bend, or concurrent flows
                self._states[item.id] = state_of(item.id, self._plan, self._target.facts)
            self._wanted[item.id] = item.rounds
        if self._plan.budget_s is not None and any(not self._states[item.id].rounds for item in work):
            self._kept_s = self._budget.left() * (1 - self._first_share)

    def _underway(self) -> Underway:
        lacking = {
            id: sum(not self._states[id].has(number) for number in range(rounds)) for id, rounds in self._wanted.items()
        }
        return Underway(lacking, sum(self._states[id].expected_s * rounds for id, rounds in lacking.items()))

    def _further_s(self) -> float:
        """Returns the seconds of the further rounds that points under way are expected to need, by their families."""
        if not self._plan.early:
            return 0.0
        states = [self._states[id] for id in self._wanted]
        return sum(
            state.expected_s * (self._noise.expected_rounds(self._plan, state) - EARLY_ROUNDS)
            for state in states
            if 0 < len(state.rounds) < EARLY_ROUNDS
        )

    def _ended(self) -> bool:
        """After a pass: concludes the points that are done or get no more rounds. Returns whether there were any."""
        before = len(self._wanted)
        self._conclude_done()
        if self._waiting and not any(map(self._in_first_rounds, self._wanted)):
            self._let_in()
            self._drop_finished()
        return len(self._wanted) < before

    def _conclude_done(self) -> None:
        """Concludes the points that are done or get no more rounds, by the noise that all rounds so far show."""
        done = [id for id in self._wanted if id not in self._waiting and self._next_round(id) is None]
        if done and self._plan.early:
            self._noise.refresh(_FEW)
        for id in done:
            self._conclude(id)
        self._drop_finished()

    def _reassess(self) -> bool:
        """Before the end: renews the records of points with few rounds, since later rounds show their noise better.
        Returns whether the plan then wants more rounds."""
        if not self._plan.early:
            return False
        self._noise.refresh()
        if self._noise.rounds == self._assessed:
            return False
        self._assessed = self._noise.rounds
        for id in sorted(self._final):
            old = self._points[id]
            if old.status in ("ok", "missed_precision") and old.ci_method in ("pooled", "next_round"):
                new = self._assembler.point(id, self._states[id].rounds, old.guards.get("stopped"))
                if new.status != old.status or _moved(new.ci95_s, old.ci95_s):
                    self._store(new)
        self._ask_for_more()
        return bool(self._wanted)

    def _drop_finished(self) -> None:
        """Removes points with a record from the unfinished ones."""
        for id in [id for id in self._wanted if id in self._points]:
            del self._wanted[id]
            self._earlier_points.pop(id, None)

    def _in_first_rounds(self, id: str) -> bool:
        """Returns whether a point still lacks the rounds that give it a value."""
        if id in self._waiting:
            return False
        return not self._plan.classes or len(self._states[id].rounds) < EARLY_ROUNDS

    def _let_in(self) -> None:
        """Gives waiting points the remaining time. If not even one fits, all inherit from other paths of their
        class."""
        cost_s = {id: self._states[id].expected_s * self._wanted[id] for id in self._waiting}
        left, admitted = self._budget.left() - self._underway().seconds + sum(cost_s.values()), False
        for id, cost in cost_s.items():
            if cost <= left:
                left, admitted = left - cost, True
                self._admitted.add(id)
                del self._waiting[id]
        if admitted:
            return
        for id in self._waiting:
            self._states[id].stopped = self._budget.reason()
            self._conclude(id)
        self._waiting = {}

    def _store_unmeasured(self) -> None:
        """Completes the points without a measurement: they inherit within their class, or get a record with the
        reason."""
        for inheritance in inheritances(self._plan, self._with_record()):
            self._store(self._assembler.inherited(inheritance, self._points[inheritance.source]))
        for id, reason in left_over(self._plan, self._with_record()).items():
            status = "unsupported" if reason else "skipped"
            self._store(self._assembler.without_value(id, status, reason or self._budget.reason()))
        for point in [point for id, point in self._points.items() if id not in self._final]:
            self._store(point)

    def _with_record(self) -> dict[str, Point]:
        return {id: point for id, point in self._points.items() if id in self._final}

    def _due(self) -> dict[str, int]:
        """Returns the next round of every point that may still run."""
        found = {id: self._next_round(id) for id in self._wanted if id not in self._waiting}
        return {id: number for id, number in found.items() if number is not None}

    def _next_round(self, id: str) -> int | None:
        state = self._states[id]
        if id in self._points or state.stopped:
            return None
        return next((number for number in range(self._wanted[id]) if not state.has(number)), None)

    def _one_pass(self, due: Mapping[str, int]) -> None:
        """Measures one round of each point. Opening the machine is the fixed cost of a pass."""
        self._open_machine(due)
        furthest, again = max(due.values()), []
        if min(due.values()) >= self._plan.rounds and self._plan.budget_s is not None:
            order = list(due)
        else:
            # The other members measure their first round after the representative, whose batch they use.
            behind = {id for id, number in due.items() if number == 0 and id in self._representative_of}
            order = in_order(self._plan, due, self._passes - 1, behind)
        self._results = self._by_processes(order, due)
        for id in order:
            record = self._run_round(id, due[id])
            if record is not None and "throttled" in record.guards:
                again.append(id)
            elif record is not None and due[id] + 1 == self._wanted[id] and not self._plan.early:
                self._conclude(id)
            self._progress.tick(lambda: self._forecast.left(self._points, self._wanted, furthest))
        self._results = None
        for id in again:  # the GPU may have recovered; both records stay
            self._run_round(id, due[id])
            self._progress.tick(lambda: self._forecast.left(self._points, self._wanted, furthest))

    def _open_machine(self, ids: Collection[str]) -> None:
        """Opens the machine for a pass. On hardware, each pass has a fresh process. With classes, every other pass
        only has a fresh platform, because its medians differ as much (docs/method/planner.md)."""
        self._passes += 1
        if self._target.modelled or not self._budget.allows(min(self._states[id].expected_s for id in ids)):
            return  # nothing fits into the budget, so nothing is opened
        most = most_memory([self._states[id].point_id for id in ids], self._target.facts)
        places = set().union(*(self._states[id].places for id in ids))
        self._workers.wants(most, set(self._target.facts.places) if "gpu:all" in places else places)
        if self._plan.classes and self._passes % 2 == 0:
            self._note_lost_unless(self._workers.renew())
        else:
            self._note_lost_unless(self._workers.replace())

    def _by_processes(self, order: list[str], due: Mapping[str, int]) -> Iterator[Round | Failure] | None:
        """Returns results from several processes for a model with many points and no budget; otherwise None."""
        if not self._target.modelled or self._plan.budget_s is not None or len(order) < WORTH_IT:
            return None
        if self._ahead is None:
            sampler = _SAMPLERS[self._plan.rule]
            self._ahead = Ahead(self._command, self._target.open_request, sampler, self._plan, self._target.facts)
        states = [(self._states[id], due[id]) for id in order]
        return self._ahead.results(
            [Task(state.point_id, number, state.first, state.spread) for state, number in states]
        )

    def _run_round(self, id: str, number: int) -> Round | None:
        """Measures one point in one round if it may still run."""
        state = self._states[id]
        if id in self._points or state.stopped:
            return None
        if self._stop_asked():
            raise Interrupted
        if lost := self._lost_gpus & state.places:
            state.stopped = f"{', '.join(sorted(lost))} was lost: a worker that used it could not be killed"
        elif not self._budget.allows(state.expected_s):
            state.stopped = self._budget.reason()
        elif not (state.rounds or id in self._admitted or self._budget.allows(state.expected_s, self._kept_s)):
            # First rounds get only a share of the remaining time, since few points with an interval are worth more than
            # many without. Waiting points get the rest.
            self._waiting[id] = None
            return None
        if state.stopped:
            return None
        return self._measure_and_store(state, id, number)

    def _measure_and_store(self, state: State, id: str, number: int) -> Round | None:
        """Measures and writes the round, or the point if it can have no value."""
        try:
            record = self._measure(state, number)
        except Unsupported as reason:
            self._store(self._assembler.without_value(id, "unsupported", str(reason)))
        except WrongData as wrong:
            self._store(self._assembler.failed(id, state.rounds, f"wrong data: {wrong}", verified=False))
        except (RequestFailed, WorkerGone) as failure:
            self._store(self._assembler.failed(id, state.rounds, str(failure)))
        else:
            state.rounds.append(record)
            state.cost_s = record.device_s
            self._budget.add(record.device_s)
            self._write(record)
            return record
        return None

    def _measure(self, state: State, number: int) -> Round:
        if self._results is None:
            return twice(lambda: self._measure_once(state, number))
        found = next(self._results)
        if isinstance(found, Exception):
            raise found
        assert (found.id, found.round) == (str(state.point_id), number), "results are out of order"
        return found

    def _measure_once(self, state: State, number: int) -> Round:
        sampler = _SAMPLERS[self._plan.rule](self._workers.get(), self._plan, self._target.facts)
        since = time.monotonic()
        try:
            record = self._sample(sampler, state, number)
        except WorkerGone as gone:
            self._workers.forget()
            if gone.abandoned:
                self._lost_gpus |= {place for place in state.places if "gpu:" in place}
            raise
        except RequestFailed as failure:
            if failure.kind == "lost":
                self._drop_worker()
            raise
        if not self._target.modelled:
            record.device_s = round(time.monotonic() - since, 6)
            record.guards.update(self._monitor.guards(sorted(state.places), since))
        return record

    def _sample(self, sampler: Sampler, state: State, number: int) -> Round:
        """Measures with the batch of the point's first round, or of the representative if the flows end together
        with it."""
        representative = (
            None if state.rounds else self._states.get(self._representative_of.get(str(state.point_id), ""))
        )
        if representative is None or representative.first is None:
            return sampler.measure(Task(state.point_id, number, state.first, state.spread))
        record = sampler.measure(Task(state.point_id, number, representative.first))
        if record.guards.get("joint_overlap", 1.0) >= NEARLY_TOGETHER:
            return record
        return sampler.measure(Task(state.point_id, number))

    def _drop_worker(self) -> None:
        """Kills the worker. If that fails, the worker may still use any GPU, so no GPU can be measured any more."""
        self._note_lost_unless(self._workers.drop())

    def _note_lost_unless(self, ended: bool) -> None:
        if not ended:
            self._lost_gpus |= {place for place in self._target.facts.places if "gpu:" in place}

    def _conclude(self, id: str) -> None:
        """Writes the record of the point, unless it has one or needs more rounds."""
        state = self._states[id]
        if id in self._points:
            return
        if not state.rounds:
            point = self._assembler.without_value(id, "skipped", state.stopped or "not measured")
            if state.stopped == self._budget.reason():
                self._points[id] = point  # the point may still inherit
            else:
                self._store(point)
            return
        point = self._assembler.point(id, state.rounds, state.stopped)
        kept = len(point.flows[0].round_medians_s)
        wanted = rounds_wanted(self._plan, point)
        if wanted <= kept:
            self._store(point)
        elif all(state.has(number) for number in range(wanted)):
            self._store(self._assembler.point(id, state.rounds, "the GPU was throttled in the other rounds"))
        else:
            self._points[id] = point

    def _store(self, point: Point) -> None:
        self._points[point.id] = point
        self._final.add(point.id)
        self._write(point)

    def _write(self, record: Round | Point) -> None:
        self._written += 1
        self._writer.write(record)
        self._progress.record(record)

    def _save_unfinished(self, why: str) -> None:
        """Writes a record for every point that has some of its rounds, so that readers need no rounds."""
        for id, state in sorted(self._states.items()):
            if id not in self._final and state.rounds:
                self._store(self._assembler.point(id, state.rounds, why))

    def _give_up(self, problem: str) -> None:
        """Ends a run whose workers no longer start: points with their base rounds keep their value, the others fail."""
        for id, state in self._states.items():
            if id in self._final:
                continue
            if len(state.rounds) >= self._base:
                self._store(self._assembler.point(id, state.rounds, problem))
            elif id in self._points:  # the budget refused the point
                self._store(self._points[id])
            else:
                self._store(self._assembler.failed(id, state.rounds, problem))


def _moved(new: tuple[float, float] | None, old: tuple[float, float] | None) -> bool:
    """Returns whether an end of an interval moved by more than a tenth of its half-width."""
    if new is None or old is None:
        return new is not old
    return max(abs(one - other) for one, other in zip(new, old, strict=True)) > _STALE / 2 * (old[1] - old[0])


def _rounds_of(point: Point) -> int:
    """Returns the number of rounds in a point's record, including throttled ones."""
    kept = point.flows[0].round_medians_s if point.flows else []
    return len(kept) + len(point.guards.get("throttled_rounds", ()))
