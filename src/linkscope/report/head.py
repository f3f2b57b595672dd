"""The top of the page: tiles with the most important rates, and the points to check."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from linkscope.model.curves import MODE, Curve, Estimate, Path, alike, curves, measured_flows, rate_of, share_of
from linkscope.model.text import count_text, params_text, range_share
from linkscope.report.findings import findings
from linkscope.report.headline import headline_points
from linkscope.report.outcome import APART, STATUS_WORDS
from linkscope.report.section import Tile
from linkscope.report.shared import without_concurrent
from linkscope.report.trust import flows_ran_apart, inherited, signed
from linkscope.report.trust import widest as widest_of
from linkscope.report.uniformity import Comparison, between_gpus
from linkscope.runfile import Point, Run, flows_by_path, shown_status
from linkscope.units import format_bytes, format_fraction, format_rate, format_rate_interval

GRAVE = {"errors", "repeats", "steal"}  # findings that concern the trust in the whole run
_NOTED = (  # guards that concern the trust in a value
    ("throttled_rounds", "were measured while a GPU was throttled"),
    ("above_limit", "are faster than the peak of the hardware"),
    ("nonlinear", "did not converge: the cost of an operation depends on the length of the batch"),
    ("timings", "have rounds with different timing methods"),
)


@dataclass(frozen=True)
class Doubt:
    """A reason to distrust results, and the ids of the affected points; no ids if it affects the whole run."""

    text: str
    ids: tuple[str, ...] = ()


def tiles(run: Run) -> list[Tile]:
    """Four to six tiles. A direction without measurements has no tile."""
    points = headline_points(without_concurrent(run).points)
    made = [curve for curve in curves(points) if curve.batched]
    found = [
        _direction("Host to GPU", made, lambda path: (_kind(path.src), _kind(path.dst)) == ("numa", "gpu")),
        _direction("GPU to host", made, lambda path: (_kind(path.src), _kind(path.dst)) == ("gpu", "numa")),
        _direction("GPU to GPU", made, _is_pair),
        _direction("Within a GPU", made, lambda path: path.src == path.dst and _kind(path.src) == "gpu"),
        _slowest_pair(run),
    ]
    shown = [tile for tile in found if tile is not None]
    return [*shown, _points_to_check(run, shown)]


def doubts(run: Run) -> list[Doubt]:
    """Reasons to distrust results, the most serious first."""
    found = [Doubt("The run was stopped early. Points are missing")] if run.end and not run.end.complete else []
    found += [Doubt("The run has no end record. It was cut off, or it is still running")] if run.end is None else []
    found += [Doubt(finding.text, finding.ids) for finding in findings(run) if finding.kind in GRAVE]
    found += [_of_status(run.points, "failed"), _of_status(run.points, "too_short")] + [
        Doubt(f"{count_text(len(ids), 'point')} {words}", ids) for guard, words in _NOTED if (ids := _with(run, guard))
    ]
    found += [_apart(run.points), _missed(run.points), _of_status(run.points, "skipped")]
    return [doubt for doubt in found if doubt.text]


def doubtful_ids(run: Run) -> set[str]:
    """The ids of all points that a doubt affects."""
    return {id for doubt in doubts(run) for id in doubt.ids}


def _direction(label: str, made: Sequence[Curve], wanted: Callable[[Path], bool]) -> Tile | None:
    """The best unidirectional rate, its % of peak, the size that reaches half of it, and the slowest memory kind."""
    bests = _unidirectional([curve for curve in made if wanted(curve.path)])
    if not bests:
        return None
    curve, best = _fastest(bests)
    lines = [_of_peak(best), f"{curve.path}, {curve.method.family}, at {format_bytes(best.bytes)}"]
    lines += _half_lines(curve)
    slow = _slowest_memory(bests, best)
    numbers = {label: best} | ({f"{label} ({slow[0]})": slow[1]} if slow else {})
    return Tile(
        label, _rate_text(best), (*filter(None, lines), *([_memory_text(*slow)] if slow else [])), "#paths",
        tuple((name, point.id) for name, point in numbers.items()),
    )  # fmt: skip


def _half_lines(curve: Curve) -> list[str]:
    """'half of this rate from 256 KiB, batched (64 KiB: 31 % of it)'. The second size is the next smaller one."""
    half = curve.half_rate_bytes()
    if half is None:
        return []
    smaller, share = curve.below_half()
    if smaller is None:
        return [f"half of this rate from {format_bytes(half)} or less, batched: no smaller size was measured"]
    share_text = "no total" if share is None else f"{format_fraction(share)} of it"
    return [f"half of this rate from {format_bytes(half)}, batched ({format_bytes(smaller.bytes)}: {share_text})"]


def _fastest(bests: Sequence[tuple[Curve, Point]]) -> tuple[Curve, Point]:
    """The fastest curve. Among curves within its interval, a measured one is preferred to an inherited one."""
    fastest = max(bests, key=lambda pair: _rate(pair[1]))
    measured = max((pair for pair in bests if not inherited(pair[1])), key=lambda pair: _rate(pair[1]), default=fastest)
    return measured if _is_similar(measured[1], fastest[1]) else fastest


def _slowest_memory(bests: Sequence[tuple[Curve, Point]], best: Point) -> tuple[str, Point] | None:
    """The memory kind with the lowest best rate, and its best point."""
    of_memory: dict[str, list[tuple[Curve, Point]]] = {}
    for pair in bests:
        of_memory.setdefault(_memories(pair[1]), []).append(pair)
    by_memory = {memories: _fastest(pairs)[1] for memories, pairs in of_memory.items()}
    memories, slowest = min(by_memory.items(), key=lambda item: _rate(item[1]))
    if memories == _memories(best) or _is_similar(slowest, best):
        return None
    return slowest.dst_memory if slowest.src_memory == best.src_memory else slowest.src_memory, slowest


def _memory_text(kind: str, slowest: Point) -> str:
    """'pageable at best: ~10.9 GB/s, 19 % of peak'."""
    share = share_of(slowest)
    rate = signed(format_rate(slowest.gbps), [slowest])
    return f"{kind} at best: {rate}" + (f", {format_fraction(share)} of peak" if share else "")


def _slowest_pair(run: Run) -> Tile | None:
    """The slowest pair of GPUs compared with the fastest. Both were measured with one method at one size."""
    if (found := between_gpus(run)) is None:
        return None
    slowest, fastest = (f"{point.src} -> {point.dst}" for point in (found.slowest, found.fastest))
    size = format_bytes(found.bytes)
    rate = f"{_rate_text(found.slowest)} at {size}"
    if found.differs and found.interval:
        ratio = f"{found.ratio:.2f} times the time of {fastest} [{found.interval.low:.2f}, {found.interval.high:.2f}]"
        value, lines = slowest, [ratio, rate]
    else:
        value = "GPU pairs are uniform" if found.is_uniform else "GPU pairs may differ"
        lines = [f"within {format_fraction(found.spread)} of each other", f"the lowest: {slowest}, {rate}"]
    pairs = len({(p.src, p.dst) for p in run.points if p.benchmark == "d2d" and p.src != p.dst and p.median_s})
    lines += [
        _of_peak(found.slowest),
        f"{found.count} of {pairs} pairs were measured at {size} ({_method_text(found)})",
    ]
    return Tile(
        "Slowest GPU pair", value, tuple(filter(None, lines)), "#pairs", ((f"pair {slowest}", found.slowest.id),)
    )


def _method_text(found: Comparison) -> str:
    params = params_text((name, value) for name, value in sorted(found.slowest.params.items()) if name != MODE)
    return ", ".join(filter(None, (f"{found.slowest.benchmark} by {found.slowest.engine}", params)))


def _points_to_check(run: Run, shown: Sequence[Tile]) -> Tile:
    ids = doubtful_ids(run)
    numbers = [(name, id) for tile in shown for name, id in tile.numbers]
    unmeasured = {point.id for point in run.points if inherited(point)}
    affected = [name for name, id in numbers if id in ids]
    indirect = [name for name, id in numbers if id in unmeasured and id not in ids]
    other = "other " if affected or indirect else ""
    safe = f"every {other}rate above is within its target precision"
    lines = tuple(f"{number} {words}" for words, number in _numbers(run.points))
    lines += ("error counters grew",) if any(finding.kind in GRAVE for finding in findings(run)) else ()
    lines += (f"to check: {'; '.join(affected)}",) if affected else ()
    lines += (f"inherited, not measured: {'; '.join(indirect)}",) if indirect else ()
    lines += (safe,) if len(affected) + len(indirect) < len(numbers) else ()
    return Tile("Points to check", f"{len(ids)} of {len(run.points)}", lines, "#trust")


def _numbers(points: Iterable[Point]) -> list[tuple[str, int]]:
    listed = list(points)
    counts = Counter[str](map(shown_status, listed))
    words = dict(STATUS_WORDS)
    if apart := sum(_missed_overlap(point) for point in listed):
        words["missed_precision"] += f", {apart} of them with {APART}"
    names = ("failed", "too_short", "missed_precision", "skipped", "unsupported")
    return [(words[name], counts[name]) for name in names if counts[name]]


def _missed_overlap(point: Point) -> bool:
    return point.status == "missed_precision" and flows_ran_apart(point)


def _of_status(points: Sequence[Point], status: str) -> Doubt:
    ids = tuple(point.id for point in points if shown_status(point) == status)
    return Doubt(f"{count_text(len(ids), 'point')} {STATUS_WORDS[status]}" if ids else "", ids)


def _apart(points: Sequence[Point]) -> Doubt:
    """Points whose flows did not run together. More rounds would not help them."""
    apart = [point for point in points if _missed_overlap(point)]
    if not apart:
        return Doubt("")
    overlaps = [point.guards["joint_overlap"] for point in apart if "joint_overlap" in point.guards]
    share = range_share((min(overlaps), max(overlaps))) if overlaps else "unknown"
    rated = sum(point.total_gbps is not None for point in apart)
    text = f"{count_text(len(apart), 'point')} {'has' if len(apart) == 1 else 'have'} {APART} (overlap: {share})"
    text += ": no total" if not rated else ": the total is over the time until the last flow ended, or missing"
    return Doubt(text, tuple(point.id for point in apart))


def _missed(points: Sequence[Point]) -> Doubt:
    """The number of points that missed precision, and how many of them by more than five times."""
    missed = [point for point in points if point.status == "missed_precision" and not flows_ran_apart(point)]
    wide = [(width, point) for point in missed if (width := widest_of(point)) is not None]
    if not missed:
        return Doubt("")
    none = len(missed) - len(wide)
    text = f"{count_text(len(missed), 'point')} missed precision: the interval is wider than the target"
    text += f", or missing ({none} of them)" if none else ""
    if wide:
        width, widest = max(wide, key=lambda pair: pair[0])
        far = sum(one > 5 * point.precision_target for one, point in wide)
        text += f"; {far} of them by more than five times" if far else ""
        text += f"; the widest is +-{format_fraction(width)} ({widest.id})"
    ids = [point.id for _, point in sorted(wide, key=lambda pair: -pair[0])]
    return Doubt(text, tuple(dict.fromkeys([*ids, *(point.id for point in missed)])))


def _with(run: Run, guard: str) -> tuple[str, ...]:
    return tuple(point.id for point in run.points if guard in point.guards)


def _unidirectional(made: Sequence[Curve]) -> list[tuple[Curve, Point]]:
    bests = ((curve, curve.best()) for curve in made)
    return [(curve, best) for curve, best in bests if best and best.gbps is not None and _one_rate(curve, best)]


def _one_rate(curve: Curve, best: Point) -> bool:
    """Whether all bytes move in one direction: one flow, or the parts of one."""
    return len(flows_by_path(measured_flows(best))) == 1 and not curve.path.joint


def _kind(place: str) -> str:
    return place.partition(":")[0]


def _is_pair(path: Path) -> bool:
    return path.src != path.dst and _kind(path.src) == _kind(path.dst) == "gpu"


def _memories(point: Point) -> str:
    return f"{point.src_memory} -> {point.dst_memory}"


def _rate(point: Point) -> float:
    return _estimate(point).value


def _estimate(point: Point) -> Estimate:
    return rate_of(point) or Estimate(0.0)


def _is_similar(one: Point, other: Point) -> bool:
    return alike(_estimate(one), _estimate(other), 0.0)


def _rate_text(point: Point) -> str:
    rate = _estimate(point)
    return signed(format_rate_interval(rate.value, rate.low, rate.high), [point])


def _of_peak(point: Point) -> str:
    share = share_of(point)
    return f"{format_fraction(share)} of peak, {format_rate(point.limit_gbps)}" if share is not None else ""
