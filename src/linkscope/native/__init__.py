"""The C interface of liblinkscope.so (linkscope.h), one function each. Addresses, sizes and streams are numbers.

A mistake of the caller raises ValueError, refused memory MemoryError, any other failure TransferError.
"""

import os
from collections.abc import Callable, Sequence
from ctypes import byref, c_char_p, c_size_t, c_uint32, c_uint64

from linkscope.native.dlpack import DlpackTensor, dlpack_tensor
from linkscope.native.handles import Prepared, Registration, Transfer, Trial
from linkscope.native.library import Cancelled, TransferError, check, close, library
from linkscope.native.structures import Knobs, Piece, ReadCounts, Report, Saving, Source, Watch, WriteCounts

__all__ = [
    "Cancelled",
    "DlpackTensor",
    "Knobs",
    "Prepared",
    "ReadCounts",
    "Registration",
    "Transfer",
    "TransferError",
    "Trial",
    "WriteCounts",
    "close",
    "dlpack_tensor",
    "library",
]

STREAM_OF_MEMORY = (1 << 64) - 1  # LS_STREAM_OF_MEMORY


def copy(dst: int, src: int, nbytes: int, stream: int) -> None:
    check(library().ls_copy(dst, src, nbytes, stream))


def copy_to_fresh(dst: int, src: int, nbytes: int, stream: int) -> None:
    check(library().ls_copy_to_fresh(dst, src, nbytes, stream))


def copy_blocks(dst: int, src: int, sizes: int, count: int, stream: int) -> None:
    """Copies `count` blocks; the first three arguments are the addresses of arrays of 64-bit numbers."""
    check(library().ls_copy_blocks(dst, src, sizes, count, stream))


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
    called.check(library().ls_read_file(_path(path), array, len(pieces), stream, byref(watch)))
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
    called.check(library().ls_save_file(_path(path), array, len(sources), byref(saving)))
    counts: WriteCounts = saving.counts
    return counts


def _path(path: str | os.PathLike[str]) -> bytes:
    """Raises ValueError for a path without a name, and for one with a byte 0, at which C would end another name."""
    encoded = os.fsencode(path)
    if not encoded or b"\0" in encoded:
        raise ValueError(f"{os.fspath(path)!r} is no path of a file")
    return encoded


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
        check(status)


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
    """Returns why the latest copy fell back to the driver's own, or why a file took another way; '' if none did."""
    return str(library().ls_latest_fallback().decode())


def knobs(method: str, nbytes: int) -> Knobs:
    """Returns the knobs of the size class that has `nbytes`."""
    found = Knobs()
    check(library().ls_get_knobs(method.encode(), nbytes, byref(found)))
    return found


def set_knobs(method: str, nbytes: int, **changed: int) -> None:
    """Changes some knobs of the size class that has `nbytes`. Call it while no copy is in progress."""
    wanted = knobs(method, nbytes)
    names = [name for name, *_ in Knobs._fields_]
    for name, value in changed.items():
        if name not in names:
            raise ValueError(f"'{name}' is no knob; knobs: {', '.join(names)}")
        setattr(wanted, name, value)
    replace_knobs(method, nbytes, wanted)


def replace_knobs(method: str, nbytes: int, wanted: Knobs) -> None:
    """Replaces all knobs of the size class that has `nbytes`. Call it while no copy is in progress."""
    check(library().ls_set_knobs(method.encode(), nbytes, byref(wanted)))


def set_helpers(gpus: Sequence[int]) -> None:
    """Lets copies from and to other GPUs use the links of these GPUs (PCI bus order), while no copy is in progress."""
    check(library().ls_set_helpers((c_uint32 * len(gpus))(*gpus), len(gpus)))


def block_knobs(to_gpu: bool, mean_bytes: int) -> tuple[str, int]:
    """Returns how blocks of this mean size are moved: 'loop', 'batch' or 'kernel', and the kernel's thread blocks."""
    method, sm_blocks = c_char_p(), c_uint32()
    check(library().ls_get_block_knobs(to_gpu, mean_bytes, byref(method), byref(sm_blocks)))
    return (method.value or b"").decode(), sm_blocks.value


def set_block_knobs(to_gpu: bool, mean_bytes: int, method: str, sm_blocks: int) -> None:
    """Chooses how blocks of this mean size are moved between memories that the GPU reaches."""
    check(library().ls_set_block_knobs(to_gpu, mean_bytes, method.encode(), sm_blocks))


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
    check(library().ls_count(method.encode(), byref(found)))
    return found.value


def arena_bytes() -> int:
    """Returns the bytes of pinned memory that the library holds."""
    found = c_uint64()
    check(library().ls_arena_bytes(byref(found)))
    return found.value


def registered_bytes() -> int:
    """Returns the bytes of host memory that registrations have pinned."""
    found = c_uint64()
    check(library().ls_registered_bytes(byref(found)))
    return found.value


def fingerprint() -> str:
    """Returns what the best knobs depend on, in one line."""
    return str(library().ls_fingerprint().decode(errors="replace"))


def tuning() -> tuple[str, str]:
    """Returns the tuning file in use ('': none), and when it was made or why there is none."""
    file, note = c_char_p(), c_char_p()
    check(library().ls_tuning(byref(file), byref(note)))
    return os.fsdecode(file.value or b""), (note.value or b"").decode(errors="replace")


def save_tuning(path: str | None = None) -> str:
    """Writes the present knobs to a file, by default that of this machine, and returns its path."""
    written = c_char_p()
    check(library().ls_save_tuning(None if path is None else _path(path), byref(written)))
    return os.fsdecode(written.value or b"")
