"""Paths that are slower than the others of their class, in runs whose plan has classes.

A path is compared with the median path of its class, in every unidirectional operation at every size that both
measured. A path is called slow if its measurements are too improbable for a healthy path. The bound is such that one of
10,000 healthy paths is called slow, for any number of points.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.model.curves import measured_flows
from linkscope.runfile import Point, Run, once
from linkscope.stats import Contrast, contrast, geometric_mean, log_variance, median

MARGIN = 0.03
FALSE_ALARMS = 1e-4  # probability per path
_LEAST = 3  # fewest members: of two different paths, either may be the healthy one
_FEW = 4  # members whose rounds show the spread of the class, at most
LEVEL = 0.95


@dataclass(frozen=True)
class SlowPath:
    """A slow path: `ratio` is its time over that of the median path of its class at `point`, with its interval.

    `operations` counts the curves that show it; `members` the paths of the class.
    """

    path: str
    kind: str
    members: int
    operations: int
    point: Point
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class _Test:
    point: Point
    members: int
    against: tuple[str, ...]  # ids: the median path, and in small classes the paths that show the spread of rounds
    of: Contrast
    chance: float


@once
def slow_paths(run: Run) -> Sequence[SlowPath]:
    """The slow paths of a run, by class and path; empty if its plan has no classes."""
    classes = run.header.plan.get("classes") or []
    tests: dict[tuple[str, str], list[_Test]] = {}
    points = [point for point in run.points if point.status in ("ok", "missed_precision") and _has_one_flow(point)]
    for of in classes:
        members = set(of["paths"])
        for alike in _by_operation(point for point in points if _path(point) in members):
            for point, test in _tests(alike):
                tests.setdefault((of["kind"], _path(point)), []).append(test)
    found = [_slow_path(kind, path, of_path) for (kind, path), of_path in sorted(tests.items())]
    return [slow for slow in found if slow is not None]


def in_doubt(points: Iterable[Point], kinds: Iterable[Collection[str]], rounds: int) -> set[str]:
    """Ids of points that need more rounds before they prove a path slow, and of the points they are compared with.

    Processes may fall into modes, and three rounds may all be of one mode by chance. `points` belong to one operation
    or more; `kinds` holds the paths of each class; `rounds` is the number needed.
    """
    listed = [point for point in points if point.status in ("ok", "missed_precision") and _has_one_flow(point)]
    few = {point.id for point in listed if len(_rounds(point)) < rounds}
    found: set[str] = set()
    for members in kinds if few else ():
        for alike in _by_operation(point for point in listed if _path(point) in members):
            times = [point.median_s or 0.0 for point in alike]
            if max(times) <= (1 + MARGIN) * min(times):  # true for most points, and cheap to check
                continue
            for point, test in _tests(alike):
                if test.chance <= FALSE_ALARMS and test.of.log_ratio > 0:
                    found.update((point.id, *test.against))
    return found & few


def _slow_path(kind: str, path: str, tests: Sequence[_Test]) -> SlowPath | None:
    shown = [test for test in tests if test.chance * len(tests) <= FALSE_ALARMS and test.of.log_ratio > 0]
    if not shown:
        return None
    worst = max(shown, key=lambda test: test.of.ends(LEVEL)[0])
    operations = {_operation(test.point) for test in shown}
    low, high = worst.of.ends(LEVEL)
    return SlowPath(path, kind, worst.members, len(operations), worst.point, math.exp(worst.of.log_ratio), low, high)


def _tests(alike: Sequence[Point]) -> Iterable[tuple[Point, _Test]]:
    """The comparison of every path with the median of the others."""
    if len(alike) < _LEAST:
        return
    rounds = {_path(point): _rounds(point) for point in alike}
    ids = {_path(point): point.id for point in alike}
    middles = {path: geometric_mean(of) for path, of in rounds.items()}
    variances = {path: log_variance(of) for path, of in rounds.items() if len(of) > 1}
    for point in alike:
        others = [path for path in middles if path != _path(point)]
        centre = median([middles[path] for path in others])
        reference = min(others, key=lambda path: abs(middles[path] - centre))
        # The remaining members show the spread of rounds. Of four paths two remain.
        rest = [path for path in others if path != reference and path in variances]
        spread = sum(variances[path] for path in rest) / len(rest) if rest else 0.0
        known = sum(len(rounds[path]) - 1 for path in rest)
        of = contrast(rounds[_path(point)], rounds[reference], spread, known)
        against = (ids[reference], *(ids[path] for path in rest if len(alike) <= _FEW))
        yield point, _Test(point, len(alike), against, of, of.chance_other(max(MARGIN, point.precision_target)))


def _by_operation(points: Iterable[Point]) -> Iterable[list[Point]]:
    """Points that are equal except for their places."""
    found: dict[object, list[Point]] = {}
    for point in points:
        found.setdefault((_operation(point), point.bytes), []).append(point)
    return found.values()


def _operation(point: Point) -> tuple[object, ...]:
    return point.benchmark, point.engine, point.src_memory, point.dst_memory, *_sorted(point.params)


def _sorted(params: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted(params.items())


def _path(point: Point) -> str:
    return f"{point.src}->{point.dst}"


def _rounds(point: Point) -> list[float]:
    return measured_flows(point)[0].round_medians_s


def _has_one_flow(point: Point) -> bool:
    """Whether the point has one flow. Concurrent flows share links differently even on equal paths."""
    flows = measured_flows(point)
    return len(flows) == 1 and bool(flows[0].round_medians_s) and min(flows[0].round_medians_s) > 0
