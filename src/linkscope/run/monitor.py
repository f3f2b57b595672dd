"""Watches the GPUs during measurements through NVML: clocks, throttle reasons, PCIe link and error counters.

A thread samples twice a second. Without NVML there are no observations.
"""

import bisect
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

_PERIOD_S = 0.5
# nvmlClocksEventReason* bits of the reasons that make the GPU slower than requested.
BAD_REASONS = {0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}


@dataclass(frozen=True, slots=True)
class State:
    """One observation of one GPU. Clocks in MHz, temperature in degrees Celsius."""

    time: float
    gpu: str
    sm_mhz: int
    memory_mhz: int
    temperature: int
    reasons: int
    pcie: tuple[int, int]
    replays: int


class Monitor(Protocol):
    """Reports the state of the GPUs between two times of time.monotonic()."""

    def guards(self, places: Sequence[str], since: float) -> dict[str, Any]:
        """Returns the guards of a measurement from `since` until now, for the GPUs among `places`."""

    def stop(self) -> None:
        """Ends the thread."""


class NoMonitor:
    """Monitor without observations: for a model, or a machine without NVML."""

    def guards(self, places: Sequence[str], since: float) -> dict[str, Any]:
        return {}

    def stop(self) -> None: ...


class NvmlMonitor:
    """Samples every GPU twice a second. `gpus`: place -> PCI bus id. Raises an exception without NVML."""

    def __init__(self, gpus: Mapping[str, str]) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        # By bus id: CUDA_VISIBLE_DEVICES renumbers GPUs for CUDA but not for NVML.
        self._handles = {gpu: pynvml.nvmlDeviceGetHandleByPciBusId(pci.encode()) for gpu, pci in gpus.items()}
        self._states: dict[str, list[State]] = {gpu: [] for gpu in self._handles}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="nvml", daemon=True)
        self._look()
        self._thread.start()

    def guards(self, places: Sequence[str], since: float) -> dict[str, Any]:
        guards: dict[str, Any] = {}
        throttled: set[str] = set()
        for gpu in sorted(set(places) & self._states.keys()):
            seen = self._observations(gpu, since)
            if seen:
                guards[gpu] = _summary(seen)
                throttled.update(guards[gpu].get("throttled", []))
        if throttled:
            guards["throttled"] = sorted(throttled)
        return guards

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(2.0)

    def _observations(self, gpu: str, since: float) -> list[State]:
        """Returns the observations since then, or the last earlier one for a measurement shorter than the sampling
        period."""
        states = self._states[gpu]
        return states[bisect.bisect_left(states, since, key=lambda state: state.time) :] or states[-1:]

    def _watch(self) -> None:
        while not self._ended.wait(_PERIOD_S):
            self._look()

    def _look(self) -> None:
        for gpu, handle in self._handles.items():
            state = self._state(gpu, handle)
            if state is not None:
                self._states[gpu] = [*self._states[gpu][-1200:], state]

    def _state(self, gpu: str, handle: Any) -> State | None:
        nvml = self._nvml
        try:
            return State(
                time.monotonic(), gpu,
                nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
                nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
                nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
                (nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle), nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)),
                nvml.nvmlDeviceGetPcieReplayCounter(handle),
            )  # fmt: skip
        except nvml.NVMLError:
            return None  # a virtual machine hides the values, or the GPU fell off the bus, which the worker reports


def monitor_for(gpus: Mapping[str, str]) -> Monitor:
    """Returns an NVML monitor if this machine has NVML. `gpus`: place -> PCI bus id; empty for a model."""
    if not gpus:
        return NoMonitor()
    try:
        return NvmlMonitor(gpus)
    except Exception:  # an optional library may fail in any way; `doctor` says why
        return NoMonitor()


class Tally:
    """Counts the increases of the GPUs' error counters since construction, and the CPU time that a hypervisor took."""

    def __init__(self, gpus: Mapping[str, str]) -> None:
        self._gpus = gpus
        self._ticks, self._errors = self._read()

    def gained(self) -> dict[str, Any]:
        """Returns `cpu_steal` as a fraction and, by GPU, the counters that grew, such as `nvlink_crc_data`."""
        from linkscope.machine.environment import steal_share

        gained: dict[str, Any] = {}
        ticks, errors = self._read()
        if self._ticks and ticks:
            gained["cpu_steal"] = round(steal_share(self._ticks, ticks), 4)
        for gpu, counts in errors.items():
            before = self._errors.get(gpu, {})
            grown = {name: count - before[name] for name, count in counts.items() if count > before.get(name, count)}
            if grown:
                gained[gpu] = grown
        return gained

    def _read(self) -> tuple[dict[str, int] | None, dict[str, dict[str, int]]]:
        from linkscope.machine.environment import cpu_ticks
        from linkscope.machine.gpu_state import error_counts, gpu_states

        states = gpu_states() if self._gpus else []
        by_pci = {state["pci"]: error_counts(state) for state in states if isinstance(state, dict)}
        return cpu_ticks(), {gpu: by_pci.get(pci, {}) for gpu, pci in self._gpus.items()}


class NoTally:
    """Tally of a model: nothing to count."""

    def gained(self) -> dict[str, Any]:
        return {}


def _summary(seen: Sequence[State]) -> dict[str, Any]:
    clocks = [state.sm_mhz for state in seen]
    summary: dict[str, Any] = {
        "sm_mhz": [min(clocks), max(clocks)],
        "memory_mhz": seen[-1].memory_mhz,
        "temperature": max(state.temperature for state in seen),
        "pcie": "gen{} x{}".format(*min(state.pcie for state in seen)),
        "pcie_replays": seen[-1].replays - seen[0].replays,
    }
    reasons = 0
    for state in seen:
        reasons |= state.reasons
    throttled = [name for bit, name in BAD_REASONS.items() if reasons & bit]
    if throttled:
        summary["throttled"] = throttled
    return summary
