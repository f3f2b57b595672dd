"""Compares messages of linkscope between two ranks with a bare loop of MPI calls, in turn, in one call of this tool.

Usage: python tools/ranks_beside.py [--json FILE] [-o RUN.jsonl] [--turns 5] [--seconds 90]
                                    [--mpiexec PATH] [--mpicc PATH]

Each turn runs the bare loop, with MPI initialized as linkscope's workers do (MPI_THREAD_SERIALIZED), linkscope, and
then the loop with MPI_Init. All have the same launcher and the same cores. The loop is bare_messages.c of this folder,
which the MPI's own compiler makes. Prints Markdown: half a round trip of 0 and 8 B, as the median and the range of the
turns. --json keeps the times of each turn, and RUN.jsonl is the run file of the last.

Exit code 0: for both sizes linkscope's median is within 5 % or 50 ns of that of the first loop. 1: it is not.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from launcher import installed, ranks_by

from linkscope.runfile import read_run
from linkscope.units import format_seconds

SIZES = (0, 8)
LINKSCOPE, BARE, SINGLE = "linkscope", "bare loop, as linkscope initializes MPI", "bare loop by MPI_Init"
_NEAR, _NEAR_S = 0.05, 50e-9
_POINTS = {0: "rank_empty/mpi/*.pageable->*.pageable/0", 8: "rank_ping_pong/mpi/*.pageable->*.pageable/8"}
_LIMIT_S = 60.0  # of one command
_CORES = 2  # of a rank: linkscope beside its worker

Turn = Mapping[str, Mapping[int, float]]  # seconds of half a round trip, by who and size


def compiled(mpicc: str, folder: Path) -> Path:
    """The bare loop as a program. Raises CalledProcessError."""
    program = folder / "bare_messages"
    source = Path(__file__).with_name("bare_messages.c")
    subprocess.run([mpicc, "-O2", "-o", str(program), str(source)], check=True, timeout=_LIMIT_S)
    return program


def bare(launch: Sequence[str], program: Path, *words: str) -> dict[int, float]:
    """Seconds of half a round trip by size. `words`: those of the program. Raises CalledProcessError."""
    done = subprocess.run([*launch, str(program), *words], capture_output=True, text=True, check=True, timeout=_LIMIT_S)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {int(line[0]): float(line[1]) * 1e-9 for line in lines if len(line) == 2 and line[0].isdigit()}


def by_linkscope(launch: Sequence[str], path: Path) -> dict[int, float]:
    """The same of linkscope's run. Raises UserError if it left no run file."""
    only = [word for glob in _POINTS.values() for word in ("--only", glob)]
    run = ["-m", "linkscope", "run", "--suite", "mpi", *only, "--budget", "10s", "--force", "-q", "-o", str(path)]
    path.unlink(missing_ok=True)  # or a run that fails would leave that of the turn before
    subprocess.run([*launch, sys.executable, *run], capture_output=True, timeout=_LIMIT_S)
    return {point.bytes: point.median_s / 2 for point in read_run(path).points if point.median_s}


def turns(launch: Sequence[str], program: Path, path: Path, count: int, seconds: float) -> Iterator[Turn]:
    """Turns as they end; none is begun that may not end within the seconds."""
    begin, longest = time.monotonic(), 0.0
    for _ in range(count):
        if time.monotonic() - begin + longest >= seconds:
            return
        started = time.monotonic()
        serialized = bare(launch, program, "serialized")
        ours = by_linkscope(launch, path)
        yield {BARE: serialized, LINKSCOPE: ours, SINGLE: bare(launch, program, "single")}
        longest = max(longest, time.monotonic() - started)


def is_near(ours_s: float, bare_s: float) -> bool:
    """Within 5 % or 50 ns."""
    return abs(ours_s - bare_s) <= max(_NEAR * bare_s, _NEAR_S)


def medians(found: Sequence[Turn], size: int) -> dict[str, float]:
    """By who, in seconds, over the turns that have a time."""
    by = {who: [turn[who][size] for turn in found if size in turn[who]] for who in (LINKSCOPE, BARE, SINGLE)}
    return {who: median(times) for who, times in by.items() if times}


def table(found: Sequence[Turn]) -> list[str]:
    def cell(who: str, size: int) -> str:
        times = [turn[who][size] for turn in found if size in turn[who]]
        if not times:
            return "no time"
        return f"{format_seconds(median(times))} ({format_seconds(min(times))} to {format_seconds(max(times))})"

    lines = [
        f"| half a round trip | {LINKSCOPE} | {BARE} | {SINGLE} | linkscope over the first loop |",
        "|---|---|---|---|---|",
    ]
    for size in SIZES:
        by = medians(found, size)
        ratio = f"{by[LINKSCOPE] / by[BARE] - 1:+.1%}" if LINKSCOPE in by and BARE in by else "-"
        lines.append(f"| {size} B | {' | '.join(cell(who, size) for who in (LINKSCOPE, BARE, SINGLE))} | {ratio} |")
    return lines


def holds(found: Sequence[Turn]) -> bool:
    by_size = [medians(found, size) for size in SIZES]
    return all(LINKSCOPE in by and BARE in by and is_near(by[LINKSCOPE], by[BARE]) for by in by_size)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("-o", type=Path, dest="path")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--mpiexec", default=installed())
    parser.add_argument("--mpicc", help="default: beside mpiexec")
    given = parser.parse_args(words)
    if not given.mpiexec:
        parser.error("no mpiexec was found: `pip install mpich` brings one, --mpiexec names one")
    mpicc = given.mpicc or str(Path(given.mpiexec).with_name("mpicc"))
    if not Path(mpicc).exists():
        parser.error(f"{mpicc} is missing: name the compiler of this MPI by --mpicc")
    with tempfile.TemporaryDirectory() as folder:
        launch = ranks_by(given.mpiexec, 2, _CORES)
        path = given.path or Path(folder) / "run.jsonl"
        found = []
        for turn in turns(launch, compiled(mpicc, Path(folder)), path, given.turns, given.seconds):
            found.append(turn)
            if given.json:  # after each turn, as a later one may fail
                given.json.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{len(found)} turns, {launch[0]}")
    print("\n".join(table(found)))
    return 0 if holds(found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
