"""What a model says of points that run for a duration: the simulation without noise, one round of each."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from linkscope.plan import case_of, time_of
from linkscope.run.simulate import quiet
from linkscope.run.target import Target, modelled
from linkscope.run.worker import RequestFailed, Worker, worker_command
from linkscope.runfile import PointId

if TYPE_CHECKING:
    from linkscope.machine.model import Model


def without_noise(model: "Model") -> Target:
    """The model as a target whose operations take equal times: a prediction is not a random draw."""
    target = modelled(model, 0)
    return replace(target, open_request=target.open_request | {"machine": quiet(model.to_json())})


def lasting_seconds(model: "Model", points: Sequence[PointId]) -> dict[str, list[float] | str]:
    """Seconds of an operation of each measured flow, by the id of the point, or the reason why the model has none."""
    target = without_noise(model)
    worker = Worker(worker_command())
    try:
        worker.open(target.open_request)
        return {str(point): _seconds(worker, target, point) for point in points}
    finally:
        worker.kill()


def _seconds(worker: Worker, target: Target, point: PointId) -> list[float] | str:
    ends = {place for place in (point.src, point.dst) if not place.endswith(":all")}
    if not ends <= set(target.facts.places):
        return f"{target.facts.name} has no {', '.join(sorted(ends - set(target.facts.places)))}"
    seconds, interval_s = time_of(point, modelled=True)
    try:
        prepared = worker.prepare(case_of(point, target.facts), f"{point}#0")
        if not prepared.supported:
            return prepared.reason
        (window,) = worker.run_for(seconds, interval_s, verify=False).series
    except RequestFailed as problem:
        return str(problem)
    first = window.warm_up()
    done = [actor.interval_iterations[first:] for actor in window.actors]
    measured = [done[flow.actor] for flow in prepared.flows if flow.role == "measured"]
    if not all(map(sum, measured)):
        return f"an operation takes longer than the common time of {seconds:g} s"
    return [interval_s * len(counts) / sum(counts) for counts in measured]
