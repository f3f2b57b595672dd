"""Rows on faults: a fault becomes a failed point with a reason, and the run continues."""

import re
from pathlib import Path

from linkscope.selftest.bench import D2D, D2H, H2D, KIB, measured, watched
from linkscope.selftest.machine import target
from linkscope.selftest.rows import Finding, Row
from linkscope.units import format_bytes

_COPY, _OTHER = H2D.format(64 * KIB, "false", "batched"), D2H.format(64 * KIB)
_PEER = D2D.format(0, 1, 64 * KIB)


def _corrupt(folder: Path) -> Finding:
    where = target(fault=[{"kind": "corrupt", "match": f"{_COPY}#3", "after_samples": 1}])
    points = measured(folder, where, [_COPY, _OTHER])
    bad, good = points[_COPY], points[_OTHER]
    caught = bad.status == "failed" and bad.verified is False and bad.median_s is None
    fine = good.status == "ok" and good.verified is True
    found = f"{bad.status}: {bad.reason}" if bad.reason else bad.status
    return Finding("a byte of one copy in six rounds arrives wrong", found, caught and fine)


def _lying_peer(folder: Path) -> Finding:
    """As seen on real machines: peer access is on, copies end in time and without an error, and nothing arrives."""
    lying, honest = D2D.format(0, 1, 64 * KIB), D2D.format(2, 3, 64 * KIB)
    points = measured(folder, target(fault=[{"kind": "lie", "match": f"{lying}#*"}]), [lying, honest])
    bad, good = points[lying], points[honest]
    holds = bad.status == "failed" and bad.verified is False and good.status == "ok" and good.verified is True
    found = f"{bad.status}: {bad.reason}; gpu:2 -> gpu:3: {good.status}"
    return Finding("copies gpu:0 -> gpu:1 end in time and deliver nothing", found, holds)


def _pattern(folder: Path) -> Finding:
    """Zeros prove nothing: memory is often zero before data arrive, and links may compress zeros."""
    seen = watched(target(), H2D.format(4 * KIB, "true", "batched"))
    regions = re.findall(r"^region (r\d+) \S+ \d+ B (\w+)", seen.prepared.program, re.MULTILINE)
    ways = re.findall(r"loop move \w+ (r\d+)\[.*-> (r\d+)\[", seen.prepared.program)
    contents = dict(regions)
    found = [f"{contents.get(src)} onto {contents.get(dst)}" for src, dst in ways]
    verdict = seen.runs[-1][1].verdict
    checked = verdict.checked_bytes if verdict else 0
    batch = seen.runs[-1][0][-1]
    least = sum(min(count, seen.prepared.slices) for count in batch) * 4 * KIB
    holds = found == ["pattern onto poison"] * 2 and checked >= least and seen.round.verified is True
    return Finding(
        f"both sources their own pattern, both destinations poisoned, {format_bytes(least)} to compare",
        f"{', '.join(dict.fromkeys(found))}; {format_bytes(checked)} compared", holds,
    )  # fmt: skip


def _placement(folder: Path) -> Finding:
    """The worker checks the placement of pages (core/platform/cuda, page_nodes) and refuses to time misplaced ones."""
    said = "pages asked for on numa:0 are on numa:1"
    points = measured(folder, target(), [_COPY, _OTHER], [{"match": f"{_COPY}#*", "error": said}])
    bad, good = points[_COPY], points[_OTHER]
    holds = bad.status == "failed" and bad.reason == said and bad.median_s is None and good.status == "ok"
    found = f"{bad.status}: {bad.reason}; the other point: {good.status}"
    return Finding("pages of numa:0 that lie on numa:1", found, holds)


def _hang(folder: Path) -> Finding:
    where = target(fault=[{"kind": "hang", "match": f"{_PEER}#*"}])
    points = measured(folder, where, [_PEER, _OTHER])
    hung, other = points[_PEER], points[_OTHER]
    holds = hung.status == "failed" and "no answer" in (hung.reason or "") and other.status == "ok"
    found = f"{hung.status}: {hung.reason}; the other point: {other.status}"
    return Finding("a worker that stops answering", found, holds)


ROWS = (
    Row("corrupt", _corrupt),
    Row("lying_peer", _lying_peer),
    Row("pattern", _pattern),
    Row("placement", _placement),
    Row("hang", _hang, cost_s=13),
)
