"""The best rates of a run: a few rows for each family. A row merges paths and parameters without influence on the
rate.
"""

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.model.curves import (
    Curve,
    Estimate,
    Family,
    Method,
    alike,
    curves,
    path_of,
    share_of,
    time_of,
    total_of,
)
from linkscope.model.text import (
    latency_text,
    params_text,
    paths_text,
    range_s,
    rate_text,
    usual,
    varying,
)
from linkscope.report.collectives import is_collective
from linkscope.report.row_notes import limits_text, missing_total_text, parts_text, single_copy_text, values_text
from linkscope.report.sweep import needed_text, sweeps, without_sweeps
from linkscope.report.trust import INHERITED, SIGN, inherited, missed, sign_of
from linkscope.runfile import Point
from linkscope.units import format_bytes

ALIKE = 0.02  # rates within this fraction, or within their intervals, share a row
MOSTLY = 0.9  # a parameter is folded if this fraction of its comparisons is alike; findings.py reports the others


@dataclass(frozen=True)
class Row:
    """Paths with similar rates for one method. Ranges go from the lowest to the highest path of the row."""

    paths: str
    path_count: int
    params: str
    rate: Estimate | None  # GB/s: the median of the paths, and the lowest and highest end of their intervals
    time: Estimate | None  # the same in seconds, for operations without bytes
    share: tuple[float, float] | None  # fraction of the peak
    at_bytes: int
    half_rate_bytes: int | None  # the largest over the paths
    smallest_bytes: int
    batched_s: tuple[float, float] | None  # time of a batched operation at the smallest size
    single_s: tuple[float, float] | None  # time of a single operation at the same size
    # For each path the half-rate size; true: an upper bound, because the next smaller size has no total.
    halves: tuple[tuple[int, bool], ...] = ()
    note: str = ""  # why larger sizes are left out, or how far the parts of a copy overlapped
    missed: int = 0  # number of paths whose best point missed its precision
    inherited: int = 0  # number of paths whose best point was inherited
    batched_sign: str = ""
    single_sign: str = ""

    @property
    def best_text(self) -> str:
        """'55.4 GB/s [55.3, 55.5]' of one path; 'GB/s, 55.3 to 55.9' over several; ns of operations without bytes."""
        text = latency_text(self.time) if self.time is not None else rate_text(self.rate)
        if self.path_count > 1:  # brackets are for the confidence interval of one point
            text = re.sub(r" \[(.*), (.*)\]$", r", \1 to \2", text)
        return (SIGN if self.missed else INHERITED if self.inherited == self.path_count else "") + text

    @property
    def at_text(self) -> str:
        """The size of the best rate."""
        return format_bytes(self.at_bytes) if self.rate is not None else ""

    @property
    def smallest_text(self) -> str:
        """The size of the times in the columns for small operations."""
        return format_bytes(self.smallest_bytes) if self.batched_s or self.single_s else ""

    @property
    def half_text(self) -> str:
        """The size from which a copy reaches half of its best rate; '<= 4 KiB' where nothing smaller has a total.

        '64 KiB to 1 MiB' where paths differ.
        """
        if not self.halves:
            return ""
        ends = (min(self.halves), max(self.halves))
        parts = [("<= " if most or half <= self.smallest_bytes else "") + format_bytes(half) for half, most in ends]
        return " to ".join(dict.fromkeys(parts))

    @property
    def missed_text(self) -> str:
        """'3 ~, 2 ^': the number of paths that missed precision or were inherited, unless all did."""
        parts = [(self.missed, SIGN), (self.inherited, INHERITED)]
        return ", ".join(f"{count} {sign}" for count, sign in parts if 0 < count < self.path_count)

    @property
    def batched_text(self) -> str:
        """The time of one operation of a batch at the smallest size."""
        return self.batched_sign + range_s(self.batched_s)

    @property
    def single_text(self) -> str:
        """The time of a single operation at the smallest size."""
        return self.single_sign + range_s(self.single_s)


@dataclass(frozen=True)
class FamilyRows:
    """One family: its rows, and the parameters that make no difference to the best rate."""

    family: Family
    rows: list[Row]
    minor_params: list[str]
    usual: str = ""  # parameter values of all rows whose `params` give no others
    sweep: str = ""  # the sufficient number of blocks, if several were measured
    limits: str = ""  # peaks of the rows, if they differ
    minor_texts: tuple[str, ...] = ()  # the values of `minor_params`, and what they change otherwise

    @property
    def minor_params_text(self) -> str:
        """'same best rate for after kernel or wait (single copies at 8 B differ: kernel 7.4 us, wait 2.4 us)'."""
        what = "time" if all(row.time is not None for row in self.rows) else "best rate"
        return f"same {what} for {'; '.join(self.minor_texts)}" if self.minor_texts else ""


@dataclass(frozen=True)
class _Best:
    """The best point of a path with one method (the fastest of similar ones), and the curves of all candidates."""

    curve: Curve
    point: Point
    estimate: Estimate
    candidates: tuple[Curve, ...]


def overview(points: Iterable[Point]) -> list[FamilyRows]:
    """Each path with a value, in few rows. joint.py covers the copies to or from all GPUs at once, and
    sections/collectives.py the collectives.
    """
    listed = [point for point in points if not path_of(point).joint and not is_collective(point)]
    swept = sweeps(listed)
    found = []
    for family, of_family in itertools.groupby(without_sweeps(curves(listed)), key=lambda curve: curve.method.family):
        parts = needed_text(one for one in swept if one.method.family == family)
        rows = _family_rows(family, list(of_family), parts)
        if rows.rows:
            found.append(rows)
    return found


def _family_rows(family: Family, of_family: Sequence[Curve], sweep: str) -> FamilyRows:
    bests = _bests(of_family)
    minor_params = [name for name in varying(best.curve.method for best in bests) if _makes_no_difference(name, bests)]
    by_method: dict[Method, list[_Best]] = {}
    for best in _fold(bests, minor_params):
        by_method.setdefault(best.curve.method.without(minor_params), []).append(best)
    shown = varying(by_method)
    common = [pair for pair in usual(of_family) if pair[0] in shown]
    rows = [
        _row(cluster, params_text(pair for pair in method.params if pair[0] in shown and pair not in common))
        for method, of_method in by_method.items()
        for cluster in _clusters(of_method)
    ]
    values = varying(best.curve.method for best in bests)
    texts = [values_text(name, values[name]) + single_copy_text(name, of_family) for name in minor_params]
    limits = limits_text(best.point for best in bests)
    return FamilyRows(family, rows, minor_params, params_text(common), sweep, limits, tuple(texts))


def _bests(of_family: Sequence[Curve]) -> list[_Best]:
    """The best point for each path and method: of the batched curve, or of the single one if there is no batched
    one.
    """
    found = []
    for _, group in itertools.groupby(of_family, key=lambda curve: (curve.method, curve.path)):
        modes = sorted(group, key=lambda curve: not curve.batched)
        for curve in modes:
            point = curve.best()
            if point is not None and (total_of(point) is not None or not point.bytes):
                found.append(_Best(curve, point, _estimate(point), tuple(modes)))
                break
    return found


def _estimate(point: Point) -> Estimate:
    value = total_of(point) or time_of(point)
    assert value is not None  # _bests() chose only points that have one
    return value


def _makes_no_difference(name: str, bests: Sequence[_Best]) -> bool:
    """Whether 90 % of the comparisons that differ only in this parameter have the same best rate."""
    groups: dict[object, list[_Best]] = {}
    for best in bests:
        groups.setdefault((best.curve.path, best.curve.method.without([name])), []).append(best)
    pairs = [pair for group in groups.values() for pair in itertools.combinations(group, 2)]
    same = sum(alike(one.estimate, other.estimate, ALIKE) for one, other in pairs)
    return bool(pairs) and same >= MOSTLY * len(pairs)


def _fold(bests: Sequence[_Best], minor_params: Sequence[str]) -> list[_Best]:
    groups: dict[object, list[_Best]] = {}
    for best in bests:
        groups.setdefault((best.curve.method.without(minor_params), best.curve.path), []).append(best)
    return [_fastest(group) for group in groups.values()]


def _fastest(group: Sequence[_Best]) -> _Best:
    fastest = min(group, key=lambda best: best.point.median_s or 0.0)
    if total_of(fastest.point) is not None:
        fastest = max(group, key=lambda best: best.estimate.value)
    candidates = tuple(curve for best in group for curve in best.candidates)
    return _Best(fastest.curve, fastest.point, fastest.estimate, candidates)


def _clusters(bests: Sequence[_Best]) -> list[list[_Best]]:
    """Clusters of similar rates, the fastest first."""
    found: list[list[_Best]] = []
    for best in sorted(bests, key=_rank):
        near = found and alike(best.estimate, found[-1][0].estimate, ALIKE)
        # Without totals at large sizes the best rate is one of a smaller size, which is not comparable.
        if near and bool(best.curve.without_total()) == bool(found[-1][0].curve.without_total()):
            found[-1].append(best)
        else:
            found.append([best])
    return found


def _rank(best: _Best) -> float:
    """Sorts high rates and short times first."""
    return -best.estimate.value if total_of(best.point) is not None else best.estimate.value


def _row(cluster: Sequence[_Best], params: str) -> Row:
    middle = sorted(cluster, key=lambda best: best.estimate.value)[len(cluster) // 2]
    estimate = _together([best.estimate for best in cluster])
    rated = total_of(middle.point) is not None
    shares = [share for best in cluster if (share := share_of(best.point)) is not None]
    halves = [half for best in cluster if (half := _half(best)) is not None]
    candidates = [curve for best in cluster for curve in best.candidates]
    smallest = min(point.bytes for curve in candidates for point in curve.measured)
    return Row(
        paths=paths_text([best.curve.path for best in cluster]),
        path_count=len(cluster),
        params=params,
        rate=estimate if rated else None,
        time=None if rated else estimate,
        share=(min(shares), max(shares)) if shares else None,
        at_bytes=middle.point.bytes,
        half_rate_bytes=max((half for half, _ in halves), default=None),
        smallest_bytes=smallest,
        batched_s=_times_at(smallest, [curve for curve in candidates if curve.batched]) if rated else None,
        single_s=_times_at(smallest, [curve for curve in candidates if not curve.batched]),
        halves=tuple(halves),
        note=missing_total_text([point for best in cluster for point in best.curve.without_total()])
        or parts_text(point for curve in candidates if (point := curve.best()) is not None),
        missed=sum(missed(best.point) for best in cluster),
        inherited=sum(inherited(best.point) for best in cluster),
        batched_sign=_sign_at(smallest, [curve for curve in candidates if curve.batched]) if rated else "",
        single_sign=_sign_at(smallest, [curve for curve in candidates if not curve.batched]),
    )


def _half(best: _Best) -> tuple[int, bool] | None:
    """The half-rate size of the fastest curve with several sizes; true if the size is an upper bound."""
    batched = [best.curve, *(curve for curve in best.candidates if curve.batched)]
    for curve in batched:
        half = curve.half_rate_bytes()
        if half is not None:
            smaller, share = curve.below_half()
            return half, smaller is not None and share is None
    return None


def _sign_at(count: int, of_mode: Sequence[Curve]) -> str:
    return sign_of(p for curve in of_mode for p in curve.measured if p.bytes == count)


def _together(estimates: Sequence[Estimate]) -> Estimate:
    lows = [estimate.low for estimate in estimates if estimate.low is not None]
    highs = [estimate.high for estimate in estimates if estimate.high is not None]
    value = statistics.median(estimate.value for estimate in estimates)
    if len(lows) < len(estimates) or len(highs) < len(estimates):
        return Estimate(value)
    return Estimate(value, min(lows), max(highs))


def _times_at(count: int, of_mode: Sequence[Curve]) -> tuple[float, float] | None:
    times = [p.median_s for curve in of_mode for p in curve.measured if p.bytes == count and p.median_s is not None]
    return (min(times), max(times)) if times else None
