"""The doctor's checks of the host and of this process. Each yields severity, finding, reason and cure."""

from collections.abc import Mapping
from typing import Any

from linkscope.machine.facts import HIDDEN, Machine
from linkscope.machine.finding import Found, bad, info, warn

_LITTLE_LOCKED = 1 << 30
_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "pit")


def process(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Settings of this process's environment, and attached debuggers or profilers."""
    state = environment.get("process", {})
    variables = state.get("variables", {})
    if variables.get("CUDA_LAUNCH_BLOCKING", "0") not in ("0", ""):
        yield bad(
            "CUDA_LAUNCH_BLOCKING is set",
            "every launch waits: copies cannot be timed behind a gate",
            "unset CUDA_LAUNCH_BLOCKING",
        )
    for name in state.get("profiler", ()):
        yield warn(
            f"a profiler is attached ({name})",
            "it slows down calls, and copies are timed without a gate",
            "measure without it",
        )
    if state.get("traced") is True:
        yield warn("a debugger or tracer is attached", "every system call takes longer", "measure without it")
    if variables.get("CUDA_VISIBLE_DEVICES") is not None:
        yield info(
            f"CUDA_VISIBLE_DEVICES is {variables['CUDA_VISIBLE_DEVICES']!r}",
            "only these GPUs are measured, numbered from 0",
            "unset it to measure all",
        )


def cpu(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Clocks, load, stolen time."""
    state = environment.get("cpu", {})
    governor = state.get("governor", HIDDEN)
    if governor not in (HIDDEN, "performance"):
        yield warn(
            f"the CPU frequency governor is {governor}",
            "copies by the CPU, and all calls, vary with its clock",
            "an administrator: cpupower frequency-set -g performance",
        )
    clock = environment.get("system", {}).get("clock_source")
    if clock in _SLOW_CLOCKS:
        yield bad(
            f"the clock source is {clock}",
            "reading the time takes microseconds",
            "find out why the kernel distrusts the TSC (dmesg), boot with tsc=reliable if it may be trusted",
        )
    load = state.get("load_1min")
    if isinstance(load, float) and load > max(1.0, machine.cpu.threads / 4):
        yield warn(
            f"the load is {load:g} on {machine.cpu.threads} CPUs",
            "other processes use memory and caches",
            "wait until they end",
        )
    steal = state.get("steal_since_boot")
    if isinstance(steal, float) and steal > 0.01:
        found = warn if steal <= 0.05 else bad
        yield found(
            f"{steal:.1%} of the CPU time was stolen since boot",
            "the hypervisor runs other guests on these CPUs: times have long tails",
            "ask for dedicated CPUs",
        )


def memory(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Memory: placement, page sizes, limits on locking."""
    state = environment.get("memory", {})
    if len(machine.numa) > 1 and isinstance(state.get("numa_balancing"), int) and state["numa_balancing"]:
        yield warn(
            "NUMA balancing is on",
            "the kernel moves pages between nodes while they are measured",
            "an administrator: sysctl kernel.numa_balancing=0",
        )
    if state.get("huge_pages") == 0:
        yield info(
            "no huge pages are reserved",
            "huge-page buffers cannot be measured, and pinning takes longer",
            "an administrator: sysctl vm.nr_hugepages=512",
        )
    if state.get("thp") == "never":
        yield info(
            "transparent huge pages are off",
            "large pageable buffers cost more",
            "an administrator: echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
        )
    locked = state.get("locked_limit")
    if isinstance(locked, int) and locked < _LITTLE_LOCKED:
        yield warn(
            f"this process may lock {locked / 2**20:g} MiB of memory only",
            "CUDA pins without it, but network cards, io_uring and MPI do not",
            "ulimit -l unlimited (in /etc/security/limits.conf, or LimitMEMLOCK of the service)",
        )
    limit = state.get("cgroup_limit")
    if isinstance(limit, int) and machine.memory_bytes and limit < machine.memory_bytes / 2:
        yield info(
            f"this container may use {limit / 2**30:.4g} of {machine.memory_bytes / 2**30:.4g} GiB",
            "large buffers on several GPUs may not fit",
            "give it more memory, or measure smaller sizes",
        )
    used = state.get("swap_used")
    if isinstance(used, int) and used > 2**30:
        yield info(
            f"{used / 2**30:.3g} GiB are swapped out",
            "pageable memory may come from disk",
            "free memory first",
        )


def sandbox(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Hidden parts of the machine, and virtualisation."""
    state = environment.get("sandbox", {})
    if any(hidden.fact == "numa" for hidden in machine.hidden):
        why = next(hidden.why for hidden in machine.hidden if hidden.fact == "numa")
        yield info(
            f"NUMA is hidden: {why}",
            "which memory is near which GPU cannot be seen or chosen",
            "measure on the host, or have the hypervisor pass its topology on",
        )
    if state.get("kernel") == "gvisor":
        yield warn(
            "this is gVisor, not Linux",
            "every system call takes a detour; counters and profilers do not work",
            "measure outside the sandbox, or compare only with runs inside it",
        )
    if environment.get("system", {}).get("iommu") == "translating":
        yield info(
            "the IOMMU translates the addresses of devices",
            "peer access over PCIe may be slow or off",
            "an administrator: boot with iommu=pt",
        )


CHECKS = (process, cpu, memory, sandbox)
