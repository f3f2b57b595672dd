"""Test that linkscope measures correctly: simulated machines with known truths, and checks of this machine.

  linkscope selftest                    all rows; about half a minute
  linkscope selftest --here             only the checks of this machine
  linkscope selftest --only enqueue     one row; repeatable

Exit code 0: no row fails. Exit code 1: a row fails; its name is printed. A row that other programs disturb is
inconclusive. It does not count as a failure.
"""

import argparse
import fnmatch
import itertools
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from linkscope.cli import options
from linkscope.errors import FINE, NOT_HERE, SOMETHING_FAILED, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from linkscope.selftest import Row, Verdict

SUMMARY = "test that linkscope measures correctly"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `selftest`."""
    add = parser.add_argument
    add("--here", action="store_true", help="run only the checks of this machine: clocks, caches, pages, peers, GPUs")
    add("--only", metavar="GLOB", action="append", help="run only rows whose name matches; repeatable")
    add("--jobs", metavar="N", help="concurrent rows (default: CPUs plus one, at most four)")
    add("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope selftest`."""
    from linkscope.run import worker_command
    from linkscope.selftest import HERE, PLANTED, carry_out

    worker_command()  # raises the error for a missing worker before any row
    started = time.monotonic()
    planted = () if arguments.here else _chosen(PLANTED, arguments.only)
    here = _chosen(HERE, arguments.only)
    if not planted and not here:
        names = ", ".join(row.name for row in (*(() if arguments.here else PLANTED), *HERE))
        raise UserError(f"--only {' '.join(arguments.only)} matches no row; there are {names}", NOT_HERE)
    verdicts: list[Verdict] = []
    # The checks of this machine come first and one at a time, because other rows would share their cores.
    for verdict in itertools.chain(carry_out(here), carry_out(planted, _jobs(arguments.jobs))):
        verdicts.append(verdict)
        if not arguments.json:
            print(_line(verdict), flush=True)
    failing = [verdict.row for verdict in verdicts if verdict.fails]
    inconclusive = [verdict.row for verdict in verdicts if not verdict.conclusive]
    seconds = round(time.monotonic() - started, 1)
    if arguments.json:
        import msgspec

        rows = msgspec.to_builtins(verdicts)
        lists = {"failing": failing, "inconclusive": inconclusive}
        print(json.dumps({"holds": not failing, **lists, "seconds": seconds, "rows": rows}, indent=1))
    else:
        unclear = f", {len(inconclusive)} inconclusive" if inconclusive else ""
        holding = sum(verdict.holds for verdict in verdicts)
        print(f"{holding} of {len(verdicts)} rows hold{unclear}, in {seconds:.0f} s")
    if inconclusive:
        print(f"linkscope: selftest: inconclusive on this busy machine: {', '.join(inconclusive)}", file=sys.stderr)
    if failing:
        print(f"linkscope: selftest: does not hold: {', '.join(failing)}", file=sys.stderr)
    return SOMETHING_FAILED if failing else FINE


def _chosen(rows: "Sequence[Row]", only: list[str] | None) -> "list[Row]":
    return [row for row in rows if not only or any(fnmatch.fnmatchcase(row.name, pattern) for pattern in only)]


def _jobs(text: str | None) -> int:
    if text is None:
        return min(len(os.sched_getaffinity(0)) + 1, 4)  # one row only waits for a worker that hangs
    return options.whole("--jobs", text, least=1, most=64)


def _line(verdict: "Verdict") -> str:
    """Three lines for a row: its name and result, the planted truth, what was found."""
    holds = "DOES NOT HOLD" if verdict.fails else "holds" if verdict.holds else "INCONCLUSIVE"
    head = f"{verdict.row:<20} {holds}  ({verdict.seconds:.1f} s)"
    return f"{head}\n    planted  {verdict.planted}\n    found    {verdict.found}"
