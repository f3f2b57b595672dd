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
    from linkscope.report.html import render

    source = Path(arguments.run)
    page = render(source)
    target = Path(arguments.output) if arguments.output else source.with_name(source.name.split(".jsonl")[0] + ".html")
    try:
        target.write_text(page, encoding="utf-8")
    except OSError as error:
        raise UserError(f"-o {target}: cannot be written: {error.strerror}; choose another place") from None
    print(f"report: {target}")
    return FINE
