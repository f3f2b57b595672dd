"""Measures one point of contention in one round: all actors run for a duration, and only their common time counts.

Batches of a fixed number of operations would end at different times: a product of matrices takes a thousand times as
long as a launch, and an engine serves the queued batches of several tasks one after the other.
"""

from linkscope.plan import DURATION_S, INTERVAL_S, computes, time_of
from linkscope.run.answers import Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.round_parts import WrongData, flow_of, rounded, timing_of
from linkscope.run.worker import REQUEST_LIMIT_S, RequestFailed, Worker
from linkscope.runfile import Round
from linkscope.stats import median

# Of the planned duration, for rounds in which an actor ended nothing: on a loaded host, threads wait for a core, and
# the messages of a model's short stream may be large.
_LONGER, _LONGEST_S = (1, 4, 16, 64, 256, 1024), 4.0


def contended_round(worker: Worker, task: Task, prepared: Prepared) -> Round:
    """Measures a prepared point. A sample is the mean time of an operation in an interval of the common time.

    Intervals count when every actor has ended an operation. If an actor ends none, the round is longer.

    Raises WrongData, or RequestFailed if the actors have no common interval.
    """
    trace, done, interval_s = _common_intervals(worker, task, prepared)
    actors = trace.series[0].actors
    samples = [[rounded(interval_s / count) for count in counts] for counts in done]
    guards = dict(trace.notes)
    if together_s := interval_s * _intervals_together(prepared, done):
        guards["together_s"] = rounded(together_s)
    if trace.spent:
        guards["spent"] = {name: float(f"{seconds:.3g}") for name, seconds in trace.spent.items()}
    return Round(
        id=str(task.point),
        round=task.round,
        flows=[flow_of(facts, samples[facts.actor], actors[facts.actor]) for facts in prepared.flows],
        batch=[max(1, round(sum(counts))) for counts in done],
        overhead_s=None,
        timing=timing_of(trace.timing),
        verified=None if trace.verdict is None else True,
        guards=guards,
        device_s=rounded(trace.span()),
    )


def _common_intervals(worker: Worker, task: Task, prepared: Prepared) -> tuple[Trace, list[list[float]], float]:
    """What all actors did together, the operations of each of them in the intervals that count, and their seconds."""
    planned_s, interval_s = time_of(task.point, _operation_s(worker, task, prepared), modelled=worker.is_modelled)
    for longer in (times for times in _LONGER if times == 1 or times * planned_s <= _LONGEST_S):
        seconds = longer * planned_s
        trace = worker.run_for(seconds, longer * interval_s, verify=True, limit_s=2 * REQUEST_LIMIT_S)
        if trace.verdict is not None and not trace.verdict.ok:
            raise WrongData(f"{trace.verdict.wrong_bytes} bytes are wrong, the first: {trace.verdict.first_wrong}")
        warm_up = trace.series[0].warm_up()
        done = [actor.interval_iterations[warm_up:] for actor in trace.series[0].actors]
        if all(counts and min(counts) > 0 for counts in done):
            return trace, done, longer * interval_s
    raise RequestFailed("failed", f"an operation took longer than the common time of {seconds:g} s")


def _operation_s(worker: Worker, task: Task, prepared: Prepared) -> float | None:
    """Seconds of a computation, by the first round or by a short trial; None if the trial ended before it."""
    if not computes(task.point):
        return None
    if task.first:
        return median(task.first.flows[0].samples_s)
    (window,) = worker.run_for(DURATION_S, INTERVAL_S, verify=False).series
    done = sum(window.actors[prepared.flows[0].actor].interval_iterations)
    return DURATION_S / done if done > 0 else None


def _intervals_together(prepared: Prepared, done: list[list[float]]) -> float:
    """The intervals in which the measured flows together move the bytes of one operation of each; 0 without bytes."""
    measured = [flow for flow in prepared.flows if flow.role == "measured"]
    moved = sum(flow.bytes * sum(done[flow.actor]) for flow in measured)
    return len(done[0]) * sum(flow.bytes for flow in measured) / moved if moved else 0.0
