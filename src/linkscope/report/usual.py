"""The usual copy: an ordinary call of cudaMemcpyAsync, or a kernel that uses the whole GPU."""

from collections.abc import Iterable, Mapping

from linkscope.model.curves import MODE, Method, path_of
from linkscope.runfile import Point

# The values of the parameters of the usual copy. Texts do not name them.
DEFAULTS: Mapping[str, str] = {
    "after": "kernel", "call": "memcpy", "initiator": "src", "peer": "on", "bidirectional": "false", "blocks": "sms",
    "threads": "512",
}  # fmt: skip
_APART = frozenset({MODE, "peer", "bidirectional"})  # their values have rows of their own


def special(method: Method) -> list[tuple[str, str]]:
    """The parameters that are not at their default."""
    return [(name, value) for name, value in method.params if DEFAULTS.get(name) != value]


def specials(point: Point) -> int:
    """The number of parameters of a call that are not at their default: how unusual the copy is."""
    return sum(DEFAULTS.get(name) != value for name, value in point.params.items() if name not in _APART)


def most_usual(points: Iterable[Point]) -> list[Point]:
    """The points of each path with the fewest special parameters, so that all numbers of a path are of one call."""
    groups: dict[object, list[Point]] = {}
    for point in points:
        apart = tuple(point.params.get(name, "") for name in sorted(_APART))
        key = (path_of(point), point.benchmark, point.engine, point.src_memory, point.dst_memory, apart)
        groups.setdefault(key, []).append(point)
    kept: list[Point] = []
    for of in groups.values():
        least = min(map(specials, of))
        kept += [point for point in of if specials(point) == least]
    return kept
