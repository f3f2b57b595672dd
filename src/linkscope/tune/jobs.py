"""What the tuner decides: a path and a size class each."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# The name of a path: the library's method. Blocks lie in pinned memory. Single copies of pinned memory are the
# driver's own without helpers.
PATHS = {
    "to-gpu": "ring_to_gpu",
    "to-warm": "ring_to_host",
    "to-fresh": "ring_to_fresh",
    "pinned-to-gpu": "relay_to_gpu",
    "pinned-from-gpu": "relay_to_host",
    "blocks-to-gpu": "",
    "blocks-from-gpu": "",
}
RELAYED = ("pinned-to-gpu", "pinned-from-gpu")
_SMALLEST_BLOCK = 256
_BLOCK_BYTES, _MOST_BLOCKS, _LEAST_BLOCKS = 64 << 20, 8192, 8  # of one call


@dataclass(frozen=True, slots=True)
class Job:
    """A path and a size class. `nbytes` is the size that is measured, of a copy or of one block."""

    path: str
    from_bytes: int
    nbytes: int
    count: int = 1  # blocks of a call

    @property
    def total_bytes(self) -> int:
        return self.nbytes * self.count

    @property
    def is_blocks(self) -> bool:
        return not PATHS[self.path]

    @property
    def is_relay(self) -> bool:
        return self.path in RELAYED

    @property
    def to_gpu(self) -> bool:
        return self.path.endswith("to-gpu")

    @property
    def method(self) -> str:
        """The method of single copies between the same memories."""
        return PATHS[self.path] or ("ring_to_gpu" if self.to_gpu else "ring_to_host")


def make_jobs(
    paths: Iterable[str], size_classes: Sequence[int], block_classes: Sequence[int], largest: int
) -> list[Job]:
    """The jobs in the order of their bytes: small ones end early and leave their time to large ones.

    A copy is measured at twice the first size of its class, the middle of a class that ends at four times that size.
    """
    jobs = []
    for path in paths:
        if PATHS[path]:
            jobs += [Job(path, start, min(2 * start, largest)) for start in size_classes if start <= largest]
            continue
        for start in block_classes:
            size = max(start, _SMALLEST_BLOCK)
            count = min(min(_BLOCK_BYTES, largest) // size, _MOST_BLOCKS)
            if count >= _LEAST_BLOCKS:
                jobs.append(Job(path, start, size, count))
    return sorted(jobs, key=lambda job: job.total_bytes)
