"""Measures points of a model in several processes.

On hardware, concurrent measurements would disturb each other. A model's noise depends only on the point and the round,
so several processes change only the run time. Results keep the order of the tasks.
"""

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import msgspec

from linkscope.plan import MachineFacts, Plan
from linkscope.run.batches import Task
from linkscope.run.round_parts import WrongData
from linkscope.run.sampler import Sampler, Unsupported
from linkscope.run.worker import RequestFailed, WorkerGone
from linkscope.run.workers import CannotStart, Workers, twice
from linkscope.runfile import PointId, Round

WORTH_IT = 400  # points of a round: below, starting the processes takes longer than it saves
_MAX_PROCESSES = 16  # each process needs 40 MiB beyond the memory it shares with its parent, and so does its worker
_CHUNK_TASKS = 32
_PR_SET_PDEATHSIG = 1

Failure = Unsupported | WrongData | RequestFailed | WorkerGone


_FAILURES: dict[str, type[Failure]] = {
    kind.__name__: kind for kind in (Unsupported, WrongData, RequestFailed, WorkerGone)
}


class _Request(msgspec.Struct, array_like=True, gc=False):
    """A task on its way to another process. Pickle would be several times slower."""

    id: str
    round: int
    first: Round | None
    spread: float


class _Failure(msgspec.Struct, gc=False, tag_field="record", tag="failure"):
    """A failure on its way back to the parent."""

    kind: str
    message: str
    state: dict[str, Any]

    def again(self) -> Failure:
        """Rebuilds the original exception."""
        kind = _FAILURES[self.kind]
        failure = kind.__new__(kind)
        failure.args = (self.message,)
        failure.__dict__.update(self.state)
        return failure


_ENCODER = msgspec.msgpack.Encoder()
_REQUESTS = msgspec.msgpack.Decoder(list[_Request])
_RESULTS = msgspec.msgpack.Decoder(list[Round | _Failure])


class Ahead:
    """Owns one process per CPU, at most 16, each with its own worker. `sampler` is the sampler of the plan's rule.

    The processes are forked, because a spawned process would run the main script again. Forking is safe: a run on a
    model has no other threads.
    """

    def __init__(
        self, command: Sequence[str], open_request: dict[str, Any], sampler: type[Sampler], plan: Plan,
        facts: MachineFacts,
    ) -> None:  # fmt: skip
        self._pool = ProcessPoolExecutor(
            min(len(os.sched_getaffinity(0)), _MAX_PROCESSES), get_context("fork"), _init_process,
            (tuple(command), open_request, sampler, plan, facts),
        )  # fmt: skip

    def results(self, tasks: Sequence[Task]) -> Iterator[Round | Failure]:
        """Yields the results of the tasks in order. Raises CannotStart if one of the processes is gone."""
        gc.freeze()  # records hold no cycles, so the collector need not scan them again
        try:
            for start, answer in enumerate(self._pool.map(_measure_chunk, _encoded_chunks(tasks))):
                for task, found in zip(
                    tasks[_CHUNK_TASKS * start : _CHUNK_TASKS * (start + 1)], _RESULTS.decode(answer), strict=True
                ):
                    yield found.again() if isinstance(found, _Failure) else _share_strings(found, task)
        except BrokenProcessPool:
            raise CannotStart("a process that measured was killed; go on with the run file") from None

    def stop(self) -> None:
        """Cancels the remaining tasks."""
        self._pool.shutdown(cancel_futures=True)


def _encoded_chunks(tasks: Sequence[Task]) -> Iterator[bytes]:
    for start in range(0, len(tasks), _CHUNK_TASKS):
        chunk = tasks[start : start + _CHUNK_TASKS]
        yield _ENCODER.encode([_Request(str(task.point), task.round, task.first, task.spread) for task in chunk])


def _share_strings(found: Round, task: Task) -> Round:
    """Lets rounds share equal strings: a large run keeps hundreds of thousands of rounds in memory."""
    if found.id == (id := str(task.point)):  # otherwise the supervisor reports results that are out of order
        found.id = id
    for flow in found.flows:
        flow.src, flow.dst = sys.intern(flow.src), sys.intern(flow.dst)
        flow.src_memory, flow.dst_memory = sys.intern(flow.src_memory), sys.intern(flow.dst_memory)
    if task.first is not None:
        found.batch = task.first.batch if found.batch == task.first.batch else found.batch
        found.guards = task.first.guards if found.guards == task.first.guards else found.guards
    return found


class _ProcessState:
    """The state of a forked process."""

    workers: Workers
    made: tuple[type[Sampler], Plan, MachineFacts]


def _init_process(
    command: tuple[str, ...], open_request: dict[str, Any], sampler: type[Sampler], plan: Plan, facts: MachineFacts
) -> None:
    gc.freeze()  # memory of the parent stays shared until someone writes to it
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which stops the processes
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _ProcessState.workers = Workers(command, open_request, lambda: False)
    _ProcessState.made = (sampler, plan, facts)


def _measure_chunk(chunk: bytes) -> bytes:
    return _ENCODER.encode(
        [
            _measure_task(Task(PointId.parse(request.id), request.round, request.first, request.spread))
            for request in _REQUESTS.decode(chunk)
        ]
    )


def _measure_task(task: Task) -> Round | _Failure:
    try:
        return twice(lambda: _measure_once(task))
    except (Unsupported, WrongData, RequestFailed, WorkerGone) as failure:
        return _Failure(type(failure).__name__, str(failure), failure.__dict__)


def _measure_once(task: Task) -> Round:
    sampler, plan, facts = _ProcessState.made
    try:
        return sampler(_ProcessState.workers.get(), plan, facts).measure(task)
    except WorkerGone:
        _ProcessState.workers.forget()
        raise
    except RequestFailed as failure:
        if failure.kind == "lost":
            _ProcessState.workers.drop()
        raise
