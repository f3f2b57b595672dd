"""The lines of the three curve figures: one direction each, with pinned, pageable and managed memory, and without peer
access.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from linkscope.advise import plain
from linkscope.model.curves import BATCHED, Curve, Path, curves
from linkscope.report.headline import COPIES, ENGINES, host_memory, is_headline
from linkscope.report.trust import has_warning, inherited
from linkscope.report.usual import most_usual
from linkscope.runfile import Point, Run

DIRECTIONS = ("h2d", "d2h", "d2d")
_ENDS = {"h2d": ("numa", "gpu"), "d2h": ("gpu", "numa"), "d2d": ("gpu", "gpu")}
_Test = Callable[[Point], bool]
# The name of each line, and its points. The first line of a direction that was measured decides on the path.
_MANAGED: tuple[tuple[str, _Test], ...] = (
    ("managed", lambda point: point.benchmark == "prefetch" and plain(point)),
    ("on demand", lambda point: point.benchmark == "demand" and plain(point)),
)


@dataclass(frozen=True)
class Line:
    """One curve with its name; 'managed' is prefetched. `style`: colour and dash, its place among all lines."""

    name: str
    curve: Curve
    style: int


@dataclass(frozen=True)
class Lines:
    """The lines of one direction. `path` is that of the first line."""

    benchmark: str
    path: Path
    lines: tuple[Line, ...]

    @property
    def direction(self) -> str:
        """'Host → GPU'."""
        text = COPIES[self.benchmark]
        return text[:1].upper() + text[1:]


def curve_lines(run: Run) -> list[Lines]:
    """The lines of each direction that was measured. `run` without points of several paths."""
    points = [point for point in run.points if point.gbps is not None and not has_warning(point)]
    found = (_of(benchmark, points) for benchmark in DIRECTIONS)
    return [lines for lines in found if lines is not None]


def _of(benchmark: str, points: Sequence[Point]) -> Lines | None:
    here = [
        point for point in points if (_kind(point.src), _kind(point.dst)) == _ENDS[benchmark] and not _within(point)
    ]
    copies = [point for point in here if point.benchmark == benchmark and is_headline(point)]
    engine = next((one for one in ENGINES if any(point.engine == one for point in copies)), "")
    tests = _copies(benchmark, engine) + _MANAGED
    lines: list[Line] = []
    path: Path | None = None
    for style, (name, test) in enumerate(tests):
        curve = _longest([point for point in here if test(point)], path)
        if curve is not None:
            path = path or curve.path
            lines.append(Line(name, curve, style))
    return Lines(benchmark, path, tuple(lines)) if path else None


def _copies(benchmark: str, engine: str) -> tuple[tuple[str, _Test], ...]:
    """The lines of plain copies by one engine."""

    def copies(point: Point) -> bool:
        return (point.benchmark, point.engine) == (benchmark, engine) and is_headline(point)

    if benchmark == "d2d":
        return (
            ("peer access", lambda point: copies(point) and point.params.get("peer") != "off"),
            ("peer off", lambda point: copies(point) and point.params.get("peer") == "off"),
        )
    return tuple((kind, _of_memory(copies, kind)) for kind in ("pinned", "pageable"))


def _of_memory(copies: _Test, kind: str) -> _Test:
    return lambda point: copies(point) and host_memory(point) == kind


def _longest(points: Sequence[Point], path: Path | None) -> Curve | None:
    """The batched unidirectional curve with the most measured sizes: of this path, if it has two sizes there. It is of
    the most usual copy, like the rows of the paths.
    """
    usual = most_usual(point for point in points if not point.bidirectional)
    made = [curve for curve in curves(usual) if curve.mode in BATCHED and curve.best() is not None]
    here = [curve for curve in made if curve.path == path and len(curve.measured) > 1]
    return max(here or made, key=_weight, default=None)


def _weight(curve: Curve) -> tuple[int, int, float]:
    best = curve.best()
    measured = sum(not inherited(point) for point in curve.measured)
    return measured, len(curve.measured), best.gbps or 0.0 if best else 0.0


def _kind(place: str) -> str:
    return place.rpartition("/")[2].partition(":")[0]


def _within(point: Point) -> bool:
    return point.src == point.dst or point.src.endswith(":all") or point.dst.endswith(":all")
