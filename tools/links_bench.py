"""The section of tools/transfer_bench.py about several GPUs. Needs two.

Copies over the links of helpers, what helpers lose, copies between two GPUs without peer access, and copies of several
processes to a GPU each.
"""

import ctypes
import multiprocessing
import threading
import time
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from driver_by_ctypes import Driver, Gpu
from linkscope import native, transfer

_MIB = 1 << 20
_SIZES = [mib * _MIB for mib in (16, 64, 256, 1024)]
_TOGETHER = 1024 * _MIB  # bytes of a copy of one of several processes
_ROUNDS = 6  # of these, the first is not counted


def _over_links(bench: Any, nbytes: int, helpers: list[int]) -> None:
    """Pinned and pageable memory to the first GPU and back, with these helpers."""
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
            bench.add("links", f"driver, {kind} to gpu", nbytes, bench.seconds(partial(by_driver, bench.stream)))
            back = partial(bench.driver.ok, "cuMemcpyDtoHAsync", c_void_p(address), device, c_size_t(nbytes))
            bench.add("links", f"driver, {kind} to host", nbytes, bench.seconds(partial(back, bench.stream)))
        bench.add("links", f"{kind} to gpu", nbytes, bench.seconds(there), **facts)
        memory[:] = 0
        bench.add("links", f"{kind} to host", nbytes, bench.seconds(home), **facts)
        bench.expect(bool(np.array_equal(memory, sent)), f"{kind} memory over {1 + len(helpers)} links")
    bench.free(device)
    bench.driver.ok("cuMemFreeHost", pinned)


def _between_gpus(bench: Any, other: Any, nbytes: int) -> None:
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
    bench.add("links", "driver, gpu to gpu", nbytes, bench.seconds(partial(ended, plain)))
    method = native.method_of(target.value, source.value, nbytes, bench.stream.value)
    other.use()
    bench.driver.ok("cuMemsetD8Async", target, c_int(0), c_size_t(nbytes), None)
    bench.driver.ok("cuCtxSynchronize")
    bench.gpu.use()
    bench.add("links", "linkscope, gpu to gpu", nbytes, bench.seconds(partial(ended, ours)), by=method)
    bench.driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), target, c_size_t(nbytes))
    bench.expect(bool(np.array_equal(sent, back)), "one GPU to another")
    bench.free(source)
    bench.free(target)


def _of_a_helper(bench: Any, other: Any, helpers: list[int], nbytes: int) -> None:
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

    bench.add("links", "a helper's own copies, alone", nbytes, own_rate())
    transfer.use_helpers(helpers)
    helped = threading.Thread(target=help_on)
    helped.start()
    bench.add("links", "a helper's own copies, helping", nbytes, own_rate(), helpers=len(helpers))
    ended.set()
    helped.join()
    transfer.use_helpers([])
    for memory in (pinned, source):
        bench.driver.ok("cuMemFreeHost", memory)
    for memory in (device, target):
        bench.free(memory)


def _one_process(number: int, by_linkscope: bool, barrier: Any, results: Any) -> None:
    """Copies pageable memory to GPU `number`, in rounds that all processes begin together."""
    driver = Driver()
    gpu = Gpu(driver, Path(), number)  # launches no kernel
    stream, device = gpu.stream(), gpu.memory(_TOGETHER)
    host = np.random.default_rng(number).integers(0, 1 << 62, _TOGETHER // 8)
    for turn in range(_ROUNDS):
        barrier.wait(60)
        begin = time.monotonic()
        if by_linkscope:
            native.copy(device.value, host.ctypes.data, _TOGETHER, stream.value)
        else:
            driver.ok("cuMemcpyHtoDAsync", device, c_void_p(host.ctypes.data), c_size_t(_TOGETHER), stream)
        driver.ok("cuStreamSynchronize", stream)
        results.put((turn, begin, time.monotonic()))
    back = np.zeros_like(host)
    driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), device, c_size_t(_TOGETHER))
    results.put(bool(np.array_equal(host, back)))


def _from_processes(bench: Any, gpus: int, by_linkscope: bool) -> None:
    """Pageable memory to each GPU from a process of its own, all at once: the rate of all together."""
    spawn = multiprocessing.get_context("spawn")
    barrier, results = spawn.Barrier(gpus), spawn.Queue()
    processes = [
        spawn.Process(target=_one_process, args=(number, by_linkscope, barrier, results)) for number in range(gpus)
    ]
    for process in processes:
        process.start()
    found = [results.get(timeout=120) for _ in range(gpus * (_ROUNDS + 1))]
    for process in processes:
        process.join()
    bench.expect(all(one for one in found if isinstance(one, bool)), "copies of several processes")
    timed = [one for one in found if not isinstance(one, bool)]
    spans = []
    for turn in range(1, _ROUNDS):
        of = [one for one in timed if one[0] == turn]
        spans.append(max(end for *_, end in of) - min(begin for _, begin, _ in of))
    name = "linkscope" if by_linkscope else "driver"
    bench.add("links", f"{name}, from {gpus} processes", gpus * _TOGETHER, spans)


def copies_over_links(bench: Any, others: list[Any]) -> None:
    """`others`: the GPUs but the first."""
    if not others:
        print("links          one GPU has no helper")
        return
    for nbytes in _SIZES:
        for count in range(len(others) + 1):
            _over_links(bench, nbytes, [other.ordinal for other in others[:count]])
        transfer.use_helpers([])
        _between_gpus(bench, others[0], nbytes)
    _of_a_helper(bench, others[0], [other.ordinal for other in others], 256 * _MIB)
    for by_linkscope in (False, True):
        _from_processes(bench, 1 + len(others), by_linkscope)
    if fallback := native.latest_fallback():
        print(f"links          FALLBACK: {fallback}")
