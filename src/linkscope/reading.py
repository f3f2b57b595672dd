"""Reads a file while memory for the rest of it is still being allocated."""

import os
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from types import TracebackType

from linkscope import native

Piece = tuple[int, int, int]  # offset in the file, bytes, address
_COUNTED = ("cached", "direct", "buffered", "uring", "cufile", "mapped")
_REPORT_S = 0.02


class Reading:
    """Reads pieces of a file, in a thread of its own, in the order in which they are added. Of what is added during a
    read, the next read takes all.

    The caller's thread allocates: allocators such as pools of PyTorch depend on the thread. `report` is called by it
    with the bytes so far; what it raises ends the reading. At the end of a `with` by an exception, no thread reads any
    longer, so that the destinations may be freed.
    """

    def __init__(self, path: str | os.PathLike[str], stream: int, report: Callable[[int], None] | None) -> None:
        self._path, self._stream, self._report = path, stream, report
        self._changed = threading.Condition()
        self._added, self._complete, self._cancelled = list[Piece](), False, False
        self._before, self._done, self._counts = 0, 0, Counter[str]()  # bytes before the present read, and so far
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="linkscope-reading", daemon=True)
        self._thread.start()

    def __enter__(self) -> "Reading":
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        with self._changed:
            self._complete, self._cancelled = True, kind is not None
            self._changed.notify_all()
        self._thread.join()

    def add(self, pieces: Sequence[Piece]) -> None:
        """Lets the thread read these pieces too. Raises the error that ended the reading."""
        with self._changed:
            self._added += pieces
            self._changed.notify_all()
        if self._error:
            raise self._error
        if self._report is not None:
            self._report(self._done)

    def wait(self) -> Counter[str]:
        """Returns the bytes by the way they were read, when all is queued. Raises the error that ended the reading."""
        with self._changed:
            self._complete = True
            self._changed.notify_all()
        while self._thread.is_alive():
            self._thread.join(_REPORT_S)
            if self._report is not None:
                self._report(self._done)
        if self._error:
            raise self._error
        return self._counts

    def _next(self) -> list[Piece]:
        with self._changed:
            self._changed.wait_for(lambda: self._added or self._complete)
            found, self._added = self._added, []
            return found

    def _run(self) -> None:
        try:
            while pieces := self._next():
                self._before = self._done
                self._counts.update(read_pieces(self._path, pieces, self._stream, self._now))
                self._done = self._before + sum(nbytes for _, nbytes, _ in pieces)
        except BaseException as error:  # the caller's thread raises it
            self._error = error

    def _now(self, done: int) -> None:
        if self._cancelled:
            raise InterruptedError("the reading was cancelled")
        self._done = self._before + done


def read_pieces(
    path: str | os.PathLike[str], pieces: Sequence[Piece], stream: int, report: Callable[[int], None] | None
) -> dict[str, int]:
    """Reads pieces and returns the bytes by the way they were read."""
    read = native.read_file(path, pieces, stream, report)
    return {name: getattr(read, name) for name in _COUNTED}
