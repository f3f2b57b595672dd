"""Fake machines: trees of kernel files, a replacement of pynvml, the worker's answer about a driver."""

import sys
import types
from types import SimpleNamespace

import pynvml as real

GIB = 1 << 30
H200_PCI = ["0000:1b:00.0", "0000:43:00.0", "0000:9b:00.0", "0000:db:00.0"]
NOT_SUPPORTED, FUNCTION_NOT_FOUND, LOST = 3, 13, 15
LIBRARY_NOT_FOUND, MISMATCH, NOT_LOADED = 12, 18, 9


def write_tree(root, texts):
    for path, text in texts.items():
        file = root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")
    return root


def lists_of(texts):
    """The folders of a tree, in the form that Files.replay expects."""
    lists = {}
    for path in texts:
        parts = path.split("/")
        for depth in range(1, len(parts)):
            lists.setdefault("/".join(parts[:depth]) or "/", set()).add(parts[depth])
    return {folder: sorted(names) for folder, names in lists.items()}


def cpus(count, per_socket, per_core=1, cache="36864K"):
    """The topology of x86 CPUs, socket by socket. Threads of a core are `count / per_core` apart."""
    texts = {}
    cores = count // per_core
    for cpu in range(count):
        core = cpu % cores
        socket = core // (per_socket // per_core)
        folder = f"/sys/devices/system/cpu/cpu{cpu}"
        texts[f"{folder}/topology/physical_package_id"] = str(socket)
        texts[f"{folder}/topology/core_id"] = str(core % (per_socket // per_core))
        sharers = [c for c in range(count) if c % cores // (per_socket // per_core) == socket]
        for index, (level, size) in enumerate([(1, "48K"), (2, "2048K"), (3, cache)]):
            texts[f"{folder}/cache/index{index}/level"] = str(level)
            texts[f"{folder}/cache/index{index}/size"] = size
            texts[f"{folder}/cache/index{index}/shared_cpu_list"] = ",".join(map(str, sharers if level == 3 else [cpu]))
    return texts


def node(index, cpulist, gib, distance, huge=0):
    folder = f"/sys/devices/system/node/node{index}"
    return {
        f"{folder}/cpulist": cpulist,
        f"{folder}/meminfo": f"Node {index} MemTotal:  {gib * GIB // 1024} kB\nNode {index} MemFree:  1 kB",
        f"{folder}/distance": distance,
        f"{folder}/hugepages/hugepages-2048kB/nr_hugepages": str(huge),
        f"{folder}/hugepages/hugepages-2048kB/free_hugepages": str(huge // 2),
        f"{folder}/hugepages/hugepages-1048576kB/nr_hugepages": "0",
        f"{folder}/hugepages/hugepages-1048576kB/free_hugepages": "0",
    }


def nvidia_device(pci, numa):
    folder = f"/sys/bus/pci/devices/{pci}"
    return {f"{folder}/vendor": "0x10de", f"{folder}/class": "0x030200", f"{folder}/numa_node": str(numa)}


CPUINFO = (
    "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C @ 2.00GHz\n"
    "flags\t\t: fpu sse2 avx2 avx512f clflush clflushopt clwb rdtscp constant_tsc nonstop_tsc{more}"
)


def two_nodes(numa=(-1, -1, -1, -1)):
    """A machine with two sockets of four cores of two threads. Its PCI bus may hide the nodes of four GPUs."""
    texts = {
        "/proc/cpuinfo": CPUINFO.format(more=""),
        "/proc/meminfo": f"MemTotal:  {512 * GIB // 1024} kB\nHugePages_Total:  64\nHugepagesize:  2048 kB",
        "/sys/devices/system/cpu/online": "0-15",
        "/sys/devices/system/node/online": "0-1",
        "/sys/devices/system/node/has_memory": "0-1",
        **cpus(16, per_socket=8, per_core=2),
        **node(0, "0-3,8-11", 256, "10 21", huge=64),
        **node(1, "4-7,12-15", 256, "21 10"),
    }
    for pci, where in zip(H200_PCI, numa, strict=True):
        texts |= nvidia_device(pci, where)
    return texts


def virtual_machine():
    """A virtual machine with four H200s as its guest sees it: one NUMA node, devices without a node."""
    texts = {
        "/proc/cpuinfo": CPUINFO.format(more=" hypervisor"),
        "/proc/meminfo": f"MemTotal:  {503 * GIB // 1024} kB",
        "/proc/sys/kernel/osrelease": "6.18.44-fc-v180-gpu",
        "/sys/devices/system/cpu/online": "0-63",
        "/sys/devices/system/node/online": "0",
        "/sys/devices/system/node/has_memory": "0",
        **cpus(64, per_socket=64, per_core=2, cache="105M"),
        **node(0, "0-63", 5, "10"),
    }
    for pci in H200_PCI:
        texts |= nvidia_device(pci, -1)
    return texts


def power9():
    """An AC922: two sockets whose nodes are 0 and 8, and the memories of four GPUs as nodes 252 to 255."""
    texts = {
        "/proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t: 3800MHz",
        "/proc/meminfo": f"MemTotal:  {512 * GIB // 1024} kB",
        "/sys/devices/system/cpu/online": "0-3",
        "/sys/devices/system/node/online": "0,8,252-255",
        "/sys/devices/system/node/has_memory": "0,8,252-255",
        **node(0, "0-1", 256, "10 40 80 80 80 80"),
        **node(8, "2-3", 256, "40 10 80 80 80 80"),
    }
    for number in range(252, 256):
        texts |= node(number, "", 32, "80 80 10 80 80 80")
    for pci, where in zip(H200_PCI, (0, 0, 8, 8), strict=True):
        texts |= nvidia_device(pci, where)
    return texts


def gvisor():
    """A gVisor sandbox, which shows CPUs and nothing else."""
    info = "processor\t: {0}\nvendor_id\t: AuthenticAMD\nphysical id\t: 0\ncore id\t: {0}\nflags\t: sse2"
    return {
        "/proc/cpuinfo": "\n\n".join(info.format(cpu) for cpu in range(4)),
        "/proc/meminfo": "MemTotal:  16777216 kB",
        "/proc/version": "Linux version 4.4.0 #1 SMP gVisor",
        "/sys/devices/system/cpu/online": "0-3",
    }


def fail(code):
    """Raises NVML's error for `code`."""
    raise real.NVMLError(code)


class FakeNvml(types.ModuleType):
    """A fake NVML with H200s. `refuse` maps functions or "field:NUMBER" to error codes; `answers` replaces answers."""

    def __init__(self, gpus=4, refuse=None, answers=None, lost=(), init=0, links=18, remote="switch"):
        super().__init__("pynvml")
        self.__dict__.update({k: v for k, v in vars(real).items() if k.startswith(("NVML_", "NVMLError"))})
        self.refuse, self.answers, self.lost, self.init = refuse or {}, answers or {}, lost, init
        self.links, self.remote, self.pcis = links, remote, H200_PCI[:gpus]
        self.open = 0

    def __getattr__(self, name):
        if not name.startswith("nvml") or not (name in self.answers or hasattr(FakeNvml, f"_{name}")):
            if name.startswith("nvml"):
                return lambda *_: fail(FUNCTION_NOT_FOUND)
            raise AttributeError(name)
        return lambda *arguments: self._call(name, arguments)

    def _call(self, name, arguments):
        if name in self.refuse:
            fail(self.refuse[name])
        if name not in ("nvmlDeviceGetHandleByIndex",) and arguments and arguments[0] in self.lost:
            fail(LOST)
        if name in self.answers:
            answer = self.answers[name]
            return answer(*arguments) if callable(answer) else answer
        return getattr(self, f"_{name}")(*arguments)

    def _nvmlInit(self):
        if self.init:
            fail(self.init)
        self.open += 1

    def _nvmlShutdown(self):
        self.open -= 1

    def _nvmlDeviceGetCount(self):
        return len(self.pcis)

    def _nvmlDeviceGetHandleByIndex(self, index):
        # NVML's order may differ from the order on the bus.
        return len(self.pcis) - 1 - index

    def _nvmlSystemGetDriverVersion(self):
        return "580.159.04"

    def _nvmlSystemGetCudaDriverVersion_v2(self):
        return 13000

    def _nvmlSystemGetNVMLVersion(self):
        return b"13.580.159.04"

    def _nvmlDeviceGetPciInfo(self, gpu):
        return SimpleNamespace(busId="0000" + self.pcis[gpu].upper())

    def _nvmlDeviceGetName(self, gpu):
        return "NVIDIA H200"

    def _nvmlDeviceGetUUID(self, gpu):
        return f"GPU-{gpu}"

    def _nvmlDeviceGetMemoryInfo(self, gpu):
        return SimpleNamespace(total=143771 << 20)

    def _nvmlDeviceGetBAR1MemoryInfo(self, gpu):
        return SimpleNamespace(bar1Total=256 * GIB)

    def _nvmlDeviceGetCurrPcieLinkGeneration(self, gpu):
        return 5

    def _nvmlDeviceGetCurrPcieLinkWidth(self, gpu):
        return 16

    _nvmlDeviceGetMaxPcieLinkGeneration = _nvmlDeviceGetCurrPcieLinkGeneration
    _nvmlDeviceGetMaxPcieLinkWidth = _nvmlDeviceGetCurrPcieLinkWidth

    def _nvmlDeviceGetMaxClockInfo(self, gpu, clock):
        return {real.NVML_CLOCK_MEM: 3201, real.NVML_CLOCK_SM: 1980}[clock]

    def _nvmlDeviceGetClockInfo(self, gpu, clock):
        return {real.NVML_CLOCK_MEM: 3201, real.NVML_CLOCK_SM: 345}[clock]

    def _nvmlDeviceGetMemoryBusWidth(self, gpu):
        return 6144

    def _nvmlDeviceGetCudaComputeCapability(self, gpu):
        return (9, 0)

    def _nvmlDeviceGetNvLinkState(self, gpu, link):
        if link >= self.links:
            fail(2 if self.links else NOT_SUPPORTED)
        return 1

    def _nvmlDeviceGetNvLinkVersion(self, gpu, link):
        return 6

    def _nvmlDeviceGetNvLinkRemoteDeviceType(self, gpu, link):
        return {"switch": 2, "gpu": 0, "npu": 1, "hidden": 255}[self.remote]

    def _nvmlDeviceGetNvLinkRemotePciInfo(self, gpu, link):
        others = [pci for pci in self.pcis if pci != self.pcis[gpu]]
        peer = others[link * len(others) // self.links] if self.remote == "gpu" else "0000:05:00.0"
        return SimpleNamespace(busId="0000" + peer)

    def _nvmlDeviceGetTopologyCommonAncestor(self, one, other):
        return 50

    def _nvmlDeviceGetP2PStatus(self, one, other, index):
        return 0

    def _nvmlDeviceGetFieldValues(self, gpu, ids):
        known = {
            real.NVML_FI_DEV_NVLINK_LINK_COUNT: self.links,
            real.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON: 26562,
            real.NVML_FI_DEV_NVLINK_GET_SPEED: 26562,
        }
        field = ids[0][0]
        code = self.refuse.get(f"field:{field}", 0 if field in known else NOT_SUPPORTED)
        return [SimpleNamespace(nvmlReturn=code, valueType=1, value=SimpleNamespace(uiVal=known.get(field, 0)))]

    def _nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        return 1

    def _nvmlDeviceGetTemperature(self, gpu, sensor):
        return 31

    def _nvmlDeviceGetPowerUsage(self, gpu):
        return 76_000

    def _nvmlDeviceGetEnforcedPowerLimit(self, gpu):
        return 700_000

    _nvmlDeviceGetPowerManagementDefaultLimit = _nvmlDeviceGetEnforcedPowerLimit

    def _nvmlDeviceGetPersistenceMode(self, gpu):
        return 1

    def _nvmlDeviceGetComputeMode(self, gpu):
        return 0

    def _nvmlDeviceGetMigMode(self, gpu):
        return [0, 0]

    def _nvmlDeviceGetEccMode(self, gpu):
        return [1, 1]

    def _nvmlDeviceGetTotalEccErrors(self, gpu, kind, counter):
        return 0

    def _nvmlDeviceGetRemappedRows(self, gpu):
        return (0, 0, 0, 0)

    def _nvmlDeviceGetPcieReplayCounter(self, gpu):
        return 0

    def _nvmlDeviceGetNvLinkErrorCounter(self, gpu, link, counter):
        return 0

    def _nvmlDeviceGetComputeRunningProcesses(self, gpu):
        return []


FUNCTIONS = sorted(name[1:] for name in vars(FakeNvml) if name.startswith(("_nvmlDevice", "_nvmlSystem")))


def play(monkeypatch, fake):
    """Replaces the module that `import pynvml` finds by a FakeNvml."""
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


def driver(gpus=4, order=None, peer=True, **attributes):
    """The worker's answer; `order`: its GPUs by their number on the bus."""
    known = {
        "COMPUTE_CAPABILITY_MAJOR": 9,
        "COMPUTE_CAPABILITY_MINOR": 0,
        "MULTIPROCESSOR_COUNT": 132,
        "NUMA_ID": -1,
        "L2_CACHE_SIZE": 60 << 20,
        "ASYNC_ENGINE_COUNT": 3,
        "GLOBAL_MEMORY_BUS_WIDTH": 6144,
        "MEMORY_CLOCK_RATE": 3201000,
        **attributes,
    }
    order = list(range(gpus)) if order is None else order
    pairs = [(a, b) for a in range(len(order)) for b in range(len(order)) if a != b]
    return {
        "driver_present": True, "version": 13000, "why_not": "", "missing": [],
        "gpus": [{"uuid": f"GPU-{at}", "name": "NVIDIA H200", "pci": H200_PCI[at].upper(), "memory_bytes": 140 * GIB,
                  "attributes": known} for at in order],
        "peers": [{"from": a, "to": b, "access": peer, "native_atomics": True,
                   "performance_rank": order[a] * 10 + order[b]}
                  for a, b in pairs],
    }  # fmt: skip
