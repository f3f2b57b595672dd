"""The bytes that a program states for its kernel, and their place, as tools/counters.py reads them."""

import importlib.util
import pathlib

import pytest

from linkscope.machine import model as models
from linkscope.plan import case_of
from linkscope.run.target import modelled
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

_TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "counters.py"
KIB = 1 << 10


def stated(program):
    spec = importlib.util.spec_from_file_location("counters", _TOOL)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool.stated(program)


@pytest.mark.parametrize(
    "point, moved",
    [
        ("read/sm/numa:0.pinned->gpu:0.device/65536?blocks=sms&threads=512", {("sysmem", "read"): 64 * KIB}),
        ("read/sm/numa:0.pinned->gpu:0.device/65536?blocks=256&threads=256&width=4", {("sysmem", "read"): 64 * KIB}),
        ("read/sm/gpu:0.device->gpu:0.device/65536?blocks=sms&stride=1024&threads=512", {("device", "read"): 64 * 32}),
        (
            "write/sm/gpu:0.device->gpu:1.device/65536?blocks=sms&order=random&threads=512",
            {("peer", "write"): 512 * 16},
        ),
        (
            "local/sm/gpu:0.device->gpu:0.device/65536?blocks=sms&mode=batched&threads=512",
            {("device", "read"): 64 * KIB, ("device", "write"): 64 * KIB},
        ),
    ],
)
def test_sectors_are_counted_for_strided_accesses(point, moved):
    target = modelled(models.load("h200x2"), 1)
    worker = Worker(worker_command())
    worker.open(target.open_request)
    try:
        program = worker.prepare(case_of(PointId.parse(point), target.facts), f"{point}#0").program
    finally:
        worker.kill()
    assert stated(program) == moved
