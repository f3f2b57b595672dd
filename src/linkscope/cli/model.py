"""Fit a machine file to a run. `predict` and `run --machine` use the file.

linkscope model run.jsonl                        print shared capacities, and latency and rate of every method
linkscope model run.jsonl -o mine.toml           then: linkscope predict --machine mine.toml --src … --dst …
linkscope model run.jsonl --check                fit half of the points and predict the other half
linkscope model monday.jsonl tuesday.jsonl -o mine.toml      several runs of one machine

The file holds rates and latencies of links, set-up costs and shared capacities, each with the points it was fitted to.
Values that the run does not determine are marked `assumed`. docs/method/model.md describes the method. Exit code 1:
--check found a median error above 3 %, or above 10 % for concurrent flows.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.cli import options
from linkscope.cli.runs import read
from linkscope.cli.screen import filled
from linkscope.cli.target import STANDARD_OUTPUT, add_force, check_writable, write
from linkscope.errors import FINE, SOMETHING_FAILED, UserError
from linkscope.units import format_fraction

if TYPE_CHECKING:
    from linkscope.model.check import Check, Errors, Held
    from linkscope.model.observed import Observation
    from linkscope.model.skeleton import Content
    from linkscope.runfile import Run

SUMMARY = "fit a machine file to a run, and check it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `model`."""
    parser.add_argument("runs", metavar="RUN.jsonl", nargs="+", help="a run file, or several of one machine")
    parser.add_argument("-o", "--output", metavar="FILE.toml", help="write the machine file; - prints it")
    parser.add_argument("--check", action="store_true", help="hold half of the points out and predict them")
    parser.add_argument("--seed", metavar="N", default="1", help="seed of the held-out half (default 1)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_force(parser)


def main(arguments: argparse.Namespace) -> int:
    """`linkscope model`."""
    target = _target(arguments)
    seed = options.whole("--seed", arguments.seed, least=0, most=2**63 - 1)

    from linkscope.model.build import build, refuse_too_little
    from linkscope.model.check import check, compared, deviations
    from linkscope.model.observed import observed
    from linkscope.run.simulate import simulation

    runs = [read(path) for path in arguments.runs]
    _refuse_different(runs)
    points = [point for run in runs for point in run.points]
    name, header = ", ".join(run.path.name for run in runs), runs[0].header
    observations = observed(points)
    refuse_too_little(points, observations, name)
    progress = _Progress()
    with simulation() as simulated:
        if arguments.check:
            checked = check(header, points, simulated, name, seed, progress)
            if target:
                _write(target, checked.content)
            print(json.dumps(_check_json(checked))) if arguments.json else _print_check(checked, runs)
            return SOMETHING_FAILED if checked.too_far() else FINE
        content = build(header, points, observations, simulated, name, progress)
        content["deviation"] = deviations(compared(content, observations, simulated), held_out=False)
    if target:
        _write(target, content)
    if target == STANDARD_OUTPUT:
        return FINE
    if arguments.json:
        print(json.dumps(_model_json(runs, content, observations)))
    else:
        _print_model(runs, content, observations, target)
    return FINE


class _Progress:
    """Shows each step on standard error: in one line of a terminal, elsewhere a line for each new step."""

    def __init__(self) -> None:
        self._step = ""

    def __call__(self, step: str) -> None:
        if sys.stderr.isatty():
            print(f"\rlinkscope: fitting {step} …\x1b[K", end="", file=sys.stderr, flush=True)
        elif step != self._step:
            print(f"linkscope: fitting {step}", file=sys.stderr, flush=True)
        self._step = step


def _target(arguments: argparse.Namespace) -> Path | None:
    if not arguments.output:
        return None
    target = Path(arguments.output)
    if target == STANDARD_OUTPUT:
        if arguments.json or arguments.check:
            raise UserError("-o - prints the machine file: leave out --json and --check")
        return target
    if target.suffix != ".toml":
        raise UserError(f"-o {target}: a machine file ends in .toml")
    check_writable(target, [Path(run) for run in arguments.runs], force=arguments.force)
    if not arguments.force:
        _refuse_written_by_hand(target)
    return target


def _refuse_written_by_hand(target: Path) -> None:
    """Refuses to replace a machine file that `linkscope model` did not write."""
    import tomllib

    if not target.is_file() or not target.stat().st_size:
        return
    try:
        fitted = tomllib.loads(target.read_text(encoding="utf-8")).get("machine", {}).get("measured")
    except (OSError, ValueError, AttributeError):
        fitted = None
    if not fitted:
        raise UserError(f"-o {target}: this file exists and was not made by `linkscope model`; choose another name")


def _refuse_different(runs: "list[Run]") -> None:
    from linkscope.model.skeleton import identity

    first = identity(runs[0].header)
    for run in runs[1:]:
        if identity(run.header) != first:
            raise UserError(
                f"{runs[0].path} and {run.path} are runs of different machines: a machine file describes one machine; "
                "fit each run by itself"
            )


def _write(target: Path, content: "Content") -> None:
    """Writes the file after checking that it can be read again."""
    from linkscope.machine.model import parse
    from linkscope.model.toml import machine_toml

    text = machine_toml(content)
    parse(text, str(target))
    write(target, text)


def _heading(runs: "list[Run]") -> str:
    what = "a MODELLED run" if runs[0].modelled else "measurements"
    return f"model of {runs[0].header.machine.get('name', 'a machine')}, fitted to {what}: " + ", ".join(
        str(run.path) for run in runs
    )


def _print_model(runs: "list[Run]", content: "Content", observations: "list[Observation]", target: Path | None) -> None:
    from linkscope.model.description import methods_text, shared_text, undetermined_text

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    print(_heading(runs))
    print("\nShared capacities:")
    for line in shared_text(content) or ["none found: all concurrent flows reached the rates of their links"]:
        print(f"  {line}")
    print("\nCost of one transfer on the median path (latency, rate, size that reaches half of the rate):")
    for line in methods_text(observations):
        print(filled(line, "  ", "      "))
    assumed = undetermined_text(content)
    if assumed:
        print(f"\nAssumed, because the run does not determine them: {assumed}")
    print(
        f"\nmachine file: {target}"
        if target
        else "\n-o FILE.toml writes the machine file; `--check` tests its accuracy."
    )


def _print_check(checked: "Check", runs: "list[Run]") -> None:
    from linkscope.model.check import MOST, MOST_JOINT, summary

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    print(_heading(runs))
    print(f"fitted to {checked.fitted_to} times; {len(checked.held)} others predicted\n")
    print(f"{'error: median, p90, worst':<74} {'machine file':>22} {'curves':>22}")
    rows: list[tuple[str, list[Held]]] = [("all", list(checked.held)), ("concurrent flows", checked.joint)]
    for name, held in (*rows, *checked.by_family().items()):
        ways = [summary(held, lambda one: one.by_file), summary(held, lambda one: one.by_curve)]
        print(f"{f'{name} ({len(held)})':<74} {_errors_text(ways[0]):>22} {_errors_text(ways[1]):>22}")
    worst = summary(list(checked.held), lambda one: one.by_file)
    if worst.worst is not None:
        print(f"\nlargest error: {worst.worst_id}, {format_fraction(worst.worst)}")
    if worst.without_total:
        print(f"{worst.without_total} points are not predicted: the machine file lacks their paths or methods")
    for line in checked.too_far():
        print(f"TOO FAR: {line}")
    if not checked.too_far():
        bounds = f"{100 * MOST:.0f} % over all points, {100 * MOST_JOINT:.0f} % over concurrent flows"
        print(f"the median errors are within bounds: {bounds}; single operations may exceed them")


def _errors_text(errors: "Errors") -> str:
    if errors.median is None or errors.ninety is None or errors.worst is None:
        return "-"
    return " ".join(f"{100 * value:.1f} %".rjust(7) for value in (errors.median, errors.ninety, errors.worst))


def _check_json(checked: "Check") -> dict[str, Any]:
    from linkscope.model.check import MOST, MOST_JOINT, summary

    def errors_json(held: "list[Held]") -> dict[str, Any]:
        ways = {"machine_file": lambda one: one.by_file, "curves": lambda one: one.by_curve}
        answer: dict[str, Any] = {"points": len(held)}
        for name, way in ways.items():
            errors = summary(held, way)
            answer[name] = {
                "median": errors.median, "p90": errors.ninety, "worst": errors.worst, "worst_id": errors.worst_id,
                "not_predicted": errors.without_total,
            }  # fmt: skip
        return answer

    return {
        "fitted_to": checked.fitted_to,
        "all": errors_json(list(checked.held)),
        "joint": errors_json(checked.joint),
        "families": {name: errors_json(held) for name, held in checked.by_family().items()},
        "bounds": {"all": MOST, "joint": MOST_JOINT},
        "too_far": checked.too_far(),
    }


def _model_json(runs: "list[Run]", content: "Content", observations: "list[Observation]") -> dict[str, Any]:
    from linkscope.model.description import curves_json

    return {
        "runs": [{"path": str(run.path), "modelled": run.modelled} for run in runs],
        "machine": content,
        "curves": curves_json(observations),
    }
