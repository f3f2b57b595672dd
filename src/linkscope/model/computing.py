"""The peaks of a GPU's arithmetic, by element, and of its memory, with their derivations.

As for links, a peak is never below what can be measured: it counts the highest clock, which a GPU under its power limit
does not hold.
"""

from collections.abc import Mapping
from typing import Any

# Operations a clock and SM, dense; a multiplication and an addition are two. From NVIDIA's whitepapers of P100, V100,
# A100 and H100, divided by SMs and boost clock. Other GPUs are left out: their classes differ within a capability.
_EACH_CLOCK: Mapping[str, Mapping[str, int]] = {
    "6.0": {"f32": 128, "f64": 64},
    "7.0": {"f32": 128, "f64": 64, "f16": 1024},
    "8.0": {"f32": 128, "f64": 128, "bf16": 2048, "f16": 2048, "tf32": 1024},
    "9.0": {"f32": 256, "f64": 256, "bf16": 4096, "f16": 4096, "tf32": 2048, "fp8": 8192},
}
_TENSOR = ("bf16", "f16", "tf32", "fp8")
_NOTHING: Mapping[str, Any] = {}


def peak(gpu: Mapping[str, Any], sm_max_mhz: Any, element: str) -> tuple[float | None, str]:
    """Operations a second, and the derivation; None with the reason. `gpu` as in the `machine` of a run file."""
    capability, sms = str(gpu.get("compute_capability")), gpu.get("sms")
    known = _EACH_CLOCK.get(capability)
    if known is None:
        return None, f"the peaks of compute capability {capability} are not known here"
    if element not in known:
        return None, f"compute capability {capability} has no {element}"
    if not isinstance(sms, int) or not isinstance(sm_max_mhz, int | float):
        return None, "SMs or clock of the GPU are not visible here"
    each = known[element]
    value = sms * each * sm_max_mhz * 1e6
    unit = " by tensor cores" if element in _TENSOR or (element == "f64" and each > known["f32"] // 2) else ""
    return value, f"{sms} SMs x {each} operations a clock{unit} x {sm_max_mhz:g} MHz = {value / 1e12:.4g} Top/s"


def peak_of_model(model: Mapping[str, Any], gpu: str, element: str) -> tuple[float | None, str]:
    """The same on a modelled machine: a constant of its file. `gpu` is a place."""
    for table in model.get("gpu", ()):
        if any(gpu in gpus for gpus in table["at"].values()):
            value = table.get(f"{element}_tflops")
            if value:
                return value["v"] * 1e12, f"{element}_tflops of the machine file: {value['v']:g}"
    return None, f"the machine file has no {element}_tflops"


def peak_of_gpu(
    machine: Mapping[str, Any], environment: Mapping[str, Any], gpu: str, element: str
) -> tuple[float | None, str]:
    """The same for a place of a run, from the machine and the environment of its file: peak() or peak_of_model()."""
    model = machine.get("model")
    if isinstance(model, Mapping):
        return peak_of_model(model, gpu, element)
    of = _probed(machine, gpu)
    state = next((one for one in environment.get("gpus") or () if one.get("pci") == of.get("pci")), _NOTHING)
    return peak(of, state.get("sm_max_mhz"), element)


def memory_peak(gpu: Mapping[str, Any]) -> tuple[float | None, str]:
    """Bytes a second that a GPU's memory reads and writes together. `gpu` as in the `machine` of a run file."""
    clock, bits = gpu.get("memory_mhz"), gpu.get("memory_bus_bits")
    if not clock or not bits:
        return None, "clock or width of the GPU's memory are not visible here"
    value = clock * 1e6 * 2 * bits / 8
    return value, f"memory: {clock} MHz x 2 x {bits} bit / 8 = {value / 1e9:.4g} GB/s"


def memory_peak_of_gpu(machine: Mapping[str, Any], gpu: str) -> tuple[float | None, str]:
    """The same for a place of a run, from the machine of its file; on a model, a constant of the machine file."""
    model = machine.get("model")
    if not isinstance(model, Mapping):
        return memory_peak(_probed(machine, gpu))
    for table in model.get("gpu", ()):
        if any(gpu in gpus for gpus in table["at"].values()):
            rate = table["memory_gbps"]["v"]
            return rate * 1e9, f"memory_gbps of the machine file: {rate:g}"
    return None, "the machine file has no such GPU"


def _probed(machine: Mapping[str, Any], gpu: str) -> Mapping[str, Any]:
    gpus = (one for one in machine.get("gpus") or () if isinstance(one, Mapping))
    return next((one for one in gpus if f"gpu:{one.get('index')}" == gpu), _NOTHING)
