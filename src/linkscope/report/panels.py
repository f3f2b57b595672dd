"""One panel for each path: charts with all methods, and tables."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.model.cliffs import breaks
from linkscope.model.curves import (
    MODE,
    Curve,
    Estimate,
    Family,
    Method,
    Path,
    alike,
    curves,
    measured_flows,
    natural,
    rate_of,
    share_of,
    time_of,
    total_of,
)
from linkscope.model.text import count_text, latency_text, params_text, rate_text, varying
from linkscope.report.outcome import STATUS_WORDS
from linkscope.report.section import Legend
from linkscope.report.svg import SERIES_COLOURS, Series, box, rate_chart, ring, swatch, time_chart
from linkscope.report.sweep import without_sweeps
from linkscope.report.trust import between_medians, inherited, missed, outliers_text, reason_text, signed
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_fraction, format_rate, format_rate_interval, format_seconds_interval

DRAWN_AS_ONE = 0.05  # curves within this fraction, or within their intervals, at all sizes are drawn as one line


@dataclass(frozen=True)
class Cells:
    """One row of a table."""

    size: str
    mode: str
    time: str
    rate: str
    total: str
    share: str
    within: str
    between: str
    rounds: str
    status: str
    reason: str


@dataclass(frozen=True)
class Table:
    """All points of one method on one path."""

    heading: str
    rows: list[Cells]
    has_total: bool
    basis: str  # timing methods and confidence levels of the rows


@dataclass(frozen=True)
class Panel:
    """The charts and tables of one path."""

    anchor: str
    path: str
    best: str
    rate_svg: str
    time_svg: str
    legend: list[Legend]
    limits: list[str]
    not_drawn: int
    timed: str  # the timing methods, named as in the section on the method
    tables: list[Table]


def panels(points: Iterable[Point], *, modelled: bool) -> list[Panel]:
    """A panel for each path of a run, in the order of places."""
    made = curves(points)
    by_path = sorted(made, key=lambda curve: (natural(curve.path.src), natural(curve.path.dst)))
    drawn = without_sweeps(made)
    usual_blocks = {id(curve) for curve in drawn}
    shown = set(varying_in_families(curve.method for curve in drawn))
    found = []
    for number, (path, group) in enumerate(itertools.groupby(by_path, key=lambda curve: curve.path)):
        of_path = list(group)
        over_size = [curve for curve in of_path if id(curve) in usual_blocks and any(p.bytes for p in curve.measured)]
        found.append(_panel(number, path, of_path, over_size, shown, modelled))
    return found


def varying_in_families(methods: Iterable[Method]) -> set[tuple[Family, str]]:
    """The parameters that differ within a family. Legends show only these."""
    families: dict[Family, set[Method]] = {}
    for method in methods:
        families.setdefault(method.family, set()).add(method)
    return {(family, name) for family, of_family in families.items() for name in varying(of_family)}


def _panel(
    number: int,
    path: Path,
    of_path: Sequence[Curve],
    over_size: Sequence[Curve],
    shown: set[tuple[Family, str]],
    modelled: bool,
) -> Panel:
    lines = _lines(_by_method(over_size))
    drawn = lines[:SERIES_COLOURS]
    limits = {} if path.joint else _limits(of_path)
    rates, times = _series(drawn, total_of if path.joint else rate_of), _series(drawn, time_of)
    return Panel(
        anchor=f"path-{number}",
        path=str(path),
        best=_best_text(of_path),
        rate_svg=rate_chart(f"rate over size, {path}", rates, sorted(limits), modelled) if rates else "",
        time_svg=time_chart(f"time over size, {path}", times, modelled) if times else "",
        legend=[Legend(swatch(colour), _line_text(group, shown)) for colour, group in enumerate(drawn)]
        + ([Legend(ring(), "ringed: missed precision")] if any(one.missed for one in (*rates, *times)) else [])
        + ([Legend(box(), "boxed: inherited, not measured")] if any(one.inherited for one in rates) else []),
        limits=[f"{format_rate(value)}: {source}" for value, source in sorted(limits.items(), reverse=True)],
        not_drawn=len(lines) - len(drawn),
        timed=" and ".join(sorted({p.timing for curve in of_path for p in curve.points if p.timing is not None})),
        tables=[_table(method, group) for method, group in _by_method(of_path).items()],
    )


def _by_method(of_path: Sequence[Curve]) -> dict[Method, list[Curve]]:
    found: dict[Method, list[Curve]] = {}
    for curve in of_path:
        found.setdefault(curve.method, []).append(curve)
    return found


def _lines(by_method: dict[Method, list[Curve]]) -> list[list[tuple[Method, list[Curve]]]]:
    """Groups of methods with coinciding curves. The first method has the most sizes; it is drawn for the group."""
    found: list[list[tuple[Method, list[Curve]]]] = []
    for method, group in sorted(by_method.items(), key=lambda item: -sum(len(curve.measured) for curve in item[1])):
        for line in found:
            if _related(line[0][0], method) and _coincide(line[0][1], group):
                line.append((method, group))
                break
        else:
            found.append([(method, group)])
    return sorted(found, key=lambda line: min(method for method, _ in line))


def _related(one: Method, other: Method) -> bool:
    """Whether two methods differ only in parameters and memory kinds."""
    return (one.family.benchmark, one.family.engine) == (other.family.benchmark, other.family.engine)


def _coincide(some: Sequence[Curve], others: Sequence[Curve]) -> bool:
    """Whether the curves agree at all common sizes and modes. Without a common size they do not coincide."""
    known = {(curve.mode, point.bytes): time_of(point) for curve in some for point in curve.measured}
    pairs = [
        (time_of(point), known[curve.mode, point.bytes])
        for curve in others
        for point in curve.measured
        if (curve.mode, point.bytes) in known
    ]
    return bool(pairs) and all(one and two and alike(one, two, DRAWN_AS_ONE) for one, two in pairs)


def _series(
    drawn: Sequence[Sequence[tuple[Method, list[Curve]]]], value: Callable[[Point], Estimate | None]
) -> list[Series]:
    found = []
    for colour, line in enumerate(drawn):
        for curve in line[0][1]:
            points = [(point.bytes, estimate) for point in curve.measured if (estimate := value(point)) is not None]
            if points:
                missed_sizes = frozenset(point.bytes for point in curve.measured if missed(point))
                inherited_sizes = frozenset(point.bytes for point in curve.measured if inherited(point))
                found.append(
                    Series(
                        colour,
                        not curve.batched,
                        points,
                        missed_sizes,
                        inherited_sizes,
                        frozenset(breaks(curve.measured)),
                    )
                )
    return found


def _line_text(line: Sequence[tuple[Method, list[Curve]]], shown: set[tuple[Family, str]]) -> str:
    """The families, and the parameters common to all methods of the line."""
    first = line[0][0].family
    apart = varying(method for method, _ in line)
    shared = [pair for pair in line[0][0].params if pair[0] not in apart and (first, pair[0]) in shown]
    memories = dict.fromkeys(f"{method.family.src_memory} -> {method.family.dst_memory}" for method, _ in line)
    text = f"{first.benchmark} by {first.engine}, {' and '.join(memories)}"
    text += f" ({params_text(shared)})" if shared else ""
    return text + (f", {count_text(len(line), 'method')} within {DRAWN_AS_ONE:.0%}" if len(line) > 1 else "")


def _limits(of_path: Sequence[Curve]) -> dict[float, str]:
    points = (point for curve in of_path for point in curve.points)
    return {p.limit_gbps: p.limit_source or "no derivation given" for p in points if p.limit_gbps is not None}


def _best_text(of_path: Sequence[Curve]) -> str:
    """The best unidirectional rate of the path and its % of peak, or another value if it has no rate."""
    if of_path[0].path.joint:
        bests = [(total, best) for curve in of_path if (best := curve.best()) and (total := total_of(best))]
        if not bests:
            return "no rate"
        total, best = max(bests, key=lambda pair: pair[0].value)
        return f"{signed(rate_text(total), [best])} in total"
    points = [best for curve in of_path if (best := curve.best()) is not None and len(measured_flows(best)) < 2]
    rated = [point for point in points if point.gbps is not None]
    if not rated:
        return _shortest_text(of_path)
    best = max(rated, key=lambda point: point.gbps or 0.0)
    rate = rate_of(best)
    assert rate is not None
    share = share_of(best)
    return signed(format_rate_interval(rate.value, rate.low, rate.high), [best]) + (
        f", {format_fraction(share)} of peak" if share is not None else ""
    )


def _shortest_text(of_path: Sequence[Curve]) -> str:
    """The shortest time of the operations without bytes."""
    points = [point for curve in of_path for point in curve.measured if not point.bytes]
    shortest = min(points, key=lambda point: point.median_s or 0.0, default=None)
    time = time_of(shortest) if shortest else None
    return signed(latency_text(time), [shortest]) if time and shortest else "no rate"


def _table(method: Method, group: Sequence[Curve]) -> Table:
    points = sorted((p for curve in group for p in curve.points), key=lambda p: (p.bytes, p.params.get(MODE, "")))
    params = f" ({params_text(method.params)})" if method.params else ""
    has_total = any(len(measured_flows(point)) > 1 for point in points)
    return Table(f"{method.family}{params}", [_cells(point) for point in points], has_total, basis_text(points))


def basis_text(points: Sequence[Point]) -> str:
    """'Timing method: gate+slope. Level of the intervals: 96.9 % (6 rounds), 95 % (3 rounds).' for the rows of a table.

    A line instead of two columns, which would not fit on paper.
    """
    timings = {id(point): point.timing for point in points if point.timing}
    levels = {id(point): f"{100 * point.ci_level:.3g} %" for point in points if point.ci_level and point.ci95_s}
    parts = [
        f"{title}: {_values_text(points, values)}."
        for title, values in (("Timing method", timings), ("Level of the intervals", levels))
        if values
    ]
    return " ".join(parts)


def _values_text(points: Sequence[Point], values: Mapping[int, str]) -> str:
    """The values with the mode or number of rounds that has each, or with the sizes where neither decides the value."""
    listed = [point for point in points if id(point) in values]
    distinct = list(dict.fromkeys(values[id(point)] for point in listed))
    if len(distinct) == 1:
        return distinct[0]
    for key in (_mode_text, _rounds_text):
        of_key: dict[str, set[str]] = {}
        for point in listed:
            of_key.setdefault(key(point), set()).add(values[id(point)])
        if all(len(found) == 1 for found in of_key.values()):
            keys = {value: [text for text, found in of_key.items() if value in found] for value in distinct}
            return ", ".join(f"{value} ({', '.join(keys[value])})" for value in distinct)
    sizes = {
        value: [
            " ".join(filter(None, (format_bytes(point.bytes), _mode_text(point))))
            for point in listed
            if values[id(point)] == value
        ]
        for value in distinct
    }
    most = max(distinct, key=lambda value: len(sizes[value]))
    others = (f"{value} ({', '.join(sizes[value])})" for value in distinct if value != most)
    return f"{most}, except {', '.join(others)}"


def _mode_text(point: Point) -> str:
    return point.params.get(MODE, "")


def _rounds_text(point: Point) -> str:
    count = len(point.flows[0].round_medians_s) if point.flows else 0
    return count_text(count, "round") if count else "inherited"


def _cells(point: Point) -> Cells:
    rate, total, time = rate_of(point), total_of(point), time_of(point)
    several = len(measured_flows(point)) > 1
    spread, outliers, between = point.spread, outliers_text(point), between_medians(point)
    rounds = point.flows[0].round_medians_s if point.flows else []
    return Cells(
        size=format_bytes(point.bytes),
        mode=point.params.get(MODE, ""),
        time=_time_text(point, time),
        rate=rate_text(rate),
        total=rate_text(total) if several else "",
        share=format_fraction(share_of(point)) if rate else "",
        within=" ".join(filter(None, (format_fraction(spread.within_rounds), f"({outliers})" if outliers else "")))
        if spread
        else "",
        between=format_fraction(between) if spread and between is not None else "",
        rounds=str(len(rounds)) if rounds else "",
        status=STATUS_WORDS[point.status],
        reason=reason_text(point.reason or ""),
    )


def _time_text(point: Point, time: Estimate | None) -> str:
    if time is None:
        return ""
    return format_seconds_interval(time.value, time.low, time.high) if point.bytes else latency_text(time)
