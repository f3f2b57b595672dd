"""The noise of every family of points, estimated from the rounds of a run so far."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from linkscope.plan import Plan, foreseen_rounds
from linkscope.run.states import State
from linkscope.runfile import Family, PointId, Round, family_of
from linkscope.stats import Noise, families, median


class RunNoise:
    """Knows how the rounds of each point scatter. `states` are those of all points; their rounds are read again by
    `refresh`."""

    def __init__(self, states: Mapping[str, State]) -> None:
        self._states = states
        self._medians: dict[str, list[float]] = {}  # round medians of flow 0 of each point
        self._known: dict[Family, Noise] = {}
        self.rounds = 0  # that the estimate knows

    def refresh(self, few: float = 0.0) -> None:
        """Estimates the noise again if more than the fraction `few` of the rounds is new, or if a family is new."""
        rounds = sum(len(state.rounds) for state in self._states.values())
        known = all(family_of(state.point_id) in self._known for state in self._states.values() if state.rounds)
        if known and rounds <= self.rounds * (1 + few):
            return
        self.rounds = rounds
        of_family: dict[Family, list[Sequence[float]]] = defaultdict(list)
        for id, state in self._states.items():
            of_family[family_of(state.point_id)].append(self._positive_medians(id, state.rounds))
        self._known = families(of_family, lambda family: family.kin)

    def of(self, point: PointId) -> Noise | None:
        """The noise of the point's family; None before its first round."""
        return self._known.get(family_of(point))

    def expected_rounds(self, plan: Plan, state: State) -> float:
        """The total number of rounds that a point with fewer than three is expected to need."""
        medians = self._positive_medians(str(state.point_id), state.rounds)
        return foreseen_rounds(plan, state.point_id, medians, self.of(state.point_id), state.expected_s)

    def _positive_medians(self, id: str, rounds: Sequence[Round]) -> list[float]:
        """The medians of a point. Throttled rounds, and rounds shorter than the error of the clock, do not show its
        noise."""
        known = self._medians.setdefault(id, [])
        new = rounds[len(known) :]
        known += [0.0 if "throttled" in round.guards else median(round.flows[0].samples_s) for round in new]
        return [seconds for seconds in known if seconds > 0]
