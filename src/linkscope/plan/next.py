"""Decides what to measure next. The supervisor asks after every completed point."""

import math
import random
from collections.abc import Container, Iterable, Mapping

from linkscope.plan.interference import next_together
from linkscope.plan.plan import LEAST_ROUNDS, Plan, precision_target
from linkscope.plan.shares import rounds_in_share
from linkscope.plan.stages import staged_work
from linkscope.plan.work import NOTHING, Underway, Work
from linkscope.runfile import Point, PointId
from linkscope.stats import EARLY_ROUNDS, median, more_rounds

EXTRA_ROUNDS = 3  # without a budget; with a budget, points may have twice the base rounds


def next_work(
    plan: Plan, points: Mapping[str, Point], left_s: float = math.inf, underway: Underway = NOTHING
) -> list[Work]:
    """Returns the work to add to the unfinished points; `points` includes earlier results of these.

    First, all points get their base rounds (or the rounds that may suffice). Then points that missed their precision
    get more, cheap ones first. Plans with classes follow stages.py with `left_s` seconds.
    """
    if plan.classes:
        return staged_work(plan, points, left_s, underway)
    if underway.rounds:
        return []
    first = EARLY_ROUNDS if plan.early else plan.rounds
    fresh = [Work(id, first) for id in plan.points if id not in points]
    if fresh:
        return fresh
    if concurrent := next_together(plan.together, points):
        return [Work(id, first) for id in concurrent]
    missed = [point for point in points.values() if rounds_wanted(plan, point) > len(_rounds(point))]
    return [Work(point.id, rounds_wanted(plan, point)) for point in sorted(missed, key=lambda p: (_cost(p), p.id))]


def rounds_wanted(plan: Plan, point: Point) -> int:
    """Returns the total number of rounds that the point needs, judged by its present ones."""
    if plan.classes:
        return rounds_in_share(plan, point)
    have = len(_rounds(point))
    if point.status not in ("ok", "missed_precision") or "stopped" in point.guards:
        return have
    if have < plan.rounds:
        return have if plan.early and point.status == "ok" else plan.rounds
    if point.status == "ok":
        return have
    if point.guards.keys() & {"in_turn", "trend"}:  # such flows or drifts repeat in every round
        return have
    at = plan.rounds
    while at < have:
        at = more_rounds(at)
    # A run that stopped between 6 and 9 rounds had decided on 9, so it continues to 9.
    return rounds_after(plan, have) if have < at or _within_reach(plan, point) else have


def _within_reach(plan: Plan, point: Point) -> bool:
    """Returns whether a few more rounds may bring the interval to the target. They help against one outlier, but not
    against a wide spread.

    More rounds let the interval exclude one more value at each end. If the interval without the present ends is too
    wide, it stays too wide: the second and fifth of six normal values lie 1.28 standard deviations apart, and the
    interval of nine rounds is 1.86 wide.
    """
    inner = sorted(_rounds(point))[1:-1]
    return not inner or inner[-1] - inner[0] <= 2 * precision_target(plan, point) * median(inner)


def rounds_after(plan: Plan, have: int) -> int:
    """Returns the total number of rounds for a point that missed its precision with `have` rounds."""
    if plan.rounds < LEAST_ROUNDS or not plan.more_rounds:
        return have
    most = plan.rounds * 2 if plan.budget_s is not None else plan.rounds + EXTRA_ROUNDS
    wanted = more_rounds(have)
    return wanted if wanted <= most else have


def in_order(plan: Plan, ids: Iterable[str], round_number: int, last: Container[str] = ()) -> list[str]:
    """Returns the points in a random order for one round. Points of one `peer` setting stay together, because changing
    it is slow. Work alone comes before work at once, which comes before what runs alone again, so that a drift of the
    machine shows. The first points of the plan come before all others.

    `last`: points that come after the others of their setting.
    """
    chance, leading = random.Random(f"{plan.order_seed}:{round_number}"), set(plan.points[: plan.first])
    parts: tuple[list[str], list[str]] = ([], [])
    for id in sorted(ids):
        parts[id not in leading].append(id)
    return [id for part in parts for id in _shuffled(part, chance, last)]


def _shuffled(ids: Iterable[str], chance: random.Random, last: Container[str]) -> list[str]:
    blocks: dict[str, list[str]] = {}
    for id in ids:
        blocks.setdefault(PointId.parse(id).param("peer"), []).append(id)
    names = sorted(blocks)
    chance.shuffle(names)
    for name in names:
        chance.shuffle(blocks[name])
        blocks[name].sort(key=lambda id: (_turn(PointId.parse(id)), id in last))
    return [id for name in names for id in blocks[name]]


def _turn(point: PointId) -> int:
    """0: alone; 1: at once with other work; 2: alone again."""
    if point.param("again"):
        return 2
    at_once = point.param("beside", "none") != "none" or point.param("tasks") or point.param("at") == "both"
    return int(bool(at_once) or point.param("clients", "1") != "1")


def _rounds(point: Point) -> list[float]:
    return point.flows[0].round_medians_s if point.flows else []


def _cost(point: Point) -> float:
    return point.device_s / max(1, len(_rounds(point)))
