"""Invented points of kernel copies, of copies to and from all GPUs at once, and of latencies."""

from typing import Any

from invented import flow, point
from linkscope.runfile import Point

SIZE = 64 << 20
GPUS = range(4)
MACHINE: dict[str, Any] = {  # eight GPUs; the points use four of them
    "numa": [{"index": 0}],
    "gpus": [{"index": gpu, "sms": 132, "pcie": {"max_generation": 5, "width": 16}} for gpu in range(8)],
}
BLOCKS = {"1": 50e9, "2": 100e9, "4": 190e9, "8": 340e9, "16": 372e9, "32": 380e9, "sms": 384e9}


def kernel_points() -> list[Point]:
    """GPU pairs by copy engine and by SM: 8 blocks stay below 95 % of 384 GB/s (364.8), 16 blocks reach it."""
    made = []
    for src, dst in ((0, 1), (1, 0)):
        ends = f"gpu:{src}.device->gpu:{dst}.device"
        made.append(point(f"d2d/ce/{ends}/{SIZE}?mode=batched", SIZE / 395e9, limit_gbps=478.0))
        for blocks, rate in BLOCKS.items():
            id = f"d2d/sm/{ends}/{SIZE}?blocks={blocks}&mode=batched&threads=512"
            made.append(point(id, SIZE / rate, limit_gbps=478.0, limit_source="18 NVLink links"))
        for size in (4096, 1 << 20):
            id = f"d2d/sm/{ends}/{size}?blocks=sms&mode=batched&threads=512"
            made.append(point(id, 3e-6 + size / 384e9, limit_gbps=478.0, limit_source="18 NVLink links"))
    return made


def joint_points(total: float | None = 400.0) -> list[Point]:
    """GB/s from gpu:0 to all others, the third at twice the rate of the rest; the same from every other GPU."""
    made = []
    for src in GPUS:
        others = [gpu for gpu in GPUS if gpu != src]
        rates = (100e9, 100e9, 200e9)
        one = point(f"one_to_all/ce/gpu:{src}.device->gpu:all.device/{SIZE}?initiator=src", SIZE / rates[0])
        one.flows = [
            flow(f"gpu:{src}", f"gpu:{dst}", ("device", "device"), SIZE, SIZE / rate)
            for dst, rate in zip(others, rates, strict=True)
        ]
        one.total_gbps = total
        made.append(one)
    return made


def latency_points() -> list[Point]:
    """From host memory to each GPU, and from GPU to GPU, itself included."""
    made = [point(f"latency/sm/numa:0.pinned->gpu:{gpu}.device/0?range=2MiB", 1.2e-6 + gpu * 1e-8) for gpu in GPUS]
    for src in GPUS:
        for dst in GPUS:
            id = f"latency/sm/gpu:{src}.device->gpu:{dst}.device/0?range=2MiB"
            made.append(point(id, 280e-9 if src == dst else 812e-9))
    return made
