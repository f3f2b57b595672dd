"""Name the settings of this machine that spoil measurements or workloads, each with its cure.

linkscope doctor                         findings, then the CPUs and the NUMA node next to each GPU
linkscope doctor --placement run.jsonl   the CPUs and the NUMA node with the fastest copies to each GPU, from a run here

Exit code 1: a setting is bad. Exit code 0: at most warnings.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from linkscope.cli.screen import filled
from linkscope.errors import FINE, NOT_HERE, UserError

if TYPE_CHECKING:
    from linkscope.machine.facts import Machine
    from linkscope.machine.finding import Finding

SUMMARY = "name the settings of this machine that spoil measurements"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `doctor`."""
    parser.add_argument(
        "--placement", metavar="RUN.jsonl", nargs="?", const="",
        help="print only the CPUs and the NUMA node for each GPU, and the commands that bind to them",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON")


def main(arguments: argparse.Namespace) -> int:
    """`linkscope doctor`."""
    import msgspec

    from linkscope.machine.doctor import exit_code
    from linkscope.machine.probe import probe
    from linkscope.run.mps import why_no_mps
    from linkscope.run.nixl import in_run_file
    from linkscope.run.worker import driver_facts

    driver = driver_facts()
    machine = probe(driver)
    if arguments.placement is not None:
        return _placement(machine, arguments)
    found = found_here(machine, driver)
    if arguments.json:
        print(json.dumps(msgspec.to_builtins(found), indent=1))
    else:
        for finding in found:
            print(finding)
        if driver.get("gpus"):
            print(f"Clients that share a GPU: {why_no_mps() or 'MPS can be started'}; {_green_contexts(driver)}.")
        if "path" in (nixl := in_run_file()):
            print(f"NIXL: {nixl['path']}: {nixl['found']}.")
        if machine.gpus:
            from linkscope.cli.seats import seat_lines, seating_of_machine

            print("\n".join(seat_lines(seating_of_machine(machine.to_json(), []))))
            print("  `linkscope doctor --placement [RUN.jsonl]` prints the lines that bind processes.")
        print(filled(next_step(found, has_gpu=bool(machine.gpus)), "", "  "))
    return exit_code(found)


def next_step(found: "Sequence[Finding]", *, has_gpu: bool) -> str:
    """The last line of the text: what to do now, by the worst finding."""
    from linkscope.model.text import count_text

    run = "`linkscope run --suite quick --report map.html` for a first map of this machine"
    if not has_gpu:
        run = (
            "`linkscope run --suite quick` for the host's memory, or `linkscope run --machine h200x4` for a simulation"
        )
    counts = Counter(finding.severity for finding in found)
    if counts["bad"]:
        return (
            f"Next: mend {count_text(counts['bad'], 'bad setting')}: results would be wrong or far too low. Then {run}."
        )
    if counts["warn"]:
        return f"Next: mend {count_text(counts['warn'], 'setting')} marked warn, which may spoil results. Then {run}."
    return f"Next: no setting spoils results. Use {run}."


def found_here(machine: "Machine", driver: Mapping[str, Any]) -> "list[Finding]":
    """All findings about this machine, its libraries included."""
    from linkscope.machine.doctor import findings
    from linkscope.machine.environment import environment
    from linkscope.run.libraries import why_not

    return findings(machine, {**environment(), "libraries": why_not(driver.get("version") or 0)})


def _placement(machine: "Machine", arguments: argparse.Namespace) -> int:
    from linkscope.advise.near_far import near_far
    from linkscope.cli.runs import read
    from linkscope.cli.seats import as_json, lines, seating_of_machine

    run = read(arguments.placement) if arguments.placement else None
    if run is not None:
        here = sorted(str(gpu.uuid) for gpu in machine.gpus)
        there = sorted(str(gpu.get("uuid")) for gpu in run.header.machine.get("gpus", []))
        if run.modelled or here != there:
            other = "is MODELLED" if run.modelled else "was measured on another machine"
            raise UserError(f"{run.path} {other}: `linkscope advise {run.path} --placement` shows its seats", NOT_HERE)
    seating = seating_of_machine(machine.to_json(), near_far(run.points) if run else [])
    print(as_json(seating) if arguments.json else "\n".join(lines(seating)))
    return FINE


def _green_contexts(driver: Mapping[str, Any]) -> str:
    lacking = [name for name in driver.get("missing", ()) if "Green" in name or "DevResource" in name]
    return f"green contexts: the driver lacks {lacking[0]}" if lacking else "the driver has green contexts"
