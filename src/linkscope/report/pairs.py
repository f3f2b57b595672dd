"""Anomalies of the whole machine: classes of GPU pairs, the gain of peer access, contention between directions."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from linkscope.flow import read_path
from linkscope.model.curves import Curve, Family, Path, alike, total_of
from linkscope.model.dips import total
from linkscope.model.text import count_text, method_text, paths_text
from linkscope.report.finding import LARGE, Finding, with_best, worst
from linkscope.runfile import Point
from linkscope.units import format_bytes, format_rate

ALIKE = 0.02  # pairs of a class differ by at most this, or by at most their intervals
WORTH = 0.10  # missing peer access is reported if it costs at least this fraction of the rate
HOST_PATH = 0.8  # a rate above this fraction of the rate of the host path counts as equal to it
CONTENDING = 1.15  # directions contend if the bidirectional total is below this multiple of the unidirectional rate
_GPU = re.compile(r"(?:host:\d+/)?gpu:\d+")
# The start of the peak description of a modelled path.
_LINK = re.compile(r"(?P<name>\S+) (?P<path>\S+->\S+) \(")


@dataclass(frozen=True)
class _Pair:
    path: Path
    best: Point

    @property
    def gbps(self) -> float:
        return total(self.best)

    @property
    def link(self) -> str:
        """The link of the pair: 'over nvlink-1', 'through another GPU', or '' if unknown."""
        if self.best.params.get("peer") == "off":
            return "through the host"
        match = _LINK.match(self.best.limit_source or "")
        if match is None:
            return ""
        ends = set(read_path(match["path"]))
        others = all(map(_GPU.fullmatch, ends)) and ends != {self.path.src, self.path.dst}
        return "through another GPU" if others else f"over {match['name']}"


def classes_of_pairs(batched: Sequence[Curve]) -> list[Finding]:
    """Classes of GPU pairs by their best unidirectional rate and by their link. A class has at least two pairs."""
    by_family: dict[Family, dict[Path, _Pair]] = {}
    for family, pair in _pairs(batched):
        known = by_family.setdefault(family, {}).get(pair.path)
        if known is None or pair.gbps > known.gbps:
            by_family[family][pair.path] = pair
    if not by_family:
        return []
    # Classes depend on links, so one method is enough: the one with the most pairs, then the fastest.
    most = max(by_family, key=lambda family: (len(by_family[family]), max(p.gbps for p in by_family[family].values())))
    classes = [members for members in _classes(by_family[most].values()) if len(members) > 1]
    if len(classes) < 2:
        return []
    parts = "; ".join(map(_class_text, classes))
    text = f"GPU pairs form {len(classes)} classes ({most}): {parts}"
    return [Finding("classes of pairs", text, tuple(members[0].best.id for members in classes))]


def _pairs(batched: Sequence[Curve]) -> Iterable[tuple[Family, _Pair]]:
    for curve, best in with_best(batched):
        ends = curve.path.src, curve.path.dst
        between = all(map(_GPU.fullmatch, ends)) and ends[0] != ends[1]
        if between and not best.bidirectional and not curve.without_total() and _has_large(curve):
            yield curve.method.family, _Pair(curve.path, best)


def _has_large(curve: Curve) -> bool:
    return max(point.bytes for point in curve.measured) >= LARGE


def _classes(pairs: Iterable[_Pair]) -> list[list[_Pair]]:
    """The fastest class first; pairs in the order of their places."""
    classes: list[list[_Pair]] = []
    for pair in sorted(pairs, key=lambda pair: -pair.gbps):
        known = next((members for members in classes if _same_class(members[0], pair)), None)
        if known is None:
            classes.append([pair])
        else:
            known.append(pair)
    return [sorted(members, key=lambda pair: pair.path) for members in classes]


def _same_class(one: _Pair, other: _Pair) -> bool:
    first, second = total_of(one.best), total_of(other.best)
    return one.link == other.link and first is not None and second is not None and alike(first, second, ALIKE)


def _class_text(members: Sequence[_Pair]) -> str:
    link = f" {members[0].link}" if members[0].link else ""
    return f"{len(members)} at {_range([pair.gbps for pair in members])}{link}, such as {members[0].path}"


def _range(rates: Sequence[float]) -> str:
    """'24.0 GB/s', '24.0 GB/s to 48.0 GB/s'."""
    low, high = min(rates), max(rates)
    return format_rate(high) if high <= low * (1 + ALIKE) else f"{format_rate(low)} to {format_rate(high)}"


def without_peer_access(batched: Sequence[Curve]) -> list[Finding]:
    """Rates of copies between GPUs without peer access; one finding for each family."""
    found = []
    for family in dict.fromkeys(curve.method.family for curve in batched):
        of_family = [curve for curve in batched if curve.method.family == family]
        with_it, without = (_by_peer(of_family, value) for value in ("on", "off"))
        slower = [path for path in without if path in with_it and without[path].gbps < with_it[path].gbps * (1 - WORTH)]
        refused = [path for path in without if path not in with_it and _refused(of_family, path)]
        ids = tuple(without[path].best.id for path in (*slower, *refused))
        parts = []
        if slower:
            rates, direct = ([pairs[path].gbps for path in slower] for pairs in (without, with_it))
            parts.append(
                f"without peer access, copies between GPUs go through the host: {_range(rates)} on "
                f"{count_text(len(slower), 'path')}, against {_range(direct)} with it ({family})"
                f"{_as_host(batched, family, rates)}"
            )
        if refused:
            rates = [without[path].gbps for path in refused]
            parts.append(
                f"{paths_text(refused)} ({len(refused)}) have no peer access: {_range(rates)} through the host"
            )
        if parts:
            found.append(Finding("without peer access", "; ".join(parts), ids))
    return found


def _by_peer(of_family: Sequence[Curve], value: str) -> dict[Path, _Pair]:
    best: dict[Path, _Pair] = {}
    for _, pair in _pairs([curve for curve in of_family if dict(curve.method.params).get("peer") == value]):
        if pair.path not in best or pair.gbps > best[pair.path].gbps:
            best[pair.path] = pair
    return best


def _refused(of_family: Sequence[Curve], path: Path) -> bool:
    """Whether the run requested peer access and the platform refused it."""
    points = (point for curve in of_family if curve.path == path for point in curve.points)
    return any(point.params.get("peer") == "on" and point.status == "unsupported" for point in points)


def _as_host(batched: Sequence[Curve], family: Family, rates: Sequence[float]) -> str:
    """'; the path between host and GPU reaches 12.4 GB/s' if the rates are about as high; otherwise ''."""
    host = [
        total(best)
        for curve, best in with_best(batched)
        if curve.method.family.engine == family.engine and not best.bidirectional and not curve.path.joint
        if bool(_GPU.fullmatch(curve.path.src)) != bool(_GPU.fullmatch(curve.path.dst))
    ]
    if not host or not HOST_PATH * max(host) <= max(rates) <= max(host):
        return ""
    return f"; the path between host and GPU reaches {format_rate(max(host))}"


def contending_directions(batched: Sequence[Curve]) -> list[Finding]:
    """Bidirectional totals near the unidirectional rate, at the largest common size; one finding for each family."""
    unidirectional = {(curve.path, curve.method): curve for curve in batched}
    groups: dict[Family, list[tuple[float, str, str]]] = {}
    for curve in batched:
        if dict(curve.method.params).get("bidirectional") != "true":
            continue
        params = tuple((name, "false" if name == "bidirectional" else value) for name, value in curve.method.params)
        other = unidirectional.get((curve.path, type(curve.method)(curve.method.family, params)))
        alone = {point.bytes: total(point) for point in other.measured} if other else {}
        for point in reversed(curve.measured):
            one, both = alone.get(point.bytes, 0.0), total(point)
            if point.bytes < LARGE or not one or not both:
                continue
            text = (
                f"{method_text(curve.method)} on {curve.path} has {both / one:.2f} times the unidirectional rate: "
                f"{format_rate(both)} in total at {format_bytes(point.bytes)}, unidirectional {format_rate(one)}: "
                "the two directions contend"
            )
            if both < CONTENDING * one:
                groups.setdefault(curve.method.family, []).append((both / one, text, point.id))
            break
    return [worst("contending directions", parts) for parts in groups.values()]
