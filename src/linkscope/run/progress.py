"""What is said while a run is under way, on standard error: a bar on a terminal, a line now and then elsewhere."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from linkscope.units import format_seconds

if TYPE_CHECKING:
    from rich.progress import Progress as RichBar

_LINE_EVERY_S = 10.0
_BAR_EVERY_S = 0.2


@dataclass(frozen=True)
class WorkLeft:
    """Seconds of measuring done and to come (only their proportion counts), and the number of unfinished points."""

    done_s: float
    left_s: float
    points: int

    @property
    def share(self) -> float:
        """How much is done, 0 to 1."""
        return self.done_s / max(self.done_s + self.left_s, 1e-12)

    def text(self, elapsed_s: float) -> str:
        """For people, after so many seconds."""
        if self.done_s <= 0:
            return f"{self.points} points unfinished"
        left_s = elapsed_s * self.left_s / self.done_s
        return f"{self.points} points unfinished, about {format_seconds(float(f'{left_s:.2g}'))} left"


class Progress(Protocol):
    """Told after every point-round; asks for what is left only when it has something to show."""

    def tick(self, left: Callable[[], WorkLeft]) -> None: ...

    def stop(self) -> None: ...


class Silent:
    """Says nothing."""

    def tick(self, left: Callable[[], WorkLeft]) -> None: ...

    def stop(self) -> None: ...


class Lines:
    """A plain line every ten seconds."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._started = self._said = time.monotonic()

    def tick(self, left: Callable[[], WorkLeft]) -> None:
        now = time.monotonic()
        if now - self._said >= _LINE_EVERY_S:
            self._said = now
            work = left()
            print(f"{work.share:4.0%}, {work.text(now - self._started)}", file=self._stream, flush=True)

    def stop(self) -> None: ...


class Bar:
    """A bar with the time left."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

        self._bar: RichBar = Progress(
            BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"),
            console=Console(stderr=True), transient=True, auto_refresh=False,
        )  # fmt: skip
        self._task = self._bar.add_task("starting", total=1.0)
        self._started = time.monotonic()
        self._drawn = 0.0
        self._bar.start()

    def tick(self, left: Callable[[], WorkLeft]) -> None:
        now = time.monotonic()
        if now - self._drawn >= _BAR_EVERY_S:
            self._drawn = now
            work = left()
            self._bar.update(self._task, completed=work.share, description=work.text(now - self._started))
            self._bar.refresh()

    def stop(self) -> None:
        self._bar.stop()


def progress_for(stream: TextIO = sys.stderr) -> Progress:
    """The kind that fits the stream."""
    return Bar() if stream.isatty() else Lines(stream)
