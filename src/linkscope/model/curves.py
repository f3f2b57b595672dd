"""From points to curves: one method on one path, over size.

A method is everything that distinguishes two points of a path except size and `mode` (batched or single). A family is a
method without its parameters. This module knows no benchmark, engine or parameter by name, except `mode`.
"""

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from linkscope.runfile import Flow, Point, flows_by_path

MODE = "mode"
BATCHED = ("batched", "")  # values of `mode` for batched operations; '' where an operation has no mode
_ALL = ":all"  # end of the name of a place that stands for several, as in gpu:all


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value and the ends of its interval, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, order=True)
class Family:
    """The operation, its engine and the memory kinds at both ends."""

    benchmark: str
    engine: str
    src_memory: str
    dst_memory: str

    def __str__(self) -> str:
        return f"{self.benchmark} by {self.engine}, {self.src_memory} -> {self.dst_memory}"


@dataclass(frozen=True, slots=True, order=True)
class Method:
    """A family with its parameters except `mode`, sorted by name."""

    family: Family
    params: tuple[tuple[str, str], ...] = ()

    def without(self, names: Iterable[str]) -> "Method":
        """The same method without some parameters."""
        left_out = set(names)
        return Method(self.family, tuple(pair for pair in self.params if pair[0] not in left_out))


@dataclass(frozen=True, slots=True)
class Path:
    """A path between two places. Sorts by number, so that gpu:10 comes after gpu:9."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"{self.src} -> {self.dst}"

    @property
    def joint(self) -> bool:
        """Whether an end stands for several places."""
        return self.src.endswith(_ALL) or self.dst.endswith(_ALL)

    def __lt__(self, other: "Path") -> bool:
        return (natural(self.src), natural(self.dst)) < (natural(other.src), natural(other.dst))


@dataclass(frozen=True)
class Curve:
    """The points of one method on one path in one mode, by size. `points` includes those without a value."""

    path: Path
    method: Method
    mode: str
    points: tuple[Point, ...]

    @property
    def batched(self) -> bool:
        """Whether a point is the cost of one of many queued operations."""
        return self.mode in BATCHED

    @property
    def measured(self) -> list[Point]:
        """The points that have a value."""
        return [point for point in self.points if point.median_s is not None]

    def best(self) -> Point | None:
        """The point with the highest rate, or the shortest time for operations without bytes; None without any
        value."""
        return self._best

    @functools.cached_property
    def _best(self) -> Point | None:
        rated = [point for point in self.measured if _total(point) is not None]
        if rated:
            return max(rated, key=lambda point: _total(point) or 0.0)
        return min(self.measured, key=lambda point: point.median_s or 0.0, default=None)

    def half_rate_bytes(self) -> int | None:
        """The smallest measured size with half of the best rate; None if only one size was measured."""
        best = self.best()
        most = None if best is None else _total(best)
        if most is None or len(self.measured) < 2:
            return None
        return next((p.bytes for p in self.measured if (rate := _total(p)) is not None and rate >= most / 2), None)

    def below_half(self) -> tuple[Point | None, float | None]:
        """The next smaller measured size and its share of the best rate; no share without a total."""
        best, half = self.best(), self.half_rate_bytes()
        smaller = [point for point in self.measured if half is not None and point.bytes < half]
        if best is None or not smaller:
            return None, None
        rate, most = _total(smaller[-1]), _total(best)
        return smaller[-1], None if rate is None or not most else rate / most

    def without_total(self) -> list[Point]:
        """Measured sizes above the best one whose flows have no total, so that the best rate there is unknown."""
        best = self.best()
        return [p for p in self.measured if best is not None and p.bytes > best.bytes and _total(p) is None]


def has_gap(smaller: int, larger: int) -> bool:
    """Whether a power of two, which could have been measured, lies between two sizes."""
    return larger > 2 * smaller


def curves(points: Iterable[Point]) -> list[Curve]:
    """All curves of a run, sorted by family, parameters, path and mode."""
    # keyed by plain values, which is much faster for runs with many sizes
    alike: dict[tuple[object, ...], list[Point]] = {}
    for point in points:
        memories = point.src_memory, point.dst_memory
        key = (point.src, point.dst, point.benchmark, point.engine, memories, *point.params.items())
        alike.setdefault(key, []).append(point)
    found: dict[tuple[Path, Method, str], list[Point]] = {}
    for of_key in alike.values():
        first = of_key[0]
        found.setdefault((path_of(first), method_of(first), first.params.get(MODE, "")), []).extend(of_key)
    made = [Curve(*key, tuple(sorted(of_key, key=lambda point: point.bytes))) for key, of_key in found.items()]
    return sorted(made, key=lambda c: (c.method, natural(c.path.src), natural(c.path.dst), c.mode))


def method_of(point: Point) -> Method:
    """The method of a point."""
    family = Family(point.benchmark, point.engine, point.src_memory, point.dst_memory)
    return Method(family, tuple(sorted((name, value) for name, value in point.params.items() if name != MODE)))


@functools.lru_cache(maxsize=4096)
def natural(text: str) -> tuple[tuple[str, int], ...]:
    """Sort key for text with numbers."""
    return tuple((word, int(number or 0)) for word, number in re.findall(r"(\D*)(\d*)", text))


def path_of(point: Point) -> Path:
    """The path of a point."""
    return Path(point.src, point.dst)


def time_of(point: Point) -> Estimate | None:
    """Seconds of one operation of the first flow."""
    if point.median_s is None:
        return None
    return Estimate(point.median_s, *(point.ci95_s or (None, None)))


def rate_of(point: Point) -> Estimate | None:
    """GB/s of the first flow plus all measured flows with the same source and destination; the peak refers to it."""
    if point.gbps is None:
        return None
    found = flows_by_path(measured_flows(point)) if len(point.flows) > 1 else {}
    if len(found.get((point.src, point.dst), ())) < 2:
        return Estimate(point.gbps, *_rate_ends(point.flows[0].bytes if point.flows else point.bytes, point.ci95_s))
    return total_of(point) if len(found) == 1 else None


def total_of(point: Point) -> Estimate | None:
    """GB/s of all measured flows together: their bytes over the time from the common start to the last end.

    None if several flows did not run concurrently. Run files written before the joint time was recorded hold sums of
    rates; the ends of their intervals are sums of the ends of the flows.
    """
    if len(point.flows) < 2 or len(measured := measured_flows(point)) < 2:
        return rate_of(point)
    if point.total_gbps is None:
        return None
    if "together_ci95_s" in point.guards:
        moved, (fastest_s, slowest_s) = sum(flow.bytes for flow in measured), point.guards["together_ci95_s"]
        return Estimate(point.total_gbps, moved / slowest_s / 1e9, moved / fastest_s / 1e9)
    if "together_s" in point.guards:
        return Estimate(point.total_gbps)
    ends = [_rate_ends(flow.bytes, flow.ci95_s) for flow in measured]
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    if len(lows) < len(ends) or len(highs) < len(ends):
        return Estimate(point.total_gbps)
    return Estimate(point.total_gbps, sum(lows), sum(highs))


def flow_rate(flow: Flow) -> Estimate | None:
    """GB/s of one flow."""
    return None if flow.gbps is None else Estimate(flow.gbps, *_rate_ends(flow.bytes, flow.ci95_s))


def share_of(point: Point) -> float | None:
    """The rate of the first flow, and of other flows on its path, as a fraction of the peak; None if the peak covers
    several flows."""
    if point.gbps is None or not point.limit_gbps or path_of(point).joint:
        return None
    rate = rate_of(point)
    return rate.value / point.limit_gbps if rate else None


def measured_flows(point: Point) -> list[Flow]:
    """The flows that count; other flows are background load."""
    return [flow for flow in point.flows if flow.role == "measured"]


def alike(one: Estimate, other: Estimate, tolerance: float) -> bool:
    """Whether two values differ by at most a fraction, or have overlapping intervals."""
    if max(one.value, other.value) <= min(one.value, other.value) * (1 + tolerance):
        return True
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return max(one.low, other.low) <= min(one.high, other.high)


def _rate_ends(count: int, ci_s: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """The rates of an interval of times: the longest time is the lowest rate."""
    if ci_s is None or ci_s[0] <= 0 or not count:
        return None, None
    return count / ci_s[1] / 1e9, count / ci_s[0] / 1e9


def _total(point: Point) -> float | None:
    """The value of total_of() without its interval."""
    return point.gbps if len(measured_flows(point)) < 2 else point.total_gbps
