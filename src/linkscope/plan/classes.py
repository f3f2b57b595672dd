"""Groups paths into classes, and points into curves.

A class holds paths that are expected to perform alike. For every operation, the representative is measured at all
sizes, and so is another random member, the audit. The other members are checked at three sizes.
"""

import dataclasses
import functools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from linkscope.plan.facts import MachineFacts
from linkscope.runfile import PointId

CONVERGED_BYTES = 16 << 20  # bytes: rates have converged; larger sizes cost more without new information


class PathClass(msgspec.Struct, frozen=True):
    """Paths ('gpu:0->gpu:1') of one class; the first is the representative."""

    kind: str
    paths: list[str]


@dataclass(frozen=True)
class ClassCurve:
    """One operation on all paths of a class. `members`: the representative, the audit, then the others.

    `ids`: the points of the plan, by member and size.
    """

    name: str
    kind: str
    members: tuple[str, ...]
    ids: Mapping[str, Mapping[int, str]]

    @property
    def representative(self) -> str:
        return self.members[0]

    @property
    def audit(self) -> str | None:
        """The second member with a full curve; None in a class of one path."""
        return self.members[1] if len(self.members) > 1 else None

    @property
    def sizes(self) -> list[int]:
        """The sizes of the representative, ascending."""
        return sorted(self.ids[self.representative])

    @property
    def checks(self) -> list[int]:
        """The sizes at which every member is measured."""
        return checks(self.sizes)

    def id_of(self, member: str, size: int) -> str:
        """Returns the id of the point of that size, even if the plan does not list it."""
        listed = self.ids[member]
        if size in listed:
            return listed[size]
        return _of_size(next(iter(listed.values())), size)


@functools.lru_cache(maxsize=1 << 16)  # called again after every measurement
def _of_size(id: str, size: int) -> str:
    return str(dataclasses.replace(PointId.parse(id), bytes=size))


def checks(sizes: Sequence[int]) -> list[int]:
    """Returns three of the ascending sizes: the smallest, the first at which rates have converged, and one between."""
    last = next((at for at, size in enumerate(sizes) if size >= CONVERGED_BYTES), len(sizes) - 1)
    return [sizes[at] for at in dict.fromkeys((0, (last + 1) // 2, last))]


def path_text(point: PointId) -> str:
    """Returns 'gpu:0->gpu:1'."""
    return f"{point.src}->{point.dst}"


def classes_of(points: Iterable[PointId], machine: MachineFacts, seed: int) -> list[PathClass]:
    """Returns the classes of all paths of the points, in the order of their kinds; members in random order."""
    found: dict[str, dict[str, None]] = {}
    for point in points:
        found.setdefault(machine.kind_of_path(point.src, point.dst), {})[path_text(point)] = None
    classes = []
    for kind, paths in found.items():
        order = sorted(paths)
        random.Random(f"{seed}:{kind}").shuffle(order)
        classes.append(PathClass(kind, order))
    return classes


def class_curves(points: Iterable[str], classes: Sequence[PathClass], seed: int) -> list[ClassCurve]:
    """Returns the curves of a plan's points, in the order of their first points."""
    where = {path: (number, at) for number, of in enumerate(classes) for at, path in enumerate(of.paths)}
    found: dict[tuple[str, int], dict[str, dict[int, str]]] = {}
    for id in points:
        point = PointId.parse(id)
        path = path_text(point)
        key = (operation(point), where[path][0])
        found.setdefault(key, {}).setdefault(path, {})[point.bytes] = id
    curves = []
    for (name, number), ids in found.items():
        members = sorted(ids, key=lambda path: where[path][1])
        others = members[1:]
        random.Random(f"{seed}:{name}:{classes[number].kind}").shuffle(others)
        curves.append(ClassCurve(name, classes[number].kind, (members[0], *others), ids))
    return curves


def operation(point: PointId) -> str:
    """Returns the id without its places and size."""
    params = "&".join(f"{name}={value}" for name, value in point.params)
    return f"{point.benchmark}/{point.engine}/{point.src_memory}->{point.dst_memory}" + (f"?{params}" if params else "")


def only_the_representatives(points: Sequence[PointId], classes: Sequence[PathClass], largest: int) -> list[PointId]:
    """Drops points with sizes above `largest` on paths that are not representatives."""
    first = {of.paths[0] for of in classes}
    return [point for point in points if point.bytes <= largest or path_text(point) in first]
