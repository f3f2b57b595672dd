"""Families of points whose rounds scatter alike."""

from typing import NamedTuple

from linkscope.runfile.ids import PointId
from linkscope.runfile.schema import Point

SIZE_CLASSES = (64 << 10, 1 << 20)  # the smallest sizes of medium and of large points
_MODES = ("mode", "bidirectional", "peer", "initiator")  # parameters that decide how much rounds scatter


class Family(NamedTuple):
    """Points of one operation, memory and mode at sizes of one class, on all paths."""

    benchmark: str
    engine: str
    src_memory: str
    dst_memory: str
    mode: tuple[str, ...]  # values of `_MODES`
    size_class: int

    @property
    def kin(self) -> tuple[str, str]:
        """Names the related families: those of the same noisiest memory, and of single or of batched operations."""
        noisiest = next((kind for kind in _NOISIEST_FIRST if kind in (self.src_memory, self.dst_memory)), "")
        return noisiest, self.mode[0]

    @property
    def is_noisy(self) -> bool:
        """Whether the pages of a memory move, or the CPU copies them: the state of the host decides their time."""
        return self.kin[0] != ""


_NOISIEST_FIRST = ("managed", "pageable")  # pages of these memories move, or are copied by the CPU


def family_of(point: Point | PointId) -> Family:
    """The family of a point."""
    params = dict(point.params)
    mode = tuple(params.get(name, "") for name in _MODES)
    return Family(point.benchmark, point.engine, point.src_memory, point.dst_memory, mode, size_class(point.bytes))


def size_class(size: int) -> int:
    """0 below 64 KiB, 1 below 1 MiB, 2 from 1 MiB."""
    return sum(size >= least for least in SIZE_CLASSES)
