"""Compare runs: which paths became slower or faster, and how small a change is detectable.

linkscope compare before.jsonl after.jsonl
linkscope compare before.jsonl after.jsonl --only 'd2d/*' --margin 1% -o changes.html
linkscope compare a1.jsonl a2.jsonl --after b1.jsonl b2.jsonl     several runs before and after
linkscope compare monday.jsonl tuesday.jsonl wednesday.jsonl      also the run since which a path changed, and drifts
linkscope compare before.jsonl after.jsonl --fail-on inconclusive

If nothing changed, at most one comparison in 100 shows a change of a judged point. A point is equivalent if the 95 %
interval of its ratio lies inside the margin. Exit codes:
  0  nothing got worse
  1  a path became slower or failed, or changed with `--fail-on changed`
  2  wrong usage, or a file that cannot be read
  5  no verdict: most points have no counterpart, or none can be judged; with `--fail-on inconclusive` also if some
     points are neither changed nor equivalent
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.cli.runs import read
from linkscope.cli.screen import columns, filled
from linkscope.cli.target import STANDARD_OUTPUT, add_force, check_writable, write
from linkscope.errors import FINE, INCONCLUSIVE, SOMETHING_FAILED, UserError
from linkscope.units import format_fraction, parse_percent

if TYPE_CHECKING:
    from linkscope.compare import Change, Comparison, Difference
    from linkscope.compare.page import Sides
    from linkscope.runfile import Run

SUMMARY = "find what changed between runs"
_FAIL_ON = ("worse", "changed", "inconclusive")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `compare`."""
    parser.add_argument("runs", metavar="RUN.jsonl", nargs="+", help="two or more run files, the earliest first")
    parser.add_argument(
        "--after", metavar="RUN.jsonl", nargs="+", default=[], help="runs after the change; all others are before it"
    )
    parser.add_argument(
        "--margin", metavar="PERCENT", help="smallest change that counts (default: 2%% from 1 MiB, 5%% below)"
    )
    parser.add_argument(
        "--only", metavar="GLOB", action="append", default=[], help="compare only points whose id matches"
    )
    parser.add_argument(
        "--fail-on", choices=_FAIL_ON, default="worse", help="which result ends with exit code 1 or 5 (default: worse)"
    )
    parser.add_argument("--noisy", action="store_true", help="also judge points whose noise hides a change of 10%%")
    parser.add_argument("--all", action="store_true", help="also list paths that did not change")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("-o", "--output", metavar="FILE", help="also write a page (.html) or a drawing (.svg)")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope compare`."""
    margin = None if arguments.margin is None else parse_percent(arguments.margin)
    if arguments.margin is not None and (margin is None or not 0 < margin < 1):
        raise UserError(f"--margin {arguments.margin}: write a percentage between 0 % and 100 %, such as 2%")
    if len(arguments.runs) + len(arguments.after) < 2:
        raise UserError(f"a comparison needs two runs or more, and {arguments.runs[0]} is one; name a second")
    target = _target(arguments)

    from linkscope.compare import changes, compare, differences, same_machine

    before = [read(path) for path in arguments.runs]
    after = [read(path) for path in arguments.after] or [before[-1]]
    history = before if not arguments.after and len(before) > 2 else None
    before = before if arguments.after else before[:1]
    compared = compare(before, after, margin, arguments.only)
    if not compared.pairs:
        raise UserError(_nothing(before[-1], after[-1], arguments.only))
    found = changes(history, margin) if history else None
    differs = differences(before[-1].header, after[-1].header)
    runs = history or [*before, *after]
    same = all(same_machine(runs[0].header, run.header) for run in runs[1:])
    if target:
        from linkscope.compare.page import Sides

        _write(target, Sides(before, after, same, differs), compared, noisy=arguments.noisy)
    answer = _Answer(before, after, runs, same, differs, compared, found)
    if arguments.json:
        print(json.dumps(_as_json(answer, noisy=arguments.noisy)))
    else:
        _print(answer, arguments)
    return exit_code(compared, arguments.fail_on, noisy=arguments.noisy)


def _write(target: Path, sides: "Sides", compared: "Comparison", *, noisy: bool) -> None:
    """Writes the page or the drawing, by the suffix of the target."""
    from linkscope.compare.forest import forest
    from linkscope.compare.page import comparison_page

    if target.suffix.lower() == ".html":
        write(target, comparison_page(sides, compared, noisy=noisy))
    else:
        write(target, forest(compared, sides.before[0].modelled or sides.after[0].modelled))


def exit_code(compared: "Comparison", fail_on: str, *, noisy: bool) -> int:
    """The exit code of a comparison."""
    failing = compared.changed if fail_on == "changed" else compared.worse
    if failing(noisy=noisy):
        return SOMETHING_FAILED
    asked = fail_on == "inconclusive" and compared.inconclusive(noisy=noisy)
    return INCONCLUSIVE if asked or compared.undecided(noisy=noisy) else FINE


def _target(arguments: argparse.Namespace) -> Path | None:
    if not arguments.output:
        return None
    target = Path(arguments.output)
    if target == STANDARD_OUTPUT:
        raise UserError("-o -: standard output holds the comparison; give the page a file, such as changes.html")
    if target.suffix.lower() not in (".svg", ".html"):
        raise UserError(f"-o {target}: a comparison is written as a page (.html) or as a drawing of the changes (.svg)")
    check_writable(target, [Path(run) for run in (*arguments.runs, *arguments.after)], force=arguments.force)
    return target


def _nothing(first: "Run", last: "Run", only: Sequence[str]) -> str:
    for run in (first, last):
        if not any(point.median_s is not None for point in run.points):
            return f"{run.path} has no point with a value, so there is nothing to compare; measure again"
    if only:
        return f"--only {' '.join(only)}: no point that both runs measured by the same method has such an id"
    return f"{first.path} and {last.path} have no point in common; compare runs of the same suite and kind of machine"


@dataclass(frozen=True)
class _Answer:
    """What is printed. `runs`: all runs in order; `found`: changes over a history; None: no history."""

    before: "Sequence[Run]"
    after: "Sequence[Run]"
    runs: "Sequence[Run]"
    same: bool  # machine
    differs: "list[Difference]"
    compared: "Comparison"
    found: "list[Change] | None"


def _print(answer: _Answer, arguments: argparse.Namespace) -> None:
    from linkscope.compare.headline import headline
    from linkscope.compare.text import (
        by_path,
        changes_text,
        differences_text,
        groups_table,
        left_out,
        run_text,
        table,
    )

    runs, compared, found = answer.runs, answer.compared, answer.found
    for number, run in enumerate(runs):
        is_after = found is None or run is runs[-1]
        label = "before:" if number < len(answer.before) else "after: " if is_after else "then:  "
        print(f"{label} {run_text(run)}")
    if runs[0].header == runs[-1].header:
        print("Both files hold one run.")
    elif runs[0].header.started > runs[-1].header.started:
        print("The first run is newer than the last one: before is after.")
    if not answer.same:
        print("The runs are of different machines: paths of the same name are compared.")
    print("\n" + filled(headline(compared, noisy=arguments.noisy, history=found), "", ""))
    print("\n" + filled(f"Points ({_margin_text(compared)}):", "", "  "))
    for line in groups_table(compared):
        print(f"  {line}")
    if lines := table(by_path(compared), arguments.all, columns() - 2):
        print("\n" + filled("Paths, by the worst size (time after over before; 95 % intervals):", "", "  "))
        for line in lines:
            print(filled(line.lstrip(), "      ", "        ") if line.startswith(" ") else f"  {line}")
    if missing := left_out(compared, runs):
        print(filled(f"Not compared: {', '.join(missing)}.", "", "  "))
    print("\nWhat else differs:")
    for line in differences_text(answer.differs, arguments.all):
        print(f"  {line}")
    if found is not None:
        print(f"\nOver {len(runs)} runs:")
        for line in changes_text(found, runs):
            print(filled(line, "  ", "      "))


def _margin_text(compared: "Comparison") -> str:
    small, large = format_fraction(compared.margins[0]), format_fraction(compared.margins[-1])
    margin = large if small == large else f"{large} from 1 MiB, {small} below"
    return f"equivalent: within {margin}; detectable: the smallest change that shows, median"


def _as_json(answer: _Answer, *, noisy: bool) -> dict[str, Any]:
    from linkscope.compare.headline import headline

    compared = answer.compared
    found: dict[str, Any] = {
        "summary": headline(compared, noisy=noisy, history=answer.found),
        "before": [_run_json(run) for run in answer.before],
        "after": [_run_json(run) for run in answer.after],
        "same_machine": answer.same,
        "differs": [{"what": one.what, "before": one.before, "after": one.after} for one in answer.differs],
        "margins": list(compared.margins),
        "worse": bool(compared.worse(noisy=noisy)),
        "undecided": compared.undecided(noisy=noisy),
        "not_compared": {
            "only_before": compared.only_before, "only_after": compared.only_after,
            "unmeasured": sum(compared.unmeasured.values()), "unmeasured_by_status": compared.unmeasured,
            "other_method": compared.other_method,
        },
        "paths": _paths_json(compared),
    }  # fmt: skip
    if answer.found is not None:
        found["changes"] = [
            {
                "id": one.point.id, "kind": one.kind, "since": one.at, "ratio": one.ratio,
                "interval": _ends(one.interval), "judged": one.judged,
            }
            for one in answer.found
        ]  # fmt: skip
    return found


def _paths_json(compared: "Comparison") -> list[dict[str, Any]]:
    from linkscope.compare.text import by_path

    return [
        {
            "src": one.path.src,
            "dst": one.path.dst,
            "benchmark": one.method.family.benchmark,
            "engine": one.method.family.engine,
            "params": {**dict(one.method.params), **({"mode": one.mode} if one.mode else {})},
            "verdict": one.verdict,
            "points": [
                {
                    "id": pair.id, "verdict": pair.verdict, "ratio": pair.ratio, "interval": _ends(pair.interval),
                    "detectable": pair.detectable, "judged": pair.judged,
                }
                for pair in one.pairs
            ],
        }
        for one in by_path(compared)
    ]  # fmt: skip


def _ends(interval: Any) -> list[float] | None:
    return None if interval is None else [interval.low, interval.high]


def _run_json(run: "Run") -> dict[str, Any]:
    return {"path": str(run.path), "started": run.header.started, "modelled": run.modelled}
