"""Prints whether the conclusions of Klenk, Oden and Froning hold on a measured machine, and which targets it reaches.

Usage: .venv/bin/python tools/put_get_claims.py RUN.jsonl…     (runs of one machine, of suites putget and putget-queues)
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from put_get_targets import Target, best_targets

from linkscope.errors import UserError
from linkscope.report.put_get_claims import Claim, best_claims
from linkscope.runfile import read_run


def table(claims: Sequence[Claim]) -> str:
    """A Markdown table: the paper's item, its conclusion, the answer, the number behind it or what is missing."""
    rows = [(one.item, one.text, one.answer, one.evidence) for one in claims]
    return "\n".join(f"| {' | '.join(row)} |" for row in (("item", "conclusion", "here", "by"), ("---",) * 4, *rows))


def target_table(of: Sequence[Target]) -> str:
    """A Markdown table of the targets (put_get_targets.py)."""
    rows = [(one.text, one.answer, one.evidence) for one in of]
    return "\n".join(f"| {' | '.join(row)} |" for row in (("target", "here", "by"), ("---",) * 3, *rows))


def main(words: Sequence[str] | None = None) -> int:
    """Prints both tables. 1: a run file cannot be read. A reader that has seen enough, as `head`, is no error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", metavar="RUN.jsonl", type=Path, nargs="+")
    try:
        runs = [read_run(path) for path in parser.parse_args(words).runs]
        print(f"{table(best_claims(runs))}\n\n{target_table(best_targets(runs))}", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left is flushed at the end
    except UserError as problem:
        print(f"put_get_claims.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
