"""The limits of a fitted machine file: what was not measured, and how accurate the rest is.

A fitted file has a value for every constant, so unmeasured paths and methods would be predicted from defaults.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

from linkscope.model.curves import Family
from linkscope.model.skeleton import Content
from linkscope.runfile import PointId

JOINT = "several at once"
_BY_SM = ("copies by SM", "kernel", ("read_tile_us", "write_tile_us", "launch_us"))


def unmeasured(content: Content, point: PointId) -> str:
    """The measurements that the fit lacked for a copy: 'this path', 'pageable copies to a GPU'; '' if none, and for
    files written by hand."""
    measured = content["machine"].get("measured")
    if not measured:
        return ""
    if f"{point.src} -> {point.dst}" not in measured:
        return "this path"
    # TMA copies have no constants of their own: only the accuracy by operation shows that a run measured them.
    if point.engine == "tma" and not any(" by tma," in name for name in content.get("deviation", {})):
        return "copies by TMA"
    what, table, keys = _constants_of(point)
    rows = content.get(table, [])
    known = [row.get(key, {}) for row in (rows if isinstance(rows, list) else [rows]) for key in keys]
    return "" if not keys or any(one.get("from") == "fitted" for one in known) else what


def _constants_of(point: PointId) -> tuple[str, str, Sequence[str]]:
    """The kind of copy, and the table and keys of its constants; at least one is fitted if it was measured."""
    if point.engine in ("sm", "tma"):
        return _BY_SM
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
        key = "to_device" if to else "from_device"
        return f"pageable copies {'to' if to else 'from'} a GPU", "pageable", (f"{key}_gbps", f"{key}_us")
    return "", "", ()


def family_of(point: PointId) -> str:
    """'h2d by ce, pinned -> device', with what distinguishes it: peer access, initiator, single, bidirectional."""
    text = str(Family(point.benchmark, point.engine, point.src_memory, point.dst_memory))
    words = [f"{name} {point.param(name)}" for name in ("peer", "initiator") if point.param(name)]
    words += ["single"] if point.param("mode") == "single" else []
    words += ["bidirectional"] if point.bidirectional else []
    return text + (f", {', '.join(words)}" if words else "")


def _zero_copy(point: PointId) -> PointId | None:
    """The zero-copy access with the same traffic on the link, which small suites measure instead of SM copies.

    None within one memory, where both ends of a copy count.
    """
    if point.engine != "sm" or point.src == point.dst:
        return None
    return dataclasses.replace(point, benchmark="read" if point.benchmark == "h2d" else "write")


def deviation(
    content: Content, transfers: Sequence[Sequence[PointId]], *, bidirectional: bool
) -> tuple[str, dict[str, Any]] | None:
    """The name and the row of [deviation] for these transfers; None if the file states no accuracy for them.

    A transfer is one point, or one per thread; no row covers threads, or several transfers within one place.
    `bidirectional`: the transfers are one transfer and its opposite.
    """
    first = transfers[0][0]
    within = any(point.src == point.dst for points in transfers for point in points)
    if any(len(points) > 1 for points in transfers) or (within and len(transfers) > 1):
        return None
    # That row covers only copies by copy engine without pageable memory.
    plain = all(
        point.engine == "ce" and "pageable" not in (point.src_memory, point.dst_memory) for [point] in transfers
    )
    names = [JOINT] if plain else []
    if len(transfers) == 1 or bidirectional:
        end = ", bidirectional" if bidirectional else ""
        families = [family_of(one) + end for one in (first, _zero_copy(first)) if one]
        names = [families[0], f"{families[0]}, initiator src{end}", *families[1:], *(names if bidirectional else [])]
    rows = content.get("deviation", {})
    return next(((name, rows[name]) for name in names if name in rows), None)
