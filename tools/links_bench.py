"""Measures copies over the links of several GPUs, in one call. Needs two GPUs.

Usage: python tools/links_bench.py -o FILE.json [--seconds 120] [--largest 1024] [--repeats 3] [--again]

Pinned and pageable memory to the first GPU and back, over its own link and those of helpers; the driver's copies to and
from all GPUs concurrently; copies between two GPUs without peer access; what a helper loses; pageable memory to all
GPUs from a process each (processes_bench.py); short copies while helpers are allowed. All data is compared.

Parts begin in the order of their value, until --seconds are over. FILE is written after each part. A call with a FILE
that exists measures the parts that it lacks. Prints a table of the rows and one of the targets (links_targets.py).
LINKSCOPE_TRANSFER_TUNING chooses the settings of the library, as always. Exit codes: 1 a part failed, 4 parts are left.
"""

import argparse
import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from ctypes import c_int, c_size_t, c_void_p
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("src", "tests/python")]

from bench_sections import STOPPED  # noqa: E402
from cpp_bench import small_copies  # noqa: E402
from links_targets import table  # noqa: E402
from processes_bench import from_processes  # noqa: E402
from transfer_bench import Bench, size  # noqa: E402

from driver_by_ctypes import Gpu, ordinals  # noqa: E402
from linkscope import native, transfer  # noqa: E402

MIB = 1 << 20
SIZES = tuple(mib * MIB for mib in (256, 1024, 64, 16, 4))  # the first two have targets
SECTION = "links"


@dataclass(frozen=True)
class Part:
    """What is measured without a look at the clock. The name identifies it in a file of rows."""

    name: str
    measure: Callable[[], None]


def over_links(bench: Bench, nbytes: int, helpers: list[int]) -> None:
    """Pinned and pageable memory to the first GPU and back, with these helpers; without one also by the driver."""
    bench.gpu.use()
    transfer.use_helpers(helpers)
    device, pinned, number = bench.gpu.memory(nbytes), bench.gpu.pinned(nbytes), bench.stream.value
    sent = np.random.default_rng(9).integers(0, 1 << 62, nbytes // 8)
    pageable = np.array(sent)
    held = np.frombuffer(pinned, np.int64)
    for kind, memory, address in (
        ("pinned", held, ctypes.addressof(pinned)),
        ("pageable", pageable, pageable.ctypes.data),
    ):
        memory[:] = sent
        there = partial(native.copy, device.value, address, nbytes, number)
        home = partial(native.copy, address, device.value, nbytes, number)
        facts = {"helpers": len(helpers)}
        if not helpers:
            by_driver = partial(bench.driver.ok, "cuMemcpyHtoDAsync", device, c_void_p(address), c_size_t(nbytes))
            bench.add(SECTION, f"driver, {kind} to gpu", nbytes, bench.seconds(partial(by_driver, bench.stream)))
            back = partial(bench.driver.ok, "cuMemcpyDtoHAsync", c_void_p(address), device, c_size_t(nbytes))
            bench.add(SECTION, f"driver, {kind} to host", nbytes, bench.seconds(partial(back, bench.stream)))
        bench.add(SECTION, f"{kind} to gpu", nbytes, bench.seconds(there), **facts)
        memory[:] = 0
        bench.add(SECTION, f"{kind} to host", nbytes, bench.seconds(home), **facts)
        bench.expect(bool(np.array_equal(memory, sent)), f"{kind} memory over {1 + len(helpers)} links")
    transfer.use_helpers([])
    bench.free(device)
    bench.driver.ok("cuMemFreeHost", pinned)


def on_halves(bench: Bench, nbytes: int, helpers: list[int]) -> None:
    """Pageable memory to the first GPU over all links, with the threads on either half of the CPUs, one of which wrote
    the memory. A difference shows NUMA nodes that the system hides.
    """
    bench.gpu.use()
    device, cpus = bench.gpu.memory(nbytes), sorted(os.sched_getaffinity(0))
    try:
        for half, chosen in (("first", cpus[: len(cpus) // 2]), ("second", cpus[len(cpus) // 2 :])):
            native.close()
            os.sched_setaffinity(0, chosen)  # of this thread, and of those that the library starts
            transfer.use_helpers(helpers)
            memory = np.random.default_rng(11).integers(0, 1 << 62, nbytes // 8)
            copy = partial(native.copy, device.value, memory.ctypes.data, nbytes, bench.stream.value)
            name = f"pageable to gpu by the {half} half of the CPUs"
            bench.add(SECTION, name, nbytes, bench.seconds(copy), helpers=len(helpers), cpus=len(chosen))
            back = np.zeros_like(memory)
            bench.driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), device, c_size_t(nbytes))
            bench.expect(bool(np.array_equal(memory, back)), name)
    finally:
        native.close()
        os.sched_setaffinity(0, cpus)
        bench.free(device)


def at_once(bench: Bench, gpus: Sequence[Gpu], nbytes: int) -> None:
    """Pinned memory to and from all GPUs at once by the driver: what their links carry together."""
    made = []
    for gpu in gpus:
        gpu.use()
        made.append((gpu, gpu.memory(nbytes), gpu.pinned(nbytes), gpu.stream()))

    def together(to_gpu: bool) -> None:
        for gpu, device, pinned, stream in made:
            gpu.use()
            call, ends = ("cuMemcpyHtoDAsync", (device, pinned)) if to_gpu else ("cuMemcpyDtoHAsync", (pinned, device))
            bench.driver.ok(call, *ends, c_size_t(nbytes), stream)
        for gpu, _, _, stream in made:
            gpu.use()
            bench.driver.ok("cuStreamSynchronize", stream)

    total = nbytes * len(gpus)
    for name, to_gpu in (("driver, to all gpus at once", True), ("driver, from all gpus at once", False)):
        bench.add(SECTION, name, total, bench.seconds(partial(together, to_gpu)), gpus=len(gpus))
    for gpu, device, pinned, stream in made:
        gpu.use()
        bench.free(device)
        bench.driver.ok("cuMemFreeHost", pinned)
        bench.driver.ok("cuStreamDestroy", stream)
    bench.gpu.use()


def between_gpus(bench: Bench, other: Gpu, nbytes: int) -> None:
    """From the first GPU to another one: the driver's own copy, which stages in host memory, and linkscope's."""
    bench.gpu.use()
    source = bench.gpu.memory(nbytes)
    other.use()
    target = other.memory(nbytes)
    bench.gpu.use()
    sent = np.random.default_rng(10).integers(0, 1 << 62, nbytes // 8)
    back = np.zeros_like(sent)
    bench.driver.ok("cuMemcpyHtoD", source, c_void_p(sent.ctypes.data), c_size_t(nbytes))

    def ended(copy: Callable[[], None]) -> None:
        copy()
        for gpu in (other, bench.gpu):  # the driver's copy may end on either
            gpu.use()
            bench.driver.ok("cuCtxSynchronize")

    plain = partial(bench.driver.ok, "cuMemcpyAsync", target, source, c_size_t(nbytes), bench.stream)
    ours = partial(native.copy, target.value, source.value, nbytes, bench.stream.value)
    bench.add(SECTION, "driver, gpu to gpu", nbytes, bench.seconds(partial(ended, plain)))
    method = native.method_of(target.value, source.value, nbytes, bench.stream.value)
    other.use()
    bench.driver.ok("cuMemsetD8Async", target, c_int(0), c_size_t(nbytes), None)
    bench.driver.ok("cuCtxSynchronize")
    bench.gpu.use()
    bench.add(SECTION, "linkscope, gpu to gpu", nbytes, bench.seconds(partial(ended, ours)), by=method)
    bench.driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), target, c_size_t(nbytes))
    bench.expect(bool(np.array_equal(sent, back)), "one GPU to another")
    bench.free(source)
    bench.free(target)


def of_a_helper(bench: Bench, other: Gpu, helpers: list[int], nbytes: int) -> None:
    """Pinned memory to a helper, alone and while a copy to the first GPU uses its link."""
    other.use()
    target, source, stream = other.memory(nbytes), other.pinned(nbytes), other.stream()
    bench.gpu.use()
    device, pinned, ended = bench.gpu.memory(nbytes), bench.gpu.pinned(nbytes), threading.Event()

    def own_rate() -> list[float]:
        other.use()
        times = []
        for _ in range(bench.repeats + 1):
            begin = time.perf_counter()
            bench.driver.ok("cuMemcpyHtoDAsync", target, source, c_size_t(nbytes), stream)
            bench.driver.ok("cuStreamSynchronize", stream)
            times.append(time.perf_counter() - begin)
        bench.gpu.use()
        return times[1:]

    def help_on() -> None:
        bench.gpu.use()
        while not ended.is_set():
            native.copy(device.value, ctypes.addressof(pinned), nbytes, bench.stream.value)
            bench.sync()

    bench.add(SECTION, "a helper's own copies, alone", nbytes, own_rate())
    transfer.use_helpers(helpers)
    helped = threading.Thread(target=help_on)
    helped.start()
    bench.add(SECTION, "a helper's own copies, helping", nbytes, own_rate(), helpers=len(helpers))
    ended.set()
    helped.join()
    transfer.use_helpers([])
    for memory in (pinned, source):
        bench.driver.ok("cuMemFreeHost", memory)
    for memory in (device, target):
        bench.free(memory)


def short_copies(bench: Bench, helpers: list[int]) -> None:
    """The cost of one call of a short copy, while helpers are allowed."""
    before = len(bench.rows)
    os.environ["LINKSCOPE_TRANSFER_HELPERS"] = ",".join(map(str, helpers))
    try:
        small_copies(bench)
    finally:
        del os.environ["LINKSCOPE_TRANSFER_HELPERS"]
    for row in bench.rows[before:]:
        row["helpers"] = len(helpers)


def parts(bench: Bench, gpus: Sequence[Gpu], largest: int) -> list[Part]:
    """What has a target comes first: large copies with no helper and with all, and copies of several processes."""
    helpers = list(range(1, len(gpus)))
    sizes = [one for one in SIZES if one <= largest] or [largest]

    def linked(nbytes: int, counts: Sequence[int]) -> list[Part]:
        made = [partial(over_links, bench, nbytes, helpers[:count]) for count in counts]
        return [Part(f"{size(nbytes)}, helpers: {count}", one) for count, one in zip(counts, made, strict=True)]

    def without_peers(nbytes: int) -> Part:
        return Part(f"{size(nbytes)} between GPUs", partial(between_gpus, bench, gpus[1], nbytes))

    large, rest = sizes[:2], sizes[2:]
    found = [part for nbytes in large for part in linked(nbytes, (0, len(helpers)))]
    found.append(Part("all GPUs at once", partial(at_once, bench, gpus, large[0])))
    found.append(Part("processes", partial(from_processes, bench, len(gpus), large[-1])))
    if len(os.sched_getaffinity(0)) > 1:
        found.append(Part("halves of the CPUs", partial(on_halves, bench, large[-1], helpers)))
    found += [without_peers(nbytes) for nbytes in large]
    found.append(Part("a helper's loss", partial(of_a_helper, bench, gpus[1], helpers, large[0])))
    found.append(Part("short copies", partial(short_copies, bench, helpers)))
    found += [part for nbytes in large for part in linked(nbytes, helpers[:-1])]
    for nbytes in rest:
        found += [*linked(nbytes, (0, *helpers)), without_peers(nbytes)]
    return found


def measure(bench: Bench, found: Sequence[Part], kept: dict[str, Any], output: Path, ends: float) -> int:
    """Runs the parts that the file lacks, until the time is over. A part that fails is noted, and the others go on.
    Returns an exit code: 4 if a further call has parts to measure, else 1 if one failed.
    """
    late = False
    for part in found:
        if part.name in kept["done"]:
            continue
        if time.monotonic() >= ends:
            print(f"{SECTION:14} not begun: {part.name}")
            late = True
            continue
        before = len(bench.rows)
        try:
            part.measure()
            kept["done"].append(part.name)
            kept["failed"].pop(part.name, None)
        except (AssertionError, OSError, RuntimeError, ValueError, MemoryError) as error:
            del bench.rows[before:]
            kept["failed"][part.name] = str(error) or type(error).__name__
            print(f"{SECTION:14} FAILED: {part.name}: {kept['failed'][part.name]}")
        write(output, kept | {"rows": [*kept["rows"], *bench.rows]})
    return STOPPED if late else int(bool(kept["failed"]))


def write(output: Path, content: dict[str, Any]) -> None:
    """Replaces the file at once, so that an interrupted call leaves a whole one."""
    part = output.with_name(f"{output.name}.part")
    part.write_text(json.dumps(content))
    part.replace(output)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--largest", type=int, default=1024, help="MiB of the largest copy")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="measures all parts, also those that FILE has")
    given = parser.parse_args(words)
    ends = time.monotonic() + given.seconds
    bench = Bench(given.repeats)
    numbers = ordinals(bench.driver)
    if len(numbers) < 2:
        parser.error("one GPU has no helper: this machine has no two GPUs")
    others = [Gpu(bench.driver, bench.gpu.code, number) for number in numbers[1:]]
    bench.gpu.use()
    kept: dict[str, Any] = {"done": [], "failed": {}, "rows": []}
    if given.output.exists() and not given.again:
        kept = json.loads(given.output.read_text())
    facts = {"cpus": len(os.sched_getaffinity(0)), "gpus": len(numbers), "driver": bench.driver.version.value}
    kept |= facts | {"version": native.version(), "tuning": native.tuning()[0]}
    status = measure(bench, parts(bench, [bench.gpu, *others], given.largest * MIB), kept, given.output, ends)
    print(*table([*kept["rows"], *bench.rows]), sep="\n")
    if fallback := native.latest_fallback():
        print(f"{SECTION:14} FALLBACK: {fallback}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
