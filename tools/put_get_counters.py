"""Counts what a GPU's block does in 100 round trips of 1 KiB, beside the paper's two tables, as a Markdown table.

Usage: .venv/bin/python tools/put_get_counters.py     (needs a GPU, and Nsight Compute's `ncu` allowed to read counters)

The paper is Klenk, Oden and Froning (KL-5, KL-8, KL-9). Its counters have other names today, and loads and stores of
global memory include those of host memory. A name that `ncu` does not list for this GPU counts as missing. Each metric
has a run of its own, of one pass: a kernel that waits for a CPU thread cannot be replayed, because the thread does not
come twice. Between GPUs two kernels wait for each other, and `ncu` runs one launch after the other, so only messages
between a GPU and host memory are counted. In the paper's second table the GPU posts descriptors to a network card. Here
it posts them to a ring in host memory, and a CPU thread copies the payload within host memory in place of the card. A
ring in GPU memory needs a second kernel, so `ncu` cannot count it.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass

import counters

from linkscope.run.target import choose
from linkscope.runfile import PointId

ITERATIONS = 100
KERNELS = "^linkscope_block$"
POINTS = {
    "put": "put_ping_pong/sm/gpu:0.device->numa:0.pinned/1024?threads=1024",
    "get": "get_ping_pong/sm/numa:0.pinned->gpu:0.device/1024?threads=1024",
    "put by descriptors": "queued_put_ping_pong/cpu/numa:0.pinned->numa:0.pinned/1024?descriptor=32",
}
PAPER = ("words in system memory", "in own memory", "queues on the host", "on the GPU")


@dataclass(frozen=True)
class Counter:
    """A counter of the paper, and the metrics that stand for it today, the best first.

    `words`: the paper's counts where notifications lie in system memory, and where the GPU polls its own (KL-8).
    `queues`: those with the queues of a card on the host and on the GPU (KL-9). None: the table lacks the counter.
    """

    name: str
    metrics: tuple[str, ...]
    words: tuple[int, int] | None
    queues: tuple[int, int] | None


COUNTERS = (
    Counter("system memory reads, 32 B", ("lts__t_sectors_srcunit_tex_aperture_sysmem_op_read",), (4368, 0), (772, 80)),
    Counter(
        "system memory writes, 32 B",
        ("lts__t_sectors_srcunit_tex_aperture_sysmem_op_write",),
        (2908, 303),
        (670, 316),
    ),
    Counter(
        "loads of global memory",
        ("smsp__inst_executed_op_global_ld", "smsp__sass_inst_executed_op_global_ld"),
        (0, 1314),
        None,
    ),
    Counter(
        "stores to global memory",
        ("smsp__inst_executed_op_global_st", "smsp__sass_inst_executed_op_global_st"),
        (500, 400),
        None,
    ),
    Counter("L2 read hits", ("lts__t_sectors_srcunit_tex_op_read_lookup_hit",), (0, 3143), (16_647, 14_575)),
    Counter("L2 read misses", ("lts__t_sectors_srcunit_tex_op_read_lookup_miss",), None, (999, 1405)),
    Counter("L2 read requests", ("lts__t_requests_srcunit_tex_op_read",), (4822, 2970), (16_657, 15_110)),
    Counter("L2 write requests", ("lts__t_requests_srcunit_tex_op_write",), (5268, 404), (1990, 1885)),
    Counter("memory accesses", ("lts__t_requests_srcunit_tex",), (6788, 1714), (59_937, 58_905)),
    Counter("instructions", ("smsp__inst_executed",), (46_413, 22_491), (123_297, 110_463)),
)


def listed() -> set[str]:
    """The names of all metrics that `ncu` lists for the GPUs here."""
    done = subprocess.run(["ncu", "--query-metrics"], capture_output=True, text=True, timeout=counters.LIMIT_S)
    return set(re.findall(r"^(\w+__\w+)\s", done.stdout, flags=re.MULTILINE))


def metric_of(counter: Counter, names: Collection[str]) -> str | None:
    """The first metric of the counter that is listed."""
    return next((name for name in counter.metrics if name in names), None)


def passes(log: str) -> int:
    """The most passes that a launch needed."""
    return max((int(count) for count in re.findall(r"100% - (\d+) pass", log)), default=1)


def count(point: PointId, case: dict[str, object], actors: int, metric: str) -> str:
    """The count of the longest launch, for a cell of the table."""
    name = f"{metric}.sum"
    batch = [ITERATIONS] * actors
    found, log = counters.profile(case, str(point), batch, [name], kernels=KERNELS, replay="kernel")
    if (needed := passes(log)) > 1:
        return f"needs {needed} passes"
    return f"{max(found[name]):.0f}" if name in found else "not counted"


def main() -> None:
    if shutil.which("ncu") is None:
        sys.exit("put_get_counters.py needs Nsight Compute: ncu is not on the path")
    names = listed()
    target = choose("auto", seed=1)
    cases = {}
    for way, text in POINTS.items():
        point, case, prepared = counters.prepared_alone(text, target)
        if not prepared.supported:
            sys.exit(f"{point}: {prepared.reason}")
        cases[way] = (point, case, prepared.actors)
    heads = [f"of {ITERATIONS} round trips", *cases, *(f"paper: {where}" for where in PAPER)]
    print(f"| {' | '.join(heads)} |\n|---|" + "--:|" * (len(heads) - 1))
    for counter in COUNTERS:
        metric = metric_of(counter, names)
        cells = [count(*case, metric) if metric else "not listed" for case in cases.values()]
        paper = [str(one) for table in (counter.words, counter.queues) for one in table or ("-", "-")]
        print(f"| {' | '.join((counter.name, *cells, *paper))} |", flush=True)


if __name__ == "__main__":
    main()
