"""The rows of plain copies: one for each path, engine, memory, peer access and direction, the most important first."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.model.curves import (
    Curve,
    Estimate,
    Method,
    Path,
    curves,
    measured_flows,
    natural,
    rate_of,
    share_of,
    time_of,
    total_of,
)
from linkscope.model.text import params_text
from linkscope.report.family_words import ENGINES as ENGINE_WORDS
from linkscope.report.family_words import memory_text
from linkscope.report.headline import COPIES, ENGINES, SAME, best_points, is_plain_copy
from linkscope.report.outcome import STATUS_WORDS
from linkscope.report.trust import above_peak, has_warning, inherited
from linkscope.report.usual import special
from linkscope.runfile import Point, shown_status

# By importance; device memory is at one end of most copies.
_MEMORIES = {"device": 0, "pinned": 0, "pageable": 1, "registered": 2}
_OTHER_MEMORY = 4
_APART = frozenset({"peer", "bidirectional"})  # parameters whose values have rows of their own
_MOST_ROWS = 450


@dataclass(frozen=True)
class PathRow:
    """A method on a path. Without any value, `point` has only a status.

    `rate`: the best one, as in the summary, in GB/s; a total of both directions if `total`; `point` has it. `latency`:
    of a single copy of the smallest size in seconds; None without single copies. `below_half`: the measured size before
    `half_rate_bytes`.
    """

    kind: str
    path: Path
    method: Method
    point: Point
    rate: Estimate | None
    total: bool
    half_rate_bytes: int | None
    below_half: int | None
    smallest: Point | None
    latency: Estimate | None

    @property
    def share(self) -> float | None:
        """The rate of one direction as a fraction of its peak."""
        return share_of(self.point) if self.rate else None

    @property
    def method_text(self) -> str:
        """'copy engine, pinned, peer off': parameters at their default are left out."""
        family = self.method.family
        ends = dict.fromkeys((family.src_memory, family.dst_memory))
        if self.kind in ("h2d", "d2h") and len(ends) == 2:
            ends.pop("device", None)
        memories = "" if tuple(ends) == ("device",) else " → ".join(map(memory_text, ends))
        engine = ENGINE_WORDS.get(family.engine, family.engine.upper())
        return ", ".join(filter(None, (engine, memories, params_text(special(self.method)))))

    @property
    def status_text(self) -> str:
        """'ok', 'inherited', 'missed precision', 'above its peak'."""
        if self.rate and above_peak(self.point):
            return "above its peak"
        if self.rate and has_warning(self.point):
            return "warning"
        return STATUS_WORDS[shown_status(self.point)]


def path_rows(points: Iterable[Point]) -> list[PathRow]:
    """The rows. First the slowest path of each method with usual memory and engine, and the fastest if it differs, so
    that no such method is out of view; then every path by its usual method; then pageable memory, both directions,
    peer access off, and other engines and memories. At most 450, but always one for each path.
    """
    groups: dict[tuple[object, ...], list[Curve]] = {}
    for curve in curves(point for point in points if is_plain_copy(point)):
        groups.setdefault((curve.path, curve.method.family, _apart(curve.method)), []).append(curve)
    rows = sorted((_row(of) for of in groups.values()), key=importance)
    usual: dict[tuple[str, Path], PathRow] = {}
    for row in rows:
        usual.setdefault((row.kind, row.path), row)
    first = [*_ends(rows), *usual.values()]
    ordered = {id(row): row for row in (*first, *rows)}
    return list(ordered.values())[: max(_MOST_ROWS, len(first))]


def open_rows(rows: Sequence[PathRow], most: int, few: int) -> int:
    """How many of the rows of `path_rows` a page shows at first: `most`, or on a machine whose paths by their usual
    methods are more than that, the ends of each method, and at least `few`.
    """
    paths = {(row.kind, row.path) for row in rows}
    return most if len(paths) <= most else max(few, min(most, len(_ends(rows))))


def _apart(method: Method) -> tuple[str, ...]:
    params = dict(method.params)
    return tuple(params.get(name, "") for name in sorted(_APART))


def _ends(rows: Sequence[PathRow]) -> list[PathRow]:
    """The slowest row of each method with usual memory and engine, and the fastest if it differs by 2 %; of measured
    paths where there are any.
    """
    alike: dict[object, list[PathRow]] = {}
    for row in rows:
        if row.rate is not None and not _is_rare(row):
            alike.setdefault((row.method.family, _apart(row.method)), []).append(row)
    found = []
    for of in alike.values():
        measured = [row for row in of if not inherited(row.point)] or of
        by_rate = sorted(measured, key=lambda row: row.rate.value if row.rate else 0.0)
        found.append(by_rate[0])
        lowest, highest = (row.rate.value if row.rate else 0.0 for row in (by_rate[0], by_rate[-1]))
        found += [by_rate[-1]] if highest > lowest * (1 + SAME) else []
    return found


def _row(of: Sequence[Curve]) -> PathRow:
    """The row of the curves with the fewest special parameters."""
    with_values = [curve for curve in of if curve.measured] or list(of)
    method = min((curve.method for curve in with_values), key=lambda one: (len(special(one)), one))
    listed = sorted((c for c in with_values if c.method == method), key=lambda curve: not curve.batched)
    main = listed[0]
    sound = [point for point in main.measured if _rate(point) and not has_warning(point)]
    rated = sound or [point for point in main.measured if _rate(point)]
    point = best_points(rated, _rate)[main.path] if rated else main.points[-1]
    total = total_of(point) if len(measured_flows(point)) > 1 else None
    below, _ = main.below_half()
    single = next((curve for curve in listed if not curve.batched and curve.measured), None)
    small = single.measured[:1] if single else ()
    return PathRow(
        kind=method.family.benchmark, path=main.path, method=method, point=point,
        rate=(total or rate_of(point)) if rated else None, total=total is not None,
        half_rate_bytes=main.half_rate_bytes() if main.batched else None,
        below_half=below.bytes if below else None,
        smallest=small[0] if small else None, latency=time_of(small[0]) if small else None,
    )  # fmt: skip


def _rate(point: Point) -> Estimate | None:
    return total_of(point) or rate_of(point)


def importance(row: PathRow) -> tuple[object, ...]:
    """A sort key: the usual methods first, then by path."""
    params, family, memories = dict(row.method.params), row.method.family, _memories(row)
    apart = (params.get("bidirectional") == "true") + (params.get("peer") == "off")
    other = (row.rate is None, ENGINES.index(family.engine) > 1, memories >= _OTHER_MEMORY)
    path = (natural(row.path.src), natural(row.path.dst))
    return (*other, memories + apart, list(COPIES).index(row.kind), *path, family, row.method)


def _is_rare(row: PathRow) -> bool:
    return _memories(row) >= _OTHER_MEMORY or ENGINES.index(row.method.family.engine) > 1


def _memories(row: PathRow) -> int:
    """0 for the usual memory of both ends; from `_OTHER_MEMORY` on for kinds that few programs use."""
    family = row.method.family
    return sum(_MEMORIES.get(kind, _OTHER_MEMORY) for kind in (family.src_memory, family.dst_memory))
