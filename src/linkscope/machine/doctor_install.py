"""The doctor's checks of an installation: what lets programs use GPUs, share memory and find their libraries."""

from collections.abc import Mapping
from typing import Any

from linkscope.machine.facts import Machine
from linkscope.machine.finding import Found, bad, info, warn

_LITTLE_SHARED = 1 << 30
# By library: what needs it, and how to get it.
_LIBRARIES = {
    "NCCL": ("collectives of GPUs", "pip install nvidia-nccl-cu13 (or -cu12), or LINKSCOPE_NCCL=/path/to/libnccl.so.2"),
    "MPI": ("messages between ranks", "pip install mpich, or the distribution's openmpi-bin and libopenmpi3"),
    "UCX": ("messages by UCX", "pip install libucx-cu13 (or -cu12), or LINKSCOPE_UCX=/path/to/libucp.so.0"),
    "NIXL": ("one-sided messages", "pip install nixl-cu13 (or -cu12), or LINKSCOPE_NIXL=/path/to/libnixl_capi.so"),
    "cuBLAS": ("products of matrices", "pip install nvidia-cublas, and its folder in LD_LIBRARY_PATH"),
    "cuDNN": ("primitives of neural networks", "pip install nvidia-cudnn-cu13, and its folder in LD_LIBRARY_PATH"),
}


def devices(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Device files of the driver that this user may not open."""
    closed = environment.get("process", {}).get("closed_devices", ())
    if closed:
        yield bad(
            f"this user may not open {', '.join(closed)}",
            "CUDA finds no GPU without them",
            "an administrator: chmod a+rw, or the user joins the files' group; in a container: --device or --gpus",
        )


def shared_memory(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """The size of /dev/shm."""
    size = environment.get("memory", {}).get("shm_bytes")
    if isinstance(size, int) and size < _LITTLE_SHARED:
        yield warn(
            f"/dev/shm holds {size / 2**20:g} MiB",
            "processes share memory there: NCCL, MPI and data loaders fail when it is full",
            "docker run --shm-size=8g, or an administrator: mount -o remount,size=8g /dev/shm",
        )


def peers(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Pairs without peer access, and PCIe bridges that redirect it."""
    without = [f"gpu:{pair.src}-gpu:{pair.dst}" for pair in machine.pairs if pair.peer is False and pair.src < pair.dst]
    redirecting = environment.get("system", {}).get("acs_redirecting", ())
    if without:
        shown = ", ".join(without[:4]) + (f" and {len(without) - 4} more" if len(without) > 4 else "")
        yield info(
            f"no peer access: {shown}",
            "copies between these GPUs go through host memory",
            "if PCIe should carry them: turn off ACS on the bridges, boot with iommu=pt; see nvidia-smi topo -p2p r",
        )
    if redirecting and len(machine.gpus) > 1:
        yield warn(
            f"ACS redirects peer traffic at {len(redirecting)} PCIe bridges",
            "copies between GPUs below a switch go up to the CPU and back",
            f"an administrator, outside virtual machines: setpci -s {redirecting[0]} ECAP_ACS+6.w=0000, on each bridge",
        )


def libraries(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Libraries that are found at run time."""
    for name, why_not in environment.get("libraries", {}).items():
        if why_not and (machine.gpus or name == "MPI"):
            purpose, cure = _LIBRARIES[name]
            yield info(f"{name} is not here ({why_not})", f"{purpose} cannot be measured", cure)


CHECKS = (devices, shared_memory, peers, libraries)
