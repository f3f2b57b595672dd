"""Loads and saves safetensors files: the data goes from the file through the pinned ring to the GPU, and back."""

import importlib
import json
import math
import os
import stat
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from linkscope import native, transfer
from linkscope.native import WriteCounts
from linkscope.reading import Piece, Reading, read_pieces

_LENGTH_BYTES = 8
_LONGEST_HEADER = 100_000_000  # bytes, the bound of the format's own library
_ALIGNMENT = 256  # bytes: that of GPU allocations, which kernels with vector loads rely on
_FIRST_PART, _LARGEST_PART = 64 << 20, 1 << 30  # bytes of an allocation on a GPU, unless a tensor is larger

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
    """The file is not a safetensors file, or its header is wrong."""


def load_safetensors(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    device: Any = None,
    progress: Callable[[int, int], None] | None = None,
    checksums: dict[str, int] | None = None,
    counts: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Returns the tensors of files by name. Raises HeaderError for a truncated or wrong file.

    `device` is None for NumPy arrays, or a device of PyTorch ("cpu", "cuda", "cuda:1") for its tensors. A dictionary
    or a function from the tensor's name to a device spreads them over several devices. The tensors of a file on the CPU
    share one allocation. On a GPU they share allocations of at most 1 GiB, or of one larger tensor. linkscope reads the
    first tensors while it allocates memory for the others.

    linkscope calls `progress(done_bytes, all_bytes)` now and then; an exception from it ends the loading. The
    dictionary `checksums` receives the CRC-32 of each tensor, computed from the data at its destination. The dictionary
    `counts` receives the bytes by method, with the names that read_file() returns.
    """
    files = [Path(paths)] if isinstance(paths, str | os.PathLike) else [Path(path) for path in paths]
    headers = [(path, read_header(path)) for path in files]
    _refuse_duplicates(headers)
    loaded, counted = dict[str, Any](), Counter[str]()
    whole, done = sum(entry.nbytes for _, entries in headers for entry in entries), 0
    for path, entries in headers:
        for where, part in _by_device(entries, device):
            report = None if progress is None else lambda now, before=done: progress(before + now, whole)
            tensors, read = _load_part(path, part, where, report)
            loaded |= tensors
            counted.update(read)
            done += sum(entry.nbytes for entry in part)
    if progress is not None:
        progress(done, whole)
    if checksums is not None:
        checksums |= {name: _checksum(tensor) for name, tensor in loaded.items()}
    if counts is not None:
        counts |= counted
    return loaded


def save_safetensors(
    tensors: dict[str, Any],
    path: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
    checksums: dict[str, int] | None = None,
    durable: bool = True,
) -> WriteCounts:
    """Saves arrays and tensors by name in one file. Data of GPUs is not copied to host memory as a whole.

    Each tensor is saved after the work that is on its current stream. A temporary file gets the name when it is
    complete, so an error leaves an earlier file unchanged. With `durable`, the call returns when the data is on the
    disk.

    `progress` and `checksums` are as for load_safetensors(); a checksum needs one tensor at a time in host memory.
    Returns the numbers of bytes that were written past the page cache and through it, as save_file() does.
    """
    header: dict[str, Any] = {"__metadata__": _checked_metadata(metadata)} if metadata else {}
    sources, end = list[tuple[int, int, int]](), 0
    for one in sorted((_saved(*item) for item in tensors.items()), key=_Saved.order):
        nbytes = one.memory.nbytes
        header[one.name] = {"dtype": one.dtype, "shape": one.shape, "data_offsets": [end, end + nbytes]}
        sources.append((one.memory.address, nbytes, one.stream))
        end += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)
    start = np.frombuffer(len(text).to_bytes(_LENGTH_BYTES, "little") + text, np.uint8)
    whole = start.size + end
    report = None if progress is None else lambda done: progress(done, whole)
    counts = native.save_file(path, [(start.ctypes.data, start.size, 0), *sources], durable, report)
    if checksums is not None:
        checksums |= {name: _checksum(tensor) for name, tensor in tensors.items()}
    return counts


def _checked_metadata(metadata: dict[str, str]) -> dict[str, str]:
    """Raises ValueError for metadata that the format's own library refuses to read: it reads texts by name."""
    for key, value in metadata.items():
        if not _is_text(key) or not _is_text(value):
            raise ValueError(f"metadata {key!r} is {value!r}; the format keeps only texts, so pass both as texts")
    return metadata


def _is_text(value: object) -> bool:
    """Whether UTF-8 can hold it: a half of a surrogate pair is no character."""
    return isinstance(value, str) and value == value.encode(errors="ignore").decode()


def _saved(name: str, tensor: Any) -> "_Saved":
    where = f"tensor '{name}'"
    if not _is_text(name) or name == "__metadata__":
        raise ValueError(f"{name!r} cannot be the name of a tensor; use another text")
    if hasattr(tensor, "shape") and hasattr(tensor, "dtype"):
        shape, type_name = tensor.shape, str(tensor.dtype).removeprefix("torch.")
    elif facts := getattr(tensor, "__cuda_array_interface__", None):
        shape, type_name = facts["shape"], str(np.dtype(facts["typestr"]))
    else:
        raise ValueError(f"{where} is a {type(tensor).__name__}; pass an array or a tensor")
    memory = transfer.range_of(tensor, where)
    if "C" not in memory.orders:
        raise ValueError(f"{where} lies in Fortran order; pass numpy.ascontiguousarray(array)")
    found = [dtype for dtype, (_, *names) in _TYPES.items() if type_name in names]
    if not found:
        raise ValueError(
            f"{where} has the type {type_name}, which the format lacks; convert it to one of {', '.join(_TYPES)}"
        )
    return _Saved(name, found[0], list(shape), memory, transfer.stream_of(memory))


@dataclass(frozen=True, slots=True)
class _Saved:
    """A tensor that goes to a file."""

    name: str
    dtype: str
    shape: list[int]
    memory: transfer.Range
    stream: int

    def order(self) -> tuple[int, str, int, str]:
        """Large items first, so that all are aligned; then by GPU and stream, because each change costs a pass."""
        return -_TYPES[self.dtype][0], str(getattr(self.memory.owner, "device", "")), self.stream, self.name


# --- the header -------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> list[Entry]:
    """Returns the tensors of a file in the order of its header. Raises HeaderError with the place of the mistake."""
    try:
        facts = path.stat()
        if not stat.S_ISREG(facts.st_mode):  # to open a pipe would wait for its writer
            raise HeaderError(f"{path} is no regular file; name a safetensors file")
        size = facts.st_size
        with path.open("rb") as file:
            start = file.read(_LENGTH_BYTES)
            if len(start) < _LENGTH_BYTES:
                raise HeaderError(f"{path} has {size} bytes and no header; it is not a safetensors file, or truncated")
            length = int.from_bytes(start, "little")
            if length > min(_LONGEST_HEADER, size - _LENGTH_BYTES):
                raise HeaderError(
                    f"{path}: the header claims {length} bytes; the file has {size}, and a header at most "
                    f"{_LONGEST_HEADER}. It is not a safetensors file, or truncated"
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


def _by_device(entries: list[Entry], device: Any) -> list[tuple[Any, list[Entry]]]:
    """The tensors of each device, at least one part: an empty file has no tensors on any device."""
    if isinstance(device, dict):
        missing = [entry.name for entry in entries if entry.name not in device]
        if missing:
            raise ValueError(
                f"device names no device for tensor '{missing[0]}'; add it, or pass a function of the name"
            )
        device = device.__getitem__
    if not callable(device):
        return [(device, entries)]
    parts: dict[Any, list[Entry]] = {}
    for entry in entries:
        parts.setdefault(device(entry.name), []).append(entry)
    return list(parts.items())


def _load_part(
    path: Path, entries: list[Entry], device: Any, report: Callable[[int], None] | None
) -> tuple[dict[str, Any], dict[str, int]]:
    """Tensors of a file on one device, and the bytes by the way they were read."""
    parts = _parts(entries) if _is_on_gpu(device) else [entries]
    tensors, pieces, stream = _allocated(parts[0], device)
    if len(parts) == 1:
        counts = read_pieces(path, pieces, stream, report)
    else:
        with Reading(path, stream, report) as reading:
            reading.add(pieces)
            for part in parts[1:]:
                more, pieces, _ = _allocated(part, device)
                tensors |= more
                reading.add(pieces)
            counts = reading.wait()
    return {entry.name: tensors[entry.name] for entry in entries}, counts


def _is_on_gpu(device: Any) -> bool:
    return device is not None and str(device).partition(":")[0] != "cpu"


def _parts(entries: list[Entry]) -> list[list[Entry]]:
    """Tensors in the order of the file that share an allocation.

    On an H200, PyTorch allocated new memory in a fifth of the time of reading as much. So the first part is small, and
    while one is read, the next one is allocated, twice as large.
    """
    parts, size, most = [list[Entry]()], 0, _FIRST_PART
    for entry in sorted(entries, key=lambda one: one.offset):
        if parts[-1] and size + entry.nbytes > most:
            parts.append([])
            size, most = 0, min(2 * most, _LARGEST_PART)
        parts[-1].append(entry)
        size += _aligned(entry.nbytes)
    return parts


def _allocated(entries: list[Entry], device: Any) -> tuple[dict[str, Any], list[Piece], int]:
    """Tensors that share an allocation, where their bytes come from, and the stream on which its owner works."""
    places, end = {}, 0
    for entry in sorted(entries, key=lambda one: one.offset):
        places[entry.name] = end
        end += _aligned(entry.nbytes)
    make = _make_array if device is None else _make_tensor
    buffer = np.empty(end, np.uint8) if device is None else _torch().empty(end, dtype=_torch().uint8, device=device)
    tensors = {entry.name: make(entry, buffer, places[entry.name]) for entry in entries}
    to = transfer.range_of(buffer, "the buffer")
    pieces = [(entry.offset, entry.nbytes, to.address + places[entry.name]) for entry in entries if entry.nbytes]
    return tensors, pieces, transfer.stream_of(to)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


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
