"""The methods of one transfer from a host to another, as points that a model can run."""

from dataclasses import dataclass

from linkscope.flow import kind_of
from linkscope.runfile import PointId

CHUNKS = {f"{count}KiB": count << 10 for count in (64, 128, 256, 512)} | {
    f"{count}MiB": count << 20 for count in (1, 2, 4, 8, 16)
}  # of benchmark network_staged
DIRECT, WHOLE, BUFFERED = "direct", "staged whole", "double buffer"
_MEMORY = {"numa": "pinned", "gpu": "device"}


@dataclass(frozen=True)
class NetworkMethod:
    """A method by name; `chunk`: bytes of a message, the whole transfer where it is not cut."""

    name: str
    chunk: int
    point: PointId


def network_point(src: str, dst: str, size: int, near: dict[str, str], mode: str = "batched") -> PointId:
    """A transfer that the network cards make by themselves. `near`: the NUMA node of each GPU."""
    return _point("network", (src, dst), size, {"mode": mode} | _nodes((src, dst), near, ("src",)))


def network_methods(src: str, dst: str, size: int, near: dict[str, str]) -> list[NetworkMethod]:
    """All methods of one transfer alone: direct, and to or from a GPU staged, whole and by each chunk."""
    found = [NetworkMethod(DIRECT, size, network_point(src, dst, size, near, "single"))]
    if kind_of(src) == kind_of(dst) == "numa":
        return found
    nodes = {"mode": "single"} | _nodes((src, dst), near, ("src", "dst"))
    ends = (src, dst)
    whole = _point("network_staged", ends, size, nodes | {"chunk": "whole", "slots": "1"})
    found.append(NetworkMethod(WHOLE, size, whole))
    for text, chunk in CHUNKS.items():
        if chunk < size and size % chunk == 0:
            point = _point("network_staged", ends, size, nodes | {"chunk": text, "slots": "2"})
            found.append(NetworkMethod(BUFFERED, chunk, point))
    return found


def _nodes(ends: tuple[str, str], near: dict[str, str], sides: tuple[str, ...]) -> dict[str, str]:
    """The NUMA node of each end that is a GPU."""
    named = zip(("src", "dst"), ends, strict=True)
    return {
        f"{side}_numa": near[place].rpartition("/")[2]
        for side, place in named
        if side in sides and kind_of(place) == "gpu"
    }


def _point(name: str, ends: tuple[str, str], size: int, params: dict[str, str]) -> PointId:
    src, dst = ends
    memories = _MEMORY[kind_of(src)], _MEMORY[kind_of(dst)]
    return PointId(name, "nic", src, memories[0], dst, memories[1], size, tuple(sorted(params.items())))
