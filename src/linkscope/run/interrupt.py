"""Turns Ctrl-C and SIGTERM into a flag. Readers check it between requests, so no record is torn and no worker left
behind."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """While entered, SIGINT and SIGTERM set the flag instead of ending the process. A call returns the flag.

    `last`: after a requested stop, the process ignores further signals until it ends.
    """

    def __init__(self, last: bool = False) -> None:
        self._requested = False
        self._last = last
        self._before: dict[int, Any] = {}

    def __call__(self) -> bool:
        return self._requested

    def ask(self) -> None:
        """Sets the flag, as the signals do."""
        self._requested = True

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.ask()

    def __enter__(self) -> "StopFlag":
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._on_signal) for number in _SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, signal.SIG_IGN if self._last and self._requested else handler)
