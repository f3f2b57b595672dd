"""Paths that are slower than the others of their kind: by the classes that the plan of a run tells of.

A path is held against the middle one of its kind, in every operation one way at every size that both were measured at.
It is called slow where the chance of what was seen, were it no slower than the margin allows, is so small that of
10,000 paths that are in order one is called slow, however many points each has.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.model.curves import measured_flows
from linkscope.runfile import Point, Run
from linkscope.stats import Contrast, contrast, geometric_mean, log_variance, median

MARGIN = 0.03
FALSE_ALARMS = 1e-4  # a path
_LEAST = 3  # members: of two that differ nobody knows which is in order
_FEW = 4  # members: how rounds differ is said by two of them at most
LEVEL = 0.95


@dataclass(frozen=True)
class SlowPath:
    """A slow path: `ratio` is its time over that of the middle path of its kind at `point`, with its interval.

    `operations`: of how many curves it is shown; `members`: how many paths the kind has.
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
    against: tuple[str, ...]  # ids: the middle one, and of a kind of few those that say how rounds differ
    of: Contrast
    chance: float


def slow_paths(run: Run) -> list[SlowPath]:
    """The slow paths of a run, by kind and path; none where its plan has no classes."""
    classes = run.header.plan.get("classes") or []
    tests: dict[tuple[str, str], list[_Test]] = {}
    points = [point for point in run.points if point.status in ("ok", "missed_precision") and _one_way(point)]
    for of in classes:
        members = set(of["paths"])
        for alike in _by_operation(point for point in points if _path(point) in members):
            for point, test in _tests(alike):
                tests.setdefault((of["kind"], _path(point)), []).append(test)
    found = [_slow_path(kind, path, of_path) for (kind, path), of_path in sorted(tests.items())]
    return [slow for slow in found if slow is not None]


def in_doubt(points: Iterable[Point], kinds: Iterable[Collection[str]], rounds: int) -> set[str]:
    """Ids of points that should have so many rounds, and have fewer, before a path is called slow by them: its own
    and those that they are held against. Where processes fall into modes, three rounds are of one mode by chance.

    `points`: all of one operation or more; `kinds`: the paths of each kind.
    """
    listed = [point for point in points if point.status in ("ok", "missed_precision") and _one_way(point)]
    few = {point.id for point in listed if len(_rounds(point)) < rounds}
    found: set[str] = set()
    for members in kinds if few else ():
        for alike in _by_operation(point for point in listed if _path(point) in members):
            times = [point.median_s or 0.0 for point in alike]
            if max(times) <= (1 + MARGIN) * min(times):  # as most are, and asked at once
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
    """Every path's point against the middle one of the others."""
    if len(alike) < _LEAST:
        return
    rounds = {_path(point): _rounds(point) for point in alike}
    ids = {_path(point): point.id for point in alike}
    middles = {path: geometric_mean(of) for path, of in rounds.items()}
    for point in alike:
        others = [path for path in middles if path != _path(point)]
        centre = median([middles[path] for path in others])
        reference = min(others, key=lambda path: abs(middles[path] - centre))
        # How rounds differ the rest of the kind says, as far as it is known by them: of four paths by two.
        rest = [path for path in others if path != reference and len(rounds[path]) > 1]
        spread = sum(log_variance(rounds[path]) for path in rest) / len(rest) if rest else 0.0
        known = sum(len(rounds[path]) - 1 for path in rest)
        of = contrast(rounds[_path(point)], rounds[reference], spread, known)
        against = (ids[reference], *(ids[path] for path in rest if len(alike) <= _FEW))
        yield point, _Test(point, len(alike), against, of, of.chance_other(max(MARGIN, point.precision_target)))


def _by_operation(points: Iterable[Point]) -> Iterable[list[Point]]:
    """Points that are the same but for their places."""
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


def _one_way(point: Point) -> bool:
    """Whether it is of one flow: how several share what they have in common differs between paths that are alike."""
    flows = measured_flows(point)
    return len(flows) == 1 and bool(flows[0].round_medians_s) and min(flows[0].round_medians_s) > 0
