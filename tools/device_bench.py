"""The sections of tools/transfer_bench.py about memory of one GPU, and about host memory that is registered."""

import time
from ctypes import c_size_t, c_uint, c_uint64, c_void_p
from functools import partial
from typing import Any

import numpy as np

from linkscope import native, transfer

_MIB = 1 << 20
_SIZES = [4096 << power for power in range(0, 19, 2)]  # to 1 GiB
_BLOCKS = (32, 64, 128, 256)
_IN_A_ROW = 20
_REGISTERED = [mib * _MIB for mib in (4, 16, 64, 256, 1024)]


def copies_within_a_gpu(bench: Any, largest: int) -> None:
    """One GPU's memory to itself by the driver, by SMs and by TMA: one copy with its end, and many in a row."""
    for nbytes in (one for one in _SIZES if one <= largest):
        source, target = bench.gpu.memory(nbytes + 16), bench.gpu.memory(nbytes + 16)
        sent = np.random.default_rng(11).integers(0, 256, nbytes, dtype=np.uint8)
        for skew in (0, 1):
            at = c_uint64(source.value + skew)
            bench.driver.ok("cuMemcpyHtoD", at, c_void_p(sent.ctypes.data), c_size_t(nbytes))
            plain = partial(bench.driver.ok, "cuMemcpyAsync", target, at, c_size_t(nbytes), bench.stream)
            _rows(bench, f"driver, skew {skew}", nbytes, plain)
            for blocks in _BLOCKS if nbytes >= native.size_classes()[0] else ():
                for tma in (0, 1) if skew == 0 else (0,):
                    _by_kernel(bench, (target, at), sent, blocks, tma)
        bench.free(source)
        bench.free(target)
    if fallback := native.latest_fallback():
        print(f"local          FALLBACK: {fallback}")


def _by_kernel(bench: Any, ends: tuple[c_uint64, c_uint64], sent: np.ndarray, blocks: int, tma: int) -> None:
    target, source = ends
    before = native.knobs("within_gpu", sent.nbytes)
    native.set_knobs("within_gpu", sent.nbytes, plain=0, sm_blocks=blocks, tma=tma)
    bench.driver.ok("cuMemsetD8Async", target, c_uint(0), c_size_t(sent.nbytes), bench.stream)
    made = native.count("within_gpu")
    ours = partial(native.copy, target.value, source.value, sent.nbytes, bench.stream.value)
    _rows(bench, f"{'TMA' if tma else 'SMs'}, skew {source.value % 16}", sent.nbytes, ours, blocks=blocks)
    bench.expect(native.count("within_gpu") > made, f"no copy of {sent.nbytes} B by a kernel")
    back = np.zeros_like(sent)
    bench.driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), target, c_size_t(sent.nbytes))
    bench.expect(bool(np.array_equal(sent, back)), "a copy within a GPU")
    native.set_knobs("within_gpu", sent.nbytes, plain=before.plain, sm_blocks=before.sm_blocks, tma=before.tma)


def _rows(bench: Any, name: str, nbytes: int, copy: Any, **facts: Any) -> None:
    def in_a_row() -> None:
        for _ in range(_IN_A_ROW):
            copy()

    bench.add("local", name, nbytes, bench.seconds(copy), **facts)
    bench.add("local, in a row", name, nbytes * _IN_A_ROW, bench.seconds(in_a_row), **facts)


def registered_copies(bench: Any, largest: int) -> None:
    """Pageable memory to the GPU, before it is registered and while it is, and what the registration costs."""
    for nbytes in (one for one in _REGISTERED if one <= largest):
        device, number = bench.gpu.memory(nbytes), bench.stream.value
        host = np.random.default_rng(12).integers(0, 1 << 62, nbytes // 8)
        copy = partial(native.copy, device.value, host.ctypes.data, nbytes, number)
        plain = partial(bench.driver.ok, "cuMemcpyHtoDAsync", device, c_void_p(host.ctypes.data), c_size_t(nbytes))
        bench.add("registered", "driver, pageable", nbytes, bench.seconds(partial(plain, bench.stream)))
        bench.add("registered", "linkscope, pageable", nbytes, bench.seconds(copy))
        costs = []
        for _ in range(bench.repeats):
            begin = time.perf_counter()
            transfer.register(host).close()
            costs.append(time.perf_counter() - begin)
        bench.add("registered", "register and end it", nbytes, costs)
        bench.driver.ok("cuMemsetD8Async", device, c_uint(0), c_size_t(nbytes), bench.stream)
        with transfer.register(host):
            bench.add("registered", "linkscope, registered", nbytes, bench.seconds(copy))
        back = np.zeros_like(host)
        bench.driver.ok("cuMemcpyDtoH", c_void_p(back.ctypes.data), device, c_size_t(nbytes))
        bench.expect(bool(np.array_equal(host, back)), "registered memory")
        bench.free(device)
