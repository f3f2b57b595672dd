"""Steps of tools/evidence.py: what a step is, what it gets, and the kinds of steps that all tables have in common.

A table of steps is a dict of Step by name. `linkscope_run`, `tool` and `tests` make the action of a step.
"""

import argparse
import gzip
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]
ENDING_S = 20  # an interrupted run saves its points within this time
START_S = 10  # of a program with PyTorch, until it measures
STOPPED = 4  # exit code of an interrupted run that --resume can continue


@dataclass(frozen=True)
class Call:
    """What the action of a step gets.

    `seconds`: its time. `folder`: for results. `unfinished`: for runs that a later call continues. `given`: arguments.
    """

    name: str
    seconds: float
    folder: Path
    unfinished: Path
    log: TextIO
    given: argparse.Namespace

    @property
    def base(self) -> str:
        """Of the names of its results, such as 'h100x1-quick'."""
        return f"{self.given.machine or machine()}-{self.name}"

    @property
    def budget(self) -> str:
        """The seconds for what ends by itself, as a number: a start and an end are outside of it."""
        return f"{max(self.seconds - START_S, 1):.0f}"

    @property
    def result(self) -> Path:
        """The path of a result, without its ending."""
        return self.folder / self.base


Action = Callable[[Call], int]


@dataclass(frozen=True)
class Step:
    """A part of the evidence.

    `seconds`: its time limit. With `takes_rest`, the step gets all remaining time, and `seconds` is the least useful
    time. `least`: the least useful time of a step that can do with less than its limit. `needs`: an option with a path
    that must be given.
    """

    seconds: float
    action: Action
    takes_rest: bool = False
    needs: str = ""
    least: float = 0.0


def linkscope_run(
    *options: str,
    launcher: Callable[[], Sequence[str]] = tuple,
    settings: Mapping[str, str] | None = None,
    goes_on: bool = False,
) -> Action:
    """The action of a run, whose file becomes RESULT.jsonl.gz. `options` may have {budget}: seconds in which it ends by
    itself. `launcher` returns words before the command, such as mpirun's. `settings`: environment variables.

    With `goes_on`, the next call continues a run that was interrupted.
    """

    def action(call: Call) -> int:
        words = [word.replace("{budget}", call.budget) for word in options]
        return one_run(call, words, launcher(), settings, goes_on=goes_on)

    return action


def one_run(
    call: Call,
    options: Sequence[str],
    launcher: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
    *,
    goes_on: bool,
) -> int:
    """Runs `linkscope run` with these options, or continues its file if the run was interrupted and goes on."""
    written = call.unfinished / f"{call.base}.jsonl"
    chosen = ["--machine", call.given.machine] if call.given.machine else []
    words = ["--resume", str(written)] if written.exists() else [*options, *chosen, "-o", str(written)]
    status = STOPPED
    try:
        status = logged([*launcher, sys.executable, "-m", "linkscope", "run", *words], call.seconds, call.log, settings)
    finally:
        if written.exists():
            with written.open("rb") as plain, gzip.open(f"{call.result}.jsonl.gz", "wb") as packed:
                shutil.copyfileobj(plain, packed)
            if not goes_on or status not in (STOPPED, -signal.SIGKILL):
                written.unlink()  # an unfinished file of another step cannot be resumed later
    return status


def tool(name: str, *words: str, small: Sequence[str] = ()) -> Action:
    """The action of one of the tools. Words may have {budget}, {result} and {kept}: seconds in which it ends by itself,
    the start of its files' paths, and a folder that a later call has too. `small` are added with --small.
    """

    def action(call: Call) -> int:
        kept = call.unfinished / call.base
        known = {"budget": call.budget, "result": str(call.result), "kept": str(kept)}
        chosen = [word.format_map(known) for word in (*words, *(small if call.given.small else ()))]
        status = STOPPED
        try:
            status = logged([sys.executable, str(ROOT / "tools" / name), *chosen], call.seconds, call.log)
        finally:
            if kept.exists():
                shutil.copytree(kept, call.result, dirs_exist_ok=True)
        return status

    return action


def tests(*words: str, settings: Mapping[str, str] | None = None) -> Action:
    """The action of tests by pytest; words are its options and files of tests/gpu. What they print becomes RESULT.txt,
    and is in the log too.
    """
    files = [str(ROOT / "tests" / "gpu" / word) if word.endswith(".py") else word for word in words]
    return _printed([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", "-rs", *files], settings)


def printed_tool(name: str, *words: str) -> Action:
    """The action of a tool without files: what it prints becomes RESULT.txt, and is in the log too."""
    return _printed([sys.executable, str(ROOT / "tools" / name), *words])


def _printed(command: Sequence[str], settings: Mapping[str, str] | None = None) -> Action:
    def action(call: Call) -> int:
        printed = Path(f"{call.result}.txt")
        try:
            with printed.open("w") as output:
                return logged(command, call.seconds, call.log, settings, output)
        finally:
            call.log.write(printed.read_text())
            call.log.flush()

    return action


def logged(
    words: Sequence[str],
    seconds: float,
    log: TextIO,
    settings: Mapping[str, str] | None = None,
    output: TextIO | None = None,
) -> int:
    """Runs a command; interrupts it, as by Ctrl-C, when its time is over or this program is interrupted.

    Returns its exit code; STOPPED for another one than 0 after an interruption. `settings`: environment variables.
    `output`: of the command, if not to the log; its errors go to the log all the same.
    """
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=output or log,
        stderr=log,
        cwd=ROOT,
        env=os.environ | settings if settings else None,
        process_group=0,
        preexec_fn=_hear_interruptions,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return _interrupted(process)
    except KeyboardInterrupt:
        _interrupted(process)
        raise


def _hear_interruptions() -> None:
    """In the child: a shell that starts this program with `&` lets it, and so its children, ignore SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _interrupted(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    try:
        return STOPPED if process.wait(ENDING_S) else 0
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # its workers too, which hold memory of the GPU
        return process.wait()


def machine() -> str:
    """'h100x4' of four 'NVIDIA H100 80GB HBM3', 'host' without a GPU."""
    names = [re.sub(r"nvidia|\d+gb|hbm\w*|[^a-z0-9]", "", name.lower()) for name in gpus()]
    return f"{'-'.join(sorted(set(names)))}x{len(names)}" if names else "host"


@cache
def gpus() -> tuple[str, ...]:
    """The names of this machine's GPUs."""
    from linkscope.run.worker import driver_facts

    return tuple(gpu["name"] for gpu in driver_facts()["gpus"])


def memory() -> str:
    """Free memory of the host and used memory of every GPU, as text; a leak changes them."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    used = (
        subprocess.run(command, capture_output=True, text=True).stdout.split("\n") if shutil.which(command[0]) else []
    )
    return f"{' '.join(free.split())}; used by GPU: {', '.join(filter(None, used)) or 'no nvidia-smi'}"
