"""Writes docs/notes/papers.md: the operations of papers and tools, and the corresponding points.

Usage: .venv/bin/python tools/papers_page.py     (from linkscope/plan/papers and the worker's table of benchmarks)
"""

import pathlib
from collections.abc import Iterator, Sequence

from linkscope.plan import SOURCES, Benchmark, Entry, Source, patterns, sizes_text
from linkscope.run import benchmark_table

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "notes" / "papers.md"
HEAD = """# Operations of the papers and tools

<!-- Made by tools/papers_page.py from src/linkscope/plan/papers: change those. -->

This page lists every operation of the papers and tools that linkscope follows, with the points that measure it. The
points are patterns of ids for `linkscope run --only`, with the parameters of the paper. "Not yet" marks an operation
that linkscope lacks. `linkscope list --source NAME` prints the same. The suites `comm-scope` and `nvbandwidth` hold the
points of these tools at their sizes, and `--rule comm-scope` and `--rule nvbandwidth` use their methods
([comm-scope.md](comm-scope.md), [nvbandwidth.md](nvbandwidth.md)). The operations measured on
hardware are in [measured.md](measured.md).
"""


def page(table: Sequence[Benchmark]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *(line for source in SOURCES.values() for line in _source(source, table))])


def _source(source: Source, table: Sequence[Benchmark]) -> Iterator[str]:
    yield f"## {source.name}: {source.title}\n"
    yield f"Sizes: {'; '.join(filter(None, (sizes_text(source.sizes), source.about_sizes)))}.\n"
    yield "| item | operation | linkscope |"
    yield "|---|---|---|"
    for entry in source.rows:
        cells = (" ".join(entry.items), entry.theirs, _answer(patterns(source, entry, table), entry))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _answer(found: Sequence[str], entry: Entry) -> str:
    answer = "<br>".join(f"`{pattern}`" for pattern in found) or entry.instead or "not yet"
    return f"{answer}<br>{entry.note}" if entry.note else answer


if __name__ == "__main__":
    PAGE.write_text(page(benchmark_table()))
    print(f"wrote {PAGE}")
