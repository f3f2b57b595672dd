"""A session on a simulated machine releases everything, after every operation of every suite and after failures."""

import copy
import os
from typing import Any

import pytest

from fake_driver import WORKER, needs_worker
from linkscope.plan import SUITES, case_of, make_plan
from linkscope.run import benchmark_table
from linkscope.run.target import choose, with_modelled_ranks
from linkscope.runfile import PointId
from worker_pipe import Pipe

pytestmark = needs_worker

MIB = 1 << 20


@pytest.fixture
def pipe():
    with Pipe(WORKER, dict(os.environ)) as opened:
        yield opened


def held(pipe: Pipe) -> int:
    answer = pipe.ask("release")
    assert answer["ok"], answer
    return answer["held"]


def of_each_kind(suite: str, target: Any) -> list[PointId]:
    """The smallest point of each operation, engine, pair of memory kinds and choice of parameters."""
    plan = make_plan(target.facts, benchmark_table(), suite=suite)
    found: dict[tuple, PointId] = {}
    for point in sorted(map(PointId.parse, plan.points), key=lambda point: point.bytes):
        kind = (
            point.benchmark,
            point.engine,
            point.src[:3],
            point.src_memory,
            point.dst_memory,
            *sorted(dict(point.params).items()),
        )
        found.setdefault(kind, point)
    return list(found.values())


@pytest.mark.parametrize("suite", [name for name, suite in SUITES.items() if not suite.needs])  # ranks on hosts
def test_nothing_is_left_after_every_operation_of_a_suite(pipe, suite) -> None:
    target = choose("h200x2", 1)
    target = with_modelled_ranks(target) if suite == "mpi" else target
    assert pipe.ask("open", **target.open_request)["ok"]
    points, ran = of_each_kind(suite, target), 0
    for point in points:
        prepared = pipe.ask("prepare", case=case_of(point, target.facts), key=f"{point}#0")
        assert prepared["ok"], prepared
        if prepared["supported"]:
            answer = pipe.ask("run", samples=1, batches=[[1] * prepared["actors"]], verify=True)
            assert answer["ok"] and answer["verdict"]["ok"], (str(point), answer)
            ran += 1
        assert held(pipe) == 0, point
    assert ran > len(points) / 10  # most placements of an LU need more GPUs


def d2d(size: int) -> dict[str, Any]:
    return {
        "benchmark": "d2d", "engine": "ce", "src": "gpu:0", "dst": "gpu:1", "src_memory": "device",
        "dst_memory": "device", "bytes": size, "footprint_bytes": 4 * size, "params": {},
    }  # fmt: skip


def test_a_failed_request_leaves_no_memory_allocated(pipe) -> None:
    """Memory that runs out at the second region, wrong data, an invalid batch, an invalid case."""
    target = choose("h200x2", 1)
    request = copy.deepcopy(target.open_request)
    request["machine"]["fault"] = [{"match": "*#corrupt", "kind": "corrupt"}]
    assert pipe.ask("open", **request)["ok"]
    copies = d2d(MIB)
    prepared = pipe.ask("prepare", case=copies, key="d2d#corrupt")
    assert prepared["supported"]
    wrong = pipe.ask("run", samples=1, batches=[[1]], verify=True)
    assert wrong["ok"] and not wrong["verdict"]["ok"]
    assert held(pipe) == 0
    assert pipe.ask("prepare", case=copies, key="d2d#0")["supported"]
    assert not pipe.ask("run", samples=1, batches=[[1, 1, 1]], verify=True)["ok"]
    assert held(pipe) == 0
    assert not pipe.ask("prepare", case=copies | {"dst": "gpu:7"}, key="d2d#0").get("supported", False)
    assert not pipe.ask("prepare", case=copies | {"src_memory": "file"}, key="d2d#0")["ok"]
    assert held(pipe) == 0
    too_much = [d2d(12 << 30)] * 4  # 48 GiB each at both ends
    assert not pipe.ask("prepare", cases=too_much, key="d2d#0").get("supported", False)
    assert held(pipe) == 0
