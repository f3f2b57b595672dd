"""The life of every point during a run: its phase, its rounds and its record."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from linkscope.plan import MachineFacts, Plan, Underway, estimated_seconds
from linkscope.runfile import Point, PointId, Round, Run
from linkscope.stats import EARLY_ROUNDS, deviation, median

INTERRUPTED = "the run was stopped"


class Phase(Enum):
    """The phase of a point. A FINAL point has its last record in the run file."""

    PLANNED = "planned"  # nothing was asked for yet
    UNDER_WAY = "under way"  # gets rounds until it has all that were asked for
    WAITING = "waiting"  # its first round did not fit into the share of first rounds
    ADMITTED = "admitted"  # waited, and is under way: its first round may use time beyond that share
    OPEN = "open"  # has a record that is not written: the plan may ask for more rounds, or the point may inherit
    FINAL = "final"  # measured, inherited, or without a value for a stated reason


_RUNNING = (Phase.UNDER_WAY, Phase.ADMITTED)
_UNFINISHED = (*_RUNNING, Phase.WAITING)
_RECORDED = (Phase.OPEN, Phase.FINAL)
_NEXT = {
    Phase.PLANNED: {Phase.UNDER_WAY, Phase.OPEN, Phase.FINAL},  # OPEN: a resumed run looks again at earlier rounds
    Phase.UNDER_WAY: {Phase.WAITING, Phase.OPEN, Phase.FINAL},
    Phase.WAITING: {Phase.ADMITTED, Phase.OPEN, Phase.FINAL},
    Phase.ADMITTED: {Phase.OPEN, Phase.FINAL},
    Phase.OPEN: {Phase.UNDER_WAY, Phase.OPEN, Phase.FINAL},
    Phase.FINAL: {Phase.UNDER_WAY, Phase.OPEN, Phase.FINAL},  # FINAL: later rounds renew the record
}


@dataclass
class State:
    """One point: its phase, its rounds so far, and why it gets no more of them."""

    point_id: PointId
    estimate_s: float
    rounds: list[Round] = field(default_factory=list)
    cost_s: float | None = None  # cost of the last round
    stopped: str | None = None
    phase: Phase = Phase.PLANNED
    wanted: int = 0  # rounds that were asked for
    record: Point | None = None  # of an unfinished point: the record before the rounds that were asked for
    asked_at: int = 0  # number of the change by which rounds were asked for
    since: int = 0  # number of the change by which it entered its phase; a record that is renewed keeps its place

    def move(self, phase: Phase) -> None:
        """Enters a phase. Supervisor and planner rely on the order of the phases."""
        assert phase in _NEXT[self.phase], f"{self.point_id}: {self.phase.value} cannot become {phase.value}"
        self.phase = phase

    @property
    def is_unfinished(self) -> bool:
        """Whether the point gets more rounds, or waits for them."""
        return self.phase in _UNFINISHED

    def has(self, number: int) -> bool:
        """Whether the round of this number was measured."""
        return any(round.round == number for round in self.rounds)

    @property
    def missing(self) -> list[int]:
        """Numbers of the rounds that were asked for and not measured."""
        return [number for number in range(self.wanted) if not self.has(number)]

    @property
    def next_round(self) -> int | None:
        """Number of the round that may run now. None: the point waits, has all its rounds, or gets no more."""
        if self.phase not in _RUNNING or self.stopped:
            return None
        return next(iter(self.missing), None)

    @property
    def first(self) -> Round | None:
        """The first round, whose batch all later ones use."""
        return self.rounds[0] if self.rounds else None

    @property
    def spread(self) -> float:
        """Standard deviation of the round medians, as a fraction of their median; 0 for fewer than three rounds."""
        medians = [median(of.flows[0].samples_s) for of in self.rounds]
        centre = median(medians) if len(medians) >= EARLY_ROUNDS else 0.0
        return deviation(medians) / centre if centre > 0 else 0.0

    @property
    def expected_s(self) -> float:
        """Seconds of another round."""
        return self.estimate_s if self.cost_s is None else self.cost_s

    @property
    def places(self) -> set[str]:
        """The places of its flows."""
        return set(itertools.chain(*self.point_id.paths))


class Ledger:
    """The states of all points of a run. Its methods are the only way from one phase to another.

    `earlier`: the earlier sessions of the run.
    """

    def __init__(self, plan: Plan, machine: MachineFacts, earlier: Run | None = None) -> None:
        self._plan = plan
        self._machine = machine
        self._changes = itertools.count(1)
        self.states = {id: self._planned(id) for id in plan.points}
        for id, rounds in (earlier.rounds if earlier else {}).items():
            if plan.classes or plan.together or id in self.states:  # a size added at a bend, or concurrent flows
                state = self._state(id)
                state.rounds, state.cost_s = list(rounds), rounds[-1].device_s
        for point in finished(earlier.points if earlier else ()).values():
            self.finish(point)

    def ask(self, id: str, rounds: int) -> State:
        """Asks for rounds of a point until it has this many."""
        state = self._state(id)
        state.wanted = rounds
        self._move(state, Phase.UNDER_WAY)
        state.asked_at = state.since
        return state

    def wait(self, id: str) -> None:
        """Lets a point wait for its first round."""
        self._move(self.states[id], Phase.WAITING)

    def admit(self, id: str) -> None:
        """Gives a waiting point time beyond the share of first rounds."""
        self._move(self.states[id], Phase.ADMITTED)

    def leave_open(self, point: Point) -> None:
        """Notes the record of a point that may get more rounds, or inherit."""
        self._move_with(point, Phase.OPEN)

    def finish(self, point: Point) -> None:
        """Notes the last record of a point."""
        self._move_with(point, Phase.FINAL)

    def unfinished(self) -> dict[str, State]:
        """The unfinished points, in the order in which they were asked for."""
        found = [(id, state) for id, state in self.states.items() if state.is_unfinished]
        return dict(sorted(found, key=lambda pair: pair[1].asked_at))

    def open(self) -> dict[str, Point]:
        """The records that are not written."""
        return self._recorded(Phase.OPEN)

    def waiting(self) -> dict[str, State]:
        """The points that wait for their first round, in the order in which they were refused."""
        found = [(id, state) for id, state in self.states.items() if state.phase is Phase.WAITING]
        return dict(sorted(found, key=lambda pair: pair[1].since))

    def underway(self) -> Underway:
        """The missing rounds of the unfinished points, and their seconds."""
        lacking = {id: len(state.missing) for id, state in self.unfinished().items()}
        return Underway(lacking, sum(self.states[id].expected_s * rounds for id, rounds in lacking.items()))

    def known(self) -> dict[str, Point]:
        """The records of all points, those of unfinished points included."""
        return {**self.results(), **{id: state.record for id, state in self.unfinished().items() if state.record}}

    def results(self) -> dict[str, Point]:
        """The records of the points that are not unfinished, in the order in which they were made."""
        return self._recorded(*_RECORDED)

    def final(self) -> dict[str, Point]:
        """The records that are in the run file and need no more rounds."""
        return self._recorded(Phase.FINAL)

    def _move_with(self, point: Point, phase: Phase) -> None:
        state = self._state(point.id)
        self._move(state, phase)
        state.record = point

    def _move(self, state: State, phase: Phase) -> None:
        is_renewed = {state.phase, phase} <= {*_RECORDED}
        state.move(phase)
        if not is_renewed:
            state.since = next(self._changes)

    def _recorded(self, *phases: Phase) -> dict[str, Point]:
        found = [(id, state) for id, state in self.states.items() if state.phase in phases]
        return {id: state.record for id, state in sorted(found, key=lambda pair: pair[1].since) if state.record}

    def _state(self, id: str) -> State:
        """The state of a point, which the plan may have added during the run."""
        if id not in self.states:
            self.states[id] = self._planned(id)
        return self.states[id]

    def _planned(self, id: str) -> State:
        point_id = PointId.parse(id)
        return State(point_id, estimated_seconds(point_id, self._machine, self._plan.rule))


def finished(points: Iterable[Point]) -> dict[str, Point]:
    """Returns the points of an earlier session that need no more rounds."""
    return {point.id: point for point in points if point.guards.get("stopped") != INTERRUPTED}
