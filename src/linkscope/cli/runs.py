"""Reads the run files of a command and prints their warnings on standard error."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkscope.runfile import Run


def read(path: str | os.PathLike[str], *, rounds: bool = False) -> "Run":
    """The run, with the records of its rounds if `rounds`. Raises UserError for a file that holds no run."""
    from linkscope.runfile import read_run

    run = read_run(path, rounds=rounds)
    for warning in run.warnings:
        print(f"linkscope: warning: {warning}", file=sys.stderr)
    return run
