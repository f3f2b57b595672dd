"""Notes on rows of best rates that would mislead without them."""

import statistics
from collections.abc import Iterable, Sequence

from linkscope.model.curves import Curve, measured_flows, natural
from linkscope.model.text import param_text, range_s, range_share
from linkscope.runfile import Point, flows_by_path
from linkscope.units import format_bytes, format_rate

# Single-copy times that differ by more are shown even if the parameter makes no difference to the best rate.
SINGLE_DIFFERS = 0.1
_MOST_VALUES = 4


def values_text(name: str, values: Iterable[str]) -> str:
    """'after kernel or wait'; 'any threads' if there are many values."""
    listed = sorted(filter(None, values), key=natural)
    if name == "bidirectional":
        return " or ".join(param_text(name, value) for value in listed)
    if not 1 < len(listed) <= _MOST_VALUES:
        return f"any {name}"
    return f"{name} {', '.join(listed[:-1])} or {listed[-1]}"


def single_copy_text(name: str, of_family: Sequence[Curve]) -> str:
    """' (single copies at 8 B differ: kernel 7.4 us, wait 2.4 us)' if a parameter changes single copies but not the
    best rate.
    """
    singles = [p for curve in of_family if not curve.batched for p in curve.measured if name in p.params and p.median_s]
    if not singles:
        return ""
    size = min(point.bytes for point in singles)
    alike: dict[object, dict[str, float]] = {}  # by all other parameters
    for point in singles:
        if point.bytes == size:
            others = tuple(sorted((key, value) for key, value in point.params.items() if key != name))
            alike.setdefault((point.src, point.dst, others), {})[point.params[name]] = point.median_s or 0.0
    times: dict[str, list[float]] = {}
    for by_value in alike.values():
        for value, seconds in by_value.items() if len(by_value) > 1 else ():
            times.setdefault(value, []).append(seconds)
    medians = [statistics.median(found) for found in times.values()]
    if not medians or max(medians) <= min(medians) * (1 + SINGLE_DIFFERS):
        return ""
    parts = ", ".join(f"{value} {range_s((min(found), max(found)))}" for value, found in sorted(times.items()))
    return f" (single copies at {format_bytes(size)} differ: {parts})"


def limits_text(points: Iterable[Point]) -> str:
    """'peer off 57.61 GB/s, peer on 478.1 GB/s' if one parameter decides the peak."""
    limited = [point for point in points if point.limit_gbps]
    by_name: dict[str, dict[str, set[str]]] = {}
    for point in limited:
        for name, value in point.params.items():
            by_name.setdefault(name, {}).setdefault(value, set()).add(format_rate(point.limit_gbps))
    if len({format_rate(point.limit_gbps) for point in limited}) < 2:
        return ""
    for name, of_values in sorted(by_name.items()):
        limits = {value: next(iter(found)) for value, found in of_values.items() if len(found) == 1}
        if len(limits) == len(of_values) and len(set(limits.values())) > 1:
            return ", ".join(f"{param_text(name, value)} {limit}" for value, limit in sorted(limits.items()))
    return ""


def missing_total_text(points: Sequence[Point]) -> str:
    """'no total at 16 MiB: the flows ran together for only 81-83 % of the time'; '' if all sizes have a total."""
    sizes = ", ".join(format_bytes(count) for count in sorted({point.bytes for point in points}))
    overlaps = [point.guards["joint_overlap"] for point in points if "joint_overlap" in point.guards]
    why = f"for only {range_share((min(overlaps), max(overlaps)))} of the time" if overlaps else "not all the time"
    return f"no total at {sizes}: the flows ran together {why}" if sizes else ""


def parts_text(points: Iterable[Point]) -> str:
    """'its parts overlapped for 25 % of the time', for a copy on several streams. 1 / streams means that the parts
    ran one after the other.
    """
    overlaps = [
        point.guards["joint_overlap"]
        for point in points
        if "joint_overlap" in point.guards and len(flows_by_path(measured_flows(point))) == 1
    ]
    return f"its parts overlapped for {range_share((min(overlaps), max(overlaps)))} of the time" if overlaps else ""
