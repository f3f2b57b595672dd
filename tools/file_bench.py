"""The sections of tools/transfer_bench.py about files: cached and cold files to the GPU, and the GPU to files."""

import ctypes
import importlib
import importlib.util
import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import c_size_t, c_void_p
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from linkscope import native

MIB, GIB = 1 << 20, 1 << 30
_REQUEST = 4 * MIB  # bytes of a read or write of the disk's own rate
_DEPTHS = (1, 4, 16, 32)  # requests in flight
_WINDOWS = ((2, 16), (4, 4), (4, 16), (4, 64), (8, 4), (8, 16), (8, 32), (16, 2), (16, 16))  # threads, and MiB of each


class OnGpu:
    """Memory of the GPU, as other packages take it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "strides": None, "version": 3,
        }  # fmt: skip


def evict(path: Path) -> None:
    with path.open("rb") as file:
        os.fdatasync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(path: Path) -> float:
    """The share of a file's pages in the page cache, by mincore."""
    nbytes = path.stat().st_size
    with path.open("r+b") as file, mmap.mmap(file.fileno(), nbytes) as mapped:
        pages = (ctypes.c_ubyte * -(-nbytes // mmap.PAGESIZE))()
        start = ctypes.addressof(held := ctypes.c_char.from_buffer(mapped))
        ctypes.CDLL(None).mincore(c_void_p(start), c_size_t(nbytes), pages)
        del held
        return float((np.frombuffer(pages, np.uint8) & 1).mean())


def direct(path: Path, depth: int, write: bool) -> None:
    """Reads or writes a whole file past the page cache by as many threads as requests are in flight."""
    file = os.open(path, (os.O_RDWR if write else os.O_RDONLY) | os.O_DIRECT)
    offsets: Iterator[int] = iter(range(0, os.fstat(file).st_size, _REQUEST))
    guard = threading.Lock()

    def work() -> None:
        with mmap.mmap(-1, _REQUEST) as buffer:  # pages are aligned
            while True:
                with guard:
                    offset = next(offsets, None)
                if offset is None:
                    return
                if write:
                    os.pwritev(file, [buffer], offset)
                else:
                    os.preadv(file, [buffer], offset)

    threads = [threading.Thread(target=work) for _ in range(depth)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    os.close(file)


@contextmanager
def scratch(folder: str, data: np.ndarray) -> Iterator[Path]:
    """A file of these data on the disk."""
    with tempfile.TemporaryDirectory(dir=folder) as inside:
        path = Path(inside, "data")
        data.tofile(path)
        with path.open("rb") as file:
            os.fsync(file.fileno())
        yield path


def cached_file(bench: Any, path: Path, name: str, device: Any, data: np.ndarray) -> None:
    """A file in memory to the GPU: staged, and from where the page cache is mapped and registered."""
    nbytes, before = data.nbytes, native.knobs("read_cached", data.nbytes)
    read = partial(native.read_file, path, [(0, nbytes, device.value)], bench.stream.value)
    zeros = np.zeros_like(data)
    for threads, window in ((0, 0), *_WINDOWS):
        way = f"linkscope, {name}"
        if threads:
            way = f"mapped {threads} x {window} MiB, {name}"
            native.set_knobs("read_cached", nbytes, mapped=1, threads=threads, chunk=window * MIB)
        native.copy(device.value, zeros.ctypes.data, nbytes, bench.stream.value)
        known, times = native.latest_fallback(), bench.seconds(read)
        facts: dict[str, Any] = {"core_s_per_gb": bench.cost(nbytes)}
        counts = read()
        facts["gib"] = {key: round(getattr(counts, key) / GIB, 2) for key in ("cached", "mapped", "direct", "buffered")}
        if (why := native.latest_fallback()) != known:
            facts["fallback"] = why
        bench.add("file", way, nbytes, times, **facts)
        bench.sync()
        back = np.zeros_like(data)
        native.copy(back.ctypes.data, device.value, nbytes, bench.stream.value)
        bench.expect(bool(np.array_equal(back, data)), f"a file in memory, {way}")
    native.set_knobs("read_cached", nbytes, mapped=0, threads=before.threads, chunk=before.chunk)


def cold_files(bench: Any, folder: str, nbytes: int) -> None:
    """A file that is not in the page cache, to the GPU: beside the disk's own rate and what others do."""
    device = bench.gpu.memory(nbytes)
    data = np.random.default_rng(6).integers(0, 1 << 62, nbytes // 8)
    host = np.zeros_like(data)
    with scratch(folder, data) as path:
        before = partial(evict, path)
        for depth in _DEPTHS:
            times = bench.seconds(partial(direct, path, depth, False), before)
            bench.add("cold file", f"disk alone, depth {depth}", nbytes, times)
        read = partial(native.read_file, path, [(0, nbytes, device.value)], bench.stream.value)
        times = bench.seconds(read, before)
        evict(path)
        share = cached_share(path)
        counts = read()
        facts = {name: getattr(counts, name) / nbytes for name in ("cached", "direct", "buffered", "uring", "cufile")}
        bench.sync()
        bench.add("cold file", "linkscope", nbytes, times, cached_before=share, refused=counts.uring_refused, **facts)
        native.copy(host.ctypes.data, device.value, nbytes, bench.stream.value)
        bench.expect(bool(np.array_equal(host, data)), "a cold file")

        def read_and_copy() -> None:
            with path.open("rb", buffering=0) as file:
                view = memoryview(host).cast("B")
                while got := file.readinto(view):
                    view = view[got:]
            bench.driver.ok("cuMemcpyHtoDAsync", device, c_void_p(host.ctypes.data), c_size_t(nbytes), bench.stream)

        bench.add("cold file", "read + copy", nbytes, bench.seconds(read_and_copy, before))
        for name, call in kvikio_calls(path, OnGpu(device.value, nbytes)).items():
            bench.add("cold file", name, nbytes, bench.seconds(call, before))
    bench.free(device)


def kvikio_calls(path: Path, memory: OnGpu) -> dict[str, Callable[[], None]]:
    if importlib.util.find_spec("kvikio") is None:
        print("cold file      KvikIO is not installed, so its row is missing")
        return {}
    kvikio = importlib.import_module("kvikio")

    def read() -> None:
        with kvikio.CuFile(path, "r") as file:
            file.read(memory)

    return {"KvikIO": read}


def saved_files(bench: Any, folder: str, nbytes: int) -> None:
    """The GPU's memory to a new file, until it is on the disk."""
    device = bench.gpu.memory(nbytes)
    data = np.random.default_rng(7).integers(0, 1 << 62, nbytes // 8)
    host = np.zeros_like(data)
    native.copy(device.value, data.ctypes.data, nbytes, bench.stream.value)
    with scratch(folder, data) as path:
        for depth in _DEPTHS:
            bench.add("save", f"disk alone, depth {depth}", nbytes, bench.seconds(partial(direct, path, depth, True)))
        for durable in (True, False):
            save = partial(native.save_file, path, [(device.value, nbytes, bench.stream.value)], durable)
            name = f"linkscope, {'durable' if durable else 'not durable'}"
            times = bench.seconds(save)
            counts = save()
            bench.add("save", name, nbytes, times, direct=counts.direct / nbytes)
        bench.expect(bool(np.array_equal(np.fromfile(path, np.int64), data)), "a saved file")

        def copy_and_write() -> None:
            bench.driver.ok("cuMemcpyDtoHAsync", c_void_p(host.ctypes.data), device, c_size_t(nbytes), bench.stream)
            bench.sync()
            with path.open("wb") as file:
                host.tofile(file)
                os.fsync(file.fileno())

        bench.add("save", "copy + write + fsync", nbytes, bench.seconds(copy_and_write))
    bench.free(device)
