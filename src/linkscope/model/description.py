"""A fitted model as text and as data."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from linkscope.flow import kind_of
from linkscope.model.check import costs_of, curves_of
from linkscope.model.curves import Estimate, Path
from linkscope.model.known import family_of
from linkscope.model.observed import Observation
from linkscope.model.segments import Costs, Segment
from linkscope.model.skeleton import Content
from linkscope.model.text import paths_text
from linkscope.runfile import PointId
from linkscope.units import format_bytes, format_rate, format_seconds

_KINDS = {"numa": "host", "gpu": "GPU"}


def shared_text(content: Content) -> list[str]:
    """'numa:0 to gpu:0-3: 182 GB/s'."""
    lines = []
    for link in content["link"]:
        if "both_ways_gbps" in link:
            pairs = paths_text([Path(*pair) for pair in link["between"]])
            each = "each of " if len(link["between"]) > 1 else ""
            lines.append(f"both directions of {each}{link['name']} {pairs}: {format_rate(link['both_ways_gbps']['v'])}")
    return [*lines, *(f"{share['name']}: {format_rate(share['gbps']['v'])}" for share in content.get("share", []))]


def methods_text(observations: Iterable[Observation]) -> list[str]:
    """A line for each method and kinds of ends: the segments of the median over its paths."""
    families: dict[str, dict[str, dict[int, list[Observation]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for one in observations:
        batched = one.point.param("mode", "batched") == "batched"
        if one.point.bytes and not one.joint and batched:
            families[family_of(one.point)][_ends(one.point)][one.point.bytes].append(one)
    lines = []
    for name, kinds in sorted(families.items()):
        for ends, sizes in sorted(kinds.items()):
            middle = [sorted(of, key=lambda one: one.seconds)[len(of) // 2] for of in sizes.values()]
            if len(middle) > 1:
                # The memory kinds name the ends of most methods. Managed memory has one name at both ends and different
                # rates.
                lines.append(f"{name}{f', {ends}' if len(kinds) > 1 else ''}: {segments_text(costs_of(middle))}")
    return lines


def _ends(point: PointId) -> str:
    """'host to GPU'."""
    kinds = [kind_of(place) for place in (point.src, point.dst)]
    src, dst = (_KINDS.get(kind, kind) for kind in kinds)
    return f"within a {dst}" if point.src == point.dst else f"{src} to {dst}"


def segments_text(costs: Costs) -> str:
    """'8 B to 256 B: 2.2 us; from 4 KiB 2.44 us + bytes at 55.5 GB/s, half of it at 132 KiB'."""
    parts = []
    for segment in costs.segments:
        sizes = f"{format_bytes(segment.first)} to {format_bytes(segment.last)}"
        if segment.first == segment.last:
            sizes = f"at {format_bytes(segment.first)}"
        parts.append(f"{sizes} {_segment(segment)}")
    jumps = [f"{format_bytes(low)} to {format_bytes(high)}" for low, high in costs.cliffs]
    return "; ".join(parts) + (f"; jumps between {', '.join(jumps)}" if jumps else "")


def _segment(segment: Segment) -> str:
    if segment.seconds_a_byte.value <= 0:
        return format_seconds(segment.latency_s.value)
    rate = format_rate(segment.rate / 1e9)
    if segment.latency_s.value <= 0:
        return f"at {rate}"
    # the transfer of these bytes overlaps with earlier steps, so no copy has this rate
    if segment.half_bytes > segment.last:
        return f"{format_seconds(segment.seconds(segment.first))} to {format_seconds(segment.seconds(segment.last))}"
    return f"{format_seconds(segment.latency_s.value)} + {rate} (half at {format_bytes(round(segment.half_bytes))})"


def undetermined_text(content: Content) -> str:
    """'costs: call_us, sync_us; pageable: slots'."""
    found: dict[str, dict[str, None]] = {}
    for table, rows in content.items():
        for row in rows if isinstance(rows, list) else [rows]:
            for key, value in row.items() if isinstance(row, dict) else ():
                if isinstance(value, dict) and value.get("from") == "assumed":
                    found.setdefault(table, {})[key] = None
    return "; ".join(f"{table}: {', '.join(keys)}" for table, keys in found.items())


def curves_json(observations: Sequence[Observation]) -> list[dict[str, Any]]:
    """The segments of every path and method; seconds, bytes and B/s."""
    found = []
    for (benchmark, engine, src, dst, src_memory, dst_memory, params, flow), costs in curves_of(observations).items():
        ends = {"src": src, "dst": dst, "src_memory": src_memory, "dst_memory": dst_memory}
        named = dict(params) if isinstance(params, tuple) else {}
        what = {"benchmark": benchmark, "engine": engine, **ends, "params": named, "flow": flow}
        found.append(what | {"segments": [_json(one) for one in costs.segments], "cliffs": list(costs.cliffs)})
    return found


def _json(segment: Segment) -> dict[str, Any]:
    def ends(estimate: Estimate) -> list[float] | None:
        return None if estimate.low is None or estimate.high is None else [estimate.low, estimate.high]

    slope = segment.seconds_a_byte
    growing = slope.value > 0
    return {
        "first": segment.first,
        "last": segment.last,
        "alpha_s": segment.latency_s.value,
        "alpha_ci95_s": ends(segment.latency_s),
        "seconds_a_byte": slope.value,
        "seconds_a_byte_ci95": ends(slope),
        "beta_bytes_a_s": segment.rate if growing else None,
        "half_bytes": segment.half_bytes if growing else None,
    }
