"""Forecasts the progress of a run: the base rounds and the expected extra rounds.

Where points may stop after three rounds, the noise of a point's family shows how many it will need. Elsewhere, the
first rounds of a point show whether it will miss its precision, since the interval of six rounds is their range.
"""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from linkscope.plan import Plan, precision_target, rounds_wanted
from linkscope.plan.next import rounds_after
from linkscope.run.budget import Budget
from linkscope.run.noise import RunNoise
from linkscope.run.progress import WorkLeft
from linkscope.run.states import State
from linkscope.runfile import Point, Round
from linkscope.stats import EARLY_ROUNDS, median

_FIRST = 1.75  # cost of a first round, which also calibrates, over that of a later round; seen on H200
_FEW_ROUNDS = 20  # below this number of rounds, the start of the worker dominates
_PRIOR_BENCHMARKS = 2.0  # weight of the estimates as they are, in benchmarks
_ENOUGH = 1.25  # estimates are rough, and some points get more than their base rounds
_UNKNOWN = 1.9  # the same for benchmarks of which no point was measured: sp-6 on a model took 1.8 times its estimate
# Share of points that need extra rounds, seen on H200. This prior has the weight of 20 points.
_MISSED, _MISSED_WEIGHT = 0.3, 20.0
# Expected range of n normal samples in standard deviations, for n of 2 and more.
_RANGE = (1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078)


@dataclass
class _PointRounds:
    """The rounds of a point so far. `ends`: lowest and highest round median of each measured flow."""

    rounds: int = 0
    kept: int = 0  # rounds without throttling
    spent_s: float = 0.0
    ends: list[tuple[float, float]] = field(default_factory=list)
    will_miss: bool | None = None  # None: too early to predict


@dataclass
class _Remaining:
    """The remaining rounds: their seconds, their number, and the number of unfinished points."""

    seconds: float = 0.0
    rounds: float = 0.0
    points: int = 0


class Forecast:
    """Predicts the remaining work from the states of all points. The reported share never decreases."""

    def __init__(
        self, plan: Plan, states: Mapping[str, State], budget: Budget, noise: RunNoise, *, modelled: bool
    ) -> None:
        self._plan = plan
        self._noise = noise
        self._states = states
        self._budget = budget
        self._modelled = modelled  # in virtual time, a round costs the same for every point
        self._first = 1.0 if modelled else _FIRST
        self._base = EARLY_ROUNDS if plan.early else plan.rounds
        self._extra = rounds_after(plan, plan.rounds) - plan.rounds
        self._seen = {id: _PointRounds() for id in states}
        self._reported = 0.0
        self._started = time.monotonic()
        self._read_rounds()
        self._before, self._rounds_before = self._done(), sum(seen.rounds for seen in self._seen.values())

    def left(self, points: Mapping[str, Point], wanted: Mapping[str, int], number: int) -> WorkLeft:
        """Returns the remaining work. `points` are done, the others get their `wanted` rounds, and `number` is the
        highest round under way."""
        self._read_rounds()
        remaining = self._remaining(points, wanted)
        done, left = self._done(), remaining.rounds if self._modelled else remaining.seconds
        if remaining.seconds > 0:
            left *= min(1.0, max(self._budget.left(), 0.0) / remaining.seconds)
        self._reported = max(self._reported, done / max(done + left, 1e-12))
        return WorkLeft(self._reported, self._left_s(done - self._before, left), remaining.points, self._stage(number))

    def enough_s(self, unmeasured: Collection[str]) -> float:
        """Returns a budget, in seconds, that would have been enough for the base rounds of these points and of those
        that the budget stopped. Opening the machine costs once a pass, and the rest once a round."""
        self._read_rounds()
        stopped = (id for id, state in self._states.items() if state.stopped == self._budget.reason())
        scale, spent = self._scale(), sum(seen.spent_s for seen in self._seen.values())
        known = {state.point_id.benchmark for state in self._states.values() if state.rounds}
        needed = 0.0
        for id in {*unmeasured, *stopped}:
            state, missing = self._states[id], max(0, self._base - self._seen[id].rounds)
            safety = _ENOUGH if state.point_id.benchmark in known else _UNKNOWN
            needed += safety * self._cost(state, missing, scale)
        passes = max((seen.rounds for seen in self._seen.values()), default=0)
        opening = max(0.0, self._budget.spent() - spent) * max(1.0, self._base / max(passes, 1))
        return _ENOUGH * (spent + opening) + needed

    def _left_s(self, done: float, left: float) -> float | None:
        """Returns the remaining wall time. Pauses between measurements count in proportion."""
        rounds = sum(seen.rounds for seen in self._seen.values()) - self._rounds_before
        if done <= 0 or rounds < min(_FEW_ROUNDS, len(self._states)):
            return None
        return (time.monotonic() - self._started) * left / done

    def _stage(self, number: int) -> str:
        if self._plan.classes:  # each point decides on its number of rounds
            return f"round {number + 1}"
        base = self._plan.rounds
        return f"round {number + 1} of {base}" if number < base else f"extra round {number + 1 - base}"

    def _read_rounds(self) -> None:
        """Reads the new rounds."""
        for id, state in self._states.items():
            seen = self._seen.setdefault(id, _PointRounds())
            if len(state.rounds) > seen.rounds:
                for record in state.rounds[seen.rounds :]:
                    _add_round(seen, record)
                seen.will_miss = self._will_miss(state, seen) if self._extra else False

    def _done(self) -> float:
        """Returns the seconds measured so far; for a model, the rounds."""
        return sum(seen.rounds if self._modelled else seen.spent_s for seen in self._seen.values())

    def _remaining(self, points: Mapping[str, Point], wanted: Mapping[str, int]) -> _Remaining:
        scale, others = self._scale(), self._missed_fraction()
        found = _Remaining()
        for id, state in self._states.items():
            seen, point = self._seen[id], points.get(id)
            if point is not None:
                rounds = self._rounds_after(point)
            elif state.stopped:
                continue
            elif wanted.get(id, 0) > self._base:
                rounds = max(0, wanted[id] - seen.rounds)
            elif self._plan.early and seen.rounds < EARLY_ROUNDS:
                rounds = self._noise.expected_rounds(self._plan, state) - seen.rounds
            else:
                extra = self._extra * (others if seen.will_miss is None else seen.will_miss)
                rounds = max(0, self._base - seen.rounds) + extra
            if rounds > 0:
                found.points += 1
                found.rounds += rounds
                found.seconds += self._cost(state, rounds, scale)
        return found

    def _rounds_after(self, point: Point) -> float:
        if point.status != "missed_precision" or not point.flows:
            return 0.0
        return rounds_wanted(self._plan, point) - len(point.flows[0].round_medians_s)

    def _cost(self, state: State, rounds: float, scale: Callable[[State], float]) -> float:
        """Returns the seconds of the next rounds of a point."""
        if state.cost_s is None:
            return state.estimate_s * scale(state) * (rounds + self._first - 1)
        return state.cost_s * rounds / (self._first if len(state.rounds) == 1 else 1.0)

    def _scale(self) -> Callable[[State], float]:
        """Returns the cost of a round over its estimate, for a point that was not measured. Points of the same
        benchmark tell most. One expensive benchmark tells little of the others: their ratio is a geometric mean."""
        spent: dict[str, float] = defaultdict(float)
        estimated: dict[str, float] = defaultdict(float)
        for id, state in self._states.items():
            if state.rounds:
                seen = self._seen[id]
                spent[state.point_id.benchmark] += seen.spent_s / (seen.rounds + self._first - 1)
                estimated[state.point_id.benchmark] += state.estimate_s
        ratios = {name: max(spent[name], 1e-9) / max(estimated[name], 1e-9) for name in spent}
        others = math.exp(sum(map(math.log, ratios.values())) / (len(ratios) + _PRIOR_BENCHMARKS))

        def of(state: State) -> float:
            name = state.point_id.benchmark
            return (spent[name] + others * state.estimate_s) / (estimated[name] + state.estimate_s)

        return of

    def _missed_fraction(self) -> float:
        """Returns the fraction of the undecided points that is expected to need extra rounds."""
        predictions = [seen.will_miss for seen in self._seen.values() if seen.will_miss is not None]
        return (
            (sum(predictions) + _MISSED * _MISSED_WEIGHT) / (len(predictions) + _MISSED_WEIGHT) if self._extra else 0.0
        )

    def _will_miss(self, state: State, seen: _PointRounds) -> bool | None:
        """Predicts from the rounds so far whether the interval will be too wide; None for fewer than two rounds."""
        if seen.kept < 2:
            return None
        base = self._plan.rounds
        # with nine or more rounds, the interval excludes the ends
        final = _RANGE[base - 2] if base <= 8 else 5.6 / math.sqrt(base)
        growth = max(1.0, final / _RANGE[min(seen.kept, 10) - 2])
        widths = [(high - low) / max(high + low, 1e-30) for low, high in seen.ends]
        return growth * max(widths) > precision_target(self._plan, state.point_id)


def _add_round(seen: _PointRounds, record: Round) -> None:
    seen.rounds += 1
    seen.spent_s += record.device_s
    if "throttled" in record.guards:
        return
    medians = [median(flow.samples_s) for flow in record.flows if flow.role == "measured"]
    if seen.ends:
        seen.ends = [(min(low, one), max(high, one)) for (low, high), one in zip(seen.ends, medians, strict=False)]
    else:
        seen.ends = [(one, one) for one in medians]
    seen.kept += 1
