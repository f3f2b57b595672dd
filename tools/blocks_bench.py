"""The section of tools/transfer_bench.py about scattered blocks between pinned memory and the GPU."""

import ctypes
from collections.abc import Callable
from ctypes import c_size_t
from functools import partial
from typing import Any

import numpy as np

from linkscope import native, transfer

_KIB = 1 << 10
# Bytes of a block and the number of blocks of a call.
_SHAPES = [(4 * _KIB, 1000), (4 * _KIB, 8192), (8 * _KIB, 8192), (16 * _KIB, 4096), (24 * _KIB, 2048),
           (28 * _KIB, 2048), (32 * _KIB, 2048), (64 * _KIB, 1024)]  # fmt: skip
_SMS = (4, 8, 12, 16, 32, 64)  # 12: as many as vLLM's kernel for blocks has
_WAYS = [("auto", 0), ("loop", 0), ("batch", 0), *(("kernel", sms) for sms in _SMS)]


class _Blocks:
    """Blocks with gaps of their size in pinned memory, and as many on the GPU in a random order."""

    def __init__(self, bench: Any, block: int, count: int) -> None:
        self.bench, self.block, self.count = bench, block, count
        self.device, self.host = bench.gpu.memory(2 * block * count), bench.gpu.pinned(2 * block * count)
        self.on_gpu = transfer.strided(self.device.value, 2 * block, np.random.default_rng(3).permutation(count))
        self.on_host = transfer.strided(ctypes.addressof(self.host), 2 * block, count)
        self.words = np.frombuffer(self.host, np.uint8).reshape(count, 2 * block)
        self.sent = np.random.default_rng(4).integers(0, 255, (count, block), dtype=np.uint8)

    def close(self) -> None:
        self.bench.free(self.device)
        self.bench.driver.ok("cuMemFreeHost", self.host)

    def add(self, name: str, call: Callable[[], None], **facts: Any) -> None:
        section = f"{self.count} x {self.block // _KIB} KiB"
        self.bench.add(section, name, self.block * self.count, self.bench.seconds(call), **facts)

    def one_copy(self) -> None:
        """All bytes as one copy of the driver: the rate that blocks are compared with."""
        nbytes = c_size_t(self.block * self.count)
        there = partial(self.bench.driver.ok, "cuMemcpyHtoDAsync", self.device, self.host, nbytes, self.bench.stream)
        home = partial(self.bench.driver.ok, "cuMemcpyDtoHAsync", self.host, self.device, nbytes, self.bench.stream)
        self.add("one copy, to gpu", there)
        self.add("one copy, to host", home)

    def by(self, name: str, facts: dict[bool, dict[str, Any]]) -> None:
        """Both directions by the present knobs. `facts`: of the rows, by whether they go to the GPU."""
        number = self.bench.stream.value
        self.words[:] = 0
        self.words[:, : self.block] = self.sent
        there = partial(transfer.copy_blocks, self.on_gpu, self.on_host, self.block, number)
        home = partial(transfer.copy_blocks, self.on_host, self.on_gpu, self.block, number)
        self.add(f"{name}, to gpu", there, **facts[True])
        self.words[:] = 0
        self.add(f"{name}, to host", home, **facts[False])
        same = np.array_equal(self.words[:, : self.block], self.sent) and not self.words[:, self.block :].any()
        self.bench.expect(bool(same), f"blocks by {name}")

    def pageable(self) -> None:
        number, held = self.bench.stream.value, np.ascontiguousarray(self.words)
        rows = transfer.strided(held.ctypes.data, 2 * self.block, self.count)
        self.add("pageable, to gpu", partial(transfer.copy_blocks, self.on_gpu, rows, self.block, number))
        held[:] = 0
        self.add("pageable, to host", partial(transfer.copy_blocks, rows, self.on_gpu, self.block, number))
        self.bench.expect(bool(np.array_equal(held[:, : self.block], self.sent)), "pageable blocks")


def scattered_blocks(bench: Any, most_bytes: int) -> None:
    """Calls of at most `most_bytes`, by each method and number of SMs, beside one large copy."""
    for block, count in _SHAPES:
        blocks = _Blocks(bench, block, min(count, max(most_bytes // block, 1)))
        blocks.one_copy()
        chosen = {to_gpu: native.block_knobs(to_gpu, block) for to_gpu in (True, False)}
        for method, sms in _WAYS:
            facts = {}
            for to_gpu, usual in chosen.items():
                knobs = usual if method == "auto" else (method, sms or usual[1])
                native.set_block_knobs(to_gpu, block, *knobs)
                facts[to_gpu] = {"by": knobs[0], "sms": knobs[1] if knobs[0] == "kernel" else 0}
            blocks.by(f"{method} {sms}" if sms else method, facts)
        for to_gpu, usual in chosen.items():
            native.set_block_knobs(to_gpu, block, *usual)
        blocks.pageable()
        blocks.close()
    if fallback := native.latest_fallback():
        print(f"blocks         FALLBACK: {fallback}")
