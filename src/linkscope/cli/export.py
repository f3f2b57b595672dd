"""Turn a run file into a table for other programs.

linkscope export run.jsonl -o run.csv    one row a point
linkscope export run.jsonl               the same on standard output
"""

import argparse
import sys
from pathlib import Path

from linkscope.errors import FINE, UserError

SUMMARY = "turn a run file into CSV"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    parser.add_argument("run", metavar="RUN.jsonl", help="the run file (.jsonl or .jsonl.gz)")
    parser.add_argument("-o", "--output", metavar="FILE.csv", help="default: standard output")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope export`."""
    from linkscope.runfile import read_run

    run = read_run(arguments.run)
    for warning in run.warnings:
        print(f"linkscope: warning: {warning}", file=sys.stderr)
    from linkscope.report.export import to_csv

    text = to_csv(run)
    if not arguments.output:
        print(text, end="")
        return FINE
    from linkscope.cli.report import check_target

    check_target(Path(arguments.output), "-o", runs=[run.path])
    try:
        Path(arguments.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"-o {arguments.output}: cannot be written: {error.strerror}; choose another place") from None
    return FINE
