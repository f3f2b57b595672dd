"""The number of uses after which a kind of memory pays for itself.

A kind of memory costs something once (memory_costs.py) and something for each transfer. A kind that costs more once but
less for each transfer is cheaper after n transfers, when its extra cost is less than n times the gain per transfer.
Transfers are the unidirectional, batched copies by copy engine that a run measured.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from linkscope.model.curves import BATCHED, MODE, Estimate, Path, path_of, time_of
from linkscope.model.memory_costs import BUILT_ON, Amount, Kind, MemoryCost, MemoryCosts, together
from linkscope.runfile import Point

Side = Literal["host", "gpu"]
PAGEABLE, PINNED, DEVICE = Kind("pageable"), Kind("pinned"), Kind("device")
REFERENCES: dict[Side, tuple[Kind, ...]] = {"host": (PAGEABLE, PINNED), "gpu": (DEVICE,)}
STAGED = "pageable via pinned"
# parameters of the points that are used
_USUAL = {MODE: BATCHED, "after": ("kernel", ""), "bidirectional": ("false", "")}


@dataclass(frozen=True, slots=True)
class Uses:
    """A range of transfer counts. `first` None: never; `last` None: no upper end."""

    first: int | None = 1
    last: int | None = None


NEVER, AT_ONCE = Uses(None), Uses()


@dataclass(frozen=True)
class BreakEven:
    """The transfer counts for which one kind is cheaper than another: by the values, and by the best and worst ends of
    the intervals if every value has one."""

    than: Kind
    uses: Uses
    at_best: Uses | None = None
    at_worst: Uses | None = None


@dataclass(frozen=True)
class Choice:
    """A kind of memory at one end of a path, at one size. `costs` covers all buffers that it needs."""

    path: Path
    side: Side
    name: str
    bytes: int
    costs: tuple[MemoryCost, ...]
    transfer: Amount
    against: tuple[BreakEven, ...] = ()

    @property
    def cost(self) -> Amount:
        """The cost of allocating and freeing all its memory."""
        return together(cost.total for cost in self.costs)

    @property
    def ids(self) -> list[str]:
        """The points that the costs come from."""
        return [point.id for point in together((self.cost, self.transfer)).points]


def choices(points: Iterable[Point]) -> list[Choice]:
    """Every kind of memory at either end of every path whose cost and rate are known, at each measured size; sorted by
    path, end, size and kind."""
    listed = list(points)
    costs, within = MemoryCosts(listed), _within_hosts(listed)
    ends: dict[tuple[Path, Side], dict[int, dict[Kind, Point]]] = {}
    for point in listed:
        for side, kind in _choosable(point):
            ends.setdefault((path_of(point), side), {}).setdefault(point.bytes, {})[kind] = point
    found = []
    for (path, side), by_size in sorted(ends.items()):
        for size, of_kind in sorted(by_size.items()):
            options = {
                kind: Choice(path, side, str(kind), size, (cost,), Amount(time, (point,)))
                for kind, point in sorted(of_kind.items())
                if (cost := cost_at(costs, path, side, kind, size)) and (time := time_of(point))
            }
            staged = _staged(options, within.get((path, size))) if side == "host" else []
            found += [_against_others(one, options) for one in (*options.values(), *staged)]
    return found


def compared(cost: Estimate, transfer: Estimate, other_cost: Estimate, other_transfer: Estimate) -> list[Uses]:
    """The numbers of transfers for which one kind is cheaper than the other, from times in seconds.

    The result holds for the values and, where all have intervals, for the best and the worst ends. Transfers whose
    intervals overlap count as equally fast by the values, because many transfers would multiply a difference that is
    not significant.
    """
    extra, gain = cost.value - other_cost.value, other_transfer.value - transfer.value
    lows = [one.low for one in (cost, transfer, other_cost, other_transfer) if one.low is not None]
    highs = [one.high for one in (cost, transfer, other_cost, other_transfer) if one.high is not None]
    if len(lows) + len(highs) < 8:
        return [cheaper(extra, gain)]
    meet = lows[1] <= highs[3] and lows[3] <= highs[1]
    best, worst = cheaper(lows[0] - highs[2], highs[3] - lows[1]), cheaper(highs[0] - lows[2], lows[3] - highs[1])
    return [cheaper(extra, 0.0 if meet else gain), best, worst]


def cheaper(extra_s: float, gain_s: float) -> Uses:
    """The numbers of transfers n >= 1 with extra_s < n * gain_s."""
    if gain_s > 0:
        return Uses(max(1, math.floor(extra_s / gain_s) + 1))
    if extra_s >= 0:
        return NEVER
    if gain_s == 0:
        return AT_ONCE
    last = math.ceil(extra_s / gain_s) - 1
    return Uses(1, last) if last >= 1 else NEVER


def _against_others(one: Choice, options: dict[Kind, Choice]) -> Choice:
    against = []
    for kind in REFERENCES[one.side]:
        other = options.get(kind)
        if other is None or other is one:
            continue
        cost, other_cost = one.cost.time, other.cost.time
        base, shared = BUILT_ON.get(one.costs[0].kind.memory, ("", ()))
        if base == kind.memory and len(one.costs) == 1:  # steps that both kinds share cancel
            cost, other_cost = one.costs[0].without(shared).time, Estimate(0.0, 0.0, 0.0)
        against.append(BreakEven(kind, *compared(cost, one.transfer.time, other_cost, other.transfer.time)))
    return Choice(one.path, one.side, one.name, one.bytes, one.costs, one.transfer, tuple(against))


def _choosable(point: Point) -> list[tuple[Side, Kind]]:
    """The ends of a transfer whose memory kind is the choice; the other end has the usual kind."""
    if point.benchmark not in ("h2d", "d2h") or point.engine != "ce" or not _usual(point):
        return []
    ends = (point.src_memory, point.dst_memory)
    host, gpu = ends if point.benchmark == "h2d" else ends[::-1]
    kinds: list[tuple[Side, Kind]] = []
    if gpu == DEVICE.memory:
        kinds.append(("host", Kind(host, point.params.get("pages", ""))))
    if host == PINNED.memory:
        kinds += [("gpu", Kind(gpu, "", growing)) for growing in ((False, True) if gpu == "pool" else (False,))]
    return kinds


def _usual(point: Point, but: tuple[str, ...] = ("pages",)) -> bool:
    """Whether the point is unidirectional, batched, with cold caches, and has a value."""
    others = {name: value for name, value in point.params.items() if name not in but}
    return point.median_s is not None and all(value in _USUAL.get(name, ()) for name, value in others.items())


def _within_hosts(points: Iterable[Point]) -> dict[tuple[Path, int], Amount]:
    """CPU copies between pageable and pinned memory of a node, by the path between host and GPU that they begin or end,
    and by size."""
    ways: dict[tuple[str, bool, int], Amount] = {}
    hosts: set[Path] = set()
    for point in points:
        if point.benchmark in ("h2d", "d2h"):
            hosts.add(path_of(point))
        elif point.benchmark == "h2h" and point.src == point.dst and _usual(point, ("initiator",)):
            memories = (point.src_memory, point.dst_memory)
            time = time_of(point)
            if time and memories in (("pageable", "pinned"), ("pinned", "pageable")):
                ways[point.src, memories[0] == "pageable", point.bytes] = Amount(time, (point,))
    found = {}
    for path in hosts:
        for (host, before, size), amount in ways.items():
            if host == (path.src if before else path.dst):
                found[path, size] = amount
    return found


def cost_at(costs: MemoryCosts, path: Path, side: Side, kind: Kind, size: int) -> MemoryCost | None:
    """The cost of a kind: for host memory in the context of the path's GPU if that was measured, otherwise on the
    host."""
    host, gpu = (path.dst, path.src) if path.src.rpartition("/")[2].startswith("gpu") else (path.src, path.dst)
    places = (Path(host, gpu), Path(host, host)) if side == "host" else (Path(gpu, gpu),)
    return next((cost for where in places if (cost := costs.at(where, kind, size))), None)


def _staged(options: dict[Kind, Choice], copy: Amount | None) -> list[Choice]:
    """Data stay in pageable memory: a CPU thread copies them to or from a pinned buffer, and the engine copies that
    buffer."""
    pageable, pinned = options.get(PAGEABLE), options.get(PINNED)
    if pageable is None or pinned is None or copy is None:
        return []
    transfer = together((copy, pinned.transfer))
    return [Choice(pinned.path, "host", STAGED, pinned.bytes, (*pageable.costs, *pinned.costs), transfer)]
