"""Measure a machine, or simulate a model of one, into a run file.

  linkscope run                                    this machine, suite standard
  linkscope run --suite quick --report map.html    a first look, with its report
  linkscope run h2d d2h --src numa:0 --dst gpu:1 --memory pinned --sizes 4KiB:1GiB
  linkscope run --machine h200x4 --plan-only       the plan for a modelled machine, and its cost
  linkscope run --only 'd2d/*gpu:0*' -o d2d.jsonl  points whose id matches
  linkscope run --resume d2d.jsonl                 continue an interrupted run

`linkscope list` names benchmarks, `linkscope list suites` suites. Ctrl-C saves what was measured. Exit codes:
  0  fine, also with points that missed their precision or are not supported
  1  a point failed, or all points were too short for the clock
  2  wrong usage, or an unusable file
  3  something requested is not on this machine
  4  stopped early; --resume continues
"""

import argparse
import contextlib
import datetime
import gc
import itertools
import json
import math
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from linkscope.cli import options, run_ranks
from linkscope.cli.runs import read
from linkscope.errors import FINE, NOT_HERE, STOPPED_EARLY, UserError
from linkscope.units import MOST_BYTES, format_bytes, format_seconds, parse_duration, parse_percent, parse_sizes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from linkscope.plan import MachineFacts, Plan, RuleName, Selection
    from linkscope.run import Outcome, Target
    from linkscope.run.progress import Progress
    from linkscope.runfile import Run

SUMMARY = "measure a machine into a run file"
_SANITY = "sanity"  # the suite whose runs end with the findings of the doctor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `run`."""
    _add_points(parser)
    add = parser.add_argument
    add(
        "--precision",
        metavar="PERCENT",
        help="target half-width of the 95 %% interval (default: 1%% from 1 MiB, else 5%%)",
    )
    add(
        "--budget",
        metavar="TIME",
        help="time for the whole run, such as 120s; on a model modelled time (default: that of the suite)",
    )
    add("--rounds", metavar="N", help="independent rounds of each point (default 6); fewer than 6 give no interval")
    add("--rule", metavar="RULE", help="measure by the rule of linkscope (default), nvbandwidth or comm-scope")
    add(
        "--contexts",
        metavar="alike|any",
        help="choose GPU contexts of equal cost, or take any (default: by suite; docs/notes/context-effects.md)",
    )
    options.add_cpu_clock(parser)
    add("--seed", metavar="N", help="seed of the order, and of the noise of a model (default 1)")
    add("--plan-only", action="store_true", help="print the plan and measure nothing")
    add("-o", "--output", metavar="RUN.jsonl", help="run file, or - (default: linkscope-MACHINE-TIME.jsonl)")
    add("--report", metavar="RUN.html", help="also write the report to this file")
    add("--resume", metavar="RUN.jsonl", help="continue this run with its own plan")
    add("--force", action="store_true", help="replace the run file and the report if they exist")
    add("--json", action="store_true", help="print the plan or the outcome as JSON")
    level = parser.add_mutually_exclusive_group()
    level.add_argument("-v", "--verbose", action="store_true", help="print a line for each point as it completes")
    level.add_argument("-q", "--quiet", action="store_true", help="print no progress and no summary")


def _add_points(parser: argparse.ArgumentParser) -> None:
    """The options that say which points of which machine a run measures."""
    add = parser.add_argument
    add("benchmarks", metavar="BENCHMARK", nargs="*", help="measure only these operations, such as h2d d2h")
    add("--src", metavar="PLACE", help="measure only paths from this place, such as numa:0")
    add(
        "--dst",
        metavar="PLACE",
        help="measure only paths to this place, such as gpu:1; h2d d2h name both directions of a path",
    )
    add("--memory", metavar="KIND", help="measure only points with this memory at either end; several: pinned,pageable")
    add("--sizes", metavar="SIZES", help="measure these sizes: 4KiB:1GiB (powers of two), 777KiB, 64MB; several: a,b")
    add(
        "--machine",
        metavar="auto|NAME|FILE",
        help="measure this machine (auto, the default); or simulate a bundled model or a machine file",
    )
    add(
        "--directory",
        metavar="DIR",
        help="also measure files in this directory (file_copies, file_direct, file_mapped, read_file, contention); no "
        "file is left there",
    )
    add("--suite", metavar="NAME", help="measure this suite: quick, standard (the default), full, …")
    add("--local", metavar="NAME", help="with ranks: first measure each node by this suite, into RUN-HOST.jsonl")
    add("--node", metavar="HOST", help=argparse.SUPPRESS)
    add(
        "--only",
        metavar="GLOB",
        action="append",
        help="measure only points whose id matches; a glob may leave out default parameters; repeatable",
    )
    add("--trace", metavar="FILE", help="measure only the transfers of a trace (docs/reference/trace.md)")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope run`."""
    budget_s = _budget(arguments.budget)
    if arguments.report:
        _check_report(arguments)
    here = run_ranks.launched(arguments)
    with run_ranks.Seat(here) as seat:
        if here and here.rank > 0:
            return run_ranks.follow(seat)
        from linkscope.machine.cpu_clock import cpu_clock

        if (arguments.governor or arguments.turbo) and arguments.machine not in (None, "auto"):
            raise UserError(
                f"--governor and --turbo set the CPUs of this machine, not of {arguments.machine}: leave them out"
            )
        with cpu_clock(arguments.governor, arguments.turbo):
            return _run(arguments, budget_s, seat)


def _run(arguments: argparse.Namespace, budget_s: float | None, seat: run_ranks.Seat) -> int:
    """The run of one process, or of rank 0."""
    if arguments.resume:
        return _resume(arguments, budget_s, seat)
    plan, target = _plan(arguments, budget_s, seat)
    if arguments.plan_only:
        from linkscope.cli.plan_only import print_plan

        print_plan(plan, target.facts, as_json=arguments.json)
        return FINE
    from linkscope.run import Controls, StopFlag, measure

    path = _output(arguments, target)
    with _streamed(arguments, path), StopFlag(last=True) as stop, _progress(arguments, target, plan) as progress:
        with run_ranks.workers(seat, stop) as ranks:
            run_ranks.measure_nodes(arguments, path, seat, ranks)
            outcome = measure(target, plan, path, force=arguments.force, controls=Controls(progress, stop, ranks))
        return _finish(arguments, path, outcome)


@contextlib.contextmanager
def _streamed(arguments: argparse.Namespace, path: Path) -> "Iterator[None]":
    """With `-o -` the temporary run file goes to standard output at the end, and all else to standard error."""
    if arguments.output != "-":
        yield
        return
    from linkscope.cli.target import STANDARD_OUTPUT, write

    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if path.exists():
            write(STANDARD_OUTPUT, path.read_bytes())
            path.unlink()


def _resume(arguments: argparse.Namespace, budget_s: float | None, seat: run_ranks.Seat) -> int:
    fixed = (
        "benchmarks", "src", "dst", "memory", "sizes", "machine", "directory", "suite", "only", "trace", "precision",
        "local", "rounds", "rule", "contexts", "seed", "plan_only", "output", "force",
    )  # fmt: skip
    for name in fixed:
        if getattr(arguments, name):
            extra = "the names of benchmarks" if name == "benchmarks" else f"--{name.replace('_', '-')}"
            raise UserError(f"--resume {arguments.resume} continues with the plan in that file: leave out {extra}")
    from linkscope.run import Controls, Outcome, StopFlag, go_on, plan_of
    from linkscope.run.target import target_of

    run = read(arguments.resume, rounds=True)
    if run.header.machine.get("hosts"):
        raise UserError(f"{run.path} is merged: resume the run file of a node on that node, then merge again")
    if run.end is not None and run.end.complete:
        from linkscope.model.text import count_text

        left = sum(point.status == "skipped" for point in run.points)
        out = (
            f"; its budget left out {count_text(left, 'point')}: a new run with a larger --budget measures more"
            if left
            else ""
        )
        print(f"{run.path} is complete: nothing is left to measure{out}", file=sys.stderr)
        return _finish(arguments, run.path, Outcome({point.id: point for point in run.points}, True, run.wall_s))
    target = run_ranks.of_resumed(run, target_of(run), seat)
    if budget_s is not None:
        _check_budget_of_rest(run, plan_of(run), target, budget_s)
    with (
        StopFlag(last=True) as stop,
        _progress(arguments, target, plan_of(run), run) as progress,
        run_ranks.workers(seat, stop) as ranks,
    ):
        outcome = go_on(target, run, budget_s=budget_s, controls=Controls(progress, stop, ranks))
    return _finish(arguments, run.path, outcome)


def _check_budget_of_rest(run: "Run", plan: "Plan", target: "Target", budget_s: float) -> None:
    """Raises UserError for a budget that is too small for the run or its remaining part."""
    from msgspec import structs

    from linkscope.plan import check_budget

    check_budget(structs.replace(plan, budget_s=budget_s), target.facts)
    spent_s = sum(round.device_s for rounds in run.rounds.values() for round in rounds)
    if spent_s >= budget_s:
        raise UserError(
            f"--budget {format_seconds(budget_s)} covers the whole run, and {run.path} has already spent "
            f"{format_seconds(spent_s)} of it: give a larger budget"
        )


def _plan(arguments: argparse.Namespace, budget_s: float | None, seat: run_ranks.Seat) -> tuple["Plan", "Target"]:
    from msgspec import structs

    from linkscope.plan import RULES, SUITES, budget_of_its_own, check_budget, make_plan

    precision = _precision(arguments.precision)
    rule = _rule(arguments.rule or "linkscope")
    one_round = RULES[rule].one_round
    if one_round and arguments.rounds not in (None, "1"):
        raise UserError(f"--rounds {arguments.rounds}: {rule}'s rule is one round, in one process; leave it out")
    rounds = options.whole("--rounds", arguments.rounds or ("1" if one_round else "6"), least=1, most=1000)
    seed = options.whole("--seed", arguments.seed or "1", least=0, most=2**63 - 1)
    alike_contexts = _alike_contexts(arguments.contexts, rule)
    from linkscope.run import benchmark_table, check_points
    from linkscope.run.target import choose, of_node, with_directory

    target = run_ranks.with_ranks(arguments, choose(arguments.machine or "auto", seed), seat)
    if arguments.node:
        target = of_node(target, arguments.node)
    if arguments.directory:
        target = with_directory(target, arguments.directory, f"--directory {arguments.directory}")
    if alike_contexts and target.facts.modelled:
        raise UserError(f"--contexts alike: {target.facts.name} is a model, which has no contexts; leave it out")
    suite = arguments.suite or "standard"
    chosen = budget_s is not None
    only, selection = _only(arguments, target.facts), _selection(arguments)
    if not chosen and suite in SUITES and not (only or selection or arguments.rounds or one_round):
        budget_s = SUITES[suite].budget_s
    plan = make_plan(
        target.facts, benchmark_table(), suite=suite, only=only, selection=selection,
        precision=precision, budget_s=budget_s, rounds=rounds, seed=seed, rule=rule,
        alike_contexts=alike_contexts,
    )  # fmt: skip
    if arguments.directory and not any("disk:" in point for point in plan.points):
        known = "file_copies, file_direct, file_mapped, read_file or --suite contention"
        raise UserError(f"--directory {arguments.directory}: no copy of a file is chosen; add {known}")
    check_points(plan, target.facts)
    if plan.classes and not chosen:
        plan = structs.replace(plan, budget_s=budget_of_its_own(plan, target.facts))
    check_budget(plan, target.facts)
    return plan, target


def _selection(arguments: argparse.Namespace) -> "Selection":
    """The words that select points."""
    from linkscope.plan import Selection

    sizes = parse_sizes(arguments.sizes) if arguments.sizes else []
    if sizes is None:
        raise UserError(f"--sizes {arguments.sizes}: write sizes and ranges, smaller end first: 4KiB:1GiB,777KiB")
    if sizes and max(sizes) > MOST_BYTES:
        raise UserError(f"--sizes {arguments.sizes}: write sizes of at most 1 TiB")
    memory = tuple(arguments.memory.split(",")) if arguments.memory else ()
    if "" in memory:
        raise UserError(f"--memory {arguments.memory}: a name is empty; write kinds with one comma between them")
    return Selection(
        tuple(arguments.benchmarks), arguments.src or "", arguments.dst or "",
        memory, tuple(sizes),
    )  # fmt: skip


def _alike_contexts(text: str | None, rule: str) -> bool | None:
    if text not in (None, "alike", "any"):
        raise UserError(f"--contexts {text}: choose alike or any")
    if text == "alike" and rule != "linkscope":
        raise UserError(f"--contexts alike: {rule} uses any contexts; leave it out")
    return None if text is None else text == "alike"


def _only(arguments: argparse.Namespace, machine: "MachineFacts") -> list[str]:
    """The globs of --only, or the points that measure a trace."""
    if not arguments.trace:
        return arguments.only or []
    for name in ("only", "suite", "benchmarks", "src", "dst", "memory", "sizes"):
        if getattr(arguments, name):
            extra = "the names of benchmarks" if name == "benchmarks" else f"--{name}"
            raise UserError(f"--trace {arguments.trace} names everything that is measured: leave out {extra}")
    from linkscope.trace import point_ids, read_trace

    parts = read_trace(arguments.trace)
    points = [transfer.point for part in parts for transfer in part.transfers]
    places = [place for point in points for place in (point.src, point.dst)]
    if missing := next((place for place in places if place not in machine.places), None):
        have = ", ".join(machine.places) or "no places"
        raise UserError(f"--trace {arguments.trace}: {missing} is not here: {machine.name} has {have}", NOT_HERE)
    return point_ids(parts)


@contextlib.contextmanager
def _progress(
    arguments: argparse.Namespace, target: "Target", plan: "Plan", earlier: "Run | None" = None
) -> "Iterator[Progress]":
    """The progress display of a run; removed when the run ends."""
    from linkscope.report.live import LiveTable
    from linkscope.run.progress import Points, Silent, progress_for
    from linkscope.run.states import finished

    if arguments.quiet:
        yield Silent()
        return

    found = LiveTable(plan.points, target.limit, modelled=target.modelled)
    if earlier is not None:
        for of in earlier.rounds.values():
            for one in of:
                found.add(one)
        for point in finished(earlier.points).values():
            found.add(point)
    progress: Progress = Points(found, sys.stderr) if arguments.verbose else progress_for(found)
    try:
        yield progress
    finally:
        progress.stop()


def _finish(arguments: argparse.Namespace, path: Path, outcome: "Outcome") -> int:
    if arguments.json:
        counts: dict[str, int] = {}
        for point in outcome.points.values():
            counts[point.status] = counts.get(point.status, 0) + 1
        print(json.dumps({"run": str(path), "complete": outcome.complete, "wall_s": outcome.wall_s, "counts": counts}))
    elif not arguments.quiet:
        _print_summary(path)
    if not arguments.json and arguments.output != "-":
        print(f"run file: {path} ({format_bytes(path.stat().st_size)})")
    if arguments.report:  # after the name of the run file, which is complete even if the report cannot be written
        from linkscope.cli.report import write_page

        write_page(path, Path(arguments.report), "--report", force=arguments.force)
    code = outcome.exit_code
    if arguments.suite == _SANITY and arguments.machine in (None, "auto"):
        from linkscope.cli import sanity

        of_doctor = sanity.report(outcome.points, quiet=arguments.quiet or arguments.json)
        code = outcome.exit_code or of_doctor
    if not arguments.json:
        if arguments.report:
            print(f"report:   {arguments.report}")
        if outcome.exit_code == STOPPED_EARLY:
            print(f"stopped early; continue with: {_resuming(path)}")
    return code


def _resuming(path: Path) -> str:
    """The command that goes on with a run, by as many ranks as it had."""
    from linkscope.report.verdict import with_its_ranks
    from linkscope.runfile import read_run

    return f"{with_its_ranks(read_run(path, rounds=False))}{_command()} run --resume {path}"


def _print_summary(path: Path) -> None:
    from linkscope.report.summary import summary
    from linkscope.runfile import read_run

    gc.freeze()  # keeps the garbage collector from scanning the measurements while the file is read
    print(summary(read_run(path, rounds=False)))


def _output(arguments: argparse.Namespace, target: "Target") -> Path:
    if arguments.output == "-":
        handle, name = tempfile.mkstemp(prefix="linkscope-", suffix=".jsonl")
        os.close(handle)
        os.unlink(name)  # created later without --force, like any run file
        return Path(name)
    if arguments.output:
        if arguments.output.endswith(".gz"):
            raise UserError(f"-o {arguments.output}: a run file is written as .jsonl; compress it when it is complete")
        return Path(arguments.output)
    first = Path(f"linkscope-{target.facts.name}-{datetime.datetime.now():%Y%m%d-%H%M%S}.jsonl")
    others = (first.with_stem(f"{first.stem}-{number}") for number in itertools.count(2))
    return next(path for path in itertools.chain([first], others) if not path.exists())


def _check_report(arguments: argparse.Namespace) -> None:
    """Refuses, before measuring, a report that cannot be written."""
    from linkscope.cli.target import STANDARD_OUTPUT, check_writable

    if Path(arguments.report) == STANDARD_OUTPUT:
        raise UserError("--report -: standard output holds the summary; give the report a file, such as run.html")
    runs = [Path(run) for run in (arguments.output, arguments.resume) if run]
    check_writable(Path(arguments.report), runs, "--report", force=arguments.force)


def _precision(text: str | None) -> float | None:
    if text is None:
        return None
    value = parse_percent(text)
    if value is None or not 0 < value < 1:
        raise UserError(f"--precision {text}: write a percentage between 0 % and 100 %, such as 0.5%")
    return value


def _rule(text: str) -> "RuleName":
    from linkscope.plan import RULES

    if text not in RULES:
        raise UserError(f"--rule {text}: unknown rule; choose {', '.join(RULES)}")
    return text


def _budget(text: str | None) -> float | None:
    if text is None:
        return None
    value = parse_duration(text)
    if value is None or not 0 < value < math.inf:
        raise UserError(f"--budget {text}: write a time, such as 120s, 2min or 1h")
    return value


def _command() -> str:
    """The command as it can be typed here; after `make run` it is not on the path."""
    import shutil

    if shutil.which("linkscope"):
        return "linkscope"
    beside = Path(sys.executable).with_name("linkscope")
    return os.path.relpath(beside) if beside.exists() else f"{os.path.relpath(sys.executable)} -m linkscope"
