"""Turn a run file into a table for other programs.

linkscope export run.jsonl -o run.csv        one row a flow of a point
linkscope export run.jsonl                   the same on standard output
linkscope export run.jsonl -o run.parquet    the same with types (needs pyarrow)
linkscope export run.jsonl -o run.json       for what reads Google Benchmark's JSON, as its compare.py
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from linkscope.cli.runs import read
from linkscope.errors import FINE, NOT_HERE, UserError

if TYPE_CHECKING:
    from linkscope.runfile import Run

SUMMARY = "turn a run file into CSV, Parquet or Google Benchmark's JSON"
_FORMATS = ("csv", "parquet", "gbench")
_ENDINGS = {".parquet": "parquet", ".json": "gbench"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    parser.add_argument("run", metavar="RUN.jsonl", help="the run file (.jsonl or .jsonl.gz)")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")
    parser.add_argument(
        "--format",
        choices=_FORMATS,
        help="default: by the ending of FILE: .parquet is parquet, .json is gbench, all else is csv",
    )


def main(arguments: argparse.Namespace) -> int:
    """`linkscope export`. What was asked for wrongly, or cannot be done here, is found before the run is read."""
    from linkscope.cli.target import check_writable, not_written

    target = Path(arguments.output) if arguments.output else None
    kind = arguments.format or (_ENDINGS.get(target.suffix.lower(), "csv") if target else "csv")
    if kind == "parquet" and target is None:
        raise UserError("--format parquet is not text: give it a file with -o FILE.parquet")
    convert = _converter(kind)
    if target:
        check_writable(target, [Path(arguments.run)])
    run = read(arguments.run)
    content = convert(run)
    if target is None:
        print(content.decode("utf-8"), end="")
        return FINE
    try:
        target.write_bytes(content)
    except OSError as error:
        raise not_written(target, error) from None
    return FINE


def _converter(kind: str) -> "Callable[[Run], bytes]":
    if kind == "parquet":
        try:
            from linkscope.report.export_parquet import to_parquet
        except ImportError as error:
            raise UserError(
                f"Parquet needs pyarrow, which is not here ({error}): `{sys.executable} -m pip install pyarrow`, "
                "or choose --format csv",
                NOT_HERE,
            ) from None
        return to_parquet
    if kind == "gbench":
        from linkscope.report.export_gbench import to_gbench

        return lambda run: to_gbench(run).encode("utf-8")
    from linkscope.report.export import to_csv

    return lambda run: to_csv(run).encode("utf-8")
