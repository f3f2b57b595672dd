"""The one worker that is running: started when needed, opened, replaced."""

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from linkscope.run.contexts import Contexts
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
    """Hands out an opened worker. `open_request` is what it is opened with (docs/reference/worker.md).

    `contexts`: of what cost they are to be; None: whatever they cost.
    """

    _TRIES = 3

    def __init__(
        self,
        command: Sequence[str],
        open_request: dict[str, Any],
        stop_asked: Callable[[], bool],
        contexts: Contexts | None = None,
    ) -> None:
        self._command = command
        self._open_request = dict(open_request)
        self._stop_asked = stop_asked
        self._contexts = contexts
        self._places: Collection[str] = ()
        self._worker: Worker | None = None
        self._opening: Worker | None = None  # the next one, where it was started already

    def get(self) -> Worker:
        """The worker at hand, or a new one. Raises CannotStart after three that did not open."""
        if self._worker is None:
            self._worker = self._start()
        return self._worker

    def wants(self, most: list[dict[str, Any]], places: Collection[str]) -> None:
        """What the platforms to come will need: of each kind of memory at most (docs/reference/worker.md), and which
        places.
        """
        self._open_request["most"] = most
        self._places = places

    def renew(self) -> bool:
        """A platform anew in the worker at hand, with memory, streams and code of its own: cheaper than a process.

        A worker that does not open again is ended; False where it could not be.
        """
        if self._worker is None:
            return True
        try:
            self._made(self._worker.open(self._request()))
        except WorkerGone as gone:
            self.forget()
            return not gone.abandoned
        except RequestFailed:
            return self.drop()
        return True

    def replace(self) -> bool:
        """A fresh process for the worker at hand. It opens while the kernel takes back what the old one had, which is
        gone when this returns; False where the old one could not be ended.
        """
        if self._worker is None:
            return True
        old, self._worker = self._worker, None
        old.end()
        with contextlib.suppress(WorkerGone):  # get() starts another, and tells where none opens
            self._opening = self._asked()
        return old.kill()

    def drop(self) -> bool:
        """Ends the worker at hand, if there is one; the next is fresh. False where it could not be ended."""
        workers = [worker for worker in (self._worker, self._opening) if worker]
        self._worker = self._opening = None
        return all([worker.kill() for worker in workers])

    def forget(self) -> None:
        """The worker at hand is gone already, or cannot be killed."""
        self._worker = None

    def _start(self) -> Worker:
        problem = ""
        for _ in range(self._TRIES):
            try:
                return self._opened()
            except (WorkerGone, RequestFailed) as failure:
                problem = str(failure)
        raise CannotStart(f"no worker can open the machine: {problem}")

    def _opened(self) -> Worker:
        worker, self._opening = self._opening or self._asked(), None
        try:
            self._made(worker.opened())
        except WorkerGone:
            raise
        except BaseException:
            worker.kill()
            raise
        return worker

    def _asked(self) -> Worker:
        """A process that is opening the machine."""
        worker = Worker(self._command, self._stop_asked)
        worker.ask_to_open(self._request())
        return worker

    def _request(self) -> dict[str, Any]:
        asked = {"contexts": self._contexts.wanted(self._places)} if self._contexts else {}
        return self._open_request | asked

    def _made(self, answer: dict[str, Any]) -> None:
        if self._contexts:
            self._contexts.made(answer.get("contexts", []))
