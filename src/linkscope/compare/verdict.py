"""Every point that two runs both measured: the same, faster, slower, or not to be told.

Equivalence is shown and not assumed (Schuirmann 1987): `same` is an interval within the margin, `slower` and `faster`
one that lies wholly beyond it; all else is undecided. The intervals hold together: of all points compared, one or more
lie outside theirs in 5 % of comparisons (Bonferroni).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from linkscope.model.curves import MODE, Method, Path, measured_flows, method_of, path_of
from linkscope.runfile import Point, Run
from linkscope.stats import Interval, geometric_mean, log_variance, ratio_interval

MARGIN = 0.02
LEVEL = 0.95  # that all intervals hold together
_ALIKE = 4  # so many points of a kind say how much points of that kind spread

Verdict = Literal["broken", "slower", "mended", "faster", "same", "undecided"]
WORSE: tuple[Verdict, ...] = ("broken", "slower")


@dataclass(frozen=True)
class Pair:
    """One point in both runs. `ratio` is of times, after / before; None where one of them has no value."""

    before: Point
    after: Point
    verdict: Verdict
    ratio: float | None
    interval: Interval | None

    @property
    def id(self) -> str:
        """The point's id, the same in both."""
        return self.before.id

    @property
    def path(self) -> Path:
        """From where to where."""
        return path_of(self.before)

    @property
    def method(self) -> Method:
        """How its data move."""
        return method_of(self.before)


@dataclass(frozen=True)
class Comparison:
    """All pairs, in the order of the first run; `level` is that of each interval; `only_…` count points without one."""

    pairs: list[Pair]
    level: float
    margin: float
    only_before: int
    only_after: int

    @property
    def worse(self) -> bool:
        """Whether anything got worse."""
        return any(pair.verdict in WORSE for pair in self.pairs)


def compare(before: Run, after: Run, margin: float = MARGIN) -> Comparison:
    """Points by their ids. Those that neither run measured (unsupported, skipped, inherited) are left out."""
    theirs = {point.id: point for point in after.points}
    known = {point.id for point in before.points}
    both = [(point, theirs[point.id]) for point in before.points if point.id in theirs]
    timed = [pair for pair in both if all(map(rounds_of, pair))]
    level = 1 - (1 - LEVEL) / max(1, len(timed))
    spread = _Spreads(timed)
    pairs = []
    for one, other in both:
        if rounds_of(one) and rounds_of(other):
            pairs.append(_judged(one, other, spread.of(one), level, margin))
        elif rounds_of(one) and other.status == "failed":
            pairs.append(Pair(one, other, "broken", None, None))
        elif one.status == "failed" and rounds_of(other):
            pairs.append(Pair(one, other, "mended", None, None))
    only_after = sum(id not in known for id in theirs)
    return Comparison(pairs, level, margin, len(before.points) - len(both), only_after)


def verdict_of(interval: Interval | None, margin: float) -> Verdict:
    """What an interval of the ratio of times says; the margin is that of the slower over the faster."""
    if interval is None:
        return "undecided"
    if interval.low > 1 + margin:
        return "slower"
    if interval.high < 1 / (1 + margin):
        return "faster"
    return "same" if interval.low >= 1 / (1 + margin) and interval.high <= 1 + margin else "undecided"


def _judged(one: Point, other: Point, alike: float | None, level: float, margin: float) -> Pair:
    before, after = rounds_of(one), rounds_of(other)
    interval = ratio_interval(before, after, alike=alike, level=level)
    return Pair(one, other, verdict_of(interval, margin), geometric_mean(after) / geometric_mean(before), interval)


def rounds_of(point: Point) -> Sequence[float]:
    """Seconds, a value a round, that the point's own value comes from; nothing of a point taken over from another.

    Of several flows at once: what all their bytes take at the sum of their rates.
    """
    flows = measured_flows(point)
    if point.status not in ("ok", "missed_precision") or not flows:
        return ()
    if len(flows) == 1 or not all(flow.bytes for flow in flows):
        return flows[0].round_medians_s
    size = sum(flow.bytes for flow in flows)
    by_round = zip(*(flow.round_medians_s for flow in flows), strict=True)
    return [size / sum(flow.bytes / s for flow, s in zip(flows, seconds, strict=True)) for seconds in by_round]


class _Spreads:
    """How much points of a kind spread between rounds: the same method and size on all paths, else all its sizes."""

    def __init__(self, pairs: Iterable[tuple[Point, Point]]) -> None:
        self._by_size: dict[object, list[float]] = defaultdict(list)
        self._by_method: dict[object, list[float]] = defaultdict(list)
        for point in (point for pair in pairs for point in pair):
            if len(rounds_of(point)) > 1:
                found = log_variance(rounds_of(point))
                self._by_size[_kind(point), point.bytes].append(found)
                self._by_method[_kind(point)].append(found)

    def of(self, point: Point) -> float | None:
        """The mean variance of logarithms; None where too few are of its kind."""
        for found in (self._by_size[_kind(point), point.bytes], self._by_method[_kind(point)]):
            if len(found) >= _ALIKE:
                return sum(found) / len(found)
        return None


def _kind(point: Point) -> tuple[Method, str]:
    return method_of(point), point.params.get(MODE, "")
