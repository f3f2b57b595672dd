"""Makes all evidence of one machine with GPUs in one call: GPU tests and runs, in the form of results/.

Usage: python tools/evidence.py FOLDER [--steps quick,standard,standard-again,tests,findings,papers,few,full]
       [--seconds 540] [--unfinished UNFINISHED]
       python tools/evidence.py FOLDER --steps comm-scope --unfinished UNFINISHED     the whole suite, in several calls
       python tools/evidence.py FOLDER --steps beside --tool COMM_SCOPE [--exponents 24,26]

Steps run in the order given. A step for which too little time is left is not started. `full` and `comm-scope` take the
remaining time, and their unfinished run stays in UNFINISHED for the next call. `beside` runs Comm|Scope's own program
for half of its time, then the points that it measured by `linkscope run --suite comm-scope --rule comm-scope`, which
takes at least five seconds for each, and prints the table of agreement. The program runs in groups of benchmarks, with
repetitions as long as the time allows. It changes governor and turbo of the CPU where it may.

Each run is written to FOLDER/MACHINE-STEP.jsonl.gz (such as h200x4-full.jsonl.gz), and everything that is printed to
FOLDER/log.txt, with the free memory of the host and the used memory of every GPU between the steps.
"""

import argparse
import gzip
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import comm_scope_names  # noqa: E402
import comm_scope_program  # noqa: E402

from linkscope.runfile import read_run  # noqa: E402

ENDING_S = 20  # an interrupted run saves its points within this time
STOPPED = 4  # exit code of an interrupted run that --resume can continue
FEW_SIZES = [word for size in (4096, 1 << 20, 16 << 20) for word in ("--only", f"*/{size}?*")]
FEW = ("split/*", "latency/*sm=*", "demand/*threads=all*", "*/4096000?*")  # the last glob: pieces
# Step: its time limit in seconds and its options of `linkscope run`; for `full` the least useful time.
STEPS: dict[str, tuple[float, list[str]]] = {
    "quick": (40, ["--suite", "quick"]),
    "standard": (160, []),
    "standard-again": (160, []),
    "tests": (240, []),
    "findings": (120, ["--suite", "full", "--budget", "90s"]),
    "papers": (120, ["--suite", "comm-scope", "--budget", "90s", *FEW_SIZES]),
    "few": (90, ["--suite", "full", *(word for of in FEW for word in ("--only", of))]),
    "full": (120, ["--suite", "full"]),
}
# Steps that a call names. Those of CONTINUED go on in the next call.
NAMED: dict[str, tuple[float, list[str]]] = {
    "comm-scope": (120, ["--suite", "comm-scope"]),
    "beside": (60, ["--suite", "comm-scope", "--rule", "comm-scope"]),
}
CONTINUED = ("full", "comm-scope")
ALL = STEPS | NAMED


@dataclass(frozen=True)
class Beside:
    """Comm|Scope's program and the sizes of a comparison, as powers of two; and a model in place of this machine."""

    tool: Path | None = None
    exponents: str = "24,26"
    model: str = ""


def beside(of: Beside, folder: Path, seconds: float, log: TextIO) -> int:
    """Runs Comm|Scope's program for half of the time, then the points that it measured by its rule, and prints their
    agreement. Returns an exit code.
    """
    assert of.tool is not None
    end, name = time.monotonic() + seconds, f"{of.model or machine()}-beside"
    names = comm_scope_program.listed(of.tool, of.exponents, log)
    if not names:
        print(f"beside: {of.tool} lists no benchmarks of 2^N bytes for N = {of.exponents}; its output is in the log")
        return 1
    half_s = end - time.monotonic() - seconds / 2
    tool = comm_scope_program.measured(of.tool, names, folder / name, half_s, lambda *call: logged(*call, log))
    if missing := [f"{one.name} ({one.why_not})" for one in tool if not one.seconds]:
        print(f"beside: {len(missing)} of {len(tool)} benchmarks have no result: {', '.join(missing)}")
    only = [word for one in tool if one.id and one.seconds for word in ("--only", one.id)]
    if not only:
        print(f"beside: {of.tool} wrote no results; its output is in the log")
        return 1
    run, table = (folder / f"{name}.{ending}" for ending in ("jsonl", "md"))
    options = [*NAMED["beside"][1], *(["--machine", of.model] if of.model else []), *only, "--force", "-o", str(run)]
    left_s = end - time.monotonic()
    status = logged([sys.executable, "-m", "linkscope", "run", *options], left_s, log)
    if run.exists():
        lines = "\n".join(comm_scope_names.agreement(read_run(run), tool))
        table.write_text(f"{lines}\n", encoding="utf-8")
        print(lines)
    return status


def carried_out(name: str, folder: Path, unfinished: Path, left_s: float, log: TextIO) -> int:
    """Runs a step and returns its exit code; its output goes to the log. Steps of CONTINUED continue their run."""
    if name == "tests":
        return logged([sys.executable, "-m", "pytest", str(ROOT / "tests" / "gpu"), "-q", "-rs"], left_s, log)
    options = list(ALL[name][1])
    if name == "findings":
        points = [sys.executable, str(ROOT / "tools" / "findings.py"), "--points", "--gpus", str(len(gpus()))]
        options += subprocess.run(points, capture_output=True, text=True, check=True).stdout.split()
    written = unfinished / f"{machine()}-{name}.jsonl"
    options = ["--resume", str(written)] if written.exists() else [*options, "-o", str(written)]
    status = logged([sys.executable, "-m", "linkscope", "run", *options], left_s, log)
    if written.exists():
        with written.open("rb") as plain, gzip.open(folder / f"{written.name}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        if name not in CONTINUED or status not in (STOPPED, -signal.SIGKILL):
            written.unlink()  # an unfinished file of another step cannot be resumed later
    return status


def logged(words: list[str], seconds: float, log: TextIO) -> int:
    """Runs a command; interrupts it, as by Ctrl-C, when its time is over. Returns its exit code."""
    process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def machine() -> str:
    """'h100x4' of four 'NVIDIA H100 80GB HBM3', 'host' without a GPU."""
    names = [re.sub(r"nvidia|\d+gb|hbm\w*|[^a-z0-9]", "", name.lower()) for name in gpus()]
    return f"{'-'.join(sorted(set(names)))}x{len(names)}" if names else "host"


def gpus() -> list[str]:
    """The names of this machine's GPUs."""
    from linkscope.run.worker import driver_facts

    return [gpu["name"] for gpu in driver_facts()["gpus"]]


def memory() -> str:
    """Free memory of the host and used memory of every GPU, as text; a leak changes them."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    used = (
        subprocess.run(command, capture_output=True, text=True).stdout.split("\n") if shutil.which(command[0]) else []
    )
    return f"{' '.join(free.split())}; used by GPU: {', '.join(filter(None, used)) or 'no nvidia-smi'}"


def parsed() -> tuple[argparse.Namespace, list[str]]:
    """The arguments, and the names of the steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--unfinished", type=Path)
    parser.add_argument("--tool", type=Path, help="Comm|Scope's program, for step beside")
    parser.add_argument("--exponents", default=Beside.exponents, help="of the sizes of step beside (default: 24,26)")
    parser.add_argument("--machine", default="", help="a model in place of this machine, to try step beside")
    arguments = parser.parse_args()
    names = arguments.steps.split(",")
    if unknown := [name for name in names if name not in ALL]:
        parser.error(f"there is not a step {unknown[0]}; there are {', '.join(ALL)}")
    if "beside" in names and not (arguments.tool and arguments.tool.is_file()):
        parser.error("step beside needs --tool, the path of Comm|Scope's program")
    return arguments, names


def main() -> int:
    arguments, names = parsed()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    end, worst = time.monotonic() + arguments.seconds, 0
    with (arguments.folder / "log.txt").open("a", encoding="utf-8") as log, tempfile.TemporaryDirectory() as scratch:
        unfinished = arguments.unfinished or Path(scratch)
        unfinished.mkdir(parents=True, exist_ok=True)

        def say(text: str) -> None:
            print(text, flush=True)
            print(text, file=log, flush=True)

        say(f"before: {memory()}")
        for name in names:
            began = time.monotonic()
            if end - began < ALL[name][0] + ENDING_S:
                say(f"{name}: not started: {end - began:.0f} s are left and the step may take {ALL[name][0]:.0f}")
                continue
            seconds = end - began - ENDING_S if name in (*CONTINUED, "beside") else ALL[name][0]
            if name == "beside":
                of = Beside(arguments.tool, arguments.exponents, arguments.machine)
                status = beside(of, arguments.folder, seconds, log)
            else:
                status = carried_out(name, arguments.folder, unfinished, seconds, log)
            say(f"{name}: exit code {status} after {time.monotonic() - began:.1f} s; {memory()}")
            worst = max(worst, status if status >= 0 else 128 - status)  # -9: killed, which is not a success
    return worst


if __name__ == "__main__":
    sys.exit(main())
