"""Measures `linkscope site` on generated run files: CPU time, wall time and memory.

Usage: .venv/bin/python tools/site_bench.py FOLDER [--runs 200] [--simulated 200] [--broken 0] [--models h200x1,dl160]

The run files are of suite quick on all bundled models in turn (or on --models), each with its own seed: FOLDER/runs.
Those after the first `--simulated` are copies of these with another start time, which are other runs for the site.
`--broken` files have a damaged line. Files that are there already stay. FOLDER/site is built anew.
"""

import argparse
import itertools
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LINKSCOPE = (sys.executable, "-m", "linkscope")
_STARTED = b'"started":"'
_POLL_S = 0.1


def main(words: Sequence[str] | None = None) -> int:
    """Makes the run files, builds the site, prints what that took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=200, help="number of run files (default: 200)")
    parser.add_argument("--simulated", type=int, default=200, help="most of them that are simulated (default: 200)")
    parser.add_argument("--broken", type=int, default=0, help="files beside them that have a damaged line (default: 0)")
    parser.add_argument("--models", default="", help="bundled models, with commas between (default: all)")
    given = parser.parse_args(words)
    runs, site = given.folder / "runs", given.folder / "site"
    runs.mkdir(parents=True, exist_ok=True)
    models = [name for name in given.models.split(",") if name]
    models = models or sorted(path.stem for path in (ROOT / "machines").glob("*.toml"))
    make_runs(runs, models, given.runs, max(1, given.simulated))
    break_runs(runs, given.broken)
    shutil.rmtree(site, ignore_errors=True)
    print("\n".join(measured(runs, site)))
    return 0


def make_runs(folder: Path, models: Sequence[str], count: int, simulated: int) -> None:
    """Writes the run files that are not there yet."""
    seeds = ((model, seed) for seed in itertools.count(1) for model in models)
    first = list(itertools.islice(seeds, min(count, simulated)))
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        files = list(pool.map(lambda one: _simulated(folder, *one), first))
    for number in range(len(files), count):
        (target := folder / f"copy-{number:05}.jsonl").exists() or _copy(files[number % len(files)], target, number)


def break_runs(folder: Path, count: int) -> None:
    """Writes files with a damaged line in the middle, each with another one."""
    text = min(folder.glob("*.jsonl")).read_bytes()
    for number in range(count):
        (folder / f"broken-{number:05}.jsonl").write_bytes(text[: len(text) // 2] + b"\nnumber %d\n" % number)


def _simulated(folder: Path, model: str, seed: int) -> Path:
    target = folder / f"{model}-{seed}.jsonl"
    if not target.exists():
        command = [*LINKSCOPE, "run", "--machine", model, "--suite", "quick", "--seed", str(seed), "-q", "-o", target]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return target


def _copy(source: Path, target: Path, number: int) -> None:
    """The run of `source` as if it had started on another day."""
    before, mark, after = source.read_bytes().partition(_STARTED)
    year, month, day = 2000 + number // 336 % 100, 1 + number // 28 % 12, 1 + number % 28
    target.write_bytes(before + mark + b"%04d-%02d-%02d" % (year, month, day) + after[10:])


def measured(runs: Path, site: Path) -> list[str]:
    """Builds the site, and returns lines with the quantities."""
    before, start = os.times(), time.monotonic()
    process = subprocess.Popen([*LINKSCOPE, "site", str(runs), "-o", str(site)])
    largest = together = 0
    while process.poll() is None:
        kilobytes = [_memory(pid) for pid in _family(process.pid)]
        largest, together = max([largest, *kilobytes]), max(together, sum(kilobytes))
        time.sleep(_POLL_S)
    after, wall_s = os.times(), time.monotonic() - start
    cpu_s = after.children_user - before.children_user + after.children_system - before.children_system
    size = sum(path.stat().st_size for path in site.rglob("*") if path.is_file())
    return [
        f"CPU time: {cpu_s:.1f} s on all cores; wall time: {wall_s:.1f} s; exit code {process.returncode}",
        f"memory: {together / 1024:.0f} MiB of all processes together, {largest / 1024:.0f} MiB of the largest",
        f"site: {size / 1e6:.0f} MB in {sum(path.is_file() for path in site.rglob('*'))} files",
    ]


def _family(pid: int) -> list[int]:
    """A process and its children."""
    found = [pid]
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _family(int(child))
    except OSError:  # it has ended
        pass
    return found


def _memory(pid: int) -> int:
    """Resident KiB of a process; pages that several processes share count in parts. 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    raise SystemExit(main())
