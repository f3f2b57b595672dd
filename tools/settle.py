"""How operations alone settle: what each sample of a request takes, the first one after a pause:
docs/method/planner.md.

Usage: python tools/settle.py [--seconds 40] [POINT_ID...]

In fresh platforms, every other one in a fresh process: a request of 48 samples, then one of 4 that are compared, so
that memory is written anew before them. As a Markdown table, in microseconds: medians over the platforms, by position.
Points are of managed memory of GPU 0 where none are given.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import case_of
from linkscope.run.target import choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from linkscope.stats import median

SAMPLES, COMPARED = 48, 4
SHOWN = (0, 1, 2, 3, 4, 5, 6, 7, 11, 23, 47)
POINTS = [
    id.format(size)
    for size in (4096, 65536, 1 << 20)
    for id in (
        "demand/fault/numa:0.managed->gpu:0.managed/{}?access=write",
        "demand/fault/gpu:0.managed->numa:0.managed/{}?access=write&bidirectional=false&threads=1",
        "prefetch/prefetch/numa:0.managed->gpu:0.managed/{}?bidirectional=false",
        "prefetch/prefetch/gpu:0.managed->numa:0.managed/{}",
    )
]


def samples(worker: Worker, count: int, *, verify: bool) -> list[float]:
    trace = worker.run(count, [[0], [1]], verify=verify)
    return [(trace.seconds(at, 1, 0) - trace.seconds(at, 0, 0)) * 1e6 for at in range(count)]


def measured(points: list[str], seconds: float) -> dict[str, list[list[float]]]:
    """Of each point, of each platform, microseconds of every sample."""
    target = choose("auto", seed=1)
    found: dict[str, list[list[float]]] = {id: [] for id in points}
    worker: Worker | None = None
    until, platforms = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        if worker is None or platforms % 2 == 0:
            if worker is not None:
                worker.kill()
            worker = Worker(worker_command())
        worker.open(target.open_request)
        for id in points:
            worker.prepare(case_of(PointId.parse(id), target.facts), f"{id}#{platforms}")
            found[id].append(samples(worker, SAMPLES, verify=False) + samples(worker, COMPARED, verify=True))
        platforms += 1
    if worker is not None:
        worker.kill()
    return found


def table(found: dict[str, list[list[float]]]) -> str:
    """Rows of points, columns of positions."""
    heads = [f"{at + 1}." for at in SHOWN] + [f"compared, {at + 1}." for at in range(COMPARED)]
    lines = ["| us, platforms | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for id, of in found.items():
        columns = [*SHOWN, *range(SAMPLES, SAMPLES + COMPARED)]
        values = [f"{median([one[at] for one in of]):.0f}" for at in columns]
        lines.append(f"| `{id}`, {len(of)} | " + " | ".join(values) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", metavar="POINT_ID")
    parser.add_argument("--seconds", type=float, default=40.0)
    asked = parser.parse_args()
    print(table(measured(asked.points or POINTS, asked.seconds)))


if __name__ == "__main__":
    main()
