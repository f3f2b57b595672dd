"""Times points of a machine file with the simulation without noise and the sampler's slopes.

The fit of a model and the check of the fit use it for many similar machines.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from linkscope.plan import case_of
from linkscope.plan.facts import MachineFacts
from linkscope.run.balance import balanced
from linkscope.run.recipes import JOINT_BATCH_S
from linkscope.run.worker import RequestFailed, RunRequest, Worker, prepare_line, worker_command
from linkscope.runfile import PointId
from linkscope.units import parse_bytes

_SMALL_BYTES, _SMALL_COUNT, _COUNT = 4 << 20, 16, 4
_MANY_CHUNKS = 2048  # one operation of so many chunks has a steady rate: batches of one and two differ by 0.014 %
_STEPS = 64  # steps of a pointer chase or another operation without bytes
_TOGETHER = 0.96  # flows end together if the shortest takes at least this fraction of the longest


class _Slopes(NamedTuple):
    """Seconds per operation of every actor, and the actor of every flow."""

    each: list[float]
    actors: list[int]


_Counts = tuple[list[int], list[int]]
_Found = _Slopes | str


class _Case(NamedTuple):
    """The request that prepares a point, and the parts of the answer that depend on the places only."""

    line: bytes
    actors: int
    most_iterations: int
    in_step: bool


class Simulation:
    """Times points on machines given as the content of a machine file."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._facts: MachineFacts | None = None
        self._cases: dict[PointId, _Case] = {}  # of the machine with these facts

    def seconds(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[list[float] | str]:
        """Returns the seconds of one operation of every flow of each point, or the reason why the machine cannot run
        it."""
        self._open(machine)
        reasons = {point: reason for point in points if (reason := self._learn(point))}
        runnable = [point for point in dict.fromkeys(points) if point not in reasons]
        found = dict(zip(runnable, self._slopes({point: self._counts(point) for point in runnable}), strict=True))
        longer = {point: counts for point in runnable if (counts := self._balanced(point, found[point]))}
        found |= zip(longer, self._slopes(longer), strict=True)
        return [reasons[point] if point in reasons else _of_flows(found[point]) for point in points]

    def operations(self, point: PointId) -> float:
        """Returns the arithmetic operations of one iteration of a point of the machine in use; 0 for none."""
        assert self._facts is not None
        prepared = self._worker.prepare(case_of(point, self._facts), f"{point}#0")
        return sum(flow.operations or 0.0 for flow in prepared.flows)

    def carried(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[dict[str, int]]:
        """Returns the bytes on each directed link in one operation of every flow; empty for a point that cannot run."""
        self._open(machine)
        runnable = [point for point in dict.fromkeys(points) if not self._learn(point)]
        cases = [self._cases[point] for point in runnable]
        requests = [(case.line, RunRequest(1, [[1] * case.actors], False)) for case in cases]
        found: dict[PointId, dict[str, int]] = {}
        for point, answer in zip(runnable, self._worker.prepare_and_run(requests), strict=True):
            links = [] if isinstance(answer, str) else answer[1].links
            found[point] = {link.link: link.bytes for link in links if link.bytes}
        return [found.get(point, {}) for point in points]

    def _open(self, machine: dict[str, Any]) -> None:
        self._worker.open({"platform": "sim", "machine": quiet(machine), "seed": 0})
        facts = _facts(machine)
        if facts != self._facts:
            self._facts, self._cases = facts, {}

    def _learn(self, point: PointId) -> str:
        """Prepares a point for the first time. Returns the reason if the machine cannot run it."""
        if point in self._cases:
            return ""
        assert self._facts is not None
        ends = {place for place in (point.src, point.dst) if place.rpartition(":")[2] != "all"}
        if not ends <= set(self._facts.places):
            return "it is on places that the machine does not have"
        case = case_of(point, self._facts)
        try:
            prepared = self._worker.prepare(case, f"{point}#0")
        except RequestFailed as problem:
            return str(problem)
        if prepared.supported:
            line = prepare_line(case, f"{point}#0")
            self._cases[point] = _Case(line, prepared.actors, prepared.most_iterations, prepared.in_step)
        return prepared.reason

    def _counts(self, point: PointId) -> _Counts:
        """Returns the operations of each actor in the shorter and in the longer batch."""
        _, actors, most, _ = self._cases[point]
        if point.param("mode") == "single" or most == 1:
            return [0] * actors, [1] * actors
        if point.bytes == 0:
            return [0] * actors, [min(_STEPS, most or _STEPS)] * actors
        count = _shorter_batch(point)
        count = min(count, most // 2) if most else count
        return [count] * actors, [2 * count] * actors

    def _balanced(self, point: PointId, found: _Found) -> _Counts | None:
        """Returns batches that end together if the flows of the first ones did not."""
        (count, *_), _ = self._counts(point)
        if isinstance(found, str) or count == 0 or len(found.each) == 1 or self._cases[point].in_step:
            return None
        if min(found.each) >= _TOGETHER * max(found.each):
            return None
        counts = balanced(found.each, max(JOINT_BATCH_S, count * max(found.each)))
        return counts, [2 * count for count in counts]

    def _slopes(self, wanted: dict[PointId, _Counts]) -> Iterator[_Found]:
        """Yields the seconds per operation of every actor of each point, from two batches, or a reason."""
        requests = [(self._cases[point].line, RunRequest(1, [*counts], False)) for point, counts in wanted.items()]
        answers = self._worker.prepare_and_run(requests)
        for (shorter, longer), answer in zip(wanted.values(), answers, strict=True):
            if isinstance(answer, str):
                yield answer
                continue
            prepared, trace = answer
            each = [
                max((trace.seconds(0, 1, actor) - trace.seconds(0, 0, actor)) / (long - short), math.ulp(0))
                for actor, (short, long) in enumerate(zip(shorter, longer, strict=True))
            ]
            yield _Slopes(each, [flow.actor for flow in prepared.flows])


def _shorter_batch(point: PointId) -> int:
    """The operations of the shorter of two batches."""
    if point.bytes <= _SMALL_BYTES:
        return _SMALL_COUNT
    chunk = parse_bytes(point.param("chunk"))  # None for one chunk, and where nothing is cut
    return 1 if chunk and point.bytes // chunk >= _MANY_CHUNKS else _COUNT


def _of_flows(found: _Found) -> list[float] | str:
    return found if isinstance(found, str) else [found.each[actor] for actor in found.actors]


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
    cpus: dict[str, int] = {}
    for numa in machine["numa"]:
        caches |= dict.fromkeys(numa["places"], int(numa["llc_mib"] * 2**20))
        cpus |= dict.fromkeys(numa["places"], numa["cpus"])
    for gpu in machine.get("gpu", []):
        for places in gpu["at"].values():
            caches |= dict.fromkeys(places, int(gpu["l2_mib"] * 2**20))
    disks = [place for disk in machine.get("disk", []) for place in disk["places"]]
    return MachineFacts(machine["machine"]["name"], True, (*caches, *disks), caches, cpus=cpus)
