"""Detects the parts of this machine. Hidden facts are listed as hidden and never guessed."""

import re
from collections.abc import Mapping
from typing import Any

from linkscope.machine.facts import Cpu, Driver, Gpu, Hidden, Machine
from linkscope.machine.gpus import Merged
from linkscope.machine.host import nvidia_gpus, read_cpu, read_memory, read_nodes, runs_under_hypervisor
from linkscope.machine.nvml_facts import NvmlReading, read_nvml
from linkscope.machine.pairs import pairs_of
from linkscope.machine.sysfs import Files

NOT_ASKED = "the CUDA driver was not asked"


def probe(
    driver: Mapping[str, Any] | None = None, *, files: Files | None = None, nvml: NvmlReading | None = None
) -> Machine:
    """This machine.

    `driver` is the worker's answer to `open` on the platform cuda, under "driver" (docs/reference/worker.md). Without
    it the GPUs are those that NVML shows, and facts that only CUDA knows are hidden. `files` and `nvml` replay an
    earlier reading.
    """
    files = files or Files()
    nvml = nvml if nvml is not None else read_nvml()
    cpu = read_cpu(files)
    in_vm = runs_under_hypervisor(files, cpu)
    nodes, shown = read_nodes(files, cpu.threads, _gpu_nodes(driver))
    cuda_why = NOT_ASKED if driver is None else str(driver.get("why_not") or "")
    merged = Merged(files, nodes, nvml, in_vm)
    merged.add(None if driver is None else driver.get("gpus", ()), cuda_why or "the CUDA driver does not know it")
    known = {gpu.pci for gpu in merged.gpus}
    return Machine(
        name=_name(merged.gpus, cpu),
        cpu=cpu,
        memory_bytes=read_memory(files),
        numa=nodes,
        gpus=merged.gpus,
        pairs=pairs_of(merged.gpus, nvml.pairs, driver, (driver or {}).get("peers", ())),
        driver=_driver(driver, nvml, cuda_why),
        hypervisor=in_vm,
        pci_gpus=nvidia_gpus(files),
        lost=tuple(gpu.pci or gpu.uuid or "of unknown bus id" for gpu in nvml.gpus if gpu.lost),
        unused=tuple(gpu.uuid or gpu.pci or "?" for gpu in nvml.gpus if not gpu.lost and gpu.pci not in known),
        hidden=(*_hidden_host(cpu, shown, len(nodes), in_vm), *merged.hidden),
    )


def _gpu_nodes(driver: Mapping[str, Any] | None) -> set[int]:
    """NUMA nodes that are GPU memory (POWER9, Grace); -1: not a node."""
    ids = (gpu.get("attributes", {}).get("NUMA_ID", -1) for gpu in (driver or {}).get("gpus", ()))
    return {number for number in ids if number > 0}


def _driver(driver: Mapping[str, Any] | None, nvml: NvmlReading, cuda_why: str) -> Driver:
    version = (driver or {}).get("version") or nvml.cuda_version
    return Driver(
        version=nvml.driver_version,
        cuda_version=f"{version // 1000}.{version % 1000 // 10}" if version else None,
        nvml_version=nvml.nvml_version,
        cuda_why_not=cuda_why,
        nvml_why_not=nvml.why_not,
    )


def _hidden_host(cpu: Cpu, shown: bool, nodes: int, in_vm: bool | None) -> list[Hidden]:
    hidden = []
    if not shown:
        hidden.append(Hidden("numa", "the kernel shows no NUMA nodes (/sys/devices/system/node); one stands for all"))
    elif in_vm and nodes == 1:
        hidden.append(Hidden("numa", "a virtual machine with one node: the host's nodes are not visible"))
    for fact, value in (("cpu.model", cpu.model), ("cpu.sockets", cpu.sockets), ("cpu.cores", cpu.cores)):
        if value is None:
            hidden.append(Hidden(fact, "neither /proc/cpuinfo nor /sys/devices/system/cpu shows it"))
    if cpu.cache_bytes is None:
        hidden.append(Hidden("cpu.cache_bytes", "/sys/devices/system/cpu/cpu0/cache shows no cache"))
    return hidden


def _name(gpus: tuple[Gpu, ...], cpu: Cpu) -> str:
    """'4x-nvidia-h200', or 'amd-epyc-2cpu' for a host without GPUs; used in file names, so it does not identify the
    owner."""
    if gpus:
        kinds = sorted({gpu.name or "gpu" for gpu in gpus})
        return "-".join(_slug(f"{sum((gpu.name or 'gpu') == kind for gpu in gpus)}x-{kind}") for kind in kinds)
    return _slug(f"{cpu.model or cpu.architecture or 'host'}-{cpu.threads}cpu")


def _slug(text: str) -> str:
    words = re.sub(r"\((R|TM)\)|@.*?(?=-\d+cpu|$)", "", text, flags=re.IGNORECASE)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")
