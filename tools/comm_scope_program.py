"""Runs Comm|Scope's own program in groups of benchmarks, for so long each that all of them fit into a given time.

The program is one of Google Benchmark: `benchmark_min_time` counts only what a benchmark times, a repetition lasts up
to 1.4 × that, and trials of 1, 10 and more iterations come first. A benchmark that allocates, writes or flushes
its buffers before each copy takes many times longer. So the time of each group follows from what the groups before it
took and left. Each has a file of its own: an interruption loses benchmarks of one group only. A benchmark whose
shortest measurement does not fit into the time that is left does not start, and its result says so.

The paces are those of an H100 with 16 CPUs at 16 MiB. A copy takes 0.34 ms and a flush of one buffer before it 0.18 to
0.25 s; copies in both directions flush two. A demand of the host takes 6 µs, because the program's prefetch to the GPU
fails with CUDA 13, and for each it writes 16 MiB; those by several threads fill 0.1 s in any case. Prefetches in both
directions flush as well, and did not end within 40 s.
"""

import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from comm_scope_names import POINTS, Measured, measurements, point_of

from linkscope.model.text import count_text

GROUP = 4  # benchmarks; a start of the program takes one to two seconds
# Seconds that a benchmark takes for each second of its times, until a group has shown it. At 16 MiB on an H100,
# benchmarks without a flush took 4; before others the program writes its buffers.
PACE = 20.0
# The same with a flush of one buffer, where pinned memory moves 50 bytes in a nanosecond and pageable memory 10. Trials
# and the end of a repetition beyond its time are 0.7 of the asked iterations.
FLUSH_S = 15e-9  # a byte
PINNED_PACE, PAGEABLE_PACE = 1.7 * FLUSH_S * 50e9, 1.7 * FLUSH_S * 10e9
REPETITIONS, FEWER = 5, 3  # as in the paper; where even the shortest ones do not fit
SHORTEST_S, LONGEST_S = 0.05, 1.0  # of a repetition
FILL = 0.9  # of the time, so that the last benchmark ends within it
LISTING_S = 60.0  # the program starts CUDA before it lists its benchmarks
NOT_RUN = "not run: the program ended before, or no time was left"
_FLUSHED_SIZE = re.compile(r"_flush/.*log2\(N\):(\d+)")
_PINNED = re.compile("_(ZeroCopy_HostToGPU|PinnedToGPU|GPUToPinned|Duplex_Pinned)_flush/")
_FLUSHES_TWO_BUFFERS = re.compile("(_Duplex_[A-Za-z]+|_HostToPinned)_flush/")


@dataclass(frozen=True)
class Share:
    """The repetitions of each benchmark, the least seconds of one, and the seconds that all benchmarks then take."""

    repetitions: int
    least_s: float
    expected_s: float


def share(pace: float, seconds: float, shortest_s: float = SHORTEST_S) -> Share:
    """What fits into the time for benchmarks that together take `pace` seconds for a second of the times of each; the
    shortest measurement if nothing fits.
    """
    for repetitions in (REPETITIONS, FEWER):
        cost = repetitions * pace
        if FILL * seconds / cost >= shortest_s:
            break
    least_s = min(LONGEST_S, max(shortest_s, FILL * seconds / cost))
    return Share(repetitions, least_s, least_s * cost)


def listed(program: Path, exponents: str, pattern: str, log: TextIO) -> list[str]:
    """The program's benchmarks that have a point and fit the pattern, at sizes of these powers of two ('24,26')."""
    wanted = rf"^Comm_({'|'.join(sorted(POINTS))})(_flush)?/.*log2\(N\):({exponents.replace(',', '|')})(/|$)"
    words = [str(program), f"--benchmark_filter={wanted}", "--benchmark_list_tests=true"]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, text=True, timeout=LISTING_S)
    except subprocess.TimeoutExpired:
        return []
    lines = [line for line in done.stdout.splitlines() if re.search(wanted, line) and re.search(pattern, line)]
    return [line for line in lines if point_of(line)]


@dataclass
class _Kind:
    """Benchmarks that take about the same time for a second of their times: `pace`, until a group has shown it. Those
    that flush two buffers take twice that.
    """

    called: str
    names: re.Pattern[str]
    pace: float
    shortest_s: float
    spent_s: float = 0.0
    counted_s: float = 0.0  # the times of the benchmarks in `spent_s`, those with two flushes twice

    def pace_of(self, names: list[str]) -> float:
        """Seconds that the benchmarks together take for each second of the times of one."""
        pace = max(1.0, self.spent_s / self.counted_s) if self.counted_s else self.pace
        return pace * _weight(names)

    def least_s(self, names: list[str]) -> float:
        """The times of a benchmark in the shortest repetition: with a flush, those of one iteration or more."""
        sizes = [1 << int(found[1]) for name in names if (found := _FLUSHED_SIZE.search(name))]
        return max([self.shortest_s, *(FLUSH_S * size / self.pace for size in sizes)])

    def shortest(self, names: list[str]) -> float:
        """Seconds of the shortest measurement of the benchmarks."""
        return FEWER * self.least_s(names) * self.pace_of(names)

    def affordable(self, names: list[str], seconds: float) -> list[str]:
        """The benchmarks that fit into the time, in their order, without the longest ones where not all fit."""
        found = list(names)
        while found and self.shortest(found) > FILL * seconds:
            found.remove(max(found, key=lambda name: self.shortest([name])))
        return found


def _weight(names: list[str]) -> int:
    """How many benchmarks with one flush, or none, take as long as these."""
    return sum(2 if _FLUSHES_TWO_BUFFERS.search(name) else 1 for name in names)


def _kinds() -> list[_Kind]:
    """The kinds in their order; a benchmark is of the last kind that fits its name."""
    return [
        _Kind("benchmark", re.compile(""), PACE, SHORTEST_S),
        _Kind("flushing benchmark", re.compile("_flush/"), PAGEABLE_PACE, 0.001),
        _Kind("pinned flushing benchmark", _PINNED, PINNED_PACE, 0.001),
        _Kind("demanding benchmark", re.compile("_UM_Demand_GPUToHost/|_Demand_Duplex_HostGPU"), 3000.0, 0.0005),
        _Kind("prefetching benchmark", re.compile("_Prefetch_Duplex_HostGPU"), 80_000.0, 0.00002),
        _Kind("threaded benchmark", re.compile("_UM_Demand_GPUToHostMt"), 200.0, 0.1),
    ]


def measured(
    program: Path, names: list[str], base: Path, seconds: float, run: Callable[[list[str], float], int]
) -> list[Measured]:
    """Runs the benchmarks and returns their results; those of benchmarks that did not run follow, without seconds.

    `base`: the files are BASE-1.json and so on. `run` carries out a command within seconds and interrupts it then.
    """
    for old in base.parent.glob(f"{base.name}-*.json"):
        old.unlink()
    begin, done = time.monotonic(), 0
    outputs: list[Path] = []
    reasons: dict[str, str] = {}
    kinds = _kinds()
    for kind in kinds:
        waiting = [name for name in names if _kind_of(name, kinds) is kind]
        done += len(waiting)
        end = begin + seconds * done / len(names)
        while chosen := kind.affordable(waiting, end - time.monotonic()):
            outputs.append(base.with_name(f"{base.name}-{len(outputs) + 1}.json"))
            left_s = end - time.monotonic()
            of = _announced(kind, chosen, left_s)
            group, start = chosen[:GROUP], time.monotonic()
            run([str(program), *_words(group, of, outputs[-1])], left_s)
            kind.spent_s += time.monotonic() - start
            kind.counted_s += _weight(group) * of.repetitions * of.least_s
            waiting = [name for name in waiting if name not in group]
        for name in waiting:
            reasons[name] = too_long(kind.shortest([name]), max(0.0, end - time.monotonic()))
    # A file is empty, or missing, if the program was interrupted before its first line.
    found = measurements(*(one for one in outputs if one.exists() and one.stat().st_size))
    without = [name for name in names if name not in {one.name for one in found}]
    return found + [Measured(name, point_of(name), [], reasons.get(name, NOT_RUN)) for name in without]


def too_long(needed_s: float, left_s: float) -> str:
    """Why a benchmark did not start."""
    return f"not run: its shortest measurement takes about {needed_s:.0f} s, and {left_s:.0f} s were left"


def _announced(kind: _Kind, chosen: list[str], left_s: float) -> Share:
    """The share of the benchmarks in the time that is left, after a line that says it."""
    of = share(kind.pace_of(chosen), left_s, kind.least_s(chosen))
    expected = (
        f"{of.repetitions} repetitions of at least {of.least_s:.5f} s: about {of.expected_s:.0f} s expected, "
        f"{left_s:.0f} s left"
    )
    print(f"beside: {count_text(len(chosen), kind.called)} of Comm|Scope, {expected}", flush=True)
    return of


def _kind_of(name: str, kinds: list[_Kind]) -> _Kind:
    return next(kind for kind in reversed(kinds) if kind.names.search(name))


def _words(group: list[str], of: Share, output: Path) -> list[str]:
    """The program's options for a group of benchmarks."""
    chosen = "|".join(map(re.escape, group))
    words = [f"--benchmark_filter=^({chosen})$", f"--benchmark_repetitions={of.repetitions}"]
    words += [f"--benchmark_min_time={of.least_s:.6f}", f"--benchmark_out={output}"]
    return [*words, "--benchmark_out_format=json"]
