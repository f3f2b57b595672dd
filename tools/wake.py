"""What copies alone between GPUs take after the link has idled, without and with a batch before:
docs/notes/single-copies.md.

Usage: python tools/wake.py

Each kind of copy in a fresh process, 40 alone after so many seconds of idling, then after idling again 16 alone behind
a batch of 256. As a Markdown table, in microseconds: median of all, and how many took more than 50 us.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import case_of
from linkscope.run.target import choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from linkscope.stats import median

ID = (
    "d2d/ce/gpu:0.device->gpu:1.device/{}?after=kernel&bidirectional=false&call=memcpy&initiator={}&mode=single&peer=on"
)
ASLEEP_S = 50e-6


def alone(worker: Worker, samples: int) -> list[float]:
    trace = worker.run(samples, [[0], [1]], verify=False)
    return [trace.seconds(at, 1, 0) - trace.seconds(at, 0, 0) for at in range(samples)]


def told(found: list[float]) -> str:
    return f"{median(found) * 1e6:.1f} | {sum(took > ASLEEP_S for took in found)} of {len(found)}"


def main() -> None:
    target = choose("auto", seed=1)
    print("| bytes, queued by | idle, s | alone, us | over 50 us | behind a batch, us | over 50 us |")
    print("|---|---|---|---|---|---|")
    for idle_s in (0.02, 0.1, 0.5, 2.0):
        for bytes, initiator in ((8, "src"), (8, "dst"), (4096, "src"), (65536, "dst")):
            id = ID.format(bytes, initiator)
            worker = Worker(worker_command())
            worker.open(target.open_request)
            worker.prepare(case_of(PointId.parse(id), target.facts), id)
            time.sleep(idle_s)
            without = alone(worker, 40)
            time.sleep(idle_s)
            worker.run(1, [[256]], verify=False)
            print(f"| {bytes}, {initiator} | {idle_s:g} | {told(without)} | {told(alone(worker, 16))} |", flush=True)
            worker.kill()


if __name__ == "__main__":
    main()
