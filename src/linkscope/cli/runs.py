"""Reading the run files that a command was given; what is wrong with one, and is no error, goes to standard error."""

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linkscope.runfile import Run


def read(path: str | os.PathLike[str], *, rounds: bool = False) -> "Run":
    """The run; `rounds`: with the records of its rounds. Raises UserError where the file holds none."""
    from linkscope.runfile import read_run

    run = read_run(path, rounds=rounds)
    for warning in run.warnings:
        print(f"linkscope: warning: {warning}", file=sys.stderr)
    return run
