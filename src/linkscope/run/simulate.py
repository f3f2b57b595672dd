"""Times points of a machine file with the simulation without noise and the sampler's slopes.

The fit of a model and the check of the fit use it for many similar machines.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any

from linkscope.plan import case_of
from linkscope.plan.facts import MachineFacts
from linkscope.run.answers import Prepared
from linkscope.run.balance import balanced
from linkscope.run.sampler import JOINT_BATCH_S
from linkscope.run.worker import RequestFailed, Worker, worker_command
from linkscope.runfile import PointId

_SMALL_BYTES, _SMALL_COUNT, _COUNT = 4 << 20, 16, 4
_STEPS = 64  # steps of a pointer chase or another operation without bytes
_TOGETHER = 0.96  # flows end together if the shortest takes at least this fraction of the longest


class Simulation:
    """Times points on machines given as the content of a machine file."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def seconds(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[list[float] | str]:
        """Returns the seconds of one operation of every flow of each point, or the reason why the machine cannot run
        it."""
        self._open(machine)
        facts = _facts(machine)
        return [self._one(point, facts) for point in points]

    def carried(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[dict[str, int]]:
        """Returns the bytes on each directed link in one operation of every flow; empty for a point that cannot run."""
        self._open(machine)
        facts = _facts(machine)
        found: list[dict[str, int]] = []
        for point in points:
            prepared = self._prepare(point, facts)
            links = (
                [] if isinstance(prepared, str) else self._worker.run(1, [[1] * prepared.actors], verify=False).links
            )
            found.append({link.link: link.bytes for link in links if link.bytes})
        return found

    def _open(self, machine: dict[str, Any]) -> None:
        self._worker.open({"platform": "sim", "machine": quiet(machine), "seed": 0})

    def _one(self, point: PointId, facts: MachineFacts) -> list[float] | str:
        try:
            prepared = self._prepare(point, facts)
            if isinstance(prepared, str):
                return prepared
            each = self._each(point, prepared.actors, prepared.most_iterations)
        except RequestFailed as problem:
            return str(problem)
        return [each[flow.actor] for flow in prepared.flows]

    def _prepare(self, point: PointId, facts: MachineFacts) -> Prepared | str:
        ends = {place for place in (point.src, point.dst) if place.rpartition(":")[2] != "all"}
        if not ends <= set(facts.places):
            return "it is on places that the machine does not have"
        prepared = self._worker.prepare(case_of(point, facts), f"{point}#0")
        return prepared if prepared.supported else prepared.reason

    def _each(self, point: PointId, actors: int, most: int) -> list[float]:
        if point.param("mode") == "single" or most == 1:
            return self._slopes([0] * actors, [1] * actors)
        if point.bytes == 0:
            return self._slopes([0] * actors, [min(_STEPS, most or _STEPS)] * actors)
        count = _SMALL_COUNT if point.bytes <= _SMALL_BYTES else _COUNT
        count = min(count, most // 2) if most else count
        each = self._slopes([count] * actors, [2 * count] * actors)
        if actors == 1 or min(each) >= _TOGETHER * max(each):
            return each
        counts = balanced(each, max(JOINT_BATCH_S, count * max(each)))
        return self._slopes(counts, [2 * count for count in counts])

    def _slopes(self, shorter: list[int], longer: list[int]) -> list[float]:
        trace = self._worker.run(1, [shorter, longer], verify=False)
        return [
            max((trace.seconds(0, 1, actor) - trace.seconds(0, 0, actor)) / (long - short), math.ulp(0))
            for actor, (short, long) in enumerate(zip(shorter, longer, strict=True))
        ]


@contextlib.contextmanager
def simulation() -> Iterator[Simulation]:
    """Starts a simulation with its own worker."""
    worker = Worker(worker_command())
    try:
        yield Simulation(worker)
    finally:
        worker.kill()


def quiet(machine: dict[str, Any]) -> dict[str, Any]:
    """Returns the content of a machine file without noise, faults and clock ticks: a prediction is not a random draw.

    Streams on one engine take turns copy by copy, so that the prediction does not depend on which stream is first.
    """
    content = {key: value for key, value in machine.items() if key not in ("noise", "fault")}
    costs = content["costs"]
    content["costs"] = costs | {"event_tick_ns": costs["event_tick_ns"] | {"v": 0}}
    if "copy" in content:
        content["copy"] = content["copy"] | {"turns": "copy"}
    return content


def _facts(machine: dict[str, Any]) -> MachineFacts:
    caches: dict[str, int] = {}
    for numa in machine["numa"]:
        caches |= dict.fromkeys(numa["places"], int(numa["llc_mib"] * 2**20))
    for gpu in machine.get("gpu", []):
        for places in gpu["at"].values():
            caches |= dict.fromkeys(places, int(gpu["l2_mib"] * 2**20))
    return MachineFacts(machine["machine"]["name"], True, tuple(caches), caches)
