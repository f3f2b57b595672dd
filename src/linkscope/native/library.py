"""Loads liblinkscope.so (linkscope.h), and owns its handles. Addresses, sizes and streams are numbers."""

import atexit
import contextlib
import ctypes
import functools
import os
import weakref
from ctypes import POINTER, c_char_p, c_double, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Any, ClassVar

from linkscope.errors import NOT_HERE, UserError
from linkscope.native.structures import Knobs, Piece, Saving, Source, Watch

_OK, _USAGE, _MEMORY, _CANCELLED = 0, 1, 5, 6


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


def check(status: int) -> None:
    if status == _OK:
        return
    text = (library().ls_last_error() or b"").decode(errors="replace")
    if status == _USAGE:
        raise ValueError(text)
    if status == _MEMORY:
        raise MemoryError(text)
    raise (Cancelled if status == _CANCELLED else TransferError)(text)


class Handle:
    """Owns a handle of the library. The owners of the memory live as long as the handle."""

    _release: ClassVar[str]
    _live: ClassVar["weakref.WeakSet[Handle]"] = weakref.WeakSet()

    def __init__(self, owners: object = None) -> None:
        self._handle = c_void_p()
        self._owners = owners
        self._process = os.getpid()
        self._live.add(self)

    def close(self) -> None:
        """Frees the handle and releases its owners. Later calls do nothing."""
        handle, self._handle = self._handle, c_void_p()
        # A child of fork() has the handle, but not the thread that works on it.
        if handle and self._process == os.getpid():
            getattr(library(), self._release)(handle)
        self._owners = None

    def _open(self) -> c_void_p:
        """Returns the handle. Raises ValueError if it is closed: the library would follow a null pointer."""
        if not self._handle:
            raise ValueError(f"this {type(self).__name__} is closed; make a new one")
        return self._handle

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()


def close() -> None:
    """Frees all handles and the memory of the library, while no copy is in progress. The next call allocates it."""
    for handle in list(Handle._live):
        with contextlib.suppress(ValueError, TransferError):  # of memory that was freed
            handle.close()
    check(library().ls_close())
