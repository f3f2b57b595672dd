"""What to measure next where paths form classes: a pure function of the plan, the points and the time left.

1. Of every curve the representative at all sizes, the others at three: three rounds each.
2. Together, since every pass through the machine costs opening it: who differs from the representative leads a class
   of its own, and has its own curve; who is like it inherits. One of these has all sizes too, as an audit. More sizes
   where a leader's curve bends. Paths at once, to find what they share (interference.py). Inherited points until most
   of the map is measured. More rounds for what missed its precision, as far as a point's share of the budget goes, and
   for what has three that agree although those of its likes do not. The plan is asked whenever a point is done: what
   that gives reason for joins what is under way, and so does what missed its precision, whatever its share.
3. With the time that is left more rounds for what missed its precision, cheap points first; then inherited points are
   measured after all, and more paths at once.

Which inherited points come first: what an interval gains by a second decides.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from linkscope.plan.cases import pages_move
from linkscope.plan.classes import ClassCurve, class_curves, operation, path_text
from linkscope.plan.curve import GRID, Timed, bracketing_sizes, finer_sizes
from linkscope.plan.interference import next_together, where_there_is_time
from linkscope.plan.plan import Plan, usual_precision
from linkscope.plan.recall import Recall
from linkscope.plan.shares import lacking, late_rounds, opening_s, rounds_s, share_s, that_fit, unlike_others, wanted
from linkscope.plan.suites import MOST_MANAGED
from linkscope.plan.work import NOTHING, Underway, Work
from linkscope.runfile import Flow, Point, PointId, half_width
from linkscope.stats import EARLY_ROUNDS, Likeness, clusters, doubts, geometric_mean

MARGIN = 0.03  # what still counts as alike
LEVEL = 0.01  # of a whole curve: how often members that are alike are told apart
CHUNK = 0.6  # of the time left: what is given out at once, by costs that are not exactly known
BESIDE = 0.3  # the same, while paths at once go on telling which others to look at
_FINER = 0.5  # of the share of a point: what one may cost that is there for the shape of a curve
_BRACKET = 2.0  # the same where the curve breaks: there are few such sizes, and nothing else tells what is between
MOST = 0.72  # of the points of a map: what is measured before more rounds have all the time left
_LEAST_WIDTH = 0.2  # intervals are worth something, however narrow they are already


@dataclass(frozen=True)
class Takeover:
    """A point that takes over the value of another: its interval is widened by what the members may differ by."""

    id: str
    source: str
    low: float  # by how much less than the source's interval the value may be, as a factor
    high: float
    shown: bool  # whether the members were shown to be alike; else only not to differ


def staged_work(plan: Plan, points: Mapping[str, Point], left_s: float, underway: Underway = NOTHING) -> list[Work]:
    """What to measure next beside what is under way; nothing once the time does not suffice for more."""
    if lacking_of := [id for curve in _curves(plan) for id in _skeleton(curve) if id not in points]:
        return [Work(id, EARLY_ROUNDS) for id in underway.new(lacking_of)]
    left_s -= underway.seconds + underway.passes * opening_s(plan)
    told = _told(plan, points)
    full = [id for of in told for id in of.lacking]
    at_once = next_together(plan.together, points)
    beside = underway.beside(dict.fromkeys(underway.new([*full, *at_once]), EARLY_ROUNDS))
    inheriting = [takeover for of in told for takeover in of.takeovers]
    offers = [offer for offer in _offers(inheriting, points) if offer.id not in beside.rounds]
    offers = offers[: _wanted_measured(plan, {*points, *beside.rounds})]
    inherited = _those_with_time(plan, offers, left_s * BESIDE if at_once else left_s, beside)
    beside = beside.beside({offer.id: EARLY_ROUNDS for offer in inherited})
    new = [Work(id, EARLY_ROUNDS) for id in beside.rounds if id not in underway.rounds]
    # That most of the map is measured comes before more rounds.
    room = left_s * (BESIDE if at_once else CHUNK if beside.rounds else 1.0) - sum(offer.cost_s for offer in inherited)
    unlike = unlike_others(plan, points)
    more = that_fit(plan, points, wanted(plan, points, unlike), room, beside)
    if new or more or underway.rounds:
        # A pass costs as much as many rounds: what else missed its precision shares those that there are.
        every = beside.beside(lacking(points, more))
        room -= rounds_s(points, more) + (every.passes - beside.passes) * opening_s(plan)
        return new + more + that_fit(plan, points, late_rounds(plan, points, unlike), room, every)
    return (
        that_fit(plan, points, late_rounds(plan, points, unlike), left_s)
        or [Work(offer.id, EARLY_ROUNDS) for offer in _those_with_time(plan, _offers(inheriting, points), left_s)]
        or _more_at_once(plan, points, left_s)
    )


def takeovers(plan: Plan, points: Mapping[str, Point]) -> list[Takeover]:
    """The points of the plan that were not measured, as far as a member of their class was."""
    return [takeover for of in _told(plan, points) for takeover in of.takeovers]


def left_over(plan: Plan, points: Mapping[str, Point]) -> dict[str, str | None]:
    """The points of the plan that have no record in the end, and why not where another size of the path tells: what it
    says is unsupported. None: there was no time."""
    found: dict[str, str | None] = {}
    for curve in _curves(plan):
        for ids in curve.ids.values():
            known = [points[id] for id in ids.values() if id in points]
            reason = next((point.reason for point in known if point.status == "unsupported"), None)
            found |= {id: reason for id in ids.values() if id not in points}
    return found


def likeness(plan: Plan, curve: ClassCurve, points: Mapping[str, Point]) -> dict[str, Likeness]:
    """How the members of a curve stand to each other, by all that was measured of them."""
    rounds = {member: _round_medians(curve.ids[member], points) for member in curve.members}
    known = {member: of for member, of in rounds.items() if of}
    return clusters(curve.members, known, lambda size: margin(plan, size), LEVEL)


def margin(plan: Plan, size: int) -> float:
    """What still counts as alike: 3 %, or what is asked of the values themselves where that is more."""
    return max(MARGIN, usual_precision(size) if plan.precision is None else plan.precision)


def expected_ids(plan: Plan) -> tuple[list[str], list[str]]:
    """The points that will be measured in any case, and those that are when the budget has time for them."""
    sure = dict.fromkeys(id for curve in _curves(plan) for id in (*_skeleton(curve), *_audited(curve)))
    at_once = [one.id for one in plan.together if one.first]
    return [*sure, *at_once], [id for id in plan.points if id not in sure]


def representatives(plan: Plan) -> dict[str, str]:
    """For every other member's points, that of the representative at the same size."""
    return {
        id: curve.ids[curve.representative][size]
        for curve in _curves(plan)
        for member in curve.members[1:]
        for size, id in curve.ids[member].items()
        if size in curve.ids[curve.representative]
    }


@dataclass(frozen=True)
class _Told:
    """What the points of a curve say: who takes over whose values, and which points of its leaders are lacking."""

    takeovers: Sequence[Takeover]
    lacking: Sequence[str]


_RECALL = Recall(most=1 << 14)  # curves: 900 on sixteen GPUs


def _curves(plan: Plan) -> Sequence[ClassCurve]:
    if not plan.classes:
        return ()
    return _RECALL("curves", (plan,), lambda: class_curves(plan.points, plan.classes, plan.order_seed))


def _told(plan: Plan, points: Mapping[str, Point]) -> list[_Told]:
    """By curve."""
    of_path: dict[tuple[str, str], dict[str, Point]] = defaultdict(dict)
    for id, point in points.items():
        of_path[_operation_and_path(id)][id] = point
    found = []
    for curve in _curves(plan):
        of = {id: point for member in curve.members for id, point in of_path.get((curve.name, member), {}).items()}
        found.append(_RECALL((curve.name, curve.kind), (plan, of), functools.partial(_told_by, plan, curve, of)))
    return found


def _told_by(plan: Plan, curve: ClassCurve, points: Mapping[str, Point]) -> _Told:
    alike = likeness(plan, curve, points)
    return _Told(_inheriting(curve, alike, points), _lacking_of_leaders(plan, curve, alike, points))


@functools.lru_cache(maxsize=1 << 16)
def _operation_and_path(id: str) -> tuple[str, str]:
    point = PointId.parse(id)
    return operation(point), path_text(point)


def _skeleton(curve: ClassCurve) -> list[str]:
    """All sizes of the representative; the checks of the others."""
    found = [curve.ids[curve.representative][size] for size in curve.sizes]
    return found + [curve.ids[member][size] for member in curve.members[1:] for size in _checks_of(curve, member)]


def _audited(curve: ClassCurve) -> list[str]:
    return [] if curve.audit is None else [id for _, id in sorted(curve.ids[curve.audit].items())]


def _checks_of(curve: ClassCurve, member: str) -> list[int]:
    return [size for size in curve.checks if size in curve.ids[member]]


def _lacking_of_leaders(
    plan: Plan, curve: ClassCurve, alike: Mapping[str, Likeness], points: Mapping[str, Point]
) -> list[str]:
    """All sizes of each cluster's leader, those of the audit that there is time for, and finer ones at bends; but for
    those that there are."""
    known = _curve_of(curve, curve.representative, points)
    found = [id for id in _audited(curve) if _fits(plan, known, PointId.parse(id).bytes)]
    for leader in dict.fromkeys(of.leader for of in alike.values()):
        base = [curve.ids[leader][size] for size in sorted(curve.ids[leader])]
        if missing := [id for id in base if id not in points]:
            found += missing
            continue
        measured = _curve_of(curve, leader, points)
        finer = [curve.id_of(leader, size) for size in _finer(plan, measured)]
        found += [id for id in finer if PointId.parse(id).bytes <= MOST_MANAGED or not pages_move(PointId.parse(id))]
    return [id for id in found if id not in points]


def _finer(plan: Plan, measured: Mapping[int, Timed]) -> list[int]:
    """The sizes that the shape of a curve gives reason for, as far as there is time."""
    bracketing = set(bracketing_sizes(measured))
    shares = {size: _BRACKET if size in bracketing else _FINER for size in finer_sizes(measured)}
    return [size for size, share in shares.items() if _fits(plan, measured, size, share)]


def _fits(plan: Plan, measured: Mapping[int, Timed], size: int, of_share: float = _FINER) -> bool:
    """Whether there is time for the first rounds of a size, whatever more of them measured ones had for their
    precision: a dear one is not measured for a curve's shape alone, nor as audit."""
    above = min((at for at in measured if at >= size), default=None)
    if above is not None:
        cost_s = measured[above].cost_s
    else:
        largest = max(measured, default=0)
        cost_s = measured[largest].cost_s * size / largest if largest else math.inf
    return cost_s <= of_share * share_s(plan)


def _curve_of(curve: ClassCurve, member: str, points: Mapping[str, Point]) -> dict[int, Timed]:
    """What was measured of a member, finer sizes too."""
    known = [points.get(curve.id_of(member, size)) for size in sorted({*curve.ids[member], *GRID})]
    measured = [point for point in known if point is not None and point.median_s and point.status != "inherited"]
    unsure = doubts([point.flows[0].round_medians_s for point in measured], [half_width(point) for point in measured])
    return {
        point.bytes: Timed(point.median_s or 0.0, doubt, _early_s(point))
        for point, doubt in zip(measured, unsure, strict=True)
    }


@dataclass(frozen=True)
class _Offer:
    """An inherited point that could be measured: what that gains, per second, and costs."""

    id: str
    gain: float
    cost_s: float


def _offers(takeovers: Iterable[Takeover], points: Mapping[str, Point]) -> list[_Offer]:
    """The best first."""
    found = []
    for one in takeovers:
        source = points[one.source]
        width = _width(source) + (one.high - one.low) / 2
        gain = max(_LEAST_WIDTH, min(width / source.precision_target, 1 / _LEAST_WIDTH))
        cost_s = _early_s(source)
        found.append(_Offer(one.id, gain / max(cost_s, 1e-9), cost_s))
    return sorted(found, key=lambda offer: (-offer.gain, offer.id))


def _wanted_measured(plan: Plan, measured: Set[str]) -> int:
    """How many points are missing until most of the map is measured."""
    return max(0, math.ceil(MOST * len(plan.points)) - len(measured & set(plan.points)))


def _those_with_time(plan: Plan, offers: Sequence[_Offer], left_s: float, underway: Underway = NOTHING) -> list[_Offer]:
    """As many as there is time for."""
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


def _more_at_once(plan: Plan, points: Mapping[str, Point], left_s: float) -> list[Work]:
    """Of the paths to run at once that nothing gives reason for as many as there is time for."""
    each = max([points[of.id].device_s for of in plan.together if of.id in points], default=0.0)
    room = left_s - EARLY_ROUNDS * opening_s(plan)
    ids = where_there_is_time(plan.together, points)
    count = len(ids) if len(ids) * each <= room / 2 else int(CHUNK * room / max(each, 1e-9))
    return [Work(id, EARLY_ROUNDS) for id in ids[: max(0, count)]]


def _inheriting(curve: ClassCurve, alike: Mapping[str, Likeness], points: Mapping[str, Point]) -> list[Takeover]:
    found = []
    for member in curve.members:
        of = alike.get(member)
        if of is None or of.leader == member:
            continue
        for size, id in sorted(curve.ids[member].items()):
            source = curve.ids[of.leader].get(size)
            if id in points or source is None or source not in points or points[source].ci95_s is None:
                continue
            low, high = _stretch(curve, of, alike, points, size)
            found.append(Takeover(id, source, low, high, of.verdict == "same"))
    return found


def _stretch(
    curve: ClassCurve, of: Likeness, alike: Mapping[str, Likeness], points: Mapping[str, Point], size: int
) -> tuple[float, float]:
    """How much less and more than its leader a member may take at a size where it was not measured.

    What its checks on both sides leave open, and what the audit shows that members of this class do differ by.
    """
    checked = sorted(of.contrasts)
    beside = [*[at for at in checked if at <= size][-1:], *[at for at in checked if at >= size][:1]]
    ends = [of.contrasts[at].ends(0.95) for at in dict.fromkeys(beside)]
    leader = points[curve.ids[of.leader][size]]
    for member, other in alike.items():
        point = points.get(curve.ids[member].get(size, ""))
        if point is None or point.status == "inherited" or member == of.leader or other.leader != of.leader:
            continue
        if point.ci95_s and leader.median_s:
            ends.append((point.ci95_s[0] / leader.median_s, point.ci95_s[1] / leader.median_s))
    return min([1.0, *(low for low, _ in ends)]), max([1.0, *(high for _, high in ends)])


def _round_medians(ids: Mapping[int, str], points: Mapping[str, Point]) -> dict[int, list[float]]:
    """By size, the medians of the rounds; of several flows their geometric mean."""
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


def _early_s(point: Point) -> float:
    """What the first rounds of a point like it take."""
    return point.device_s * EARLY_ROUNDS / max(_have(point), EARLY_ROUNDS)


def _have(point: Point) -> int:
    return len(point.flows[0].round_medians_s) if point.flows else 0
