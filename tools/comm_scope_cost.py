"""Prints the cost of the points of a run, and their cost by Comm|Scope's rule (docs/notes/planner-evidence.md).

Usage: python tools/comm_scope_cost.py RUN.jsonl[.gz] [--sample RULE.jsonl[.gz]]... [--tool OUTPUT.txt[.gz]]...

The rule (ICPE 2019, 3.1) repeats an operation for 1 s, five times. An operation of t seconds costs 5 ceil(1 / t) t,
plus the work between operations. `--sample`: a run by that rule (`--rule comm-scope`), which shows the true cost of its
points. `--tool`: output of Comm|Scope itself. Its thread polls, so a repetition takes at least its iterations times its
CPU time. The tool reports a wrong CPU time for some single operations (2 s for a copy of 16 MiB), so the median over
the repetitions of a point counts.
"""

import argparse
import gzip
import math
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.run.comm_scope import CUMULATED_S, REPETITIONS
from linkscope.runfile import Point, Run, read_run
from linkscope.stats import median

# Name, time and CPU time of an iteration, for one repetition, in Google Benchmark's output.
_ROW = re.compile(r"^(Comm_\S+/manual_time)\s+(\d+) ns\s+(\d+) ns\s+\d+ ", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """Measured seconds of points, and their seconds by the rule."""

    points: int
    seconds: float
    by_rule_s: float

    @property
    def factor(self) -> float:
        """Factor from the seconds of operations to the true cost by the rule."""
        return self.seconds / self.by_rule_s


def by_rule_s(seconds: float) -> float:
    """Seconds of a point by the rule, for an operation of this length."""
    return REPETITIONS * max(1, math.ceil(CUMULATED_S / seconds)) * seconds


def compared(points: Iterable[Point]) -> list[Point]:
    """Measured points that copy or access bytes; the rule has no latencies."""
    return [point for point in points if point.status in ("ok", "missed_precision") and point.bytes and point.median_s]


def cost_of(run: Run) -> Cost:
    """The cost of the compared points of a run."""
    points = compared(run.points)
    by_rule = sum(by_rule_s(_together_s(point)) for point in points)
    return Cost(len(points), sum(point.device_s for point in points), by_rule)


def _together_s(point: Point) -> float:
    """Seconds of one operation of all measured flows."""
    return max(flow.median_s for flow in point.flows if flow.role == "measured" and flow.median_s)


def tool_factors(path: Path) -> list[float]:
    """The ratio of CPU time to operation time for each point of Comm|Scope's output. Exits for other files."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    found: dict[str, list[float]] = {}
    for row in _ROW.finditer(text):
        found.setdefault(row[1], []).append(max(int(row[2]), int(row[3])) / int(row[2]))
    if not found:
        sys.exit(f"{path} has no line of Comm|Scope's results: give the output of the tool")
    return [median(factors) for factors in found.values()]


def lines(run: Run, samples: list[Run], outputs: list[Path]) -> Iterator[str]:
    ours = cost_of(run)
    yield "| by | seconds | ratio | measured points a second |"
    yield "|---|---|---|---|"
    yield _row("linkscope", ours.points, ours.seconds, ours.seconds)
    yield _row("the rule, operations alone", ours.points, ours.by_rule_s, ours.seconds)
    if samples:
        known = total(cost_of(sample) for sample in samples)
        label = f"the rule, as {known.points} points by it took"
        yield _row(label, ours.points, ours.by_rule_s * known.factor, ours.seconds)
    if outputs:
        factors = [factor for path in outputs for factor in tool_factors(path)]
        label = f"Comm\\|Scope, as {len(factors)} of its points took"
        yield _row(label, ours.points, ours.by_rule_s * median(factors), ours.seconds)
    if run.end is not None:
        yield f"\n{ours.points} points with bytes; the run took {run.wall_s:.1f} s of wall time in all."


def total(costs: Iterable[Cost]) -> Cost:
    found = list(costs)
    return Cost(*(sum(getattr(of, name) for of in found) for name in ("points", "seconds", "by_rule_s")))


def _row(name: str, points: int, seconds: float, ours_s: float) -> str:
    return f"| {name} | {seconds:.4g} | {seconds / ours_s:.3g} | {points / seconds:.2g} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--sample", action="append", default=[], metavar="RULE")
    parser.add_argument("--tool", action="append", default=[], metavar="OUTPUT", type=Path)
    asked = parser.parse_args()
    for line in lines(read_run(asked.run), [read_run(path) for path in asked.sample], asked.tool):
        print(line)


if __name__ == "__main__":
    main()
