"""List what can be measured.

linkscope list             the benchmarks, and what they measure
linkscope list h2d         a benchmark's parameters with their values, and the paper or tool that it follows; * and ?
                           are wildcards
linkscope list suites      the suites for `run --suite`
linkscope list machines    the bundled models for `run --machine`
linkscope list --source comm-scope    the operations of a paper or tool, with the points that measure them: comm-scope,
                           nvbandwidth, microbench, spafford, jorda, klenk
"""

import argparse
import difflib
import fnmatch
import json
import shutil
import textwrap
from typing import Any

from linkscope.errors import FINE, UserError
from linkscope.units import with_signs

SUMMARY = "list benchmarks, suites and modelled machines"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `list`."""
    parser.add_argument(
        "what",
        nargs="?",
        default="benchmarks",
        metavar="benchmarks|suites|machines|NAME",
        help="list these, or the benchmark NAME with its parameters (default: benchmarks)",
    )
    parser.add_argument("--source", metavar="NAME", help="list the operations of a paper or tool, with their points")
    parser.add_argument("--json", action="store_true", help="print objects with at least name, summary and source")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope list`."""
    if arguments.source is not None:
        return _of_source(arguments)
    of_one = arguments.what not in _LISTS
    rows = _named(arguments.what) if of_one else _LISTS[arguments.what]()
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return FINE
    if arguments.what == "benchmarks":
        rows = _by_engine(rows)
    names = [row["name"] + (f" by {row['engine']}" if "engine" in row else "") for row in rows]
    width = max(map(len, names))
    for name, row in zip(names, rows, strict=True):
        _print(f"{name:<{width}}  {row['summary']}", width + 2)
        if row.get("source", "linkscope") != "linkscope":
            _print(f"{'':<{width}}  [{row['source']}]", width + 3)
        if of_one:
            _print(f"{'':<{width}}    memory: {_memories(row['memories'])}", width + 6)
        for param in row["params"] if of_one else ():
            values = " | ".join(param["told"] or param["values"])
            _print(f"{'':<{width}}    {param['name']} = {values}: {param['help']}", width + 6)
    if arguments.what == "benchmarks":
        _print(
            f"`linkscope list {rows[0]['name']}` shows the parameters of a benchmark, and the paper that it follows.", 0
        )
    return FINE


def _named(pattern: str) -> list[dict[str, Any]]:
    """The benchmarks whose name matches the pattern."""
    rows = _benchmarks()
    found = [row for row in rows if fnmatch.fnmatchcase(row["name"], pattern)]
    if not found:
        from linkscope.plan import SUITES
        from linkscope.plan.papers import SOURCES

        if pattern in SUITES:
            raise UserError(
                f"list {pattern}: {pattern} is a suite: `linkscope list suites` describes it, `run --suite` runs it"
            )
        near = difflib.get_close_matches(pattern, [*_LISTS, *{row["name"] for row in rows}], n=1)
        meant = f" (did you mean {near[0]}?)" if near else ""
        raise UserError(
            f"list {pattern}: unknown benchmark{meant}; `linkscope list` names all, `linkscope list --source NAME` "
            f"those of a paper or tool ({', '.join(SOURCES)})"
        )
    return found


def _by_engine(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each operation and engine: its memory kinds and paths have rows of their own in the table."""
    found: dict[tuple[str, str], dict[str, None]] = {}
    for row in rows:
        found.setdefault((row["name"], row["engine"]), {})[row["summary"]] = None
    return [
        {"name": name, "engine": engine, "summary": "; ".join(summaries)} for (name, engine), summaries in found.items()
    ]


def _memories(pairs: list[list[str]]) -> str:
    """'pageable, pinned -> device; device -> pinned'."""
    sources: dict[str, list[str]] = {}
    for src, dst in pairs:
        sources.setdefault(dst, []).append(src)
    return "; ".join(f"{', '.join(of)} -> {dst}" for dst, of in sources.items())


def _of_source(arguments: argparse.Namespace) -> int:
    """Prints every operation of a paper or tool with the patterns of the points that measure it, or `not yet`."""
    if arguments.what != "benchmarks":
        raise UserError(f"--source lists operations of a paper or tool: leave out {arguments.what}")
    from linkscope.plan import patterns, presets, sizes_text, source_named
    from linkscope.run import benchmark_table

    source = source_named(arguments.source)
    table = benchmark_table()
    rows = [
        {
            "name": " ".join(entry.items), "summary": entry.theirs, "source": source.name, "items": entry.items,
            "points": patterns(source, entry, table), "instead": entry.instead, "note": entry.note,
            "sizes": sorted({size for rule in presets(source, entry) for size in rule.sizes}),
        }
        for entry in source.rows
    ]  # fmt: skip
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return FINE
    _print(source.title, 0)
    if source.sizes:
        _print(f"sizes: {sizes_text(source.sizes)}; {source.about_sizes}", 7)
    for row in rows:
        print()
        _print(f"{row['name']}  {row['summary']}", 4)
        for line in row["points"] or [row["instead"] or "not yet"]:
            print(f"    {line}")
        if row["note"]:
            _print(f"    ({row['note']})", 5)
    return FINE


def _print(text: str, indent: int) -> None:
    """Prints the text in the width of the terminal; lines after the first are indented."""
    lead = text[: len(text) - len(text.lstrip())]
    columns = max(shutil.get_terminal_size().columns, 60)
    body = textwrap.wrap(
        with_signs(text.strip()), columns, initial_indent=lead, subsequent_indent=" " * indent, break_on_hyphens=False
    )
    print("\n".join(body))


def _benchmarks() -> list[dict[str, Any]]:
    import msgspec

    from linkscope.run import benchmark_table

    return [msgspec.to_builtins(row) for row in benchmark_table()]


def _suites() -> list[dict[str, Any]]:
    from linkscope.plan import SUITES

    found = []
    for suite in SUITES.values():
        budget = f"; {suite.budget_s:.0f} s, more where a machine needs it" if suite.budget_s else ""
        found.append({
            "name": suite.name, "summary": suite.summary + budget, "source": "linkscope", "budget_s": suite.budget_s,
        })  # fmt: skip
    return found


def _machines() -> list[dict[str, Any]]:
    from linkscope.machine.model import bundled, load

    models = [(path, load(name).machine) for name, path in bundled().items()]
    return [{"name": head.name, "summary": head.title, "source": f"machines/{path.name}"} for path, head in models]


_LISTS = {"benchmarks": _benchmarks, "suites": _suites, "machines": _machines}
