"""What is asked for beside what is under way, and that it shares the passes of this."""

from collections import defaultdict

import pytest
from msgspec import structs

from fakes import flow, point
from linkscope.machine import model as models
from linkscope.plan import Underway, make_plan, next_work
from linkscope.plan.shares import opening_s
from linkscope.run import benchmark_table, measure
from linkscope.run.supervisor import Supervisor
from linkscope.run.target import modelled
from linkscope.runfile import read_run
from test_planner import MIB, PAIR, all_done, pairs_plan


def test_what_is_under_way_is_not_asked_for_again() -> None:
    plan = pairs_plan(budget_s=1000.0)
    first = {work.id for work in next_work(plan, {}, 10.0)}
    assert next_work(plan, {}, 10.0, Underway(dict.fromkeys(first, 3))) == []
    some = sorted(first)[:5]
    rest = next_work(plan, {}, 10.0, Underway(dict.fromkeys(some, 2)))
    assert {work.id for work in rest} == first - {*some}

    points = all_done(plan, first)
    second = {work.id for work in next_work(plan, points, 10.0)}
    assert second and next_work(plan, points, 10.0, Underway(dict.fromkeys(second, 3))) == []


def test_paths_in_no_class_are_asked_for_once_nothing_is_under_way() -> None:
    plan = structs.replace(pairs_plan(), classes=[])
    assert next_work(plan, {}) and next_work(plan, {}, 10.0, Underway({plan.points[0]: 1})) == []


def test_what_missed_its_precision_shares_the_passes_of_what_is_under_way() -> None:
    """With 0.5 s left two more rounds of 1 ms fit, but no two passes of their own."""
    plan = pairs_plan(budget_s=1000.0)
    points = all_done(plan, set(plan.points))
    points |= all_done(plan, {work.id for work in next_work(plan, points, 10.0)})
    odd, other = PAIR.format(0, 1, 256 * MIB), PAIR.format(1, 0, 256 * MIB)
    near = flow([points[odd].median_s * factor for factor in (1.0, 1.008, 0.996)])
    points[odd] = point(odd, status="missed_precision", flows=[near], device_s=1.5e-3)
    left_s = 0.5
    assert left_s < 2 * opening_s(plan) and next_work(plan, points, left_s) == []
    with_passes = Underway({other: 2}, 0.0)
    left_s += 2 * opening_s(plan)  # those of what is under way are counted
    assert [(work.id, work.rounds) for work in next_work(plan, points, left_s, with_passes)] == [(odd, 5)]
    one_short = Underway({other: 1}, 0.0)
    assert next_work(plan, points, 0.5 + opening_s(plan), one_short) == []
    assert next_work(plan, points, left_s, Underway({other: 2}, 0.5)) == []  # that time is given out already


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, int], set[str]]]:
    """Of every pass of the next run: the rounds that were due, and all points under way."""
    seen: list[tuple[dict[str, int], set[str]]] = []
    one_pass = Supervisor._one_pass

    def noted(self: Supervisor, due: dict[str, int]) -> None:
        seen.append((dict(due), {*self._wanted} - {*self._waiting}))
        one_pass(self, due)

    monkeypatch.setattr(Supervisor, "_one_pass", noted)
    return seen


def test_every_pass_takes_all_that_is_under_way_one_round_further(tmp_path, passes) -> None:
    target = modelled(models.load("h200x4"), 1)
    path = tmp_path / "run.jsonl"
    assert measure(target, make_plan(target.facts, benchmark_table(), budget_s=40.0), path).complete
    rounds: dict[str, list[int]] = defaultdict(list)
    for due, underway in passes:
        assert due.keys() == underway
        for id, number in due.items():
            rounds[id].append(number)
    assert all(numbers == list(range(len(numbers))) for numbers in rounds.values())
    # New points begin while others are on their way to twelve rounds: these wait for no batch to end.
    assert any({0, 1} & {*due.values()} and max(due.values()) > 6 for due, _ in passes)
    assert max(len(numbers) for numbers in rounds.values()) >= 12
    run = read_run(path)
    assert {point.id for point in run.points} >= {*run.header.plan["points"]}
    for found in run.points:  # a record of all its rounds, whatever else was asked for meanwhile
        if found.status in ("ok", "missed_precision"):
            assert len(found.flows[0].round_medians_s) == len(run.rounds[found.id])
