"""Whether what is made of a run can be written where -o says, found out before it is made."""

import os
from pathlib import Path

from linkscope.cli.report import check_target
from linkscope.errors import UserError


def check_writable(target: Path, runs: list[Path], option: str = "-o") -> None:
    """Leaves no trace. A pipe is not tried: its reader would take the end of that for the end of all."""
    check_target(target, option, runs=runs)
    try:
        existed = os.path.lexists(target)
        if existed and not target.is_file() and not target.is_dir():
            return
        with open(target, "ab"):
            pass
        if not existed:
            target.unlink()
    except OSError as error:
        raise not_written(target, error, option) from None


def not_written(target: Path, error: OSError, option: str = "-o") -> UserError:
    """The sentence for it."""
    return UserError(f"{option} {target}: cannot be written: {error.strerror}; choose another place")
