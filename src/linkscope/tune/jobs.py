"""What the tuner decides: a path and a size class each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The name of a path: the library's method or staged work. Blocks of `blocks-...` lie in pinned memory, those of
# `packed-...` in pageable memory. Single copies of pinned memory are the driver's own without helpers. `gpu-to-gpu` is
# without peer access, `peer-to-gpu` with it.
PATHS = {
    "to-gpu": "ring_to_gpu",
    "to-warm": "ring_to_host",
    "to-fresh": "ring_to_fresh",
    "pinned-to-gpu": "relay_to_gpu",
    "pinned-from-gpu": "relay_to_host",
    "gpu-to-gpu": "between_gpus",
    "within-gpu": "within_gpu",
    "peer-to-gpu": "between_peers",
    "blocks-to-gpu": "",
    "blocks-from-gpu": "",
    "packed-to-gpu": "packed_to_gpu",
    "packed-from-gpu": "packed_to_host",
    "cached-file": "read_cached",
    "cold-file": "read_cold",
    "saved-file": "write_file",
}
_RELAYED = ("pinned-to-gpu", "pinned-from-gpu")
_BY_KERNEL = ("within-gpu", "peer-to-gpu")
# What must be named for a path: the option of `linkscope tune`.
NEEDS = {
    "pinned-to-gpu": "--helpers",
    "pinned-from-gpu": "--helpers",
    "gpu-to-gpu": "--other-gpu",
    "peer-to-gpu": "--other-gpu",
    "cold-file": "--directory",
    "saved-file": "--directory",
}
_PACKED, _FILES = ("packed-to-gpu", "packed-from-gpu"), ("cached-file", "cold-file", "saved-file")
_SMALLEST_BLOCK = 256
_BLOCK_BYTES, _MOST_BLOCKS, _LEAST_BLOCKS = 64 << 20, 8192, 8  # of one call
_LARGEST_COPY = 1 << 30  # stands for larger ones: the rates no longer change
_SMALLEST_FILE, _LARGEST_FILE = 512 << 10, 256 << 20


@dataclass(frozen=True, slots=True)
class Classes:
    """The first sizes of the library's classes: of copies, of blocks by their mean size, and of files."""

    sizes: Sequence[int]
    blocks: Sequence[int] = ()
    packed: Sequence[int] = ()
    files: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A path and a size class. `nbytes` is the size that is measured, of a copy, of a file or of one block."""

    path: str
    from_bytes: int
    nbytes: int
    count: int = 1  # blocks of a call

    @property
    def total_bytes(self) -> int:
        return self.nbytes * self.count

    @property
    def is_blocks(self) -> bool:
        """Whether its choices are those of blocks that the GPU reaches."""
        return not PATHS[self.path]

    @property
    def is_packed(self) -> bool:
        return self.path in _PACKED

    @property
    def is_file(self) -> bool:
        return self.path in _FILES

    @property
    def is_relay(self) -> bool:
        return self.path in _RELAYED

    @property
    def is_by_kernel(self) -> bool:
        """Whether a kernel moves the data between memories of GPUs, in place of the copy engine."""
        return self.path in _BY_KERNEL

    @property
    def has_prior(self) -> bool:
        """Whether a model of the ring orders its candidates. Other jobs have few."""
        return self.path in ("to-gpu", "to-warm", "to-fresh")

    @property
    def to_gpu(self) -> bool:
        return self.path.endswith("to-gpu") or self.path in ("cached-file", "cold-file")

    @property
    def method(self) -> str:
        """The method or staged work whose knobs are tuned; for blocks, that of single copies."""
        return PATHS[self.path] or self.copy_method

    @property
    def copy_method(self) -> str:
        """The method of single copies between the same memories."""
        if self.is_blocks or self.is_packed or self.is_file:
            return "ring_to_gpu" if self.to_gpu else "ring_to_host"
        return PATHS[self.path]


def make_jobs(paths: Iterable[str], classes: Classes, largest: int) -> list[Job]:
    """The jobs in the order of their bytes: small ones end early and leave their time to large ones.

    A copy is measured at twice the first size of its class, the middle of a class that ends at four times that size.
    """
    jobs = []
    for path in paths:
        if path in _FILES:
            jobs += [Job(path, start, _file_bytes(start, largest)) for start in classes.files if start <= largest]
        elif PATHS[path] and path not in _PACKED:
            most = min(_LARGEST_COPY, largest)
            jobs += [Job(path, start, min(2 * start, most)) for start in classes.sizes if start <= most]
        else:
            jobs += _blocks(path, classes.packed if path in _PACKED else classes.blocks, largest)
    return sorted(jobs, key=lambda job: job.total_bytes)


def _file_bytes(start: int, largest: int) -> int:
    """The middle of a class that ends at 16 times its first size."""
    return min(max(4 * start, _SMALLEST_FILE), _LARGEST_FILE, largest)


def _blocks(path: str, starts: Sequence[int], largest: int) -> list[Job]:
    jobs = []
    for start in starts:
        size = max(start, _SMALLEST_BLOCK)
        count = min(min(_BLOCK_BYTES, largest) // size, _MOST_BLOCKS)
        if count >= _LEAST_BLOCKS:
            jobs.append(Job(path, start, size, count))
    return jobs
