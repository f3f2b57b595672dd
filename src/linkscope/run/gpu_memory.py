"""Who holds the memory of the GPUs: for the message of a context that found none, and cannot ask the driver itself."""

from pathlib import Path
from typing import Any

from linkscope.machine.nvml import Ask, Unavailable, within_patience
from linkscope.units import format_bytes

_LISTED = 8  # processes of a GPU, those with most memory


def has_no_context(message: str) -> bool:
    """Whether a worker's error says that the driver had no memory for a context."""
    return "CtxRetain" in message and "OUT_OF_MEMORY" in message


def memory_text() -> str:
    """'gpu:0 has 72 GiB free of 80 GiB; processes on it: 4242 python (8 GiB)', in PCI bus order, by NVML.

    Memory of a process is left out where the driver hides it. Without NVML the text says why nothing is known.
    """
    try:
        return "; ".join(within_patience(_read)) or "NVML shows no GPU"
    except Unavailable as error:
        return f"who holds its memory is not known ({error})"


def _read(nvml: Any) -> list[str]:
    ask = Ask(nvml)
    found = []
    for index in range(ask("count", "nvmlDeviceGetCount") or 0):
        handle = ask("handle", "nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            pci = ask("pci", "nvmlDeviceGetPciInfo", handle)
            found.append(("" if pci is None else str(pci.busId), _holders(ask, handle)))
    return [f"gpu:{number} {text}" for number, (_, text) in enumerate(sorted(found))]


def _holders(ask: Ask, handle: Any) -> str:
    memory = ask("memory", "nvmlDeviceGetMemoryInfo", handle)
    free = (
        "hides its memory"
        if memory is None
        else f"has {format_bytes(memory.free)} free of {format_bytes(memory.total)}"
    )
    calls = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
    held = {one.pid: one.usedGpuMemory or 0 for call in calls for one in ask(call, call, handle) or ()}
    most = sorted(held, key=lambda pid: -held[pid])
    named = [f"{pid} {_name(pid)}" + (f" ({format_bytes(held[pid])})" if held[pid] else "") for pid in most[:_LISTED]]
    more = [f"{len(most) - _LISTED} more"] if len(most) > _LISTED else []
    return f"{free}; processes on it: {', '.join(named + more) or 'none that NVML shows'}"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another container"
