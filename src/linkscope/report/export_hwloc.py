"""A run as an XML topology of hwloc 2 with measured memory attributes and distances.

Bandwidth and Latency are hwloc's own attributes of NUMA nodes: rates of one CPU thread's copy in MiB/s, and times of a
dependent load in ns. Rates of copies by GPUs are attributes named "GPU copy from" and "GPU copy to", whose initiators
are the GPUs. Copies between GPUs are a matrix of distances.
"""

from collections.abc import Iterator
from typing import Any
from xml.sax.saxutils import quoteattr

from linkscope.report.system_values import SystemValues, xml_text
from linkscope.runfile import Run

_HIGHER, _LOWER, _BY_INITIATOR = 1, 2, 4  # HWLOC_MEMATTR_FLAG_*
_USER_BANDWIDTH = 2 | 8  # HWLOC_DISTANCES_KIND_FROM_USER, _MEANS_BANDWIDTH
_COPROCESSOR = 5  # HWLOC_OBJ_OSDEV_COPROC
_CURE = "linkscope run h2h latency h2d d2h d2d --suite standard -o RUN.jsonl"


def to_hwloc(run: Run) -> str:
    """The XML, which `lstopo -i FILE` shows. Raises UserError where the run has no value for it."""
    return _Topology(SystemValues(run)).text()


class _Topology:
    """The objects of the machine, with an index for each."""

    def __init__(self, values: SystemValues) -> None:
        self._values = values
        self._gpus = values.gpus() if values.machine.get("gpus") else []
        self._nodes: list[dict[str, Any]] = list(values.machine.get("numa", []))
        if not self._nodes or values.run.modelled:
            values.gpus()  # says what is missing
        self._indexes = iter(range(2, 1 << 20))
        self._of: dict[str, int] = {}

    def text(self) -> str:
        objects = [line for node in self._nodes for line in self._package(node)]
        attributes = [line for part in (self._memory(), self._of_gpus()) for line in part]
        distances = list(self._distances())
        if not attributes and not distances:
            self._values.need({"copies and loads that hwloc has an attribute for": None}, _CURE)
        sets = _sets(_bits([cpu for node in self._nodes for cpu in node["cpus"]]), _bits(self._os_indexes()))
        name = quoteattr(xml_text(str(self._values.machine.get("name", ""))))
        head = [
            '<?xml version="1.0" encoding="UTF-8"?>',
            '<!DOCTYPE topology SYSTEM "hwloc2.dtd">',
            '<topology version="2.0">',
            f'  <object type="Machine" os_index="0" gp_index="1" {sets}>',
            f'    <info name="linkscope" value={quoteattr(xml_text(self._values.source()))}/>',
            f'    <info name="HostName" value={name}/>',
        ]
        return "\n".join([*head, *objects, "  </object>", *distances, *attributes, "</topology>", ""])

    def _os_indexes(self) -> list[int]:
        return [int(node["os_index"]) for node in self._nodes]

    def _new(self, place: str) -> int:
        self._of[place] = next(self._indexes)
        return self._of[place]

    def _package(self, node: dict[str, Any]) -> Iterator[str]:
        """A NUMA node with its CPUs and GPUs."""
        sets = _sets(_bits(node["cpus"]), _bits([int(node["os_index"])]))
        place = f"numa:{node['index']}"
        package = f'os_index="{node["index"]}" gp_index="{self._new(f"package {place}")}"'
        yield f'    <object type="Package" {package} {sets}>'
        memory = f'gp_index="{self._new(place)}" {sets} local_memory="{node.get("memory_bytes") or 0}"'
        yield f'      <object type="NUMANode" os_index="{node["os_index"]}" {memory}/>'
        for cpu in sorted(node["cpus"]):
            own = _sets(1 << cpu, _bits([int(node["os_index"])]))
            yield f'      <object type="PU" os_index="{cpu}" gp_index="{self._new(f"cpu {cpu}")}" {own}/>'
        there = [gpu for gpu in self._gpus if self._values.numa_of(gpu) == node["index"]]
        for domain in sorted({gpu["pci"].partition(":")[0] for gpu in there}):
            index = self._new(f"bridge {place} {domain}")
            bridge = f'bridge_type="0-1" depth="0" bridge_pci="{domain}:[00-ff]"'
            yield f'      <object type="Bridge" gp_index="{index}" {bridge}>'
            for gpu in there:
                if gpu["pci"].startswith(f"{domain}:"):
                    yield from self._gpu(gpu)
            yield "      </object>"
        yield "    </object>"

    def _gpu(self, gpu: dict[str, Any]) -> Iterator[str]:
        place = f"gpu:{gpu['index']}"
        index = self._new(f"pci {place}")
        device = f'pci_busid="{gpu["pci"]}" pci_type="0302 [10de:0000] [0000:0000] 00" pci_link_speed="0.000000"'
        yield f'        <object type="PCIDev" gp_index="{index}" {device}>'
        name = f'name="cuda{gpu["index"]}" subtype="CUDA" osdev_type="{_COPROCESSOR}"'
        yield f'          <object type="OSDev" gp_index="{self._new(place)}" {name}>'
        for key, value in (("Backend", "CUDA"), ("GPUModel", gpu.get("name")), ("CUDAMultiProcessors", gpu.get("sms"))):
            if value:
                yield f'            <info name="{key}" value={quoteattr(xml_text(str(value)))}/>'
        yield "          </object>"
        yield "        </object>"

    def _memory(self) -> Iterator[str]:
        """Rates and latencies of the CPUs of a node on the memory of each."""
        rates, times = [], []
        for thread in self._nodes:
            cpus = f'initiator_cpuset="{_mask(_bits(thread["cpus"]))}"'
            for memory in self._nodes:
                src, dst = f"numa:{memory['index']}", f"numa:{thread['index']}"
                if rate := self._values.rate("h2h", src, dst, initiator="dst") or self._values.rate("h2h", src, dst):
                    rates.append(self._value(src, round(rate.value * 1e9 / 2**20), cpus))
                if time := self._values.seconds("latency", src, dst, range="64MiB"):
                    times.append(self._value(src, max(round(time.value * 1e9), 1), cpus))
        yield from _attribute("Bandwidth", _HIGHER | _BY_INITIATOR, rates)
        yield from _attribute("Latency", _LOWER | _BY_INITIATOR, times)

    def _of_gpus(self) -> Iterator[str]:
        for name, benchmark in (("GPU copy from", "h2d"), ("GPU copy to", "d2h")):
            found = []
            for gpu in self._gpus:
                place = f"gpu:{gpu['index']}"
                initiator = f'initiator_obj_gp_index="{self._of[place]}" initiator_obj_type="OSDev"'
                for node in self._nodes:
                    numa = f"numa:{node['index']}"
                    ends = (numa, place) if benchmark == "h2d" else (place, numa)
                    if rate := self._values.rate(benchmark, *ends):
                        found.append(self._value(numa, round(rate.value * 1e9 / 2**20), initiator))
            yield from _attribute(name, _HIGHER | _BY_INITIATOR, found)

    def _value(self, numa: str, value: int, initiator: str) -> str:
        target = f'target_obj_gp_index="{self._of[numa]}" target_obj_type="NUMANode"'
        return f'    <memattr_value {target} value="{value}" {initiator}/>'

    def _distances(self) -> Iterator[str]:
        """The rates of copies between GPUs in MB/s; within a GPU those of local copies. All must be known."""
        places = [f"gpu:{gpu['index']}" for gpu in self._gpus]
        found = [self._values.rate("local" if src == dst else "d2d", src, dst) for src in places for dst in places]
        rates = [round(rate.value * 1000) for rate in found if rate]
        if len(places) < 2 or len(rates) < len(found):
            return
        count = len(places)
        indexes = " ".join(str(self._of[place]) for place in places)
        yield (
            f'  <distances2 type="OSDev" nbobjs="{count}" kind="{_USER_BANDWIDTH}" name="linkscope GPU copies in MB/s" '
            'indexing="gp">'
        )
        yield f'    <indexes length="{len(indexes) + 1}">{indexes} </indexes>'
        for row in range(count):
            text = " ".join(map(str, rates[row * count : (row + 1) * count]))
            yield f'    <u64values length="{len(text) + 1}">{text} </u64values>'
        yield "  </distances2>"


def _attribute(name: str, flags: int, values: list[str]) -> list[str]:
    return [f'  <memattr name="{name}" flags="{flags}">', *values, "  </memattr>"] if values else []


def _bits(indexes: list[int]) -> int:
    return sum(1 << index for index in set(indexes))


def _mask(bits: int) -> str:
    """A set as hwloc writes it: words of 32 bits, the highest first."""
    words = max((bits.bit_length() + 31) // 32, 1)
    return ",".join(f"0x{bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words)))


def _sets(cpus: int, nodes: int) -> str:
    named = (("cpuset", cpus), ("nodeset", nodes))
    return " ".join(f'{kind}{name}="{_mask(bits)}"' for name, bits in named for kind in ("", "complete_", "allowed_"))
