"""The verdict on every point that two runs both measured: same, faster, slower or undecided.

Equivalence is shown and not assumed (Schuirmann 1987). `same`: the interval lies within the margin. `slower`, `faster`:
it lies wholly beyond. Everything else is undecided. The intervals are simultaneous (Bonferroni): in 5 % of comparisons
at least one true ratio lies outside its interval.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from linkscope.model.curves import Method, Path, method_of, path_of
from linkscope.model.rounds import Spreads, rounds_of
from linkscope.runfile import Point, Run
from linkscope.runfile.methods import version
from linkscope.stats import Interval, geometric_mean, ratio_interval

MARGIN = 0.02
LEVEL = 0.95  # of all intervals simultaneously

Verdict = Literal["broken", "slower", "mended", "faster", "same", "undecided"]
WORSE: tuple[Verdict, ...] = ("broken", "slower")


@dataclass(frozen=True)
class Pair:
    """One point in both runs. `ratio` is of times, after / before; None if one of them has no value."""

    before: Point
    after: Point
    verdict: Verdict
    ratio: float | None
    interval: Interval | None

    @property
    def id(self) -> str:
        """The id of the point."""
        return self.before.id

    @property
    def path(self) -> Path:
        """The path of the point."""
        return path_of(self.before)

    @property
    def method(self) -> Method:
        """The method of the point."""
        return method_of(self.before)


@dataclass(frozen=True)
class Comparison:
    """All pairs, in the order of the first run, with the confidence level of each interval.

    Points that are not compared are counted: `only_before` and `only_after` exist in one run, `unmeasured` were not
    measured in one of them, and `other_method` (by benchmark) were measured by different methods (runfile/methods.py).
    """

    pairs: list[Pair]
    level: float
    margin: float
    only_before: int
    only_after: int
    unmeasured: int = 0
    other_method: dict[str, int] = field(default_factory=dict)

    @property
    def worse(self) -> bool:
        """Whether any path became slower or failed."""
        return any(pair.verdict in WORSE for pair in self.pairs)


def compare(before: Run, after: Run, margin: float = MARGIN) -> Comparison:
    """Compares points by id. Points that neither run measured (unsupported, skipped, inherited) are left out."""
    theirs = {point.id: point for point in after.points}
    known = {point.id for point in before.points}
    found = [(point, theirs[point.id]) for point in before.points if point.id in theirs]
    names = {point.benchmark for point, _ in found}
    changed = {name for name in names if version(before.header, name) != version(after.header, name)}
    other_method = Counter(point.benchmark for point, _ in found if point.benchmark in changed)
    both = [pair for pair in found if pair[0].benchmark not in changed]
    timed = [pair for pair in both if all(map(rounds_of, pair))]
    level = 1 - (1 - LEVEL) / max(1, len(timed))
    spread = Spreads(point for pair in timed for point in pair)
    pairs = []
    for one, other in both:
        if rounds_of(one) and rounds_of(other):
            pairs.append(_judged(one, other, spread.of(one), level, margin))
        elif rounds_of(one) and other.status == "failed":
            pairs.append(Pair(one, other, "broken", None, None))
        elif one.status == "failed" and rounds_of(other):
            pairs.append(Pair(one, other, "mended", None, None))
    only_after = sum(id not in known for id in theirs)
    return Comparison(
        pairs, level, margin, len(before.points) - len(found), only_after, len(both) - len(pairs), dict(other_method)
    )


def verdict_of(interval: Interval | None, margin: float) -> Verdict:
    """The verdict for an interval of the ratio of times; the margin applies to slower over faster."""
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
