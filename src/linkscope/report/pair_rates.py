"""Rates of all paths of one direction by one method at one size, compared with the median of each path's class."""

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.model.curves import BATCHED, Estimate, Method, Path, curves, share_of, time_of, total_of
from linkscope.report.finding import LARGE
from linkscope.report.headline import COPIES, ENGINES, is_plain_copy, path_classes
from linkscope.report.sweep import without_sweeps
from linkscope.report.trust import has_warning, inherited, is_too_uncertain
from linkscope.report.usual import specials
from linkscope.runfile import Point, Run

DIRECTIONS = {("gpu", "gpu"): COPIES["d2d"], ("numa", "gpu"): COPIES["h2d"], ("gpu", "numa"): COPIES["d2h"],
              ("numa", "numa"): COPIES["h2h"]}  # fmt: skip


@dataclass(frozen=True)
class Cell:
    """The value of one path. `deviation`: its speed against the median of its class, -0.03 for 3 % slower; None where
    the class has one member, or where the point has a warning or a very wide interval.
    """

    point: Point
    value: Estimate  # GB/s, or seconds of operations without bytes
    share: float | None
    deviation: float | None


@dataclass(frozen=True)
class Matrix:
    """The paths of one direction, by one method and mode at one size."""

    direction: str
    method: Method
    mode: str
    bytes: int
    cells: Mapping[Path, Cell]

    @property
    def measured(self) -> int:
        """The number of measured paths. The others inherited their value."""
        return sum(not inherited(cell.point) for cell in self.cells.values())

    @property
    def slowest(self) -> tuple[Path, Cell] | None:
        """The measured path that is furthest below its class."""
        known = [
            (path, cell) for path, cell in self.cells.items() if _counts(cell.point) and cell.deviation is not None
        ]
        return min(known, key=lambda pair: pair[1].deviation or 0.0, default=None)


def matrices(run: Run) -> list[Matrix]:
    """A matrix for each direction, method, mode and size with two paths or more, the most telling one first.

    `run` without points of several paths. Bidirectional rates are totals.
    """
    classes = path_classes(run)
    groups: dict[tuple[str, Method, str, int], dict[Path, Point]] = {}
    for curve in without_sweeps(curves(run.points)):
        direction = DIRECTIONS.get((_kind(curve.path.src), _kind(curve.path.dst)), "")
        for point in curve.measured if direction and not curve.path.joint else ():
            if _value(point) is not None:
                groups.setdefault((direction, curve.method, curve.mode, point.bytes), {})[curve.path] = point
    found = [Matrix(*key, _cells(of, classes)) for key, of in groups.items() if len(_between(of)) > 1]
    counts = Counter(matrix.method for matrix in found)
    return sorted(found, key=lambda matrix: (*_rank(matrix), -counts[matrix.method]))


def _between(paths: Iterable[Path]) -> list[Path]:
    """The paths between two places. Those within a place alone make no matrix."""
    return [path for path in paths if path.src != path.dst]


def main_matrix(found: Sequence[Matrix], direction: str = COPIES["d2d"]) -> Matrix | None:
    """The matrix of plain unidirectional copies of this direction; None without one."""
    return next((one for one in found if one.direction == direction and _is_main(one)), None)


def _is_main(matrix: Matrix) -> bool:
    return _rank(matrix)[1] == 0


def _rank(matrix: Matrix) -> tuple[int, ...]:
    """GPU pairs, plain batched copies, the preferred engine, the usual call, large sizes, the most measured paths, the
    largest size.
    """
    first = next(iter(matrix.cells.values())).point
    plain = is_plain_copy(first) and not first.bidirectional and matrix.mode in BATCHED
    usual = first.params.get("peer") != "off" and "pageable" not in (first.src_memory, first.dst_memory)
    engine = ENGINES.index(first.engine) if first.engine in ENGINES else len(ENGINES)
    direction = list(DIRECTIONS.values()).index(matrix.direction)
    method = (int(not (plain and usual)), engine, specials(first))
    return direction, *method, int(matrix.bytes < LARGE), -matrix.measured, -matrix.bytes


def _cells(points: Mapping[Path, Point], classes: Mapping[str, str]) -> dict[Path, Cell]:
    by_class: dict[str, list[Point]] = {}
    kind = {
        path: classes.get(f"{path.src}->{path.dst}", f"{point.limit_gbps or 0:.3g}") for path, point in points.items()
    }
    for path, point in points.items():
        by_class.setdefault(kind[path], []).append(point)
    medians = {name: _median(of) for name, of in by_class.items()}
    return {path: _cell(point, medians[kind[path]]) for path, point in sorted(points.items())}


def _median(points: Iterable[Point]) -> float | None:
    """The median of the measured members; None with fewer than two."""
    values = [value.value for point in points if _counts(point) and (value := _value(point)) is not None]
    return statistics.median(values) if len(values) > 1 else None


def _cell(point: Point, median: float | None) -> Cell:
    value = _value(point)
    assert value is not None  # matrices() took only points that have one
    deviation = None
    if median and value.value and not has_warning(point) and not is_too_uncertain(point):
        deviation = (value.value / median if point.bytes else median / value.value) - 1
    return Cell(point, value, share_of(point) if point.bytes else None, deviation)


def _value(point: Point) -> Estimate | None:
    return total_of(point) if point.bytes else time_of(point)


def _counts(point: Point) -> bool:
    return not (inherited(point) or has_warning(point) or is_too_uncertain(point))


def _kind(place: str) -> str:
    return place.rpartition("/")[2].partition(":")[0]
