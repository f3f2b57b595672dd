"""Rows on the cost of one operation: without queueing, without stamps, below the clock's tick, with the right
divisor."""

from pathlib import Path

from linkscope.selftest.bench import D2H, H2D, KIB, MIB, measured, near
from linkscope.selftest.machine import (
    CALL_S,
    FROM_DEVICE_S,
    PCIE,
    PCIE_LATENCY_S,
    TICK_S,
    TO_DEVICE_S,
    target,
)
from linkscope.selftest.rows import Finding, Row
from linkscope.units import format_seconds


def _enqueue(folder: Path) -> Finding:
    id = H2D.format(4 * KIB, "false", "batched")
    truth = TO_DEVICE_S + PCIE_LATENCY_S + 4 * KIB / PCIE
    found = measured(folder, target(), [id])[id].median_s
    planted = f"a copy of {format_seconds(truth)}; queueing it takes {format_seconds(CALL_S)}"
    return Finding(planted, format_seconds(found or 0.0), near(found, truth))


def _tick(folder: Path) -> Finding:
    id = D2H.format(2 * KIB)
    truth = FROM_DEVICE_S + PCIE_LATENCY_S + 2 * KIB / PCIE
    point = measured(folder, target(), [id])[id]
    planted = f"a copy of {format_seconds(truth)}, the clock's tick {format_seconds(TICK_S)}"
    seconds = point.median_s or 0.0
    found = f"{format_seconds(seconds)}, off by {abs(seconds - truth) / TICK_S:.1%} of a tick"
    return Finding(planted, found, near(seconds, truth))


def _batch(folder: Path) -> Finding:
    """Sizes with batches of all lengths, down to one that is compared with an empty batch."""
    sizes = [4 * KIB, 64 * KIB, 16 * MIB, 512 * MIB]
    ids = [D2H.format(size) for size in sizes]
    points = measured(folder, target(), ids)
    truths = [FROM_DEVICE_S + PCIE_LATENCY_S + size / PCIE for size in sizes]
    batches = [(points[id].batch or [0])[0] for id in ids]
    worst = max(abs((points[id].median_s or 0.0) / truth - 1) for id, truth in zip(ids, truths, strict=True))
    shown = " to ".join(format_seconds(truth) for truth in (truths[0], truths[-1]))
    found = f"batches of {max(batches)} to {min(batches)}, at most {worst:.2%} off"
    return Finding(f"copies of {shown}", found, worst < 0.01)


ROWS = (Row("enqueue", _enqueue), Row("tick", _tick), Row("batch", _batch))
