"""The section of tools/transfer_bench.py about several GPUs: copies over the links of helpers, and between two GPUs
without peer access. Needs two GPUs."""

import ctypes
from collections.abc import Callable
from ctypes import c_int, c_size_t, c_void_p
from functools import partial
from typing import Any

import numpy as np

from linkscope import native, transfer

_MIB = 1 << 20
_SIZES = [mib * _MIB for mib in (16, 64, 256, 1024)]


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


def copies_over_links(bench: Any, other: Any) -> None:
    """`other`: the second GPU, or None if there is none."""
    if other is None:
        print("links          one GPU has no helper")
        return
    for nbytes in _SIZES:
        for helpers in ([], [1]):
            _over_links(bench, nbytes, helpers)
        transfer.use_helpers([])
        _between_gpus(bench, other, nbytes)
    if fallback := native.latest_fallback():
        print(f"links          FALLBACK: {fallback}")
