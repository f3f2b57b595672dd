"""How the time of a batch grows with its length, and how uncertain it is: T(L) of points, as a Markdown table.

docs/notes/single-copies.md shows one; what T(L) is uncertain by is why the two batches of a sample are unlike
(run/sampler.py).

Usage: python tools/batch_curve.py [--machine NAME] POINT_ID...
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import case_of
from linkscope.run.target import choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from linkscope.stats import mad, median

LENGTHS = (0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SAMPLES, LIMIT_S = 9, 60.0
NORMAL = 1.4826  # standard deviations of a normal distribution in a median absolute deviation


def curve(worker: Worker, point: PointId, machine: object) -> list[tuple[float, float]]:
    """Median seconds of the first actor's batch for every length, and the deviation of the samples."""
    prepared = worker.prepare(case_of(point, machine), f"{point}#0")
    if not prepared.supported:
        sys.exit(f"{point}: {prepared.reason}")
    trace = worker.run(SAMPLES, [[length] * prepared.actors for length in LENGTHS], verify=False, limit_s=LIMIT_S)
    times = [[trace.seconds(sample, at, 0) for sample in range(SAMPLES)] for at in range(len(LENGTHS))]
    return [(median(of), NORMAL * mad(of, median(of))) for of in times]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--machine", default="auto")
    arguments.add_argument("points", nargs="+", metavar="POINT_ID")
    asked = arguments.parse_args()
    target = choose(asked.machine, seed=1)
    worker = Worker(worker_command())
    worker.open(target.open_request)
    columns = [curve(worker, PointId.parse(text), target.facts) for text in asked.points]
    worker.kill()
    print("| copies | " + " | ".join(f"`{text}`: us, +- us, us a copy more" for text in asked.points) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for at, length in enumerate(LENGTHS):
        cells = [f"{1e6 * column[at][0]:.1f}, {1e6 * column[at][1]:.2g}" for column in columns]
        if at:
            more = (length - LENGTHS[at - 1]) / 1e6
            cells = [f"{cell}, {(c[at][0] - c[at - 1][0]) / more:.2f}" for cell, c in zip(cells, columns, strict=True)]
        print(f"| {length} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
