"""What the points of a run cost, and what they would by Comm|Scope's rule: the table of docs/method/planner.md.

Usage: python tools/comm_scope_cost.py RUN.jsonl[.gz] [--sample RULE.jsonl[.gz]]... [--tool OUTPUT.txt[.gz]]...

Its rule (ICPE 2019, 3.1) repeats an operation until 1 s of it has passed, five times: of an operation of t seconds
5 ceil(1 / t) t, and what is done between two operations on top. `--sample`: a run by that rule (`--rule comm-scope`),
of whose points it is known what they truly took. `--tool`: what Comm|Scope itself printed; its thread waits actively,
so that iterations times CPU time is what a repetition took at least. Of one operation it prints an absurd CPU time
(2 s for a copy of 16 MiB): the middle one of the points tells.
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

# Name, time and CPU time of an iteration, of one repetition, as Google Benchmark prints them.
_ROW = re.compile(r"^(Comm_\S+/manual_time)\s+(\d+) ns\s+(\d+) ns\s+\d+ ", re.MULTILINE)


@dataclass(frozen=True)
class Cost:
    """Seconds of so many points, and the seconds that these have by arithmetic."""

    points: int
    seconds: float
    by_rule_s: float

    @property
    def factor(self) -> float:
        """What is to be multiplied with the arithmetic."""
        return self.seconds / self.by_rule_s


def by_rule_s(seconds: float) -> float:
    """What a point costs by the rule, of an operation of that many seconds."""
    return REPETITIONS * max(1, math.ceil(CUMULATED_S / seconds)) * seconds


def compared(points: Iterable[Point]) -> list[Point]:
    """Measured points that copy or access bytes: the rule knows no latencies."""
    return [point for point in points if point.status in ("ok", "missed_precision") and point.bytes and point.median_s]


def cost_of(run: Run) -> Cost:
    """Of the run's points that are compared."""
    points = compared(run.points)
    by_rule = sum(by_rule_s(_together_s(point)) for point in points)
    return Cost(len(points), sum(point.device_s for point in points), by_rule)


def _together_s(point: Point) -> float:
    """Seconds of one operation, of all flows that are measured."""
    return max(flow.median_s for flow in point.flows if flow.role == "measured" and flow.median_s)


def tool_factors(path: Path) -> list[float]:
    """What each point that Comm|Scope printed took, over its operations alone. Exits where that is no such output."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    found: dict[str, list[float]] = {}
    for row in _ROW.finditer(text):
        found.setdefault(row[1], []).append(max(int(row[2]), int(row[3])) / int(row[2]))
    if not found:
        sys.exit(f"{path} has no line of Comm|Scope's results: give what it printed")
    return [median(factors) for factors in found.values()]


def lines(run: Run, samples: list[Run], outputs: list[Path]) -> Iterator[str]:
    ours = cost_of(run)
    yield "| by | seconds | times as much | measured points a second |"
    yield "|---|---|---|---|"
    yield _row("linkscope", ours.points, ours.seconds, ours.seconds)
    yield _row("the rule, operations alone", ours.points, ours.by_rule_s, ours.seconds)
    if samples:
        known = total(cost_of(sample) for sample in samples)
        told = f"the rule, as {known.points} points by it took"
        yield _row(told, ours.points, ours.by_rule_s * known.factor, ours.seconds)
    if outputs:
        factors = [factor for path in outputs for factor in tool_factors(path)]
        told = f"Comm\\|Scope, as {len(factors)} of its points took"
        yield _row(told, ours.points, ours.by_rule_s * median(factors), ours.seconds)
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
