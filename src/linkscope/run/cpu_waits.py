"""Seconds that threads of other processes wait for a CPU because other threads have it, as the kernel counts them."""

from collections.abc import Iterable
from pathlib import Path

Waits = dict[int, float]  # s, by the number of the thread


def cpu_waits(processes: Iterable[int], proc: Path = Path("/proc")) -> Waits:
    """Returns the seconds that each thread of the processes has been ready to run without a CPU, since it began.

    Second number of /proc/PID/task/TID/schedstat, in ns (Linux, Documentation/scheduler/sched-stats.rst). Threads that
    have ended are left out; so are all threads of a kernel that does not count.
    """
    waits: Waits = {}
    for process in processes:
        for path in (proc / str(process) / "task").glob("*/schedstat"):
            try:
                waits[int(path.parent.name)] = int(path.read_text().split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                continue
    return waits


def longest_wait_s(before: Waits, after: Waits) -> float:
    """Returns the longest time that a thread waited for a CPU between two calls of cpu_waits().

    Never more than the time between the calls, however many threads wait at once.
    """
    return max((seconds - before.get(thread, 0.0) for thread, seconds in after.items()), default=0.0)
