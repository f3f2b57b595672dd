"""Parameters, sets of places and sets of paths as text."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from linkscope.flow import kind_of
from linkscope.model.curves import MODE, Curve, Estimate, Family, Method, Path, natural
from linkscope.model.dips import Dip, total
from linkscope.runfile import Point
from linkscope.units import (
    format_bytes,
    format_fraction,
    format_rate,
    format_rate_interval,
    format_seconds_interval,
    time_unit,
    unresolved_text,
    with_interval,
)

_MOST_MISSING = 2  # "each to each other but ..." with more exceptions is harder to read than the list
_LONG_S = 10e-6  # longer times of operations without bytes are not shown in ns
_DIRECTIONS = {
    "true": "bidirectional",
    "false": "unidirectional",
}  # docs/reference/run-file.md describes the field `bidirectional`


def param_text(name: str, value: str) -> str:
    """'peer on', 'bidirectional'."""
    return _DIRECTIONS.get(value, value) if name == "bidirectional" else f"{name} {value}"


def params_text(params: Iterable[tuple[str, str]]) -> str:
    """'bidirectional, peer on'."""
    return ", ".join(param_text(name, value) for name, value in params)


def method_text(method: Method) -> str:
    """'d2d by ce, device -> device (peer on)'."""
    return str(method.family) + (f" ({params_text(method.params)})" if method.params else "")


def point_text(point: Point) -> str:
    """'d2d by ce, device -> device on gpu:0 -> gpu:1 at 4 KiB (peer on)'."""
    family = Family(point.benchmark, point.engine, point.src_memory, point.dst_memory)
    params = params_text(sorted(point.params.items()))
    size = f" at {format_bytes(point.bytes)}" if point.bytes else ""
    return f"{family} on {point.src} -> {point.dst}{size}" + (f" ({params})" if params else "")


def dip_text(dip: Dip) -> str:
    """'prefetch by prefetch, managed -> managed on numa:0 -> gpu:0 is 40 % slower at 2 MiB (…) than at 1 MiB (…)'."""
    rates = [f"{format_bytes(point.bytes)} ({format_rate(total(point))})" for point in (dip.point, dip.top)]
    lost = format_fraction(dip.lost)
    return f"{method_text(dip.curve.method)} on {dip.curve.path} is {lost} slower at {rates[0]} than at {rates[1]}"


def varying(methods: Iterable[Method]) -> dict[str, set[str]]:
    """The parameters with several values among the methods (or absent from some), with these values."""
    listed = list(methods)
    names = {name for method in listed for name, _ in method.params}
    values = {name: {dict(method.params).get(name, "") for method in listed} for name in names}
    return {name: found for name, found in sorted(values.items()) if len(found) > 1}


def usual(of_family: Iterable[Curve]) -> list[tuple[str, str]]:
    """The commonest value of every parameter that all points name, except `mode` and `bidirectional`, which texts
    always state."""
    points = [point for curve in of_family for point in curve.points]
    named = Counter(name for point in points for name in point.params)
    everywhere = sorted(name for name, count in named.items() if count == len(points))
    return [(name, commonest(points, name)) for name in everywhere if name not in (MODE, "bidirectional")]


def commonest(points: Iterable[Point], name: str) -> str:
    """The commonest value of a parameter among the points that name it; '' if none does."""
    counts = Counter(point.params[name] for point in points if name in point.params)
    return max(((count, value) for value, count in counts.items()), default=(0, ""))[1]


def latency_text(time: Estimate) -> str:
    """'812 ns [809, 815]', for an operation without bytes."""
    if time.value >= _LONG_S:
        return format_seconds_interval(time.value, time.low, time.high)
    if (unresolved := unresolved_text(time.low, time.high)) is not None:
        return unresolved
    ends = (None if end is None else end * 1e9 for end in (time.low, time.high))
    number, interval = with_interval(time.value * 1e9, *ends)
    return f"{number} ns {interval}".rstrip()


def rate_text(rate: Estimate | None) -> str:
    """'55.4 GB/s [55.3, 55.5]'; '' without a rate."""
    return format_rate_interval(rate.value, rate.low, rate.high) if rate else ""


def places_text(places: Iterable[str]) -> str:
    """'gpu:0-3', 'numa:0,1': places grouped by kind, three or more consecutive ones as a range."""
    kinds: dict[str, list[int]] = {}
    others: list[str] = []
    for place in sorted(set(places), key=natural):
        match = re.fullmatch(r"(.*:)(\d+)", place)
        if match:
            kinds.setdefault(match[1], []).append(int(match[2]))
        else:
            others.append(place)
    return ", ".join([kind + _numbers(numbers) for kind, numbers in kinds.items()] + others)


def paths_text(paths: Sequence[Path]) -> str:
    """All paths, as short as possible: 'gpu:0-3 -> gpu:0-3' is each to each other."""
    if not paths:
        return "no path"
    if all(path.src == path.dst for path in paths):
        return f"within {places_text(path.src for path in paths)}"
    targets: dict[str, set[str]] = {}
    for path in paths:
        targets.setdefault(path.src, set()).add(path.dst)
    if len(targets) == 2 and len({kind_of(place) for place in targets}) == 2:
        first, second = sorted(targets, key=natural, reverse=True)  # from the host first
        if (targets[first], targets[second]) == ({second}, {first}):
            return f"{first} -> {second} and back"
    missing = _missing(targets)
    if missing is not None:
        but = f" but {'; '.join(map(str, missing))}" if missing else ""
        return f"{places_text(targets)} -> {places_text(targets)}{but}"
    if _every_pair_once(paths):
        return f"every pair of {places_text(set().union(targets, *targets.values()))}"
    sources: dict[frozenset[str], list[str]] = {}
    for src, reached in targets.items():
        sources.setdefault(frozenset(reached), []).append(src)
    parts = [f"{places_text(srcs)} -> {places_text(dsts)}" for dsts, srcs in sources.items()]
    return "; ".join(sorted(parts, key=natural))


def count_text(count: int, noun: str) -> str:
    """'1 point', '2 points'."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def size_text(point: Point) -> str:
    """'1 MiB'; '1000 × 64 B' for a copy of many pieces; '' for an operation without bytes."""
    piece = int(point.params.get("piece", "0") or 0)
    if piece and point.bytes > piece and point.bytes % piece == 0:
        return f"{point.bytes // piece} × {format_bytes(piece)}"
    return format_bytes(point.bytes) if point.bytes else ""


def sizes_text(sizes: Iterable[int]) -> str:
    """' at 256 MiB', ' at 16 to 256 MiB', ' at 64 MiB to 1 GiB': after a number of these sizes; '' without any."""
    known = sorted(set(filter(None, sizes)))
    if not known:
        return ""
    (least, unit), most = format_bytes(known[0]).rsplit(" ", 1), format_bytes(known[-1])
    if len(known) == 1:
        return f" at {most}"
    return f" at {least} to {most}" if most.endswith(f" {unit}") else f" at {least} {unit} to {most}"


def range_s(seconds: tuple[float, float] | None) -> str:
    """'2.2 us', '2.2-8.4 us': the lowest and the highest."""
    if seconds is None:
        return ""
    unit, size = time_unit(seconds[1])
    low, high = (f"{end / size:.2g}" if end / size < 10 else f"{end / size:.3g}" for end in seconds)
    return f"{low} {unit}" if low == high else f"{low}-{high} {unit}"


def range_share(share: tuple[float, float] | None) -> str:
    """'88 %', '15-18 %'."""
    if share is None:
        return ""
    low, high = (format_fraction(end) for end in share)
    return low if low == high else f"{low.removesuffix(' %')}-{high}"


def _missing(targets: dict[str, set[str]]) -> list[Path] | None:
    """The paths missing from "each to each other"; None if that does not describe them well."""
    everyone = set().union(targets, *targets.values())
    if any(src in reached for src, reached in targets.items()):
        return None
    missing = [Path(src, dst) for src in everyone for dst in everyone - targets.get(src, set()) - {src}]
    few = len(missing) <= (_MOST_MISSING if len(everyone) > 3 else 0) and set(targets) == everyone
    return sorted(missing) if few else None


def _every_pair_once(paths: Sequence[Path]) -> bool:
    everyone = {place for path in paths for place in (path.src, path.dst)}
    pairs = {frozenset((path.src, path.dst)) for path in paths}
    return len(everyone) > 2 and len(pairs) == len(paths) == len(everyone) * (len(everyone) - 1) / 2


def _numbers(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
