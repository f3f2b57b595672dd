"""What the tuner measures: copies of one class, made plainly or with given knobs."""

import ctypes
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

from linkscope import native
from linkscope.tune.jobs import Job


class Failure(Exception):
    """The machine cannot make a copy in this way."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Knobs of a copy through the ring of pinned slots (`ls_knobs` in linkscope.h). With `sm_blocks`, a kernel moves
    chunks of `sm_chunk` bytes in place of the copy engine."""

    threads: int
    chunk: int
    depth: int = 2
    piece: int = 0
    chunks_each: int = 1
    sm_blocks: int = 0
    sm_chunk: int = 1
    links: int = 1  # of GPUs: its own, and those of helpers
    cufile: int = 0  # not 0: cuFile moves a file
    tma: int = 0  # not 0: the kernel uses the Tensor Memory Accelerator
    uring: int = 0  # of cold and saved files: requests of io_uring in flight, which one thread starts; 0: threads
    mapped: int = 0  # not 0: the GPU copies a file from the page cache itself

    def cost(self) -> tuple[int, int, int, int]:
        """What the copy takes from others: links of helpers, CPUs, SMs, then pinned memory."""
        by_uring = self.uring and not self.cufile  # cuFile has precedence
        each = 1 if self.mapped else self.depth  # a thread has one window of a mapped file
        threads, slots = (1, self.uring) if by_uring else (self.threads, self.threads * each)
        return self.links, threads, self.sm_blocks, slots * self.chunk

    def as_dict(self) -> dict[str, int]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True)
class BlockMove:
    """How many blocks are moved: a loop of copies, one batch call, or a kernel with thread blocks on as many SMs."""

    method: str
    sm_blocks: int

    def cost(self) -> tuple[int, int, int, int]:
        """What the copy takes from others: SMs."""
        return 0, 0, (self.sm_blocks if self.method == "kernel" else 0), 0

    def as_dict(self) -> dict[str, object]:
        return {"method": self.method, "sm_blocks": self.sm_blocks}


class Bench(Protocol):
    """Measures. All times are the median seconds of `repeats` copies. Raises Failure."""

    cpus: int
    slots: int  # of pinned memory, for threads times depth
    helpers: int  # GPUs whose links copies may use
    why_no_uring: str  # why the kernel refuses io_uring, so that threads read and write files; '' if it does not

    def default(self, method: str, nbytes: int) -> Ring: ...

    def default_blocks(self, to_gpu: bool, mean_bytes: int) -> BlockMove: ...

    def copy(self, method: str, ring: Ring | None, nbytes: int, repeats: int) -> float:
        """Times a copy through the ring, or with None by one call of the driver."""

    def pinned(self, method: str, nbytes: int, repeats: int) -> float:
        """Times the driver's copy from or to pinned memory; of jobs by kernel, that between the same memories."""

    def blocks(self, to_gpu: bool, move: BlockMove, mean_bytes: int, count: int) -> float: ...

    def staged(self, job: Job, ring: Ring | None, repeats: int) -> float:
        """Times a call for blocks of pageable memory, or a reading of a file; None: plainly."""

    def cpu_s(self) -> float:
        """The CPU seconds that this process has used, of all threads."""

    def choose(self, method: str, nbytes: int, ring: Ring | None) -> None:
        """Keeps a result for the class of this size; None: plain copies."""

    def reset(self, method: str, nbytes: int) -> None:
        """Takes the class of this size back to its knobs before tuning."""

    def choose_blocks(self, to_gpu: bool, mean_bytes: int, move: BlockMove) -> None: ...


class LibraryBench:
    """Measures the transfer library of this process on one GPU. Frees its memory at the end of a `with`."""

    def __init__(
        self, gpu: int, nbytes: int, helpers: Sequence[int] = (), other: int | None = None, directory: str = ""
    ) -> None:
        self.cpus = len(os.sched_getaffinity(0))
        self.slots = 64  # 256 MiB of 4 MiB each
        self._before: dict[tuple[str, int], native.Knobs] = {}
        native.set_helpers(helpers)
        self.helpers = len(helpers)
        self._directory = directory
        self.why_no_uring = why_no_uring() if directory else ""
        self.why_no_cufile = self.why_no_mapped = ""  # the latest reason
        self.why_no_peer = ""
        self._trial = native.Trial(gpu, nbytes)
        try:
            if other is not None:
                self._trial.add_gpu(other)
                self.why_no_peer = self._try_peer()
            if directory:
                self._trial.file(directory, True, 4096, 1)
        except BaseException:
            self._trial.close()
            raise

    def __enter__(self) -> "LibraryBench":
        return self

    def __exit__(self, *_: object) -> None:
        self._trial.close()

    def _try_peer(self) -> str:
        """Why the GPU cannot copy from memory of the other one that it reaches; '' if it can."""
        try:
            self._trial.copy("between_peers", native.Trial.PLAIN, 4096, 1)
        except (native.TransferError, MemoryError) as error:
            return str(error)
        return ""

    def default(self, method: str, nbytes: int) -> Ring:
        of = self._known(method, nbytes)
        return Ring(**{field.name: getattr(of, field.name) for field in fields(Ring)})

    def _known(self, method: str, nbytes: int) -> native.Knobs:
        """The knobs of the class before tuning."""
        start = max((one for one in _classes_of(method) if one <= nbytes), default=0)
        return self._before.setdefault((method, start), native.knobs(method, nbytes))

    def default_blocks(self, to_gpu: bool, mean_bytes: int) -> BlockMove:
        return BlockMove(*native.block_knobs(to_gpu, mean_bytes))

    def copy(self, method: str, ring: Ring | None, nbytes: int, repeats: int) -> float:
        if ring is None:
            return self._copy(method, native.Trial.PLAIN, nbytes, repeats)
        self.choose(method, nbytes, ring)
        return self._copy(method, native.Trial.CHOSEN, nbytes, repeats)

    def pinned(self, method: str, nbytes: int, repeats: int) -> float:
        return self._copy(method, native.Trial.PINNED, nbytes, repeats)

    def _copy(self, method: str, way: int, nbytes: int, repeats: int) -> float:
        try:
            return self._trial.copy(method, way, nbytes, repeats)
        except (native.TransferError, MemoryError, ValueError) as error:
            raise Failure(str(error)) from error

    def blocks(self, to_gpu: bool, move: BlockMove, mean_bytes: int, count: int) -> float:
        self.choose_blocks(to_gpu, mean_bytes, move)
        try:
            return self._trial.blocks(to_gpu, mean_bytes, count, 1)
        except (native.TransferError, MemoryError, ValueError) as error:
            raise Failure(str(error)) from error

    def staged(self, job: Job, ring: Ring | None, repeats: int) -> float:
        self.choose(job.method, job.nbytes, ring)
        try:
            if job.is_packed:
                return self._trial.packed(job.to_gpu, job.nbytes, job.count, repeats)
            if job.path == "saved-file":
                return self._trial.save(self._directory, job.nbytes, repeats)
            return self._trial.file(self._directory, job.path == "cold-file", job.nbytes, repeats)
        except (native.TransferError, MemoryError, ValueError) as error:
            if str(error).startswith("cufile: "):
                self.why_no_cufile = str(error).removeprefix("cufile: ")
            if str(error).startswith("mapped: "):
                self.why_no_mapped = str(error).removeprefix("mapped: ")
            raise Failure(str(error)) from error

    def cpu_s(self) -> float:
        return time.process_time()

    def choose(self, method: str, nbytes: int, ring: Ring | None) -> None:
        self._known(method, nbytes)
        if ring is None:
            self.reset(method, nbytes)  # its other knobs also read files and pack blocks
            native.set_knobs(method, nbytes, plain=1)
        else:
            native.set_knobs(method, nbytes, plain=0, **ring.as_dict())

    def reset(self, method: str, nbytes: int) -> None:
        of = self._known(method, nbytes)
        native.set_knobs(method, nbytes, plain=of.plain, **self.default(method, nbytes).as_dict())

    def choose_blocks(self, to_gpu: bool, mean_bytes: int, move: BlockMove) -> None:
        native.set_block_knobs(to_gpu, mean_bytes, move.method, move.sm_blocks)


def why_no_uring() -> str:
    """The reason why the kernel refuses io_uring to this process; '' if it allows io_uring as the library needs it."""
    setup, size_of_facts, features_at, needed = 425, 120, 20, 3  # IORING_FEAT_SINGLE_MMAP, IORING_FEAT_NODROP
    system, facts = ctypes.CDLL(None, use_errno=True), ctypes.create_string_buffer(size_of_facts)
    ring = system.syscall(ctypes.c_long(setup), ctypes.c_uint(1), facts)
    if ring < 0:
        return f"the kernel refuses io_uring: {os.strerror(ctypes.get_errno())}"
    os.close(ring)
    features = int.from_bytes(facts.raw[features_at : features_at + 4], sys.byteorder)
    return "" if features & needed == needed else "the kernel's io_uring is older than Linux 5.6"


def _classes_of(method: str) -> Sequence[int]:
    """The first sizes of the classes of a method or of staged work."""
    if method.startswith("packed_"):
        return native.packed_classes()
    return native.file_classes() if method.startswith(("read_", "write_")) else native.size_classes()
