"""Runs points through the measuring path as `linkscope run` does: plan, supervisor, workers, run file, reader."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from linkscope.plan import Plan, make_plan
from linkscope.run import Target, benchmark_table, measure, worker_command
from linkscope.run.answers import Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.sampler import Sampler
from linkscope.run.worker import REQUEST_LIMIT_S, RunRequest, Worker
from linkscope.runfile import Point, PointId, Round, read_run

H2D = "h2d/ce/numa:0.pinned->gpu:0.device/{}?after=kernel&bidirectional={}&mode={}"
D2H = "d2h/ce/gpu:0.device->numa:0.pinned/{}?after=kernel&mode=batched"
D2D = (
    "d2d/ce/gpu:{}.device->gpu:{}.device/{}"
    "?after=kernel&bidirectional=false&call=memcpy&initiator=src&mode=batched&peer=on"
)
KIB, MIB = 1 << 10, 1 << 20


def plan_of(target: Target, ids: Sequence[str], **wishes: Any) -> Plan:
    """A plan of whole ids."""
    return make_plan(target.facts, benchmark_table(), only=ids, **wishes)


def measured(
    folder: Path, target: Target, ids: Sequence[str], meddling: Sequence[dict[str, Any]] = (), **wishes: Any
) -> dict[str, Point]:
    """The points as a reader of the run file gets them. `meddling` is what interposer.py does to the worker's
    answers."""
    path = folder / "run.jsonl"
    measure(target, plan_of(target, ids, **wishes), path, command=command(meddling), force=True)
    return {point.id: point for point in read_run(path).points}


def command(meddling: Sequence[dict[str, Any]] = ()) -> list[str]:
    """The command of the worker, behind an interposer if its answers are to be changed."""
    if not meddling:
        return worker_command()
    interposer = str(Path(__file__).with_name("interposer.py"))
    return [sys.executable, "-I", "-S", interposer, msgspec.json.encode(list(meddling)).decode(), *worker_command()]


class Witness(Worker):
    """A worker that keeps everything: prepared cases, requests and answers."""

    def __init__(self, command: Sequence[str]) -> None:
        super().__init__(command)
        self.prepared: list[Prepared] = []
        self.runs: list[tuple[list[list[int]], Trace]] = []

    def prepare(
        self,
        case: dict[str, Any] | list[dict[str, Any]],
        key: str,
        limit_s: float = REQUEST_LIMIT_S,
        then: RunRequest | None = None,
    ) -> Prepared:
        self.prepared.append(super().prepare(case, key, limit_s, then))
        return self.prepared[-1]

    def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float = REQUEST_LIMIT_S) -> Trace:
        trace = super().run(samples, batches, verify=verify, limit_s=limit_s)
        self.runs.append((batches, trace))
        return trace


@dataclasses.dataclass(frozen=True)
class Watched:
    """One round of one point, and the worker's side of it."""

    round: Round
    prepared: Prepared
    runs: list[tuple[list[list[int]], Trace]]


def watched(target: Target, id: str) -> Watched:
    """One round by the sampler, with everything that went over the pipe."""
    worker = Witness(command())
    try:
        worker.open(target.open_request)
        record = Sampler(worker, plan_of(target, [id]), target.facts).measure(Task(PointId.parse(id), 0))
        return Watched(record, worker.prepared[-1], worker.runs)
    finally:
        worker.kill()


def near(found: float | None, planted: float, relative: float = 0.01) -> bool:
    """Whether the found value is the planted one."""
    return found is not None and abs(found - planted) <= relative * planted
