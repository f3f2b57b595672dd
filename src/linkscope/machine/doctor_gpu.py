"""The doctor's checks of driver and GPUs. Each yields severity, finding, reason and cure."""

from collections.abc import Mapping
from typing import Any

from linkscope.machine.facts import Gpu, Machine
from linkscope.machine.finding import Found, bad, info, warn
from linkscope.machine.gpu_state import BAD_REASONS
from linkscope.machine.probe import NOT_ASKED

_OLDEST_DRIVER = 525
# The texts by which the worker and linkscope.machine.nvml report absence, as opposed to a fault.
_NO_CUDA = (NOT_ASKED, "there is no CUDA driver here")
_NO_NVML = ("there is no NVML here", "nvidia-ml-py is not installed")
_REPAIR = "install a driver, or repair this one"
# A working link has a few replays a day.
_MANY_REPLAYS = 100


def _variables(environment: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = environment.get("process", {}).get("variables", {})
    return found


def driver(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Whether a driver exists, starts, and is new enough."""
    cuda, nvml, version = machine.driver.cuda_why_not, machine.driver.nvml_why_not, machine.driver.version
    nothing = (not cuda or cuda.startswith(_NO_CUDA)) and (not nvml or nvml.startswith(_NO_NVML))
    if nothing and not (machine.pci_gpus or machine.gpus or machine.lost or machine.unused):
        yield info(
            "there is no NVIDIA GPU here",
            "only copies inside the host's memory can be measured",
            "nothing if the machine has no GPU; in a container, start it with its GPUs (docker run --gpus all)",
        )
        return
    major = (version or "").partition(".")[0]
    if major.isdigit() and int(major) < _OLDEST_DRIVER:
        yield bad(
            f"the driver {version} is too old",
            "linkscope needs the calls of CUDA 12.0",
            f"install driver {_OLDEST_DRIVER} or newer",
        )
    elif cuda and cuda != NOT_ASKED:
        hides = "CUDA_ERROR_NO_DEVICE" in cuda and "CUDA_VISIBLE_DEVICES" in _variables(environment)
        cure = "unset CUDA_VISIBLE_DEVICES, which names no GPU that is here" if hides else _REPAIR
        yield bad(f"CUDA does not work: {cuda}", "no GPU can be used", cure)
    if nvml:
        unseen = "clocks, throttling, links and errors of the GPUs cannot be seen"
        if "different versions" in nvml:
            yield bad(nvml, unseen, "reboot, or reload the driver")
        else:
            yield warn(nvml, unseen, "make libnvidia-ml.so.1 and the driver visible here")
    if machine.unused:
        yield info(
            f"CUDA does not show {len(machine.unused)} of the GPUs that are here",
            "they are not measured",
            "unset CUDA_VISIBLE_DEVICES to measure them too",
        )


def lost(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """GPUs that fell off the bus."""
    since = {str(state["pci"]) for state in environment.get("gpus", ()) if state.get("lost")}
    for name in machine.lost or sorted(since):
        yield bad(
            f"the GPU {name} is lost",
            "it fell off the bus and answers nothing",
            "look for Xid 79 in the kernel's log (dmesg), drain the node, reset or replace the GPU",
        )


def links(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """PCIe links below their maximum, and NVLinks that are down."""
    for gpu in machine.gpus:
        yield from _pcie(gpu, _state(environment, gpu))
        down = [str(link.index) for link in gpu.nvlinks if not link.active]
        if down and len(down) < len(gpu.nvlinks):
            yield bad(
                f"gpu:{gpu.index}: NVLink {', '.join(down)} of {len(gpu.nvlinks)} is down",
                "copies between GPUs lose that part of the bandwidth",
                "look at nvidia-smi nvlink -s and the fabric manager's log; reseat or replace the part",
            )
        elif down:
            yield warn(
                f"gpu:{gpu.index}: all {len(down)} NVLinks are down",
                "GPUs talk over PCIe",
                "start nvidia-fabricmanager, if this machine has an NVSwitch; put in the bridges, if it has none",
            )


def _pcie(gpu: Gpu, state: Mapping[str, Any]) -> Found:
    link = gpu.pcie
    if link.width and link.max_width and link.width < link.max_width:
        yield bad(
            f"gpu:{gpu.index}: PCIe runs at x{link.width}, it could be x{link.max_width}",
            f"copies to and from the host get {link.width / link.max_width:.0%} of their bandwidth",
            "reseat the GPU and its riser; look whether the slot is wired for fewer lanes",
        )
    if link.generation and link.max_generation and link.generation < link.max_generation:
        idle = "gpu_idle" in _reasons(state)
        what = f"gpu:{gpu.index}: PCIe is at generation {link.generation}, it could be {link.max_generation}"
        if idle:
            yield info(
                f"{what} (the GPU is idle)",
                "idle GPUs lower the generation to save power; a run reads it under load",
                "nothing",
            )
        else:
            yield warn(
                what,
                "each generation less halves the bandwidth",
                "look at it under load, as a run does; if it stays: BIOS setting of the slot, riser, cable",
            )
    replays = state.get("pcie_replays")
    if isinstance(replays, int) and replays > _MANY_REPLAYS:
        yield warn(
            f"gpu:{gpu.index}: {replays} PCIe packets had to be sent again",
            "the link's signal is bad",
            "reseat the GPU; watch whether the counter grows during a run",
        )


def health(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Memory errors and throttling."""
    for gpu in machine.gpus:
        state, name = _state(environment, gpu), f"gpu:{gpu.index}"
        uncorrected = state.get("ecc_uncorrected")
        if isinstance(uncorrected, int) and uncorrected > 0:
            yield bad(
                f"{name}: {uncorrected} memory errors that ECC could not correct",
                "data may be wrong",
                "drain the node and reset the GPU; replace it if they come again",
            )
        if state.get("row_remap_failed") is True:
            yield bad(
                f"{name}: a bad row of its memory could not be replaced",
                "it has no spare rows left",
                "replace it",
            )
        elif state.get("row_remap_pending") is True:
            yield bad(f"{name}: a bad row of its memory waits to be replaced", "it is still in use", "reset the GPU")
        throttled = sorted(BAD_REASONS & set(_reasons(state)))
        if throttled:
            yield bad(
                f"{name} is slowed down: {', '.join(throttled)}",
                "rates change with heat and power",
                "look at cooling, power supply and power cables",
            )
        if "sw_power_cap" in _reasons(state):
            yield warn(
                f"{name} is at its power limit",
                "its clocks depend on the work",
                "raise the limit, or note it",
            )
        errors = state.get("nvlink_errors")
        if isinstance(errors, dict) and any(errors.values()):
            counts = ", ".join(f"{count} {kind}" for kind, count in sorted(errors.items()) if count)
            yield warn(
                f"{name}: NVLink errors: {counts}",
                "packets are sent again",
                "watch whether they grow in a run",
            )


def modes(machine: Machine, environment: Mapping[str, Any]) -> Found:
    """Modes that exclude other users or change the devices, and other users."""
    for gpu in machine.gpus:
        state, name = _state(environment, gpu), f"gpu:{gpu.index}"
        if state.get("compute_mode") == "prohibited":
            yield bad(
                f"{name} is in prohibited mode",
                "no program can use it",
                f"an administrator: nvidia-smi -i {gpu.pci} -c DEFAULT",
            )
        elif str(state.get("compute_mode")).startswith("exclusive"):
            yield warn(
                f"{name} is in exclusive mode",
                "one process at a time: a run fails while another has it",
                f"make sure that it is free, or an administrator: nvidia-smi -i {gpu.pci} -c DEFAULT",
            )
        if state.get("mig") is True:
            yield warn(
                f"{name} is divided (MIG)",
                "parts have less bandwidth, and no peer access",
                f"measure so on purpose, or an administrator: nvidia-smi -i {gpu.pci} -mig 0",
            )
        others = state.get("processes")
        if isinstance(others, int) and others > 0:
            yield warn(
                f"{name}: {others} other process{'es' * (others > 1)} on it",
                "they share links and memory",
                "end them, or measure when they are done (nvidia-smi shows them)",
            )
        if state.get("persistence") is False:
            yield info(
                f"{name}: persistence mode is off",
                "the driver restarts with each process, which takes seconds",
                "an administrator: start nvidia-persistenced",
            )


def _state(environment: Mapping[str, Any], gpu: Gpu) -> Mapping[str, Any]:
    states: list[Mapping[str, Any]] = environment.get("gpus", [])
    return next((state for state in states if state.get("pci") == gpu.pci), {})


def _reasons(state: Mapping[str, Any]) -> list[str]:
    reasons = state.get("throttle")
    return reasons if isinstance(reasons, list) else []


CHECKS = (driver, lost, links, health, modes)
