"""Simulated times as points, with the accuracy that the machine file states."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from linkscope.flow import kind_of
from linkscope.model.files import is_cached
from linkscope.model.known import deviation, family_of, unmeasured
from linkscope.model.skeleton import Content
from linkscope.runfile import Point, PointId

LEVEL = 0.9  # a machine file states the error that 90 % of its points do not exceed
ACCURACY = Path(__file__).parent / "accuracy.toml"
REFERENCE = "h200x4"  # the bundled model whose errors count for files that state none
_BY_CPU = "h2h by cpu, pageable -> pinned, initiator src"
_TO_GPU, _FROM_GPU = "h2d by ce, pinned -> device", "d2h by ce, device -> pinned"
_TO_PEER = "d2d by ce, device -> device, peer on, initiator src"


def predicted_points(
    content: Content, seconds: Mapping[PointId, float | str], others: Sequence[PointId] = ()
) -> list[Point]:
    """A point for each simulated time, as if a run had measured it; none for a reason. `others`: what ran besides.

    Its interval is the error that 90 % of the points of its kind do not exceed (`error_of`), or, of a file, what the
    machine file knows of the rate of the disk (`of_disk`).
    """
    found = []
    for point, value in seconds.items():
        if isinstance(value, str):
            continue
        error = error_of(content, point, others)
        ends = of_disk(content, point, value) if error is None else (value / (1 + error), value * (1 + error))
        found.append(
            Point(
                id=str(point), status="ok", benchmark=point.benchmark, engine=point.engine, src=point.src,
                dst=point.dst, src_memory=point.src_memory, dst_memory=point.dst_memory, bytes=point.bytes,
                bidirectional=point.bidirectional, params=dict(point.params), median_s=value, ci95_s=ends,
                precision_target=0.0, ci_level=LEVEL if error is not None else None, timing="virtual",
            )
        )  # fmt: skip
    return found


def with_accuracy(content: Content) -> tuple[Content, str]:
    """The content of a machine file with errors, and whose they are: '' for its own.

    Bundled models that were compared with a run have theirs in accuracy.toml. The others get those of one of these.
    """
    if content.get("deviation"):
        return content, ""
    known = tomllib.loads(ACCURACY.read_text(encoding="utf-8"))
    name = str(content["machine"]["name"])
    return {**content, "deviation": known.get(name) or known[REFERENCE]}, "" if name in known else REFERENCE


def untested(name: str, operations: Iterable[str]) -> list[str] | None:
    """The operations for which the bundled model `name` was not compared with hardware; None: it was not at all."""
    rows = tomllib.loads(ACCURACY.read_text(encoding="utf-8")).get(name)
    if rows is None:
        return None
    tested = {row.partition(" by ")[0] for row in rows}
    return [operation for operation in dict.fromkeys(operations) if operation not in tested]


def error_of(content: Content, point: PointId, others: Sequence[PointId] = ()) -> float | None:
    """The relative error that 90 % of the points like this one do not exceed; None if the file states none.

    An operation without a row has the largest error of its legs, otherwise that of the operation's other rows, and
    otherwise that of plain copies. A copy of a file without a row has none.
    """
    if known := deviation(content, [[one] for one in (point, *others)], bidirectional=False):
        return float(known[1]["ninety"])
    rows = content.get("deviation", {})
    if "disk" in (kind_of(point.src), kind_of(point.dst)):
        return None  # no row is about disks
    of_legs = [float(rows[leg]["ninety"]) for leg in _legs(point) if leg in rows]
    return max(of_legs or _of_others(rows, point), default=None)


def of_disk(content: Content, point: PointId, seconds: float) -> tuple[float, float] | None:
    """The interval of a time, if the rate of the disk has any value between `low` and `high` of the machine file. It is
    too wide where the disk does not decide the time. None where the file does not state them, and for cached files."""
    if is_cached(point.benchmark, dict(point.params)):
        return None
    reads = kind_of(point.src) == "disk"
    disk = point.src if reads else point.dst
    here = disk.partition("/")[2] if disk.startswith("host:") else disk
    for link in content.get("link", ()):
        for pair in link.get("between", ()):
            if here not in pair:
                continue
            rate = link.get("back_gbps" if reads == (here == pair[1]) else "gbps", link["gbps"])
            if "low" in rate:
                return seconds * rate["v"] / rate["high"], seconds * rate["v"] / rate["low"]
    return None


def _legs(point: PointId) -> Iterator[str]:
    """The rows of the operations of which a staged or relayed copy consists."""
    if point.benchmark not in ("staged", "relayed", "fresh_staged"):
        return
    plain = _plain_copy(point)
    if point.benchmark == "relayed":
        yield _TO_PEER
    elif plain != "d2d":
        yield _BY_CPU
    if plain != "h2d":
        yield _FROM_GPU
    if plain != "d2h":
        yield _TO_GPU


def _of_others(rows: Mapping[str, Mapping[str, Any]], point: PointId) -> list[float]:
    """The errors of the rows of this operation: of its engine with other memories, or of its other engines; otherwise
    of plain copies on the path."""
    is_single = ", single" in family_of(point)
    like = {name: float(row["ninety"]) for name, row in rows.items() if is_single == (", single" in name)}
    for start in (f"{point.benchmark} by {point.engine},", f"{point.benchmark} by ", f"{_plain_copy(point)} by "):
        if found := [error for name, error in like.items() if name.startswith(start)]:
            return found
    return []


def _plain_copy(point: PointId) -> str:
    src, dst = kind_of(point.src), kind_of(point.dst)
    if src == dst == "gpu":
        return "local" if point.src == point.dst else "d2d"
    return {("numa", "gpu"): "h2d", ("gpu", "numa"): "d2h"}.get((src, dst), "h2h")


def is_predictable(content: Content, point: PointId) -> bool:
    """Whether the model knows this operation. A file that was fitted to a run has a value for every constant, so what
    the run did not measure would come from defaults."""
    if not content["machine"].get("measured"):
        return True
    return not unmeasured(content, point) and deviation(content, [[point]], bidirectional=False) is not None
