"""Rows on this machine: clocks, cache flush, placement of pages, and whether GPUs receive what others write."""

import functools
import itertools
import math
import time
from pathlib import Path

from linkscope.plan import case_of
from linkscope.run import Target, measure, worker_command
from linkscope.run.answers import Trace
from linkscope.run.batches import EVENT_TICK_S, HOST_TICK_S, Task
from linkscope.run.sampler import Sampler
from linkscope.run.target import this_machine
from linkscope.run.worker import Worker
from linkscope.runfile import PointId, read_run
from linkscope.selftest.bench import D2D, D2H, KIB, MIB, Witness, plan_of
from linkscope.selftest.rows import Finding, Row, judged
from linkscope.stats import median
from linkscope.units import format_bytes, format_seconds

_CHASE = "latency/cpu/{0}.pageable->{0}.pageable/0?cache={1}&range=2MiB"
_H2H = "h2h/cpu/{0}.pageable->{0}.pinned/1048576?initiator=src&mode=batched"
_SLOWER = 1.5  # least ratio of a chase through memory to one through a cache
_ROUNDS = (5, 10)  # the second number only if the first is not enough: one more look, not one after each round

machine = functools.cache(this_machine)


def _host_clock(folder: Path) -> Finding:
    """Two readings differ by a multiple of the clock's step, so the greatest common divisor of many is the step."""
    readings = [time.clock_gettime_ns(time.CLOCK_MONOTONIC) for _ in range(20_000)]
    steps = [after - before for before, after in itertools.pairwise(readings)]
    step_s, forwards = math.gcd(*steps) * 1e-9, min(steps) >= 0
    planted = f"never backward, in steps of at most {format_seconds(HOST_TICK_S)}, as the sampler assumes"
    found = f"steps of {format_seconds(step_s)}" if forwards else f"back by {-min(steps)} ns"
    return Finding(planted, found, forwards and 0 < step_s <= HOST_TICK_S)


def _event_clock(folder: Path) -> Finding:
    where = machine()
    planted = f"steps of at most {format_seconds(EVENT_TICK_S)}, as the sampler assumes"
    if not where.facts.of_kind("gpu"):
        return Finding(planted, "no GPU here, so no events", True)
    worker = Worker(worker_command())
    try:
        worker.open(where.open_request)
        prepared = worker.prepare(case_of(PointId.parse(D2H.format(8)), where.facts), "tick#0")
        if not prepared.supported:
            return Finding(planted, prepared.reason, False)
        trace = worker.run(8, [[count] for count in range(1, 65)], verify=False, limit_s=60)
    finally:
        worker.kill()
    if trace.timing != "gate":
        return Finding(planted, f"copies are timed by '{trace.timing}' here: events are not used", True)
    # Batches of all lengths take all kinds of times, so the nearest two lie one tick apart. CUDA returns milliseconds
    # as a float, exact to 10 ps at 0.1 ms.
    times = sorted(trace.seconds(sample, at, 0) for sample in range(trace.samples) for at in range(trace.batches))
    steps = sorted(after - before for before, after in itertools.pairwise(times) if after - before > 1e-10)
    tick_s = steps[len(steps) // 100] if steps else float("inf")
    return Finding(planted, f"steps of {format_seconds(tick_s)}", tick_s <= 1.1 * EVENT_TICK_S)


def _cache_flush(folder: Path) -> Finding:
    """The same chase over the same lines, after a flush and after itself; the fastest rounds count, since noise only
    slows. On a busy machine five rounds may not meet a quiet moment."""
    where = machine()
    found, times, holds = [], [], True
    for place in where.facts.of_kind("numa"):
        cold: list[float] = []
        hot: list[float] = []
        slower = False
        for count in _ROUNDS:
            for _ in range(0 if slower else count):
                # In turn, so that a disturbance meets both.
                (trace, flushed), (_, not_flushed) = (
                    one_round(where, _CHASE.format(place, cache), len(hot)) for cache in ("cold", "hot")
                )
                cold.append(flushed)
                hot.append(not_flushed)
            slower = min(cold) >= _SLOWER * min(hot)
        holds = holds and slower
        times += [cold, hot]
        how = trace.notes.get("cpu_cache_flush", "not at all")
        found.append(f"{place} {format_seconds(min(cold))} flushed by {how}, {format_seconds(min(hot))} not flushed")
    planted = f"a load that meets no cache takes at least {_SLOWER} times the time"
    return judged(planted, "; ".join(found), holds, *times)


def one_round(where: Target, id: str, number: int) -> tuple[Trace, float]:
    """The last trace of one round, and the median of its samples in seconds."""
    worker = Witness(worker_command())
    try:
        worker.open(where.open_request)
        record = Sampler(worker, plan_of(where, [id]), where.facts).measure(Task(PointId.parse(id), number))
        return worker.runs[-1][1], median(record.flows[0].samples_s)
    finally:
        worker.kill()


def _pages(folder: Path) -> Finding:
    where = machine()
    wrong, found = [], []
    for place in where.facts.of_kind("numa"):
        trace, _ = one_round(where, _H2H.format(place), 0)
        nodes = {key.removeprefix("pages "): str(node) for key, node in trace.notes.items() if key.startswith("pages ")}
        found += [f"{region} {'hidden here' if node == 'hidden' else f'on {node}'}" for region, node in nodes.items()]
        wrong += [region for region, node in nodes.items() if node not in (place, "hidden")]
        if len(nodes) < 2:
            wrong.append(place)
    return Finding("pages on the nodes where they were requested", "; ".join(found), not wrong)


def _peers(folder: Path) -> Finding:
    where = machine()
    gpus = [int(gpu.rpartition(":")[2]) for gpu in where.facts.of_kind("gpu")]
    pairs = [(a, b) for a in gpus for b in gpus if a != b]
    sizes = (4 * KIB, 64 * MIB)
    planted = f"{' and '.join(map(format_bytes, sizes))} arrive between every two GPUs with peer access"
    if not pairs:
        return Finding(planted, f"{len(gpus) or 'no'} GPU here, so no pair", True)
    wrong, refused, fine = [], [], 0
    for size in sizes:  # small copies of all pairs first: nothing larger is sent after a wrong one
        ids = {D2D.format(a, b, size): f"gpu:{a} -> gpu:{b}" for a, b in pairs}
        path = folder / f"{size}.jsonl"
        measure(where, plan_of(where, list(ids), rounds=1), path)
        for point in read_run(path).points:
            if point.status == "unsupported":
                refused.append(str(point.reason))
            elif point.verified is True:
                fine += 1
            else:
                wrong.append(f"{ids[point.id]}, {format_bytes(size)}: {point.reason}")
        if wrong:
            break
    words = [f"{fine} of {2 * len(pairs)} arrived", *wrong, *dict.fromkeys(refused)]
    return Finding(planted, "; ".join(words), not wrong)


ROWS = (
    Row("here_host_clock", _host_clock), Row("here_event_clock", _event_clock), Row("here_cache_flush", _cache_flush),
    Row("here_pages", _pages), Row("here_peers", _peers),
)  # fmt: skip
