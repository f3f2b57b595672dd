"""Virtual machine, container or sandboxed kernel between this process and the hardware."""

import re

from linkscope.machine.facts import HIDDEN
from linkscope.machine.host import read_cpu, runs_under_hypervisor
from linkscope.machine.sysfs import Files

_VENDORS = {
    "kvm": "kvm", "qemu": "kvm", "vmware": "vmware", "virtualbox": "virtualbox", "microsoft": "hyper-v",
    "xen": "xen", "amazon ec2": "nitro", "google": "google", "firecracker": "firecracker",
}  # fmt: skip
_CONTAINERS = ("docker", "kubepods", "containerd", "libpod", "lxc", "podman", "garden")


def sandbox(files: Files) -> dict[str, str]:
    """`hypervisor`: its name, unnamed, none or hidden; `container`: its kind or none; `kernel`: linux or gvisor."""
    return {"hypervisor": _hypervisor(files), "container": _container(files), "kernel": _kernel(files)}


def _hypervisor(files: Files) -> str:
    here = runs_under_hypervisor(files, read_cpu(files))
    if here is None:
        return HIDDEN
    if not here:
        return "none"
    folder = "/sys/class/dmi/id"
    parts = [files.text(f"{folder}/{name}") for name in ("product_name", "sys_vendor", "bios_vendor")]
    parts += [files.text("/sys/hypervisor/type"), files.text("/proc/sys/kernel/osrelease")]
    text = " ".join(each for each in parts if each).lower()
    if re.search(r"-fc\b", text):  # kernel name of Firecracker guests
        return "firecracker"
    return next((name for word, name in _VENDORS.items() if word in text), "unnamed")


def _container(files: Files) -> str:
    if ".dockerenv" in files.names("/"):
        return "docker"
    if files.text("/run/.containerenv") is not None or ".containerenv" in files.names("/run"):
        return "podman"
    if files.names("/.singularity.d"):
        return "singularity"
    groups = files.text("/proc/1/cgroup") or ""
    return next((kind for kind in _CONTAINERS if re.search(rf"[/:.-]{kind}\b", groups)), "none")


def _kernel(files: Files) -> str:
    return "gvisor" if "gvisor" in (files.text("/proc/version") or "").lower() else "linux"
