"""Make a page of a run file: one HTML file that loads nothing from elsewhere.

linkscope report run.jsonl -o run.html
"""

import argparse
from pathlib import Path

from linkscope.errors import FINE, UserError

SUMMARY = "make a page of a run file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `report`."""
    parser.add_argument("run", metavar="RUN.jsonl", help="the run file (.jsonl or .jsonl.gz)")
    parser.add_argument("-o", "--output", metavar="FILE.html", help="default: the run file's name with .html")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope report`."""
    source = Path(arguments.run)
    target = Path(arguments.output) if arguments.output else source.with_name(source.name.split(".jsonl")[0] + ".html")
    write_page(source, target, "-o")
    print(f"report: {target}")
    return FINE


def write_page(run: Path, target: Path, option: str) -> None:
    """The page of a run file, where `option` said that it should go."""
    from linkscope.report.html import render

    check_target(target, option, runs=[run])
    page = render(run)
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{option} {target}: cannot be written: {error.strerror}; choose another place, {run} is safe"
        ) from None


def check_target(target: Path, option: str, *, runs: list[Path]) -> None:
    """What was measured must not be lost to something that was made of it."""
    if target.name.endswith((".jsonl", ".jsonl.gz")) or any(_same(target, run) for run in runs):
        raise UserError(f"{option} {target}: that is a run file, which it would replace; choose another name")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return one == other
