"""Check a node before a job: measure its main paths, compare them with a reference, and name the part at fault.

linkscope check                               against physics and the bundled summary of this GPU model
linkscope check --save-baseline node7.jsonl   measure a healthy node and keep the result
linkscope check --against node7.jsonl         against an earlier run of this node, or of a node like it
linkscope check --against mine.toml           against a machine file from `linkscope model`

Physics means link widths and generations, peaks, other paths of the class, and lost data. A point that is slower than
the reference is measured again before it counts. Against an earlier run, an unchanged node fails in at most 1 of 10,000
checks. Exit codes:
  0  pass
  1  fail
  2  wrong usage, or a reference that cannot be read
  3  no GPU
  5  inconclusive, also when the budget is too small
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from linkscope.cli import options
from linkscope.cli.runs import read
from linkscope.cli.screen import filled
from linkscope.cli.target import add_force
from linkscope.errors import NOT_HERE, UserError
from linkscope.units import format_seconds, parse_duration

if TYPE_CHECKING:
    from linkscope.check import Check, Reference, Verdict
    from linkscope.run import StopFlag
    from linkscope.run.target import Target

SUMMARY = "check a node against a reference before a job"
_BUDGET = "60s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `check`."""
    parser.add_argument(
        "--machine",
        metavar="auto|NAME|FILE",
        default="auto",
        help="check this machine (auto, the default), or a model of one",
    )
    parser.add_argument(
        "--against",
        metavar="FILE|bundled",
        help="compare with an earlier run or a machine file; default: bundled (physics and the summary)",
    )
    parser.add_argument("--save-baseline", metavar="RUN.jsonl", help="write the measured run, and judge nothing")
    parser.add_argument(
        "--budget", metavar="TIME", default=_BUDGET, help=f"longest time to measure (default {_BUDGET})"
    )
    parser.add_argument("--seed", metavar="N", help="seed of the order, and of the noise of a model (default 1)")
    parser.add_argument("--explain", action="store_true", help="also print every point beside its reference")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope check`."""
    budget_s = parse_duration(arguments.budget)
    if budget_s is None or budget_s <= 0:
        raise UserError(f"--budget {arguments.budget}: write a time above zero, such as 60s")
    if arguments.save_baseline and arguments.against:
        raise UserError("--save-baseline measures a reference and judges nothing: leave out --against")
    seed = options.whole("--seed", arguments.seed or "1", least=0, most=2**63 - 1)

    from linkscope.run import StopFlag
    from linkscope.run.target import choose

    target = choose(arguments.machine, seed)
    if not target.facts.of_kind("gpu"):
        raise UserError(_without_gpu(target, arguments.against), NOT_HERE)
    if arguments.save_baseline:
        return _save(arguments, target, seed)
    from linkscope.check import Check, busy, check

    for text in busy(target.machine, target.environment):
        print(f"linkscope check: {text}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="linkscope-check-") as folder, StopFlag(last=True) as stop:
        reference = _reference(arguments.against, target, Path(folder), stop)
        asked = Check(target, reference, budget_s, seed)
        verdict = check(asked, Path(folder), stop)
    if arguments.json:
        print(json.dumps(_as_json(verdict, asked)))
    else:
        _print(verdict, asked, explain=arguments.explain)
    return verdict.exit_code


def _without_gpu(target: "Target", against: str | None) -> str:
    """Why there is no GPU to check. A reference that cannot be read is reported first (UserError)."""
    from linkscope.check import BUNDLED
    from linkscope.check.gpus import gpus_of
    from linkscope.machine import model
    from linkscope.model.text import count_text

    text = f"{target.facts.name} has no GPU to check"
    if against and against.endswith(".toml"):
        model.load(against)
    elif against not in (None, BUNDLED):
        gpus = len(gpus_of(read(against).header.machine))
        text += f", and {against} is of a node with {count_text(gpus, 'GPU')}" if gpus else ""
    if target.modelled:
        return text
    on_bus = target.machine.get("pci_gpus") or []
    cuda = (target.machine.get("driver") or {}).get("cuda_why_not") or "CUDA works, and shows none"
    bus = f"{count_text(len(on_bus), 'NVIDIA GPU')} on the PCI bus" if on_bus else "no NVIDIA GPU on the PCI bus"
    return f"{text}: {bus}; {cuda}. If the node should have GPUs, see `linkscope doctor` and nvidia-smi"


def _save(arguments: argparse.Namespace, target: "Target", seed: int) -> int:
    from linkscope.check import SUITE
    from linkscope.plan import make_plan
    from linkscope.run import Controls, StopFlag, benchmark_table, measure

    path = Path(arguments.save_baseline)
    plan = make_plan(target.facts, benchmark_table(), suite=SUITE, seed=seed)
    with StopFlag(last=True) as stop:
        outcome = measure(target, plan, path, force=arguments.force, controls=Controls(stop=stop))
    print(f"baseline: {path} ({len(outcome.points)} points, {format_seconds(outcome.wall_s)})")
    return outcome.exit_code


def _reference(against: str | None, target: "Target", folder: Path, stop: "StopFlag") -> "Reference":
    """The reference that --against names."""
    from linkscope.check import BUNDLED, earlier_run, physics, prediction

    if against in (None, BUNDLED):
        return physics(target.machine)
    if against.endswith(".toml"):
        return prediction(against, target.machine, folder, stop)
    return earlier_run(read(against), against, target.machine)


def _print(verdict: "Verdict", asked: "Check", *, explain: bool) -> None:
    mark = "MODELLED " if asked.target.modelled else ""
    print(
        filled(
            f"linkscope check: {verdict.status.upper()} {mark}{asked.target.facts.name}: {verdict.summary}", "", "  "
        )
    )
    for line in verdict.evidence:
        print(filled(line, "  ", "    "))
    if explain:
        _explain(verdict, asked)


def _explain(verdict: "Verdict", asked: "Check") -> None:
    """Every point with what it was compared with."""
    from linkscope.check.bundled import limits_by_summary
    from linkscope.compare.text import groups_table

    if verdict.compared is not None:
        print(f"\nCompared with {asked.reference.name}:")
        for line in groups_table(verdict.compared):
            print(f"  {line}")
        for pair in verdict.compared.pairs:
            ends = f" [{pair.interval.low:.4f}, {pair.interval.high:.4f}]" if pair.interval else ""
            print(f"  {pair.verdict:<15} {pair.ratio or 0:.4f}{ends}  {pair.id}")
        return
    points = verdict.measured.points if verdict.measured else []
    print("\nCompared with the peak of the path, of which at least half is required:")
    for point in points:
        if point.gbps and point.limit_gbps:
            share = 100 * point.gbps / point.limit_gbps
            print(f"  {point.gbps:.4g} of {point.limit_gbps:.4g} GB/s ({share:.0f} %)  {point.id}")
    if verdict.measured and (limits := limits_by_summary(verdict.measured)):
        print("\nCompared with the bundled summary:")
        for limit in limits:
            print(f"  {limit.text}")


def _as_json(verdict: "Verdict", asked: "Check") -> dict[str, object]:
    return {
        "status": verdict.status, "summary": verdict.summary, "machine": asked.target.facts.name,
        "modelled": asked.target.modelled, "against": asked.reference.name, "evidence": verdict.evidence,
        "parts": [{"name": part.name, "paths": [list(path) for path in part.paths]} for part in verdict.parts],
        "points": [
            {"id": pair.id, "verdict": pair.verdict, "ratio": pair.ratio, "detectable": pair.detectable}
            for pair in (verdict.compared.pairs if verdict.compared else [])
        ],
    }  # fmt: skip
