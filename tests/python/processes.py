"""Processes that a test left running."""

import contextlib
from pathlib import Path


def children(parent: int) -> list[int]:
    """The running processes that this process started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, of = stat.read_text().rpartition(")")[2].split()[:2]
            if int(of) == parent and state != "Z":
                found.append(int(stat.parent.name))
    return found


def runs(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
