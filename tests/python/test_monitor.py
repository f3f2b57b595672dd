"""The monitor reports NVML's state of the GPUs of a point, found by PCI bus id, and nothing without NVML."""

import sys
import time
import types

import pytest

from linkscope.run.monitor import NoMonitor, NvmlMonitor, State, Tally, _summary, monitor_for

GPUS = {"gpu:0": "0000:01:00.0", "gpu:1": "0000:02:00.0"}


class FakeNvml(types.ModuleType):
    """Two GPUs with known bus ids."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    class NVMLError(Exception):
        pass

    def __init__(self) -> None:
        super().__init__("pynvml")
        self.reasons = {"late": 0, "early": 0}

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetHandleByPciBusId(self, pci: bytes) -> str:
        return {b"0000:01:00.0": "early", b"0000:02:00.0": "late"}[pci]

    def nvmlDeviceGetClockInfo(self, handle: str, kind: int) -> int:
        return {1: 1980, 2: 3200}[kind]

    def nvmlDeviceGetTemperature(self, handle: str, kind: int) -> int:
        return 40

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: str) -> int:
        return self.reasons[handle]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: str) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: str) -> int:
        return 16

    def nvmlDeviceGetPcieReplayCounter(self, handle: str) -> int:
        if self.reasons[handle] == -1:
            raise self.NVMLError
        return 0


@pytest.fixture
def nvml(monkeypatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def test_guards_cover_the_gpus_that_a_point_uses(nvml) -> None:
    monitor = NvmlMonitor(GPUS)
    guards = monitor.guards(["numa:0", "gpu:0"], time.monotonic())
    monitor.stop()
    assert guards == {
        "gpu:0": {"sm_mhz": [1980, 1980], "memory_mhz": 3200, "temperature": 40, "pcie": "gen5 x16", "pcie_replays": 0}
    }


@pytest.mark.parametrize(
    "reasons, bad", [(0x4, []), (0x8, ["hw_slowdown"]), (0xE0, ["hw_power_brake", "hw_thermal", "sw_thermal"])]
)
def test_bad_throttle_reasons_are_named(nvml, reasons: int, bad: list[str]) -> None:
    nvml.reasons["early"] = reasons
    monitor = NvmlMonitor(GPUS)
    assert monitor.guards(["gpu:0"], 0.0).get("throttled", []) == bad
    assert "throttled" not in monitor.guards(["gpu:1"], 0.0)
    monitor.stop()


def test_states_before_a_block_do_not_count_for_it(nvml) -> None:
    nvml.reasons["early"] = 0x40
    monitor = NvmlMonitor(GPUS)
    since = time.monotonic()
    nvml.reasons["early"] = 0
    monitor._look()
    assert "throttled" not in monitor.guards(["gpu:0"], since)
    assert monitor.guards(["gpu:0"], 0.0)["throttled"] == ["hw_thermal"]
    # For a block shorter than the sampling period, the last observation counts.
    assert monitor.guards(["gpu:0"], time.monotonic())["gpu:0"]["temperature"] == 40
    monitor.stop()


def test_a_block_reports_its_worst_state() -> None:
    def look(at: float, sm_mhz: int, degrees: int, reasons: int, pcie: tuple[int, int], replays: int) -> State:
        return State(at, "gpu:0", sm_mhz, 3200, degrees, reasons, pcie, replays)

    seen = [
        look(0.0, 1980, 50, 0x20, (5, 16), 3), look(0.5, 1200, 80, 0x40, (5, 8), 5), look(1.0, 1900, 60, 0, (5, 16), 9)
    ]  # fmt: skip
    assert _summary(seen) == {
        "sm_mhz": [1200, 1980], "memory_mhz": 3200, "temperature": 80, "pcie": "gen5 x8", "pcie_replays": 6,
        "throttled": ["sw_thermal", "hw_thermal"],
    }  # fmt: skip


def test_hidden_values_and_lost_gpus_are_left_out(nvml) -> None:
    nvml.reasons["late"] = -1
    monitor = NvmlMonitor(GPUS)
    assert monitor.guards(["gpu:1"], 0.0) == {}
    monitor.stop()


def test_simulated_machines_and_machines_without_nvml_have_no_monitor(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert isinstance(monitor_for(GPUS), NoMonitor) and isinstance(monitor_for({}), NoMonitor)
    assert NoMonitor().guards(["gpu:0"], 0.0) == {}


def test_the_tally_counts_the_increase_of_counters(monkeypatch) -> None:
    def state(pci: str, crc: int, replays: int | str) -> dict[str, object]:
        return {"pci": pci, "nvlink_errors": {"crc_data": crc, "replay": 0}, "pcie_replays": replays}

    now = [state("0000:01:00.0", 5, 1), state("0000:02:00.0", 7, "hidden")]
    ticks = [{"total": 1000, "steal": 10}]
    monkeypatch.setattr("linkscope.machine.gpu_state.gpu_states", lambda: now)
    monkeypatch.setattr("linkscope.machine.environment.cpu_ticks", lambda: ticks[0])
    tally = Tally(GPUS)
    assert tally.gained() == {"cpu_steal": 0.0}
    now[:] = [state("0000:01:00.0", 5, 3), state("0000:02:00.0", 19, "hidden")]
    ticks[0] = {"total": 2000, "steal": 60}
    assert tally.gained() == {"cpu_steal": 0.05, "gpu:0": {"pcie_replays": 2}, "gpu:1": {"nvlink_crc_data": 12}}
    # a decreasing counter was reset and counts as no errors
    now[:] = [state("0000:01:00.0", 0, 0), state("0000:02:00.0", 0, "hidden")]
    assert tally.gained() == {"cpu_steal": 0.05}
