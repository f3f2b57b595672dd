"""`doctor` finds every ailment, names its cure, and finds nothing on a healthy machine."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

import machine_fakes as fakes
from linkscope.cli.doctor import next_step
from linkscope.machine.doctor import Finding, exit_code, findings, worst
from linkscope.machine.environment import environment
from linkscope.machine.nvml_facts import read_nvml
from linkscope.machine.probe import probe
from linkscope.machine.sysfs import Files

HEALTHY = {
    **fakes.two_nodes(numa=(0, 0, 1, 1)),
    "/proc/self/limits": "Max locked memory  unlimited  unlimited  bytes",
    "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor": "performance",
    "/proc/sys/kernel/numa_balancing": "0",
    "/proc/loadavg": "0.10 0.20 0.30 1/2 3",
    "/proc/stat": "cpu  50 0 0 50 0 0 0 0 0 0",
}


@pytest.fixture
def examine(monkeypatch):
    def examined(texts=(), variables=None, driver=None, **settings):
        fakes.play(monkeypatch, fakes.FakeNvml(**settings))
        files = Files.replay({**HEALTHY, **dict(texts)}, fakes.lists_of({**HEALTHY, **dict(texts)}))
        machine = probe(fakes.driver() if driver is None else driver, files=files, nvml=read_nvml())
        return findings(machine, environment(files, variables or {}))

    return examined


def test_a_healthy_machine_has_no_findings(examine):
    found = examine()
    assert found == [] and worst(found) is None and exit_code(found) == 0


def answers(**each):
    return {"answers": {f"nvmlDeviceGet{name}": answer for name, answer in each.items()}}


IDLE_PCIE = {"CurrPcieLinkGeneration": 1, "MaxPcieLinkGeneration": 5}
CPUFREQ = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"
THP = "/sys/kernel/mm/transparent_hugepage/enabled"
NOTHING_VISIBLE = {
    "driver_present": False, "version": 13000, "gpus": [],
    "why_not": "the CUDA driver does not start: CUDA_ERROR_NO_DEVICE (no CUDA-capable device is detected)",
}  # fmt: skip
DAMAGED = {
    "driver_present": False, "version": 0, "gpus": [],
    "why_not": "the CUDA driver cannot be loaded: /lib/libcuda.so.1: file too short",
}  # fmt: skip
DRIVER = {"driver_present": False, "version": 11040, "why_not": "the CUDA driver is too old", "gpus": []}


@pytest.mark.parametrize(
    ("settings", "severity", "words"),
    [
        (answers(CurrPcieLinkWidth=8), "bad", "x8, it could be x16"),
        (answers(**IDLE_PCIE), "info", "generation 1, it could be 5 (the GPU is idle)"),
        (answers(**IDLE_PCIE, CurrentClocksThrottleReasons=0), "warn", "generation 1, it could be 5"),
        (answers(PcieReplayCounter=4711), "warn", "4711 PCIe packets"),
        (answers(NvLinkState=lambda gpu, link: int(link != 5)), "bad", "NVLink 5 of 18 is down"),
        (answers(NvLinkState=lambda gpu, link: 0), "warn", "all 18 NVLinks are down"),
        (answers(NvLinkErrorCounter=lambda gpu, link, kind: 1), "warn", "NVLink errors: 18 crc_data"),
        (answers(TotalEccErrors=lambda gpu, kind, counter: 3), "bad", "3 memory errors"),
        (answers(RemappedRows=lambda gpu: (0, 1, 1, 0)), "bad", "waits to be replaced"),
        (answers(RemappedRows=lambda gpu: (0, 1, 0, 1)), "bad", "could not be replaced"),
        (answers(CurrentClocksThrottleReasons=0x48), "bad", "slowed down: hw_slowdown, hw_thermal"),
        (answers(CurrentClocksThrottleReasons=0x4), "warn", "at its power limit"),
        (answers(ComputeMode=2), "bad", "prohibited mode"),
        (answers(ComputeMode=3), "warn", "exclusive mode"),
        (answers(MigMode=lambda gpu: [1, 1]), "warn", "MIG"),
        (answers(PersistenceMode=0), "info", "persistence mode is off"),
        (answers(ComputeRunningProcesses=lambda gpu: [SimpleNamespace(pid=1 << 30)] * 2), "warn", "2 other processes"),
        ({"lost": (0,)}, "bad", "is lost"),
        ({"init": fakes.MISMATCH}, "bad", "different versions"),
        ({"init": fakes.LIBRARY_NOT_FOUND}, "warn", "libnvidia-ml.so.1"),
        ({"answers": {"nvmlSystemGetDriverVersion": "470.82.01"}}, "bad", "470.82.01 is too old"),
        ({"driver": DRIVER}, "bad", "CUDA does not work: the CUDA driver is too old"),
        ({"driver": NOTHING_VISIBLE}, "bad", "CUDA does not work: the CUDA driver does not start"),
        ({"driver": DAMAGED}, "bad", "CUDA does not work: the CUDA driver cannot be loaded"),
        ({"driver": fakes.driver(order=[1])}, "info", "does not show 3 of the GPUs"),
        ({"variables": {"CUDA_LAUNCH_BLOCKING": "1"}}, "bad", "CUDA_LAUNCH_BLOCKING"),
        ({"variables": {"CUDA_VISIBLE_DEVICES": "1,2"}}, "info", "'1,2'"),
        ({"variables": {"CUDA_INJECTION64_PATH": "/x"}}, "warn", "profiler is attached (CUDA_INJECTION64_PATH)"),
        ({"texts": {"/proc/self/status": "TracerPid: 7"}}, "warn", "debugger or tracer"),
        ({"texts": {CPUFREQ: "powersave"}}, "warn", "governor is powersave"),
        ({"texts": {"/sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet"}}, "bad", "hpet"),
        ({"texts": {"/proc/loadavg": "9.00 1 1 1/1 1"}}, "warn", "load is 9 on 16 CPUs"),
        ({"texts": {"/proc/stat": "cpu  50 0 0 48 0 0 0 2 0 0"}}, "warn", "2.0% of the CPU time was stolen"),
        ({"texts": {"/proc/stat": "cpu  50 0 0 30 0 0 0 20 0 0"}}, "bad", "20.0% of the CPU time was stolen"),
        ({"texts": {"/proc/sys/kernel/numa_balancing": "1"}}, "warn", "NUMA balancing is on"),
        ({"texts": {"/proc/meminfo": "MemTotal: 99999999 kB\nHugePages_Total: 0"}}, "info", "no huge pages"),
        ({"texts": {THP: "always madvise [never]"}}, "info", "huge pages are off"),
        ({"texts": {"/proc/self/limits": "Max locked memory  65536  65536  bytes"}}, "warn", "lock 0.0625 MiB"),
        ({"texts": {"/proc/self/cgroup": "0::/", "/sys/fs/cgroup/memory.max": f"{1 << 30}"}}, "info", "1 of 512 GiB"),
        ({"texts": {"/proc/meminfo": "SwapTotal: 8388608 kB\nSwapFree: 0 kB"}}, "info", "8 GiB are swapped out"),
        ({"texts": {"/proc/version": "Linux version 4.4.0 gVisor"}}, "warn", "gVisor"),
        ({"texts": {"/sys/class/iommu/dmar0": "x"}}, "info", "IOMMU translates"),
        ({"texts": {"/sys/devices/system/node/has_memory": ""}}, "info", "NUMA is hidden"),
    ],
)  # fmt: skip
def test_every_ailment_is_found(settings, severity, words, examine):
    found = examine(**settings)
    matching = [finding for finding in found if words in finding.what]
    assert matching and {finding.severity for finding in matching} == {severity}
    assert all(finding.why and finding.cure for finding in found)
    assert exit_code(found) == int(worst(found) == "bad")


@pytest.mark.parametrize("variables", [{"CUDA_VISIBLE_DEVICES": ""}, {}])
def test_the_cure_for_a_driver_that_shows_no_gpu_is_the_variable_that_hides_them(variables, examine):
    [found] = [one for one in examine(driver=NOTHING_VISIBLE, variables=variables) if "does not start" in one.what]
    assert ("unset CUDA_VISIBLE_DEVICES" in found.cure) == bool(variables) == ("repair" not in found.cure)


def test_a_damaged_driver_is_not_taken_for_an_absent_one(tmp_path):
    (tmp_path / "libcuda.so.1").write_text("no library")
    code = "from linkscope.run.worker import driver_facts; print(driver_facts()['why_not'])"
    found = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"LD_LIBRARY_PATH": str(tmp_path)}, capture_output=True,
        text=True, check=True,
    )  # fmt: skip
    assert found.stdout.startswith(f"the CUDA driver cannot be loaded: {tmp_path}/libcuda.so.1: ")


def test_a_host_without_gpus_is_reported(monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(init=fakes.LIBRARY_NOT_FOUND))
    machine = probe(files=Files.replay(fakes.gvisor(), {}), nvml=read_nvml())
    found = findings(machine, environment(Files.replay({}, {}), {}))
    assert "there is no NVIDIA GPU here" in [finding.what for finding in found] and exit_code(found) == 0


def test_a_broken_driver_is_reported_on_a_bus_that_hides_its_gpus(monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(init=fakes.MISMATCH))
    machine = probe(files=Files.replay(fakes.gvisor(), {}), nvml=read_nvml())
    found = findings(machine, environment(Files.replay({}, {}), {}))
    assert "different versions" in found[0].what and exit_code(found) == 1


def test_the_worst_finding_comes_first_and_has_three_lines(examine):
    found = examine(variables={"CUDA_LAUNCH_BLOCKING": "1", "CUDA_VISIBLE_DEVICES": "0"}, **answers(ComputeMode=3))
    assert [finding.severity for finding in found] == ["bad", "warn", "warn", "warn", "warn", "info"]
    text = str(Finding("bad", "A is so", "B suffers", "do C")).splitlines()
    assert text == ["bad: A is so", "  why it matters: B suffers", "  what to do: do C"]


def test_the_last_line_says_what_to_mend_first_and_what_to_run_then():
    of = {severity: Finding(severity, "A is so", "B suffers", "do C") for severity in ("bad", "warn", "info")}
    bad = next_step([of["bad"], of["warn"]], has_gpu=True)
    assert "mend 1 bad setting" in bad and bad.endswith(
        "`linkscope run --suite quick --report map.html` for a first map of this machine."
    )
    assert "mend 2 settings marked warn" in next_step([of["warn"], of["warn"], of["info"]], has_gpu=True)
    assert "mend" not in next_step([of["info"]], has_gpu=True)
    assert "--machine h200x4" in next_step([], has_gpu=False)


def test_doctor_runs_on_this_machine():
    assert all(isinstance(finding, Finding) for finding in findings(probe(), environment()))
