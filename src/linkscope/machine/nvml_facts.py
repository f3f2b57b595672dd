"""GPUs and links as NVML reports them, in NVML's units and numbers."""

from typing import Any

import msgspec

from linkscope.machine.nvml import Ask, Unavailable, within_patience

_PER_LINK = "NVML_FI_DEV_NVLINK_GET_SPEED"
_COMMON = "NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON"


class NvmlLink(msgspec.Struct, frozen=True):
    """One NVLink. `mbps` is 1e6 bytes a second in one direction."""

    index: int
    active: bool | None
    version: int | None = None
    mbps: float | None = None
    mbps_source: str = ""
    remote_type: int | None = None
    remote_pci: str | None = None


class NvmlGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU. `errors` holds the refused values with their reasons."""

    lost: bool = False
    name: str | None = None
    uuid: str | None = None
    pci: str | None = None
    memory_bytes: int | None = None
    bar1_bytes: int | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None
    pcie_max_generation: int | None = None
    pcie_max_width: int | None = None
    memory_mhz: int | None = None
    memory_bus_bits: int | None = None
    compute_capability: str | None = None
    links: tuple[NvmlLink, ...] = ()
    c2c_links: int | None = None
    c2c_mbps: float | None = None
    errors: dict[str, str] = {}


class NvmlPair(msgspec.Struct, frozen=True):
    """Two GPUs by their PCI bus ids. `level` is NVML_TOPOLOGY_*, `nvlink` NVML_P2P_STATUS_*."""

    src: str
    dst: str
    level: int | None
    nvlink: int | None


class NvmlReading(msgspec.Struct, frozen=True, kw_only=True):
    """A complete reading; `why_not` is the reason for an empty one."""

    why_not: str = ""
    driver_version: str | None = None
    cuda_version: int | None = None
    nvml_version: str | None = None
    gpus: tuple[NvmlGpu, ...] = ()
    pairs: tuple[NvmlPair, ...] = ()


def read_nvml() -> NvmlReading:
    """A reading of NVML. Never raises: an absent NVML is a reading too."""
    try:
        return within_patience(_read)
    except Unavailable as error:
        return NvmlReading(why_not=str(error))


def normal_pci(bus_id: str | bytes) -> str:
    """'00000000:0A:00.0' -> '0000:0a:00.0', as the kernel and CUDA write it."""
    text = (bus_id.decode() if isinstance(bus_id, bytes) else bus_id).lower()
    domain, _, rest = text.partition(":")
    return f"{domain[-4:]}:{rest}" if rest else text


def _read(nvml: Any) -> NvmlReading:
    ask = Ask(nvml)
    handles: dict[str, Any] = {}
    gpus = []
    for index in range(ask("count", "nvmlDeviceGetCount") or 0):
        about = Ask(nvml)
        handle = about("handle", "nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            gpus.append(NvmlGpu(lost=about.lost, errors=about.errors))
            continue
        gpu = _gpu(about, handle)
        gpus.append(gpu)
        if gpu.pci and not gpu.lost:
            handles[gpu.pci] = handle
    return NvmlReading(
        driver_version=ask.text("driver", "nvmlSystemGetDriverVersion"),
        cuda_version=ask("cuda", "nvmlSystemGetCudaDriverVersion_v2"),
        nvml_version=ask.text("nvml", "nvmlSystemGetNVMLVersion"),
        gpus=tuple(sorted(gpus, key=lambda gpu: gpu.pci or "~")),
        pairs=tuple(_pair(nvml, handles, src, dst) for src in handles for dst in handles if src != dst),
    )


def _gpu(ask: Ask, handle: Any) -> NvmlGpu:
    pci = ask("pci", "nvmlDeviceGetPciInfo", handle)
    memory = ask("memory_bytes", "nvmlDeviceGetMemoryInfo", handle)
    bar1 = ask("bar1_bytes", "nvmlDeviceGetBAR1MemoryInfo", handle)
    capability = ask("compute_capability", "nvmlDeviceGetCudaComputeCapability", handle)
    c2c_links = ask.field("c2c_links", handle, "NVML_FI_DEV_C2C_LINK_COUNT")
    facts: dict[str, Any] = {
        "name": ask.text("name", "nvmlDeviceGetName", handle),
        "uuid": ask.text("uuid", "nvmlDeviceGetUUID", handle),
        "pci": None if pci is None else normal_pci(pci.busId),
        "memory_bytes": None if memory is None else memory.total,
        "bar1_bytes": None if bar1 is None else bar1.bar1Total,
        "pcie_generation": ask("pcie_generation", "nvmlDeviceGetCurrPcieLinkGeneration", handle),
        "pcie_width": ask("pcie_width", "nvmlDeviceGetCurrPcieLinkWidth", handle),
        "pcie_max_generation": ask("pcie_max_generation", "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_max_width": ask("pcie_max_width", "nvmlDeviceGetMaxPcieLinkWidth", handle),
        "memory_mhz": ask("memory_mhz", "nvmlDeviceGetMaxClockInfo", handle, "NVML_CLOCK_MEM"),
        "memory_bus_bits": ask("memory_bus_bits", "nvmlDeviceGetMemoryBusWidth", handle),
        "compute_capability": None if capability is None else "{}.{}".format(*capability),
        "links": _links(ask, handle),
        "c2c_links": None if c2c_links is None else int(c2c_links),
        "c2c_mbps": ask.field("c2c_mbps", handle, "NVML_FI_DEV_C2C_LINK_GET_MAX_BW") if c2c_links else None,
    }
    return NvmlGpu(lost=ask.lost, errors=ask.errors, **facts)


def _links(ask: Ask, handle: Any) -> tuple[NvmlLink, ...]:
    count = ask.field("nvlinks", handle, "NVML_FI_DEV_NVLINK_LINK_COUNT")
    if count is None:
        # Drivers without that field: ask for each link until there is none.
        count = getattr(ask.nvml, "NVML_NVLINK_MAX_LINKS", 18)
    common = ask.field("nvlink_mbps", handle, _COMMON) if count else None
    links = []
    for index in range(int(count)):
        active = ask(f"nvlink:{index}", "nvmlDeviceGetNvLinkState", handle, index)
        if active is None:
            break
        links.append(_link(ask, handle, index, bool(active), common))
    return tuple(links)


def _link(ask: Ask, handle: Any, index: int, active: bool, common: float | None) -> NvmlLink:
    if not active:
        return NvmlLink(index, False)
    fact = f"nvlink:{index}"
    own = ask.field(f"{fact}.mbps", handle, _PER_LINK, index)
    mbps, source = (own, _PER_LINK) if own else (common, _COMMON)
    remote = ask(f"{fact}.remote_pci", "nvmlDeviceGetNvLinkRemotePciInfo", handle, index)
    return NvmlLink(
        index=index,
        active=True,
        version=ask(f"{fact}.version", "nvmlDeviceGetNvLinkVersion", handle, index),
        mbps=mbps or None,
        mbps_source=source if mbps else "",
        remote_type=ask(f"{fact}.remote_type", "nvmlDeviceGetNvLinkRemoteDeviceType", handle, index),
        remote_pci=None if remote is None else normal_pci(remote.busId),
    )


def _pair(nvml: Any, handles: dict[str, Any], src: str, dst: str) -> NvmlPair:
    ask = Ask(nvml)
    ends = handles[src], handles[dst]
    return NvmlPair(
        src=src,
        dst=dst,
        level=ask("level", "nvmlDeviceGetTopologyCommonAncestor", *ends),
        nvlink=ask("nvlink", "nvmlDeviceGetP2PStatus", *ends, "NVML_P2P_CAPS_INDEX_NVLINK"),
    )
