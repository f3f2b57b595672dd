"""The section of tools/transfer_bench.py about a product of matrices beside copies of scattered blocks by SMs."""

import ctypes
import importlib.util
import statistics
from functools import partial
from typing import Any

import numpy as np

from linkscope import native, transfer

_N = 8192  # rows and columns of the matrices
_PRODUCTS = 20  # timed together
_BLOCK, _BLOCKS = 4 << 10, 8192  # of one call
_CALLS = 160  # queued before the products; they outlast them
_SMS = (4, 8, 16, 32)


def gemm_beside_blocks(bench: Any) -> None:
    """bf16 products alone, then beside pinned blocks that a kernel on some SMs moves to the GPU and from it."""
    if importlib.util.find_spec("torch") is None:
        print("gemm           PyTorch is not installed, so its rows are missing")
        return
    import torch

    work, copies = torch.cuda.Stream(), torch.cuda.ExternalStream(bench.stream.value)
    one, other = (torch.randn(_N, _N, dtype=torch.bfloat16, device="cuda") for _ in range(2))
    product = torch.empty_like(one)
    device, host = bench.gpu.memory(_BLOCK * _BLOCKS), bench.gpu.pinned(_BLOCK * _BLOCKS)
    on_gpu = transfer.strided(device.value, _BLOCK, np.random.default_rng(3).permutation(_BLOCKS))
    on_host = transfer.strided(ctypes.addressof(host), _BLOCK, _BLOCKS)

    def marked(stream: Any) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(stream)
        return event

    def seconds(calls: int, copy: Any) -> tuple[float, float, bool]:
        """Of one product, and of one call of the copy; and whether the copies went on until the last product."""
        torch.cuda.synchronize()
        copied = [marked(copies)]
        for _ in range(calls):
            copy()
        copied.append(marked(copies))
        with torch.cuda.stream(work):
            begin = marked(work)
            for _ in range(_PRODUCTS):
                torch.matmul(one, other, out=product)
            end = marked(work)
        end.synchronize()
        outlasted = not copied[1].query()
        torch.cuda.synchronize()
        copy_s = copied[0].elapsed_time(copied[1]) / 1e3 / max(calls, 1)
        return begin.elapsed_time(end) / 1e3 / _PRODUCTS, copy_s, outlasted

    def rows(name: str, calls: int, copy: Any, alone: float | None) -> float:
        found = [seconds(calls, copy) for _ in range(bench.repeats + 1)][1:]
        middle = statistics.median(product_s for product_s, _, _ in found)
        facts: dict[str, Any] = {"tflops": round(2 * _N**3 / middle / 1e12, 1)}
        if alone is not None:
            copy_s = statistics.median(copy_s for _, copy_s, _ in found)
            facts |= {"slowdown": round(middle / alone, 3), "copies_gbps": round(_BLOCK * _BLOCKS / copy_s / 1e9, 1)}
            facts["outlasted"] = all(one for _, _, one in found)
        bench.add("gemm", name, 0, [product_s for product_s, _, _ in found], **facts)
        return middle

    ways = {
        True: partial(transfer.copy_blocks, on_gpu, on_host, _BLOCK, bench.stream.value),
        False: partial(transfer.copy_blocks, on_host, on_gpu, _BLOCK, bench.stream.value),
    }
    for to_gpu, copy in ways.items():
        usual = native.block_knobs(to_gpu, _BLOCK)
        for sms in _SMS:
            alone = rows("alone", 0, copy, None)
            native.set_block_knobs(to_gpu, _BLOCK, "kernel", sms)
            rows(f"beside {sms} SMs {'to' if to_gpu else 'from'} gpu", _CALLS, copy, alone)
        native.set_block_knobs(to_gpu, _BLOCK, *usual)
    bench.free(device)
    bench.driver.ok("cuMemFreeHost", host)
