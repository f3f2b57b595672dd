"""The part of PyTorch that linkscope.transfer and tools/loader_bench.py use, for tests on machines without PyTorch:
import it before a copy.

A tensor on "cpu" is a NumPy array; one on "cuda:1" is memory of the fake driver's second GPU.
"""

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

uses: list[tuple[int, int]] = []  # (address of a tensor, stream), one for each record_stream
waits: list[tuple[int, int]] = []  # (stream that waits, stream that it waits for)


class Stream:
    def __init__(self, number: int) -> None:
        self.cuda_stream = number

    def wait_stream(self, other: "Stream") -> None:
        waits.append((self.cuda_stream, other.cuda_stream))


current, on_second = Stream(0), Stream(0)  # the current streams of the GPUs


class Tensor:
    def __init__(self, array: np.ndarray, device: str = "cpu", owner: Any = None) -> None:
        self.array, self.device, self.owner = array, SimpleNamespace(), owner
        self._on = device
        self.device.type, _, index = device.partition(":")
        self.device.index = int(index or 0)
        self.layout, self.dtype, self.shape = "strided", array.dtype, array.shape
        self.is_lazy = False

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    def is_conj(self) -> bool:
        return self.is_lazy

    def is_neg(self) -> bool:
        return False

    def element_size(self) -> int:
        return self.array.itemsize

    def numel(self) -> int:
        return self.array.size

    def data_ptr(self) -> int:
        return int(self.array.ctypes.data)

    def same(self) -> "Tensor":
        return self

    detach = contiguous = resolve_conj = resolve_neg = same

    def numpy(self) -> np.ndarray:
        return self.array

    def record_stream(self, stream: Any) -> None:
        uses.append((self.data_ptr(), stream.cuda_stream))

    def __getitem__(self, part: Any) -> "Tensor":
        return Tensor(self.array[part], self._on, self.owner)

    def view(self, dtype: Any) -> "Tensor":
        return Tensor(self.array.view(dtype), self._on, self.owner)

    def reshape(self, shape: Any) -> "Tensor":
        return Tensor(self.array.reshape(shape), self._on, self.owner)

    def flatten(self) -> "Tensor":
        return self.reshape(-1)

    def to(self, device: Any) -> "Tensor":
        return self

    def copy_(self, other: "Tensor", non_blocking: bool = False) -> None:
        copied.append(other.array.nbytes)
        self.array[...] = other.array


copied: list[int] = []  # bytes of each copy_()


def empty(shape: Any, dtype: Any, device: str = "cpu", pin_memory: bool = False) -> Tensor:
    if device == "cpu":
        return Tensor(np.empty(shape, dtype))
    from ctypes import c_char

    from fake_gpu import Array

    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    owner = Array(max(size, 1), gpu=int(device.partition(":")[2] or 0))
    flat = np.frombuffer((c_char * size).from_address(owner.address), np.uint8) if size else np.empty(0, np.uint8)
    return Tensor(flat.view(dtype).reshape(shape), device, owner)


module: Any = ModuleType("torch")
module.__spec__ = ModuleSpec("torch", None)
module.Tensor, module.empty, module.strided = Tensor, empty, "strided"
module.empty_like = lambda one, device: empty(one.shape, one.dtype, device)
module.frombuffer = lambda data, dtype: Tensor(np.frombuffer(data, dtype))
module.equal = lambda one, other: np.array_equal(one.array, other.array)
module.cuda = SimpleNamespace(
    current_stream=lambda device: on_second if device.index else current,
    ExternalStream=lambda number, device: SimpleNamespace(cuda_stream=number),
    synchronize=lambda: None,
    empty_cache=lambda: None,
)
for name in ("uint8", "float32", "float16", "float64", "int64"):
    setattr(module, name, np.dtype(name))
sys.modules["torch"] = module
