"""By how much the time of a batch is uncertain, from the samples of a measured run: a table of docs/method/planner.md.

Usage: python tools/batch_ends.py RUN.jsonl[.gz]

A sample is a difference of two batches, so samples of a round scatter by the root of two times what one batch does,
over the operations that the longer one has more. By engine, copy and how long the shorter batch lasts: rounds with
three samples or more (rounds that were steady at once have two: those here are the restless ones), then in us the
middle one and the one that nine of ten are below. One way, with peer access, pinned and device memory, behind the gate.
"""

import itertools
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.runfile import Run, read_run

COPIES = {"h2d", "d2h", "d2d", "local"}
EDGES_MS = (0.1, 0.25, 0.7, 2.0, 8.0)
OF_DIFFERENCES = 0.954  # median of the difference of two normal values, in their standard deviations


def uncertain_us(run: Run) -> dict[tuple[str, str], dict[float, list[float]]]:
    """By engine and copy, and by the first edge above the batch's time, an entry a round."""
    found: dict[tuple[str, str], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for point in run.points:
        if point.benchmark not in COPIES or point.params.get("mode") != "batched" or point.timing != "gate+slope":
            continue
        if point.bidirectional or point.params.get("peer") == "off":
            continue
        if not {point.src_memory, point.dst_memory} <= {"pinned", "device"}:
            continue
        for each in run.rounds.get(point.id, ()):
            samples, count, longer = each.flows[0].samples_s, each.batch[0], each.longer or 2
            if len(samples) < 3 or longer == 1:
                continue
            apart = [abs(one - other) for one, other in itertools.pairwise(samples)]
            deviation = statistics.median(apart) / OF_DIFFERENCES / math.sqrt(2)
            lasts_ms = 1e3 * count * statistics.median(samples)
            edge = next((edge for edge in EDGES_MS if lasts_ms < edge), math.inf)
            found[point.engine, point.benchmark][edge].append(1e6 * deviation * count * (longer - 1))
    return found


def main() -> None:
    print("| engine, copy | " + " | ".join(f"up to {edge:g} ms" for edge in EDGES_MS) + " |")
    print("|---" * (1 + len(EDGES_MS)) + "|")
    for (engine, benchmark), of in sorted(uncertain_us(read_run(sys.argv[1])).items()):
        cells = [f"{len(of[edge])}: {middle(of[edge])}" if len(of[edge]) > 9 else "" for edge in EDGES_MS]
        if any(cells):
            print(f"| {engine}, {benchmark} | " + " | ".join(cells) + " |")


def middle(values: list[float]) -> str:
    ordered = sorted(values)
    return f"{ordered[len(ordered) // 2]:.1f}, {ordered[int(0.9 * len(ordered))]:.1f}"


if __name__ == "__main__":
    main()
