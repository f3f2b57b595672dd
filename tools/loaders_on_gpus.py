"""Loads one safetensors file to all GPUs concurrently, a process for each, with linkscope and other installed loaders.

Usage: python tools/loaders_on_gpus.py -o FILE.json [--gib 4] [--repeats 3] [--directory /dev/shm] [--seconds 120]
       [--gpus N] [--loaders NAME...]

The loaders are those of loader_bench.py, with new buffers and with kept ones. All processes begin each load together;
the rate is that of all bytes from the first start to the last end. Tensors are compared once with the file. A loader
that fails is named, and takes no further part. FILE is written after each row. A call with a FILE that exists measures
what is missing. No loader begins after --seconds. Prints a table, and linkscope's rate over the best other one. Needs
PyTorch. Exit codes: 1 no loader worked, 4 the time ended before all was measured.
"""

import argparse
import json
import multiprocessing
import os
import queue
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import loader_bench
from bench_sections import STOPPED

_WAIT_S = 90.0  # for a load of all processes, with the start of PyTorch
Row = dict[str, Any]


def _on_one_gpu(number: int, path: str, barrier: Any, tasks: Any, answers: Any) -> None:
    """Serves tasks (loader, keeps buffers, repeats): loads once and compares, then loads together with the others."""
    os.environ["CUDA_VISIBLE_DEVICES"] = str(number)
    for name, keeps, repeats in iter(tasks.get, None):
        try:
            answers.put(_task(name, keeps, repeats, Path(path), barrier))
        except Exception as error:  # whatever another package raises, the others go on
            barrier.abort()
            answers.put(f"{type(error).__name__}: {str(error)[:200]}")


def _task(name: str, keeps: bool, repeats: int, path: Path, barrier: Any) -> list[tuple[float, float]]:
    """The start and end of each load."""
    import torch

    load = loader_bench.LOADERS[name][1](keeps)
    tensors = load(str(path))
    torch.cuda.synchronize()
    if not keeps and not loader_bench.is_right(tensors, path):
        raise ValueError("WRONG DATA")
    times = []
    for _ in range(repeats):
        del tensors
        if not keeps:
            torch.cuda.empty_cache()
        barrier.wait(_WAIT_S)
        begin = time.monotonic()
        tensors = load(str(path))
        torch.cuda.synchronize()
        times.append((begin, time.monotonic()))
    assert tensors
    return times


class Processes:
    """A process for each GPU. Ends them at the end of a `with`."""

    def __init__(self, gpus: int, path: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.gpus, self._barrier, self._answers = gpus, spawn.Barrier(gpus), spawn.Queue()
        self._tasks = [spawn.Queue() for _ in range(gpus)]
        self._all = [
            spawn.Process(target=_on_one_gpu, args=(n, str(path), self._barrier, tasks, self._answers), daemon=True)
            for n, tasks in enumerate(self._tasks)
        ]
        for one in self._all:
            one.start()

    def __enter__(self) -> "Processes":
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.kill()
            one.join()

    def seconds(self, name: str, keeps: bool, repeats: int) -> list[float] | str:
        """The time of each load by all processes, or what one of them said. Raises queue.Empty if one says nothing."""
        self._barrier.reset()
        for tasks in self._tasks:
            tasks.put((name, keeps, repeats))
        answers = [self._answers.get(timeout=_WAIT_S) for _ in range(self.gpus)]
        said = [one for one in answers if isinstance(one, str)]
        if said:
            return next((one for one in said if not one.startswith("BrokenBarrierError")), said[0])
        return [max(end for _, end in of) - min(begin for begin, _ in of) for of in zip(*answers, strict=True)]


def measure(processes: Processes, path: Path, given: argparse.Namespace, kept: list[Row], ends: float) -> Iterator[Row]:
    """The rows that are missing, each as soon as it is known."""
    known = {(row["loader"], row["buffers"]) for row in kept if "seconds" in row}
    failed = set[str]()
    for keeps in (False, True):
        for name in given.loaders:
            buffers = "kept" if keeps else "new"
            if (name, buffers) in known or name in failed:
                continue
            if time.monotonic() >= ends:
                print(f"not begun: {name}, buffers {buffers}")
                continue
            facts = {"loader": name, "buffers": buffers, "gpus": processes.gpus, "directory": given.directory}
            found = processes.seconds(name, keeps, given.repeats)
            if isinstance(found, str):
                failed.add(name)
                yield facts | {"reason": found}
                continue
            nbytes = path.stat().st_size * processes.gpus
            yield facts | {"bytes": nbytes, "seconds": found, "gbps": nbytes / statistics.median(found) / 1e9}


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Lines of Markdown: each loader, and linkscope over the best other one."""
    rates = {(row["loader"], row["buffers"]): row["gbps"] for row in rows if "gbps" in row}
    reasons = {row["loader"]: row["reason"] for row in rows if "reason" in row}
    yield "| loader, all GPUs together | buffers new | kept |"
    yield "|---|---|---|"
    for name in dict.fromkeys(row["loader"] for row in rows):
        cells = [rates.get((name, buffers)) for buffers in ("new", "kept")]
        shown = [f"{rate:.1f} GB/s" if rate else reasons.get(name, "") for rate in cells]
        yield f"| {name} | {' | '.join(shown)} |"
    for buffers in ("new", "kept"):
        others = {
            name: rate
            for (name, of), rate in rates.items()
            if of == buffers and name not in ("linkscope", loader_bench.PINNED)
        }
        if others and ("linkscope", buffers) in rates:
            best = max(others, key=lambda one: others[one])
            yield f"\nbuffers {buffers}: linkscope has {rates['linkscope', buffers] / others[best]:.2f} times {best}"


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--gib", type=float, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--directory", default="/dev/shm")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--gpus", type=int, help="the first N (default: all)")
    parser.add_argument("--loaders", nargs="+", choices=list(loader_bench.LOADERS), metavar="NAME")
    given = parser.parse_args(words)
    if find_spec("torch") is None:
        parser.error("PyTorch is not installed")
    ends = time.monotonic() + given.seconds
    # Others after linkscope in the order of their rates, and the ceiling last: its memory takes long to pin.
    order = ("linkscope", "InstantTensor", "InstantTensor, buffered", "fastsafetensors", loader_bench.PINNED)
    given.loaders = given.loaders or [name for name in order if find_spec(loader_bench.LOADERS[name][0])]
    gpus = given.gpus or _gpus()
    if gpus == 0:
        parser.error("this machine has no GPU")
    rows: list[Row] = json.loads(given.output.read_text()) if given.output.exists() else []
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        path = Path(folder) / "model.safetensors"
        loader_bench.write_model(path, max(int(given.gib * (1 << 30)), 1))
        with Processes(gpus, path) as processes:
            try:
                for row in measure(processes, path, given, rows, ends):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    given.output.write_text(json.dumps(rows))
            except queue.Empty:
                print(f"a process gave no answer within {_WAIT_S:.0f} s")
    print(*table(rows), sep="\n")
    late = time.monotonic() >= ends and len({(row["loader"], row["buffers"]) for row in rows}) < 2 * len(given.loaders)
    return STOPPED if late else int(not any("gbps" in row for row in rows))


def _gpus() -> int:
    from linkscope.run.worker import driver_facts

    return len(driver_facts()["gpus"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
