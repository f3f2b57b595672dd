"""Shows the progress of a run on standard error: a table and a bar on a terminal, plain lines elsewhere.

The measuring thread writes between two measurements, so output never disturbs a measurement.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from linkscope.runfile import Point, Round
from linkscope.units import encodable, format_rate, format_seconds, with_signs

if TYPE_CHECKING:
    from rich.live import Live

_LINE_EVERY_S = 10.0
_DRAW_EVERY_S = 0.25
_DRAW_SHARE = 0.02  # maximum share of the processor time that drawing between measurements may use
_FREE_COLUMNS = 8  # columns left free beside the bar, for the ^C that a terminal shows
_BAR, _MIN_BAR = 30, 8


@dataclass(frozen=True)
class WorkLeft:
    """The remaining work. `share`: completed fraction, 0 to 1; `left_s`: remaining wall time, None while unknown."""

    share: float
    left_s: float | None
    points: int  # unfinished points
    stage: str  # 'round 2 of 6'

    def texts(self) -> list[str]:
        """Returns texts of decreasing length."""
        points = f"{self.points} point{'s' * (self.points != 1)} unfinished"
        if self.left_s is None:
            return [f"{self.stage}, {points}", self.stage, ""]
        left = "less than 1 s left"
        if self.left_s >= 1:
            left = f"about {format_seconds(float(f'{self.left_s:.2g}'))} left"
        return [f"{self.stage}, {points}, {left}", f"{self.stage}, {left}", left, ""]


class Found(Protocol):
    """The results so far, as text."""

    def add(self, record: Round | Point) -> None:
        """Stores a record. Must be cheap, because it runs between measurements."""

    def table(self, width: int, height: int) -> Sequence[tuple[str, str]]:
        """Returns at most `height` lines of at most `width` columns, with their styles."""

    def best(self) -> str:
        """Returns the best result so far in one line; '' without any."""


class Progress(Protocol):
    """Shows the progress. Receives every record; `tick` is called after every round of a point."""

    def record(self, record: Round | Point) -> None: ...

    def tick(self, left: Callable[[], WorkLeft]) -> None:
        """Updates the display if it is due; only then calls `left`."""

    def stop(self) -> None:
        """Removes temporary output. May be called twice."""


class Silent:
    """Shows nothing."""

    def record(self, record: Round | Point) -> None: ...

    def tick(self, left: Callable[[], WorkLeft]) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """Prints every ten seconds a line with the completed share, and a line with the best result if it changed."""

    def __init__(self, found: Found, stream: TextIO) -> None:
        self._found = found
        self._stream = stream
        self._printed_at = time.monotonic()
        self._best = ""

    def _print(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a reader that has ended must not end the run
            print(encodable(text, self._stream), file=self._stream, flush=True)

    def record(self, record: Round | Point) -> None:
        self._found.add(record)

    def tick(self, left: Callable[[], WorkLeft]) -> None:
        now = time.monotonic()
        if now - self._printed_at < _LINE_EVERY_S:
            return
        self._printed_at = now
        work, best = left(), self._found.best()
        self._print(f"{_percent(work.share)}, {work.texts()[0]}")
        if best != self._best:
            self._print(f"      {best}")
            self._best = best

    def stop(self) -> None: ...


class Points(Lines):
    """Prints a line for each completed point, and the lines of `Lines`."""

    def record(self, record: Round | Point) -> None:
        super().record(record)
        if isinstance(record, Point):
            time_text = with_signs(format_seconds(record.median_s)) if record.median_s else record.reason or ""
            rate = f", {format_rate(record.gbps)}" if record.gbps else ""
            self._print(f"{record.status:<16} {record.id}  {time_text}{rate}")


class Terminal:
    """Shows a table of results above a bar with the remaining time; both disappear at the end.

    The cursor stays visible, so the terminal is usable however the process ends.
    """

    def __init__(self, found: Found, stream: TextIO) -> None:
        from rich.console import Console

        self._found = found
        self._stream = stream
        self._console = Console(file=stream, highlight=False)
        self._live: Live | None = None
        self._next = 0.0
        self._closed = False  # the terminal is closed
        self._drawn: list[str] = []

    def record(self, record: Round | Point) -> None:
        self._found.add(record)

    def tick(self, left: Callable[[], WorkLeft]) -> None:
        now = time.monotonic()
        if now < self._next or self._closed:
            return
        before_s = time.process_time()
        try:
            self._draw(left())
        except OSError:
            self._closed = True
        cost_s = time.process_time() - before_s
        self._next = now + max(_DRAW_EVERY_S, min(cost_s / _DRAW_SHARE, _LINE_EVERY_S))

    def stop(self) -> None:
        live, self._live = self._live, None
        if live is None or self._closed:
            return
        try:
            self._show(live, [])
            live.stop()
        except OSError:
            self._closed = True

    def _draw(self, work: WorkLeft) -> None:
        width, height = self._terminal_size()
        rows = [(encodable(text, self._stream), style) for text, style in self._found.table(width - 1, height - 2)]
        lines = [*rows, (self._bar(work, width - _FREE_COLUMNS), "")]
        if self._live is None:
            self._live = self._start_live()
        self._show(self._live, lines)

    def _terminal_size(self) -> tuple[int, int]:
        """Returns the current columns and rows; COLUMNS and LINES would not follow a resize."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._stream.fileno())
            if size.columns and size.lines:
                self._console.size = size
        return self._console.size

    def _start_live(self) -> "Live":
        from rich.live import Live

        live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
        live.start()
        self._console.show_cursor(True)
        return live

    def _show(self, live: "Live", lines: Sequence[tuple[str, str]]) -> None:
        from rich.text import Text

        self._erase_wrapped_lines()
        self._drawn = [line for line, _ in lines]
        text = Text("\n", no_wrap=True, overflow="crop").join(Text(line, style) for line, style in lines)
        live.update(text, refresh=True)

    def _erase_wrapped_lines(self) -> None:
        """Moves the cursor up over the extra lines that appear when the terminal becomes narrower and wraps lines."""
        from rich.control import Control
        from rich.segment import ControlType

        width = max(self._terminal_size()[0], 1)
        more = sum(max(0, len(line) - 1) // width for line in self._drawn)
        up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
        if more:
            self._console.control(Control(*up * more))

    def _bar(self, work: WorkLeft, width: int) -> str:
        """Returns a bar with the longest text that fits."""
        full, empty = "#-" if self._console.options.ascii_only else "━─"
        for text in work.texts():
            suffix = f" {_percent(work.share)}  {text}".rstrip()
            length = min(_BAR, width - len(suffix))
            if length >= _MIN_BAR:
                done = int(work.share * length)
                return full * done + empty * (length - done) + suffix
        return _percent(work.share)[: max(width + _FREE_COLUMNS - 1, 0)]


def _percent(share: float) -> str:
    """Returns the completed percentage; 100 % only when everything is done."""
    return f"{int(100 * share + 1e-9):3d}%"


def progress_for(found: Found, stream: TextIO | None = None) -> Progress:
    """Returns the progress display for the stream, by default standard error."""
    stream = stream or sys.stderr
    plain = os.environ.get("TERM", "").lower() in ("", "dumb", "unknown")
    return Terminal(found, stream) if stream.isatty() and not plain else Lines(found, stream)
