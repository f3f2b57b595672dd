"""What exports for other software need of a run: its machine, and the best rate and time of each path."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from linkscope.errors import NOT_HERE, UserError
from linkscope.runfile import Point, Run

_WITH_VALUE = ("ok", "missed_precision", "inherited")
_PCI = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_USUAL = (None, "on", "src", "cold", "kernel", "batched", "memcpy")  # of peer, initiator, cache, after, mode, call
_CHOSEN = ("peer", "initiator", "cache", "after", "mode", "call")


@dataclass(frozen=True)
class Path:
    """The best value of a path and the id of its point."""

    value: float
    id: str


class SystemValues:
    """The values of a run by path, and the facts of its machine."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.machine: dict[str, Any] = run.header.machine
        self._points = [point for point in run.points if point.status in _WITH_VALUE and not point.bidirectional]

    def rate(self, benchmark: str, src: str, dst: str, **wanted: str) -> Path | None:
        """The highest rate in GB/s of one unidirectional copy from `src` to `dst`; None where none was measured."""
        rates = [(point.gbps, point.id) for point in self._of(benchmark, src, dst, wanted) if point.gbps]
        return Path(*max(rates)) if rates else None

    def seconds(self, benchmark: str, src: str, dst: str, **wanted: str) -> Path | None:
        """The shortest time in seconds of one operation from `src` to `dst`, such as a small copy."""
        times = [(point.median_s, point.id) for point in self._of(benchmark, src, dst, wanted) if point.median_s]
        return Path(*min(times)) if times else None

    def need(self, what: dict[str, Path | None], cure: str) -> None:
        """Raises UserError that names the missing values and the command that measures them."""
        missing = [name for name, value in what.items() if value is None]
        if missing:
            few = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
            raise UserError(f"{self.run.path}: this run lacks {few}. Measure it: {cure}", NOT_HERE)

    def gpus(self) -> list[dict[str, Any]]:
        """The GPUs of a measured machine, each with a valid `pci`. Raises UserError where there is none."""
        if self.run.modelled:
            what = "this run is MODELLED, and a model has no PCI addresses. Export a run of real hardware"
            raise UserError(f"{self.run.path}: {what}", NOT_HERE)
        gpus = [gpu for gpu in self.machine.get("gpus", []) if isinstance(gpu, dict)]
        if not gpus:
            raise UserError(f"{self.run.path}: its machine has no GPU. Run on a machine with GPUs", NOT_HERE)
        for gpu in gpus:
            if not _PCI.fullmatch(str(gpu.get("pci") or "").lower()):
                what = f"gpu:{gpu.get('index')} has no PCI address. Run again where NVML or CUDA shows it"
                raise UserError(f"{self.run.path}: {what}", NOT_HERE)
        return gpus

    def numa_of(self, gpu: dict[str, Any]) -> int:
        """The NUMA node of a GPU. Raises UserError where it is hidden and the machine has several."""
        nodes = self.machine.get("numa", [])
        if gpu.get("numa") is not None:
            return int(gpu["numa"])
        if len(nodes) == 1:
            return 0
        what = f"the NUMA node of gpu:{gpu.get('index')} is hidden, and there are {len(nodes)}"
        raise UserError(f"{self.run.path}: {what}. `linkscope machine` says why", NOT_HERE)

    def source(self) -> str:
        """Where the values are from, as one line of a comment."""
        kind = "MODELLED by" if self.run.modelled else "measured by"
        version = self.run.header.tool.get("version", "")
        name = self.machine.get("name", "")
        return comment(f"{kind} linkscope {version} on {name}, {self.run.header.started}")

    def _of(self, benchmark: str, src: str, dst: str, wanted: dict[str, str]) -> Iterable[Point]:
        for point in self._points:
            if (point.benchmark, point.src, point.dst) != (benchmark, src, dst):
                continue
            if "pageable" in (point.src_memory, point.dst_memory) and benchmark in ("h2d", "d2h"):
                continue
            params = point.params
            if all(params.get(name) == value for name, value in wanted.items()) and all(
                params.get(name) in _USUAL for name in _CHOSEN if name not in wanted
            ):
                yield point


def comment(text: str) -> str:
    """One line of printable ASCII, which ends no comment of a shell or of UCX."""
    return re.sub(r"[^\x20-\x7e]", "?", text)


def xml_text(text: str) -> str:
    """The same for comments and values of XML, also for readers that know no entities."""
    plain = comment(text).translate(str.maketrans('<>&"', "()+'"))
    return re.sub(r"-{2,}", "-", plain)
