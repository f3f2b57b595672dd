"""Processes that make pages and tables, and end at once on Ctrl-C."""

import signal
from concurrent.futures import ProcessPoolExecutor


def processes(count: int) -> ProcessPoolExecutor:
    """A pool of processes. Ctrl-C ends them, so that the command does not wait for processes that wait for it."""
    return ProcessPoolExecutor(count, initializer=signal.signal, initargs=(signal.SIGINT, signal.SIG_DFL))
