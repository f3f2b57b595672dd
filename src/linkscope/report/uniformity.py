"""Whether the paths of one direction perform alike. Only measured points count."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.model.curves import BATCHED, MODE, method_of
from linkscope.model.rounds import Spreads, rounds_of
from linkscope.report.finding import LARGE
from linkscope.report.headline import COPIES, ENGINES, is_headline, is_unstable
from linkscope.report.usual import specials
from linkscope.runfile import Point, Run, once
from linkscope.stats import Interval, geometric_mean, ratio_interval

MARGIN = 0.03  # paths that differ by less count as uniform
_LEVEL = 0.95
_COMPARED = ("h2d", "d2h", "d2d")


@dataclass(frozen=True)
class Comparison:
    """The slowest path of a direction against the fastest: `ratio` is the ratio of their times, with its interval.

    `count` paths were measured with one method at `bytes`. The interval allows for the choice of these two among all
    paths. `spread`: the longest median over the shortest one, minus 1, as the tables of the pairs show them; the ratio
    is of geometric means of the rounds.
    """

    where: str
    count: int
    bytes: int
    slowest: Point
    fastest: Point
    ratio: float
    interval: Interval | None
    spread: float

    @property
    def differs(self) -> bool:
        """Whether the difference is certain to exceed the margin."""
        return self.interval is not None and self.interval.low > 1 + MARGIN

    @property
    def is_uniform(self) -> bool:
        """Whether all medians are within the margin. Paths that are neither uniform nor `differs` may differ."""
        return self.interval is not None and not self.differs and self.spread <= MARGIN


@once
def comparisons(run: Run) -> Sequence[Comparison]:
    """One comparison for each direction in which at least two paths were measured with one method at one size."""
    points = [point for point in run.points if _is_comparable(point)]
    spreads = Spreads(points)
    found = (_compare(benchmark, [p for p in points if p.benchmark == benchmark], spreads) for benchmark in _COMPARED)
    return [one for one in found if one is not None]


def between_gpus(run: Run) -> Comparison | None:
    """The comparison of the pairs of GPUs; None if fewer than two were measured with one method at one size."""
    return next((one for one in comparisons(run) if one.where == COPIES["d2d"]), None)


def _is_comparable(point: Point) -> bool:
    if not is_headline(point) or point.bidirectional or point.params.get("peer") == "off":
        return False
    if "pageable" in (point.src_memory, point.dst_memory) or point.bytes < LARGE:
        return False
    return bool(rounds_of(point)) and not is_unstable(point)


def _compare(benchmark: str, points: Iterable[Point], spreads: Spreads) -> Comparison | None:
    alike: dict[object, list[Point]] = {}
    for point in points:
        alike.setdefault((method_of(point), point.params.get("mode", ""), point.bytes), []).append(point)
    group = max(alike.values(), key=_preference, default=[])
    if len(group) < 2:
        return None
    times = {point.id: geometric_mean(rounds_of(point)) for point in group}
    slowest, fastest = max(group, key=lambda p: times[p.id]), min(group, key=lambda p: times[p.id])
    # Bonferroni: the two were chosen among all ordered pairs
    level = 1 - (1 - _LEVEL) / (len(group) * (len(group) - 1))
    known = max(filter(None, (spreads.of(slowest), spreads.of(fastest))), default=None)
    interval = ratio_interval(rounds_of(fastest), rounds_of(slowest), alike=known, level=level)
    medians = [point.median_s or times[point.id] for point in group]
    return Comparison(
        COPIES[benchmark], len(group), group[0].bytes, slowest, fastest,
        times[slowest.id] / times[fastest.id], interval, max(medians) / min(medians) - 1,
    )  # fmt: skip


def _preference(group: list[Point]) -> tuple[int, ...]:
    """Ranks groups of points: most paths, then the preferred engine, then the usual batched copy of pinned memory, then
    the largest size.
    """
    first = group[0]
    registered = "registered" in (first.src_memory, first.dst_memory)
    is_single = first.params.get(MODE, "") not in BATCHED
    return len(group), -ENGINES.index(first.engine), -is_single, -registered, -specials(first), first.bytes
