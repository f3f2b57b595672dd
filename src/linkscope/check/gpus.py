"""The GPUs of the machine in a run's first line: of this computer, or of a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A GPU. `numa`: the NUMA node that it is attached to; None if unknown. `pci`: its bus id."""

    place: str
    name: str
    numa: str | None = None
    pci: str | None = None


def gpus_of(machine: Mapping[str, Any]) -> list[Gpu]:
    """The GPUs of `Header.machine`, in the order of the file."""
    if model := machine.get("model"):
        return _of_model(model)
    found = []
    for gpu in machine.get("gpus") or []:
        node = gpu.get("numa")
        numa = None if node is None else f"numa:{node}"
        found.append(Gpu(f"gpu:{gpu['index']}", str(gpu.get("name")), numa, gpu.get("pci")))
    return found


def _of_model(model: Mapping[str, Any]) -> list[Gpu]:
    return [
        Gpu(place, gpu.get("title", ""), numa)
        for gpu in model.get("gpu") or []
        for numa, places in (gpu.get("at") or {}).items()
        for place in places
    ]
