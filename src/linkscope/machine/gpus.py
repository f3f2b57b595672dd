"""GPUs from three sources: the CUDA driver's attributes (from the worker), NVML, and the PCI bus."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from linkscope.machine.facts import Gpu, Hidden, NumaNode, NvLink, Pcie
from linkscope.machine.host import pci_max_payload, pci_node
from linkscope.machine.nvml_facts import NvmlGpu, NvmlLink, NvmlReading, normal_pci
from linkscope.machine.sysfs import Files

# nvmlNvlinkVersion_t: its name, and GB/s of one link in one direction for drivers that do not report it: lanes x signal
# rate / 8 (8 x 20 Gb/s, 8 x 25.78, 4 x 51.56, 2 x 106.25, 2 x 212.5).
_NVLINK = {1: ("1.0", 20.0), 2: ("2.0", 25.78), 3: ("2.2", 25.78), 4: ("3.0", 25.78), 5: ("3.1", 25.78),
           6: ("4.0", 26.56), 7: ("5.0", 53.13)}  # fmt: skip
_REMOTE = {0: "gpu", 1: "npu", 2: "switch"}  # NVML_NVLINK_DEVICE_TYPE_*
_GT_PER_S = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}


class Merged:
    """The GPUs of a machine, and their hidden facts."""

    def __init__(self, files: Files, nodes: Sequence[NumaNode], nvml: NvmlReading, in_vm: bool | None) -> None:
        self._files, self._in_vm = files, in_vm
        self._dense = {node.os_index: node.index for node in nodes}
        self._nvml = {gpu.pci: gpu for gpu in nvml.gpus if gpu.pci and not gpu.lost}
        self._nvml_why = nvml.why_not
        self.gpus: tuple[Gpu, ...] = ()
        self.hidden: list[Hidden] = []

    def add(self, shown: Sequence[Mapping[str, Any]] | None, cuda_why: str) -> None:
        """Adds the GPUs. `shown`: those of the worker's answer; None: CUDA was not asked, so all that NVML shows."""
        ids = sorted(self._nvml if shown is None else (normal_pci(gpu["pci"]) for gpu in shown), key=str)
        cuda = {normal_pci(gpu["pci"]): gpu for gpu in shown or ()}
        index_of = {pci: index for index, pci in enumerate(ids)}
        self.gpus = tuple(self._gpu(index_of, pci, cuda.get(pci, {}), cuda_why) for pci in index_of)

    def _gpu(self, index_of: Mapping[str, int], pci: str, cuda: Mapping[str, Any], cuda_why: str) -> Gpu:
        nvml = self._nvml.get(pci) or NvmlGpu()
        attributes: Mapping[str, int] = cuda.get("attributes", {})
        links = tuple(_nvlink(link, index_of) for link in nvml.links)
        rates = [link.gbps for link in links if link.active and link.gbps]
        clock = attributes.get("MEMORY_CLOCK_RATE")
        gpu = Gpu(
            index=index_of[pci],
            name=cuda.get("name") or nvml.name,
            uuid=cuda.get("uuid") or nvml.uuid,
            pci=pci,
            memory_bytes=cuda.get("memory_bytes") or nvml.memory_bytes,
            sms=attributes.get("MULTIPROCESSOR_COUNT"),
            l2_bytes=attributes.get("L2_CACHE_SIZE") or None,
            copy_engines=attributes.get("ASYNC_ENGINE_COUNT"),
            compute_capability=_capability(attributes) or nvml.compute_capability,
            memory_mhz=nvml.memory_mhz or (clock // 1000 if clock else None),
            memory_bus_bits=attributes.get("GLOBAL_MEMORY_BUS_WIDTH") or nvml.memory_bus_bits,
            bar1_bytes=nvml.bar1_bytes,
            numa=self._numa(pci),
            pcie=self._pcie(pci, nvml),
            nvlinks=links,
            nvlink_gbps=round(sum(rates), 3) if rates else None,
            c2c_gbps=nvml.c2c_links * nvml.c2c_mbps / 1000 if nvml.c2c_links and nvml.c2c_mbps else None,
        )
        self._note_hidden(gpu, nvml, cuda_why)
        return gpu

    def _numa(self, pci: str) -> int | None:
        """The NUMA node of a GPU. Kernels of one node may write -1, and in a virtual machine the value says nothing
        about the host's nodes."""
        node = pci_node(self._files, pci)
        if node is None:
            return 0 if len(self._dense) == 1 and self._in_vm is False else None
        return self._dense.get(node)

    def _pcie(self, pci: str, nvml: NvmlGpu) -> Pcie:
        folder = f"/sys/bus/pci/devices/{pci}"
        speed, width = self._files.text, self._files.whole
        return Pcie(
            generation=nvml.pcie_generation or _generation(speed(f"{folder}/current_link_speed")),
            width=nvml.pcie_width or width(f"{folder}/current_link_width") or None,
            max_generation=nvml.pcie_max_generation or _generation(speed(f"{folder}/max_link_speed")),
            max_width=nvml.pcie_max_width or width(f"{folder}/max_link_width") or None,
            # A hypervisor may show any payload size, because the host's register counts.
            max_payload_bytes=None if self._in_vm else pci_max_payload(self._files, pci),
        )

    def _note_hidden(self, gpu: Gpu, nvml: NvmlGpu, cuda_why: str) -> None:
        payload_why = "a virtual machine does not see the host's" if self._in_vm else "reading it needs root"
        for fact, value, why in (
            ("numa", gpu.numa, "the PCI bus shows no NUMA node (numa_node is -1 or missing)"),
            ("pcie.max_payload_bytes", gpu.pcie.max_payload_bytes, payload_why),
            ("sms", gpu.sms, cuda_why), ("l2_bytes", gpu.l2_bytes, cuda_why),
            ("copy_engines", gpu.copy_engines, cuda_why),
        ):  # fmt: skip
            self._note(gpu, fact, value, why)
        for fact, value, asked in (
            ("bar1_bytes", gpu.bar1_bytes, "bar1_bytes"), ("memory_mhz", gpu.memory_mhz, "memory_mhz"),
            ("memory_bus_bits", gpu.memory_bus_bits, "memory_bus_bits"),
            ("pcie.generation", gpu.pcie.generation, "pcie_generation"),
            ("pcie.width", gpu.pcie.width, "pcie_width"),
            ("pcie.max_generation", gpu.pcie.max_generation, "pcie_max_generation"),
            ("pcie.max_width", gpu.pcie.max_width, "pcie_max_width"),
        ):  # fmt: skip
            self._note(gpu, fact, value, self._nvml_why or f"NVML: {nvml.errors.get(asked, 'says nothing of it')}")
        if not gpu.nvlinks and self._nvml_why:
            self._note(gpu, "nvlinks", None, self._nvml_why)
        for link in gpu.nvlinks:
            if link.active and link.remote is None:
                why = nvml.errors.get(f"nvlink:{link.index}.remote_type", "an unknown kind of device")
                self._note(gpu, f"nvlink:{link.index}.remote", None, f"NVML: {why}")

    def _note(self, gpu: Gpu, fact: str, value: object, why: str) -> None:
        if value is None:
            self.hidden.append(Hidden(f"gpu:{gpu.index}.{fact}", why))


def _nvlink(link: NvmlLink, index_of: Mapping[str, int]) -> NvLink:
    version, nominal = _NVLINK.get(link.version or 0, (None, None))
    gbps, source = nominal, f"nominal for NVLink {version}" if nominal else ""
    if link.mbps:
        field = link.mbps_source.removeprefix("NVML_FI_DEV_NVLINK_")
        gbps, source = link.mbps / 1000, f"NVML {field} {link.mbps:g} MB/s"
    remote_gpu = index_of.get(link.remote_pci or "")
    return NvLink(
        index=link.index,
        active=bool(link.active),
        version=version,
        gbps=gbps if link.active else None,
        gbps_source=source if link.active else "",
        remote="gpu" if remote_gpu is not None else _REMOTE.get(-1 if link.remote_type is None else link.remote_type),
        remote_pci=link.remote_pci,
        remote_gpu=remote_gpu,
    )


def _capability(attributes: Mapping[str, int]) -> str | None:
    major, minor = attributes.get("COMPUTE_CAPABILITY_MAJOR"), attributes.get("COMPUTE_CAPABILITY_MINOR")
    return None if major is None or minor is None else f"{major}.{minor}"


def _generation(speed: str | None) -> int | None:
    """'32.0 GT/s PCIe' -> 5; None for 'Unknown' and for nothing."""
    match = re.match(r"([\d.]+) GT/s", speed or "")
    return _GT_PER_S.get(match[1]) if match else None
