"""How many rounds a point is worth where a budget is shared: each point has its share, and what cannot reach its
precision within that says so early. What time is left in the end goes to those that missed it, cheap ones first."""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from linkscope.model.odd import in_doubt
from linkscope.plan.classes import operation
from linkscope.plan.plan import Plan, precision_target
from linkscope.plan.recall import Recall
from linkscope.plan.work import NOTHING, Underway, Work
from linkscope.runfile import Point, PointId
from linkscope.stats import EARLY_ROUNDS, LOOKS, ODD_ROUNDS, agree, mostly, next_look

SHARE = 6.0  # of the budget over the number of points: cheap points leave time to dear ones
MOST_ROUNDS = LOOKS[2]  # while there are other points to measure
CHEAP = 0.05  # of its share: what a point's next look may cost where three rounds give little hope
ALIKE_BYTES = 32  # times: sizes that are nearer than that have noise of one kind
_OPENING_S, _CONTEXT_S = 0.2, 0.15  # of another pass: its process, and each GPU (results/h200x4-standard-151s)
_ALIKE_S = 0.07  # of making one that costs as little as others, where that is wanted: every other one does
_GPU = re.compile(r"(?:host:\d+/)?gpu:\d+")
_RECALL = Recall(most=1 << 12)  # operations
_ENDLESS = ("in_turn", "trend", "stopped", "throttled_rounds")  # guards of points that more rounds do not help


def share_s(plan: Plan) -> float:
    """Seconds that all rounds of one point may take; infinite without a budget."""
    return math.inf if plan.budget_s is None else SHARE * plan.budget_s / max(1, len(plan.points))


def opening_s(plan: Plan) -> float:
    """Seconds that opening the machine for another pass takes, roughly."""
    of_gpu = _CONTEXT_S + (_ALIKE_S if plan.alike_contexts else 0.0)
    return _OPENING_S + of_gpu * len(frozenset().union(*map(_gpus_of, plan.points)))


@functools.lru_cache(maxsize=1 << 16)  # asked again whenever something was measured
def _gpus_of(id: str) -> frozenset[str]:
    return frozenset(_GPU.findall(id))


def rounds_in_share(plan: Plan, point: Point) -> int:
    """How many rounds the point should have in all, seeing what it has."""
    medians = _medians(point)
    have = len(medians)
    if point.status not in ("ok", "missed_precision") or "stopped" in point.guards:
        return have
    if have < EARLY_ROUNDS:
        return EARLY_ROUNDS
    if point.status == "ok" or point.guards.keys() & {"in_turn", "trend"}:
        return have
    wanted = _look(plan, point)
    if have < LOOKS[1] and (LOOKS[1] - have) * _each_s(point) <= CHEAP * share_s(plan):
        wanted = LOOKS[1]
    return wanted if wanted is not None and wanted <= min(MOST_ROUNDS, affordable(plan, point)) else have


def affordable(plan: Plan, point: Point) -> int:
    """How many rounds the point's share of the budget allows."""
    each_s = _each_s(point)
    return int(min(share_s(plan) / each_s, 1e6)) if each_s > 0 else MOST_ROUNDS


def wanted(plan: Plan, points: Mapping[str, Point], unlike: Mapping[str, int] | None = None) -> list[Work]:
    """More rounds for what missed its precision, as far as its share goes, and for what is precise by chance alone.
    `unlike`: unlike_others() of the same points, where that is known."""
    unlike = unlike_others(plan, points) if unlike is None else unlike
    found = []
    for id, point in points.items():
        rounds = unlike.get(id, 0)
        if not rounds or rounds > affordable(plan, point):
            rounds = rounds_in_share(plan, point)
        if rounds > len(_medians(point)):
            found.append(Work(id, rounds))
    return found


def unlike_others(plan: Plan, points: Mapping[str, Point]) -> dict[str, int]:
    """The rounds that points should have which do otherwise than most of those like them; of those with three.

    Three rounds may agree by chance: of the points like this one most have three that do not. It takes six. And the
    other way round: the three do not agree, but those of most others do: one may be odd, and five tell. Alike are
    points of one operation of nearly the same size, on all paths. And no path is called slow by three rounds: where
    processes fall into modes these are of one by chance, which of six is rare.
    """
    of_operation: dict[str, dict[str, Point]] = defaultdict(dict)
    for id, point in points.items():
        of_operation[_operation(id)][id] = point
    found: dict[str, int] = {}
    for name, of in of_operation.items():
        found |= _RECALL(name, (plan, of), functools.partial(_unlike_others, plan, of))
    return found


def _unlike_others(plan: Plan, points: Mapping[str, Point]) -> dict[str, int]:
    """Of the points of one operation."""
    agreed: dict[int, list[bool]] = defaultdict(list)
    early: dict[str, int] = {}
    for point in points.values():
        medians = _medians(point)
        if point.status in ("ok", "missed_precision") and len(medians) >= EARLY_ROUNDS:
            agreed[point.bytes].append(agree(medians, _target(plan, point)))
            if len(medians) == EARLY_ROUNDS and not point.guards.keys() & set(_ENDLESS):
                early[point.id] = point.bytes
    calm = {size for size in set(early.values()) if mostly(_of_likes(agreed, size))}
    precise = {id: points[id].status == "ok" for id in early}
    found = {id: LOOKS[1] if precise[id] else ODD_ROUNDS for id, size in early.items() if precise[id] != (size in calm)}
    slow = in_doubt(points.values(), [set(of.paths) for of in plan.classes], LOOKS[1])
    return found | {id: LOOKS[1] for id in slow if not points[id].guards.keys() & set(_ENDLESS)}


@functools.lru_cache(maxsize=1 << 16)
def _operation(id: str) -> str:
    return operation(PointId.parse(id))


def _of_likes(agreed: Mapping[int, list[bool]], size: int) -> list[bool]:
    near = [at for at in agreed if size <= ALIKE_BYTES * at and at <= ALIKE_BYTES * size]
    return [told for at in near for told in agreed[at]]


def late_rounds(plan: Plan, points: Mapping[str, Point], unlike: Mapping[str, int] | None = None) -> Iterator[Work]:
    """More rounds for what missed its precision, whatever its share. `unlike`: as in wanted()."""
    unlike = unlike_others(plan, points) if unlike is None else unlike
    for id, point in points.items():
        have = len(_medians(point))
        if point.status != "missed_precision" or have < EARLY_ROUNDS or point.guards.keys() & set(_ENDLESS):
            continue
        look = unlike.get(id) or _look(plan, point)
        if look is not None:
            yield Work(id, look)


def that_fit(
    plan: Plan, points: Mapping[str, Point], more: Iterable[Work], left_s: float, underway: Underway = NOTHING
) -> list[Work]:
    """Of more rounds for points that have some and are not under way, cheap ones first, as many as there is time for;
    the passes that they take beyond those that are to come in any case open the machine, and count as theirs."""
    passes, opening = underway.passes, opening_s(plan)
    lacking = {work: _lacking(points, work) for work in more if work.id not in underway.rounds}
    cost = {work: rounds_s(points, [work]) for work in lacking}
    alone = {work: cost[work] + max(0, of - passes) * opening for work, of in lacking.items()}
    found: list[Work] = []
    spent = 0.0
    for work in sorted(lacking, key=lambda work: (alone[work], work.id)):
        spent += cost[work] + max(0, lacking[work] - passes) * opening
        passes = max(passes, lacking[work])
        if spent > left_s:
            break
        found.append(work)
    return found


def lacking(points: Mapping[str, Point], more: Iterable[Work]) -> dict[str, int]:
    """By point, the rounds that it lacks."""
    return {work.id: _lacking(points, work) for work in more}


def rounds_s(points: Mapping[str, Point], more: Iterable[Work]) -> float:
    """Seconds of more rounds for points that have some, but for opening the machine."""
    return sum(_each_s(points[work.id]) * _lacking(points, work) for work in more)


def _lacking(points: Mapping[str, Point], work: Work) -> int:
    return work.rounds - len(_medians(points[work.id]))


def _look(plan: Plan, point: Point) -> int | None:
    """The look that the worst of the flows needs; None where one is out of reach."""
    flows = [flow for flow in point.flows if flow.role == "measured" and len(flow.round_medians_s) > 1]
    looks = [next_look(flow.round_medians_s, _target(plan, point)) for flow in flows]
    known = [look for look in looks if look is not None]
    return max(known) if known and len(known) == len(looks) else None


def _target(plan: Plan, point: Point) -> float:
    return max(precision_target(plan, point), point.precision_target)


def _medians(point: Point) -> list[float]:
    return point.flows[0].round_medians_s if point.flows else []


def _each_s(point: Point) -> float:
    return point.device_s / max(1, len(_medians(point)))
