"""The anomalies of a run, as sentences with numbers. Each rule is one function; the thresholds stand at the top."""

import statistics
from collections.abc import Callable, Iterable, Sequence

from linkscope.model.curves import Curve, Family, curves, natural, rate_of, share_of
from linkscope.model.dips import alike_points, dips, total
from linkscope.model.slow_paths import SlowPath, slow_paths
from linkscope.model.text import count_text, dip_text, method_text, point_text
from linkscope.report.counters import counter_findings
from linkscope.report.finding import Finding, with_best, worst
from linkscope.report.pairs import classes_of_pairs, contending_directions, without_peer_access
from linkscope.report.sweep import without_sweeps
from linkscope.report.trust import between_medians
from linkscope.runfile import Point, Run, once
from linkscope.units import format_bytes, format_fraction, format_rate, format_seconds

SLOW = 0.10  # a path is slow if its rate is this much below the median of its class,
MINORITY = 1 / 3  # and if no larger part of the class is slow
FAR_BELOW = 0.5  # of the peak: best rates below this are reported
ENOUGH_S = 15e-6  # duration of the largest size at peak rate: shorter copies are dominated by their set-up time
BETWEEN = 5.0  # ratio of the spread between rounds to the spread within a round
NOTABLE = 0.01  # spread between rounds, as a fraction of the median
SINGLE_EXTRA_S = 1e-6  # a single copy that costs this much more than a batched one is reported
SMALL = 64 << 10  # above this size the difference between single and batched copies disappears in the noise


@once
def findings(run: Run) -> Sequence[Finding]:
    """All anomalies of a run, the most important first."""
    return [*counter_findings(run), *_slower_than_class(run), *point_findings(run.points), *_expensive_contexts(run)]


def _slower_than_class(run: Run) -> list[Finding]:
    """Paths that are slower than their class. The machine description defines the classes."""
    kinds: dict[str, list[SlowPath]] = {}
    for slow in slow_paths(run):
        kinds.setdefault(slow.kind, []).append(slow)
    found = []
    for of_kind in kinds.values():
        slow, *others = sorted(of_kind, key=lambda slow: -slow.low)
        text = (
            f"{slow.path.replace('->', ' -> ')} is slower than its class ({slow.kind}; {slow.members} paths): "
            f"{slow.ratio:.3f} times the time of the median path [{slow.low:.3f}, {slow.high:.3f}] in "
            f"{point_text(slow.point)}; seen in {count_text(slow.operations, 'operation')}"
        )
        if others:
            ratios = f"{min(one.ratio for one in others):.3f} to {max(one.ratio for one in others):.3f} times"
            text += f". Also slow: {', '.join(one.path.replace('->', ' -> ') for one in others)}: {ratios}"
        found.append(Finding("slower than its class", text, tuple(one.point.id for one in (slow, *others))))
    return found


def point_findings(points: Iterable[Point]) -> list[Finding]:
    """All anomalies of single points and curves, the most important first."""
    listed = list(points)
    made = curves(listed)
    batched = [curve for curve in without_sweeps(made) if curve.batched]  # a sweep includes too few blocks by design
    on_points: list[Callable[[Sequence[Point]], list[Finding]]] = [_throttled, _between_rounds, _two_modes]
    on_curves: list[Callable[[Sequence[Curve]], list[Finding]]] = [
        classes_of_pairs, without_peer_access, contending_directions, _slow_paths, _far_below_peak, _dips,
    ]  # fmt: skip
    found = [finding for rule in on_curves for finding in rule(batched)]
    found += [finding for rule in on_points for finding in rule(listed)]
    return found + _single_copy_findings(made)


def _slow_paths(batched: Sequence[Curve]) -> list[Finding]:
    """Paths slower than most others with the same method and peak; one finding for each pair of places."""
    classes: dict[object, list[tuple[Curve, Point]]] = {}
    for curve, best in with_best(batched):
        if curve.without_total():
            continue  # a best rate at a small size cannot be compared with one at a large size
        limit = float(f"{best.limit_gbps:.3g}") if best.limit_gbps else None
        classes.setdefault((curve.method, limit), []).append((curve, best))
    slow: dict[object, list[tuple[float, str, str]]] = {}
    for members in classes.values():
        for curve, best, median_rate in _outliers(members):
            ratio = (total(best)) / median_rate
            text = (
                f"{curve.path} is slow for {method_text(curve.method)}: {format_rate(total(best))} at "
                f"{format_bytes(best.bytes)}, {format_fraction(1 - ratio)} below the median of "
                f"{count_text(len(members), 'path')} with the same peak ({format_rate(median_rate)})"
            )
            slow.setdefault((curve.path, curve.method.family), []).append((ratio, text, best.id))
    return [worst("slow path", entries) for entries in slow.values()]


def _outliers(members: Sequence[tuple[Curve, Point]]) -> list[tuple[Curve, Point, float]]:
    if len(members) < 3:
        return []
    median_rate = statistics.median(total(best) for _, best in members)
    reference = min((best for _, best in members), key=lambda best: abs(total(best) - median_rate))
    slow = [(curve, best, median_rate) for curve, best in members if total(best) < median_rate * (1 - SLOW)]
    slow = [entry for entry in slow if not alike_points(entry[1], reference)]
    return slow if len(slow) <= MINORITY * len(members) else []


def _far_below_peak(batched: Sequence[Curve]) -> list[Finding]:
    """Families whose best rate is below half of the peak; one finding for each family and direction."""
    groups: dict[object, list[tuple[float, str, str]]] = {}
    for curve, best in with_best(batched):
        share, rate = share_of(best), rate_of(best)
        if share is None or rate is None or share >= FAR_BELOW or not _can_reach_peak(curve):
            continue
        text = (
            f"{method_text(curve.method)} on {curve.path} reaches {format_fraction(share)} of peak: "
            f"{format_rate(rate.value)} of {format_rate(best.limit_gbps)} at {format_bytes(best.bytes)}"
        )
        groups.setdefault((curve.method.family, best.bidirectional), []).append((share, text, best.id))
    return [worst("below half of peak", entries) for entries in groups.values()]


def _can_reach_peak(curve: Curve) -> bool:
    """Whether the largest size takes several times the set-up time of a copy at peak rate."""
    largest = max(curve.measured, key=lambda point: point.bytes)
    return largest.limit_gbps is not None and largest.bytes >= ENOUGH_S * largest.limit_gbps * 1e9


def _dips(batched: Sequence[Curve]) -> list[Finding]:
    """Sizes at which a path is slower than at a smaller size; one finding for each family."""
    groups: dict[Family, list[tuple[float, str, str]]] = {}
    for dip in dips(batched):
        groups.setdefault(dip.curve.method.family, []).append((-dip.lost, dip_text(dip), dip.point.id))
    return [worst("dip", entries) for entries in groups.values()]


def _between_rounds(points: Sequence[Point]) -> list[Finding]:
    """Points whose rounds differ much more than the samples of one round; one finding for each family."""
    groups: dict[tuple[str, ...], list[tuple[float, str, str]]] = {}
    for point in points:
        spread = point.spread
        if spread is None or spread.between_rounds < max(NOTABLE, BETWEEN * spread.within_rounds):
            continue
        if (between_medians(point) or 0.0) < NOTABLE:
            continue  # outliers move the means, from which this spread is computed, but not the medians
        text = (
            f"{point_text(point)} varies by {format_fraction(spread.between_rounds)} between rounds but only by "
            f"{format_fraction(spread.within_rounds)} within a round: the value depends on the process"
        )
        groups.setdefault(_family_key(point), []).append((-spread.between_rounds, text, point.id))
    return [worst("spread between rounds", entries, "point") for entries in groups.values()]


def _two_modes(points: Sequence[Point]) -> list[Finding]:
    """Points whose samples have two modes; one finding for each family."""
    groups: dict[tuple[str, ...], list[tuple[float, str, str]]] = {}
    for point in points:
        if point.spread is None or point.spread.modes_s is None:
            continue
        low, high = point.spread.modes_s
        if low <= 0:
            continue  # noise exceeds the time, of which the cost of the batch was subtracted
        if high - low <= low * point.precision_target:
            continue  # the difference is within the target precision
        text = f"{point_text(point)} has two modes, {format_seconds(low)} and {format_seconds(high)}"
        groups.setdefault(_family_key(point), []).append((-high / low, text, point.id))
    return [worst("two modes", entries, "point") for entries in groups.values()]


def _expensive_contexts(run: Run) -> list[Finding]:
    """GPU contexts in which every operation costs more for the life of the context."""
    entries = []
    kept = 0
    for gpu, tallies in sorted(run.contexts().items(), key=lambda item: natural(item[0])):
        costs = [(tally.dear_s, tally.kept_s) for tally in tallies if tally.dear_s is not None]
        kept += sum(tally.dear_kept for tally in tallies)
        if costs:
            more, usual = max((expensive - kept, kept) for expensive, kept in costs)
            made, expensive = sum(tally.made for tally in tallies), sum(tally.dear for tally in tallies)
            entries.append(f"{gpu}: {expensive} of {made}, {format_seconds(more)} more than {format_seconds(usual)}")
    if not entries:
        return []
    text = (
        f"operations cost more in some GPU contexts than in others, and a program cannot choose its context "
        f"({'; '.join(entries)}). The values come from cheap contexts: an operation may take that much longer"
    )
    if kept:
        text += f". {count_text(kept, 'platform')} could only be measured in expensive contexts"
    return [Finding("contexts", text, ())]


def _throttled(points: Sequence[Point]) -> list[Finding]:
    ids = tuple(point.id for point in points if "throttled" in point.guards or "throttled_rounds" in point.guards)
    text = f"a GPU was throttled during {count_text(len(ids), 'point')}. The run file keeps those samples apart"
    return [Finding("throttled", text, ids)] if ids else []


def _single_copy_findings(made: Sequence[Curve]) -> list[Finding]:
    """The extra cost of a single copy over a batched one, at small sizes; one finding for each family."""
    batched = {(c.path, c.method, p.bytes): p for c in made if c.batched for p in c.measured}
    groups: dict[Family, list[tuple[float, str, str]]] = {}
    for curve in made:
        for point in () if curve.batched else curve.measured:
            other = batched.get((curve.path, curve.method, point.bytes))
            if other is None or point.bytes > SMALL or point.median_s is None or other.median_s is None:
                continue
            extra = point.median_s - other.median_s
            text = (
                f"{point_text(point)} costs {format_seconds(extra)} more as a single copy "
                f"({format_seconds(point.median_s)}) than in a batch ({format_seconds(other.median_s)})"
            )
            if extra > SINGLE_EXTRA_S:
                groups.setdefault(curve.method.family, []).append((-extra, text, point.id))
    return [worst("cost of a single copy", entries, "point") for entries in groups.values()]


def _family_key(point: Point) -> tuple[str, ...]:
    return (point.benchmark, point.engine, point.src_memory, point.dst_memory)
