"""Rows on this machine's own timing: what precedes a sample, and from when its time counts. GPU rows use gpu:0."""

import contextlib
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from linkscope.plan import case_of
from linkscope.run import worker_command
from linkscope.run.worker import RequestFailed, Worker
from linkscope.runfile import PointId
from linkscope.selftest.bench import H2D, KIB
from linkscope.selftest.here import machine
from linkscope.selftest.rows import Finding, Row, inconclusive, judged
from linkscope.stats import median
from linkscope.units import format_bytes, format_seconds

_LOCAL = "local/ce/gpu:0.device->gpu:0.device/{}?after=kernel&mode=batched"
_H2H = "h2h/cpu/{0}.pageable->{0}.pinned/{1}?cache={2}&initiator=src&mode=batched"
_QUEUED = 512  # copies in front of the second stream
_GAP_S = 0.1
_REPEATS = 7
_FLUSHED = 0.5  # least time of a flush that was waited for, over that of a copy with as much traffic
_SLOWER = 1.2  # least ratio of a copy out of another core's cache to one out of the own cache, which is 1.5 to 1.8
_DIRTY_REPEATS = 20
_DIRTY_BYTES, _DIRTY_COPIES = 4 * KIB, 32  # together smaller than a core's own cache
_CONTEXTS, _ALIKE = 3, 0.08  # streams of one context differ by 2 %
_SIZES = (4 * KIB, 64 * KIB)  # of the copies by which the worker chooses contexts (core/platform/cuda/contexts.cpp)


@contextlib.contextmanager
def _opened(**more: Any) -> Iterator[tuple[Worker, dict[str, Any]]]:
    """A worker on this machine, and its answer to `open`."""
    worker = Worker(worker_command())
    try:
        yield worker, worker.open(machine().open_request | more)
    finally:
        worker.kill()


def _case(id: str, **changes: Any) -> dict[str, Any]:
    return case_of(PointId.parse(id), machine().facts) | changes


def _prepare(worker: Worker, case: dict[str, Any]) -> None:
    prepared = worker.prepare(case, "selftest#0")
    if not prepared.supported:
        raise RequestFailed("failed", prepared.reason)


def _without_gpu(planted: str) -> Finding | None:
    return None if machine().facts.of_kind("gpu") else Finding(planted, "no GPU is here", True)


def _stream_entry(folder: Path) -> Finding:
    """Without a gate, the second stream of a GPU starts after the host has queued the copies of the first one."""
    planted = f"behind {_QUEUED} copies that are queued first, the second stream starts later than behind one copy"
    if finding := _without_gpu(planted):
        return finding
    with _opened() as (worker, _):
        _prepare(worker, _case(H2D.format(KIB, "true", "batched"), held=False))
        trace = worker.run(_REPEATS, [[1, 1], [_QUEUED, 1]], verify=False)
    entries = trace.stamps[0::2]  # by sample, batch and actor
    after = [second - first for first, second in zip(entries[0::2], entries[1::2], strict=True)]
    soon, late = median(after[0::2]), median(after[1::2])
    found = f"{format_seconds(late)} after the first stream, and {format_seconds(soon)}"
    return judged(planted, found, late > max(0.0, 2 * soon), after[0::2], after[1::2])


def _l2_flush(folder: Path) -> Finding:
    """The flush writes twice the L2, and a copy of the L2's size reads and writes as many bytes."""
    planted = f"preparing a sample takes at least {_FLUSHED} times the time of a copy with the traffic of an L2 flush"
    if finding := _without_gpu(planted):
        return finding
    l2 = machine().facts.cache_bytes.get("gpu:0", 0)
    if not l2:
        return Finding(planted, "the size of the L2 is not visible here", True)
    with _opened() as (worker, _):
        _prepare(worker, _case(_LOCAL.format(l2), footprint_bytes=l2))
        copies = worker.run(_REPEATS, [[1], [4]], verify=False)
        one, four = ([copies.seconds(at, batch, 0) for at in range(_REPEATS)] for batch in (0, 1))
        copy_s = (min(four) - min(one)) / 3
        _prepare(worker, _case(_LOCAL.format(4 * KIB), footprint_bytes=4 * KIB))
        spent = [worker.run(1, [[1]], verify=False).spent["caches_s"] for _ in range(_REPEATS + 1)]
    flush = [after - before for before, after in itertools.pairwise(spent)]
    found = f"{format_seconds(min(flush))}, and a copy of {format_bytes(l2)} {format_seconds(copy_s)}"
    # Noise lengthens the preparation and never hides a missing wait, so only the copies need to agree.
    return judged(planted, found, min(flush) >= _FLUSHED * copy_s, four)


def _idle_gap(folder: Path) -> Finding:
    planted = f"idle_gap_s={_GAP_S}: three samples take {format_seconds(3 * _GAP_S)} or more"
    if finding := _without_gpu(planted):
        return finding
    with _opened() as (worker, _):
        case = _case(H2D.format(KIB, "false", "single"))
        _prepare(worker, case | {"params": case["params"] | {"idle_gap_s": str(_GAP_S)}})
        before = time.monotonic()
        spent = worker.run(3, [[1]], verify=False).spent["samples_s"]
        took = time.monotonic() - before
    # The preparation's warm-up idles as well, but the worker counts it apart.
    return Finding(planted, format_seconds(spent), 3 * _GAP_S <= spent <= took)


def _dirty_cache(folder: Path) -> Finding:
    """The same copies after the calling core, or another core of the node, has written the bytes."""
    planted = f"a copy out of another core's cache takes at least {_SLOWER} times the time of one out of the own cache"
    found, times, holds = [], [], True
    for place in machine().facts.of_kind("numa"):
        ids = [_H2H.format(place, _DIRTY_BYTES, cache) for cache in ("dirty", "written")]
        cases = [_case(id, footprint_bytes=_DIRTY_BYTES * _DIRTY_COPIES) for id in ids]
        each: list[list[float]] = [[], []]
        with _opened() as (worker, _):
            for _ in range(_DIRTY_REPEATS):
                for case, of in zip(cases, each, strict=True):
                    prepared = worker.prepare(case, "selftest#0")
                    if not prepared.supported:
                        return Finding(planted, prepared.reason, True)
                    trace = worker.run(1, [[_DIRTY_COPIES]], verify=False)
                    of.append(trace.seconds(0, 0, 0) / _DIRTY_COPIES)
        dirty, written = each
        holds = holds and min(dirty) >= _SLOWER * min(written)
        times.append(written)  # noise slows both, and only a slow copy out of the own cache hides the difference
        found.append(f"{place} {format_seconds(min(dirty))}, and {format_seconds(min(written))}")
    return judged(planted, "; ".join(found), holds, *times)


def _context_cost(folder: Path) -> Finding:
    """The cost by which the worker chooses a context, against the same copies measured as an operation."""
    planted = (
        f"the worker's cost of a copy in a context is that of the same copies as an operation, within {_ALIKE:.0%}"
    )
    if finding := _without_gpu(planted):
        return finding
    ratios, found = [], ""
    for _ in range(_CONTEXTS):
        model = str(machine().machine["gpus"][0]["name"])
        with _opened(contexts={"gpus": [0], "floors_s": {model: 1.0}}) as (worker, answer):
            if not answer.get("contexts"):
                return Finding(planted, "contexts are not chosen here: no gate, or an exclusive compute mode", True)
            stated_s = answer["contexts"][0]["operation_s"][-1]
            measured_s = sum(_queued_copy_s(worker, size) for size in _SIZES) / len(_SIZES)
        ratios.append(stated_s / measured_s)
        found = f"{format_seconds(stated_s)}, and {format_seconds(measured_s)}"
    found += f"; ratios {', '.join(f'{one:.3f}' for one in ratios)}"
    within = abs(median(ratios) - 1) <= _ALIKE
    if not within and max(ratios) > (1 + _ALIKE) * min(ratios):
        return inconclusive(planted, f"{found} disagree")
    return Finding(planted, found, within)


def _queued_copy_s(worker: Worker, size: int) -> float:
    """The seconds of a copy among others of the same bytes."""
    short, long = 32, 192
    _prepare(worker, _case(_LOCAL.format(size), footprint_bytes=size))
    trace = worker.run(5, [[short], [long]], verify=False)
    return median([(trace.seconds(at, 1, 0) - trace.seconds(at, 0, 0)) / (long - short) for at in range(5)])


ROWS = (
    Row("here_stream_entry", _stream_entry), Row("here_l2_flush", _l2_flush), Row("here_idle_gap", _idle_gap),
    Row("here_dirty_cache", _dirty_cache), Row("here_context_cost", _context_cost),
)  # fmt: skip
