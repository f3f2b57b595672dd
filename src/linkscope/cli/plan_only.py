"""Prints the plan of `run --plan-only`: points, their roles and their expected cost."""

import json
from typing import TYPE_CHECKING

from linkscope.model.text import count_text
from linkscope.stats import EARLY_ROUNDS
from linkscope.units import format_bytes, format_seconds, with_signs

if TYPE_CHECKING:
    from linkscope.plan import ClassCurve, MachineFacts, Plan

_ROLES = {
    "representative": "one path of each class at all sizes, with more sizes where its curve bends",
    "audit": "another path of the class, drawn at random, at all sizes",
    "check": "the other paths at three sizes; a path that differs gets its own curve",
    "concurrent": "concurrent flows, to find shared links; more where flows slow each other, or time is left",
    "optional": "inherited from a path of the class, or measured if time is left",
}


def print_plan(plan: "Plan", machine: "MachineFacts", *, as_json: bool) -> None:
    """Prints the points with their costs, and the classes of paths with the role of each point, if the plan has
    classes."""
    from linkscope.plan import class_curves, expected_s

    costs = expected_s(plan, machine)
    curves = class_curves(plan.points, plan.classes, plan.order_seed) if plan.classes else []
    roles = _roles(curves) | {one.id: "concurrent" for one in plan.together if one.first}
    if as_json:
        points = [{"id": id, "expected_s": cost, **_role(roles, id)} for id, cost in costs.items()]
        head = {"machine": machine.name, "suite": plan.suite, "rounds": plan.rounds, "budget_s": plan.budget_s}
        classes = [_class(of.kind, of.paths, [c for c in curves if c.kind == of.kind], costs) for of in plan.classes]
        together = [{"id": one.id, "why": one.why, "first": one.first} for one in plan.together]
        more = ({"classes": classes} if classes else {}) | ({"together": together} if together else {})
        print(json.dumps({**head, **more, "points": points}))
        return
    modelled = "MODELLED " if machine.modelled else ""
    print(f"{modelled}{machine.name}, {count_text(len(costs), 'point')}; times of all rounds")
    for of in plan.classes:
        print(f"{with_signs(of.kind)}: {len(of.paths)} path{'s' * (len(of.paths) != 1)}, represented by {of.paths[0]}")
        for curve in (one for one in curves if one.kind == of.kind):
            print(f"    {with_signs(_curve_text(curve, costs))}")
    for line in _concurrent(plan):
        print(with_signs(line))
    for id, cost in costs.items():
        print(f"{with_signs(format_seconds(cost)):>10}  {roles[id] + ': ' if id in roles else ''}{id}")
    for line in _sums(plan, costs, roles):
        print(with_signs(line))


def _concurrent(plan: "Plan") -> list[str]:
    """The number of points with concurrent flows, by reason."""
    counts: dict[str, list[int]] = {}
    for one in plan.together:
        counts.setdefault(one.why, [0, 0])[not one.first] += 1
    found = ["concurrent flows, to find shared links:"] if counts else []
    for why, (first, later) in counts.items():
        more = f", {later} more if a flow is slowed or time is left" if later else ""
        found.append(f"    {why}: {first}{more}")
    return found


def _sums(plan: "Plan", costs: dict[str, float], roles: dict[str, str]) -> list[str]:
    from linkscope.plan import rounded_up

    if not plan.classes:
        total, rounds = sum(costs.values()), count_text(plan.rounds, "round")
        if plan.early:
            rounds = f"{EARLY_ROUNDS} to {rounds}"
        lines = [f"{count_text(len(costs), 'point')} in {rounds}, expected to take {format_seconds(total)}"]
        if plan.budget_s is not None and plan.budget_s < total:
            enough = f"`--budget {rounded_up(total):g}s` is enough for all"
            lines.append(f"the budget of {format_seconds(plan.budget_s)} leaves no time for some points; {enough}")
        return lines
    lines = [f"{len(costs)} points; seconds cover three rounds, and more rounds follow where intervals are too wide"]
    for role, means in _ROLES.items():
        of_role = [cost for id, cost in costs.items() if roles[id] == role]
        lines.append(f"{role:>16}: {len(of_role)} points, {format_seconds(sum(of_role))}: {means}")
    budget = format_seconds(plan.budget_s or 0.0)
    return [*lines, f"the run ends when every point is measured, or after {budget}"]


def _roles(curves: "list[ClassCurve]") -> dict[str, str]:
    found = {}
    for curve in curves:
        for number, member in enumerate(curve.members):
            for size, id in curve.ids[member].items():
                whole = ("representative", "audit")[number] if number < 2 else "optional"
                found[id] = "check" if whole == "optional" and size in curve.checks else whole
    return found


def _role(roles: dict[str, str], id: str) -> dict[str, str]:
    return {"role": roles[id]} if id in roles else {}


def _class(kind: str, paths: list[str], curves: "list[ClassCurve]", costs: dict[str, float]) -> dict[str, object]:
    listed = [
        {
            "operation": curve.name, "representative": curve.representative, "audit": curve.audit,
            "sizes": curve.sizes, "checks": curve.checks, "expected_s": _expected(curve, costs),
        }
        for curve in curves
    ]  # fmt: skip
    return {"kind": kind, "paths": paths, "representative": paths[0], "curves": listed}


def _curve_text(curve: "ClassCurve", costs: dict[str, float]) -> str:
    sizes = [format_bytes(size) for size in curve.checks]
    parts = [curve.name, f"{len(curve.members)} path{'s' * (len(curve.members) != 1)}"]
    if curve.audit:
        parts.append(f"audit {curve.audit}")
    if len(curve.members) > 2 and curve.sizes != [0]:
        parts.append(f"checked at {', '.join(sizes)}")
    return f"{'; '.join(parts)}: {format_seconds(_expected(curve, costs))}"


def _expected(curve: "ClassCurve", costs: dict[str, float]) -> float:
    """Seconds of the points that are measured in any case."""
    full = [id for member in curve.members[:2] for id in curve.ids[member].values()]
    checked = [id for m in curve.members[2:] for size, id in curve.ids[m].items() if size in curve.checks]
    return sum(costs[id] for id in (*full, *checked))
