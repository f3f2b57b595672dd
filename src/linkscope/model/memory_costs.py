"""The cost of each kind of memory besides its rate: the phases of its life by size, from `allocation`."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from linkscope.model.curves import Estimate, Path, path_of, time_of
from linkscope.runfile import Point
from linkscope.units import parse_bytes

# The phases in the life of a memory kind, in order, as in the worker (core/program/allocation.cpp).
PHASES: dict[str, tuple[str, ...]] = {
    "pageable": ("allocate", "touch", "free"),
    "hugepage": ("allocate", "touch", "free"),
    "pinned": ("allocate", "map", "touch", "free"),
    "wc": ("allocate", "map", "touch", "free"),
    "mapped": ("allocate", "map", "touch", "free"),
    "registered": ("allocate", "touch", "register", "map", "unregister", "free"),
    "registered_hugepage": ("allocate", "touch", "register", "map", "unregister", "free"),
    "device": ("allocate", "touch", "free"),
    "pool": ("allocate", "touch", "free"),
    "vmm": ("allocate", "map", "touch", "unmap", "free"),
    "ipc": ("allocate", "export", "open", "touch", "close", "free"),
    "posix_fd": ("allocate", "export", "import", "map", "touch", "unmap", "free"),
    "shm": ("allocate", "touch", "open", "register", "map", "unregister", "close", "free"),
}
# Kinds that are derived from another kind, and the phases in which both are equal.
BUILT_ON = {"registered": ("pageable", ("allocate", "touch", "free"))}
GROWING = {"allocate": "grow"}  # the phase of a pool that keeps nothing

Basis = Literal["measured", "between", "beyond"]  # measured at that size; interpolated between two sizes; extrapolated
_WORST: tuple[Basis, ...] = ("measured", "between", "beyond")


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """Memory of one kind, with its page size if it has one; `growing`: from a pool that keeps nothing."""

    memory: str
    pages: str = ""
    growing: bool = False

    def __str__(self) -> str:
        return " ".join(filter(None, (self.memory, self.pages, "that grows" if self.growing else "")))

    @property
    def phases(self) -> tuple[str, ...]:
        """The names of its phases as in points, in order."""
        named = PHASES.get(self.memory, ())
        return tuple(GROWING.get(phase, phase) for phase in named) if self.growing else named


@dataclass(frozen=True)
class Amount:
    """Seconds, the points that they come from, and how."""

    time: Estimate
    points: tuple[Point, ...]
    basis: Basis = "measured"


@dataclass(frozen=True)
class MemoryCost:
    """The cost of allocating and freeing a number of bytes: each phase, and all of them.

    `where`: the path from the place of the memory to that of the context that allocates or pins it.
    """

    where: Path
    kind: Kind
    bytes: int
    phases: tuple[tuple[str, Amount], ...]

    @property
    def total(self) -> Amount:
        """The sum of all phases; the ends of its interval are the sums of their ends."""
        return together(amount for _, amount in self.phases)

    def without(self, phases: Collection[str]) -> Amount:
        """The cost without some phases."""
        return together(amount for phase, amount in self.phases if phase not in phases)


class MemoryCosts:
    """The costs measured in a run, at any size that its points allow."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._known: dict[tuple[Path, Kind], dict[str, dict[int, Point]]] = {}
        for point in points:
            size = parse_bytes(point.params.get("size", ""))
            if point.benchmark != "allocation" or point.median_s is None or size is None:
                continue
            memory, phase = point.src_memory, point.params.get("phase", "")
            growing = (False, True) if memory == "pool" else (False,)
            for kind in (Kind(memory, point.params.get("pages", ""), one) for one in growing):
                if phase in kind.phases:
                    of_kind = self._known.setdefault((path_of(point), kind), {})
                    of_kind.setdefault(phase, {})[size] = point

    def kinds(self) -> list[tuple[Path, Kind]]:
        """The kinds whose phases are all known at some size, sorted."""
        whole = [key for key, phases in self._known.items() if set(phases) == set(key[1].phases)]
        return sorted(whole)

    def sizes(self, where: Path, kind: Kind) -> list[int]:
        """The sizes at which every phase was measured."""
        phases = self._known.get((where, kind), {})
        measured = [set(phases.get(phase, ())) for phase in kind.phases]
        return sorted(set.intersection(*measured)) if measured else []

    def at(self, where: Path, kind: Kind, size: int) -> MemoryCost | None:
        """The cost at a size; None if a phase was measured neither there nor at two other sizes."""
        phases = self._known.get((where, kind), {})
        amounts = [(phase, over_size(phases.get(phase, {}), size)) for phase in kind.phases]
        known = tuple((phase, amount) for phase, amount in amounts if amount is not None)
        return MemoryCost(where, kind, size, known) if known and len(known) == len(amounts) else None


def over_size(known: Mapping[int, Point], size: int) -> Amount | None:
    """The time at a size, measured or on the line through the two nearest sizes, since cost is linear in pages. None
    with fewer than two sizes."""
    if size in known:
        time = time_of(known[size])
        return None if time is None else Amount(time, (known[size],))
    sizes = sorted(known)
    if len(sizes) < 2:
        return None
    above = next((at for at, one in enumerate(sizes) if one > size), len(sizes) - 1)
    low, high = sizes[max(above, 1) - 1], sizes[max(above, 1)]
    one, other = time_of(known[low]), time_of(known[high])
    if one is None or other is None:
        return None
    part = (size - low) / (high - low)
    time = _sum([_scaled(one, 1 - part), _scaled(other, part)])
    low_end, high_end = (None if end is None else max(end, 0.0) for end in (time.low, time.high))
    basis: Basis = "between" if sizes[0] < size < sizes[-1] else "beyond"
    return Amount(Estimate(max(time.value, 0.0), low_end, high_end), (known[low], known[high]), basis)


def together(amounts: Iterable[Amount]) -> Amount:
    """The sum of both."""
    listed = list(amounts)
    basis = max((amount.basis for amount in listed), key=_WORST.index, default=_WORST[0])
    points = tuple({point.id: point for amount in listed for point in amount.points}.values())
    return Amount(_sum([amount.time for amount in listed]), points, basis)


def differ_in_phase(ids: Iterable[str]) -> list[str]:
    """Ids, with those that differ only in the phase merged into one pattern for `run --only`."""
    return list(dict.fromkeys(re.sub(r"phase=\w+", "phase=*", id) for id in ids))


def _scaled(time: Estimate, factor: float) -> Estimate:
    low, high = (time.low, time.high) if factor >= 0 else (time.high, time.low)
    ends = (None if end is None else factor * end for end in (low, high))
    return Estimate(factor * time.value, *ends)


def _sum(times: Iterable[Estimate]) -> Estimate:
    listed = list(times)
    lows = [one.low for one in listed if one.low is not None]
    highs = [one.high for one in listed if one.high is not None]
    value = sum(one.value for one in listed)
    if len(lows) < len(listed) or len(highs) < len(listed):
        return Estimate(value)
    return Estimate(value, sum(lows), sum(highs))
