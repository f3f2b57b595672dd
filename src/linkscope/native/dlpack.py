"""The memory behind a DLPack capsule (dlpack.h, structure DLTensor)."""

import ctypes
from collections.abc import Sequence
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any, ClassVar


class _Tensor(ctypes.Structure):
    _fields_: ClassVar[Sequence[Any]] = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


@dataclass(frozen=True, slots=True)
class DlpackTensor:
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in bytes; None: C order without gaps
    itemsize: int
    capsule: object  # frees the tensor when it ends


def dlpack_tensor(capsule: object) -> DlpackTensor:
    """Reads a capsule without consuming it."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(get(capsule, b"dltensor"))
    itemsize = (tensor.bits * tensor.lanes + 7) // 8
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tuple(itemsize * step for step in tensor.strides[: tensor.ndim]) if tensor.strides else None
    return DlpackTensor((tensor.data or 0) + tensor.byte_offset, shape, strides, itemsize, capsule)
