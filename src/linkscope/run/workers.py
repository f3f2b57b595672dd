"""The one worker that is running: started when needed, opened, replaced."""

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from linkscope.run.worker import RequestFailed, Worker, WorkerGone

_CHEAP_S = 5.0  # a point whose worker died sooner than this is tried once more

Answer = TypeVar("Answer")


def twice(measure: Callable[[], Answer]) -> Answer:
    """A worker that dies early in a point may have died of something else: the point is tried once more."""
    started = time.monotonic()
    try:
        return measure()
    except WorkerGone as gone:
        if gone.hung or time.monotonic() - started > _CHEAP_S:
            raise
    except RequestFailed as failure:
        if failure.kind != "lost":
            raise
    return measure()


class CannotStart(Exception):
    """No worker opens the machine any more."""


class Workers:
    """Hands out an opened worker. `open_request` is what it is opened with (docs/worker.md)."""

    _TRIES = 3

    def __init__(self, command: Sequence[str], open_request: dict[str, Any], stop_asked: Callable[[], bool]) -> None:
        self._command = command
        self._open_request = dict(open_request)
        self._stop_asked = stop_asked
        self._worker: Worker | None = None
        self.start_s = 0.0  # what the last start took

    def get(self) -> Worker:
        """The worker at hand, or a new one. Raises CannotStart after three that did not open."""
        if self._worker is None:
            self._worker = self._start()
        return self._worker

    def wants(self, most: list[dict[str, Any]]) -> None:
        """What the platforms to come are told of the memory that they will need (docs/worker.md)."""
        self._open_request["most"] = most

    def renew(self) -> bool:
        """A platform anew in the worker at hand, with memory, streams and code of its own: cheaper than a process.

        A worker that does not open again is ended; False where it could not be.
        """
        if self._worker is None:
            return True
        try:
            self._worker.open(self._open_request)
        except WorkerGone as gone:
            self.forget()
            return not gone.abandoned
        except RequestFailed:
            return self.drop()
        return True

    def drop(self) -> bool:
        """Ends the worker at hand, if there is one; the next is fresh. False where it could not be ended."""
        if self._worker is None:
            return True
        worker, self._worker = self._worker, None
        return worker.kill()

    def forget(self) -> None:
        """The worker at hand is gone already, or cannot be killed."""
        self._worker = None

    def _start(self) -> Worker:
        problem = ""
        for _ in range(self._TRIES):
            started = time.monotonic()
            worker = Worker(self._command, self._stop_asked)
            try:
                worker.open(self._open_request)
            except WorkerGone as gone:
                problem = str(gone)
            except RequestFailed as failure:
                worker.kill()
                problem = str(failure)
            except BaseException:
                worker.kill()
                raise
            else:
                self.start_s = time.monotonic() - started
                return worker
        raise CannotStart(f"no worker can open the machine: {problem}")
