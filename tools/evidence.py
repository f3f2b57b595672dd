"""Makes all evidence of one machine with GPUs in one call: GPU tests and runs, in the form of results/.

Usage: python tools/evidence.py FOLDER [--steps quick,standard,standard-again,tests,findings,papers,few,full]
       [--seconds 540] [--limits quick=30,few=60] [--unfinished UNFINISHED]
       python tools/evidence.py FOLDER --steps comm-scope --unfinished UNFINISHED     the whole suite, in several calls
       python tools/evidence.py FOLDER --steps beside --tool COMM_SCOPE [--exponents 24,26] [--benchmarks PATTERN]
       python tools/evidence.py FOLDER --steps one-gpu        what the notes still lack from one GPU
       python tools/evidence.py FOLDER --steps gpus --seconds 590 [...]    several GPUs, as evidence_gpus.py says

Steps run in the order given, each within its limit. A step for which too little time is left is not started. A later
call with the same steps and the same UNFINISHED (by default FOLDER/unfinished) goes on: it leaves out the steps that
ended with exit code 0 or 1, and continues or repeats the others. `full` and `comm-scope` take the
remaining time. `beside` runs Comm|Scope's own program for half of its time, then the points that it measured by
`linkscope run --suite comm-scope --rule comm-scope`, which takes at least five seconds for each, and prints the table
of agreement. The program runs in groups of benchmarks, with repetitions as long as the time allows. It changes governor
and turbo of the CPU where it may.

Each result is written when its step ends, to FOLDER/MACHINE-STEP (such as h200x4-full.jsonl.gz), and everything that is
printed to FOLDER/log.txt, with the free memory of the host and the used memory of every GPU between the steps. On
SIGTERM, as on Ctrl-C, the step under way saves what it has, and the call ends.
"""

import argparse
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TextIO

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import evidence_gpus
import evidence_one_gpu
import evidence_runs
from evidence_step import ENDING_S, STOPPED, Call, Step, memory

# A name for all steps of a table, in their order.
GROUPS: dict[str, dict[str, Step]] = {"one-gpu": evidence_one_gpu.STEPS, "gpus": evidence_gpus.STEPS}
ALL: dict[str, Step] = evidence_runs.STEPS | evidence_runs.NAMED
for _steps in GROUPS.values():
    ALL |= _steps
_ENDED = "ended.txt"  # in UNFINISHED: MACHINE-STEP of each step that ended with exit code 0 or 1


def limits(text: str) -> dict[str, float]:
    """Seconds by step, of 'quick=30,few=60'. Raises ValueError."""
    found = {}
    for word in filter(None, text.split(",")):
        name, _, seconds = word.partition("=")
        if name not in ALL:
            raise ValueError(f"there is not a step {name}")
        found[name] = float(seconds)
    return found


def parsed() -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and the names of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", default=",".join(evidence_runs.STEPS))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--limits", type=limits, default={}, help="of steps, in place of their own: STEP=SECONDS,...")
    parser.add_argument("--unfinished", type=Path, help="what a later call needs (default: FOLDER/unfinished)")
    parser.add_argument("--tool", type=Path, help="Comm|Scope's program, for step beside")
    parser.add_argument("--exponents", default="24,26", help="of the sizes of step beside (default: 24,26)")
    parser.add_argument("--benchmarks", default="", help="a pattern of those in step beside (default: all)")
    parser.add_argument(
        "--machine", default="", help="a model in place of this machine, to try steps that run linkscope"
    )
    parser.add_argument("--small", action="store_true", help="small sizes, to try the steps")
    evidence_gpus.add_arguments(parser)
    arguments = parser.parse_args()
    names = [name for word in arguments.steps.split(",") for name in GROUPS.get(word, [word])]
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"there is not a step {unknown[0]}; there are {', '.join([*ALL, *GROUPS])}")
    for name in names:
        option = ALL[name].needs
        if option and not (getattr(arguments, option) and getattr(arguments, option).exists()):
            parser.error(f"step {name} needs --{option}, a path that exists")
    return arguments, names


def carried_out(arguments: argparse.Namespace, names: list[str], log: TextIO) -> int:
    """Carries out the steps that did not end before. Returns the worst exit code."""
    end, worst = time.monotonic() + arguments.seconds, 0
    ended = arguments.unfinished / _ENDED
    before = ended.read_text().split() if ended.exists() else []

    def say(text: str) -> None:
        print(text, flush=True)
        print(text, file=log, flush=True)

    say(f"before: {memory()}")
    for name in names:
        step, began = ALL[name], time.monotonic()
        call = Call(name, step.seconds, arguments.folder, arguments.unfinished, log, arguments)
        if call.base in before:
            say(f"{name}: ended in a call before")
            continue
        seconds = arguments.limits.get(name, step.seconds)
        left, least = end - began - ENDING_S, min(step.least or seconds, seconds)
        if left < least:
            say(f"{name}: not started: {end - began:.0f} s are left and the step may take {least:.0f}")
            continue
        seconds = left if step.takes_rest else min(seconds, left)
        status = step.action(replace(call, seconds=seconds))
        say(f"{name}: exit code {status} after {time.monotonic() - began:.1f} s; {memory()}")
        if status in (0, 1):
            with ended.open("a") as lines:
                print(call.base, file=lines)
        worst = max(worst, status if status >= 0 else 128 - status)  # -9: killed, which is not a success
    return worst


def main() -> int:
    arguments, names = parsed()
    arguments.unfinished = arguments.unfinished or arguments.folder / "unfinished"
    for folder in (arguments.folder, arguments.unfinished):
        folder.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with (arguments.folder / "log.txt").open("a", encoding="utf-8") as log:
        try:
            return carried_out(arguments, names, log)
        except KeyboardInterrupt:
            print("interrupted: a call with the same folder goes on")
            return STOPPED


if __name__ == "__main__":
    sys.exit(main())
