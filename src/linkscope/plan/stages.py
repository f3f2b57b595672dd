"""Decides what to measure next in plans with classes: a pure function of plan, points and remaining time.

1. The representative of every curve gets three rounds at all sizes, the other members get three rounds at three sizes.
2. Further work is combined, because every pass through the machine has a fixed cost. A member that differs from the
   representative leads a class of its own, with its own curve; similar members inherit. One of them, the audit, has
   all sizes. Curves of leaders get more sizes at bends. Concurrent flows reveal shared links (interference.py).
   Inherited points are measured until most of the map is. Points that missed their precision get more rounds within
   their share, and so do points that make a path look slow. The supervisor asks after every pass in which a point was
   done, and the new work joins the unfinished points.
3. In the remaining time, points that missed their precision get more rounds, cheap points first. Then inherited points
   and more concurrent flows are measured.

Inherited points are ranked by the gain in precision per second.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from linkscope.plan.cases import pages_move
from linkscope.plan.classes import ClassCurve, class_curves, operation, path_text
from linkscope.plan.curve import GRID, Timed, bracketing_sizes, finer_sizes
from linkscope.plan.interference import further_pairs, next_together
from linkscope.plan.plan import Plan, usual_precision
from linkscope.plan.recall import Recall
from linkscope.plan.shares import (
    affordable_rounds,
    lacking,
    late_rounds,
    opening_s,
    rounds_s,
    share_s,
    wanted,
)
from linkscope.plan.suite_rules import MOST_MANAGED
from linkscope.plan.work import NOTHING, Underway, Work
from linkscope.runfile import Flow, Point, PointId, half_width
from linkscope.stats import EARLY_ROUNDS, Similarity, clusters, doubts, geometric_mean

MARGIN = 0.03  # difference up to which members count as alike
LEVEL = 0.01  # probability, for a whole curve, of separating similar members
CHUNK = 0.6  # fraction of the remaining time that is planned in one step, since costs are estimates
BESIDE = 0.3  # the same while concurrent flows may need more time
_FINER = 0.5  # fraction of a point's share that a size may cost if it only refines the curve
_BRACKET = 2.0  # the same at a break, where few sizes exist and nothing else shows the gap
MOST = 0.72  # fraction of a map that is measured before more rounds get all the time
_LEAST_WIDTH = 0.2  # least gain of a measurement, in units of the target precision


@dataclass(frozen=True)
class Inheritance:
    """A point that inherits the value of another. The possible difference between the members widens its interval."""

    id: str
    source: str
    low: float  # factor by which the value may lie below the source's interval
    high: float
    shown: bool  # whether checks showed that the members are alike; otherwise they only showed no difference


def staged_work(plan: Plan, points: Mapping[str, Point], left_s: float, underway: Underway = NOTHING) -> list[Work]:
    """Returns the next work in addition to the unfinished points; empty if the time is too short for more."""
    if missing_of := [id for curve in _curves(plan) for id in _skeleton(curve) if id not in points]:
        return [Work(id, EARLY_ROUNDS) for id in underway.new(missing_of)]
    left_s -= underway.seconds + underway.passes * opening_s(plan)
    consequences = _consequences(plan, points)
    full = [id for of in consequences for id in of.lacking]
    concurrent = next_together(plan.together, points)
    beside = underway.beside(dict.fromkeys(underway.new([*full, *concurrent]), EARLY_ROUNDS))
    inheriting = [inheritance for of in consequences for inheritance in of.inheritances]
    offers = [offer for offer in _offers(inheriting, points) if offer.id not in beside.rounds]
    offers = offers[: _missing_measurements(plan, {*points, *beside.rounds})]
    inherited = _offers_in_time(plan, offers, left_s * BESIDE if concurrent else left_s, beside)
    beside = beside.beside({offer.id: EARLY_ROUNDS for offer in inherited})
    new = [Work(id, EARLY_ROUNDS) for id in beside.rounds if id not in underway.rounds]
    # Measuring most of the map comes before more rounds.
    room = left_s * (BESIDE if concurrent else CHUNK if beside.rounds else 1.0) - sum(
        offer.cost_s for offer in inherited
    )
    more = affordable_rounds(plan, points, wanted(plan, points), room, beside)
    if new or more or underway.rounds:
        # A pass costs as much as many rounds, so points that missed their precision share the planned passes.
        every = beside.beside(lacking(points, more))
        room -= rounds_s(points, more) + (every.passes - beside.passes) * opening_s(plan)
        return new + more + affordable_rounds(plan, points, late_rounds(plan, points), room, every)
    return (
        affordable_rounds(plan, points, late_rounds(plan, points), left_s)
        or [Work(offer.id, EARLY_ROUNDS) for offer in _offers_in_time(plan, _offers(inheriting, points), left_s)]
        or _more_concurrent(plan, points, left_s)
    )


def inheritances(plan: Plan, points: Mapping[str, Point]) -> list[Inheritance]:
    """Returns the unmeasured points of the plan for which a member of their class was measured."""
    return [inheritance for of in _consequences(plan, points) for inheritance in of.inheritances]


def left_over(plan: Plan, points: Mapping[str, Point]) -> dict[str, str | None]:
    """Returns the points of the plan without a record, with the reason if another size of the path is unsupported.
    None: no time was left."""
    found: dict[str, str | None] = {}
    for curve in _curves(plan):
        for ids in curve.ids.values():
            known = [points[id] for id in ids.values() if id in points]
            reason = next((point.reason for point in known if point.status == "unsupported"), None)
            found |= {id: reason for id in ids.values() if id not in points}
    return found


def similarity(plan: Plan, curve: ClassCurve, points: Mapping[str, Point]) -> dict[str, Similarity]:
    """Returns how the members of a curve relate, judged by all their measurements."""
    rounds = {member: _round_medians(curve.ids[member], points) for member in curve.members}
    known = {member: of for member, of in rounds.items() if of}
    return clusters(curve.members, known, lambda size: margin(plan, size), LEVEL)


def margin(plan: Plan, size: int) -> float:
    """Returns the difference up to which members count as alike: 3 %, or the target precision if that is wider."""
    return max(MARGIN, usual_precision(size) if plan.precision is None else plan.precision)


def expected_ids(plan: Plan) -> tuple[list[str], list[str]]:
    """Returns the ids that are measured in any case, and those that are measured if the budget allows."""
    sure = dict.fromkeys(id for curve in _curves(plan) for id in (*_skeleton(curve), *_audited(curve)))
    concurrent = [one.id for one in plan.together if one.first]
    return [*sure, *concurrent], [id for id in plan.points if id not in sure]


def representatives(plan: Plan) -> dict[str, str]:
    """Returns the representative's point at the same size, for each point of the other members."""
    return {
        id: curve.ids[curve.representative][size]
        for curve in _curves(plan)
        for member in curve.members[1:]
        for size, id in curve.ids[member].items()
        if size in curve.ids[curve.representative]
    }


@dataclass(frozen=True)
class _Consequences:
    """The consequences of a curve's measured points: which points inherit, and which points of leaders are missing."""

    inheritances: Sequence[Inheritance]
    lacking: Sequence[str]


_RECALL = Recall(most=1 << 14)  # curves: 900 for sixteen GPUs


def _curves(plan: Plan) -> Sequence[ClassCurve]:
    if not plan.classes:
        return ()
    return _RECALL("curves", (plan,), lambda: class_curves(plan.points, plan.classes, plan.order_seed))


def _consequences(plan: Plan, points: Mapping[str, Point]) -> list[_Consequences]:
    """Returns the consequences of every curve."""
    of_path: dict[tuple[str, str], dict[str, Point]] = defaultdict(dict)
    for id, point in points.items():
        of_path[_operation_and_path(id)][id] = point
    found = []
    for curve in _curves(plan):
        of = {id: point for member in curve.members for id, point in of_path.get((curve.name, member), {}).items()}
        found.append(
            _RECALL((curve.name, curve.kind), (plan, of), functools.partial(_consequences_of, plan, curve, of))
        )
    return found


def _consequences_of(plan: Plan, curve: ClassCurve, points: Mapping[str, Point]) -> _Consequences:
    similarities = similarity(plan, curve, points)
    return _Consequences(
        _inheriting(curve, similarities, points), _lacking_of_leaders(plan, curve, similarities, points)
    )


@functools.lru_cache(maxsize=1 << 16)
def _operation_and_path(id: str) -> tuple[str, str]:
    point = PointId.parse(id)
    return operation(point), path_text(point)


def _skeleton(curve: ClassCurve) -> list[str]:
    """Returns all sizes of the representative, and the checks of the others."""
    found = [curve.ids[curve.representative][size] for size in curve.sizes]
    return found + [curve.ids[member][size] for member in curve.members[1:] for size in _checks_of(curve, member)]


def _audited(curve: ClassCurve) -> list[str]:
    return [] if curve.audit is None else [id for _, id in sorted(curve.ids[curve.audit].items())]


def _checks_of(curve: ClassCurve, member: str) -> list[int]:
    return [size for size in curve.checks if size in curve.ids[member]]


def _lacking_of_leaders(
    plan: Plan, curve: ClassCurve, similarities: Mapping[str, Similarity], points: Mapping[str, Point]
) -> list[str]:
    """Returns the missing points: all sizes of each leader, affordable sizes of the audit, and finer sizes at bends."""
    known = _curve_of(curve, curve.representative, points)
    found = [id for id in _audited(curve) if _is_affordable(plan, known, PointId.parse(id).bytes)]
    for leader in dict.fromkeys(of.leader for of in similarities.values()):
        base = [curve.ids[leader][size] for size in sorted(curve.ids[leader])]
        if missing := [id for id in base if id not in points]:
            found += missing
            continue
        measured = _curve_of(curve, leader, points)
        finer = [curve.id_of(leader, size) for size in _affordable_finer(plan, measured)]
        found += [id for id in finer if PointId.parse(id).bytes <= MOST_MANAGED or not pages_move(PointId.parse(id))]
    return [id for id in found if id not in points]


def _affordable_finer(plan: Plan, measured: Mapping[int, Timed]) -> list[int]:
    """Returns the affordable sizes that the shape of a curve suggests."""
    bracketing = set(bracketing_sizes(measured))
    shares = {size: _BRACKET if size in bracketing else _FINER for size in finer_sizes(measured)}
    return [size for size, share in shares.items() if _is_affordable(plan, measured, size, share)]


def _is_affordable(plan: Plan, measured: Mapping[int, Timed], size: int, of_share: float = _FINER) -> bool:
    """Returns whether the first rounds of a size are affordable. An expensive size is measured neither for a curve's
    shape nor as audit."""
    above = min((at for at in measured if at >= size), default=None)
    if above is not None:
        cost_s = measured[above].cost_s
    else:
        largest = max(measured, default=0)
        cost_s = measured[largest].cost_s * size / largest if largest else math.inf
    return cost_s <= of_share * share_s(plan)


def _curve_of(curve: ClassCurve, member: str, points: Mapping[str, Point]) -> dict[int, Timed]:
    """Returns the measurements of a member, including finer sizes."""
    known = [points.get(curve.id_of(member, size)) for size in sorted({*curve.ids[member], *GRID})]
    measured = [point for point in known if point is not None and point.median_s and point.status != "inherited"]
    unsure = doubts([point.flows[0].round_medians_s for point in measured], [half_width(point) for point in measured])
    return {
        point.bytes: Timed(point.median_s or 0.0, doubt, _first_rounds_s(point))
        for point, doubt in zip(measured, unsure, strict=True)
    }


@dataclass(frozen=True)
class _Offer:
    """An inherited point that could be measured: its gain per second, and its cost."""

    id: str
    gain: float
    cost_s: float


def _offers(inheritances: Iterable[Inheritance], points: Mapping[str, Point]) -> list[_Offer]:
    """Returns the offers, best first."""
    found = []
    for one in inheritances:
        source = points[one.source]
        width = _width(source) + (one.high - one.low) / 2
        gain = max(_LEAST_WIDTH, min(width / source.precision_target, 1 / _LEAST_WIDTH))
        cost_s = _first_rounds_s(source)
        found.append(_Offer(one.id, gain / max(cost_s, 1e-9), cost_s))
    return sorted(found, key=lambda offer: (-offer.gain, offer.id))


def _missing_measurements(plan: Plan, measured: Set[str]) -> int:
    """Returns the number of points that are missing until most of the map is measured."""
    return max(0, math.ceil(MOST * len(plan.points)) - len(measured & set(plan.points)))


def _offers_in_time(plan: Plan, offers: Sequence[_Offer], left_s: float, underway: Underway = NOTHING) -> list[_Offer]:
    """Returns the offers that fit into the time."""
    room = left_s - (max(0, EARLY_ROUNDS - underway.passes) * opening_s(plan) if offers else 0.0)
    everything = sum(offer.cost_s for offer in offers)
    room = room if everything <= room / 2 else room * CHUNK
    found, spent = [], 0.0
    for offer in offers:
        if spent + offer.cost_s > room:
            continue
        spent += offer.cost_s
        found.append(offer)
    return found


def _more_concurrent(plan: Plan, points: Mapping[str, Point], left_s: float) -> list[Work]:
    """Returns more concurrent flows without a particular reason, as the time allows."""
    each = max([points[of.id].device_s for of in plan.together if of.id in points], default=0.0)
    room = left_s - EARLY_ROUNDS * opening_s(plan)
    ids = further_pairs(plan.together, points)
    count = len(ids) if len(ids) * each <= room / 2 else int(CHUNK * room / max(each, 1e-9))
    return [Work(id, EARLY_ROUNDS) for id in ids[: max(0, count)]]


def _inheriting(
    curve: ClassCurve, similarities: Mapping[str, Similarity], points: Mapping[str, Point]
) -> list[Inheritance]:
    found = []
    for member in curve.members:
        of = similarities.get(member)
        if of is None or of.leader == member:
            continue
        for size, id in sorted(curve.ids[member].items()):
            source = curve.ids[of.leader].get(size)
            if id in points or source is None or source not in points or points[source].ci95_s is None:
                continue
            low, high = _factors(curve, of, similarities, points, size)
            found.append(Inheritance(id, source, low, high, of.verdict == "same"))
    return found


def _factors(
    curve: ClassCurve, of: Similarity, similarities: Mapping[str, Similarity], points: Mapping[str, Point], size: int
) -> tuple[float, float]:
    """Returns the factors by which a member may be faster or slower than its leader at a size without a measurement.

    The factors cover the uncertainty of its checks on both sides, and the difference that the audit shows.
    """
    checked = sorted(of.contrasts)
    beside = [*[at for at in checked if at <= size][-1:], *[at for at in checked if at >= size][:1]]
    ends = [of.contrasts[at].ends(0.95) for at in dict.fromkeys(beside)]
    leader = points[curve.ids[of.leader][size]]
    for member, other in similarities.items():
        point = points.get(curve.ids[member].get(size, ""))
        if point is None or point.status == "inherited" or member == of.leader or other.leader != of.leader:
            continue
        if point.ci95_s and leader.median_s:
            ends.append((point.ci95_s[0] / leader.median_s, point.ci95_s[1] / leader.median_s))
    return min([1.0, *(low for low, _ in ends)]), max([1.0, *(high for _, high in ends)])


def _round_medians(ids: Mapping[int, str], points: Mapping[str, Point]) -> dict[int, list[float]]:
    """Returns the round medians by size; for several flows, their geometric mean."""
    found = {}
    for size, id in ids.items():
        point = points.get(id)
        flows = [flow for flow in point.flows if flow.role == "measured"] if point and point.status in _VALUED else []
        rounds = [geometric_mean(of) for of in zip(*map(_positive, flows), strict=False)] if flows else []
        if rounds:
            found[size] = rounds
    return found


_VALUED = ("ok", "missed_precision")


def _positive(flow: Flow) -> list[float]:
    return [median for median in flow.round_medians_s if median > 0]


def _width(point: Point) -> float:
    width = half_width(point)
    return math.inf if width is None else width


def _first_rounds_s(point: Point) -> float:
    """Returns the seconds of the first rounds of a similar point."""
    return point.device_s * EARLY_ROUNDS / max(_have(point), EARLY_ROUNDS)


def _have(point: Point) -> int:
    return len(point.flows[0].round_medians_s) if point.flows else 0
