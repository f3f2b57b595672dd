"""The figures that messages driven by a GPU should reach on H100 and H200 GPUs, each with what a run has.

Used by tools/put_get_claims.py. The bare words and the SM copies are of the same run.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from linkscope.report.put_get import TOGETHER, at_once, per_s, seconds_of
from linkscope.runfile import Point, Run
from linkscope.units import format_bytes, format_seconds

MIB = 1 << 20


@dataclass(frozen=True)
class Target:
    """A figure with its answer: 'reached', 'not reached' or 'cannot be tested', and the numbers behind it."""

    text: str
    answer: str
    evidence: str


def targets(run: Run) -> list[Target]:
    """The targets of one GPU, then those between two."""
    points = [point for point in run.points if point.median_s]
    return [*_of_one(points), *_of_two(points)]


def best_targets(runs: Sequence[Run]) -> list[Target]:
    """Each target by the first run that has its points."""
    of_runs = zip(*(targets(run) for run in runs), strict=True)
    return [min(of, key=lambda one: one.answer == "cannot be tested") for of in of_runs]


def _of_one(points: Sequence[Point]) -> Iterator[Target]:
    word = _fastest(_of(points, "ping_pong/cpu/numa:*->gpu:*.pinned/0"))
    packed = _fastest(_of(points, "put_ping_pong/sm/gpu:*->numa:*/8?*", word="packed"))
    yield _below("8 B to host memory and back over a bare word: at most 1.1", packed, word, 1.1)
    copies = {point.bytes: point for point in _of(points, "d2h/sm/gpu:*->numa:*")}
    sizes = [size for size in sorted(copies) if size >= MIB]
    shares = [
        (size, seconds_of(copies[size]) / seconds_of(put))
        for size in sizes
        if (put := _fastest(_of(points, f"put/sm/gpu:*->numa:*/{size}?*", connections="1")))
    ]
    shown = ", ".join(f"{share:.3g} at {format_bytes(size)}" for size, share in shares)
    text = "Stream of puts to host memory over the SM copy rate from 1 MiB: at least 0.95"
    yield _judged(
        text, bool(shares), all(share >= 0.95 for _, share in shares), shown, "puts and SM copies of one size"
    )
    proxy = _of(points, "queued_put/cpu/numa:*->numa:*/64?*", proxies="1")
    yield _rate("Messages of 64 B by one proxy thread: at least 1.5 M/s", proxy, 1.5e6)
    within = _fastest(_within(points, "ping_pong", "device", 0))
    one = _fastest(_within(points, "put_ping_pong", "device", 8, word="packed"))
    yield _beside("8 B between two kernels of one GPU, over a bare word", one, within)
    two_words = _fastest(_within(points, "ping_pong", "ipc", 0))
    two = _fastest(_within(points, "put_ping_pong", "ipc", 8))
    yield _beside("8 B between kernels of two processes on one GPU, over a bare word", two, two_words)
    yield _rate("Messages of 64 B within one GPU, all blocks: stated", _within(points, "put", "device", 64), 0)


def _of_two(points: Sequence[Point]) -> Iterator[Target]:
    trips = _apart(points, "put_ping_pong", 8, word="packed")
    trip = _fastest(trips)
    tail = f", p99 {format_seconds(p99)}" if trip and (p99 := trip.flows[0].p99_s) else ""
    reached = bool(trip) and (trip.flows[0].p50_s or seconds_of(trip)) <= 1.5e-6 and (trip.flows[0].p99_s or 0) <= 2e-6
    shown = f"{format_seconds(trip.flows[0].p50_s or seconds_of(trip))}{tail}" if trip else ""
    lacks = "packed words between GPUs"
    yield _judged("8 B between two GPUs and back: p50 at most 1.5 us, p99 at most 2", bool(trip), reached, shown, lacks)
    for size, gbps in ((4 * MIB, 310), (64 * MIB, 350)):
        put = _fastest(_apart(points, "put", size, connections="1"))
        rate = size / seconds_of(put) / 1e9 if put else 0.0
        text = f"Put between two GPUs, {format_bytes(size)}: at least {gbps} GB/s"
        yield _judged(text, bool(put), rate >= gbps, f"{rate:.4g} GB/s", "puts of this size between GPUs")
    rates = _apart(points, "put", 64)
    yield _rate("Messages of 64 B between two GPUs: at least 1,000 M/s", rates, 1e9)


def _of(points: Iterable[Point], pattern: str, **params: str) -> list[Point]:
    """The points whose id matches a pattern as of --only, with these values of parameters."""
    return [one for one in points if fnmatchcase(one.id, pattern) and params.items() <= one.params.items()]


def _within(points: Iterable[Point], benchmark: str, memory: str, size: int, **params: str) -> list[Point]:
    found = _of(points, f"{benchmark}/sm/gpu:*.{memory}->gpu:*.{memory}/{size}*", **params)
    return [one for one in found if one.src == one.dst and one.bytes == size]


def _apart(points: Iterable[Point], benchmark: str, size: int, **params: str) -> list[Point]:
    found = _of(points, f"{benchmark}/sm/gpu:*->gpu:*/{size}?*", **params)
    return [one for one in found if one.src != one.dst]


def _fastest(points: Sequence[Point]) -> Point | None:
    return min(points, key=seconds_of, default=None)


def _judged(text: str, tested: bool, reached: bool, shown: str, lacks: str) -> Target:
    if not tested:
        return Target(text, "cannot be tested", f"the run lacks {lacks}")
    return Target(text, "reached" if reached else "not reached", shown)


def _single(point: Point) -> float:
    """The median of single operations, or of batches where none was stamped."""
    return point.flows[0].p50_s or seconds_of(point)


def _below(text: str, point: Point | None, word: Point | None, most: float) -> Target:
    if not (point and word):
        return _judged(text, False, False, "", "packed messages of 8 B and a bare word")
    ratio = _single(point) / _single(word)
    return _judged(text, True, ratio <= most, _shown(point, word, ratio), "")


def _beside(text: str, point: Point | None, word: Point | None) -> Target:
    """A figure that is stated, without a limit."""
    made = _below(text, point, word, float("inf"))
    return made if made.answer == "cannot be tested" else Target(text, "stated", made.evidence)


def _shown(point: Point, word: Point, ratio: float) -> str:
    tails = [f"{format_seconds(_single(one))}{_tail(one)}" for one in (point, word)]
    return f"{tails[0]} over {tails[1]}; ratio {ratio:.3g}"


def _tail(point: Point) -> str:
    p99 = point.flows[0].p99_s
    return f" (p99 {format_seconds(p99)})" if p99 else ""


def _ran_together(point: Point) -> bool:
    return float(point.guards.get("joint_overlap", 1.0)) >= TOGETHER


def _rate(text: str, points: Sequence[Point], least: float) -> Target:
    best = max(filter(_ran_together, points), key=per_s, default=None)
    if best is None:
        return _judged(text, False, False, "", "connections that ran together")
    connections = best.params.get("connections", "1")
    each = f", {at_once(best)} at once" if at_once(best) > 1 else ""
    shown = f"{per_s(best) / 1e6:.4g} M/s by {connections} connection{'s' * (connections != '1')}{each}"
    return _judged(text, True, per_s(best) >= least, shown, "") if least else Target(text, "stated", shown)
