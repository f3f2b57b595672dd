"""Reads the run files of a command and prints their warnings on standard error."""

import os
import sys
from typing import TYPE_CHECKING, Any

from linkscope.errors import UserError

if TYPE_CHECKING:
    from linkscope.runfile import Run


def read(path: str | os.PathLike[str], *, rounds: bool = False) -> "Run":
    """The run, with the records of its rounds if `rounds`. Raises UserError for a file that holds no run."""
    from linkscope.runfile import read_run

    run = read_run(path, rounds=rounds)
    for warning in run.warnings:
        print(f"linkscope: warning: {warning}", file=sys.stderr)
    return run


def refuse_without_values(run: "Run") -> None:
    """Raises UserError if no point of the run has a value."""
    if not any(point.median_s is not None for point in run.points):
        raise UserError(f"{run.path} has no point with a value. Measure again")


def measures_all(run: "Run") -> bool:
    """Whether the run is one of the whole suite `full`, so that another run of it measures nothing more."""
    return run.header.plan.get("suite") == "full" and not run.header.plan.get("only")


def title(run: "Run", written: str | None) -> str:
    """The machine, and the run file as the user wrote it."""
    mark = "MODELLED " if run.modelled else ""
    source = f", {'made' if run.modelled else 'measured'} {run.header.started} ({written})" if written else ""
    return f"{mark}{run.header.machine.get('name', '')}{source}"


def identity(run: "Run", written: str | None) -> dict[str, Any]:
    """The same for JSON."""
    return {"run": written, "machine": run.header.machine.get("name"), "modelled": run.modelled}
