"""What the library holds for a caller until it is closed: copies, registered memory and trials."""

import os
from ctypes import byref, c_double, c_int, c_size_t, c_void_p

from linkscope.native.library import Handle, check, library


class Prepared(Handle):
    """A copy that is made many times with the same memory, size and stream."""

    _release = "ls_release"

    def __init__(self, dst: int, src: int, nbytes: int, stream: int, owners: object = None) -> None:
        super().__init__(owners)
        check(library().ls_prepare(byref(self._handle), dst, src, nbytes, stream))

    def run(self) -> None:
        check(library().ls_run(self._open()))


class Registration(Handle):
    """Host memory that is pinned until close() or the end of a `with`. Its owners live as long."""

    def __init__(self, start: int, nbytes: int, owners: object = None) -> None:
        super().__init__(owners)
        check(library().ls_register(start, nbytes))
        self._handle = c_void_p(start)

    def __enter__(self) -> "Registration":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Waits for the GPUs and ends it. Later calls do nothing. Raises ValueError if the memory was freed before."""
        start, self._handle = self._handle, c_void_p()
        if start and self._process == os.getpid():
            check(library().ls_unregister(start))
        self._owners = None


class Transfer(Handle):
    """A copy in the background. Source and destination belong to it until wait() has returned.

    A child of fork() has no thread that makes the copy: all functions but close() raise ValueError there.
    """

    _release = "ls_transfer_free"

    def __init__(self, dst: int, src: int, nbytes: int, stream: int, owners: object = None) -> None:
        super().__init__(owners)
        self.nbytes = nbytes
        check(library().ls_transfer_start(byref(self._handle), dst, src, nbytes, stream))

    def _open(self) -> c_void_p:
        if self._process != os.getpid():
            raise ValueError("the copy was started by the parent process; wait for it there")
        return super()._open()

    def _progress(self) -> tuple[int, bool]:
        done, ended = c_size_t(), c_int()
        check(library().ls_transfer_progress(self._open(), byref(done), byref(ended)))
        return done.value, bool(ended.value)

    @property
    def done_bytes(self) -> int:
        return self._progress()[0]

    @property
    def has_ended(self) -> bool:
        return self._progress()[1]

    def wait(self) -> None:
        """Waits until all data is at the destination. Raises Cancelled if the copy ended early."""
        status = library().ls_transfer_wait(self._open())
        self._owners = None
        check(status)

    def cancel(self) -> None:
        """Requests the end. A copy that is one call of the driver runs to its end."""
        library().ls_transfer_cancel(self._open())


class Trial(Handle):
    """Times copies on one GPU with memory of its own."""

    _release = "ls_trial_close"
    CHOSEN, PLAIN, PINNED = 0, 1, 2  # by the method, by the driver, by the driver with pinned memory

    def __init__(self, gpu: int, nbytes: int) -> None:
        super().__init__()
        check(library().ls_trial_open(byref(self._handle), gpu, nbytes))

    def copy(self, method: str, way: int, nbytes: int, repeats: int) -> float:
        """Returns the median seconds of a copy."""
        seconds = c_double()
        check(library().ls_trial_copy(self._open(), method.encode(), way, nbytes, repeats, byref(seconds)))
        return seconds.value

    def blocks(self, to_gpu: bool, block_bytes: int, count: int, repeats: int) -> float:
        """Returns the median seconds of a call for `count` blocks of pinned memory."""
        seconds = c_double()
        check(library().ls_trial_blocks(self._open(), to_gpu, block_bytes, count, repeats, byref(seconds)))
        return seconds.value

    def packed(self, to_gpu: bool, block_bytes: int, count: int, repeats: int) -> float:
        """Returns the median seconds of a call for `count` blocks of pageable memory."""
        seconds = c_double()
        check(library().ls_trial_packed(self._open(), to_gpu, block_bytes, count, repeats, byref(seconds)))
        return seconds.value

    def add_gpu(self, gpu: int) -> None:
        """Adds memory of another GPU, from which between_gpus and between_peers copy."""
        check(library().ls_trial_add_gpu(self._open(), gpu))

    def file(self, directory: str, is_cold: bool, nbytes: int, repeats: int) -> float:
        """Returns the median seconds of a reading of a file in a directory; '' stands for memory."""
        seconds = c_double()
        where = os.fsencode(directory) if directory else None
        check(library().ls_trial_file(self._open(), where, is_cold, nbytes, repeats, byref(seconds)))
        return seconds.value

    def save(self, directory: str, nbytes: int, repeats: int) -> float:
        """Returns the median seconds of saving memory of the GPU durably to a file in a directory."""
        seconds = c_double()
        check(library().ls_trial_save(self._open(), os.fsencode(directory), nbytes, repeats, byref(seconds)))
        return seconds.value
