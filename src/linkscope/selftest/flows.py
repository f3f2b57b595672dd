"""Rows on concurrent flows: bidirectional, two on one link, and one slow link among many."""

from pathlib import Path

from linkscope.plan import case_of
from linkscope.run.batches import Task
from linkscope.run.sampler import PointRound
from linkscope.run.worker import Worker
from linkscope.runfile import PointId
from linkscope.selftest.bench import D2D, H2D, MIB, command, measured, near, plan_of, watched
from linkscope.selftest.machine import (
    NVLINK,
    NVLINK_LATENCY_S,
    PCIE,
    PCIE_BOTH,
    PEER_S,
    XBUS,
    target,
)
from linkscope.selftest.rows import Finding, Row
from linkscope.stats import median

_SIZE = 64 * MIB


def _bidirectional(folder: Path) -> Finding:
    one, both = (H2D.format(_SIZE, way, "batched") for way in ("false", "true"))
    points = measured(folder, target(), [one, both])
    rates = [flow.gbps or 0.0 for flow in points[both].flows]
    alone = points[one].gbps
    holds = near(alone, PCIE / 1e9) and len(rates) == 2 and all(near(rate, PCIE_BOTH / 2e9) for rate in rates)
    return Finding(
        f"{PCIE / 1e9:.0f} GB/s unidirectional; {PCIE_BOTH / 1e9:.0f} GB/s bidirectional, half each",
        f"{alone or 0:.2f} GB/s; {' and '.join(f'{rate:.2f}' for rate in rates)}", holds,
    )  # fmt: skip


def _bytes(folder: Path) -> Finding:
    """The links carried exactly the requested bytes in each direction, as counted by the simulation."""
    seen = watched(target(), H2D.format(MIB, "true", "batched"))
    ways = ("pcie0 numa:0->gpu:0", "pcie0 gpu:0->numa:0")
    wanted, carried = [0, 0], [0, 0]
    for batches, trace in seen.runs:
        for actor in range(2):
            wanted[actor] += trace.samples * sum(batch[actor] for batch in batches if actor < len(batch)) * MIB
            carried[actor] += sum(link.bytes for link in trace.links if link.link == ways[actor])
    return Finding(
        f"{wanted[0] // MIB} MiB to gpu:0, {wanted[1] // MIB} MiB from it",
        f"{carried[0] / MIB:g} MiB and {carried[1] / MIB:g} MiB on its links", wanted == carried and min(wanted) > 0,
    )  # fmt: skip


def _contention(folder: Path) -> Finding:
    """From numa:0 to gpu:2 and gpu:3 concurrently: both flows cross the one link between the nodes; flows to its own
    GPUs cross none."""
    where = target()
    ids = [H2D.format(_SIZE, "false", "batched").replace("gpu:0", f"gpu:{gpu}") for gpu in (2, 3)]
    worker = Worker(command())
    try:
        worker.open(where.open_request)
        alone, together = list[float](), list[float]()
        for chosen, rates in ((ids[:1], alone), (ids, together)):
            points = [PointId.parse(id) for id in chosen]
            prepared = worker.prepare([case_of(point, where.facts) for point in points], "flows#0")
            task = Task(points[0], 0)
            round = PointRound(worker, plan_of(where, chosen), task, prepared).measure()
            rates += [_SIZE / median(flow.samples_s) / 1e9 for flow in round.flows]
    finally:
        worker.kill()
    holds = near(alone[0], XBUS / 1e9) and all(near(rate, XBUS / 2e9) for rate in together) and len(together) == 2
    return Finding(
        f"a link of {XBUS / 1e9:.0f} GB/s: one flow gets all, two get half each",
        f"{alone[0]:.2f} GB/s alone; {' and '.join(f'{rate:.2f}' for rate in together)}", holds,
    )  # fmt: skip


def _slow_link(folder: Path) -> Finding:
    where = target(fault=[{"kind": "slow", "links": ["nvlink13 *"], "factor": 0.5}])
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    ids = {D2D.format(a, b, _SIZE): (a, b) for a, b in pairs}
    points = measured(folder, where, list(ids))
    rates = {ids[id]: point.gbps or 0.0 for id, point in points.items() if id in ids}
    usual = sorted(rates.values())[len(rates) // 2]
    slow = sorted(pair for pair, rate in rates.items() if rate < 0.9 * usual)
    truth = _SIZE / (PEER_S + NVLINK_LATENCY_S + _SIZE / NVLINK) / 1e9
    holds = slow == [(1, 3), (3, 1)] and near(usual, truth) and all(near(rates[pair], truth / 2) for pair in slow)
    shown = ", ".join(f"gpu:{a} -> gpu:{b} {rates[a, b]:.2f}" for a, b in slow) or "none"
    planted = f"NVLink of gpu:1 and gpu:3 at half of the others' {NVLINK / 1e9:.0f} GB/s"
    return Finding(planted, f"usual {usual:.2f} GB/s; below: {shown}", holds)


ROWS = (
    Row("bidirectional", _bidirectional), Row("bytes", _bytes), Row("contention", _contention),
    Row("slow_link", _slow_link),
)  # fmt: skip
