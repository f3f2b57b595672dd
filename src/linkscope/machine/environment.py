"""Settings and state of this computer that may spoil or explain a measurement, for the first line of a run file.

Unknown values are "hidden". Read-only. Memory in bytes, clocks in MHz, power in W, shares between 0 and 1.
"""

import os
import re
from collections.abc import Mapping
from typing import Any

from linkscope.machine.facts import HIDDEN
from linkscope.machine.gpu_state import gpu_states
from linkscope.machine.sandbox import sandbox
from linkscope.machine.sysfs import Files, chosen, parse_kib, parse_list

_CPU = "/sys/devices/system/cpu"
# Larger values of a cgroup (v1) or a limit mean "none".
_NO_LIMIT = 1 << 60
_VARIABLES = re.compile(
    r"(CUDA|NCCL|NVSHMEM|UCX|NIXL|NVIDIA)_|(OMP_NUM_THREADS|GOMP_CPU_AFFINITY|MALLOC_ARENA_MAX|LD_PRELOAD)$"
)
# Only variables that change times: a command line may hold private data.
_KERNEL_OPTIONS = re.compile(
    r"(?<!\S)(?:mitigations|isolcpus|nohz_full|rcu_nocbs|iommu|iommu\.passthrough|intel_iommu|amd_iommu|"
    r"processor\.max_cstate|intel_idle\.max_cstate|pci|pcie_aspm|numa|tsc)=\S+"
)
# Set by profilers and debuggers to enter a process.
_INJECTIONS = (
    "CUDA_INJECTION64_PATH",
    "NVTX_INJECTION64_PATH",
    "NSYS_PROFILING_SESSION_ID",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR",
)
_PCI, _BRIDGE = "/sys/bus/pci/devices", "0x0604"
# PCI Express Base Specification 7.7.11: extended capabilities begin at 0x100, ACS is number 0x000D, and bits 2 and 3 of
# its control word redirect peer requests and completions.
_EXTENDED, _ACS, _ACS_REDIRECTS = 0x100, 0x000D, 0b1100
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD", re.IGNORECASE)


def environment(files: Files | None = None, variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The environment. `files` replays another machine's files, `variables` replaces the variables of this process."""
    files = files or Files()
    variables = os.environ if variables is None else variables
    states = gpu_states()
    return {
        "system": _system(files),
        "cpu": _cpu(files),
        "memory": _memory(files),
        "sandbox": sandbox(files),
        "process": _process(files, variables),
        "gpus": states if isinstance(states, list) else [],
        "gpus_why_not": "" if isinstance(states, list) else states,
    }


def cpu_ticks(files: Files | None = None) -> dict[str, int] | None:
    """Clock ticks of all CPUs since boot, for `steal_share` of two readings; None if hidden."""
    line = re.search(r"(?m)^cpu +([\d ]+)$", (files or Files()).text("/proc/stat") or "")
    numbers = [int(word) for word in line[1].split()] if line else []
    if len(numbers) < 8:
        return None
    # user nice system idle iowait irq softirq steal; user time includes guest time
    return {"total": sum(numbers[:8]), "steal": numbers[7]}


def steal_share(before: Mapping[str, int], after: Mapping[str, int]) -> float:
    """The share of CPU time that the hypervisor gave to others between two readings of `cpu_ticks`."""
    total = after["total"] - before["total"]
    return (after["steal"] - before["steal"]) / total if total > 0 else 0.0


def _system(files: Files) -> dict[str, Any]:
    name = re.search(r'(?m)^PRETTY_NAME="?([^"\n]*)', files.text("/etc/os-release") or "")
    command_line = files.text("/proc/cmdline") or ""
    return {
        "kernel": _known(files.text("/proc/sys/kernel/osrelease")),
        "os": name[1] if name else HIDDEN,
        "clock_source": _known(files.text("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        "iommu": _iommu(files, command_line),
        "acs_redirecting": acs_redirecting(files),
        "aslr": _known(files.whole("/proc/sys/kernel/randomize_va_space")),
        "kernel_options": _KERNEL_OPTIONS.findall(command_line),
    }


def _iommu(files: Files, command_line: str) -> str:
    """off, passthrough, translating, or hidden."""
    if not files.names("/sys/class/iommu"):
        return "off" if files.names("/sys/class") else HIDDEN
    types = {files.text(f"/sys/kernel/iommu_groups/{group}/type") for group in files.names("/sys/kernel/iommu_groups")}
    types.discard(None)
    if types:
        return "passthrough" if types == {"identity"} else "translating"
    return "passthrough" if re.search(r"\biommu(\.passthrough)?=(pt|1)\b", command_line) else "translating"


def acs_redirecting(files: Files) -> list[str]:
    """PCIe bridges whose Access Control Services redirect peer requests or completions. Empty if none does, or if
    reading the extended configuration needs root."""
    return [
        device for device in files.names(_PCI)
        if (files.text(f"{_PCI}/{device}/class") or "").startswith(_BRIDGE)
        and _acs_control(bytes.fromhex(files.hex(f"{_PCI}/{device}/config") or "")) & _ACS_REDIRECTS
    ]  # fmt: skip


def _acs_control(config: bytes) -> int:
    """The control word of the ACS capability in a configuration space of 4096 B; 0 without it."""
    at = _EXTENDED
    while _EXTENDED <= at <= len(config) - 8:
        header = int.from_bytes(config[at : at + 4], "little")
        if header & 0xFFFF == _ACS:
            return int.from_bytes(config[at + 6 : at + 8], "little")
        following = header >> 20
        if following <= at:  # the end, or a damaged list
            return 0
        at = following
    return 0


def _cpu(files: Files) -> dict[str, Any]:
    policies = files.names(f"{_CPU}/cpufreq")
    governors = {files.text(f"{_CPU}/cpufreq/{policy}/scaling_governor") for policy in policies}
    load = re.match(r"([\d.]+) ([\d.]+)", files.text("/proc/loadavg") or "")
    ticks = cpu_ticks(files)
    return {
        "governor": ",".join(sorted(name for name in governors if name)) or HIDDEN,
        "turbo": _turbo(files),
        "smt": _known(files.text(f"{_CPU}/smt/control")),
        "isolated": list(parse_list(files.text(f"{_CPU}/isolated"))),
        "allowed": _known(_status(files, "Cpus_allowed_list")),
        "deepest_idle_state": _deepest_idle_state(files),
        "load_1min": float(load[1]) if load else HIDDEN,
        "steal_since_boot": round(ticks["steal"] / ticks["total"], 6) if ticks and ticks["total"] else HIDDEN,
    }


def _turbo(files: Files) -> str:
    no_turbo = files.whole(f"{_CPU}/intel_pstate/no_turbo")
    boost = files.whole(f"{_CPU}/cpufreq/boost")
    if no_turbo is not None:
        return "off" if no_turbo else "on"
    return HIDDEN if boost is None else ("on" if boost else "off")


def _deepest_idle_state(files: Files) -> str:
    folder = f"{_CPU}/cpu0/cpuidle"
    enabled = [state for state in files.names(folder) if files.whole(f"{folder}/{state}/disable") != 1]
    return _known(files.text(f"{folder}/{max(enabled)}/name")) if enabled else HIDDEN


def _memory(files: Files) -> dict[str, Any]:
    info = files.text("/proc/meminfo")
    page = parse_kib(info, "Hugepagesize")
    total = re.search(r"(?m)^HugePages_Total:\s*(\d+)", info or "")
    swap, free = parse_kib(info, "SwapTotal"), parse_kib(info, "SwapFree")
    return {
        "thp": _known(chosen(files.text("/sys/kernel/mm/transparent_hugepage/enabled"))),
        "thp_defrag": _known(chosen(files.text("/sys/kernel/mm/transparent_hugepage/defrag"))),
        "huge_page_bytes": _known(page),
        "huge_pages": int(total[1]) if total else HIDDEN,
        "numa_balancing": _known(files.whole("/proc/sys/kernel/numa_balancing")),
        "available": _known(parse_kib(info, "MemAvailable")),
        "swap_total": _known(swap),
        "swap_used": HIDDEN if swap is None or free is None else swap - free,
        "cgroup_limit": _cgroup_limit(files),
        "locked_limit": _locked_limit(files),
        "shm_bytes": _shared_memory(files),
    }


def _cgroup_limit(files: Files) -> int | str | None:
    """Bytes that this process's memory group may use; None: no limit."""
    groups = files.text("/proc/self/cgroup") or ""
    found: list[int] = []
    unlimited = False
    for line in groups.splitlines():
        _, controllers, group = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        if controllers == "":
            names = [f"/sys/fs/cgroup{group.rstrip('/')}/memory.max", "/sys/fs/cgroup/memory.max"]
        elif "memory" in controllers.split(","):
            base = "/sys/fs/cgroup/memory"
            # In a container the path of the group is that of the host, and the files are at the top.
            names = [f"{base}{group.rstrip('/')}/memory.limit_in_bytes", f"{base}/memory.limit_in_bytes"]
        else:
            continue
        texts = [text for text in map(files.text, names) if text]
        found += [int(text) for text in texts if text.isdigit() and int(text) < _NO_LIMIT]
        unlimited |= bool(texts)
    if found:
        return min(found)
    return None if unlimited or not groups else HIDDEN


def _locked_limit(files: Files) -> int | str | None:
    """Bytes that this process may lock; None: no limit."""
    match = re.search(r"(?m)^Max locked memory\s+(\S+)", files.text("/proc/self/limits") or "")
    if not match:
        return HIDDEN
    return None if match[1] == "unlimited" else int(match[1])


def _shared_memory(files: Files) -> int | str:
    """Bytes of /dev/shm on this machine."""
    if not files.is_here:
        return HIDDEN
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return HIDDEN
    return found.f_blocks * found.f_frsize


def _closed_devices(files: Files) -> list[str]:
    """The driver's device files on this machine that this user may not open for reading and writing."""
    if not files.is_here:
        return []
    found = (f"/dev/{name}" for name in files.names("/dev") if re.fullmatch(r"nvidia(\d+|ctl|-uvm)", name))
    return [path for path in found if not os.access(path, os.R_OK | os.W_OK)]


def _process(files: Files, variables: Mapping[str, str]) -> dict[str, Any]:
    tracer = _status(files, "TracerPid")
    kept = sorted(name for name in variables if _VARIABLES.match(name) and not _SECRET.search(name))
    return {
        "variables": {name: variables[name] for name in kept},
        "closed_devices": _closed_devices(files),
        "profiler": sorted(name for name in _INJECTIONS if variables.get(name)),
        "traced": HIDDEN if tracer is None else tracer != "0",
    }


def _status(files: Files, key: str) -> str | None:
    match = re.search(rf"(?m)^{key}:\s*(\S+)", files.text("/proc/self/status") or "")
    return match[1] if match else None


def _known(value: Any) -> Any:
    return HIDDEN if value is None else value
