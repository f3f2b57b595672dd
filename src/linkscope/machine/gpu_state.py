"""The state of the GPUs that may spoil or explain a measurement: clocks, power, modes, errors, other users (NVML)."""

import os
from pathlib import Path
from typing import Any

from linkscope.machine.nvml import Ask, Unavailable, within_patience
from linkscope.machine.nvml_facts import normal_pci

_HIDDEN = "hidden"
# nvmlClocksEventReason*: the reasons that reduce the clock below the requested one.
REASONS = {
    0x1: "gpu_idle", 0x2: "application_clocks", 0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x10: "sync_boost",
    0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake", 0x100: "display_clocks",
}  # fmt: skip
BAD_REASONS = frozenset({"hw_slowdown", "sw_thermal", "hw_thermal", "hw_power_brake"})
_COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
_NVLINK_ERRORS = {"replay": 0, "recovery": 1, "crc_flit": 2, "crc_data": 3}  # NVML_NVLINK_ERROR_DL_*
_LINKS_AT_MOST = 36


def gpu_states() -> list[dict[str, Any]] | str:
    """A dict for each GPU in PCI bus order, with 'hidden' for values that NVML refuses; a text with the reason if NVML
    is not available."""
    try:
        return within_patience(_read)
    except Unavailable as error:
        return str(error)


def reasons_of(bits: int) -> list[str]:
    """0x9 -> ['gpu_idle', 'hw_slowdown']."""
    return [name for bit, name in REASONS.items() if bits & bit]


def error_counts(state: dict[str, Any]) -> dict[str, int]:
    """The error counters of one GPU that should not grow during a run; hidden ones are left out."""
    counts = {name: state.get(name) for name in ("ecc_uncorrected", "ecc_corrected", "pcie_replays")}
    links = state.get("nvlink_errors")
    if isinstance(links, dict):
        counts |= {f"nvlink_{name}": count for name, count in links.items()}
    return {name: count for name, count in counts.items() if isinstance(count, int)}


def _read(nvml: Any) -> list[dict[str, Any]]:
    states = []
    for index in range(Ask(nvml)("count", "nvmlDeviceGetCount") or 0):
        ask = Ask(nvml)
        handle = ask("handle", "nvmlDeviceGetHandleByIndex", index)
        states.append({"pci": _HIDDEN, "lost": ask.lost} if handle is None else _state(ask, handle))
    return sorted(states, key=lambda state: str(state["pci"]))


def _state(ask: Ask, handle: Any) -> dict[str, Any]:
    pci = ask("pci", "nvmlDeviceGetPciInfo", handle)
    state = {"pci": _HIDDEN if pci is None else normal_pci(pci.busId)}
    state |= _clocks(ask, handle) | _modes(ask, handle) | _errors(ask, handle)
    return state | {"processes": _processes(ask, handle), "lost": ask.lost}


def _clocks(ask: Ask, handle: Any) -> dict[str, Any]:
    reasons = ask("reasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    return {
        "sm_mhz": _known(ask("sm_mhz", "nvmlDeviceGetClockInfo", handle, "NVML_CLOCK_SM")),
        "sm_max_mhz": _known(ask("sm_max_mhz", "nvmlDeviceGetMaxClockInfo", handle, "NVML_CLOCK_SM")),
        "memory_mhz": _known(ask("memory_mhz", "nvmlDeviceGetClockInfo", handle, "NVML_CLOCK_MEM")),
        "memory_max_mhz": _known(ask("memory_max_mhz", "nvmlDeviceGetMaxClockInfo", handle, "NVML_CLOCK_MEM")),
        "throttle": _HIDDEN if reasons is None else reasons_of(reasons),
        "temperature_c": _known(ask("temperature", "nvmlDeviceGetTemperature", handle, "NVML_TEMPERATURE_GPU")),
        "power_w": _watts(ask("power", "nvmlDeviceGetPowerUsage", handle)),
        "power_limit_w": _watts(ask("power_limit", "nvmlDeviceGetEnforcedPowerLimit", handle)),
        "power_default_w": _watts(ask("power_default", "nvmlDeviceGetPowerManagementDefaultLimit", handle)),
    }


def _modes(ask: Ask, handle: Any) -> dict[str, Any]:
    compute = ask("compute_mode", "nvmlDeviceGetComputeMode", handle)
    mig = ask("mig", "nvmlDeviceGetMigMode", handle)
    ecc = ask("ecc", "nvmlDeviceGetEccMode", handle)
    return {
        "persistence": _on(ask("persistence", "nvmlDeviceGetPersistenceMode", handle)),
        "compute_mode": _COMPUTE_MODES.get(compute, _HIDDEN),
        "mig": _on(mig[0] if mig else None),
        "ecc": _on(ecc[0] if ecc else None),
    }


def _errors(ask: Ask, handle: Any) -> dict[str, Any]:
    counters = [handle, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", "NVML_VOLATILE_ECC"]
    uncorrected = ask("ecc_uncorrected", "nvmlDeviceGetTotalEccErrors", *counters)
    counters[1] = "NVML_MEMORY_ERROR_TYPE_CORRECTED"
    rows = ask("rows", "nvmlDeviceGetRemappedRows", handle)
    return {
        "ecc_uncorrected": _known(uncorrected),
        "ecc_corrected": _known(ask("ecc_corrected", "nvmlDeviceGetTotalEccErrors", *counters)),
        "rows_remapped": _known(rows[0] + rows[1] if rows else None),
        "row_remap_pending": _HIDDEN if rows is None else bool(rows[2]),
        "row_remap_failed": _HIDDEN if rows is None else bool(rows[3]),
        "pcie_replays": _known(ask("pcie_replays", "nvmlDeviceGetPcieReplayCounter", handle)),
        "nvlink_errors": _nvlink_errors(ask, handle),
    }


def _nvlink_errors(ask: Ask, handle: Any) -> dict[str, int] | str:
    """Sums over the active links; 'hidden' without such a counter."""
    totals: dict[str, int] = {}
    for link in range(_LINKS_AT_MOST):
        active = ask("nvlink", "nvmlDeviceGetNvLinkState", handle, link)
        if active is None:
            break
        for name, counter in _NVLINK_ERRORS.items() if active else ():
            count = ask(f"nvlink_{name}", "nvmlDeviceGetNvLinkErrorCounter", handle, link, counter)
            if count is not None:
                totals[name] = totals.get(name, 0) + count
    return totals or _HIDDEN


def _processes(ask: Ask, handle: Any) -> int | str:
    """The number of other processes that use the GPU, without this one and its workers."""
    running = ask("processes", "nvmlDeviceGetComputeRunningProcesses", handle)
    return _HIDDEN if running is None else sum(not _ours(process.pid) for process in running)


def _ours(pid: int) -> bool:
    try:
        # "pid (name) state parent …": the name may hold blanks and parentheses.
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    except (OSError, IndexError):
        return False
    return os.getpid() in (pid, int(parent))


def _known(value: int | float | None) -> int | float | str:
    return _HIDDEN if value is None else value


def _watts(milliwatts: int | None) -> float | str:
    return _HIDDEN if milliwatts is None else milliwatts / 1000


def _on(value: int | None) -> bool | str:
    return _HIDDEN if value is None else bool(value)
