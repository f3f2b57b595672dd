"""Estimates the cost of a plan before any measurement, and the budget it needs."""

import math

from linkscope.errors import UserError
from linkscope.plan.cases import estimated_seconds
from linkscope.plan.facts import MachineFacts
from linkscope.plan.plan import Plan
from linkscope.plan.stages import expected_ids
from linkscope.runfile import PointId
from linkscope.stats import EARLY_ROUNDS
from linkscope.units import format_seconds

FIRST = 1.75  # cost of a first round, which also calibrates, over that of a later round; seen on H200
# Ratio of the budget to the cost of the points that are measured in any case. The rest pays for more rounds, more
# points and concurrent flows. A model has time for all of them.
ENOUGH, ENOUGH_CONCURRENT, ENOUGH_MODELLED = 1.05, 1.4, 1.8
_LEAST = 0.4  # fraction of the same cost: estimates are rough, and half of a map is useful


def expected_s(plan: Plan, machine: MachineFacts) -> dict[str, float]:
    """Returns the seconds of each point of the plan, for the rounds that are measured in any case."""
    rounds = (EARLY_ROUNDS if plan.early else plan.rounds) + (FIRST - 1 if plan.rule == "linkscope" else 0)
    ids = (*plan.points, *(one.id for one in plan.together if one.first))
    return {id: rounds * estimated_seconds(PointId.parse(id), machine, plan.rule) for id in ids}


def budget_of_its_own(plan: Plan, machine: MachineFacts) -> float:
    """Returns the seconds for a plan without a chosen budget: that of its suite, or more if the machine needs it."""
    factor = ENOUGH if not plan.together else ENOUGH_MODELLED if machine.modelled else ENOUGH_CONCURRENT
    return max(plan.budget_s or 0.0, factor * _certain_s(plan, machine))


def check_budget(plan: Plan, machine: MachineFacts) -> None:
    """Raises UserError with the budget that is needed, if the plan's budget is too small."""
    if plan.budget_s is None:
        return
    costs = expected_s(plan, machine)
    needed = _certain_s(plan, machine) if plan.classes else min(costs.values())
    least = _LEAST if plan.rule == "linkscope" else 1.0  # another tool's rule measures a point completely or not at all
    if plan.budget_s >= least * needed:
        return
    what = "one path of each class, and checks of the others," if plan.classes else "the cheapest point"
    part = f" (or {format_seconds(rounded_up(least * needed))} for a part of it)" if least < 1 else ""
    raise UserError(
        f"--budget {format_seconds(plan.budget_s)} is too small: {what} takes about "
        f"{format_seconds(rounded_up(needed))} on {machine.name}. Give that much time{part}, or select fewer points "
        "with --only"
    )


def rounded_up(seconds: float) -> float:
    """Rounds up to two digits, so that a proposed budget is enough."""
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return float(f"{math.ceil(seconds / step) * step:.2g}")


def _certain_s(plan: Plan, machine: MachineFacts) -> float:
    costs = expected_s(plan, machine)
    return sum(costs[id] for id in expected_ids(plan)[0]) if plan.classes else 0.0
