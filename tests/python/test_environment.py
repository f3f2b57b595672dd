"""Influences on a measurement, as the first line of a run file records them."""

import json
import os
import time
from types import SimpleNamespace

import pytest

import machine_fakes as fakes
from linkscope.machine.environment import cpu_ticks, environment, steal_share
from linkscope.machine.gpu_state import gpu_states, reasons_of
from linkscope.machine.sysfs import Files

CPU = "/sys/devices/system/cpu"


def seen(texts, variables=None):
    return environment(Files.replay(texts, fakes.lists_of(texts)), variables or {})


@pytest.fixture(autouse=True)
def no_nvml(monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(init=fakes.LIBRARY_NOT_FOUND))


def test_the_environment_of_this_machine_is_read_quickly_and_is_plain_json():
    environment()
    began = time.process_time()  # the CPU time of this process, because others run here too
    found = environment()
    took = time.process_time() - began
    assert json.loads(json.dumps(found)) == found
    assert found["system"]["kernel"] != "hidden" and found["gpus"] == [] and "libnvidia-ml" in found["gpus_why_not"]
    assert took < 0.5  # 0.02 s on an idle machine


def test_a_machine_that_hides_everything_is_accepted():
    found = seen({})
    assert found["cpu"]["governor"] == found["memory"]["thp"] == found["system"]["iommu"] == "hidden"
    assert found["memory"]["locked_limit"] == found["cpu"]["steal_since_boot"] == found["process"]["traced"] == "hidden"


def test_clocks_and_cpus_are_recorded():
    found = seen({
        f"{CPU}/cpufreq/policy0/scaling_governor": "powersave",
        f"{CPU}/cpufreq/policy1/scaling_governor": "performance",
        f"{CPU}/intel_pstate/no_turbo": "1", f"{CPU}/smt/control": "on", f"{CPU}/isolated": "4-6",
        "/proc/loadavg": "3.50 2.00 1.00 1/234 5678", "/proc/stat": "cpu  50 0 0 40 0 0 0 10 0 0\ncpu0 1 2",
        f"{CPU}/cpu0/cpuidle/state0/name": "POLL", f"{CPU}/cpu0/cpuidle/state1/name": "C6",
        f"{CPU}/cpu0/cpuidle/state1/disable": "0",
    })["cpu"]  # fmt: skip
    assert found["governor"] == "performance,powersave" and found["turbo"] == "off" and found["isolated"] == [4, 5, 6]
    assert (found["load_1min"], found["steal_since_boot"], found["deepest_idle_state"]) == (3.5, 0.1, "C6")
    assert seen({f"{CPU}/cpufreq/boost": "1"})["cpu"]["turbo"] == "on"


def test_stolen_time_is_the_difference_of_two_readings():
    def ticks(line):
        return cpu_ticks(Files.replay({"/proc/stat": line}, {}))

    before, after = ticks("cpu  100 0 0 100 0 0 0 0 0 0"), ticks("cpu  150 0 0 140 0 0 0 10 0 0")
    assert steal_share(before, after) == 0.1 and steal_share(after, after) == 0.0
    assert ticks("cpu 1 2") is None and cpu_ticks() is not None


def test_memory_settings_are_recorded():
    found = seen({
        "/proc/meminfo": "SwapTotal: 100 kB\nSwapFree: 40 kB\nHugePages_Total:   12\nHugepagesize: 2048 kB",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/proc/sys/kernel/numa_balancing": "1",
        "/proc/self/limits": "Max locked memory         8388608              8388608              bytes",
    })["memory"]  # fmt: skip
    assert found["thp"] == "madvise" and found["numa_balancing"] == 1 and found["swap_used"] == 60 << 10
    assert (found["huge_pages"], found["huge_page_bytes"], found["locked_limit"]) == (12, 2 << 20, 8 << 20)
    no_limit = {"/proc/self/limits": "Max locked memory  unlimited  unlimited  bytes"}
    assert seen(no_limit)["memory"]["locked_limit"] is None


@pytest.mark.parametrize(
    ("texts", "limit"),
    [
        ({"/proc/self/cgroup": "0::/a/b", "/sys/fs/cgroup/a/b/memory.max": "1073741824"}, 1 << 30),
        ({"/proc/self/cgroup": "0::/a/b", "/sys/fs/cgroup/memory.max": "max"}, None),
        ({"/proc/self/cgroup": "4:memory:/x", "/sys/fs/cgroup/memory/memory.limit_in_bytes": "4096"}, 4096),
        (
            {"/proc/self/cgroup": "4:memory:/", "/sys/fs/cgroup/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}"},
            None,
        ),
        ({"/proc/self/cgroup": "0::/a"}, "hidden"),
        ({"/proc/self/cgroup": "nonsense"}, "hidden"),
        ({}, None),
    ],
)
def test_the_memory_limit_of_a_container_is_recorded(texts, limit):
    assert seen(texts)["memory"]["cgroup_limit"] == limit


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        ({"/sys/class/net/lo": ""}, "off"),
        ({"/sys/class/iommu/dmar0": "", "/sys/kernel/iommu_groups/0/type": "identity"}, "passthrough"),
        ({"/sys/class/iommu/dmar0": "", "/sys/kernel/iommu_groups/0/type": "DMA-FQ"}, "translating"),
        ({"/sys/class/iommu/dmar0": "", "/proc/cmdline": "quiet iommu=pt"}, "passthrough"),
        ({"/sys/class/iommu/dmar0": ""}, "translating"),
    ],
)
def test_the_iommu_mode_is_recorded(texts, what):
    assert seen(texts)["system"]["iommu"] == what


def test_private_kernel_options_are_left_out():
    options = seen({"/proc/cmdline": "root=UUID=1-2 token=abc isolcpus=2-3 mitigations=off x.iommu=pt"})["system"]
    assert options["kernel_options"] == ["isolcpus=2-3", "mitigations=off"]


@pytest.mark.parametrize(
    ("texts", "what"),
    [
        (fakes.two_nodes(), {"hypervisor": "none", "container": "none", "kernel": "linux"}),
        (fakes.virtual_machine(), {"hypervisor": "firecracker", "container": "none", "kernel": "linux"}),
        (fakes.power9(), {"hypervisor": "hidden", "container": "none", "kernel": "linux"}),
        (fakes.gvisor(), {"hypervisor": "none", "container": "none", "kernel": "gvisor"}),
        ({**fakes.virtual_machine(), "/proc/sys/kernel/osrelease": "6.1", "/sys/class/dmi/id/sys_vendor": "QEMU"},
         {"hypervisor": "kvm", "container": "none", "kernel": "linux"}),
        ({**fakes.power9(), "/sys/class/dmi/id/product_name": "KVM Virtual Machine"},
         {"hypervisor": "kvm", "container": "none", "kernel": "linux"}),
        ({**fakes.two_nodes(), "/proc/1/cgroup": "0::/kubepods/besteffort/pod1"},
         {"hypervisor": "none", "container": "kubepods", "kernel": "linux"}),
        ({**fakes.two_nodes(), "/.dockerenv": "x"}, {"hypervisor": "none", "container": "docker", "kernel": "linux"}),
    ],
)  # fmt: skip
def test_the_sandbox_is_recorded(texts, what):
    lists = fakes.lists_of(texts)
    assert environment(Files.replay(texts, lists), {})["sandbox"] == what


def test_relevant_variables_are_recorded_without_secrets():
    variables = {"CUDA_VISIBLE_DEVICES": "1", "NCCL_NVLS_ENABLE": "0", "HOME": "/root", "LD_PRELOAD": "x.so",
                 "NVIDIA_API_KEY": "s3cret", "CUDA_INJECTION64_PATH": "/opt/nsys.so"}  # fmt: skip
    found = seen({"/proc/self/status": "Name:\tpython\nTracerPid:\t42"}, variables)["process"]
    assert found["variables"].keys() == variables.keys() - {"HOME", "NVIDIA_API_KEY"}
    assert found["profiler"] == ["CUDA_INJECTION64_PATH"] and found["traced"] is True


def test_the_states_of_gpus_are_recorded(monkeypatch):
    errors = {"nvmlDeviceGetNvLinkErrorCounter": lambda gpu, link, kind: int(kind == 0)}
    fakes.play(monkeypatch, fakes.FakeNvml(answers=errors))
    found = environment(variables={})
    assert [gpu["pci"] for gpu in found["gpus"]] == fakes.H200_PCI and found["gpus_why_not"] == ""
    gpu = found["gpus"][0]
    assert (gpu["sm_mhz"], gpu["sm_max_mhz"], gpu["power_w"], gpu["power_limit_w"]) == (345, 1980, 76.0, 700.0)
    assert gpu["throttle"] == ["gpu_idle"] and gpu["compute_mode"] == "default" and gpu["mig"] is False
    assert gpu["ecc"] is True and gpu["nvlink_errors"]["replay"] == 18 and gpu["nvlink_errors"]["crc_data"] == 0
    assert gpu["processes"] == 0 and gpu["lost"] is False


@pytest.mark.parametrize("function", fakes.FUNCTIONS)
def test_facts_that_nvml_refuses_are_hidden(function, monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(refuse={function: fakes.NOT_SUPPORTED}))
    states = gpu_states()
    assert isinstance(states, list) and json.loads(json.dumps(states)) == states


def test_a_lost_gpu_is_marked(monkeypatch):
    fakes.play(monkeypatch, fakes.FakeNvml(lost=(1,)))
    assert sorted(state["lost"] for state in gpu_states()) == [False, False, False, True]


def test_linkscopes_own_workers_are_no_foreign_processes(monkeypatch):
    running = [SimpleNamespace(pid=os.getpid()), SimpleNamespace(pid=1), SimpleNamespace(pid=1 << 30)]
    answers = {"nvmlDeviceGetComputeRunningProcesses": lambda gpu: running}
    fakes.play(monkeypatch, fakes.FakeNvml(gpus=1, answers=answers))
    assert gpu_states()[0]["processes"] == 2


def test_throttle_reasons_are_named():
    assert reasons_of(0) == [] and reasons_of(0x48) == ["hw_slowdown", "hw_thermal"]
