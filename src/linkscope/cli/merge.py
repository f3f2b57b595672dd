"""Merge the run files of several nodes into one. The names of places then begin with their node: host:1/gpu:0.

linkscope merge run.jsonl run-node0.jsonl run-node1.jsonl -o all.jsonl
"""

import argparse
import sys
from pathlib import Path

from linkscope.cli.runs import read
from linkscope.cli.target import add_force, check_writable, name_output, write
from linkscope.errors import FINE, UserError

SUMMARY = "make one run file of those of several nodes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `merge`."""
    parser.add_argument("runs", metavar="RUN.jsonl", nargs="+", help="run files of nodes and of pairs of nodes")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the run file to write")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """Runs `linkscope merge`."""
    import msgspec

    from linkscope.report.verdict import with_its_ranks
    from linkscope.runfile.merge import merged, parts_of

    if len(arguments.runs) < 2:
        raise UserError(f"merge {arguments.runs[0]}: give two run files or more")
    target = Path(arguments.output)
    check_writable(target, [Path(run) for run in arguments.runs], force=arguments.force)
    parts = parts_of([read(run, rounds=True) for run in arguments.runs])
    for part in parts:
        if not part.is_complete:
            planned, have = len(part.run.header.plan.get("points", ())), len(part.run.points)
            print(
                f"linkscope: warning: {part.run.path} is half-finished: {have} of {planned} planned points have a "
                f"result. `{with_its_ranks(part.run)}linkscope run --resume {part.run.path}` there measures the others",
                file=sys.stderr,
            )
    encoder = msgspec.json.Encoder()
    write(target, b"".join(encoder.encode(record) + b"\n" for record in merged(parts)))
    name_output("run file", target)
    return FINE
