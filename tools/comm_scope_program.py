"""Runs Comm|Scope's own program in groups of benchmarks, for so long each that all of them fit into a given time.

The program is one of Google Benchmark: `benchmark_min_time` counts only what a benchmark times. A benchmark that
allocates or writes its buffers before each copy takes many times longer. So the time of each group follows from what
the groups before it took and left. Each has a file of its own: an interruption loses benchmarks of one group only.

Some benchmarks do far more than they time, so they come last and have paces of their own. On an H100 with 16 CPUs, a
copy of 16 MiB takes 0.34 ms and a flush before it 0.19 s. A demand of the host takes 6 µs, because the program's
prefetch to the GPU fails with CUDA 13, and for each it writes 16 MiB; those by several threads fill 0.1 s in any case.
Prefetches in both directions did not end within 40 s.
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
REPETITIONS, FEWER = 5, 3  # as in the paper; where even the shortest ones do not fit
SHORTEST_S, LONGEST_S = 0.05, 1.0  # of a repetition
FILL = 0.9  # of the time, so that the last benchmark ends within it
LISTING_S = 60.0  # the program starts CUDA before it lists its benchmarks
NOT_RUN = "not run: the program ended before, or no time was left"


@dataclass(frozen=True)
class Share:
    """The repetitions of each benchmark, the least seconds of one, and the seconds that all benchmarks then take."""

    repetitions: int
    least_s: float
    expected_s: float


def share(count: int, seconds: float, pace: float = PACE, shortest_s: float = SHORTEST_S) -> Share:
    """What fits into the time for a number of benchmarks, each of which takes `pace` seconds for a second of its times;
    the shortest measurement if nothing fits.
    """
    for repetitions in (REPETITIONS, FEWER):
        cost = count * repetitions * pace
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
    """Benchmarks that take about the same time for a second of their times: `pace`, until a group has shown it."""

    called: str
    names: re.Pattern[str]
    pace: float
    shortest_s: float
    spent_s: float = 0.0
    counted_s: float = 0.0  # the times of the benchmarks in `spent_s`

    def share(self, count: int, seconds: float) -> Share:
        pace = max(1.0, self.spent_s / self.counted_s) if self.counted_s else self.pace
        return share(count, seconds, pace, self.shortest_s)


def _kinds() -> list[_Kind]:
    """The kinds in their order; a benchmark is of the last kind that fits its name."""
    return [
        _Kind("benchmark", re.compile(""), PACE, SHORTEST_S),
        _Kind("flushing benchmark", re.compile("_flush/"), 600.0, 0.003),
        _Kind("demanding benchmark", re.compile("_UM_Demand_GPUToHost|_Duplex_HostGPU"), 3000.0, 0.0005),
    ]


def measured(
    program: Path, names: list[str], base: Path, seconds: float, run: Callable[[list[str], float], int]
) -> list[Measured]:
    """Runs the benchmarks and returns their results; those of benchmarks that did not run follow, without seconds.

    `base`: the files are BASE-1.json and so on. `run` carries out a command within seconds and interrupts it then.
    """
    for old in base.parent.glob(f"{base.name}-*.json"):
        old.unlink()
    begin, done, outputs = time.monotonic(), 0, []
    kinds = _kinds()
    of_kind = [[name for name in names if _kind_of(name, kinds) is kind] for kind in kinds]
    for kind, chosen in zip(kinds, of_kind, strict=True):
        done += len(chosen)
        end = begin + seconds * done / len(names)
        for at in range(0, len(chosen), GROUP):
            left_s = end - time.monotonic()
            if left_s <= 0:
                break
            of = kind.share(len(chosen) - at, left_s)
            expected = (
                f"{of.repetitions} repetitions of at least {of.least_s:.4f} s: about {of.expected_s:.0f} s expected, "
                f"{left_s:.0f} s left"
            )
            print(f"beside: {count_text(len(chosen) - at, kind.called)} of Comm|Scope, {expected}", flush=True)
            group, output = chosen[at : at + GROUP], base.with_name(f"{base.name}-{len(outputs) + 1}.json")
            run([str(program), *_words(group, of, output)], left_s)
            kind.spent_s += left_s - (end - time.monotonic())
            kind.counted_s += len(group) * of.repetitions * of.least_s
            outputs.append(output)
    # A file is empty, or missing, if the program was interrupted before its first line.
    found = measurements(*(one for one in outputs if one.exists() and one.stat().st_size))
    without = [name for name in names if name not in {one.name for one in found}]
    return found + [Measured(name, point_of(name), [], NOT_RUN) for name in without]


def _kind_of(name: str, kinds: list[_Kind]) -> _Kind:
    return next(kind for kind in reversed(kinds) if kind.names.search(name))


def _words(group: list[str], of: Share, output: Path) -> list[str]:
    """The program's options for a group of benchmarks."""
    chosen = "|".join(map(re.escape, group))
    words = [f"--benchmark_filter=^({chosen})$", f"--benchmark_repetitions={of.repetitions}"]
    words += [f"--benchmark_min_time={of.least_s:.4f}", f"--benchmark_out={output}"]
    return [*words, "--benchmark_out_format=json"]
