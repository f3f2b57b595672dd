"""Measures collectives in one call, side by side with nccl-tests: the evidence of docs/notes/collectives-evidence.md.

Usage: python tools/collectives_bench.py FOLDER [--nccl-tests FOLDER] [--budget 540] [--machine auto|NAME]
       [--sections process,ranks,mpi,beside,buffers] [--mpiexec PATH] [--gpus N]
       [--collectives all_reduce,send_receive]

One H100:         python tools/collectives_bench.py out --nccl-tests nccl-tests/build --sections beside,process --gpus 1
Two or four GPUs: python tools/collectives_bench.py out --nccl-tests nccl-tests/build

Each section gets an equal part of the time that is left. FOLDER gets the run files, the texts of nccl-tests, and
collectives.md with all tables, which are also printed. On a model the times are MODELLED, and `ranks`, `mpi` and
`beside` need hardware.

beside   nccl-tests (its folder has all_reduce_perf, ...), linkscope, and nccl-tests again, out of place, on all GPUs
         of one process with a thread for each. Both have one library, and multicast is off. --collectives: of these
buffers  sums out of place with other buffers: nccl-tests has input and output of 256 MiB, a power of two, and of
         262 MiB, which lie at other distances; linkscope has memory of cuMemAlloc, and of virtual memory management,
         as nccl-tests. The four points of a collective need 48 to 63 s
process  suite collectives, in one process
ranks    suite collectives, a rank for each GPU
mpi      suite mpi with two ranks: buffers of GPUs, staged, double-buffered and passed to MPI; collectives of MPI.
         Messages of UCX have a run of their own, because a rank that ends takes all points of its run with it
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from bench_sections import OutOfTime, all_lines, exit_code, write_and_print
from launcher import installed, ranks_by

from linkscope.errors import UserError
from linkscope.report.collectives import Rates, rates_of
from linkscope.run.target import Target, choose
from linkscope.runfile import read_run
from linkscope.units import format_bytes, format_change, format_seconds, format_seconds_interval

Table = Iterator[str]
_SHORTEST_RUN_S = 6.0  # of linkscope, which measures seven sizes of a collective
_ENDING_S = 20.0  # a run that was asked to stop saves its points within this time
# Programs of nccl-tests by collective.
_PROGRAMS = {
    "all_reduce": "all_reduce_perf", "all_gather": "all_gather_perf", "reduce_scatter": "reduce_scatter_perf",
    "broadcast": "broadcast_perf", "reduce": "reduce_perf", "all_to_all": "alltoall_perf",
    "send_receive": "sendrecv_perf",
}  # fmt: skip
_SIZES = (256, 1 << 30, 4)  # least, most and factor of nccl-tests, which include those of the suite
_APART = 6 << 20  # B more than a power of two, in whole pages of 2 MiB
_PROGRAM_S = 3.0  # a run needs this in addition to its budget
_SUMS, _SUM_SIZES = ("all_reduce", "reduce_scatter", "reduce"), (1 << 24, 1 << 28, 16)
_LARGE, _LARGE_TARGET, _SMALL_TARGET, _SMALL_TARGET_S = 1 << 20, 0.02, 0.05, 0.5e-6


@dataclass
class Bench:
    """The machine, where answers go, and the time that is left. `ends`: of the current section, in `monotonic` time."""

    target: Target
    machine: str
    folder: Path
    nccl_tests: Path | None
    mpiexec: str | None
    gpus: int
    collectives: Sequence[str]  # of section beside
    ends: float = 0.0
    missing: list[str] = field(default_factory=list)

    @property
    def left_s(self) -> float:
        return self.ends - time.monotonic()

    def command(
        self, words: Sequence[str], environment: Mapping[str, str] | None = None, makes: Path | None = None
    ) -> str:
        """The output of a command. Raises OutOfTime, and UserError if it fails or does not write the file `makes`."""
        if self.left_s <= 0:
            raise OutOfTime
        try:
            done = subprocess.run(
                words, capture_output=True, text=True, timeout=self.left_s, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            raise OutOfTime from None
        if done.returncode not in (0, 1, 4) or (makes and not makes.exists()):
            said = [line for line in done.stderr.splitlines() if any(map(str.isalnum, line))]
            raise UserError((said or [f"exit code {done.returncode}"])[-1])
        return done.stdout

    def run_file(self, name: str, *words: str, ranks: int = 0, budget_s: float | None = None) -> Path:
        """The file of a run that ends within the section's time, or within `budget_s`. `ranks`: by mpiexec."""
        path = self.folder / f"{name}.jsonl"
        path.unlink(missing_ok=True)
        if self.left_s <= _ENDING_S + 1:
            raise OutOfTime
        launch = ranks_by(str(self.mpiexec), ranks) if ranks else []
        # On a model, time costs nothing. Ranks of a launcher have no model.
        most_s = min(self.left_s - _ENDING_S, budget_s or self.left_s)
        budget = [] if self.target.modelled else ["--budget", f"{most_s:.0f}s"]
        options = [*(() if ranks else ("--machine", self.machine)), *budget, "-o", str(path), "-q"]
        self.command([*launch, sys.executable, "-m", "linkscope", "run", *words, *options], makes=path)
        return path

    def section_of(self, path: Path) -> str:
        """The report's section about collectives, as Markdown."""
        page = path.with_suffix(".md")
        page.unlink(missing_ok=True)
        self.command([sys.executable, "-m", "linkscope", "report", str(path), "--markdown", str(page)])
        return page.read_text().partition("## Collectives")[2].partition("\n## ")[0].strip()


def parse_nccl_tests(text: str) -> dict[int, float]:
    """Returns seconds by size, out of place, from the output of a program of nccl-tests."""
    found: dict[int, float] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 12 and words[0].isdigit() and words[1].isdigit():
            found[int(words[0])] = float(words[-8]) * 1e-6  # time, algbw, busbw, #wrong; then the same in place
    return found


def _nccl_tests(bench: Bench, name: str, library: str, sizes: tuple[int, int, int] = _SIZES) -> dict[int, float]:
    """Seconds by size. `sizes`: least, most and factor; buffers have the most."""
    assert bench.nccl_tests
    program = str(bench.nccl_tests / _PROGRAMS[name])
    paths = filter(None, [str(Path(library).parent), os.environ.get("LD_LIBRARY_PATH")])
    environment = {**os.environ, "NCCL_NVLS_ENABLE": "0", "LD_LIBRARY_PATH": ":".join(paths)}
    least, most, factor = map(str, sizes)
    common = ["-t", str(bench.gpus), "-g", "1", "-n", "100", "-w", "20", "-c", "1"]
    text = bench.command([program, "-b", least, "-e", most, "-f", factor, *common], environment)
    with (bench.folder / f"{_PROGRAMS[name]}.txt").open("a") as file:
        file.write(text)
    return parse_nccl_tests(text)


def _needs_nccl_tests(bench: Bench) -> None:
    if bench.target.modelled or not bench.nccl_tests:
        raise UserError("give the folder of nccl-tests by --nccl-tests, on hardware")


def beside(bench: Bench) -> Table:
    _needs_nccl_tests(bench)
    for text in bench.folder.glob("*_perf.txt"):
        text.unlink()
    yield "| collective | size | nccl-tests, before | linkscope [95 %] | nccl-tests, after | difference |"
    yield "|---|---|---|---|---|---|"
    near: dict[bool, list[bool]] = {True: [], False: []}
    library = _library(bench)
    for at, name in enumerate(bench.collectives):
        program = _PROGRAMS[name]
        if not (bench.nccl_tests / program).is_file():
            yield f"| {name} | {program} is not in {bench.nccl_tests} | | | | |"
            continue
        part_s, begin = bench.left_s / (len(bench.collectives) - at), time.monotonic()
        before = _nccl_tests(bench, name, library)
        budget_s = max(part_s - 2 * (time.monotonic() - begin), _SHORTEST_RUN_S)
        path = bench.run_file(f"beside-{name}", "--suite", "collectives", *_only(name, bench.gpus), budget_s=budget_s)
        after = _nccl_tests(bench, name, library)
        points = [point for point in read_run(path).points if point.benchmark == name and point.median_s]
        for point in sorted(points, key=lambda one: one.bytes):
            if point.bytes not in before or point.bytes not in after:
                continue
            rates, theirs = rates_of(point), statistics.mean((before[point.bytes], after[point.bytes]))
            is_near = _is_near(point.bytes, rates.seconds, theirs)
            near[point.bytes >= _LARGE].append(is_near)
            yield (
                f"| {name} | {format_bytes(point.bytes)} | {format_seconds(before[point.bytes])} | {_time(rates)} "
                f"| {format_seconds(after[point.bytes])} | {format_change(rates.seconds / theirs - 1)}"
                f"{'' if is_near else ' *'} |"
            )
    for large, target in ((True, "2 %"), (False, "5 % or 0.5 µs")):
        yield f"\n{'From' if large else 'Below'} 1 MiB, {sum(near[large])} of {len(near[large])} are within {target}."


def buffers(bench: Bench) -> Table:
    _needs_nccl_tests(bench)
    library = _library(bench)
    yield (
        f"| collective | size | nccl-tests | nccl-tests, buffers {format_bytes(_APART)} larger "
        "| linkscope, cuMemAlloc | linkscope, vmm |"
    )
    yield "|---|---|---|---|---|---|"
    for at, name in enumerate(_SUMS):
        ends = bench.ends - bench.left_s * (len(_SUMS) - at - 1) / (len(_SUMS) - at)
        least, most, factor = _SUM_SIZES
        theirs = [_nccl_tests(bench, name, library, (least, most + more, factor)) for more in (0, _APART)]
        ids = {
            (size, kind): f"{name}/nccl/gpu:0.device->gpu:0.device/{size}?{kind}mode=batched&ranks={bench.gpus}"
            for size in _SUM_SIZES[:2]
            for kind in ("", "buffers=vmm&")
        }
        only = [word for id in ids.values() for word in ("--only", id)]
        part_s = max(ends - time.monotonic() - _PROGRAM_S, _SHORTEST_RUN_S)
        path = bench.run_file(f"buffers-{name}", *only, budget_s=part_s)
        ours = {point.id: _time(rates_of(point)) for point in read_run(path).points if point.median_s}
        for size in _SUM_SIZES[:2]:
            times = [format_seconds(one[size]) if size in one else "" for one in theirs]
            times += [ours.get(ids[size, kind], "") for kind in ("", "buffers=vmm&")]
            yield f"| {name} | {format_bytes(size)} | {' | '.join(times)} |"


def _is_near(size: int, ours: float, theirs: float) -> bool:
    if size >= _LARGE:
        return abs(ours / theirs - 1) <= _LARGE_TARGET
    return abs(ours / theirs - 1) <= _SMALL_TARGET or abs(ours - theirs) <= _SMALL_TARGET_S


def _library(bench: Bench) -> str:
    from linkscope.run.table import temporary_worker

    with temporary_worker(None) as worker:
        found = worker.nccl(bench.target.open_request["nccl"])
    if found["why_not"]:
        raise UserError(found["why_not"])
    return str(found["path"])


def _only(name: str, ranks: int) -> list[str]:
    return ["--only", f"{name}/nccl/gpu:0*[?]mode=batched&ranks={ranks}"]


def _time(rates: Rates) -> str:
    return format_seconds_interval(rates.seconds, *(rates.ci95_s or (None, None)))


def process(bench: Bench) -> Table:
    yield bench.section_of(bench.run_file("process", "--suite", "collectives"))


def _needs_ranks(bench: Bench) -> None:
    if bench.target.modelled:
        raise UserError("ranks of a launcher have no model")
    if not bench.mpiexec:
        raise UserError("no mpiexec was found: `pip install mpich` brings one, --mpiexec names one")


def ranks(bench: Bench) -> Table:
    _needs_ranks(bench)
    if bench.gpus < 2:
        raise UserError("NCCL takes one rank per GPU, so ranks need two GPUs")
    yield bench.section_of(bench.run_file("ranks", "--suite", "collectives", ranks=bench.gpus))


def mpi(bench: Bench) -> Table:
    _needs_ranks(bench)
    # Two thirds for MPI, which has 178 of 197 points.
    path = bench.run_file("mpi", "--suite", "mpi", "--only", "*/mpi/*", ranks=2, budget_s=bench.left_s * 2 / 3)
    yield bench.section_of(path)
    yield f"\nBuffers of GPUs: `linkscope report {path.name}`, section Ranks."
    path = bench.run_file("ucx", "--suite", "mpi", "--only", "*/ucx/*", ranks=2)
    yield f"\nMessages of UCX: `linkscope report {path.name}`, section Ranks."


SECTIONS = {
    "beside": ("Side by side with nccl-tests", beside),
    "buffers": ("Sums and the memory of their buffers", buffers),
    "process": ("One process", process),
    "ranks": ("A rank for each GPU", ranks),
    "mpi": ("Two ranks and MPI", mpi),
}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nccl-tests", type=Path)
    parser.add_argument("--budget", type=float, default=540.0)
    parser.add_argument("--machine", default="auto")
    parser.add_argument("--sections", default=",".join(SECTIONS))
    parser.add_argument("--mpiexec", default=installed())
    parser.add_argument("--gpus", type=int)
    parser.add_argument("--collectives", default=",".join(_PROGRAMS))
    given = parser.parse_args(arguments)
    names, collectives = given.sections.split(","), given.collectives.split(",")
    for word, chosen, known in (("section", names, SECTIONS), ("collective", collectives, _PROGRAMS)):
        if unknown := [name for name in chosen if name not in known]:
            parser.error(f"there is no {word} {', '.join(unknown)}; {word}s are {', '.join(known)}")
    try:
        target = choose(given.machine, 1)
    except UserError as problem:
        parser.error(str(problem))
    given.folder.mkdir(parents=True, exist_ok=True)
    gpus = given.gpus or len(target.facts.of_kind("gpu"))
    bench = Bench(target, given.machine, given.folder, given.nccl_tests, given.mpiexec, gpus, collectives)
    lines = all_lines("Collectives", SECTIONS, bench, names, given.budget)
    write_and_print(lines, given.folder / "collectives.md")
    return exit_code(bench)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
