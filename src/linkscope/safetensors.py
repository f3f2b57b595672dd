"""Loads safetensors files: the header is checked, then threads read the data through the pinned ring to the GPU."""

import importlib
import json
import math
import os
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from linkscope import native, transfer

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # bytes, the bound of the format's own library
_ALIGNMENT = 256  # bytes: that of GPU allocations, which kernels with vector loads rely on

# Name in the file: bytes of an item, name in NumPy ("" if it has none), name in PyTorch.
_TYPES = {
    "BOOL": (1, "bool", "bool"),
    "U8": (1, "uint8", "uint8"),
    "I8": (1, "int8", "int8"),
    "U16": (2, "uint16", "uint16"),
    "I16": (2, "int16", "int16"),
    "U32": (4, "uint32", "uint32"),
    "I32": (4, "int32", "int32"),
    "U64": (8, "uint64", "uint64"),
    "I64": (8, "int64", "int64"),
    "F16": (2, "float16", "float16"),
    "BF16": (2, "", "bfloat16"),
    "F32": (4, "float32", "float32"),
    "F64": (8, "float64", "float64"),
    "F8_E4M3": (1, "", "float8_e4m3fn"),
    "F8_E5M2": (1, "", "float8_e5m2"),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor of a file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int  # of its first byte in the file
    nbytes: int


class HeaderError(ValueError):
    """The file is no safetensors file, or its header is wrong."""


def load_safetensors(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    device: Any = None,
    progress: Callable[[int, int], None] | None = None,
    checksums: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Returns the tensors of files by name.

    `device` is None for NumPy arrays, or a device of PyTorch ("cpu", "cuda", "cuda:1") for its tensors. The tensors of
    a file share one allocation. `progress(done_bytes, all_bytes)` is called now and then; what it raises ends the
    loading. `checksums`, a dictionary, receives the CRC-32 of each tensor, computed from the data at its destination.
    """
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    headers = [(path, read_header(path)) for path in files]
    _refuse_duplicates(headers)
    loaded: dict[str, Any] = {}
    whole, done = sum(entry.nbytes for _, entries in headers for entry in entries), 0
    for path, entries in headers:
        report = None if progress is None else lambda now, before=done: progress(before + now, whole)
        loaded |= _load_file(path, entries, device, report)
        done += sum(entry.nbytes for entry in entries)
    if progress is not None:
        progress(done, whole)
    if checksums is not None:
        checksums |= {name: _checksum(tensor) for name, tensor in loaded.items()}
    return loaded


# --- the header -------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> list[Entry]:
    """Returns the tensors of a file in the order of its header. Raises HeaderError with the place of the mistake."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(_LENGTH_BYTES)
            if len(start) < _LENGTH_BYTES:
                raise HeaderError(f"{path} has {size} bytes and no header; it is no safetensors file, or truncated")
            length = int.from_bytes(start, "little")
            if length > min(_LONGEST_HEADER, size - _LENGTH_BYTES):
                raise HeaderError(
                    f"{path}: the header claims {length} bytes; the file has {size}, and a header at most "
                    f"{_LONGEST_HEADER}. It is no safetensors file, or truncated"
                )
            text = file.read(length)
    except OSError as error:
        raise HeaderError(f"{path} cannot be read: {error.strerror}") from None
    entries = [_entry(path, name, facts, _LENGTH_BYTES + length) for name, facts in _parsed(path, text).items()]
    _check_places(path, entries, size)
    return entries


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    try:
        found = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise HeaderError(f"{path}: the header is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise HeaderError(f"{path}: the header is not a JSON object")
    found.pop("__metadata__", None)
    return found


def _entry(path: Path, name: str, facts: Any, data: int) -> Entry:
    def is_size(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62

    where = f"{path}: tensor '{name}'"
    if not isinstance(facts, dict) or not {"dtype", "shape", "data_offsets"} <= facts.keys():
        raise HeaderError(f"{where} lacks dtype, shape or data_offsets")
    dtype, shape, offsets = facts["dtype"], facts["shape"], facts["data_offsets"]
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise HeaderError(f"{where} has the unknown dtype {dtype!r}; known are {', '.join(_TYPES)}")
    if not isinstance(shape, list) or not all(map(is_size, shape)):
        raise HeaderError(f"{where} has a shape that is no list of sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(is_size, offsets)) or offsets[0] > offsets[1]:
        raise HeaderError(f"{where} has data_offsets that are no range")
    nbytes = math.prod(shape) * _TYPES[dtype][0]
    if nbytes != offsets[1] - offsets[0]:
        raise HeaderError(
            f"{where} needs {nbytes} bytes by its shape, and its data_offsets span {offsets[1] - offsets[0]}"
        )
    return Entry(name, dtype, tuple(shape), data + offsets[0], nbytes)


def _check_places(path: Path, entries: list[Entry], size: int) -> None:
    end, before = 0, ""
    for entry in sorted((one for one in entries if one.nbytes), key=lambda one: one.offset):
        if entry.offset + entry.nbytes > size:
            raise HeaderError(
                f"{path}: tensor '{entry.name}' ends at byte {entry.offset + entry.nbytes}, and the file has {size}; "
                "it is truncated"
            )
        if entry.offset < end:
            raise HeaderError(f"{path}: tensors '{before}' and '{entry.name}' overlap")
        end, before = entry.offset + entry.nbytes, entry.name


def _refuse_duplicates(headers: list[tuple[Path, list[Entry]]]) -> None:
    seen: dict[str, Path] = {}
    for path, entries in headers:
        for entry in entries:
            if entry.name in seen:
                raise HeaderError(f"tensor '{entry.name}' is in {seen[entry.name]} and in {path}; load one of them")
            seen[entry.name] = path


# --- the data ---------------------------------------------------------------------------------------------------------


def _load_file(path: Path, entries: list[Entry], device: Any, report: Callable[[int], None] | None) -> dict[str, Any]:
    places, end = {}, 0
    for entry in sorted(entries, key=lambda one: one.offset):
        places[entry.name] = end
        end += -(-entry.nbytes // _ALIGNMENT) * _ALIGNMENT
    make = _make_array if device is None else _make_tensor
    buffer = np.empty(end, np.uint8) if device is None else _torch().empty(end, dtype=_torch().uint8, device=device)
    tensors = {entry.name: make(entry, buffer, places[entry.name]) for entry in entries}
    to = transfer.range_of(buffer, "the buffer")
    pieces = [(entry.offset, entry.nbytes, to.address + places[entry.name]) for entry in entries if entry.nbytes]
    native.read_file(path, pieces, to.stream or 0, report)
    return tensors


def _make_array(entry: Entry, buffer: np.ndarray, at: int) -> np.ndarray:
    name = _TYPES[entry.dtype][1]
    if not name:
        raise ValueError(
            f"NumPy has no type {entry.dtype} (tensor '{entry.name}'); pass device='cpu' for PyTorch tensors"
        )
    return buffer[at : at + entry.nbytes].view(name).reshape(entry.shape)


def _make_tensor(entry: Entry, buffer: Any, at: int) -> Any:
    return buffer[at : at + entry.nbytes].view(getattr(_torch(), _TYPES[entry.dtype][2])).reshape(entry.shape)


def _torch() -> Any:
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise ValueError("PyTorch is not installed; install it, or load NumPy arrays with device=None") from None


def _checksum(tensor: Any) -> int:
    here = transfer.to_cpu(tensor)
    if not isinstance(here, np.ndarray):
        here = here.reshape(-1).view(_torch().uint8).numpy()
    return zlib.crc32(np.ascontiguousarray(here).reshape(-1).view(np.uint8).data)
