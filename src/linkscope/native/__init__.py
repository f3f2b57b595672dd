"""The C interface of liblinkscope.so (linkscope.h), one function each. Addresses, sizes and streams are numbers.

A mistake of the caller raises ValueError, refused memory MemoryError, any other failure TransferError.
"""

import atexit
import contextlib
import ctypes
import functools
import os
import weakref
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, ClassVar

from linkscope.errors import NOT_HERE, UserError
from linkscope.native.dlpack import DlpackTensor, dlpack_tensor
from linkscope.native.structures import Knobs, Piece, ReadCounts, Report, Saving, Source, Watch, WriteCounts

__all__ = ["DlpackTensor", "Knobs", "ReadCounts", "WriteCounts", "dlpack_tensor"]

_OK, _USAGE, _MEMORY, _CANCELLED = 0, 1, 5, 6


STREAM_OF_MEMORY = (1 << 64) - 1  # LS_STREAM_OF_MEMORY


class TransferError(RuntimeError):
    """A copy failed: a call of the driver or of the system was refused."""


class Cancelled(TransferError):
    """A copy ended early because its owner cancelled it."""


_RANGES = [c_void_p, c_void_p, c_size_t, c_void_p]
_ARGUMENTS: dict[str, list[Any]] = {
    "ls_close": [],
    "ls_copy": _RANGES,
    "ls_copy_to_fresh": _RANGES,
    "ls_copy_blocks": [c_void_p, c_void_p, c_void_p, c_size_t, c_void_p],
    "ls_read_file": [c_char_p, POINTER(Piece), c_size_t, c_void_p, POINTER(Watch)],
    "ls_save_file": [c_char_p, POINTER(Source), c_size_t, POINTER(Saving)],
    "ls_transfer_start": [POINTER(c_void_p), *_RANGES],
    "ls_transfer_progress": [c_void_p, POINTER(c_size_t), POINTER(c_int)],
    "ls_transfer_wait": [c_void_p],
    "ls_transfer_cancel": [c_void_p],
    "ls_transfer_free": [c_void_p],
    "ls_prepare": [POINTER(c_void_p), *_RANGES],
    "ls_run": [c_void_p],
    "ls_release": [c_void_p],
    "ls_register": [c_void_p, c_size_t],
    "ls_unregister": [c_void_p],
    "ls_registered_bytes": [POINTER(c_uint64)],
    "ls_get_knobs": [c_char_p, c_size_t, POINTER(Knobs)],
    "ls_set_knobs": [c_char_p, c_size_t, POINTER(Knobs)],
    "ls_set_helpers": [POINTER(c_uint32), c_size_t],
    "ls_get_block_knobs": [c_int, c_size_t, POINTER(c_char_p), POINTER(c_uint32)],
    "ls_set_block_knobs": [c_int, c_size_t, c_char_p, c_uint32],
    "ls_count": [c_char_p, POINTER(c_uint64)],
    "ls_arena_bytes": [POINTER(c_uint64)],
    "ls_tuning": [POINTER(c_char_p), POINTER(c_char_p)],
    "ls_save_tuning": [c_char_p, POINTER(c_char_p)],
    "ls_trial_open": [POINTER(c_void_p), c_uint32, c_size_t],
    "ls_trial_close": [c_void_p],
    "ls_trial_copy": [c_void_p, c_char_p, c_int, c_size_t, c_uint32, POINTER(c_double)],
    "ls_trial_blocks": [c_void_p, c_int, c_size_t, c_size_t, c_uint32, POINTER(c_double)],
    "ls_trial_packed": [c_void_p, c_int, c_size_t, c_size_t, c_uint32, POINTER(c_double)],
    "ls_trial_add_gpu": [c_void_p, c_uint32],
    "ls_trial_save": [c_void_p, c_char_p, c_size_t, c_uint32, POINTER(c_double)],
    "ls_trial_file": [c_void_p, c_char_p, c_int, c_size_t, c_uint32, POINTER(c_double)],
}
_TEXTS: dict[str, list[Any]] = {
    "ls_last_error": [],
    "ls_version": [],
    "ls_why_no_gpu": [],
    "ls_method_of": _RANGES,
    "ls_latest_fallback": [],
    "ls_fingerprint": [],
}
_CLASSES = ("ls_size_classes", "ls_block_classes", "ls_packed_classes", "ls_file_classes")
_NOTHING = ("ls_transfer_cancel", "ls_transfer_free", "ls_release", "ls_trial_close")


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library built with this package; the path in LINKSCOPE_LIBRARY takes precedence, for tests."""
    path = Path(os.environ.get("LINKSCOPE_LIBRARY") or Path(__file__).parent.parent / "_native" / "liblinkscope.so")
    if not path.exists():
        raise UserError(f"the library is not built: {path} is missing; run `make build` or `pip install .`", NOT_HERE)
    loaded = ctypes.CDLL(str(path))
    for name, arguments in _ARGUMENTS.items():
        getattr(loaded, name).argtypes = arguments
        getattr(loaded, name).restype = None if name in _NOTHING else c_int
    for name, arguments in _TEXTS.items():
        getattr(loaded, name).argtypes = arguments
        getattr(loaded, name).restype = c_char_p
    for name in _CLASSES:
        getattr(loaded, name).argtypes = [POINTER(c_size_t)]
        getattr(loaded, name).restype = POINTER(c_uint64)
    atexit.register(close)
    return loaded


def _check(status: int) -> None:
    if status == _OK:
        return
    text = (library().ls_last_error() or b"").decode(errors="replace")
    if status == _USAGE:
        raise ValueError(text)
    if status == _MEMORY:
        raise MemoryError(text)
    raise (Cancelled if status == _CANCELLED else TransferError)(text)


def copy(dst: int, src: int, nbytes: int, stream: int) -> None:
    _check(library().ls_copy(dst, src, nbytes, stream))


def copy_to_fresh(dst: int, src: int, nbytes: int, stream: int) -> None:
    _check(library().ls_copy_to_fresh(dst, src, nbytes, stream))


def copy_blocks(dst: int, src: int, sizes: int, count: int, stream: int) -> None:
    """Copies `count` blocks; the first three arguments are the addresses of arrays of 64-bit numbers."""
    _check(library().ls_copy_blocks(dst, src, sizes, count, stream))


def read_file(
    path: str | os.PathLike[str],
    pieces: Sequence[tuple[int, int, int]],
    stream: int = 0,
    report: Callable[[int], None] | None = None,
) -> ReadCounts:
    """Reads pieces (offset, bytes, address) of a file to memory of one GPU, in the order of the stream, or to the host.

    `report` is called now and then with the bytes so far; what it raises ends the reading.
    """
    called = _Reported(report)
    watch = Watch(report=called.function)
    array = (Piece * len(pieces))(*(Piece(*piece) for piece in pieces))
    called.check(library().ls_read_file(os.fsencode(path), array, len(pieces), stream, byref(watch)))
    counts: ReadCounts = watch.counts
    return counts


def save_file(
    path: str | os.PathLike[str],
    sources: Sequence[tuple[int, int, int]],
    durable: bool = False,
    report: Callable[[int], None] | None = None,
) -> WriteCounts:
    """Replaces a file by sources (address, bytes, stream), one behind the other. `report` as for read_file()."""
    called = _Reported(report)
    saving = Saving(report=called.function, durable=durable)
    array = (Source * len(sources))(*(Source(*source) for source in sources))
    called.check(library().ls_save_file(os.fsencode(path), array, len(sources), byref(saving)))
    counts: WriteCounts = saving.counts
    return counts


class _Reported:
    """A function of the caller that the library calls with the bytes so far. What it raises ends the call."""

    def __init__(self, report: Callable[[int], None] | None) -> None:
        self._report, self._raised = report, list[BaseException]()
        self.function = Report(self._called) if report is not None else Report()

    def _called(self, done: int, _: object) -> int:
        try:
            if self._report is not None:
                self._report(done)
        except BaseException as error:
            self._raised.append(error)
        return len(self._raised)

    def check(self, status: int) -> None:
        if self._raised:
            raise self._raised[0]
        _check(status)


def method_of(dst: int, src: int, nbytes: int, stream: int) -> str:
    """Returns the name of the method that copy() would use."""
    name = library().ls_method_of(dst, src, nbytes, stream)
    if name is None:
        raise ValueError((library().ls_last_error() or b"").decode(errors="replace"))
    return str(name.decode())


def version() -> str:
    return str(library().ls_version().decode())


def why_no_gpu() -> str:
    """Returns '' or why no GPU can be used here."""
    return str(library().ls_why_no_gpu().decode())


def latest_fallback() -> str:
    """Returns why the latest copy fell back to the driver's own, or why cuFile did not move a file; '' if none did."""
    return str(library().ls_latest_fallback().decode())


def knobs(method: str, nbytes: int) -> Knobs:
    """Returns the knobs of the size class that has `nbytes`."""
    found = Knobs()
    _check(library().ls_get_knobs(method.encode(), nbytes, byref(found)))
    return found


def set_knobs(method: str, nbytes: int, **changed: int) -> None:
    """Changes some knobs of the size class that has `nbytes`. Call it while no copy is in progress."""
    wanted = knobs(method, nbytes)
    for name, value in changed.items():
        setattr(wanted, name, value)
    _check(library().ls_set_knobs(method.encode(), nbytes, byref(wanted)))


def set_helpers(gpus: Sequence[int]) -> None:
    """Lets copies from and to other GPUs use the links of these GPUs (PCI bus order), while no copy is in progress."""
    _check(library().ls_set_helpers((c_uint32 * len(gpus))(*gpus), len(gpus)))


def block_knobs(to_gpu: bool, mean_bytes: int) -> tuple[str, int]:
    """Returns how blocks of this mean size are moved: 'loop', 'batch' or 'kernel', and the kernel's thread blocks."""
    method, sm_blocks = c_char_p(), c_uint32()
    _check(library().ls_get_block_knobs(to_gpu, mean_bytes, byref(method), byref(sm_blocks)))
    return (method.value or b"").decode(), sm_blocks.value


def set_block_knobs(to_gpu: bool, mean_bytes: int, method: str, sm_blocks: int) -> None:
    """Chooses how blocks of this mean size are moved between memories that the GPU reaches."""
    _check(library().ls_set_block_knobs(to_gpu, mean_bytes, method.encode(), sm_blocks))


def _classes(name: str) -> tuple[int, ...]:
    count = c_size_t()
    starts = getattr(library(), name)(byref(count))
    return tuple(starts[: count.value])


def size_classes() -> tuple[int, ...]:
    """Returns the first size of each class of copies."""
    return _classes("ls_size_classes")


def block_classes() -> tuple[int, ...]:
    """Returns the first mean size of each class of blocks."""
    return _classes("ls_block_classes")


def packed_classes() -> tuple[int, ...]:
    """Returns the first mean size of each class of pageable blocks."""
    return _classes("ls_packed_classes")


def file_classes() -> tuple[int, ...]:
    """Returns the first size of each class of readings of a file."""
    return _classes("ls_file_classes")


def count(method: str) -> int:
    """Returns the number of copies that a method has made."""
    found = c_uint64()
    _check(library().ls_count(method.encode(), byref(found)))
    return found.value


def arena_bytes() -> int:
    """Returns the bytes of pinned memory that the library holds."""
    found = c_uint64()
    _check(library().ls_arena_bytes(byref(found)))
    return found.value


def registered_bytes() -> int:
    """Returns the bytes of host memory that registrations have pinned."""
    found = c_uint64()
    _check(library().ls_registered_bytes(byref(found)))
    return found.value


def fingerprint() -> str:
    """Returns what the best knobs depend on, in one line."""
    return str(library().ls_fingerprint().decode(errors="replace"))


def tuning() -> tuple[str, str]:
    """Returns the tuning file in use ('': none), and when it was made or why there is none."""
    file, note = c_char_p(), c_char_p()
    _check(library().ls_tuning(byref(file), byref(note)))
    return os.fsdecode(file.value or b""), (note.value or b"").decode(errors="replace")


def save_tuning(path: str | None = None) -> str:
    """Writes the present knobs to a file, by default that of this machine, and returns its path."""
    written = c_char_p()
    _check(library().ls_save_tuning(None if path is None else os.fsencode(path), byref(written)))
    return os.fsdecode(written.value or b"")


class _Handle:
    """Owns a handle of the library. The owners of the memory live as long as the handle."""

    _release: ClassVar[str]
    _live: ClassVar["weakref.WeakSet[_Handle]"] = weakref.WeakSet()

    def __init__(self, owners: object = None) -> None:
        self._handle = c_void_p()
        self._owners = owners
        self._process = os.getpid()
        self._live.add(self)

    def close(self) -> None:
        """Frees the handle. Later calls do nothing."""
        handle, self._handle = self._handle, c_void_p()
        # A child of fork() has the handle, but not the thread that works on it.
        if handle and self._process == os.getpid():
            getattr(library(), self._release)(handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


class Prepared(_Handle):
    """A copy that is made many times with the same memory, size and stream."""

    _release = "ls_release"

    def __init__(self, dst: int, src: int, nbytes: int, stream: int, owners: object = None) -> None:
        super().__init__(owners)
        _check(library().ls_prepare(byref(self._handle), dst, src, nbytes, stream))

    def run(self) -> None:
        _check(library().ls_run(self._handle))


class Registration(_Handle):
    """Host memory that is pinned until close() or the end of a `with`. Its owners live as long."""

    def __init__(self, start: int, nbytes: int, owners: object = None) -> None:
        super().__init__(owners)
        _check(library().ls_register(start, nbytes))
        self._handle = c_void_p(start)

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for the GPUs and ends it. Later calls do nothing. Raises ValueError if the memory was freed before."""
        start, self._handle = self._handle, c_void_p()
        if start and self._process == os.getpid():
            _check(library().ls_unregister(start))


class Transfer(_Handle):
    """A copy in the background. Source and destination belong to it until wait() has returned."""

    _release = "ls_transfer_free"

    def __init__(self, dst: int, src: int, nbytes: int, stream: int, owners: object = None) -> None:
        super().__init__(owners)
        self.nbytes = nbytes
        _check(library().ls_transfer_start(byref(self._handle), dst, src, nbytes, stream))

    def _progress(self) -> tuple[int, bool]:
        done, ended = c_size_t(), c_int()
        _check(library().ls_transfer_progress(self._handle, byref(done), byref(ended)))
        return done.value, bool(ended.value)

    @property
    def done_bytes(self) -> int:
        return self._progress()[0]

    @property
    def has_ended(self) -> bool:
        return self._progress()[1]

    def wait(self) -> None:
        """Waits until all data is at the destination. Raises Cancelled if the copy ended early."""
        _check(library().ls_transfer_wait(self._handle))

    def cancel(self) -> None:
        """Requests the end. A copy that is one call of the driver runs to its end."""
        library().ls_transfer_cancel(self._handle)


class Trial(_Handle):
    """Times copies on one GPU with memory of its own."""

    _release = "ls_trial_close"
    CHOSEN, PLAIN, PINNED = 0, 1, 2  # by the method, by the driver, by the driver with pinned memory

    def __init__(self, gpu: int, nbytes: int) -> None:
        super().__init__()
        _check(library().ls_trial_open(byref(self._handle), gpu, nbytes))

    def copy(self, method: str, way: int, nbytes: int, repeats: int) -> float:
        """Returns the median seconds of a copy."""
        seconds = c_double()
        _check(library().ls_trial_copy(self._handle, method.encode(), way, nbytes, repeats, byref(seconds)))
        return seconds.value

    def blocks(self, to_gpu: bool, block_bytes: int, count: int, repeats: int) -> float:
        """Returns the median seconds of a call for `count` blocks of pinned memory."""
        seconds = c_double()
        _check(library().ls_trial_blocks(self._handle, to_gpu, block_bytes, count, repeats, byref(seconds)))
        return seconds.value

    def packed(self, to_gpu: bool, block_bytes: int, count: int, repeats: int) -> float:
        """Returns the median seconds of a call for `count` blocks of pageable memory."""
        seconds = c_double()
        _check(library().ls_trial_packed(self._handle, to_gpu, block_bytes, count, repeats, byref(seconds)))
        return seconds.value

    def add_gpu(self, gpu: int) -> None:
        """Adds memory of another GPU, from which between_gpus and between_peers copy."""
        _check(library().ls_trial_add_gpu(self._handle, gpu))

    def file(self, directory: str, is_cold: bool, nbytes: int, repeats: int) -> float:
        """Returns the median seconds of a reading of a file in a directory; '' stands for memory."""
        seconds = c_double()
        where = os.fsencode(directory) if directory else None
        _check(library().ls_trial_file(self._handle, where, is_cold, nbytes, repeats, byref(seconds)))
        return seconds.value

    def save(self, directory: str, nbytes: int, repeats: int) -> float:
        """Returns the median seconds of saving memory of the GPU durably to a file in a directory."""
        seconds = c_double()
        _check(library().ls_trial_save(self._handle, os.fsencode(directory), nbytes, repeats, byref(seconds)))
        return seconds.value


def close() -> None:
    """Frees all handles and the memory of the library, while no copy is in progress. The next call allocates it."""
    for handle in list(_Handle._live):
        with contextlib.suppress(ValueError, TransferError):  # of memory that was freed
            handle.close()
    _check(library().ls_close())
