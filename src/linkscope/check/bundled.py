"""The bundled summary: the times of healthy GPUs of a model, from the runs of results/ (tools/bundled_summary.py).

The runs are few, and all are from virtual machines of one kind. So a point is at fault only if it is slower than the
slowest value of the summary by a margin that is many times the differences between these machines (below 1 % for
copies, 5 % for latencies). The margin also covers what a healthy node may have and these machines lack: PCIe payloads
of 128 B instead of 256 B cost 8 %. The latency of host memory depends on the CPU, so it has a margin of its own. The
summary holds no joint host traffic, which depends on the host.
"""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from linkscope.check.faults import Fault
from linkscope.check.gpus import Gpu, gpus_of
from linkscope.model.rounds import rounds_of
from linkscope.model.text import count_text
from linkscope.runfile import Point, PointId, Run
from linkscope.runfile.methods import current
from linkscope.stats import median

MARGIN = 0.25
HOST_LATENCY_MARGIN = 1.0
_PLACE = re.compile(r"(numa|gpu):\d+")
FILE = Path(__file__).with_name("bundled.toml")


class Operation(msgspec.Struct, kw_only=True):
    """The times of one operation. `peak_gbps`: the peak of its path; None for latencies. `method`: its version."""

    operation: str
    slowest_us: float
    median_us: float
    peak_gbps: float | None = None
    method: int
    runs: int
    gpus: int


class Summary(msgspec.Struct, kw_only=True):
    """A GPU model. `nvlinks`: number of active NVLinks of each GPU; 0 if no run shows it."""

    name: str
    runs: int
    gpus: int
    nvlinks: int
    operations: list[Operation]

    @property
    def text(self) -> str:
        """'the bundled summary of NVIDIA H200 (12 runs of 26 GPUs)'."""
        return f"the bundled summary of {self.name} ({count_text(self.runs, 'run')} of {count_text(self.gpus, 'GPU')})"


class _File(msgspec.Struct):
    gpu: list[Summary]


@functools.cache
def summaries() -> dict[str, Summary]:
    """The summaries of the wheel, by the name of the GPU model."""
    return {of.name: of for of in msgspec.toml.decode(FILE.read_bytes(), type=_File).gpu}


def summaries_of(machine: Mapping[str, Any]) -> tuple[list[Summary], list[str]]:
    """The summaries of the GPUs of a machine, and the names of its GPU models without one."""
    names = list(dict.fromkeys(gpu.name for gpu in gpus_of(machine)))
    known = summaries()
    return [known[name] for name in names if name in known], [name for name in names if name not in known]


def operation_of(id: str) -> str | None:
    """The id of a point without the numbers of its places; None for joint traffic.

    'within latency/sm/gpu.device->gpu.device/0?cache=cold&range=2MiB' is the latency of a GPU's own memory.
    """
    point = PointId.parse(id)
    if not all(_PLACE.fullmatch(end) for end in (point.src, point.dst)):
        return None
    return ("within " if point.src == point.dst else "") + _PLACE.sub(r"\1", id)


@dataclass(frozen=True)
class Limit:
    """A point, its row of the summary, and the longest time that passes."""

    point: Point
    row: Operation
    gpu: str
    most_us: float

    @property
    def took_us(self) -> float:
        """The time of the point."""
        return 1e6 * median(rounds_of(self.point))

    @property
    def text(self) -> str:
        """The time of the point, and those of the summary."""
        source = f"{count_text(self.row.gpus, self.gpu)} in {count_text(self.row.runs, 'run')}"
        return (
            f"{self.point.src} → {self.point.dst} takes {self.took_us:.4g} µs; of {source} the slowest takes "
            f"{self.row.slowest_us:.4g} µs, and up to {self.most_us:.4g} µs pass ({self.point.id})"
        )


def faults_by_summary(run: Run) -> list[Fault]:
    """Points that are slower than every value of the bundled summary, beyond the margin."""
    return [Fault(of.point, "", of.text) for of in limits_by_summary(run) if of.took_us > of.most_us]


def limits_by_summary(run: Run) -> list[Limit]:
    """The points that the summary judges, with the longest time that passes."""
    gpus = {gpu.place: gpu for gpu in gpus_of(run.header.machine)}
    nodes = [place for place in run.header.machine.get("places") or [] if place.startswith("numa:")]
    found = []
    for point in run.points:
        ends = [gpus[end] for end in (point.src, point.dst) if end in gpus]
        if rounds_of(point) and len({gpu.name for gpu in ends}) == 1 and _local(point, ends[0], nodes):
            row = _row(point, summaries().get(ends[0].name))
            found += [Limit(point, row, ends[0].name, _most_us(point, row))] if row else []
    return found


def _local(point: Point, gpu: Gpu, nodes: list[str]) -> bool:
    """Whether a path lies within GPUs, or leads to the NUMA node of its GPU. Paths across sockets may be slower."""
    host = [end for end in (point.src, point.dst) if end.startswith("numa:")]
    return not host or len(nodes) == 1 or host == [gpu.numa]


def _row(point: Point, summary: Summary | None) -> Operation | None:
    """The row of the summary for a point, if the same method measured it."""
    operation = operation_of(point.id)
    row = next((row for row in summary.operations if row.operation == operation), None) if summary else None
    return row if row and row.method == current([point.benchmark])[point.benchmark] else None


def _most_us(point: Point, row: Operation) -> float:
    margin = HOST_LATENCY_MARGIN if point.benchmark == "latency" and "numa:" in point.src else MARGIN
    # A slot of fewer lanes or of an older generation has a lower peak.
    slot = max(1.0, row.peak_gbps / point.limit_gbps) if row.peak_gbps and point.limit_gbps else 1.0
    return row.slowest_us * (1 + margin) * slot
