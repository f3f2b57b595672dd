"""Peaks of managed pages in runs of an older version, which took host memory for the way of pages without peer access.

NVLink carries managed pages in any case, because the driver makes linked GPUs peers. The older version failed points
that were faster than a copy through host memory can be.
"""

import dataclasses

import msgspec

from linkscope.runfile import Flow, Point, Run
from linkscope.stats import median, median_interval

_STAGED = "staged in host memory"
REASON = "the file calls this point failed, by the peak of host memory; NVLink carries managed pages"
_Peak = tuple[float, str]  # GB/s and its derivation


def with_nvlink_peaks(run: Run) -> Run:
    """The run with the peak of NVLink for its managed pages between GPUs; points that failed below it have values.

    The peak is that of the same path with peer access. A run without such points stays as it is.
    """
    peaks: dict[tuple[str, str], _Peak] = {
        (point.src, point.dst): (point.limit_gbps, point.limit_source or "")
        for point in run.points
        if _is_managed(point) and point.limit_gbps and (point.limit_source or "").startswith("NVLink")
    }
    if not peaks:
        return run
    points = [
        _mended(point, peaks[point.src, point.dst])
        if _is_managed(point) and _STAGED in (point.limit_source or "") and (point.src, point.dst) in peaks
        else point
        for point in run.points
    ]
    return dataclasses.replace(run, points=points)


def mended_text(points: list[Point]) -> str:
    """'2 points that the file calls failed have values: …'; '' where none has."""
    count = sum(point.reason == REASON for point in points)
    if not count:
        return ""
    named = "1 point" if count == 1 else f"{count} points"
    has = "has a value" if count == 1 else "have values"
    return (
        f"{named} that the file calls failed {has}: an older version took the peak of host memory for that of managed "
        "pages, which NVLink carries."
    )


def _is_managed(point: Point) -> bool:
    ends = (point.src, point.dst)
    between = ends[0] != ends[1] and all("gpu:" in end for end in ends)
    return between and point.src_memory == point.dst_memory == "managed"


def _mended(point: Point, peak: _Peak) -> Point:
    found = msgspec.structs.replace(point, limit_gbps=peak[0], limit_source=peak[1])
    above = point.status == "failed" and (point.reason or "").startswith("faster than the hardware allows")
    if not above or len(point.flows) != 1 or not (rounds := point.flows[0].round_medians_s):
        return found
    middle, interval = median(rounds), median_interval(rounds)
    gbps = point.bytes / middle / 1e9
    if gbps > peak[0]:
        return found
    ends = (interval.low, interval.high) if interval else None
    flow: Flow = msgspec.structs.replace(point.flows[0], median_s=middle, ci95_s=ends, gbps=gbps)
    guards = {name: value for name, value in point.guards.items() if name != "above_limit"}
    return msgspec.structs.replace(
        found, status="missed_precision", reason=REASON, median_s=middle, ci95_s=ends, gbps=gbps, total_gbps=gbps,
        flows=[flow], guards=guards,
    )  # fmt: skip
