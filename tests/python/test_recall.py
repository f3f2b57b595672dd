"""Cached results equal fresh results."""

import random

import pytest
from msgspec import structs

from fakes import flow, point
from linkscope.plan import next_work
from linkscope.plan.recall import Recall
from test_planner import all_done, pairs_plan


def test_equal_arguments_are_computed_once_and_others_again() -> None:
    made: list[str] = []

    def make(value: str) -> str:
        made.append(value)
        return value.upper()

    recall = Recall(most=2)
    assert [recall("a", (1, ["x"]), lambda: make("one")) for _ in range(2)] == ["ONE", "ONE"]
    assert recall("a", (1, ["y"]), lambda: make("two")) == "TWO"
    assert recall("a", (1, ["x"]), lambda: make("three")) == "THREE"  # only the last result under each name is kept
    assert made == ["one", "two", "three"]


def test_the_least_recently_used_names_are_forgotten() -> None:
    made: list[str] = []
    recall = Recall(most=2)
    for name in ("a", "b", "a", "c", "a", "b"):
        recall(name, (), lambda name=name: made.append(name))  # type: ignore[misc]
    assert made == ["a", "b", "c", "b"]


def test_a_plan_with_cached_results_equals_a_fresh_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Points change one at a time, as in a run, and may return to their earlier state."""
    chance = random.Random(5)
    plan = pairs_plan(budget_s=1000.0)
    points = all_done(plan, set(plan.points))
    steps = [dict(points)]
    for id in chance.sample(sorted(points), 40):
        factors = [1 + chance.gauss(0, 0.02) for _ in range(3)]
        near = flow([points[id].median_s * factor for factor in factors])
        status = chance.choice(["ok", "missed_precision", "inherited", "failed"])
        steps.append({**steps[-1], id: point(id, status=status, flows=[near], device_s=1e-3)})
    chance.shuffle(steps)
    short = structs.replace(plan, budget_s=1e-3)
    cached = [next_work(of, step, 50.0) for step in steps for of in (plan, short)]
    monkeypatch.setattr(Recall, "__call__", lambda self, name, of, make: make())
    assert cached == [next_work(of, step, 50.0) for step in steps for of in (plan, short)]
    assert len({tuple(work) for work in cached}) > 10 and cached[0::2] != cached[1::2]
