"""A run as NCCL reads it: a topology for NCCL_TOPO_FILE, and environment variables with reasons.

NCCL takes the bandwidth of a PCIe link from its speed and width, and of NVLinks from their count and the GPU's
generation (src/graph/topo.cc, topo.h). The topology states the widths and counts that come nearest to the measured
rates.
"""

from typing import Any
from xml.sax.saxutils import quoteattr

from linkscope.report.system_values import Path, SystemValues, comment, xml_text
from linkscope.runfile import Run

# GB/s that NCCL assumes of one lane, by PCIe generation, and of one NVLink, from a compute capability on.
_LANE_GBPS = {1: 15 / 80, 2: 30 / 80, 3: 60 / 80, 4: 120 / 80, 5: 240 / 80, 6: 480 / 80}
_SPEEDS = {1: "2.5 GT/s PCIe", 2: "5.0 GT/s PCIe", 3: "8.0 GT/s PCIe", 4: "16.0 GT/s PCIe", 5: "32.0 GT/s PCIe",
           6: "64.0 GT/s PCIe"}  # fmt: skip
_NVLINK_GBPS = ((100, 40.1), (90, 20.6), (86, 12.0), (80, 20.0), (70, 20.0), (60, 18.0))
_GPU_CLASS, _SWITCH_CLASS = "0x030200", "0x068000"
_ARCHITECTURES = {"x86_64": "x86_64", "aarch64": "arm64", "arm64": "arm64", "ppc64le": "ppc64"}
_VENDORS = ("GenuineIntel", "AuthenticAMD", "CentaurHauls")
_CURE = "linkscope run h2d d2h d2d --suite standard -o RUN.jsonl"
_LONGEST_VALUE = 254  # characters that NCCL's reader takes (src/graph/xml.cc); NCCL fills in a mask that is absent
_FASTER = 1.05  # peer copies are preferred from this ratio on


def to_nccl_topology(run: Run) -> str:
    """The XML of NCCL_TOPO_FILE. Raises UserError where the run lacks the rate of a GPU's link."""
    values = SystemValues(run)
    gpus = values.gpus()
    by_node: dict[int, list[dict[str, Any]]] = {}
    for gpu in gpus:
        by_node.setdefault(values.numa_of(gpu), []).append(gpu)
    _need_rates(values, gpus)
    lines = [
        f"<!-- {xml_text(values.source())} -->",
        "<!-- link_width and count are those whose bandwidth in NCCL is nearest to the measured rate. -->",
        "<!-- NCCL adds network cards itself. -->",
        '<system version="1">',
    ]
    nodes = {node["index"]: node for node in values.machine.get("numa", [])}
    for index in sorted(by_node):
        lines.append(f"  <cpu {_attributes(_cpu(values, nodes.get(index, {'os_index': index})))}>")
        for gpu in by_node[index]:
            lines += _gpu(values, gpu, index)
        lines.append("  </cpu>")
    return "\n".join([*lines, "</system>", ""])


def _need_rates(values: SystemValues, gpus: list[dict[str, Any]]) -> None:
    wanted: dict[str, Path | None] = {}
    for gpu in gpus:
        numa, place = f"numa:{values.numa_of(gpu)}", f"gpu:{gpu['index']}"
        wanted[f"{numa} -> {place}"] = values.rate("h2d", numa, place)
        wanted[f"{place} -> {numa}"] = values.rate("d2h", place, numa)
        for other in gpus:
            if other is not gpu and _links(gpu):
                peer = f"gpu:{other['index']}"
                wanted[f"{place} -> {peer}"] = values.rate("d2d", place, peer)
    values.need(wanted, _CURE)


def _cpu(values: SystemValues, node: dict[str, Any]) -> dict[str, str]:
    """The attributes of a NUMA node. NCCL fills in the others, such as the CPU's model."""
    cpu = values.machine.get("cpu") or {}
    found = {"numaid": str(node["os_index"])}
    if (cpus := node.get("cpus")) and len(mask := _mask(cpus)) <= _LONGEST_VALUE:
        found["affinity"] = mask
    if architecture := _ARCHITECTURES.get(str(cpu.get("architecture"))):
        found["arch"] = architecture
    if cpu.get("vendor") in _VENDORS:
        found["vendor"] = cpu["vendor"]
    return found


def _mask(cpus: list[int]) -> str:
    """CPUs as the kernel writes a mask: words of 32 bits, the highest first."""
    bits = sum(1 << cpu for cpu in set(cpus))
    words = max(cpus) // 32 + 1
    return ",".join(f"{bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def _gpu(values: SystemValues, gpu: dict[str, Any], numa: int) -> list[str]:
    place, pcie = f"gpu:{gpu['index']}", gpu.get("pcie") or {}
    near = f"numa:{numa}"
    rates = [values.rate("h2d", near, place), values.rate("d2h", place, near)]
    slower = min(rate.value for rate in rates if rate)
    generation = pcie.get("max_generation") or pcie.get("generation") or 3
    most = pcie.get("width") or pcie.get("max_width") or 16
    lane = _LANE_GBPS.get(generation, _LANE_GBPS[3])
    width = min(max(round(slower / lane), 1), most)
    speed = _SPEEDS.get(generation, _SPEEDS[3])
    head = {"busid": _address(gpu), "class": _GPU_CLASS, "link_speed": speed, "link_width": str(width)}
    sm = str(gpu.get("compute_capability") or "0.0").replace(".", "")
    own = {"dev": str(gpu["index"]), "sm": sm, "rank": str(gpu["index"])}
    own["gdr"] = str(int(bool(gpu.get("bar1_bytes")) and int(sm) >= 60))
    why = xml_text(f"{place}: {slower:.4g} GB/s measured, NCCL assumes {lane * most:.4g} GB/s for {most} lanes")
    return [
        f"    <!-- {why} -->",
        f"    <pci {_attributes(head)}>",
        f"      <gpu {_attributes(own)}>",
        *(f"        <nvlink {_attributes(link)}/>" for link in _nvlinks(values, gpu, int(sm))),
        "      </gpu>",
        "    </pci>",
    ]


def _address(gpu: dict[str, Any]) -> str:
    """The PCI address as NCCL writes those of its GPUs, with which it compares."""
    return str(gpu["pci"]).lower()


def _links(gpu: dict[str, Any]) -> list[dict[str, Any]]:
    return [link for link in gpu.get("nvlinks", []) if link.get("active")]


def _nvlinks(values: SystemValues, gpu: dict[str, Any], sm: int) -> list[dict[str, str]]:
    """The links by their other end. The rate of the best copy over them gives their number."""
    links = _links(gpu)
    others = {one["index"]: _address(one) for one in values.machine["gpus"] if one["index"] != gpu["index"]}
    each = next((gbps for since, gbps in _NVLINK_GBPS if sm >= since), _NVLINK_GBPS[2][1])
    place = f"gpu:{gpu['index']}"
    found = []
    for index, pci in others.items():
        joined = sum(link.get("remote_gpu") == index for link in links)
        rate = values.rate("d2d", place, f"gpu:{index}")
        if joined and rate:
            count = min(max(round(rate.value / each), 1), joined)
            found.append({"target": pci, "count": str(count), "tclass": _GPU_CLASS})
    to_switch = [link for link in links if link.get("remote") == "switch"]
    rates = [rate.value for index in others if (rate := values.rate("d2d", place, f"gpu:{index}"))]
    if to_switch and rates:
        count = min(max(round(max(rates) / each), 1), len(to_switch))
        target = str(to_switch[0].get("remote_pci") or "ffff:ff:ff.0").lower()
        found.append({"target": target, "count": str(count), "tclass": _SWITCH_CLASS})
    return found


def _attributes(values: dict[str, str]) -> str:
    return " ".join(f"{name}={quoteattr(xml_text(value))}" for name, value in values.items())


def to_nccl_environment(run: Run) -> str:
    """A shell script that sets NCCL's variables, each after its reason. UserError: no copy between GPUs."""
    values = SystemValues(run)
    gpus = [f"gpu:{gpu['index']}" for gpu in values.machine.get("gpus", [])] or _places(values)
    pairs = [(src, dst) for src in gpus for dst in gpus if src != dst]
    peers = {pair: values.rate("d2d", *pair, peer="on") for pair in pairs}
    staged = {pair: values.rate("d2d", *pair, peer="off") for pair in pairs}
    if pairs:
        both = {f"{src} -> {dst}": peers[src, dst] or staged[src, dst] for src, dst in pairs}
        values.need(both, "linkscope run d2d --suite full -o RUN.jsonl")
    lines = [f"# {values.source()}"]
    lines += _peer_lines(peers, staged) if pairs else ["# One GPU: NCCL has no path to choose."]
    return "\n".join([*lines, ""])


def _places(values: SystemValues) -> list[str]:
    return [place for place in values.machine.get("places", []) if str(place).rpartition("/")[2].startswith("gpu:")]


def _peer_lines(peers: dict[tuple[str, str], Path | None], staged: dict[tuple[str, str], Path | None]) -> list[str]:
    direct = [rate.value for rate in peers.values() if rate]
    if not direct:
        return ["# No pair of GPUs has peer access: copies go through host memory.", "export NCCL_P2P_DISABLE=1"]
    slower = [
        f"{src} -> {dst} {rate.value:.4g} GB/s, staged {other.value:.4g} GB/s"
        for (src, dst), rate in peers.items()
        if rate and (other := staged[src, dst]) and rate.value * _FASTER < other.value
    ]
    if slower:
        why = f"Peer copies are slower than copies through host memory: {'; '.join(slower[:3])}"
        return [f"# {comment(why)}.", "export NCCL_P2P_DISABLE=1"]
    compared = [other.value for pair, rate in peers.items() if rate and (other := staged[pair])]
    if len(direct) < len(peers):
        why = f"{len(direct)} of {len(peers)} paths between GPUs have peer access: NCCL's own choice stays."
        return [f"# {why}"]
    if not compared:
        return [
            f"# Peer copies reach {min(direct):.4g} GB/s or more. This run has no staged copies to compare: "
            "linkscope run d2d --suite full."
        ]
    why = f"Peer copies reach {min(direct):.4g} GB/s or more, staged ones {max(compared):.4g} GB/s or less"
    return [f"# {comment(why)}: use peer access at any distance.", "export NCCL_P2P_LEVEL=SYS"]
