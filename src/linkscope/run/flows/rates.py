"""Measures concurrent flows over a common time: nothing counts before each has ended an operation or after one stops.

A round is a fresh worker (on a model, a fresh session), as in a run. Its value is the mean over the common time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from linkscope.errors import NOT_HERE, SOMETHING_FAILED, UserError
from linkscope.plan import case_of
from linkscope.run.answers import Prepared, Trace, Window
from linkscope.run.flows.cases import Asked
from linkscope.run.target import Target
from linkscope.run.worker import RequestFailed, Worker, WorkerGone, worker_command
from linkscope.stats import Interval, jain_index, median, median_interval

INTERVAL_S = 0.01
_LIMIT_S = 60.0  # for memory, rehearsals and the comparison of a program


@dataclass(frozen=True)
class FlowRates:
    """One flow. `per_s`: operations a second in each round; `interval_per_s`: the same in each interval of a round.

    `bytes`: of one operation of all its actors together. `p50_s`, `p99_s`: of the durations of single operations, the
    median over rounds; None for flows whose operations overlap.
    """

    asked: Asked
    bytes: int
    per_s: list[float]
    interval_per_s: list[list[float]]
    limit_gbps: float | None
    limit_source: str | None
    p50_s: float | None = None
    p99_s: float | None = None

    @property
    def gbps(self) -> float | None:
        """GB/s: the median of the rounds; None for operations without bytes."""
        return median(self.per_s) * self.bytes / 1e9 if self.bytes else None

    @property
    def seconds(self) -> float:
        """Seconds of one operation while all flows run."""
        return 1 / median(self.per_s)

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval of the operations a second; None for fewer than six rounds."""
        return median_interval(self.per_s)


@dataclass(frozen=True)
class Measured:
    """All flows of a text. A number for each round: the common time, and the skew of starts and ends, in seconds."""

    flows: list[FlowRates]
    common_s: list[float]
    start_skew_s: list[float]
    end_skew_s: list[float]
    timing: str

    @property
    def total_gbps(self) -> list[float]:
        """GB/s of all flows in each round."""
        return [sum(flow.per_s[at] * flow.bytes for flow in self.flows) / 1e9 for at in range(len(self.common_s))]

    @property
    def jain(self) -> float | None:
        """Jain's index of the rates of flows with bytes; None for fewer than two."""
        rates = [flow.gbps for flow in self.flows if flow.gbps is not None]
        return jain_index(rates) if len(rates) > 1 else None


@dataclass(frozen=True)
class _Round:
    actors: list[list[int]]  # of each flow
    trace: Trace
    prepared: Prepared


def measure_flows(target: Target, asked: Sequence[Asked], seconds: float, rounds: int) -> Measured:
    """Runs all flows at once for `seconds` in each of `rounds` rounds.

    Raises UserError: exit code 3 for flows that this machine cannot run together, 1 for wrong data or a lost worker.
    """
    cases = [case_of(point, target.facts) for one in asked for point in one.points]
    key = "; ".join(str(point) for one in asked for point in one.points)
    worker: Worker | None = None
    done: list[_Round] = []
    try:
        for number in range(rounds):
            if worker and not target.modelled:
                worker.kill()
                worker = None
            if worker is None:
                worker = Worker(worker_command())
                worker.open(target.open_request)
            done.append(_round(worker, target, asked, cases, f"{key}#{number}", seconds))
    except RequestFailed as problem:
        code = NOT_HERE if problem.kind == "usage" else SOMETHING_FAILED
        raise UserError(f"{target.facts.name}: {problem}", code) from None
    except WorkerGone as gone:
        raise UserError(f"{target.facts.name}: {gone}", SOMETHING_FAILED) from None
    finally:
        if worker:
            worker.kill()
    return _measured(target, asked, done)


def _round(
    worker: Worker, target: Target, asked: Sequence[Asked], cases: list[dict[str, Any]], key: str, seconds: float
) -> _Round:
    prepared = worker.prepare(cases, key, _LIMIT_S)
    if not prepared.supported:
        raise UserError(f"{target.facts.name}: {prepared.reason}", NOT_HERE)
    if prepared.most_iterations:
        why = "pages migrate only once, so such a flow has no steady rate; `linkscope run` measures it"
        raise UserError(why, NOT_HERE)
    trace = worker.run_for(seconds, INTERVAL_S, verify=True, limit_s=_LIMIT_S)
    if trace.verdict is not None and not trace.verdict.ok:
        wrong = f"{trace.verdict.wrong_bytes} bytes are wrong, the first: {trace.verdict.first_wrong}"
        raise UserError(f"{target.facts.name}: {wrong}", SOMETHING_FAILED)
    if trace.series[0].end_s <= trace.series[0].start_s:
        raise UserError(f"the flows ran together for less than {INTERVAL_S * 1e3:.0f} ms: raise --seconds")
    measured = iter([flow.actor for flow in prepared.flows if flow.role == "measured"])
    return _Round([[next(measured) for _ in one.points] for one in asked], trace, prepared)


def _measured(target: Target, asked: Sequence[Asked], done: Sequence[_Round]) -> Measured:
    flows = [_flow(target, one, [(round, round.actors[at]) for round in done]) for at, one in enumerate(asked)]
    windows = [round.trace.series[0] for round in done]
    starts = [round.trace.stamps[0::2] for round in done]
    ends = [round.trace.stamps[1::2] for round in done]
    return Measured(
        flows,
        [window.end_s - window.start_s - _first(window) * INTERVAL_S for window in windows],
        [max(times) - min(times) for times in starts],
        [max(times) - min(times) for times in ends],
        done[0].trace.timing,
    )


def _first(window: Window) -> int:
    """Index of the first interval after every actor has ended an operation. 0 if the sample ends before."""
    first = window.warm_up()
    return first if first < len(window.actors[0].interval_iterations) else 0


def _flow(target: Target, asked: Asked, rounds: Sequence[tuple[_Round, list[int]]]) -> FlowRates:
    """The rates of one flow: the sum over its actors, whose operations have equal bytes."""
    found: list[list[float]] = []
    for round, actors in rounds:
        window = round.trace.series[0]
        series = [window.actors[actor].interval_iterations[_first(window) :] for actor in actors]
        found.append([sum(of) / len(actors) / INTERVAL_S for of in zip(*series, strict=True)])
    peak = target.limit(asked.points[0]) if len(asked.points) == 1 and not asked.work else None
    per_s = [sum(of) / len(of) for of in found]
    gbps, source = peak or (None, None)
    singly = [round.trace.series[0].actors[actors[0]] for round, actors in rounds]
    medians = [of.p50_s for of in singly if of.p50_s is not None]
    tails = [of.p99_s for of in singly if of.p99_s is not None]
    return FlowRates(
        asked, sum(point.bytes for point in asked.points) or asked.traffic, per_s, found, gbps, source,
        median(medians) if medians else None,
        median(tails) if tails else None,
    )  # fmt: skip
