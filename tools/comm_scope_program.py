"""Runs Comm|Scope's own program in groups of benchmarks, for so long each that all of them fit into a given time.

The program is one of Google Benchmark: `benchmark_min_time` counts only what a benchmark times. A benchmark that
allocates or writes its buffers before each copy takes many times longer. So the time of each group follows from what
the groups before it took and left. Each has a file of its own: an interruption loses benchmarks of one group only.
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
# Seconds that a benchmark takes for each second of its times, until a group has shown it. At 16 MiB on an H100, the
# first three benchmarks were not done after 132 s, with 15 s of times: more than 9.
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


def share(count: int, seconds: float, pace: float = PACE) -> Share:
    """What fits into the time for a number of benchmarks, each of which takes `pace` seconds for a second of its times;
    the shortest measurement if nothing fits.
    """
    for repetitions in (REPETITIONS, FEWER):
        cost = count * repetitions * pace
        if FILL * seconds / cost >= SHORTEST_S:
            break
    least_s = min(LONGEST_S, max(SHORTEST_S, FILL * seconds / cost))
    return Share(repetitions, least_s, least_s * cost)


def listed(program: Path, exponents: str, log: TextIO) -> list[str]:
    """The program's benchmarks that have a point, at sizes of these powers of two such as '24,26'."""
    wanted = rf"^Comm_({'|'.join(sorted(POINTS))})(_flush)?/.*log2\(N\):({exponents.replace(',', '|')})(/|$)"
    words = [str(program), f"--benchmark_filter={wanted}", "--benchmark_list_tests=true"]
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, stderr=log, text=True, timeout=LISTING_S)
    except subprocess.TimeoutExpired:
        return []
    return [line for line in done.stdout.splitlines() if re.search(wanted, line)]


def measured(
    program: Path, names: list[str], base: Path, seconds: float, run: Callable[[list[str], float], int]
) -> list[Measured]:
    """Runs the benchmarks and returns their results; those of benchmarks that did not run follow, without seconds.

    `base`: the files are BASE-1.json and so on. `run` carries out a command within seconds and interrupts it then.
    """
    for old in base.parent.glob(f"{base.name}-*.json"):
        old.unlink()
    end, outputs = time.monotonic() + seconds, []
    spent_s = counted_s = 0.0  # by the groups until now: all their seconds, and those of their times
    groups = [names[at : at + GROUP] for at in range(0, len(names), GROUP)]
    for number, group in enumerate(groups, 1):
        left_s, left = end - time.monotonic(), sum(map(len, groups[number - 1 :]))
        if left_s <= 0:
            break
        of = share(left, left_s, max(1.0, spent_s / counted_s) if counted_s else PACE)
        expected = (
            f"{of.repetitions} repetitions of at least {of.least_s:.2f} s: about {of.expected_s:.0f} s expected, "
            f"{left_s:.0f} s left; group {number} of {len(groups)}"
        )
        print(f"beside: {count_text(left, 'benchmark')} of Comm|Scope, {expected}", flush=True)
        output = base.with_name(f"{base.name}-{number}.json")
        chosen = "|".join(map(re.escape, group))
        words = [f"--benchmark_filter=^({chosen})$", f"--benchmark_repetitions={of.repetitions}"]
        words += [f"--benchmark_min_time={of.least_s:.3f}", f"--benchmark_out={output}", "--benchmark_out_format=json"]
        run([str(program), *words], left_s)
        spent_s, counted_s = seconds - (end - time.monotonic()), counted_s + len(group) * of.repetitions * of.least_s
        if output.exists() and output.stat().st_size:  # empty: interrupted before its first line
            outputs.append(output)
    found = measurements(*outputs)
    without = [name for name in names if name not in {one.name for one in found}]
    return found + [Measured(name, point_of(name), [], NOT_RUN) for name in without]
