"""The state of every point during a run."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field

from linkscope.plan import MachineFacts, Plan, estimated_seconds
from linkscope.runfile import Point, PointId, Round, Run
from linkscope.stats import EARLY_ROUNDS, deviation, median

INTERRUPTED = "the run was stopped"


@dataclass
class State:
    """One point: its rounds so far, and why it gets no more of them."""

    point_id: PointId
    estimate_s: float
    rounds: list[Round] = field(default_factory=list)
    cost_s: float | None = None  # cost of the last round
    stopped: str | None = None

    def has(self, number: int) -> bool:
        """Whether the round of this number was measured."""
        return any(round.round == number for round in self.rounds)

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


def states_of(plan: Plan, machine: MachineFacts, earlier: Run | None) -> dict[str, State]:
    """Returns the states of all points of a plan, with the rounds of an earlier session of the run."""
    states = {id: state_of(id, plan, machine) for id in plan.points}
    for id, rounds in (earlier.rounds if earlier else {}).items():
        if (plan.classes or plan.together) and id not in states:  # a size added at a bend, or concurrent flows
            states[id] = state_of(id, plan, machine)
        if id in states:
            states[id].rounds = list(rounds)
            states[id].cost_s = rounds[-1].device_s
    return states


def state_of(id: str, plan: Plan, machine: MachineFacts) -> State:
    """Returns the state of a point without rounds."""
    point_id = PointId.parse(id)
    return State(point_id, estimated_seconds(point_id, machine, plan.rule))


def finished(points: Iterable[Point]) -> dict[str, Point]:
    """Returns the points of an earlier session that need no more rounds."""
    return {point.id: point for point in points if point.guards.get("stopped") != INTERRUPTED}
