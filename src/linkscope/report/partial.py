"""The results of a run so far, from its rounds: a row for each family and its paths with similar rates.

Until a point has its record, its value is the median of its round medians, without an interval.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from linkscope.model.curves import Family, Path, share_of, total_of
from linkscope.runfile import Point, PointId, Round, flows_by_path
from linkscope.stats import median

ALIKE_SO_FAR = 0.1  # rates within this fraction share a row; without intervals, 2 % would be noise

Limit = Callable[[PointId], tuple[float, str] | None]  # peak in GB/s and its source; None: unknown


@dataclass(frozen=True, slots=True, order=True)
class Group:
    """The key of a row. The row has the best value over all other parameters."""

    family: Family
    bidirectional: bool

    def __str__(self) -> str:
        return str(self.family).replace("->", "<->") if self.bidirectional else str(self.family)


@dataclass(frozen=True, slots=True)
class Row:
    """The best value of some paths. Rates in GB/s, bidirectional ones as totals; `share` is the % of peak of one
    direction.
    """

    group: Group
    paths: tuple[Path, ...]
    rate: float | None
    seconds: float | None  # the shortest time, for operations without a rate
    share: float | None
    at_bytes: int
    rounds: tuple[int, int]  # the lowest and highest number over the points
    done: int  # number of finished points
    points: int
    latest: bool  # the last record belongs to this row


@dataclass(slots=True)
class _Value:
    """The current value of one point."""

    rate: float | None
    seconds: float
    share: float | None
    bytes: int

    @property
    def rank(self) -> tuple[bool, float]:
        """Larger is better: a rate ranks above a time, a short time above a long one."""
        return self.rate is not None, self.rate if self.rate is not None else -self.seconds


@dataclass(slots=True)
class _Point:
    """One point of the run. `medians` has one value for each round and measured flow; `apart` has those of throttled
    rounds. `together_s` and `together_apart_s` have the time of the total of each round whose record has one
    (docs/reference/run-file.md).
    """

    what: PointId
    of_path: "_PathPoints" = field(repr=False)
    limit_gbps: float | None
    rounds: set[int] = field(default_factory=set)
    medians: list[list[float]] = field(default_factory=list)
    apart: list[list[float]] = field(default_factory=list)
    flow_bytes: list[int] = field(default_factory=list)
    single_direction: bool = True  # whether all flows share one source and one destination
    together_s: list[float] = field(default_factory=list)
    together_apart_s: list[float] = field(default_factory=list)
    value: _Value | None = None
    done: bool = False


@dataclass(slots=True)
class _PathPoints:
    """The points of one path in one group, and their best value."""

    points: list[_Point] = field(default_factory=list)
    best: _Value | None = None
    rounds: tuple[int, int] = (0, 0)
    done: int = 0


class Partial:
    """Collects records and evaluates them only when rows are requested. `ids` are the points of the plan."""

    def __init__(self, ids: Iterable[str], limit: Limit) -> None:
        self._limit = limit
        self._pending: list[Round | Point] = []
        self._latest: tuple[Group, Path] | None = None
        self._points: dict[str, _Point] = {}
        self._groups: dict[Group, dict[Path, _PathPoints]] = {}
        for id in ids:
            self._point_of(id)

    def add(self, record: Round | Point) -> None:
        """Adds a record. Concurrent flows are ignored, because their rates are not the best rates of a path."""
        if "with=" not in record.id:
            self._pending.append(record)

    def rows(self, *, merged: bool = False) -> list[Row]:
        """Rows of all values, sorted by family. `merged`: one row for each family and direction."""
        self._evaluate()
        found: list[Row] = []
        for group, of_group in sorted(self._groups.items()):
            known = {path: of_path for path, of_path in of_group.items() if of_path.best is not None}
            # Paths are comparable as soon as each of their points has a round.
            whole = not merged and all(of_path.rounds[0] or of_path.done for of_path in known.values())
            for cluster in _clusters(known) if whole else [list(known)] if known else []:
                found.append(self._row(group, cluster, known))
        return found

    def _row(self, group: Group, cluster: Sequence[Path], known: dict[Path, _PathPoints]) -> Row:
        members = [known[path] for path in cluster]
        best = max((of_path.best for of_path in members if of_path.best), key=lambda value: value.rank)
        return Row(
            group=group,
            paths=tuple(cluster),
            rate=best.rate,
            seconds=None if best.rate is not None else best.seconds,
            share=best.share,
            at_bytes=best.bytes,
            rounds=(min(of_path.rounds[0] for of_path in members), max(of_path.rounds[1] for of_path in members)),
            done=sum(of_path.done for of_path in members),
            points=sum(len(of_path.points) for of_path in members),
            latest=self._latest is not None and self._latest[0] == group and self._latest[1] in cluster,
        )

    def _evaluate(self) -> None:
        pending, self._pending = self._pending, []
        changed: dict[str, _Point] = {}
        for record in pending:
            point = changed[record.id] = self._point_of(record.id)
            if isinstance(record, Round):
                _add_round(point, record)
            else:
                point.done = True
                point.value = _value_of(record)
        for point in changed.values():
            if not point.done:
                point.value = _interim(point)
        for of_path in {id(point.of_path): point.of_path for point in changed.values()}.values():
            _update(of_path)
        if pending:
            self._latest = _key(self._points[pending[-1].id].what)

    def _point_of(self, id: str) -> _Point:
        point = self._points.get(id)
        if point is None:
            what = PointId.parse(id)
            group, path = _key(what)
            of_path = self._groups.setdefault(group, {}).setdefault(path, _PathPoints())
            limit = self._limit(what)
            point = self._points[id] = _Point(what, of_path, limit[0] if limit else None)
            of_path.points.append(point)
        return point


def _key(what: PointId) -> tuple[Group, Path]:
    family = Family(what.benchmark, what.engine, what.src_memory, what.dst_memory)
    return Group(family, what.bidirectional), Path(what.src, what.dst)


def _add_round(point: _Point, record: Round) -> None:
    """Adds a round. A round of a finished point reopens the point, because a resumed session continues there."""
    flows = [flow for flow in record.flows if flow.role == "measured"]
    point.done = False
    point.rounds.add(record.round)
    point.flow_bytes = [flow.bytes for flow in flows]
    point.single_direction = len(flows_by_path(flows)) == 1
    throttled = "throttled" in record.guards
    (point.apart if throttled else point.medians).append([median(flow.samples_s) for flow in flows])
    if "together_s" in record.guards:
        (point.together_apart_s if throttled else point.together_s).append(record.guards["together_s"])


def _interim(point: _Point) -> _Value | None:
    """The value of the final record if no more rounds follow. None where a time is not above zero: a batch that waited
    for a CPU less often than the empty batch before it seems to take less than no time.
    """
    medians = [median(of_flow) for of_flow in zip(*(point.medians or point.apart), strict=True)]
    if not medians or min(medians) <= 0:
        return None
    if not all(point.flow_bytes):
        return _Value(None, medians[0], None, point.what.bytes)
    rates = [count / seconds / 1e9 for count, seconds in zip(point.flow_bytes, medians, strict=True)]
    together = point.together_s if point.medians else point.together_apart_s
    together_s = median(together) if together else None
    if together_s is not None and together_s <= 0:
        return None
    total = sum(point.flow_bytes) / together_s / 1e9 if together_s else sum(rates)
    there = total if point.single_direction else rates[0]
    return _Value(total, medians[0], there / point.limit_gbps if point.limit_gbps else None, point.what.bytes)


def _value_of(point: Point) -> _Value | None:
    total = total_of(point)
    if point.median_s is None or (total is None and point.bytes):
        return None
    return _Value(total.value if total else None, point.median_s, share_of(point), point.bytes)


def _update(of_path: _PathPoints) -> None:
    values = [point.value for point in of_path.points if point.value is not None]
    of_path.best = max(values, key=lambda value: value.rank, default=None)
    of_path.done = sum(point.done for point in of_path.points)
    measured = [len(point.rounds) for point in of_path.points if point.rounds or not point.done]
    of_path.rounds = (min(measured, default=0), max(measured, default=0))


def _clusters(known: dict[Path, _PathPoints]) -> list[list[Path]]:
    """Clusters of similar values, the best first."""
    clusters: list[list[Path]] = []
    best: _Value | None = None
    for path, of_path in sorted(known.items(), key=lambda item: _rank(item[1]), reverse=True):
        assert of_path.best is not None
        if best is not None and _is_alike(best, of_path.best):
            clusters[-1].append(path)
        else:
            clusters.append([path])
            best = of_path.best
    return clusters


def _rank(of_path: _PathPoints) -> tuple[bool, float]:
    return of_path.best.rank if of_path.best else (False, 0.0)


def _is_alike(one: _Value, other: _Value) -> bool:
    if one.rate is None or other.rate is None:
        return one.rate is other.rate and other.seconds <= one.seconds * (1 + ALIKE_SO_FAR)
    return one.rate <= other.rate * (1 + ALIKE_SO_FAR)
