"""Outputs of commands: no measured run is overwritten, and a path that cannot be written is refused before any work."""

import argparse
import os
import sys
from pathlib import Path

from linkscope.errors import UserError

STANDARD_OUTPUT = Path("-")


def add_force(parser: argparse.ArgumentParser) -> None:
    """Adds --force."""
    parser.add_argument("--force", action="store_true", help="also overwrite a run file")


def check_target(target: Path, option: str, *, runs: list[Path], force: bool = False) -> None:
    """Refuses a target that holds a run; `force` allows it. The content decides, not the name.

    The runs that the command reads are refused in any case.
    """
    from linkscope.runfile.content import holds_run

    if any(_same(target, run) for run in runs):
        raise UserError(f"{option} {target}: this is a run file that the command reads: choose another name")
    if not force and holds_run(target):
        raise UserError(
            f"{option} {target}: this is a run file and would be overwritten: choose another name, or add --force"
        )


def check_writable(target: Path, runs: list[Path], option: str = "-o", *, force: bool = False) -> None:
    """Refuses a target that is a run file or that cannot be written; leaves no trace.

    A pipe is not opened, because its reader would take the end of this attempt for the end of the output.
    """
    if target == STANDARD_OUTPUT:
        return
    check_target(target, option, runs=runs, force=force)
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


def write(target: Path, content: str | bytes, option: str = "-o") -> None:
    """Writes the content to the file, or to standard output for `-`. Raises UserError if that fails."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    if target == STANDARD_OUTPUT:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        target.write_bytes(data)
    except OSError as error:
        raise not_written(target, error, option) from None


def name_output(kind: str, target: Path) -> None:
    """Prints where the output is; nothing for standard output, which holds the output itself."""
    if target != STANDARD_OUTPUT:
        print(f"{kind}: {target}")


def not_written(target: Path, error: OSError, option: str = "-o") -> UserError:
    """The error for a target that cannot be written."""
    return UserError(f"{option} {target}: cannot be written: {error.strerror}; choose another path")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other
