"""A row of the self-test: planted truth, finding and result; and how rows are run."""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from linkscope.errors import UserError
from linkscope.stats import median

_AGREE = 0.1  # repeats agree if half of them are at most this fraction above the fastest


@dataclass(frozen=True)
class Finding:
    """The planted truth and the finding, as text with units.

    `conclusive` False: other programs disturbed the row so much that it shows neither.
    """

    planted: str
    found: str
    holds: bool
    conclusive: bool = True


def judged(planted: str, found: str, holds: bool, *repeats: Sequence[float]) -> Finding:
    """The finding of a row that compares times. `repeats`: repeated times of each compared quantity.

    A row that does not hold is inconclusive if the repeats disagree: noise of a busy machine can hide any truth, and
    an error of the measuring path repeats.
    """
    apart = max((median(times) / min(times) - 1 for times in repeats if min(times) > 0), default=0.0)
    if holds or apart <= _AGREE:
        return Finding(planted, found, holds)
    return inconclusive(planted, f"{found}; half of the repeats are {apart:.0%} or more above the fastest")


def inconclusive(planted: str, found: str) -> Finding:
    """The finding of a row that other programs disturbed."""
    return Finding(planted, f"{found}: run this row again on an idle machine", holds=False, conclusive=False)


@dataclass(frozen=True)
class Row:
    """A row. `check` gets an empty folder for its run files. `cost_s`: rough duration; long rows start first."""

    name: str
    check: Callable[[Path], Finding]
    cost_s: float = 0.3


@dataclass(frozen=True)
class Verdict:
    """A completed row with its duration."""

    row: str
    planted: str
    found: str
    holds: bool
    conclusive: bool
    seconds: float

    @property
    def fails(self) -> bool:
        """Whether the row shows an error."""
        return self.conclusive and not self.holds


def carry_out(rows: Sequence[Row], jobs: int = 1) -> Iterator[Verdict]:
    """The verdicts in the order of the rows, each as soon as it is known. More than one job: in forked processes."""
    if jobs == 1 or len(rows) <= 1:
        yield from map(_carried_out, rows)
        return
    by_cost = sorted(rows, key=lambda row: -row.cost_s)
    # Forked and not spawned, so that rows changed by a test stay changed. A worker dies with the thread that started it
    # (worker.py), so rows run in the main threads of processes.
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        running = {row.name: pool.submit(_carried_out, row) for row in by_cost}
        try:
            for row in rows:
                yield running[row.name].result()
        finally:
            pool.shutdown(cancel_futures=True)


def _carried_out(row: Row) -> Verdict:
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="linkscope-selftest-") as folder:
        try:
            finding = row.check(Path(folder))
        except UserError:
            raise
        except Exception as problem:  # any error in the measuring path is a row that does not hold
            finding = Finding("what this row plants", f"{type(problem).__name__}: {problem}", False)
    seconds = round(time.monotonic() - started, 3)
    return Verdict(row.name, finding.planted, finding.found, finding.holds, finding.conclusive, seconds)
