"""The parts of a machine as plain values. None means hidden: it cannot be seen here, and `Machine.hidden` holds the
reason.

Sizes are bytes, rates GB/s (1e9) in one direction, clocks MHz. NUMA nodes are numbered from 0 without gaps over the
nodes that have memory, as in the worker (core/host/topology.hpp); GPUs in PCI bus order.
"""

from typing import Any

import msgspec

HIDDEN = "hidden"


class Fact(msgspec.Struct, frozen=True):
    """Base of all facts: immutable, compared by value."""


class Hidden(Fact, frozen=True):
    """A fact that cannot be seen here, such as 'gpu:0.numa', and the reason."""

    fact: str
    why: str


class Cpu(Fact, frozen=True):
    """The host's processors. `flags` are those that affect copying, flushing and timing."""

    model: str | None
    vendor: str | None
    architecture: str | None
    sockets: int | None
    cores: int | None
    threads: int
    flags: tuple[str, ...]
    cache_bytes: int | None  # size of one last-level cache
    caches: int | None  # number of last-level caches


class HugePages(Fact, frozen=True):
    """Reserved huge pages of one size on a node."""

    page_bytes: int
    total: int
    free: int


class NumaNode(Fact, frozen=True):
    """A NUMA node; `os_index` is the kernel's number, which may have gaps. Distances are in the order of the nodes."""

    index: int
    os_index: int
    cpus: tuple[int, ...]
    memory_bytes: int | None
    distances: tuple[int, ...]
    huge_pages: tuple[HugePages, ...]


class Pcie(Fact, frozen=True):
    """The PCIe link of a GPU: current and maximum. Idle GPUs lower the generation but keep the width."""

    generation: int | None
    width: int | None
    max_generation: int | None
    max_width: int | None
    max_payload_bytes: int | None


class NvLink(Fact, frozen=True):
    """One NVLink of a GPU. `remote` is gpu, switch, npu (a POWER9 CPU) or None; `remote_gpu` is this machine's
    number."""

    index: int
    active: bool
    version: str | None
    gbps: float | None
    gbps_source: str
    remote: str | None
    remote_pci: str | None
    remote_gpu: int | None


class Gpu(Fact, frozen=True):
    """One GPU. `c2c_gbps` is the chip-to-chip link to a coherent CPU (Grace), or None."""

    index: int
    name: str | None
    uuid: str | None
    pci: str | None
    memory_bytes: int | None
    sms: int | None
    l2_bytes: int | None
    copy_engines: int | None
    compute_capability: str | None
    memory_mhz: int | None
    memory_bus_bits: int | None
    bar1_bytes: int | None
    numa: int | None
    pcie: Pcie
    nvlinks: tuple[NvLink, ...]
    nvlink_gbps: float | None  # total of the active links
    c2c_gbps: float | None


class Pair(Fact, frozen=True):
    """The connection of two GPUs. `level` is the nearest common part of their PCIe paths; `nvlinks` 0: none."""

    src: int
    dst: int
    peer: bool | None
    native_atomics: bool | None
    performance_rank: int | None
    level: str | None
    nvlinks: int | None
    nvlink_gbps: float | None
    nvlink_source: str


class Driver(Fact, frozen=True):
    """NVIDIA's driver. `cuda_why_not` and `nvml_why_not` are empty if these work."""

    version: str | None
    cuda_version: str | None
    nvml_version: str | None
    cuda_why_not: str
    nvml_why_not: str


class Machine(Fact, frozen=True):
    """A detected machine."""

    name: str
    cpu: Cpu
    memory_bytes: int | None
    numa: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...]
    pairs: tuple[Pair, ...]
    driver: Driver
    hypervisor: bool | None
    pci_gpus: tuple[str, ...]  # NVIDIA GPUs on the PCI bus, with or without a driver
    lost: tuple[str, ...]  # GPUs that no longer answer
    unused: tuple[str, ...]  # GPUs that NVML shows and CUDA hides (CUDA_VISIBLE_DEVICES)
    hidden: tuple[Hidden, ...]

    @property
    def places(self) -> tuple[str, ...]:
        """'numa:0', …, 'gpu:0', …"""
        return (*(f"numa:{node.index}" for node in self.numa), *(f"gpu:{gpu.index}" for gpu in self.gpus))

    @property
    def cache_bytes(self) -> dict[str, int]:
        """The largest cache of each place, if known: one last-level cache of a node, the L2 of a GPU."""
        known = {f"numa:{node.index}": self.cpu.cache_bytes for node in self.numa}
        known |= {f"gpu:{gpu.index}": gpu.l2_bytes for gpu in self.gpus}
        return {place: size for place, size in known.items() if size is not None}

    @property
    def sms(self) -> dict[str, int]:
        """The number of multiprocessors of each GPU, if known."""
        return {f"gpu:{gpu.index}": gpu.sms for gpu in self.gpus if gpu.sms is not None}

    def pair(self, src: int, dst: int) -> Pair | None:
        """The connection from one GPU to another."""
        return next((pair for pair in self.pairs if (pair.src, pair.dst) == (src, dst)), None)

    def to_json(self) -> dict[str, Any]:
        """The machine as plain values for the run file, with its places."""
        content: dict[str, Any] = msgspec.to_builtins(self)
        return {"name": self.name, "places": list(self.places), **content}
