"""The part of tools/links_bench.py about processes: pageable memory to each GPU from a process of its own, all at once.

The processes go through a few settings of the library, and bind themselves to parts of the CPUs: where threads and
memory lie decides the rate on hosts whose NUMA nodes are hidden. In one setting the CPUs only copy the memory into
slots that stay in their caches. A copy to the GPUs that is as slow is held back by CPUs and memory, not by links.
"""

import multiprocessing
import os
import queue
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from driver_by_ctypes import Driver, Gpu, ordinals
from linkscope import native

_KIB, _MIB = 1 << 10, 1 << 20
_ROUNDS = 5  # of a setting; of these, the first is not counted
_WAIT_S = 60.0
_SLOT = _MIB  # B that a thread copies at a time


@dataclass(frozen=True)
class Setting:
    """`knobs`: of method ring_to_gpu. `part`: process n runs on the nth part of the CPUs, or `reversed` on the nth from
    the end. `by_cpus`: threads for all of them copy the memory into slots, and no GPU gets it."""

    name: str
    by_driver: bool = False
    by_cpus: bool = False
    part: str = ""
    knobs: dict[str, int] = field(default_factory=dict)


def _ring(threads: int, chunk: int, depth: int) -> Setting:
    text = f"{chunk // _MIB} MiB" if chunk >= _MIB else f"{chunk // _KIB} KiB"
    knobs = {"threads": threads, "chunk": chunk, "depth": depth, "sm_blocks": 0, "plain": 0}
    return Setting(f"linkscope, {threads} x {text} x {depth}", knobs=knobs)


SETTINGS = (
    Setting("driver", by_driver=True),
    Setting("linkscope"),
    Setting("CPUs into their caches, no GPU", by_cpus=True, part="forward"),
    Setting("linkscope, each on its part of the CPUs", part="forward"),
    Setting("linkscope, parts in reverse", part="reversed"),
    *(_ring(*of) for of in ((8, _MIB, 2), (12, _MIB, 2), (16, 512 * _KIB, 2), (6, 2 * _MIB, 2), (14, 2 * _MIB, 2))),
    Setting("linkscope, kernel", knobs={"threads": 10, "sm_blocks": 64, "sm_chunk": 64 * _KIB, "plain": 0}),
)


def cpus_of(part: str, number: int, processes: int, cpus: list[int]) -> list[int]:
    """The CPUs of a process: all, or its part of them."""
    if not part or len(cpus) < processes:
        return cpus
    at = number if part == "forward" else processes - 1 - number
    return cpus[at * len(cpus) // processes : (at + 1) * len(cpus) // processes]


def into_slots(host: "np.ndarray[Any, Any]", threads: int) -> int:
    """Copies the whole array with several threads, each into a slot of its own. Returns the bytes that arrived."""

    def part(of: "np.ndarray[Any, Any]") -> int:
        slot, arrived = np.empty(_SLOT // of.itemsize, of.dtype), 0
        for at in range(0, len(of), len(slot)):
            piece = of[at : at + len(slot)]
            np.copyto(slot[: len(piece)], piece)  # without the interpreter's lock
            arrived += piece.nbytes
        return arrived

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(part, np.array_split(host, threads)))


def _one_process(number: int, processes: int, nbytes: int, barrier: Any, results: Any) -> None:
    """Copies pageable memory to GPU `number`, in rounds that all processes begin together."""
    driver = Driver()
    gpu = Gpu(driver, Path(), ordinals(driver)[number])  # launches no kernel
    stream, device = gpu.stream(), gpu.memory(nbytes)
    cpus = sorted(os.sched_getaffinity(0))
    host = np.random.default_rng(number).integers(0, 1 << 62, nbytes // 8)
    back = np.zeros_like(host)
    for setting in SETTINGS:
        native.close()
        os.sched_setaffinity(0, cpus_of(setting.part, number, processes, cpus))
        if setting.knobs:
            native.set_knobs("ring_to_gpu", nbytes, **setting.knobs)
        complete = True
        for turn in range(_ROUNDS):
            barrier.wait(_WAIT_S)
            begin = time.monotonic()
            if setting.by_cpus:
                complete = into_slots(host, len(os.sched_getaffinity(0))) == nbytes
            elif setting.by_driver:
                driver.ok("cuMemcpyHtoDAsync", device, c_void_p(host.ctypes.data), c_size_t(nbytes), stream)
            else:
                native.copy(device.value, host.ctypes.data, nbytes, stream.value)
            driver.ok("cuStreamSynchronize", stream)
            results.put((setting.name, turn, begin, time.monotonic()))
        driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), device, c_size_t(nbytes))
        results.put(complete and bool(np.array_equal(host, back)))  # the GPU keeps what an earlier setting brought
        back[:] = 0


def from_processes(bench: Any, gpus: int, nbytes: int) -> None:
    """A row for each setting: the rate of all together. Raises RuntimeError if a process ends early."""
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(gpus), spawn.Queue()
    processes = [
        spawn.Process(target=_one_process, args=(number, gpus, nbytes, barrier, results), daemon=True)
        for number in range(gpus)
    ]
    for process in processes:
        process.start()
    try:
        found = [results.get(timeout=2 * _WAIT_S) for _ in range(gpus * len(SETTINGS) * (_ROUNDS + 1))]
    except queue.Empty:
        codes = [process.exitcode for process in processes]
        raise RuntimeError(f"processes ended early, with exit codes {codes}") from None
    finally:
        for process in processes:
            process.join(1)
            process.kill()
    bench.expect(all(one for one in found if isinstance(one, bool)), "copies of several processes")
    timed = [one for one in found if not isinstance(one, bool)]
    for setting in SETTINGS:
        spans = []
        for turn in range(1, _ROUNDS):
            of = [one for one in timed if one[:2] == (setting.name, turn)]
            spans.append(max(end for *_, end in of) - min(begin for *_, begin, _ in of))
        bench.add("links", f"{setting.name}, from {gpus} processes", gpus * nbytes, spans, **setting.knobs)
