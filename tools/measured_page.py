"""Writes docs/notes/measured.md: which operations of the papers were measured on hardware, and in which runs.

Usage: .venv/bin/python tools/measured_page.py     (from linkscope/plan/papers and the runs in results/)
"""

import fnmatch
import pathlib
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "src"))

from linkscope.model.text import count_text
from linkscope.plan import SOURCES, Benchmark, Entry, Source, patterns
from linkscope.run import benchmark_table
from linkscope.runfile import Point, read_run

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "notes" / "measured.md"
HEAD = """# Operations of the papers measured on hardware

<!-- Made by tools/measured_page.py from src/linkscope/plan/papers and results/: run it again instead of editing. -->

**Question.** Which operations of the papers were measured on real GPUs?

**Answer.** Every operation in this table, on H200s. The table lists each operation of
[papers.md](papers.md) that linkscope has points for, the number of points with a value in the runs of
`results/`, and the run that holds most of them.

**Command.** `.venv/bin/python tools/measured_page.py` writes this page.
"""
VALUED = ("ok", "missed_precision")


def page(table: Sequence[Benchmark], runs: Mapping[str, Iterable[Point]]) -> str:
    """The whole page; runs by their names."""
    valued = {name: [point for point in points if point.status in VALUED] for name, points in runs.items()}
    reasons = {point.id: point.reason or "" for of in runs.values() for point in of if point.status == "unsupported"}
    lines = [line for source in SOURCES.values() for line in _source(source, table, valued, reasons)]
    return "\n".join([HEAD, *lines])


def _source(
    source: Source, table: Sequence[Benchmark], runs: Mapping[str, Sequence[Point]], reasons: Mapping[str, str]
) -> Iterator[str]:
    rows = [(entry, patterns(source, entry, table)) for entry in source.rows]
    rows = [(entry, found) for entry, found in rows if found]
    if not rows:
        return
    yield f"## {source.name}: {source.title}\n"
    yield "| item | operation | measured |"
    yield "|---|---|---|"
    for entry, found in rows:
        cells = (" ".join(entry.items), entry.theirs, measured(found, entry, runs, reasons))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def measured(
    found: Sequence[str], entry: Entry, runs: Mapping[str, Sequence[Point]], reasons: Mapping[str, str]
) -> str:
    """'24 points (h200x4-full)', or why there is none."""
    ids: set[str] = set()
    by_run: Counter[str] = Counter()
    for name, points in runs.items():
        matching = {point.id for point in points if any(fnmatch.fnmatchcase(point.id, one) for one in found)}
        by_run[name] = len(matching)
        ids |= matching
    if ids:
        (name, count), *_ = sorted(by_run.items(), key=lambda of: (-of[1], of[0]))
        there = "" if count == len(ids) else f", {count} of them"
        return f"{count_text(len(ids), 'point')}{there} in `{name}`"
    why = {reason for id, reason in reasons.items() if any(fnmatch.fnmatchcase(id, one) for one in found)}
    return f"unsupported: {min(why)}" if why else "not yet"


if __name__ == "__main__":
    files = sorted(ROOT.glob("results/*.jsonl.gz"))
    found = {file.name.partition(".")[0]: read_run(file, rounds=False).points for file in files}
    PAGE.write_text(page(benchmark_table(), found))
    print(f"wrote {PAGE}")
