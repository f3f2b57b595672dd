"""What a plan is expected to cost before anything is measured, and which budget it needs."""

import math

from linkscope.errors import UserError
from linkscope.plan.cases import estimated_seconds
from linkscope.plan.facts import MachineFacts
from linkscope.plan.plan import Plan
from linkscope.plan.stages import expected_ids
from linkscope.runfile import PointId
from linkscope.stats import EARLY_ROUNDS
from linkscope.units import format_seconds

FIRST = 1.75  # a first round also calibrates: seen on H200, it takes so many times what another takes
# Of what is measured in any case; the rest is for more rounds and points, and for paths at once that others ask for: on
# a model, whose time nobody waits for, for all of these.
ENOUGH, ENOUGH_AT_ONCE, ENOUGH_MODELLED = 1.05, 1.4, 1.8
_LEAST = 0.4  # of the same: estimates are rough, and half of a map is something


def expected_s(plan: Plan, machine: MachineFacts) -> dict[str, float]:
    """Seconds of each point of the plan, in the rounds that it has in any case."""
    rounds = (EARLY_ROUNDS if plan.early else plan.rounds) + (FIRST - 1 if plan.rule == "linkscope" else 0)
    ids = (*plan.points, *(one.id for one in plan.together if one.first))
    return {id: rounds * estimated_seconds(PointId.parse(id), machine, plan.rule) for id in ids}


def budget_of_its_own(plan: Plan, machine: MachineFacts) -> float:
    """Seconds for a plan whose budget nobody chose: that of its suite, more where the machine needs it."""
    factor = ENOUGH if not plan.together else ENOUGH_MODELLED if machine.modelled else ENOUGH_AT_ONCE
    return max(plan.budget_s or 0.0, factor * _sure_s(plan, machine))


def check_budget(plan: Plan, machine: MachineFacts) -> None:
    """Raises UserError where the budget is too small for anything useful, with what it would need."""
    if plan.budget_s is None:
        return
    costs = expected_s(plan, machine)
    needed = _sure_s(plan, machine) if plan.classes else min(costs.values())
    least = _LEAST if plan.rule == "linkscope" else 1.0  # what another tool does with a point is all of it or nothing
    if plan.budget_s >= least * needed:
        return
    what = "measuring one path of each kind, and checking the others," if plan.classes else "the cheapest point"
    part = f" (or {format_seconds(_rounded_up(least * needed))}, for a part of it)" if least < 1 else ""
    raise UserError(
        f"--budget {format_seconds(plan.budget_s)} is too small for anything useful: {what} takes about "
        f"{format_seconds(_rounded_up(needed))} on {machine.name}: give it that{part}, or name fewer points with --only"
    )


def _rounded_up(seconds: float) -> float:
    """To two digits: who gives what is told must not be told that it is too small."""
    step = 10.0 ** (math.floor(math.log10(seconds)) - 1)
    return float(f"{math.ceil(seconds / step) * step:.2g}")


def _sure_s(plan: Plan, machine: MachineFacts) -> float:
    costs = expected_s(plan, machine)
    return sum(costs[id] for id in expected_ids(plan)[0]) if plan.classes else 0.0
