"""What a fitted machine file does not know, and how well it knows the rest.

It has a value for all that it needs, so what nobody measured, paths and ways of copying, would be told from defaults.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from linkscope.model.curves import Family
from linkscope.model.skeleton import Content
from linkscope.runfile import PointId

JOINT = "several at once"
_THREADS = ("copies by threads", "kernel", ("read_tile_us", "write_tile_us", "launch_us"))


def unmeasured(content: Content, point: PointId) -> str:
    """What of a copy the file was fitted without: 'this path', 'pageable copies to a GPU'. Empty: nothing, or the file
    was not fitted."""
    measured = content["machine"].get("measured")
    if not measured:
        return ""
    if f"{point.src} -> {point.dst}" not in measured:
        return "this path"
    what, table, keys = _rests_on(point)
    rows = content.get(table, [])
    known = [row.get(key, {}) for row in (rows if isinstance(rows, list) else [rows]) for key in keys]
    return "" if not keys or any(one.get("from") == "fitted" for one in known) else what


def _rests_on(point: PointId) -> tuple[str, str, Sequence[str]]:
    """What such a copy is, and the table and keys that it takes its time from: one is fitted where it was measured."""
    if point.engine in ("sm", "tma"):
        return _THREADS
    if point.engine == "cpu":
        return "copies by CPU threads", "numa", ("memcpy_gbps", "memcpy_remote_gbps")
    if point.benchmark == "local":
        return "copies within a GPU", "copy", ("local_us",)
    if point.benchmark == "d2d" and point.param("peer") == "off":
        return "copies without peer access", "staged_peer", ("chunk_us", "chunk_kib")
    if point.benchmark == "d2d":
        return "copies with peer access", "copy", ("peer_us",)
    if "pageable" in (point.src_memory, point.dst_memory):
        to = point.benchmark == "h2d"
        way = "to_device" if to else "from_device"
        return f"pageable copies {'to' if to else 'from'} a GPU", "pageable", (f"{way}_gbps", f"{way}_us")
    return "", "", ()


def family_of(point: PointId) -> str:
    """'h2d by ce, pinned -> device', and whether one alone, both ways or joint."""
    text = str(Family(point.benchmark, point.engine, point.src_memory, point.dst_memory))
    said = [f"{name} {point.param(name)}" for name in ("peer", "initiator") if point.param(name)]
    said += ["single"] if point.param("mode") == "single" else []
    said += ["both ways"] if point.bidirectional else []
    return text + (f", {', '.join(said)}" if said else "")


def _zero_copy(point: PointId) -> PointId | None:
    """What threads do that reach over the same link without copying, which takes as long there: smaller suites have
    only that. None where the copy's other end, in the same memory, counts as well."""
    if point.engine != "sm" or point.src == point.dst:
        return None
    return dataclasses.replace(point, benchmark="read" if point.benchmark == "h2d" else "write")


def deviation(
    content: Content, transfers: Sequence[Sequence[PointId]], *, both_ways: bool
) -> tuple[str, dict[str, Any]] | None:
    """The row of [deviation] that such transfers are of, and its name; None: the file does not know how far off it is.

    A transfer is one point, or as many as threads share it, of which no row says anything; nor does one say anything
    of several within one place. `both_ways`: it is one transfer and its opposite.
    """
    first = transfers[0][0]
    within = any(point.src == point.dst for points in transfers for point in points)
    if any(len(points) > 1 for points in transfers) or (within and len(transfers) > 1):
        return None
    # The points that stand behind that row are of copy engines and of memory that stays where it is.
    plain = all(
        point.engine == "ce" and "pageable" not in (point.src_memory, point.dst_memory) for [point] in transfers
    )
    names = [JOINT] if plain else []
    if len(transfers) == 1 or both_ways:
        end = ", both ways" if both_ways else ""
        kin = [family_of(one) + end for one in (first, _zero_copy(first)) if one]
        names = [kin[0], f"{kin[0]}, initiator src{end}", *kin[1:], *(names if both_ways else [])]
    rows = content.get("deviation", {})
    return next(((name, rows[name]) for name in names if name in rows), None)
