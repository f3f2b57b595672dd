"""What contexts of a GPU cost, and what operations take in the cheaper and in the dearer ones:
docs/notes/context-effects.md.

Usage: python tools/contexts.py [--times 24] [POINT_ID...]

Contexts are made one after the other, as a run does between its rounds, and taken as they come. In each of them the
worker tells what an operation costs (core/platform/cuda/contexts.cpp), and each point is measured for one round. As a
Markdown table, in microseconds: lowest and highest median of the contexts of each kind, and by how much the middle ones
differ. Points are of GPU 0, and of what is done by it, where none are given.
"""

import argparse
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import Plan
from linkscope.run.sampler import Sampler, Task
from linkscope.run.target import choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId, Round
from linkscope.stats import median

A_PROCESS = 6  # contexts of one
ANY_S = 1.0  # no context costs as much: the first is taken
WITHIN = (
    *(f"local/ce/gpu:0.device->gpu:0.device/{size}?after=kernel&mode=batched" for size in (8, 4096, 1 << 20, 16 << 20)),
    "local/ce/gpu:0.device->gpu:0.device/1048576?after=kernel&mode=single",
    *(f"write/sm/gpu:0.device->numa:0.pinned/{size}?blocks=sms&threads=512" for size in (4096, 1 << 20)),
    "read/sm/numa:0.pinned->gpu:0.device/1048576?blocks=sms&threads=512",
    "latency/sm/gpu:0.device->gpu:0.device/0?cache=cold&range=64MiB",
    "h2d/ce/numa:0.pinned->gpu:0.device/4096?after=kernel&bidirectional=false&mode=batched",
    "d2h/ce/gpu:0.device->numa:0.pinned/4096?after=kernel&mode=batched",
)
BETWEEN = (
    *(
        f"d2d/ce/gpu:0.device->gpu:1.device/{size}?after=kernel&bidirectional=false&call=memcpy&initiator=src"
        "&mode=batched&peer=on"
        for size in (4096, 1 << 20)
    ),
    *(f"write/sm/gpu:0.device->gpu:1.device/{size}?blocks=sms&threads=512" for size in (1 << 20, 16 << 20)),
    "read/sm/gpu:1.device->gpu:0.device/1048576?blocks=sms&threads=512",
)


def border(costs: list[float]) -> float:
    """In the middle of the widest gap between costs."""
    ordered = sorted(costs)
    _, low, high = max((high - low, low, high) for low, high in itertools.pairwise(ordered))
    return (low + high) / 2


def span(values: list[float]) -> str:
    return f"{min(values) * 1e6:.3f} to {max(values) * 1e6:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="*", metavar="POINT_ID")
    parser.add_argument("--times", type=int, default=24)
    asked = parser.parse_args()
    target = choose("auto", seed=1)
    points = asked.points or [*WITHIN, *(BETWEEN if "gpu:1" in target.facts.places else ())]
    plan = Plan(
        suite="contexts", only=[], precision=None, budget_s=None, rounds=asked.times, seed=1, order_seed=1,
        points=points,
    )  # fmt: skip
    firsts: dict[str, Round] = {}
    costs: list[float] = []
    found: dict[str, list[float]] = {id: [] for id in points}
    worker: Worker | None = None
    for number in range(asked.times):
        if worker is None or number % A_PROCESS == 0:
            if worker is not None:
                worker.kill()
            worker = Worker(worker_command())
        model = target.machine["gpus"][0]["name"]
        answer = worker.open(target.open_request | {"contexts": {"gpus": [0], "floors_s": {model: ANY_S}}})
        costs.append(answer["contexts"][0]["operation_s"][-1])
        sampler = Sampler(worker, plan, target.facts)
        for id in points:
            one = sampler.measure(Task(PointId.parse(id), number, firsts.get(id)))
            firsts.setdefault(id, one)
            found[id].append(median(one.flows[0].samples_s))
    if worker is not None:
        worker.kill()
    limit = border(costs)
    kinds = [[at for at, cost in enumerate(costs) if (cost > limit) == dear] for dear in (False, True)]
    cheap, dear = kinds
    print(f"| us | {len(cheap)} cheaper contexts | {len(dear)} dearer | middle ones differ by |\n|---|---|---|---|")
    for name, values in [("what an operation costs", costs), *((f"`{id}`", found[id]) for id in points)]:
        of = [[values[at] for at in kind] for kind in kinds]
        more = median(of[1]) - median(of[0])
        print(f"| {name} | {span(of[0])} | {span(of[1])} | {more * 1e6:+.3f}, {more / median(of[0]):+.1%} |")


if __name__ == "__main__":
    main()
