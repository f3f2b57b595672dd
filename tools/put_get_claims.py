"""Prints whether the conclusions of Klenk, Oden and Froning hold on a measured machine, each with its number.

Usage: .venv/bin/python tools/put_get_claims.py RUN.jsonl…     (runs of one machine, of suites putget and putget-queues)
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from linkscope.errors import UserError
from linkscope.report.put_get_claims import Claim, best_claims
from linkscope.runfile import read_run


def table(claims: Sequence[Claim]) -> str:
    """A Markdown table: the paper's item, its conclusion, the answer, the number behind it or what is missing."""
    rows = [(one.item, one.text, one.answer, one.evidence) for one in claims]
    return "\n".join(f"| {' | '.join(row)} |" for row in (("item", "conclusion", "here", "by"), ("---",) * 4, *rows))


def main(words: Sequence[str] | None = None) -> int:
    """Prints the table. 1: a run file cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", metavar="RUN.jsonl", type=Path, nargs="+")
    try:
        print(table(best_claims([read_run(path) for path in parser.parse_args(words).runs])))
    except UserError as problem:
        print(f"put_get_claims.py: {problem}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
