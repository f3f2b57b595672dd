"""What is known of every point while a run is under way."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from linkscope.plan import MachineFacts, Plan, estimated_seconds
from linkscope.runfile import Point, PointId, Round, Run

INTERRUPTED = "the run was stopped"


@dataclass
class State:
    """One point: its rounds so far, and why there are no more of them."""

    what: PointId
    estimate_s: float
    rounds: list[Round] = field(default_factory=list)
    cost_s: float | None = None  # of its last round
    stopped: str | None = None

    def has(self, number: int) -> bool:
        """Whether that round was measured."""
        return any(round.round == number for round in self.rounds)

    @property
    def first(self) -> Round | None:
        """The round whose batch the later ones take over."""
        return self.rounds[0] if self.rounds else None

    @property
    def expected_s(self) -> float:
        """What another round costs."""
        return self.estimate_s if self.cost_s is None else self.cost_s

    @property
    def places(self) -> set[str]:
        """The places that its flows touch."""
        return {self.what.src, self.what.dst}


def states_of(plan: Plan, machine: MachineFacts, earlier: Run | None) -> dict[str, State]:
    """The state of every point of a plan, with the rounds that an earlier session of the run took."""
    states = {}
    for id in plan.points:
        what = PointId.parse(id)
        states[id] = State(what, estimated_seconds(what, machine, plan.rule))
    for id, rounds in (earlier.rounds if earlier else {}).items():
        if id in states:
            states[id].rounds = list(rounds)
            states[id].cost_s = rounds[-1].device_s
    return states


def finished(points: Iterable[Point]) -> dict[str, Point]:
    """The points of an earlier session that need nothing more."""
    return {point.id: point for point in points if point.guards.get("stopped") != INTERRUPTED}
