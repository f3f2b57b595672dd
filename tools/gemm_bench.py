"""The section of tools/transfer_bench.py about a product of matrices beside copies of scattered blocks by SMs."""

import ctypes
import importlib.util
import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from linkscope import native, transfer

_N = 8192  # rows and columns of the matrices
_PRODUCTS = 20  # timed together
_BLOCK, _BLOCKS = 4 << 10, 8192  # of one call
_SMS = (4, 8, 16, 32)


class Products:
    """bf16 products by PyTorch on a stream of their own."""

    def __init__(self, torch: Any) -> None:
        self.torch, self.stream = torch, torch.cuda.Stream()
        self.one, self.other = (torch.randn(_N, _N, dtype=torch.bfloat16, device="cuda") for _ in range(2))
        self.product = torch.empty_like(self.one)

    def seconds(self) -> float:
        """Of one product."""
        begin, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self.torch.cuda.stream(self.stream):
            begin.record(self.stream)
            for _ in range(_PRODUCTS):
                self.torch.matmul(self.one, self.other, out=self.product)
            end.record(self.stream)
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3 / _PRODUCTS


class Copies:
    """A thread that repeats a copy while it is open. `made`: the copies that have ended."""

    def __init__(self, bench: Any, copy: Callable[[], None]) -> None:
        self.bench, self.copy = bench, copy
        self.made, self.ended, self.failed = 0, threading.Event(), []
        self.thread = threading.Thread(target=self._repeat)

    def _repeat(self) -> None:
        try:
            self.bench.gpu.use()
            while not self.ended.is_set():
                self.copy()
                self.bench.sync()
                self.made += 1
        except Exception as problem:  # raised by the thread that opened it
            self.failed.append(problem)

    def __enter__(self) -> "Copies":
        self.thread.start()
        while self.made < 2 and not self.failed:
            time.sleep(0.001)
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.thread.join()
        if self.failed:
            raise self.failed[0]


def gemm_beside_blocks(bench: Any) -> None:
    """Products alone, then beside pinned blocks that a kernel on some SMs moves to the GPU and from it."""
    if importlib.util.find_spec("torch") is None:
        print("gemm           PyTorch is not installed, so its rows are missing")
        return
    import torch

    products = Products(torch)
    device, host = bench.gpu.memory(_BLOCK * _BLOCKS), bench.gpu.pinned(_BLOCK * _BLOCKS)
    on_gpu = transfer.strided(device.value, _BLOCK, np.random.default_rng(3).permutation(_BLOCKS))
    on_host = transfer.strided(ctypes.addressof(host), _BLOCK, _BLOCKS)
    for to_gpu, (dst, src) in {True: (on_gpu, on_host), False: (on_host, on_gpu)}.items():
        usual = native.block_knobs(to_gpu, _BLOCK)
        for sms in _SMS:
            native.set_block_knobs(to_gpu, _BLOCK, "kernel", sms)
            copy = partial(transfer.copy_blocks, dst, src, _BLOCK, bench.stream.value)
            add_rows(bench, products, copy, f"beside {sms} SMs {'to' if to_gpu else 'from'} gpu")
        native.set_block_knobs(to_gpu, _BLOCK, *usual)
    bench.free(device)
    bench.driver.ok("cuMemFreeHost", host)


def add_rows(bench: Any, products: Products, copy: Callable[[], None], name: str) -> None:
    alone, beside, copy_s = [], [], []
    for _ in range(bench.repeats + 1):  # in turn, against drift
        alone.append(products.seconds())
        with Copies(bench, copy) as copies:
            before, since = copies.made, time.perf_counter()
            beside.append(products.seconds())
            copy_s.append((time.perf_counter() - since) / max(copies.made - before, 1))
    slowdown = statistics.median(b / a for a, b in zip(alone[1:], beside[1:], strict=True))
    gbps = _BLOCK * _BLOCKS / statistics.median(copy_s[1:]) / 1e9
    bench.add("gemm", "alone", 0, alone[1:])
    bench.add("gemm", name, 0, beside[1:], slowdown=round(slowdown, 3), copies_gbps=round(gbps, 1))
