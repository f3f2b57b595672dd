"""Copies that choose their method: `linkscope.copy(dst, src)`, `linkscope.to_cpu(tensor)`, and copies of files.

A source or destination is a NumPy array, a PyTorch tensor, an object with the buffer protocol,
`__cuda_array_interface__` or `__dlpack__`, or a pair `(address, nbytes)`. It has no gaps. Both sides have equal bytes.
Every function raises ValueError for a wrong request, MemoryError if memory is refused, and TransferError if a call of
the driver or the system fails. LINKSCOPE_TRANSFER=plain leaves every copy to the driver.
"""

import contextlib
import math
import operator
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from linkscope import native
from linkscope.native import Cancelled, Prepared, ReadCounts, Registration, Transfer, TransferError, WriteCounts

__all__ = [
    "Cancelled",
    "Prepared",
    "ReadCounts",
    "Registration",
    "Transfer",
    "TransferError",
    "WriteCounts",
    "copy",
    "copy_blocks",
    "prepare",
    "read_file",
    "register",
    "save_file",
    "start_copy",
    "strided",
    "to_cpu",
    "use_helpers",
]

_DLPACK_HOST = (1, 3)  # kDLCPU, kDLCUDAHost
_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2
_WORD = 1 << 64  # addresses and sizes are below it


@dataclass(frozen=True, slots=True)
class Range:
    """The memory of an object."""

    address: int
    nbytes: int
    itemsize: int  # 1: bytes, which may hold items of any type
    orders: str  # "C", "F" or "CF": the orders in which its items lie without gaps
    writable: bool
    owner: Any
    stream: int | None = None  # on which the object's owner queues work


def copy(dst: Any, src: Any, stream: Any = None) -> None:
    """Copies all bytes of `src` to `dst`, in the order of the stream, as cudaMemcpyAsync does.

    After the call a pageable source may be changed, and a pageable destination holds the data. Pinned memory must stay
    allocated until the stream has made the copy. The default stream is PyTorch's current stream for a tensor, the
    stream of `__cuda_array_interface__`, or else the legacy default stream of the GPU that has the memory. Raises
    ValueError if the two objects name different streams, unless both are tensors, and for memory that this process
    cannot read or write. Sizes that the driver copies itself (below 1 MiB if untuned) are not checked for memory that
    was freed: there the driver ends the process, as in its own copies.
    """
    to, source = _pair(dst, src)
    number = _stream_number(stream, to, source)
    with _both_waiting(_streams_of_both(stream, to, source)):
        native.copy(to.address, source.address, source.nbytes, number)
    _record(stream, number, to, source)


def to_cpu(array: Any) -> Any:
    """Returns the data of a GPU array in host memory: a PyTorch tensor for a tensor, a NumPy array for others.

    Returns an array that is already in host memory unchanged.
    """
    torch = _torch_of(array)
    if torch:
        if array.device.type == "cpu":
            return array
        array = array.detach().contiguous().resolve_conj().resolve_neg()
        result = torch.empty(array.shape, dtype=array.dtype)
    elif hasattr(array, "__cuda_array_interface__"):
        facts = array.__cuda_array_interface__
        result = np.empty(facts["shape"], dtype=np.dtype(facts["typestr"]))
    else:
        return array
    to, source = _pair(result, array)
    number = _stream_number(None, to, source)
    native.copy_to_fresh(to.address, source.address, source.nbytes, number)
    return result


def copy_blocks(dst_pointers: Any, src_pointers: Any, sizes: Any, stream: Any = None) -> None:
    """Copies many blocks by their addresses, in the order of the stream and in any order among themselves.

    The pointers are lists or arrays of n addresses; `strided()` lists the addresses of rows. `sizes` is one size in
    bytes for all blocks, or n sizes. All blocks must stay allocated until the stream has made the copy. The default
    stream is the legacy default stream of the GPU that has the first block. One launch of a kernel on few SMs moves
    small blocks. In a graph capture of the stream, each block is one copy of the driver.

    No destination may overlap another destination or a source. Calls of at most 64 blocks raise ValueError for any
    overlap, longer lists only for neighbours. Bytes of an overlap that is not refused come from any of its blocks.
    """
    to, source = _addresses(dst_pointers, "dst_pointers"), _addresses(src_pointers, "src_pointers")
    if to.size != source.size:
        raise ValueError(
            f"dst_pointers names {to.size} blocks and src_pointers {source.size}; pass one of each a block"
        )
    lengths = _addresses(sizes, "sizes")
    if np.ndim(sizes) == 0:
        lengths = np.full(to.size, lengths[0])
    if lengths.size != to.size:
        raise ValueError(f"sizes has {lengths.size} values for {to.size} blocks; pass one, or one of each block")
    number = _stream_number(stream)
    native.copy_blocks(to.ctypes.data, source.ctypes.data, lengths.ctypes.data, to.size, number)


def strided(start: int, stride: int, numbers: Any) -> np.ndarray:
    """Returns the addresses `start + stride * number` of rows. `numbers`: a count n for rows 0 to n - 1, or indices."""
    if np.ndim(numbers) == 0:
        rows = np.arange(_number(numbers, "the count of rows"), dtype=np.uint64)
    else:
        rows = _addresses(numbers, "numbers")
    if rows.size == 0:
        return rows
    first, last = (start + stride * int(row) for row in (rows.min(), rows.max()))
    _number(min(first, last), "the address of a row")
    _number(max(first, last), "the address of a row")
    # Modulo 2**64, in which a negative stride is a large one.
    return np.uint64(start % _WORD) + np.uint64(stride % _WORD) * rows


def _addresses(values: Any, name: str) -> np.ndarray:
    found = np.asarray(values.cpu() if _torch_of(values) else values)
    if found.ndim == 0:
        found = found.reshape(1)
    kind = found.dtype.kind
    if found.ndim != 1 or (found.size and kind not in "iu") or (kind == "i" and found.size and found.min() < 0):
        raise ValueError(f"{name} is no list of numbers of at least 0; pass integers, for example tensor.data_ptr()")
    return np.ascontiguousarray(found, np.uint64)


def start_copy(dst: Any, src: Any, stream: Any = None) -> Transfer:
    """Starts a copy in the background, after the work that is on the stream now.

    Later work of the stream does not wait for the copy. Do not use source or destination before `wait()` has returned.
    Raises ValueError in a graph capture of the stream; `copy()` can be captured.
    """
    to, source = _pair(dst, src)
    number = _stream_number(stream, to, source)
    with _both_waiting(_streams_of_both(stream, to, source)):
        return Transfer(to.address, source.address, source.nbytes, number, owners=(to, source))


def prepare(dst: Any, src: Any, stream: Any = None) -> Prepared:
    """Returns a prepared copy. Each call of its `run()` makes the copy, on the streams that are current now."""
    to, source = _pair(dst, src)
    number, both = _stream_number(stream, to, source), _streams_of_both(stream, to, source)
    if both is None:
        return Prepared(to.address, source.address, source.nbytes, number, owners=(to, source))
    between = _PreparedBetween(to.address, source.address, source.nbytes, number, owners=(to, source))
    between.streams = both
    return between


class _PreparedBetween(Prepared):
    """A copy between tensors of two GPUs."""

    streams: Any = None  # of both GPUs

    def run(self) -> None:
        with _both_waiting(self.streams):
            super().run()


def register(array: Any) -> Registration:
    """Pins the memory of a host array that many copies will use, until `close()` or the end of a `with`.

    Copies of registered memory follow the rules of pinned memory: do not change the source, and do not read the
    destination, before the stream has made the copy. Memory that is pinned already stays unchanged. A read-only array,
    such as a file that numpy.memmap maps with mode "r", becomes a source only. Raises ValueError for memory of a GPU,
    and for a file on a disk that is mapped for writing (mode "r+"): Linux 6.5 and later do not pin it. Raises
    MemoryError if registrations would exceed half of the host's memory, or LINKSCOPE_TRANSFER_REGISTERED bytes.
    """
    of = range_of(array, "the array")
    return Registration(of.address, of.nbytes, owners=of)


def read_file(path: str | os.PathLike[str], dst: Any, offset: int = 0, stream: Any = None) -> ReadCounts:
    """Reads as many bytes as `dst` has, from `offset` of a file, in the order of the stream.

    After the call the file may be changed, and an array on the host holds the data. Returns numbers of bytes: `cached`
    from the page cache, `direct` from the disk past the page cache, `buffered` from the disk through it. Of `cached`,
    the GPU itself read `mapped`. Of `direct`, io_uring read `uring` and cuFile `cufile`, and threads the others. Raises
    ValueError if the file is shorter.
    """
    offset = _number(offset, "the offset in the file")
    to = range_of(dst, "the destination")
    if not to.writable:
        raise ValueError("the destination is read-only; pass a writable array")
    number = _stream_number(stream, to)
    counts = native.read_file(path, [(offset, to.nbytes, to.address)], number)
    _record(stream, number, to)
    return counts


def save_file(path: str | os.PathLike[str], src: Any, stream: Any = None, durable: bool = False) -> WriteCounts:
    """Replaces a file by the bytes of `src`, after the work that is on the stream now.

    A temporary file gets the name when it is complete, so an error leaves the old file unchanged. With `durable`, the
    call returns when the data is on the disk. Returns numbers of bytes: `direct` written past the page cache, and
    `buffered` through it. Of `direct`, io_uring wrote `uring` and cuFile `cufile`, and threads the others. Raises
    ValueError for a path that cannot be written, TransferError for a full disk.
    """
    source = range_of(src, "the source")
    return native.save_file(path, [(source.address, source.nbytes, _stream_number(stream, source))], durable)


def stream_of(one: Range) -> int:
    """Returns the stream on which the owner of a memory queues work."""
    return _stream_number(None, one)


def use_helpers(gpus: Iterable[int]) -> None:
    """Lets large copies from and to a GPU also use the links of these GPUs, numbered in PCI bus order. [] ends it.

    Each helper gives 24 MiB of memory for each direction and GPU, and its own copies are slower meanwhile. A helper
    that a GPU does not reach by peer access takes no part. Call it while no copy is in progress.
    """
    native.set_helpers([_number(gpu, "the number of a GPU", 1 << 32) for gpu in gpus])


def _number(value: Any, what: str, end: int = _WORD) -> int:
    """Returns a whole number of at least 0 and below `end`: ctypes would pass on another one modulo 2**64."""
    number = operator.index(value)
    if not 0 <= number < end:
        raise ValueError(f"{what} is {number}; pass a number of at least 0 and below {end}")
    return number


def _pair(dst: Any, src: Any) -> tuple[Range, Range]:
    to, source = range_of(dst, "the destination"), range_of(src, "the source")
    if not to.writable:
        raise ValueError("the destination is read-only; pass a writable array")
    if to.nbytes != source.nbytes:
        raise ValueError(
            f"the destination has {to.nbytes} bytes and the source has {source.nbytes}; pass ranges of one size, for "
            "example a slice of the larger one"
        )
    if 1 not in (to.itemsize, source.itemsize) and to.itemsize != source.itemsize:
        raise ValueError(
            f"the destination has items of {to.itemsize} bytes and the source of {source.itemsize}; a copy does not "
            "convert: convert one of them first, or view it as bytes"
        )
    if not set(to.orders) & set(source.orders):
        raise ValueError(
            "one array lies in C order and the other in Fortran order; copy one to the other's order first"
        )
    return to, source


# --- the memory of an object ------------------------------------------------------------------------------------------


def range_of(thing: Any, role: str) -> Range:
    """Returns the memory of an object. `role` is its name in messages."""
    if isinstance(thing, tuple):
        return _raw_range(thing, role)
    if _torch_of(thing):
        return _tensor_range(thing, role)
    if hasattr(thing, "__cuda_array_interface__"):
        return _interface_range(thing, thing.__cuda_array_interface__, role)
    if hasattr(thing, "__array_interface__"):
        return _interface_range(thing, thing.__array_interface__, role)
    try:
        view = memoryview(thing)
    except TypeError:
        return _dlpack_range(thing, role)
    return _buffer_range(view, role)


def _raw_range(pair: tuple[Any, ...], role: str) -> Range:
    if len(pair) != 2:
        raise ValueError(f"{role} is a tuple, but not (address, nbytes) with two numbers of at least 0")
    named = zip(("the address", "the size"), pair, strict=True)
    address, nbytes = (_number(one, f"{name} of {role}") for name, one in named)
    return Range(address, nbytes, 1, "CF", True, pair)


def _torch_of(thing: Any) -> Any:
    """Returns torch if the object is a tensor. A program that has a tensor has imported torch, so this does not."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and isinstance(thing, torch.Tensor) else None


def _tensor_range(tensor: Any, role: str) -> Range:
    if tensor.device.type not in ("cpu", "cuda"):
        raise ValueError(f"{role} is a tensor on device '{tensor.device}'; pass one on 'cpu' or 'cuda'")
    if tensor.layout != sys.modules["torch"].strided:
        raise ValueError(f"{role} is a tensor with layout {tensor.layout}; pass its values and indices one by one")
    if not tensor.is_contiguous():
        raise ValueError(f"{role} is a tensor that is not contiguous; pass tensor.contiguous() or a contiguous slice")
    if tensor.is_conj() or tensor.is_neg():
        raise ValueError(f"{role} is a lazy conjugate or negative; pass tensor.resolve_conj().resolve_neg()")
    stream = None
    if tensor.device.type == "cuda":
        stream = sys.modules["torch"].cuda.current_stream(tensor.device).cuda_stream
    size = tensor.element_size()
    return Range(tensor.data_ptr(), tensor.numel() * size, size, "C", True, tensor, stream)


def _interface_range(thing: Any, facts: dict[str, Any], role: str) -> Range:
    """The memory of `__array_interface__` or `__cuda_array_interface__`, which agree in these keys."""
    kind = np.dtype(facts["typestr"])
    if kind.hasobject:
        raise ValueError(f"{role} holds Python objects; pass an array of numbers")
    if facts.get("mask") is not None:
        raise ValueError(f"{role} has a mask; pass its data and its mask one by one")
    shape, strides = tuple(facts["shape"]), facts.get("strides")
    orders = _orders(shape, strides, kind.itemsize)
    if not orders:
        raise ValueError(f"{role} is an array with gaps; pass numpy.ascontiguousarray(array) or a contiguous slice")
    address, read_only = facts["data"]
    # 1 and 2 name the default streams; a number beyond them is the address of a stream.
    return Range(
        address or 0, math.prod(shape) * kind.itemsize, kind.itemsize, orders, not read_only, thing, facts.get("stream")
    )


def _orders(shape: tuple[int, ...], strides: tuple[int, ...] | None, itemsize: int) -> str:
    """The orders in which the items lie without gaps; '' if there are gaps."""
    if strides is None or math.prod(shape) == 0:
        return "C" if strides is None and sum(extent != 1 for extent in shape) > 1 else "CF"

    def dense(axes: list[tuple[int, int]]) -> bool:
        expected = itemsize
        for extent, stride in axes:
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True

    axes = list(zip(shape, strides, strict=True))
    return ("C" if dense(axes[::-1]) else "") + ("F" if dense(axes) else "")


def _buffer_range(view: memoryview, role: str) -> Range:
    if not view.contiguous:
        raise ValueError(f"{role} is a buffer with gaps; pass a contiguous slice or a copy of it")
    orders = ("C" if view.c_contiguous else "") + ("F" if view.f_contiguous else "")
    if view.nbytes == 0:
        return Range(0, 0, view.itemsize, orders, not view.readonly, view)
    address = np.asarray(view).__array_interface__["data"][0]
    return Range(address, view.nbytes, view.itemsize, orders, not view.readonly, view)


def _dlpack_range(thing: Any, role: str) -> Range:
    if not hasattr(thing, "__dlpack__") or not hasattr(thing, "__dlpack_device__"):
        raise ValueError(
            f"{role} is a {type(thing).__name__}, whose memory linkscope cannot find; pass an array, a tensor, "
            "a buffer or (address, nbytes)"
        )
    on_host = thing.__dlpack_device__()[0] in _DLPACK_HOST
    tensor = native.dlpack_tensor(thing.__dlpack__() if on_host else thing.__dlpack__(stream=_LEGACY_STREAM))
    orders = _orders(tensor.shape, tensor.strides, tensor.itemsize)
    if not orders:
        raise ValueError(f"{role} is an array with gaps; pass a contiguous copy of it")
    nbytes = math.prod(tensor.shape) * tensor.itemsize
    return Range(tensor.address, nbytes, tensor.itemsize, orders, True, (thing, tensor))


# --- streams ----------------------------------------------------------------------------------------------------------


def _stream_number(stream: Any, *ranges: Range) -> int:
    """The CUstream that the caller named, or that of an owner; without one, the default stream of the memory's GPU."""
    if stream is None:
        named = [_LEGACY_STREAM if one.stream == 0 else one.stream for one in ranges if one.stream is not None]
        if len(set(named)) > 1 and not all(_torch_of(one.owner) for one in ranges):
            raise ValueError(
                f"the destination's work is on stream {named[0]} and the source's on stream {named[1]}; let one stream "
                "wait for the other, and pass it as stream"
            )
        # The current context may be that of another GPU: PyTorch changes it only while its own functions run.
        return named[0] if named and named[0] != _LEGACY_STREAM else native.STREAM_OF_MEMORY
    if isinstance(stream, int):
        return _number(stream, "the stream")
    for name in ("cuda_stream", "ptr", "handle"):  # PyTorch, CuPy, Numba and cuda.core
        number = getattr(stream, name, None)
        if number is not None:
            return int(getattr(number, "value", number) or 0)
    if hasattr(stream, "__cuda_stream__"):
        return int(stream.__cuda_stream__()[1])
    raise ValueError(f"{stream!r} is not a CUDA stream; pass a stream of PyTorch or CuPy, or its address")


def _streams_of_both(stream: Any, to: Range, source: Range) -> Any:
    """The current streams of two tensors on different GPUs, the destination's first; None for other copies."""
    torch = _torch_of(to.owner) and _torch_of(source.owner)
    if stream is not None or not torch or None in (to.stream, source.stream) or to.owner.device == source.owner.device:
        return None
    return tuple(torch.cuda.current_stream(one.owner.device) for one in (to, source))


@contextlib.contextmanager
def _both_waiting(streams: Any) -> Iterator[None]:
    """Orders a copy between two GPUs by the streams of both tensors, as PyTorch does."""
    if streams is None:
        yield
        return
    there, here = streams
    there.wait_stream(here)
    yield
    here.wait_stream(there)


def _record(stream: Any, number: int, *ranges: Range) -> None:
    """Shows PyTorch's allocator that the tensors are in use on a stream that is not their current one."""
    if stream is None:
        return
    for one in ranges:
        torch = _torch_of(one.owner)
        if torch and one.stream is not None and one.stream != number:
            used = stream if hasattr(stream, "cuda_stream") else torch.cuda.ExternalStream(number, one.owner.device)
            one.owner.record_stream(used)
