"""Connections between GPUs: peer access (CUDA), the nearest common part of PCIe (NVML), NVLinks."""

from collections.abc import Mapping, Sequence
from typing import Any

from linkscope.machine.facts import Gpu, NvLink, Pair
from linkscope.machine.nvml_facts import NvmlPair, normal_pci

# NVML_TOPOLOGY_*, in the words of `nvidia-smi topo -m`.
_LEVEL = {
    0: "same board",
    10: "one PCIe switch",
    20: "several PCIe switches",
    30: "one host bridge",
    40: "one NUMA node",
    50: "across NUMA nodes",
}
_P2P_OK = 0


def pairs_of(
    gpus: Sequence[Gpu], nvml: Sequence[NvmlPair], driver: Mapping[str, Any] | None, peers: Sequence[Mapping[str, Any]]
) -> tuple[Pair, ...]:
    """Every ordered pair. `peers` numbers GPUs as the worker lists them."""
    shown = [normal_pci(gpu["pci"]) for gpu in (driver or {}).get("gpus", ())]
    cuda = {(shown[peer["from"]], shown[peer["to"]]): peer for peer in peers}
    seen = {(pair.src, pair.dst): pair for pair in nvml}
    found = []
    for src in gpus:
        for dst in gpus:
            if src is not dst:
                ids = (str(src.pci), str(dst.pci))
                found.append(_pair(src, dst, cuda.get(ids, {}), seen.get(ids)))
    return tuple(found)


def _pair(src: Gpu, dst: Gpu, peer: Mapping[str, Any], nvml: NvmlPair | None) -> Pair:
    count, gbps, source = _nvlinks(src, dst, nvml.nvlink if nvml else None)
    return Pair(
        src=src.index,
        dst=dst.index,
        peer=peer.get("access"),
        native_atomics=peer.get("native_atomics"),
        performance_rank=peer.get("performance_rank"),
        level=_LEVEL.get(nvml.level) if nvml and nvml.level is not None else None,
        nvlinks=count,
        nvlink_gbps=gbps,
        nvlink_source=source,
    )


def _nvlinks(src: Gpu, dst: Gpu, status: int | None) -> tuple[int | None, float | None, str]:
    """The number of NVLinks between two GPUs, their GB/s in one direction, and the source of that."""
    direct = [link for link in src.nvlinks if link.active and link.remote_gpu == dst.index]
    if direct:
        return len(direct), _sum(direct), f"{_text(direct)}, direct"
    ways = [_towards(gpu, "switch") for gpu in (src, dst)]
    how = "through NVSwitch"
    if not all(ways) and status == _P2P_OK:
        # The remote ends are hidden, but NVML reports that this pair uses NVLink: at most over all links.
        ways, how = [_towards(gpu, None) for gpu in (src, dst)], "remote ends hidden: at most all active links"
    if not all(ways) or status not in (None, _P2P_OK):
        # Links without a known remote end may or may not connect this pair.
        unknown = status is None and any(_towards(gpu, None) for gpu in (src, dst))
        return (None if unknown else 0), None, "remote ends hidden" if unknown else ""
    narrow = min(ways, key=lambda links: _sum(links) or 0.0)
    return len(narrow), _sum(narrow), f"{_text(narrow)}, {how}"


def _towards(gpu: Gpu, remote: str | None) -> list[NvLink]:
    return [link for link in gpu.nvlinks if link.active and link.remote == remote]


def _sum(links: Sequence[NvLink]) -> float | None:
    rates = [link.gbps for link in links if link.gbps is not None]
    return round(sum(rates), 3) if len(rates) == len(links) and rates else None


def _text(links: Sequence[NvLink]) -> str:
    first = links[0]
    name = f"NVLink {first.version}" if first.version else "NVLink"
    rate = f" x {first.gbps:.4g} GB/s ({first.gbps_source})" if first.gbps is not None else ", speed hidden"
    return f"{name}, {len(links)} link{'s' if len(links) > 1 else ''}{rate}"
