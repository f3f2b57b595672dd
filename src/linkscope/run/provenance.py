"""Finds the commit from which this linkscope was built."""

import subprocess
from pathlib import Path

_PACKAGE = Path(__file__).parents[1]


def commit() -> str | None:
    """Returns the commit of the source tree, with `-dirty` for changes in it, or that of the wheel; None if unknown."""
    tree = _PACKAGE.parents[1]
    if (tree / ".git").exists():
        command = ["git", "-C", str(tree), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        return done.stdout.strip() or None
    packaged = _PACKAGE / "_native" / "commit"
    return (packaged.read_text(encoding="utf-8").strip() or None) if packaged.is_file() else None
