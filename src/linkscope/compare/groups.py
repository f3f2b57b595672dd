"""The groups of points that a comparison reports."""

from typing import NamedTuple

from linkscope.runfile import SIZE_CLASSES, Point, size_class
from linkscope.units import format_bytes

_NOISY = ("managed", "pageable")
_NAMES = {"d2d": "peer", "local": "within a GPU", "latency": "latency", "h2h": "host"}


class Group(NamedTuple):
    """Points that a comparison reports together."""

    size_class: int
    name: str

    @property
    def text(self) -> str:
        """'pinned, 1 MiB and more'."""
        return f"{self.name}, {size_text(self.size_class)}" if self.size_class >= 0 else self.name


def group_of(point: Point) -> Group:
    """The group of a point: by its memory, which decides how much the rounds scatter, and by its size."""
    memories = (point.src_memory, point.dst_memory)
    noisy = next((memory for memory in _NOISY if memory in memories), None)
    if noisy is None and point.params.get("peer") == "off":
        return Group(size_class(point.bytes), "peer off")
    name = noisy or _NAMES.get(point.benchmark)
    if name is None:
        name = "pinned" if {"pinned", "registered", "mapped", "wc"} & {*memories} else point.benchmark
    return Group(size_class(point.bytes) if point.bytes and name != "latency" else -1, name)


def size_text(of_class: int) -> str:
    """'below 64 KiB', '64 KiB to 1 MiB', '1 MiB and more'."""
    small, large = map(format_bytes, SIZE_CLASSES)
    return (f"below {small}", f"{small} to {large}", f"{large} and more")[of_class]
