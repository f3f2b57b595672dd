"""At which level medians differ: between processes, between platforms of one process, between rounds of one platform.

Usage: python tools/levels.py [--machine auto] [--times 12] POINT_ID...

A platform made anew has memory, streams and code of its own; a process also its contexts and channels. Every median is
of one round, as a run takes it. As a Markdown table: the standard deviation of the medians, in per cent. What differs
between platforms as much as between processes need not wait for fresh processes.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import Plan
from linkscope.run.sampler import Sampler, Task
from linkscope.run.target import Target, choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId, Round
from linkscope.stats import deviation, median

Medians = dict[str, list[float]]


def opened(target: Target) -> Worker:
    worker = Worker(worker_command())
    worker.open(target.open_request)
    return worker


def processes(target: Target, times: int) -> Iterator[Worker]:
    for _ in range(times):
        worker = opened(target)
        yield worker
        worker.kill()


def platforms(target: Target, times: int) -> Iterator[Worker]:
    worker = Worker(worker_command())
    for _ in range(times):
        worker.open(target.open_request)
        yield worker
    worker.kill()


def rounds(target: Target, times: int) -> Iterator[Worker]:
    worker = opened(target)
    for _ in range(times):
        yield worker
    worker.kill()


LEVELS: dict[str, Callable[[Target, int], Iterator[Worker]]] = {
    "processes": processes,
    "platforms of one": platforms,
    "rounds of one": rounds,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="+", metavar="POINT_ID")
    parser.add_argument("--machine", default="auto")
    parser.add_argument("--times", type=int, default=12)
    asked = parser.parse_args()
    target = choose(asked.machine, seed=1)
    plan = Plan(
        suite="levels", only=[], precision=None, budget_s=None, rounds=asked.times, seed=1, order_seed=1,
        points=asked.points,
    )  # fmt: skip
    firsts: dict[str, Round] = {}
    found: dict[str, Medians] = {level: {id: [] for id in asked.points} for level in LEVELS}
    number = 0
    for level, workers in LEVELS.items():
        for worker in workers(target, asked.times):
            sampler = Sampler(worker, plan, target.facts)
            for id in asked.points:
                one = sampler.measure(Task(PointId.parse(id), number, firsts.get(id)))
                firsts.setdefault(id, one)
                found[level][id].append(median(one.flows[0].samples_s))
            number += 1
    print(f"| point | median | {' | '.join(LEVELS)} |\n|---|---|{'---|' * len(LEVELS)}")
    for id in asked.points:
        everything = median([value for level in LEVELS for value in found[level][id]])
        spreads = [f"{deviation(found[level][id]) / everything:.2%}" for level in LEVELS]
        print(f"| `{id}` | {everything * 1e6:.4g} us | {' | '.join(spreads)} |")


if __name__ == "__main__":
    main()
