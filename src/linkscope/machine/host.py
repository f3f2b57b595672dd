"""The host's part of a machine: CPUs, caches, NUMA nodes, memory, and PCI devices."""

import re
from collections.abc import Collection

import msgspec

from linkscope.machine.facts import Cpu, HugePages, NumaNode
from linkscope.machine.sysfs import Files, parse_kib, parse_list

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
_PCI = "/sys/bus/pci/devices"
# Flags that affect copying, cache flushes and timing.
_FLAGS = re.findall(
    r"\w+",
    "sse2 avx2 avx512f amx_tile movdiri movdir64b erms fsrm clflush clflushopt clwb clzero rdtscp constant_tsc "
    "nonstop_tsc tsc_reliable hypervisor asimd sve sve2 dcpop dcpodp atomics",
)
_NVIDIA, _DISPLAY, _3D = "0x10de", "0x0300", "0x0302"
_PCIE_CAPABILITY = 0x10


def read_cpu(files: Files) -> Cpu:
    """The CPUs, from /proc/cpuinfo and /sys/devices/system/cpu."""
    info = files.text("/proc/cpuinfo") or ""
    online = parse_list(files.text(f"{_CPU}/online"))
    listed = len(re.findall(r"(?m)^processor\s*:", info))
    sockets, cores = _sockets_and_cores(files, info, online)
    cache, caches = _last_level_cache(files, online)
    return Cpu(
        model=_field(info, "model name", "cpu", "Model", "Hardware") or _arm_part(info),
        vendor=_field(info, "vendor_id") or _other_vendor(info),
        architecture=_architecture(files, info),
        sockets=sockets,
        cores=cores,
        threads=len(online) or listed or 1,
        flags=tuple(flag for flag in _FLAGS if flag in (_field(info, "flags", "Features") or "").split()),
        cache_bytes=cache,
        caches=caches,
    )


def read_memory(files: Files) -> int | None:
    """Bytes of the host's memory."""
    return parse_kib(files.text("/proc/meminfo"), "MemTotal")


def read_nodes(files: Files, threads: int, gpu_nodes: Collection[int]) -> tuple[tuple[NumaNode, ...], bool]:
    """The nodes that have memory, without those that are GPU memory, and whether the kernel shows nodes at all.

    If it shows none, one node with all CPUs stands for the host, as in the worker.
    """
    shown = parse_list(files.text(f"{_NODE}/has_memory"))
    kept = [node for node in shown if node not in gpu_nodes]
    if not kept:
        cpus = parse_list(files.text(f"{_CPU}/online")) or tuple(range(threads))
        return (NumaNode(0, 0, cpus, read_memory(files), (), ()),), False
    # A line of distances has an entry for every online node, in order.
    online = parse_list(files.text(f"{_NODE}/online")) or shown
    nodes = tuple(_node(files, index, os_index, kept, online) for index, os_index in enumerate(kept))
    if len(nodes) == 1:  # a single node has all memory, although a sandbox may show less (5 of 541 GB were seen)
        nodes = (msgspec.structs.replace(nodes[0], memory_bytes=read_memory(files) or nodes[0].memory_bytes),)
    return nodes, True


def _node(files: Files, index: int, os_index: int, kept: list[int], online: tuple[int, ...]) -> NumaNode:
    folder = f"{_NODE}/node{os_index}"
    line = [int(word) for word in (files.text(f"{folder}/distance") or "").split() if word.isdigit()]
    distances = tuple(line[online.index(other)] for other in kept) if len(line) == len(online) else ()
    pages = []
    for name in files.names(f"{folder}/hugepages"):
        size = re.fullmatch(r"hugepages-(\d+)kB", name)
        total = files.whole(f"{folder}/hugepages/{name}/nr_hugepages")
        free = files.whole(f"{folder}/hugepages/{name}/free_hugepages")
        if size and total is not None:
            pages.append(HugePages(int(size[1]) * 1024, total, total if free is None else free))
    return NumaNode(
        index=index,
        os_index=os_index,
        cpus=parse_list(files.text(f"{folder}/cpulist")),
        memory_bytes=parse_kib(files.text(f"{folder}/meminfo"), "MemTotal"),
        distances=distances,
        huge_pages=tuple(sorted(pages, key=lambda page: page.page_bytes)),
    )


def nvidia_gpus(files: Files) -> tuple[str, ...]:
    """PCI bus ids of NVIDIA's display and 3D controllers, in bus order."""
    found = []
    for device in files.names(_PCI):
        if files.text(f"{_PCI}/{device}/vendor") == _NVIDIA:
            kind = files.text(f"{_PCI}/{device}/class") or ""
            if kind.startswith((_DISPLAY, _3D)):
                found.append(device)
    return tuple(found)


def pci_node(files: Files, pci: str) -> int | None:
    """The kernel's NUMA node of a device; None for -1 or no entry."""
    node = files.whole(f"{_PCI}/{pci}/numa_node")
    return node if node is not None and node >= 0 else None


def pci_max_payload(files: Files, pci: str) -> int | None:
    """The largest payload of a PCIe packet in bytes, from the device control register; None without the right to read
    it."""
    text = files.hex(f"{_PCI}/{pci}/config")
    space = bytes.fromhex(text) if text and re.fullmatch(r"(?:[0-9a-f]{2})+", text) else b""
    at = space[0x34] if len(space) > 0x40 else 0
    for _ in range(48):  # the list of capabilities; a damaged one may be circular
        if at < 0x40 or at + 10 > len(space):
            return None
        if space[at] == _PCIE_CAPABILITY:
            return int(128 << (space[at + 8] >> 5 & 0b111))
        at = space[at + 1]
    return None


def runs_under_hypervisor(files: Files, cpu: Cpu) -> bool | None:
    """Whether a hypervisor runs this system; None if unknown. Sources: CPU flags on x86, firmware tables elsewhere."""
    if "hypervisor" in cpu.flags or files.text("/sys/hypervisor/type"):
        return True
    product = (files.text("/sys/class/dmi/id/product_name") or "").lower()
    if re.search(r"\b(kvm|qemu|vmware|virtualbox|virtual machine|hvm|google compute engine|droplet)\b", product):
        return True
    return False if cpu.architecture == "x86_64" or product else None


def _field(info: str, *names: str) -> str | None:
    for name in names:
        match = re.search(rf"(?m)^{re.escape(name)}\s*:\s*(\S.*)$", info)
        if match:
            return match[1].strip()
    return None


def _arm_part(info: str) -> str | None:
    implementer, part = _field(info, "CPU implementer"), _field(info, "CPU part")
    return f"ARM implementer {implementer} part {part}" if implementer and part else None


def _other_vendor(info: str) -> str | None:
    if "POWER" in (_field(info, "cpu") or ""):
        return "IBM"
    implementer = _field(info, "CPU implementer")
    return {"0x41": "ARM", "0x4e": "NVIDIA", "0xc0": "Ampere"}.get(implementer or "", implementer)


def _architecture(files: Files, info: str) -> str | None:
    known = files.text("/proc/sys/kernel/arch")  # Linux 6.1 and newer
    if known:
        return known
    if _field(info, "vendor_id") and _field(info, "flags"):
        return "x86_64"
    if _field(info, "CPU implementer"):
        return "aarch64"
    return "ppc64le" if "POWER" in (_field(info, "cpu") or "") else None


def _sockets_and_cores(files: Files, info: str, online: tuple[int, ...]) -> tuple[int | None, int | None]:
    seen = []
    for cpu in online:
        package = files.whole(f"{_CPU}/cpu{cpu}/topology/physical_package_id")
        core = files.whole(f"{_CPU}/cpu{cpu}/topology/core_id")
        if package is None or core is None:
            break
        seen.append((package, core))
    if not seen or len(seen) < len(online):
        # gVisor shows no topology in /sys, but writes these lines.
        packages = re.findall(r"(?m)^physical id\s*:\s*(\d+)", info)
        cores = re.findall(r"(?m)^core id\s*:\s*(\d+)", info)
        seen = [(int(package), int(core)) for package, core in zip(packages, cores, strict=False)]
    return (len({package for package, _ in seen}), len(set(seen))) if seen else (None, None)


def _last_level_cache(files: Files, online: tuple[int, ...]) -> tuple[int | None, int | None]:
    """Bytes of one last-level cache, and the number of such caches."""
    first = f"{_CPU}/cpu{online[0] if online else 0}/cache"
    levels = {}
    for name in files.names(first):
        level, size = files.whole(f"{first}/{name}/level"), files.text(f"{first}/{name}/size")
        match = re.fullmatch(r"(\d+)([KM]?)", size or "")
        if level is not None and match:
            levels[level] = (name, int(match[1]) * {"": 1, "K": 1 << 10, "M": 1 << 20}[match[2]])
    if not levels:
        return None, None
    name, size_bytes = levels[max(levels)]
    sharers = {files.text(f"{_CPU}/cpu{cpu}/cache/{name}/shared_cpu_list") for cpu in online}
    return size_bytes, len(sharers - {None}) or None
