"""Measures one point of contention in one round: all actors run for a duration, and only their common time counts.

Batches of a fixed number of operations would end at different times: a product of matrices takes a thousand times as
long as a launch.
"""

from linkscope.run.answers import Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.round_parts import WrongData, flow_of, rounded, timing_of
from linkscope.run.worker import REQUEST_LIMIT_S, RequestFailed, Worker
from linkscope.runfile import PointId, Round

DURATION_S, INTERVAL_S = 0.2, 0.01  # of a round; of a sample


def is_contended(point: PointId) -> bool:
    """Whether the point measures work beside other work, or alone in the same way."""
    return point.param("beside") != ""


def contended_round(worker: Worker, task: Task, prepared: Prepared) -> Round:
    """Measures a prepared point. A sample is the mean time of an operation in an interval of the common time.

    Raises WrongData, or RequestFailed if the actors have no common interval.
    """
    trace = worker.run_for(DURATION_S, INTERVAL_S, verify=True, limit_s=2 * REQUEST_LIMIT_S)
    if trace.verdict is not None and not trace.verdict.ok:
        raise WrongData(f"{trace.verdict.wrong_bytes} bytes are wrong, the first: {trace.verdict.first_wrong}")
    actors = trace.series[0].actors
    if any(not actor.interval_iterations or min(actor.interval_iterations) <= 0 for actor in actors):
        raise RequestFailed("failed", f"an operation took longer than the common time of {DURATION_S:g} s")
    samples = [[rounded(INTERVAL_S / count) for count in actor.interval_iterations] for actor in actors]
    guards = dict(trace.notes)
    if together_s := _together_s(prepared, trace):
        guards["together_s"] = rounded(together_s)
    if trace.spent:
        guards["spent"] = {name: float(f"{seconds:.3g}") for name, seconds in trace.spent.items()}
    return Round(
        id=str(task.point),
        round=task.round,
        flows=[flow_of(facts, samples[facts.actor]) for facts in prepared.flows],
        batch=[max(1, round(sum(actor.interval_iterations))) for actor in actors],
        overhead_s=None,
        timing=timing_of(trace.timing),
        verified=None if trace.verdict is None else True,
        guards=guards,
        device_s=rounded(trace.span()),
    )


def _together_s(prepared: Prepared, trace: Trace) -> float:
    """The seconds in which the measured flows together move the bytes of one operation of each; 0 without bytes."""
    window = trace.series[0]
    measured = [flow for flow in prepared.flows if flow.role == "measured"]
    moved = sum(flow.bytes * sum(window.actors[flow.actor].interval_iterations) for flow in measured)
    return (window.end_s - window.start_s) * sum(flow.bytes for flow in measured) / moved if moved else 0.0
