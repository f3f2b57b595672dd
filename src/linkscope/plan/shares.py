"""Decides how many rounds a point gets if all points share a budget.

Each point has a share of the budget. A point that cannot reach its precision within its share shows this early. The
remaining time goes to the points that missed their precision, cheap ones first.
"""

import functools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from linkscope.model.slow_paths import in_doubt
from linkscope.plan.classes import operation
from linkscope.plan.plan import Plan, precision_target
from linkscope.plan.recall import Recall
from linkscope.plan.work import NOTHING, Underway, Work
from linkscope.runfile import Flow, Point, PointId, half_width
from linkscope.stats import EARLY_ROUNDS, LOOKS, CiMethod, Noise, expected_rounds, next_look

SHARE = 6.0  # maximum cost of a point over the mean: cheap points leave time for expensive ones
MOST_ROUNDS = LOOKS[2]  # maximum while other points are unmeasured
CHEAP_SHARE = 0.05  # fraction of a point's share that further rounds may cost if the first three give little hope
_OPENING_S, _CONTEXT_S = 0.2, 0.15  # cost of another pass: its process, and each GPU (results/h200x4-standard-151s)
_SELECTION_S = 0.07  # cost of selecting a low-cost context: every other context is one
_GPU = re.compile(r"(?:host:\d+/)?gpu:\d+")
_RECALL = Recall(most=1 << 12)  # operations
_NO_MORE_ROUNDS = ("in_turn", "trend", "stopped", "throttled_rounds")  # guards of points that more rounds do not help


def share_s(plan: Plan) -> float:
    """Returns the seconds for all rounds of one point; infinite without a budget."""
    return math.inf if plan.budget_s is None else SHARE * plan.budget_s / max(1, len(plan.points))


def opening_s(plan: Plan) -> float:
    """Estimates the seconds to open the machine for another pass."""
    of_gpu = _CONTEXT_S + (_SELECTION_S if plan.alike_contexts else 0.0)
    return _OPENING_S + of_gpu * len(frozenset().union(*map(_gpus_of, plan.points)))


@functools.lru_cache(maxsize=1 << 16)  # called again after every measurement
def _gpus_of(id: str) -> frozenset[str]:
    return frozenset(_GPU.findall(id))


def rounds_in_share(plan: Plan, point: Point) -> int:
    """Returns the total number of rounds that the point needs, judged by its present ones."""
    medians = _medians(point)
    have = len(medians)
    if point.status not in ("ok", "missed_precision") or "stopped" in point.guards:
        return have
    if have < EARLY_ROUNDS:
        return EARLY_ROUNDS
    if point.status == "ok" or point.guards.keys() & {"in_turn", "trend"}:
        return have
    wanted = _look(plan, point)
    if wanted is None and have < LOOKS[1] and (LOOKS[1] - have) * _each_s(point) <= CHEAP_SHARE * share_s(plan):
        wanted = LOOKS[1]
    return wanted if wanted is not None and wanted <= min(MOST_ROUNDS, affordable(plan, point)) else have


def foreseen_rounds(plan: Plan, point: PointId, medians: Sequence[float], noise: Noise | None, each_s: float) -> float:
    """Returns the total number of rounds that a point with fewer than three is expected to need, judged by the noise
    of its family. `each_s`: the seconds of one of its rounds."""
    if noise is None or not plan.early:
        return EARLY_ROUNDS if plan.early else plan.rounds
    most = min(MOST_ROUNDS, _affordable(plan, each_s)) if plan.classes else plan.rounds
    return expected_rounds(noise, medians, precision_target(plan, point), most)


def affordable(plan: Plan, point: Point) -> int:
    """Returns the number of rounds within the point's share of the budget."""
    return _affordable(plan, _each_s(point))


def _affordable(plan: Plan, each_s: float) -> int:
    return int(min(share_s(plan) / each_s, 1e6)) if each_s > 0 else MOST_ROUNDS


def wanted(plan: Plan, points: Mapping[str, Point]) -> list[Work]:
    """Returns more rounds for points that missed their precision, within their share, and for slow paths."""
    slow = suspected_slow(plan, points)
    found = []
    for id, point in points.items():
        rounds = LOOKS[1] if id in slow and LOOKS[1] <= affordable(plan, point) else rounds_in_share(plan, point)
        if rounds > len(_medians(point)):
            found.append(Work(id, rounds))
    return found


def suspected_slow(plan: Plan, points: Mapping[str, Point]) -> set[str]:
    """Returns the points that need six rounds before they prove a path slow, and the points they are compared with.

    Processes may fall into modes. Three rounds of one mode are common, six are rare.
    """
    of_operation: dict[str, dict[str, Point]] = defaultdict(dict)
    for id, point in points.items():
        of_operation[_operation(id)][id] = point
    found: set[str] = set()
    for name, of in of_operation.items():
        found |= _RECALL(name, (plan, of), functools.partial(_suspected_slow, plan, of))
    return found


def _suspected_slow(plan: Plan, points: Mapping[str, Point]) -> set[str]:
    """Computes suspected_slow() for the points of one operation."""
    slow = in_doubt(points.values(), [set(of.paths) for of in plan.classes], LOOKS[1])
    return {id for id in slow if not points[id].guards.keys() & set(_NO_MORE_ROUNDS)}


@functools.lru_cache(maxsize=1 << 16)
def _operation(id: str) -> str:
    return operation(PointId.parse(id))


def late_rounds(plan: Plan, points: Mapping[str, Point]) -> Iterator[Work]:
    """Yields more rounds for points that missed their precision, whatever their share."""
    for id, point in points.items():
        have = len(_medians(point))
        if point.status != "missed_precision" or have < EARLY_ROUNDS or point.guards.keys() & set(_NO_MORE_ROUNDS):
            continue
        look = _look(plan, point)
        if look is not None:
            yield Work(id, look)


def affordable_rounds(
    plan: Plan, points: Mapping[str, Point], more: Iterable[Work], left_s: float, underway: Underway = NOTHING
) -> list[Work]:
    """Returns the cheapest of the additional rounds that fit into the remaining time, for finished points.

    Rounds beyond the planned passes also pay for opening the machine.
    """
    passes, opening = underway.passes, opening_s(plan)
    lacking = {work: _lacking(points, work) for work in more if work.id not in underway.rounds}
    cost = {work: rounds_s(points, [work]) for work in lacking}
    solo_s = {work: cost[work] + max(0, of - passes) * opening for work, of in lacking.items()}
    found: list[Work] = []
    spent = 0.0
    for work in sorted(lacking, key=lambda work: (solo_s[work], work.id)):
        spent += cost[work] + max(0, lacking[work] - passes) * opening
        passes = max(passes, lacking[work])
        if spent > left_s:
            break
        found.append(work)
    return found


def lacking(points: Mapping[str, Point], more: Iterable[Work]) -> dict[str, int]:
    """Returns the number of missing rounds of each point."""
    return {work.id: _lacking(points, work) for work in more}


def rounds_s(points: Mapping[str, Point], more: Iterable[Work]) -> float:
    """Returns the seconds of more rounds for finished points, without opening the machine."""
    return sum(_each_s(points[work.id]) * _lacking(points, work) for work in more)


def _lacking(points: Mapping[str, Point], work: Work) -> int:
    return work.rounds - len(_medians(points[work.id]))


def _look(plan: Plan, point: Point) -> int | None:
    """Returns the number of rounds that the worst flow needs; None if the target is out of reach."""
    flows = [flow for flow in point.flows if flow.role == "measured" and len(flow.round_medians_s) > 1]
    looks = [_look_of(flow, point.ci_method or "order_statistics", _target(plan, point)) for flow in flows]
    known = [look for look in looks if look is not None]
    return max(known) if known and len(known) == len(looks) else None


def _look_of(flow: Flow, method: str, target: float) -> int | None:
    width = half_width(flow)
    if width is None and len(flow.round_medians_s) < LOOKS[1]:
        return LOOKS[1]  # enough for an interval in any case
    return next_look(flow.round_medians_s, width or math.inf, cast(CiMethod, method), target)


def _target(plan: Plan, point: Point) -> float:
    return max(precision_target(plan, point), point.precision_target)


def _medians(point: Point) -> list[float]:
    return point.flows[0].round_medians_s if point.flows else []


def _each_s(point: Point) -> float:
    return point.device_s / max(1, len(_medians(point)))
