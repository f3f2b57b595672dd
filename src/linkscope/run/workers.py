"""Starts, opens and replaces the single running worker."""

import contextlib
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

from linkscope.run.contexts import Contexts
from linkscope.run.process import patient_s
from linkscope.run.worker import RequestFailed, Worker, WorkerGone

_CHEAP_S = 5.0  # a worker that dies sooner is retried

Answer = TypeVar("Answer")


class CannotStart(Exception):
    """No worker opens the machine any more."""


def twice(measure: Callable[[], Answer]) -> Answer:
    """Measures a point, and retries once if its worker dies early: the point is probably not the cause. If no worker
    starts again, the first failure is the answer, because it is of this point."""
    started = time.monotonic()
    try:
        return measure()
    except WorkerGone as gone:
        if gone.hung or time.monotonic() - started > patient_s(_CHEAP_S):
            raise
        first: WorkerGone | RequestFailed = gone
    except RequestFailed as failure:
        if failure.kind != "lost":
            raise
        first = failure
    try:
        return measure()
    except CannotStart:
        raise first from None


class Workers:
    """Hands out an opened worker. `open_request` opens it (docs/reference/worker.md).

    `contexts` selects contexts by cost; None: any context.
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
        self._opening: Worker | None = None  # the next worker, if already started

    def get(self) -> Worker:
        """Returns the current worker, or a new one. Raises CannotStart after three failed attempts."""
        if self._worker is None:
            self._worker = self._start()
        return self._worker

    def wants(self, most: list[dict[str, Any]], places: Collection[str]) -> None:
        """Sets what future platforms need: the maximum of each memory kind (docs/reference/worker.md), and the
        places."""
        self._open_request["most"] = most
        self._places = places

    def renew(self) -> bool:
        """Opens a new platform in the current worker, with its own memory, streams and code: cheaper than a new
        process.

        A worker that does not open again is killed. Returns False if it could not be killed.
        """
        if self._worker is None:
            return True
        try:
            self._record_contexts(self._worker.open(self._request()))
        except WorkerGone as gone:
            self.forget()
            return not gone.abandoned
        except RequestFailed:
            return self.drop()
        return True

    def replace(self) -> bool:
        """Starts a fresh process, which opens the machine while the kernel frees the resources of the old one. The
        old process is gone when this returns. Returns False if it could not be killed."""
        if self._worker is None:
            return True
        old, self._worker = self._worker, None
        old.end()
        with contextlib.suppress(WorkerGone):  # get() starts another worker, and reports if none opens
            self._opening = self._start_opening()
        return old.kill()

    def drop(self) -> bool:
        """Kills the current worker, if any; the next one is fresh. Returns False if it could not be killed."""
        workers = [worker for worker in (self._worker, self._opening) if worker]
        self._worker = self._opening = None
        return all([worker.kill() for worker in workers])

    def gone(self, gone: WorkerGone) -> None:
        """Forgets the worker that `gone` is about."""
        self.forget()

    def forget(self) -> None:
        """Forgets a worker that is gone or cannot be killed."""
        self._worker = None

    def _start(self) -> Worker:
        problem = ""
        for _ in range(self._TRIES):
            try:
                return self._open()
            except (WorkerGone, RequestFailed) as failure:
                problem = str(failure)
        raise CannotStart(f"no worker can open the machine: {problem}")

    def _open(self) -> Worker:
        worker, self._opening = self._opening or self._start_opening(), None
        try:
            self._record_contexts(worker.opened())
        except WorkerGone:
            raise
        except BaseException:
            worker.kill()
            raise
        return worker

    def _start_opening(self) -> Worker:
        """Starts a process that opens the machine."""
        worker = Worker(self._command, self._stop_asked)
        worker.ask_to_open(self._request())
        return worker

    def _request(self) -> dict[str, Any]:
        asked = {"contexts": self._contexts.wanted(self._places)} if self._contexts else {}
        return self._open_request | asked

    def _record_contexts(self, answer: dict[str, Any]) -> None:
        if self._contexts:
            self._contexts.made(answer.get("contexts", []))
