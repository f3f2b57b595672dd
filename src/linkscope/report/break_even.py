"""Tables of memory costs, and of the uses after which a memory kind pays off (computed by model/break_even.py)."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from linkscope.model.break_even import (
    AT_ONCE,
    NEVER,
    PAGEABLE,
    REFERENCES,
    BreakEven,
    Choice,
    Side,
    Uses,
    choices,
)
from linkscope.model.curves import Path, alike, natural
from linkscope.model.memory_costs import Amount, MemoryCost, differ_in_phase
from linkscope.model.text import paths_text
from linkscope.report.trust import signed
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_seconds, format_seconds_interval

ALIKE = 0.05
PHASES = {
    "allocate": ("allocate", "grow"),
    "first touch": ("touch",),
    "pin": ("register",),
    "map": ("map",),
    "unpin, unmap": ("unregister", "unmap"),
    "free": ("free",),
}
ENDS: dict[Side, str] = {"host": "Memory of the host", "gpu": "Memory of a GPU"}
NOTE = (
    "The break-even is the number of transfers after which a kind of memory has earned back what it costs once: "
    "allocating, pinning and freeing it. From then on the buffer is cheaper in all than one of the other kind. "
    f"A row holds paths that agree within {100 * ALIKE:.0f} % or within their intervals, and shows the first. A "
    "transfer is one copy of a batch by a copy engine, of the size and on the path of the row. From 3 [2, 5]: cheaper "
    "from the third transfer of the buffer; the ends of the intervals give the second and the fifth. At once: cheaper "
    "from the first transfer. Up to 3: cheaper for at most three transfers. Transfers with "
    "overlapping intervals count as equally fast, except for the ends. Alike: within the intervals, either may be "
    "cheaper from the first transfer. Comparisons of registered with pageable memory leave out their common costs, so "
    "they also hold for an existing buffer. Pageable via pinned: a CPU thread copies to or from a pinned bounce "
    "buffer, then the engine copies. Between, beyond: interpolated between two sizes, or extrapolated."
)
HEADING = "Memory cost and break-even"
SHORT_HEADING = f"Number of transfers after which memory is cheaper than {PAGEABLE}"
_MOST_SIZES = 4
_T = TypeVar("_T", Choice, MemoryCost)
_SHORT = {"between": " (between)", "beyond": " (beyond)", "measured": ""}


@dataclass(frozen=True)
class CostRow:
    """The cost of one memory kind on places that perform alike: time by phase (`PHASES`) and total, as text."""

    where: str
    kind: str
    bytes: int
    phases: tuple[str, ...]
    total: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class PayRow:
    """One memory kind on paths that perform alike: its cost, one transfer, and the break-even against other kinds."""

    paths: str
    path_count: int
    kind: str
    bytes: int
    cost: str
    transfer: str
    than: tuple[str, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True)
class PayTable:
    """The memory kinds at one end, and the kinds they are compared with (`than`)."""

    end: str
    than: tuple[str, ...]
    rows: tuple[PayRow, ...]

    @property
    def groups(self) -> list[list[PayRow]]:
        return [list(rows) for _, rows in itertools.groupby(self.rows, key=lambda row: (row.paths, row.bytes))]


@dataclass(frozen=True)
class BreakEvens:
    """Memory costs, break-even tables (memory of the host, memory of a GPU), and one line for each path and size."""

    costs: tuple[CostRow, ...]
    tables: tuple[PayTable, ...]
    lines: tuple[str, ...]


def break_evens(points: Iterable[Point]) -> BreakEvens | None:
    """Break-even tables of the sizes with the most memory kinds. None if the run has no costs or no transfers."""
    found = choices(points)
    if not found:
        return None
    sizes = compared_sizes(found)
    compared = [one for one in found if one.bytes in sizes]
    tables = tuple(_table(side, [one for one in compared if one.side == side]) for side in ENDS)
    return BreakEvens(tuple(_cost_rows(compared)), tuple(one for one in tables if one.rows), tuple(_lines(compared)))


def compared_sizes(found: Sequence[Choice]) -> list[int]:
    """At most four sizes: those with the most memory kinds, and among these the sizes with measured costs."""
    kinds: dict[int, set[str]] = {}
    for one in found:
        kinds.setdefault(one.bytes, set()).add(one.name)
    most = max(map(len, kinds.values()))
    sizes = sorted(size for size, names in kinds.items() if len(names) == most)
    estimated = {one.bytes for one in found if one.cost.basis != "measured"}
    sizes = [size for size in sizes if size not in estimated] or sizes
    if len(sizes) <= _MOST_SIZES:
        return sizes
    return [sizes[round(at * (len(sizes) - 1) / (_MOST_SIZES - 1))] for at in range(_MOST_SIZES)]


def uses_text(uses: Uses) -> str:
    """'at once', 'from 3', 'up to 8', 'never'."""
    if uses in (NEVER, AT_ONCE):
        return "never" if uses == NEVER else "at once"
    return f"from {uses.first}" if uses.last is None else f"up to {uses.last}"


def break_even_text(one: BreakEven) -> str:
    """'from 12 [10, 15]', 'from 12 [at once, 40]', 'up to 8 [5, 20]', 'at once', 'alike'."""
    text = uses_text(one.uses)
    if (one.at_best, one.at_worst) == (AT_ONCE, NEVER):
        return "alike"
    if one.at_best is None or one.at_worst is None or one.at_best == one.at_worst == one.uses:
        return text
    ends = [uses_text(one.at_best), uses_text(one.at_worst)]
    if one.uses.last is not None:
        ends.reverse()
    for word in ("from ", "up to "):
        if text.startswith(word):
            ends = [end.removeprefix(word) for end in ends]
    return f"{text} [{', '.join(ends)}]"


def _cost_rows(compared: Iterable[Choice]) -> Iterable[CostRow]:
    costs = {(cost.where, cost.kind, cost.bytes): cost for one in compared for cost in one.costs}
    listed = sorted(costs.values(), key=lambda one: (one.bytes, not _from_host(one.where), one.kind))
    for group in _clusters(listed, lambda one: (one.kind, one.bytes), lambda one: (one.total,)):
        first = group[0]
        cells = [_phases_text(first, names) for names in PHASES.values()]
        paths = paths_text([cost.where for cost in group])
        yield CostRow(paths, str(first.kind), first.bytes, tuple(cells), _complete(first.total), _ids(first.total))


def _phases_text(cost: MemoryCost, names: Sequence[str]) -> str:
    found = [amount for phase, amount in cost.phases if phase in names]
    return ", ".join(signed(format_seconds(one.time.value), one.points) + _SHORT[one.basis] for one in found)


def _table(side: Side, compared: Sequence[Choice]) -> PayTable:
    than = tuple(map(str, REFERENCES[side]))
    rows = []
    listed = sorted(compared, key=lambda one: (not _from_host(one.path), one.bytes))
    for group in _clusters(
        listed, lambda one: (_from_host(one.path), one.name, one.bytes), lambda one: (one.cost, one.transfer)
    ):
        first = group[0]
        against = {str(one.than): break_even_text(one) for one in first.against}
        rows.append(
            PayRow(
                paths_text([one.path for one in group]), len(group), first.name, first.bytes, _complete(first.cost),
                _complete(first.transfer), tuple(against.get(name, "") for name in than),
                tuple(differ_in_phase(first.ids)),
            )
        )  # fmt: skip
    return PayTable(ENDS[side], than, tuple(rows))


def _lines(compared: Sequence[Choice]) -> Iterable[str]:
    """Lines for the first path of each direction: 'numa:0 -> gpu:0 at 64 MiB: pinned at once; registered from 2 [at
    once, 3]'.
    """
    paths = sorted({one.path for one in compared if one.side == "host"})
    for from_host in (True, False):
        path = next((path for path in paths if _from_host(path) == from_host), None)
        for size in sorted({one.bytes for one in compared}):
            pays = [
                f"{one.name} {break_even_text(against)}"
                for one in compared
                if (one.path, one.side, one.bytes) == (path, "host", size)
                for against in one.against
                if str(against.than) == str(PAGEABLE)
            ]
            if pays:
                yield f"{path} at {format_bytes(size)}: {'; '.join(pays)}"


def _clusters(
    listed: Iterable[_T], kind: Callable[[_T], object], amounts: Callable[[_T], Sequence[Amount]]
) -> list[list[_T]]:
    """Groups of one memory kind with similar amounts, in the order of their first members."""
    found: list[list[_T]] = []
    by_kind: dict[object, list[list[_T]]] = {}
    for one in listed:
        groups = by_kind.setdefault(kind(one), [])
        for group in groups:
            pairs = zip(amounts(one), amounts(group[0]), strict=True)
            if all(alike(mine.time, theirs.time, ALIKE) for mine, theirs in pairs):
                group.append(one)
                break
        else:
            groups.append([one])
            found.append(groups[-1])
    return found


def _complete(amount: Amount) -> str:
    time = amount.time
    return signed(format_seconds_interval(time.value, time.low, time.high), amount.points) + _SHORT[amount.basis]


def _ids(amount: Amount) -> tuple[str, ...]:
    return tuple(differ_in_phase(sorted((point.id for point in amount.points), key=natural)))


def _from_host(path: Path) -> bool:
    return not path.src.rpartition("/")[2].startswith("gpu")
