"""What limits a check: other users of the GPUs, counters that cannot be read, and differences to the reference."""

from collections.abc import Mapping
from typing import Any

from linkscope.check.gpus import gpus_of
from linkscope.check.links import active_nvlinks, pcie_under_load
from linkscope.check.physics import LOSSES
from linkscope.check.references import SAVE
from linkscope.compare import Comparison
from linkscope.model.text import count_text
from linkscope.runfile import Run


def busy(machine: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    """Other processes that use a GPU. Both arguments are as in the header of a run."""
    counts = {gpu: state.get("processes") for gpu, state in _states(machine, environment).items()}
    return [
        f"{gpu} was used by {count} other process{'es' * (count > 1)}"
        for gpu, count in counts.items()
        if isinstance(count, int) and count
    ]


def unread(run: Run) -> list[str]:
    """Error counters and PCIe states that this process may not read, so that nothing is judged from them."""
    if run.modelled:
        return []
    if why := run.header.environment.get("gpus_why_not"):
        return [f"no error counter or link state can be read ({why}): the check judges nothing from them"]
    hidden: dict[str, list[str]] = {}
    linked = active_nvlinks(run.header.machine)
    for gpu, state in _states(run.header.machine, run.header.environment).items():
        counters = state.get("nvlink_errors")
        readable = counters if isinstance(counters, dict) else {}
        names = [name for name in LOSSES if name.startswith("ecc") and state.get(name) == "hidden"]
        names += [
            name
            for name in LOSSES
            if gpu in linked and "nvlink_" in name and name.removeprefix("nvlink_") not in readable
        ]
        if names:
            hidden.setdefault(", ".join(names), []).append(gpu)
    notes = [
        f"the error counters {names} of {', '.join(gpus)} cannot be read: the check judges nothing from them"
        for names, gpus in hidden.items()
    ]
    loaded = pcie_under_load(run)
    if blind := [gpu.place for gpu in gpus_of(run.header.machine) if gpu.place not in loaded]:
        notes.append(
            f"the PCIe state of {', '.join(blind)} under load cannot be read: the check does not judge the generation"
        )
    return notes


def absent(reference: Run | None, run: Run) -> list[str]:
    """GPUs of the reference that this node lacks."""
    return _gpus_only_in(reference.header.machine, run.header.machine) if reference else []


def not_compared(reference: Run, run: Run, compared: Comparison) -> list[str]:
    """Points that the reference cannot judge, and why."""
    notes = []
    if more := _gpus_only_in(run.header.machine, reference.header.machine):
        notes.append(f"not in the reference: {', '.join(more)}; physics and the bundled summary judge their paths")
    if names := ", ".join(sorted(compared.other_method)):
        count = count_text(sum(compared.other_method.values()), "point")
        notes.append(
            f"{count} not compared: the reference measured {names} by another version of the method: "
            f"save a new baseline, {SAVE}"
        )
    return notes


def _gpus_only_in(machine: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    there = set(other.get("places") or [])
    return [place for place in machine.get("places") or [] if "gpu:" in place and place not in there]


def _states(machine: Mapping[str, Any], environment: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The state of each GPU of the machine, by place. NVML also lists GPUs that CUDA_VISIBLE_DEVICES hides."""
    states = [state for state in environment.get("gpus") or [] if isinstance(state, dict)]
    by_pci = {state.get("pci"): state for state in states}
    return {gpu.place: by_pci[gpu.pci] for gpu in gpus_of(machine) if gpu.pci in by_pci}
