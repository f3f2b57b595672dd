"""Compare runs: which paths became slower or faster, stayed the same, or are undecided.

linkscope compare before.jsonl after.jsonl
linkscope compare before.jsonl after.jsonl --margin 5% -o changes.svg
linkscope compare monday.jsonl tuesday.jsonl wednesday.jsonl      also the run since which a path changed, and drifts
linkscope compare before.jsonl after.jsonl --json

The output begins with differences in machine, environment and plan. A point is the same if the interval of the ratio of
its times lies within the margin, and slower or faster if it lies beyond. The intervals are simultaneous at 95 %. Exit
code 1: a path became slower, or failed newly.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.cli.runs import read
from linkscope.cli.screen import columns, filled
from linkscope.cli.target import STANDARD_OUTPUT, add_force, check_writable, write
from linkscope.errors import FINE, SOMETHING_FAILED, UserError
from linkscope.units import format_fraction, parse_percent

if TYPE_CHECKING:
    from linkscope.compare import Change, Comparison, Difference
    from linkscope.runfile import Run

SUMMARY = "find what changed between runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument("runs", metavar="RUN.jsonl", nargs="+", help="two or more run files, the earliest first")
    parser.add_argument(
        "--margin", metavar="PERCENT", default="2%", help="largest change that counts as the same (default 2%%)"
    )
    parser.add_argument("--all", action="store_true", help="also list paths that are the same or undecided")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-o", "--output", metavar="FILE.svg", help="also draw the changes")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope compare`."""
    margin = parse_percent(arguments.margin)
    if margin is None or not 0 < margin < 1:
        raise UserError(f"--margin {arguments.margin}: a margin is more than 0 % and less than 100 %, like 2%")
    if len(arguments.runs) < 2:
        raise UserError(f"a comparison needs at least two runs: name another beside {arguments.runs[0]}")
    target = _target(arguments)

    from linkscope.compare import changes, compare, differences, same_machine

    runs = [read(path) for path in arguments.runs]
    first, last = runs[0], runs[-1]
    compared = compare(first, last, margin)
    if not compared.pairs:
        raise UserError(_nothing(first, last))
    found = changes(runs, margin) if len(runs) > 2 else None
    differs = differences(first.header, last.header)
    same = all(same_machine(first.header, run.header) for run in runs[1:])
    if target:
        from linkscope.compare.forest import forest

        write(target, forest(compared, first.modelled or last.modelled))
    if arguments.json:
        print(json.dumps(_as_json(runs, same, differs, compared, found)))
    else:
        _print(runs, same, differs, compared, found, arguments.all)
    return SOMETHING_FAILED if compared.worse else FINE


def _target(arguments: argparse.Namespace) -> Path | None:
    if not arguments.output:
        return None
    target = Path(arguments.output)
    if target == STANDARD_OUTPUT:
        raise UserError("-o -: standard output holds the comparison; give the picture a file, such as changes.svg")
    if target.suffix.lower() != ".svg":
        raise UserError(f"-o {target}: the picture of a comparison is an .svg file")
    check_writable(target, [Path(run) for run in arguments.runs], force=arguments.force)
    return target


def _nothing(first: "Run", last: "Run") -> str:
    for run in (first, last):
        if not any(point.median_s is not None for point in run.points):
            return f"{run.path} has no point with a value, so there is nothing to compare; measure again"
    return f"{first.path} and {last.path} have no point in common; compare runs of the same suite and kind of machine"


def _print(
    runs: "list[Run]",
    same: bool,
    differs: "list[Difference]",
    compared: "Comparison",
    found: "list[Change] | None",
    everything: bool,
) -> None:
    from linkscope.compare.text import by_path, changes_text, differences_text, run_text, table
    from linkscope.model.text import count_text

    print(f"before: {run_text(runs[0])}")
    for between in runs[1:-1]:
        print(f"then:   {run_text(between)}")
    print(f"after:  {run_text(runs[-1])}")
    if runs[0].header == runs[-1].header:
        print("Both files hold one run: a point is undecided if its interval is wider than the margin.")
    elif runs[0].header.started > runs[-1].header.started:
        print("The first file was measured after the last one: give the earlier run first.")
    if not same:
        print("These are runs of different machines: paths of the same name are compared.")
    print("\nDifferences in machine, environment and plan:")
    for line in differences_text(differs, everything):
        print(f"  {line}")
    within = format_fraction(compared.margin)
    how = "ratios use geometric means of rounds; values are medians"
    print("\n" + filled(f"Paths, by their worst decided size (same: within {within} of the time; {how}):", "", "  "))
    for line in table(by_path(compared), everything, columns() - 2):
        print(filled(line.lstrip(), "      ", "        ") if line.startswith(" ") else f"  {line}")
    alone = [
        f"{count_text(count, 'point')} only in {run.path}"
        for count, run in ((compared.only_before, runs[0]), (compared.only_after, runs[-1]))
        if count
    ]
    if compared.unmeasured:
        alone.append(f"{count_text(compared.unmeasured, 'point')} that one run inherited instead of measuring")
    if compared.other_method:
        names = ", ".join(sorted(compared.other_method))
        count = count_text(sum(compared.other_method.values()), "point")
        alone.append(f"{count} of {names}, measured by different methods (CHANGELOG.md)")
    if alone:
        print(f"  not compared: {', '.join(alone)}")
    if found is not None:
        print(f"\nOver {len(runs)} runs:")
        for line in changes_text(found, runs):
            print(filled(line, "  ", "      "))


def _as_json(
    runs: "list[Run]",
    same: bool,
    differs: "list[Difference]",
    compared: "Comparison",
    found: "list[Change] | None",
) -> dict[str, Any]:
    from linkscope.compare.text import by_path

    def ends(interval: Any) -> list[float] | None:
        return None if interval is None else [interval.low, interval.high]

    paths = [
        {
            "src": one.path.src,
            "dst": one.path.dst,
            "benchmark": one.method.family.benchmark,
            "engine": one.method.family.engine,
            "params": {**dict(one.method.params), **({"mode": one.mode} if one.mode else {})},
            "verdict": one.verdict,
            "points": [
                {"id": pair.id, "verdict": pair.verdict, "ratio": pair.ratio, "interval": ends(pair.interval)}
                for pair in one.pairs
            ],
        }
        for one in by_path(compared)
    ]
    answer: dict[str, Any] = {
        "runs": [{"path": str(run.path), "started": run.header.started, "modelled": run.modelled} for run in runs],
        "same_machine": same,
        "differs": [{"what": one.what, "before": one.before, "after": one.after} for one in differs],
        "margin": compared.margin,
        "level": compared.level,
        "worse": compared.worse,
        "not_compared": {
            "only_before": compared.only_before, "only_after": compared.only_after, "unmeasured": compared.unmeasured,
            "other_method": compared.other_method,
        },
        "paths": paths,
    }  # fmt: skip
    if found is not None:
        answer["changes"] = [
            {"id": one.point.id, "kind": one.kind, "since": one.at, "ratio": one.ratio, "interval": ends(one.interval)}
            for one in found
        ]
    return answer
