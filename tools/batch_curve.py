"""How the time of a batch grows with its length: T(L) of points, as a Markdown table. docs/alone.md shows one.

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
from linkscope.stats import median

LENGTHS = (0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SAMPLES = 9


def curve(worker: Worker, point: PointId, machine: object) -> list[float]:
    """Median seconds of the first actor's batch for every length."""
    prepared = worker.prepare(case_of(point, machine), f"{point}#0")
    if not prepared.supported:
        sys.exit(f"{point}: {prepared.reason}")
    trace = worker.run(SAMPLES, [[length] * prepared.actors for length in LENGTHS], verify=False)
    return [median([trace.seconds(sample, at, 0) for sample in range(SAMPLES)]) for at in range(len(LENGTHS))]


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
    print("| copies | " + " | ".join(f"`{text}`: us, us a copy more" for text in asked.points) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for at, length in enumerate(LENGTHS):
        cells = [f"{column[at] * 1e6:.1f}" for column in columns]
        if at:
            more = length - LENGTHS[at - 1]
            cells = [f"{cell}, {(c[at] - c[at - 1]) / more * 1e6:.2f}" for cell, c in zip(cells, columns, strict=True)]
        print(f"| {length} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
