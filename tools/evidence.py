"""Makes all evidence of one machine with GPUs in one call: GPU tests and runs, in the form of results/.

Usage: python tools/evidence.py FOLDER [--steps quick,standard,standard-again,tests,findings,papers,few,full]
       [--seconds 540] [--unfinished UNFINISHED]

Steps run in the order given. A step for which too little time is left is not started. `full` takes the remaining time,
and its unfinished run stays in UNFINISHED for the next call. Each run is written to FOLDER/MACHINE-STEP.jsonl.gz (such
as h200x4-full.jsonl.gz), and everything that is printed to FOLDER/log.txt, with the free memory of the host and the
used memory of every GPU between the steps.
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
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[1]
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


def carried_out(name: str, folder: Path, unfinished: Path, left_s: float, log: TextIO) -> int:
    """Runs a step and returns its exit code; its output goes to the log. `full` continues its unfinished run."""
    if name == "tests":
        return logged([sys.executable, "-m", "pytest", str(ROOT / "tests" / "gpu"), "-q", "-rs"], left_s, log)
    options = list(STEPS[name][1])
    if name == "findings":
        points = [sys.executable, str(ROOT / "tools" / "findings.py"), "--points"]
        options += subprocess.run(points, capture_output=True, text=True, check=True).stdout.split()
    written = unfinished / f"{machine()}-{name}.jsonl"
    options = ["--resume", str(written)] if written.exists() else [*options, "-o", str(written)]
    status = logged([sys.executable, "-m", "linkscope", "run", *options], left_s, log)
    if written.exists():
        with written.open("rb") as plain, gzip.open(folder / f"{written.name}.gz", "wb") as packed:
            shutil.copyfileobj(plain, packed)
        if name != "full" or status not in (STOPPED, -signal.SIGKILL):
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
    """'h200x4' of four NVIDIA H200s, 'host' without a GPU."""
    from linkscope.run.worker import driver_facts

    names = [re.sub(r"nvidia|[^a-z0-9]", "", gpu["name"].lower()) for gpu in driver_facts()["gpus"]]
    return f"{'-'.join(sorted(set(names)))}x{len(names)}" if names else "host"


def memory() -> str:
    """Free memory of the host and used memory of every GPU, as text; a leak changes them."""
    free = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable"))
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader"]
    used = (
        subprocess.run(command, capture_output=True, text=True).stdout.split("\n") if shutil.which(command[0]) else []
    )
    return f"{' '.join(free.split())}; used by GPU: {', '.join(filter(None, used)) or 'no nvidia-smi'}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--unfinished", type=Path)
    arguments = parser.parse_args()
    names = arguments.steps.split(",")
    if unknown := [name for name in names if name not in STEPS]:
        parser.error(f"there is not a step {unknown[0]}; there are {', '.join(STEPS)}")
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
            if end - began < STEPS[name][0] + ENDING_S:
                say(f"{name}: not started: {end - began:.0f} s are left and the step may take {STEPS[name][0]:.0f}")
                continue
            seconds = end - began - ENDING_S if name == "full" else STEPS[name][0]
            status = carried_out(name, arguments.folder, unfinished, seconds, log)
            say(f"{name}: exit code {status} after {time.monotonic() - began:.1f} s; {memory()}")
            worst = max(worst, status if status >= 0 else 128 - status)  # -9: killed, which is not a success
    return worst


if __name__ == "__main__":
    sys.exit(main())
