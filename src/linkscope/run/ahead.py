"""Points of a model measured by several processes at once.

On hardware that would disturb; a model's noise depends on the point and the round alone, so nothing changes but the
time. Results come in the order of the questions.
"""

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

from linkscope.plan import MachineFacts, Plan
from linkscope.run.sampler import Sampler, Task, Unsupported, WrongData
from linkscope.run.worker import RequestFailed, WorkerGone
from linkscope.run.workers import CannotStart, Workers, twice
from linkscope.runfile import Round

WORTH_IT = 400  # points of a round; for fewer the processes' start takes longer than what they save
_CHUNK = 32
_PR_SET_PDEATHSIG = 1

Failure = Unsupported | WrongData | RequestFailed | WorkerGone


@dataclass(frozen=True)
class _Told:
    """A failure on its way between processes."""

    kind: type[Failure]
    message: str
    state: dict[str, Any]

    def again(self) -> Failure:
        """The exception that it was."""
        failure = self.kind.__new__(self.kind)
        failure.args = (self.message,)
        failure.__dict__.update(self.state)
        return failure


class Ahead:
    """As many processes as there are CPUs, each with a worker of its own. `sampler`: the rule's.

    Forked: what is spawned runs the main script again, whatever that is. A run on a model has no other threads.
    """

    def __init__(
        self, command: Sequence[str], open_request: dict[str, Any], sampler: type[Sampler], plan: Plan,
        facts: MachineFacts,
    ) -> None:  # fmt: skip
        self._pool = ProcessPoolExecutor(
            os.cpu_count(), get_context("fork"), _open, (tuple(command), open_request, sampler, plan, facts)
        )

    def results(self, tasks: Sequence[Task]) -> Iterator[Round | Failure]:
        """What measuring each gave, in their order. Raises CannotStart once one of the processes is gone."""
        try:
            for found in self._pool.map(_measured, tasks, chunksize=_CHUNK):
                yield found.again() if isinstance(found, _Told) else found
        except BrokenProcessPool:
            raise CannotStart("a process that measured was killed; go on with the run file") from None

    def stop(self) -> None:
        """Forgets what was not measured yet."""
        self._pool.shutdown(cancel_futures=True)


class _Here:
    """What a process has."""

    workers: Workers
    made: tuple[type[Sampler], Plan, MachineFacts]


def _open(
    command: tuple[str, ...], open_request: dict[str, Any], sampler: type[Sampler], plan: Plan, facts: MachineFacts
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which stops us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    _Here.workers = Workers(command, open_request, lambda: False)
    _Here.made = (sampler, plan, facts)


def _measured(task: Task) -> Round | _Told:
    try:
        return twice(lambda: _once(task))
    except (Unsupported, WrongData, RequestFailed, WorkerGone) as failure:
        return _Told(type(failure), str(failure), failure.__dict__)


def _once(task: Task) -> Round:
    sampler, plan, facts = _Here.made
    try:
        return sampler(_Here.workers.get(), plan, facts).measure(task)
    except WorkerGone:
        _Here.workers.forget()
        raise
    except RequestFailed as failure:
        if failure.kind == "lost":
            _Here.workers.drop()
        raise
