"""`make run`: measures this machine, and without a GPU also the bundled model h200x4, as an example."""

import datetime
import signal
import subprocess
import sys


def linkscope(*arguments: str) -> int:
    """Runs linkscope and returns its exit code. Ctrl-C reaches only the command, which saves its points and prints
    how to continue."""
    process = subprocess.Popen([sys.executable, "-m", "linkscope", *arguments])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return process.wait()
    finally:
        signal.signal(signal.SIGINT, before)


def has_gpu() -> bool:
    from linkscope.run.worker import driver_facts

    return bool(driver_facts()["gpus"])


def map_machine(machine: str, label: str) -> int:
    stem = f"linkscope-{label}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    return linkscope("run", "--machine", machine, "-o", f"{stem}.jsonl", "--report", f"{stem}.html")


def main() -> int:
    status = map_machine("auto", "here")
    if status in (0, 1) and not has_gpu():
        print("\nThere is no GPU here. The same command on a model of a node with four H200s:\n", flush=True)
        status = max(status, map_machine("h200x4", "h200x4-modelled"))
    return status


if __name__ == "__main__":
    sys.exit(main())
