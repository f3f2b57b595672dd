"""An NCCL all-gather by PyTorch beside copies from each GPU to pinned host memory: what each loses.

Usage: python tools/all_gather_bench.py --gpus N [--bytes 67108864,8388608,536870912] [--seconds 1]

A process for each GPU. Each measures the all-gather, the copies, and both at once, each for that time, and
the first process prints the slowest GPU of each as Markdown, for each of the sizes. The environment decides how NCCL
moves data.
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

_COPY_BYTES = 64 << 20
_QUEUED = 4  # operations between two looks at the clock
_LIMIT_S = 240.0


class Rank:
    """One GPU with its parts of the gathered tensor, and pinned memory for copies."""

    def __init__(self, torch: Any, distributed: Any, count: int, part_bytes: int) -> None:
        self.torch, self.distributed = torch, distributed
        self.part = torch.ones(part_bytes, dtype=torch.uint8, device="cuda")
        self.all = torch.empty(part_bytes * count, dtype=torch.uint8, device="cuda")
        self.source = torch.ones(_COPY_BYTES, dtype=torch.uint8, device="cuda")
        self.pinned = torch.empty(_COPY_BYTES, dtype=torch.uint8, pin_memory=True)
        self.gathers, self.copies = torch.cuda.Stream(), torch.cuda.Stream()

    def gather(self) -> None:
        with self.torch.cuda.stream(self.gathers):
            self.distributed.all_gather_into_tensor(self.all, self.part)

    def copy(self) -> None:
        with self.torch.cuda.stream(self.copies):
            self.pinned.copy_(self.source, non_blocking=True)

    def rates(self, gathers: int, also_copies: bool) -> tuple[float, float]:
        """All-gathers and copies a second of this GPU. All ranks make `gathers` all-gathers; copies fill that time."""
        self.distributed.barrier()
        self.torch.cuda.synchronize()
        begun, copied = time.perf_counter(), 0
        for _ in range(gathers // _QUEUED):
            for _ in range(_QUEUED):
                self.gather()
            while also_copies and not self.gathers.query():
                for _ in range(_QUEUED):
                    self.copy()
                self.copies.synchronize()
                copied += _QUEUED
            self.gathers.synchronize()
        seconds = time.perf_counter() - begun
        return gathers / seconds, copied / seconds

    def unshared_copies(self, seconds: float) -> float:
        """Copies a second."""
        self.distributed.barrier()
        begun, copied = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            for _ in range(_QUEUED):
                self.copy()
            self.copies.synchronize()
            copied += _QUEUED
        return copied / (time.perf_counter() - begun)

    def slowest(self, values: Sequence[float]) -> list[float]:
        """The least of each value over all ranks."""
        found = self.torch.tensor(values, dtype=self.torch.float64, device="cuda")
        self.distributed.all_reduce(found, op=self.distributed.ReduceOp.MIN)
        return [float(one) for one in found.cpu()]


def measure(rank: Rank, seconds: float) -> tuple[list[float], bool]:
    """Rates of the slowest GPU: all-gathers, copies, and both at once. And whether the data arrived."""
    rank.rates(4 * _QUEUED, also_copies=True)  # NCCL connects at the first use
    each_s = 1 / rank.slowest([rank.rates(8 * _QUEUED, also_copies=False)[0]])[0]
    count = max(2, round(seconds / each_s / _QUEUED)) * _QUEUED
    alone, _ = rank.rates(count, also_copies=False)
    copies = rank.unshared_copies(seconds)
    rank.all.zero_()
    rank.torch.cuda.synchronize()
    both, beside = rank.rates(count, also_copies=True)
    return rank.slowest([alone, copies, both, beside]), bool(rank.all.all())


def table(found: Sequence[float], count: int, part_bytes: int) -> str:
    """GB/s of a GPU: an all-gather brings it the parts of all others."""
    alone, copies, both, beside = found
    received = (count - 1) * part_bytes / 1e9
    lines = [
        f"| work of {count} GPUs | alone, GB/s a GPU | at once, GB/s a GPU | slowdown |",
        "|---|---|---|---|",
        f"| all-gather of {part_bytes >> 20} MiB a GPU | {alone * received:.1f} | {both * received:.1f} "
        f"| {alone / both:.3f} |",
        f"| copies of {_COPY_BYTES >> 20} MiB to the host | {copies * _COPY_BYTES / 1e9:.1f} "
        f"| {beside * _COPY_BYTES / 1e9:.1f} | {copies / beside:.3f} |",
    ]
    return "\n".join(lines)


def as_rank(rank: int, count: int, given: argparse.Namespace) -> int:
    import torch
    import torch.distributed as distributed

    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"file://{given.meet}", rank=rank, world_size=count)
    try:
        for part_bytes in given.bytes:
            found, arrived = measure(Rank(torch, distributed, count, part_bytes), given.seconds)
            if not arrived:
                print(f"rank {rank}: the gathered data is wrong", file=sys.stderr)
                return 1
            if rank == 0:
                print(f"{table(found, count, part_bytes)}\n", flush=True)
    finally:
        distributed.destroy_process_group()
    return 0


def start_ranks(count: int, words: Sequence[str], wait: Callable[[subprocess.Popen[bytes]], int]) -> int:
    """Runs a process for each GPU; the exit code of the first that failed, after the others were ended."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, *words, "--meet", os.path.join(folder, "meet")]
        ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(count)]
        try:
            return next((code for code in map(wait, ranks) if code), 0)
        finally:
            for one in ranks:
                one.kill()
                one.wait()


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, required=True)
    sizes = "67108864,8388608,536870912"
    parser.add_argument("--bytes", type=lambda text: [int(one) for one in text.split(",")], default=sizes)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.gpus < 2:
        parser.error("an all-gather needs two GPUs or more")
    if importlib.util.find_spec("torch") is None:
        parser.error("PyTorch is not installed")
    if given.rank is not None:
        return as_rank(given.rank, given.gpus, given)
    ends = time.monotonic() + _LIMIT_S
    try:
        return start_ranks(given.gpus, words, lambda rank: rank.wait(max(0.0, ends - time.monotonic())))
    except subprocess.TimeoutExpired:
        parser.error(f"the ranks did not end within {_LIMIT_S:.0f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
