"""Convert a run file to a format that other programs read.

linkscope export run.jsonl -o run.csv        one row per flow of a point
linkscope export run.jsonl                   the same on standard output
linkscope export run.jsonl -o run.parquet    the same with types (needs pyarrow)
linkscope export run.jsonl -o run.json       the JSON of Google Benchmark, for its compare.py
linkscope export run.jsonl -o ucx.conf       rates for UCX
linkscope export run.jsonl -o topo.xml --format nccl-topo    for NCCL; also nccl-env, hwloc
linkscope export --anonymous run.jsonl -o shared.jsonl       the run file without personal data
"""

import argparse
import gzip
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from linkscope.cli.runs import read
from linkscope.cli.target import STANDARD_OUTPUT, add_force, check_writable, write
from linkscope.errors import FINE, NOT_HERE, UserError

if TYPE_CHECKING:
    from linkscope.runfile import Run

SUMMARY = "convert a run file to a table, or to files for NCCL, UCX and hwloc"
_FORMATS = ("csv", "parquet", "gbench", "nccl-topo", "nccl-env", "ucx", "hwloc")
_ENDINGS = {".parquet": "parquet", ".json": "gbench", ".conf": "ucx"}
_TEXT = (".csv", ".txt")
_SYSTEMS = {  # module and function by format
    "nccl-topo": ("export_nccl", "to_nccl_topology"),
    "nccl-env": ("export_nccl", "to_nccl_environment"),
    "ucx": ("export_ucx", "to_ucx"),
    "hwloc": ("export_hwloc", "to_hwloc"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `export`."""
    parser.add_argument("run", metavar="RUN.jsonl", help="the run file (.jsonl or .jsonl.gz)")
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output, as with -")
    parser.add_argument("--format", choices=_FORMATS, help="default: by the ending of FILE, .json: gbench, .conf: ucx")
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="write a run file without names of hosts and users, serial numbers, UUIDs, paths and addresses",
    )
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """Runs `linkscope export`. Wrong arguments are refused before the run is read."""
    target = Path(arguments.output) if arguments.output else STANDARD_OUTPUT
    check_writable(target, [Path(arguments.run)], force=arguments.force)
    if arguments.anonymous:
        return _write_anonymous(Path(arguments.run), target, arguments.format)
    kind = arguments.format or _kind(target)
    if kind == "parquet" and target == STANDARD_OUTPUT:
        raise UserError("--format parquet is not text: give it a file with -o FILE.parquet")
    convert = _converter(kind)
    write(target, convert(read(arguments.run)))
    return FINE


def _write_anonymous(source: Path, target: Path, kind: str | None) -> int:
    from linkscope.runfile.anonymous import anonymous

    if kind is not None:
        raise UserError(f"--anonymous writes a run file: leave out --format {kind}, and export its output")
    if target != STANDARD_OUTPUT and not target.name.endswith((".jsonl", ".jsonl.gz")):
        raise UserError(f"-o {target}: --anonymous writes a run file: choose a name that ends in .jsonl or .jsonl.gz")
    text, kept = anonymous(source)
    if kept:
        listed = ", ".join(kept)
        print(f"linkscope: warning: words of the format, replaced in part: {listed}", file=sys.stderr)
    write(target, gzip.compress(text, mtime=0) if target.suffix == ".gz" else text)
    return FINE


def _kind(target: Path) -> str:
    """The format of an ending; csv for standard output."""
    ending = target.suffix.lower()
    if ending == ".xml":
        raise UserError(f"-o {target}: NCCL and hwloc read XML. Add --format nccl-topo or --format hwloc")
    if target == STANDARD_OUTPUT or not ending or ending in _TEXT:
        return "csv"
    if ending not in _ENDINGS:
        known = ", ".join([".csv", *_ENDINGS])
        raise UserError(f"-o {target}: no format has the ending {ending}. Choose {known}, or add --format")
    return _ENDINGS[ending]


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
    if kind in _SYSTEMS:
        module, function = _SYSTEMS[kind]
        to_text = getattr(importlib.import_module(f"linkscope.report.{module}"), function)
        return lambda run: str(to_text(run)).encode("utf-8")
    from linkscope.report.export import to_csv

    return lambda run: to_csv(run).encode("utf-8")
