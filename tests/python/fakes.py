"""Shared parts of the tests of plan and run: a machine, a target on the fake worker, and a complete run."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from linkscope.plan import Benchmark, MachineFacts, Plan, Work, make_plan
from linkscope.plan.shares import affordable_rounds, late_rounds
from linkscope.run import Outcome, Target, benchmark_table, measure
from linkscope.run.worker import RequestFailed, Worker
from linkscope.runfile import Flow, Header, Point, PointId, Round, RoundFlow

FAKE_WORKER = [sys.executable, str(Path(__file__).parent / "fake_worker.py")]
H2D = "h2d/ce/numa:0.pinned->gpu:0.device/{}?bidirectional={}&mode={}"


def facts(gpus: int = 2, numa: int = 1, modelled: bool = True) -> MachineFacts:
    places = tuple([f"numa:{n}" for n in range(numa)] + [f"gpu:{n}" for n in range(gpus)])
    return MachineFacts("fake", modelled, places, {place: 1 << 20 for place in places})


def target(gpus: int = 2, limit: float | None = None, modelled: bool = True, **behaviour: Any) -> Target:
    machine = {"name": "fake", "fake": behaviour}
    return Target(
        facts(gpus, modelled=modelled), {"platform": "sim", "machine": machine, "seed": 1},
        lambda point: (limit, "the test says so") if limit else None, machine,
    )  # fmt: skip


_TABLE: list[Benchmark] = []


def table() -> list[Benchmark]:
    """The fake worker's table, read once."""
    if not _TABLE:
        _TABLE.extend(benchmark_table(FAKE_WORKER))
    return _TABLE


def plan(*only: str, gpus: int = 2, **wishes: Any) -> Plan:
    return make_plan(facts(gpus), table(), only=only, **wishes)


def measured(where: Target, what: Plan, path: Path) -> Outcome:
    return measure(where, what, path, command=FAKE_WORKER)


def no_worker_opens_after(times: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `times` workers open; afterwards the machine has no GPU."""
    opened, left = Worker.opened, [times]

    def at_first(worker: Worker) -> dict[str, Any]:
        left[0] -= 1
        if left[0] < 0:
            raise RequestFailed("failed", "no GPU any more")
        return opened(worker)

    monkeypatch.setattr(Worker, "opened", at_first)


def point(id: str, **fields: Any) -> Point:
    what = PointId.parse(id)
    return Point(
        **{
            "id": id, "status": "ok", "benchmark": what.benchmark, "engine": what.engine, "src": what.src,
            "dst": what.dst, "src_memory": what.src_memory, "dst_memory": what.dst_memory, "bytes": what.bytes,
            "bidirectional": what.bidirectional, "params": dict(what.params), "precision_target": 0.01, **fields,
        }
    )  # fmt: skip


def flow(medians: list[float], half_width: float | None = None) -> Flow:
    """A flow with these rounds; `half_width` is that of its interval, as a fraction of the median."""
    ends = (medians[0] * (1 - half_width), medians[0] * (1 + half_width)) if half_width else None
    return Flow(
        src="numa:0", dst="gpu:0", src_memory="pinned", dst_memory="device", bytes=8, role="measured",
        round_medians_s=medians, samples_s=[[m, m] for m in medians], median_s=medians[0], ci95_s=ends, gbps=1.0,
    )  # fmt: skip


def round_record(id: str, number: int) -> Round:
    facts = RoundFlow(
        src="numa:0", dst="gpu:0", src_memory="pinned", dst_memory="device", bytes=8, role="measured", samples_s=[1e-6]
    )
    return Round(
        id=id, round=number, flows=[facts], batch=[4], overhead_s=1e-6, timing="virtual", verified=True, guards={},
        device_s=1e-3,
    )  # fmt: skip


def header() -> Header:
    return Header(modelled=True, machine={"name": "fake"}, environment={}, plan={}, tool={}, started="2026-11-21")


def late_work(plan: Plan, points: Mapping[str, Point], left_s: float) -> list[Work]:
    """The work that the planner chooses for the last `left_s` seconds."""
    return affordable_rounds(plan, points, late_rounds(plan, points), left_s)
