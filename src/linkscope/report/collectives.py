"""Collectives: bandwidths, times of the ranks, and what copies between the same GPUs would take."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.runfile import Flow, Point

_IN_BLOCKS = ("all_gather", "reduce_scatter", "all_to_all")
NAMES = ("all_reduce", *_IN_BLOCKS, "broadcast", "reduce", "send_receive")


def is_collective(point: Point) -> bool:
    """Returns whether the point is a collective with a time."""
    return point.benchmark in NAMES and point.engine in ("nccl", "mpi") and bool(point.median_s)


def bus_factor(benchmark: str, ranks: int) -> float:
    """Returns the part of the bytes of a collective that a rank must send at least, as nccl-tests count it."""
    if benchmark == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if benchmark in _IN_BLOCKS:
        return (ranks - 1) / ranks
    return 1.0 if ranks > 1 else 0.0


@dataclass(frozen=True)
class Rates:
    """A collective: seconds until its slowest rank has ended, with the interval of that rank, and rates in GB/s."""

    seconds: float
    ci95_s: tuple[float, float] | None
    algorithm: float
    bus: float | None  # None: one rank


def rates_of(point: Point) -> Rates:
    """Returns time and rates of a collective."""
    slowest = max((flow for flow in point.flows if flow.median_s), key=lambda flow: flow.median_s or 0.0)
    seconds = slowest.median_s or 0.0
    algorithm = point.bytes / seconds / 1e9
    factor = bus_factor(point.benchmark, len(point.flows))
    return Rates(seconds, slowest.ci95_s, algorithm, algorithm * factor if factor else None)


@dataclass(frozen=True)
class Straggler:
    """A rank that takes longer than the others: its flow, the median of all ranks' times, and how much longer it is."""

    flow: Flow
    rank: int
    median_s: float
    excess: float


def stragglers(point: Point) -> list[Straggler]:
    """Returns the ranks whose whole interval lies above the median of all ranks by more than the target precision."""
    times = [flow.median_s for flow in point.flows if flow.median_s]
    if len(times) < 2:
        return []
    middle = statistics.median(times)
    return [
        Straggler(flow, rank, middle, (flow.median_s or 0.0) / middle - 1)
        for rank, flow in enumerate(point.flows)
        if flow.ci95_s and flow.ci95_s[0] > middle * (1 + point.precision_target)
    ]


class Copies:
    """Batched copies between GPUs of a run, by pair and size: the faster of copy engine and SMs."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._pairs: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for point in points:
            plain = point.benchmark == "d2d" and point.params.get("mode", "batched") == "batched"
            if not plain or not point.median_s or point.bidirectional or point.params.get("peer", "on") != "on":
                continue
            of = self._pairs[point.src, point.dst]
            of[point.bytes] = min(point.median_s, of.get(point.bytes, math.inf))

    def seconds(self, gpus: Sequence[str], size: float) -> float | None:
        """Returns how long a copy of that many bytes takes on the slowest pair of these GPUs; None: unknown.

        The time follows the curve of the pair with most sizes, times how much slower the slowest pair is at the largest
        size.
        """
        pairs = {pair: of for pair, of in self._pairs.items() if set(pair) <= set(gpus)}
        curve = max(self._pairs.values(), key=len, default={})
        if not pairs or not curve:
            return None
        largest = max(curve)
        slower = max((of[largest] / curve[largest] for of in pairs.values() if largest in of), default=1.0)
        return _along(curve, size) * slower


def _along(curve: Mapping[int, float], size: float) -> float:
    """Interpolates times by size: in proportion above the largest size, constant below the smallest one."""
    sizes = sorted(curve)
    if size >= sizes[-1]:
        return curve[sizes[-1]] * size / sizes[-1]
    if size <= sizes[0]:
        return curve[sizes[0]]
    above = next(at for at, known in enumerate(sizes) if known > size)
    low, high = sizes[above - 1], sizes[above]
    share = (size - low) / (high - low)
    return curve[low] + share * (curve[high] - curve[low])


def from_copies(point: Point, gpus: Sequence[str], copies: Copies) -> tuple[float, str] | None:
    """Returns the seconds that the collective takes if copies are its steps, and the faster way: blocks around a ring,
    or all bytes directly, each rank to all others at once. None for one rank and for unknown copies."""
    ranks = len(point.flows)
    steps = {"all_reduce": 2 * (ranks - 1), "all_gather": ranks - 1, "reduce_scatter": ranks - 1}.get(point.benchmark)
    moved = bus_factor(point.benchmark, ranks) * point.bytes
    direct = copies.seconds(gpus, moved) if moved else None
    if direct is None:
        return None
    step = copies.seconds(gpus, point.bytes / ranks)
    if not steps or step is None:
        return direct, "direct"
    # The sum of an all-reduce is complete before it is passed on.
    rounds = 2 if point.benchmark == "all_reduce" else 1
    each = copies.seconds(gpus, moved / rounds)
    ways = {"ring": steps * step, "direct": rounds * each if each is not None else direct}
    way = min(ways, key=lambda name: ways[name])
    return ways[way], way
