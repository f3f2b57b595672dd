"""Computes steady-state rates of several transfers on a modelled machine, for `linkscope predict`.

The simulation runs the transfers without noise. The slope of a flow's own batch gives its time while every other flow
outlasts that batch, so the rate is that of the steady state.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linkscope.errors import NOT_HERE, UserError
from linkscope.plan import case_of
from linkscope.plan.facts import MachineFacts
from linkscope.run.simulate import quiet
from linkscope.run.worker import RequestFailed, Worker, worker_command
from linkscope.runfile import PointId

if TYPE_CHECKING:
    from linkscope.machine.model import Model

_COUNT = 4  # operations of the timed flow; the second batch has twice as many
_MAX_COUNT = 20_000  # operations of a flow that outlasts the timed one
_MARGIN = 1.5


@dataclass(frozen=True)
class Steady:
    """One flow: GB/s, and seconds of one operation, while all flows run."""

    src: str
    dst: str
    bytes: int
    gbps: float
    seconds: float


def steady_rates(model: "Model", points: Sequence[PointId]) -> list[Steady]:
    """Returns the flows of the points, in order. Raises UserError with the reason if the model cannot run them."""
    from linkscope.machine.model import places

    known = places(model)
    facts = MachineFacts(model.machine.name, True, (*known.numa, *known.gpus), dict(known.cache_bytes))
    worker = Worker(worker_command())
    try:
        worker.open({"platform": "sim", "machine": quiet(model.to_json()), "seed": 0})
        cases = [case_of(point, facts) for point in points]
        by_point = {point: _solo_s(worker, case) for point, case in zip(points, cases, strict=True)}
        solo_s = [seconds for point in points for seconds in by_point[point].each_s]
        # A point occurs several times where threads share a copy.
        keys = [(point, at) for point in points for at in range(len(by_point[point].each_s))]
        groups = _groups([by_point[point] for point in points])
        prepared = worker.prepare(cases, "together#0")
        if not prepared.supported:
            raise UserError(f"{facts.name}: {prepared.reason}", NOT_HERE)
        timed = {key: actor for actor, key in enumerate(keys)}
        found = {key: _concurrent_s(worker, solo_s, groups, actor) for key, actor in timed.items()}
        seconds = [found[key] for key in keys]
        return [
            Steady(flow.src, flow.dst, flow.bytes, flow.bytes / seconds[flow.actor] / 1e9, seconds[flow.actor])
            for flow in prepared.flows
            if flow.role == "measured"
        ]
    except RequestFailed as problem:
        raise UserError(f"{facts.name}: {problem}", NOT_HERE) from problem
    finally:
        worker.kill()


@dataclass(frozen=True)
class _Solo:
    """Seconds of one operation of every actor. `in_step`: the actors wait for each other."""

    each_s: list[float]
    in_step: bool


def _groups(cases: Sequence[_Solo]) -> list[range]:
    """Returns for each actor those that do the same number of operations: the actors of its case, or only itself."""
    groups: list[range] = []
    for case in cases:
        first, count = len(groups), len(case.each_s)
        actors = range(first, first + count)
        groups += [actors] * count if case.in_step else [range(at, at + 1) for at in actors]
    return groups


def _solo_s(worker: Worker, case: dict[str, Any]) -> _Solo:
    """Returns the seconds of one operation of every actor of the case, while only this case runs."""
    prepared = worker.prepare([case], "alone#0")
    if not prepared.supported:
        raise UserError(f"{case['src']} -> {case['dst']}: {prepared.reason}", NOT_HERE)
    if prepared.most_iterations:
        what = f"{case['benchmark']} has no steady state, since pages migrate only once; measure it with `run`"
        raise UserError(what, NOT_HERE)
    counts = [[count] * prepared.actors for count in (_COUNT, 2 * _COUNT)]
    trace = worker.run(1, counts, verify=False)
    each = range(prepared.actors)
    each_s = [(trace.seconds(0, 1, actor) - trace.seconds(0, 0, actor)) / _COUNT for actor in each]
    return _Solo(each_s, prepared.in_step)


def _concurrent_s(worker: Worker, solo_s: list[float], groups: list[range], timed: int) -> float:
    """Returns the seconds of one operation of the actor `timed` while all actors run. The solo times bound the speed
    of the others, so they give the length of their batches."""
    same = groups[timed]  # these do as many operations
    slower = 1.0
    while True:
        duration_s = _MARGIN * slower * 2 * _COUNT * solo_s[timed]
        batch = [min(math.ceil(duration_s / min(solo_s[actor] for actor in group)), _MAX_COUNT) for group in groups]
        batches = [
            [count if actor not in same else times for actor, count in enumerate(batch)]
            for times in (_COUNT, 2 * _COUNT)
        ]
        trace = worker.run(1, batches, verify=False)
        short, long = (trace.seconds(0, at, timed) for at in (0, 1))
        others = [trace.seconds(0, 1, actor) for actor in range(len(solo_s)) if actor not in same]
        if all(end >= long for end in others) or max(batch) == _MAX_COUNT:
            return (long - short) / _COUNT
        slower = max(2 * slower, long / (2 * _COUNT * solo_s[timed]))
