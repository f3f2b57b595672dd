"""Measures liblinkscope.so against the driver's own copies on the first GPU, side by side.

Prints a table and writes JSON (-o FILE). Every method's data is compared once. Needs `make build`
and a GPU; PyTorch adds its own copies as rows. `linkscope tune` searches for good knobs.

`--issue` measures what has a target, in at most `--budget` seconds, and prints measured value and target of each. Each
section has its part of the time that is left. Repeats end with that part, and what was not measured then is left out;
the file names such sections. FILE is written after each row, and `tools/issue_table.py` prints the targets of its rows.
"""

import argparse
import importlib.util
import json
import math
import mmap
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes import c_size_t, c_uint64, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "python")]

import loader_bench  # noqa: E402
from bench_sections import OutOfTime  # noqa: E402
from blocks_bench import scattered_blocks  # noqa: E402
from cpp_bench import blocks_from_c, small_copies  # noqa: E402
from device_bench import copies_within_a_gpu, registered_copies  # noqa: E402
from file_bench import cached_file, cold_files, saved_files  # noqa: E402
from gemm_bench import gemm_beside_blocks  # noqa: E402
from issue_table import table  # noqa: E402

from driver_by_ctypes import Driver, Gpu, ordinals  # noqa: E402
from linkscope import native  # noqa: E402

SECTIONS = [
    "copies",
    "torch",
    "small",
    "blocks",
    "c",
    "gemm",
    "local",
    "registered",
    "file",
    "cold",
    "save",
    "loaders",
]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# What has a target, with the seconds that a section takes on one H100 with 16 cores. First come those whose defaults
# changed after their latest run.
ISSUE = {"copies": 70, "torch": 40, "small": 20, "c": 25, "blocks": 45, "gemm": 25, "cold": 150, "loaders": 180}
UNDIVIDED = ("small", "c", "gemm")  # these start only if their time is left


class Bench:
    """The GPU, and the rows that were measured. `ends`: of the section, in `monotonic` time.

    `output`: where all rows are written after each one; None if the caller writes them.
    """

    def __init__(self, repeats: int, output: Path | None = None) -> None:
        self.output, self.ends = output, math.inf
        self.left_out: list[str] = []
        self.driver = Driver()
        code = ROOT / "build" / "run" / "device_code"
        self.gpu = Gpu(self.driver, code, ordinals(self.driver)[0])
        self.stream = self.gpu.stream()
        self.repeats, self.rows, self.cpu_s = repeats, [], 0.0

    def sync(self) -> None:
        self.driver.ok("cuStreamSynchronize", self.stream)

    def free(self, pointer: c_uint64) -> None:
        self.driver.ok("cuMemFree", pointer)

    @staticmethod
    def expect(same: bool, what: str) -> None:
        if not same:
            sys.exit(f"WRONG DATA: {what}")

    def seconds(self, call: Callable[[], None], before: Callable[[], None] | None = None) -> list[float]:
        """Times of a call and the end of its copy; those of the first 5 ms, at least one, are not counted.

        Raises OutOfTime if the section's time is over.
        """
        if time.monotonic() > self.ends:
            raise OutOfTime

        def timed() -> float:
            if before:
                before()
            begin = time.perf_counter()
            call()
            self.sync()
            return time.perf_counter() - begin

        warm_s = timed()
        while warm_s < 5e-3:
            warm_s += timed()
        used = cpu_seconds()
        times = [timed()]
        while len(times) < self.repeats and time.monotonic() < self.ends:
            times.append(timed())
        self.cpu_s = (cpu_seconds() - used) / len(times)  # of one call
        return times

    def cost(self, nbytes: int) -> float:
        """Core-seconds a GB of the latest calls that were timed."""
        return round(self.cpu_s / nbytes * 1e9, 3)

    def add(self, section: str, name: str, nbytes: int, times: list[float], **facts: Any) -> None:
        middle = statistics.median(times)
        row = {"section": section, "method": name, "bytes": nbytes, "seconds": times, "gbps": nbytes / middle / 1e9}
        self.rows.append(row | facts)
        self.write()
        extra = " ".join(f"{key}={value}" for key, value in facts.items())
        print(
            f"{section:14} {name:28} {size(nbytes):>9} {middle * 1e6:12.1f} us {row['gbps']:7.2f} GB/s  {extra}",
            flush=True,
        )

    def write(self) -> None:
        """Writes the rows that there are."""
        if self.output is None:
            return
        facts = {"cpus": len(os.sched_getaffinity(0)), "driver": self.driver.version.value}
        facts |= {"version": native.version(), "left_out": self.left_out, "rows": self.rows}
        self.output.write_text(json.dumps(facts))


def size(nbytes: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:g} {name}"
    return f"{nbytes} B"


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def whole_copies(bench: Bench, sizes: list[int]) -> None:
    """Pageable memory to the GPU and back, against the driver and against pinned memory."""
    ok, stream, number = bench.driver.ok, bench.stream, bench.stream.value
    for nbytes in sizes:
        device, count = bench.gpu.memory(nbytes), c_size_t(nbytes)
        host = np.random.default_rng(1).integers(0, 1 << 62, nbytes // 8)
        back = np.ones_like(host)
        source, target = host.ctypes.data, back.ctypes.data
        to_gpu = partial(native.copy, device.value, source, nbytes, number)
        to_warm = partial(native.copy, target, device.value, nbytes, number)
        htod = partial(ok, "cuMemcpyHtoDAsync", device, c_void_p(source), count, stream)
        dtoh = partial(ok, "cuMemcpyDtoHAsync", c_void_p(target), device, count, stream)
        for section, plain, ours in (("to gpu", htod, to_gpu), ("to warm", dtoh, to_warm)):
            times = bench.seconds(plain)
            bench.add(section, "driver, pageable", nbytes, times, core_s_per_gb=bench.cost(nbytes))
            times = bench.seconds(ours)
            facts = {"core_s_per_gb": bench.cost(nbytes), "fallback": native.latest_fallback()}
            bench.add(section, "linkscope", nbytes, times, **facts)
        bench.expect(bool(np.array_equal(host, back)), "pageable memory to the GPU and back")
        fresh_copies(bench, device, nbytes, host)
        pinned = bench.gpu.pinned(nbytes)
        there = partial(ok, "cuMemcpyHtoDAsync", device, pinned, count, stream)
        home = partial(ok, "cuMemcpyDtoHAsync", pinned, device, count, stream)
        bench.add("to gpu", "driver, pinned", nbytes, bench.seconds(there))
        bench.add("to warm", "driver, pinned", nbytes, bench.seconds(home))
        ok("cuMemFreeHost", pinned)
        bench.free(device)


class Fresh:
    """Memory that nobody has touched; renew() replaces it."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.renew()

    def renew(self) -> None:
        self.held = mmap.mmap(-1, self.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    @property
    def address(self) -> int:
        return np.frombuffer(self.held, np.uint8).ctypes.data


def fresh_copies(bench: Bench, device: c_uint64, nbytes: int, expected: np.ndarray) -> None:
    """The GPU to memory that nobody has touched."""
    fresh = Fresh(nbytes)

    def plain() -> None:
        bench.driver.ok("cuMemcpyDtoHAsync", c_void_p(fresh.address), device, c_size_t(nbytes), bench.stream)

    def ours() -> None:
        native.copy_to_fresh(fresh.address, device.value, nbytes, bench.stream.value)

    bench.add("to fresh", "driver, pageable", nbytes, bench.seconds(plain, fresh.renew))
    bench.add("to fresh", "linkscope", nbytes, bench.seconds(ours, fresh.renew))
    bench.expect(bool(np.array_equal(np.frombuffer(fresh.held, np.int64), expected)), "the GPU to fresh memory")


def torch_copies(bench: Bench, sizes: list[int]) -> None:
    if importlib.util.find_spec("torch") is None:
        print("torch          not installed, so its rows are missing")
        return
    import torch

    import linkscope

    def synchronized(call: Callable[..., Any], *arguments: Any) -> Any:
        result = call(*arguments)
        torch.cuda.synchronize()
        return result

    for nbytes in sizes:
        host = torch.randint(0, 1 << 30, (nbytes // 8,))
        on_gpu = host.cuda()
        there = torch.empty_like(on_gpu)
        calls = {
            ".to('cuda')": partial(synchronized, host.to, "cuda"),
            "linkscope.copy": partial(synchronized, linkscope.copy, there, host),
            ".cpu()": on_gpu.cpu,
            "linkscope.to_cpu": partial(linkscope.to_cpu, on_gpu),
        }
        for name, call in calls.items():
            bench.add("torch", name, nbytes, bench.seconds(call))
        bench.expect(torch.equal(there, on_gpu) and torch.equal(linkscope.to_cpu(on_gpu), host), "tensors")


def files(bench: Bench, nbytes: int) -> None:
    """A file to the GPU: from tmpfs, and from the page cache, staged and mapped."""
    device = bench.gpu.memory(nbytes)
    data = np.random.default_rng(5).integers(0, 1 << 62, nbytes // 8)
    for name, folder in (("tmpfs", "/dev/shm"), ("page cache", tempfile.gettempdir())):
        if shutil.disk_usage(folder).free < nbytes + GIB:
            print(f"file           {folder} has no room for {size(nbytes)}")
            continue
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            data.tofile(file.name)
            os.fsync(file.fileno())
            cached_file(bench, Path(file.name), name, device, data)
    bench.free(device)


def loaded_models(bench: Bench, folders: list[str], nbytes: int) -> None:
    """A safetensors file in memory and in the page cache, by each loader that is installed."""
    if importlib.util.find_spec("torch") is None:
        print("loaders        PyTorch is not installed, so its rows are missing")
        return
    before, found = bench.rows, list[dict[str, Any]]()
    for row in loader_bench.in_directories(folders, nbytes, bench.repeats, ends=bench.ends):
        found = loader_bench.latest([*found, row])
        bench.rows = before + [{"section": "loaders", **one} for one in found]
        bench.write()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("transfer-bench.json"))
    parser.add_argument("--largest", type=int, default=4096, help="MiB of the largest copy")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--file-mib", type=int, default=4096)
    parser.add_argument("--model-mib", type=int, default=8192, help="of the safetensors file of section loaders")
    parser.add_argument(
        "--folder", default=tempfile.gettempdir(), help="of the files of sections cold, save and loaders"
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--issue", action="store_true", help="what has a target, and a table of the targets")
    parser.add_argument("--budget", type=float, default=540, help="seconds of --issue")
    args = parser.parse_args()
    bench = Bench(args.repeats, args.output)
    sizes = [mib * MIB for mib in (1, 4, 16, 64, 256, 1024, 4096) if mib <= args.largest]
    if args.issue:
        sizes = [one for one in sizes if one >= 16 * MIB]
    block_bytes = min(args.largest, 64) if args.issue else args.largest
    sections: dict[str, Callable[[], None]] = {
        "copies": partial(whole_copies, bench, sizes),
        "torch": partial(
            torch_copies, bench, [one for one in sizes if 64 * MIB <= one <= (GIB if args.issue else one)]
        ),
        "small": partial(small_copies, bench),
        "blocks": partial(scattered_blocks, bench, block_bytes * MIB),
        "c": partial(blocks_from_c, bench),
        "gemm": partial(gemm_beside_blocks, bench),
        "local": partial(copies_within_a_gpu, bench, args.largest * MIB),
        "registered": partial(registered_copies, bench, args.largest * MIB),
        "file": partial(files, bench, args.file_mib * MIB),
        "cold": partial(cold_files, bench, args.folder, args.file_mib * MIB),
        "save": partial(saved_files, bench, args.folder, args.file_mib * MIB),
        "loaders": partial(loaded_models, bench, ["/dev/shm", args.folder], args.model_mib * MIB),
    }
    measure(bench, sections, args.sections or list(ISSUE if args.issue else SECTIONS), args.issue, args.budget)
    bench.write()
    if args.issue:
        print(*table(bench.rows), sep="\n")
    print(f"arena {native.arena_bytes() / MIB:g} MiB; wrote {args.output}")
    return 0


def measure(
    bench: Bench, sections: dict[str, Callable[[], None]], names: list[str], limited: bool, budget_s: float
) -> None:
    """Measures these sections, within a budget if they are limited."""
    deadline = time.monotonic() + (budget_s if limited else math.inf)
    for at, name in enumerate(names):
        now, needs = time.monotonic(), float(ISSUE.get(name, 30))
        if limited:
            bench.ends = now + (deadline - now) * needs / sum(ISSUE.get(later, 30) for later in names[at:])
        if now >= deadline or (name in UNDIVIDED and now + needs > deadline):
            bench.left_out.append(name)
            print(f"{name:14} left out: {max(deadline - now, 0.0):.0f} s are left")
            continue
        try:
            sections[name]()
        except OutOfTime:
            bench.left_out.append(name)
            print(f"{name:14} cut: its part of the time is over")


if __name__ == "__main__":
    sys.exit(main())
