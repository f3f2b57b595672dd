"""New work shares the passes of unfinished points."""

import itertools
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec import structs

from campaign import only_long
from fakes import flow, point
from linkscope.machine import model as models
from linkscope.plan import Plan, Underway, Work, make_plan, next_work
from linkscope.plan.shares import affordable_rounds, opening_s
from linkscope.plan.stages import BESIDE, CHUNK
from linkscope.run import benchmark_table, measure
from linkscope.run.states import Phase, State
from linkscope.run.supervisor import Supervisor
from linkscope.run.target import modelled
from linkscope.runfile import Point, read_run
from test_planner import MIB, PAIR, WITH, all_done, pairs_plan

TWO_MORE = 0.0115  # half-width after three rounds: five are expected to reach 1 %


def test_unfinished_points_are_not_requested_again() -> None:
    plan = pairs_plan(budget_s=1000.0)
    first = {work.id for work in next_work(plan, {}, 10.0)}
    assert next_work(plan, {}, 10.0, Underway(dict.fromkeys(first, 3))) == []
    some = sorted(first)[:5]
    rest = next_work(plan, {}, 10.0, Underway(dict.fromkeys(some, 2)))
    assert {work.id for work in rest} == first - {*some}

    points = all_done(plan, first)
    second = {work.id for work in next_work(plan, points, 10.0)}
    assert second and next_work(plan, points, 10.0, Underway(dict.fromkeys(second, 3))) == []


def test_paths_in_no_class_are_requested_when_no_point_is_unfinished() -> None:
    plan = structs.replace(pairs_plan(), classes=[])
    assert next_work(plan, {}) and next_work(plan, {}, 10.0, Underway({plan.points[0]: 1})) == []


def test_points_that_missed_precision_share_the_passes_of_unfinished_points() -> None:
    """With 0.5 s left, two more rounds of 1 ms fit, but not two passes for them alone."""
    plan = pairs_plan(budget_s=1000.0)
    points = all_done(plan, set(plan.points))
    points |= all_done(plan, {work.id for work in next_work(plan, points, 10.0)})
    imprecise, other = PAIR.format(0, 1, 256 * MIB), PAIR.format(1, 0, 256 * MIB)
    near = flow([points[imprecise].median_s * factor for factor in (1.0, 1.008, 0.996)], TWO_MORE)
    points[imprecise] = point(imprecise, status="missed_precision", ci_method="pooled", flows=[near], device_s=1.5e-3)
    left_s = 0.5
    assert left_s < 2 * opening_s(plan) and next_work(plan, points, left_s) == []
    with_passes = Underway({other: 2}, 0.0)
    left_s += 2 * opening_s(plan)  # the passes of unfinished points are counted
    assert [(work.id, work.rounds) for work in next_work(plan, points, left_s, with_passes)] == [(imprecise, 5)]
    one_short = Underway({other: 1}, 0.0)
    assert next_work(plan, points, 0.5 + opening_s(plan), one_short) == []
    assert next_work(plan, points, left_s, Underway({other: 2}, 0.5)) == []  # this time is already planned


@pytest.mark.parametrize(("left_s", "rounds"), [(0.98 / CHUNK, []), (1.02 / CHUNK, [5])])
def test_with_unfinished_points_only_a_part_of_the_remaining_time_is_planned(left_s: float, rounds) -> None:
    """Two more rounds of half a second each. The costs of unfinished points are estimates."""
    plan = pairs_plan(budget_s=1000.0)
    points = all_done(plan, set(plan.points))
    points |= all_done(plan, {work.id for work in next_work(plan, points, 10.0)})
    imprecise, other = PAIR.format(0, 1, 256 * MIB), PAIR.format(1, 0, 256 * MIB)
    near = flow([points[imprecise].median_s * factor for factor in (1.0, 1.008, 0.996)], TWO_MORE)
    points[imprecise] = point(imprecise, status="missed_precision", ci_method="pooled", flows=[near], device_s=1.5)
    found = next_work(plan, points, left_s + 2 * opening_s(plan), Underway({other: 2}, 0.0))
    assert [work.rounds for work in found] == rounds


@pytest.mark.parametrize(("at_once", "underway", "least", "most"), [
    ([WITH], "another", 4, 8), ([WITH], WITH, 4, 8), ([], "another", 12, 14),
])  # fmt: skip
def test_concurrent_points_reserve_time_for_their_consequences_until_they_are_finished(
    monkeypatch, at_once: list[str], underway: str, least: int, most: int
) -> None:
    """The time allows 27 points of 0.3 s each (14 suffice); only a part is planned, and less until then."""
    monkeypatch.setattr("linkscope.plan.stages.next_together", lambda *_: at_once)
    plan = pairs_plan(budget_s=1000.0)
    points = all_done(plan, {work.id for work in next_work(plan, {}, 10.0)}, 0.3)
    points |= all_done(plan, {work.id for work in next_work(plan, points, 0.0)} - {WITH}, 0.3)
    found = {work.id for work in next_work(plan, points, 2.4 / BESIDE + 3 * opening_s(plan), Underway({underway: 3}))}
    assert (WITH in found) == (at_once != [] and underway != WITH) and least <= len(found - {WITH}) <= most


def test_points_that_need_few_extra_passes_come_before_cheaper_points_that_need_many() -> None:
    plan = pairs_plan(budget_s=1000.0)
    many, few = PAIR.format(0, 1, 256 * MIB), PAIR.format(1, 0, 256 * MIB)
    points = {id: point(id, flows=[flow([1e-3] * 6)], device_s=cost_s) for id, cost_s in ((many, 6e-6), (few, 0.6))}
    more, opening = [Work(many, 12), Work(few, 7)], opening_s(plan)

    def given(left_s: float, passes: int = 0) -> list[str]:
        return [
            work.id
            for work in affordable_rounds(plan, points, more, left_s, Underway({"other": passes} if passes else {}))
        ]

    assert given(opening + 0.11) == [few] and given(opening + 0.09) == []
    assert given(6 * opening + 0.11) == [few, many] and given(6 * opening + 0.09) == [few]
    assert given(0.01, 6) == [many] and given(0.11, 6) == [many, few]  # in passes that happen in any case


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[dict[str, int], set[str]]]:
    """For every pass of the next run: the rounds due, and all unfinished points."""
    seen: list[tuple[dict[str, int], set[str]]] = []
    one_pass = Supervisor._one_pass

    def noted(self: Supervisor, due: dict[str, int]) -> None:
        seen.append((dict(due), self._ledger.unfinished().keys() - self._ledger.waiting().keys()))
        one_pass(self, due)

    monkeypatch.setattr(Supervisor, "_one_pass", noted)
    return seen


@only_long
def test_every_pass_runs_one_round_of_every_unfinished_point(tmp_path, passes) -> None:
    target = modelled(models.load("h200x4"), 1)
    path = tmp_path / "run.jsonl"
    assert measure(target, make_plan(target.facts, benchmark_table(), budget_s=40.0), path).complete
    rounds: dict[str, list[int]] = defaultdict(list)
    for due, underway in passes:
        assert due.keys() == underway
        for id, number in due.items():
            rounds[id].append(number)
    assert all(numbers == list(range(len(numbers))) for numbers in rounds.values())
    # New points start while others approach twelve rounds, and do not wait for the end of a batch.
    assert any({0, 1} & {*due.values()} and max(due.values()) > 6 for due, _ in passes)
    assert max(len(numbers) for numbers in rounds.values()) >= 12
    run = read_run(path)
    assert {point.id for point in run.points} >= {*run.header.plan["points"]}
    for found in run.points:  # a record of all its rounds, whatever else was planned
        if found.status in ("ok", "missed_precision"):
            assert len(found.flows[0].round_medians_s) == len(run.rounds[found.id])


def test_known_results_stay_known_to_the_planner_during_more_rounds(tmp_path, monkeypatch) -> None:
    known_ids: list[set[str]] = []

    def noted(plan: Plan, known: dict[str, Point], *rest: Any) -> list[Work]:
        known_ids.append({*known})
        return next_work(plan, known, *rest)

    monkeypatch.setattr("linkscope.run.supervisor.next_work", noted)
    target = modelled(models.load("h200x1"), 1)
    measure(target, make_plan(target.facts, benchmark_table(), budget_s=15.0), tmp_path / "run.jsonl")
    assert len(known_ids) > 5 and all(before <= after for before, after in itertools.pairwise(known_ids))


@pytest.mark.parametrize(("machine", "budget_s"), [("h200x4", 14.0), ("ac922", 36.0)])
def test_a_point_waiting_for_its_first_round_starts_as_soon_as_there_is_time(
    machine: str, budget_s: float, tmp_path, monkeypatch
) -> None:
    """The cheapest waiting point, if any; and no point waits longer than the first rounds of the others."""
    let_in, ended = Supervisor._let_in, Supervisor._ended
    requested: list[bool] = []

    def checked(self: Supervisor) -> None:
        waiting, unfinished = self._ledger.waiting(), self._ledger.unfinished()
        cost = {id: 3 * state.expected_s for id, state in waiting.items()}
        others = sum(state.expected_s * len(state.missing) for id, state in unfinished.items() if id not in waiting)
        fits = min(cost.values()) <= self._budget.left() - others
        let_in(self)
        requested.append(fits)
        assert any(state.phase is Phase.ADMITTED for state in waiting.values()) == fits

    def after_a_pass(self: Supervisor, unfinished: Mapping[str, State]) -> bool:
        before = len(requested)
        found = ended(self, unfinished)
        if self._ledger.waiting() and len(requested) == before:
            left = self._ledger.unfinished().values()
            assert any(state.phase is not Phase.WAITING and len(state.rounds) < 3 for state in left)
        return found

    monkeypatch.setattr(Supervisor, "_let_in", checked)
    monkeypatch.setattr(Supervisor, "_ended", after_a_pass)
    target = modelled(models.load(machine), 1)
    measure(target, make_plan(target.facts, benchmark_table(), budget_s=budget_s), tmp_path / "run.jsonl")
    assert requested


@only_long
def test_a_plan_that_always_requests_an_unmeasured_point_ends_with_an_error(tmp_path, monkeypatch) -> None:
    """Such a bug of the planner must not make an endless run."""

    def all_but_the_first(self: State) -> int | None:
        return next((number for number in self.missing if number), None) if self.is_unfinished else None

    monkeypatch.setattr(State, "next_round", property(all_but_the_first))
    target = modelled(models.load("h200x1"), 1)
    with pytest.raises(AssertionError, match="never measured"):
        measure(target, make_plan(target.facts, benchmark_table(), budget_s=8.0), tmp_path / "run.jsonl")


def test_the_cached_plan_is_refreshed_with_first_rounds_only(tmp_path, monkeypatch) -> None:
    ask, kept = Supervisor._ask_for_more, []

    def noted(self: Supervisor) -> None:
        before, underway = self._kept_s, self._ledger.unfinished()
        ask(self)
        new = [state for id, state in self._ledger.unfinished().items() if id not in underway]
        if new:
            kept.append((any(not state.rounds for state in new), self._kept_s != before))

    monkeypatch.setattr(Supervisor, "_ask_for_more", noted)
    target = modelled(models.load("h200x1"), 1)
    measure(target, make_plan(target.facts, benchmark_table(), budget_s=15.0), tmp_path / "run.jsonl")
    assert {*kept} == {(True, True), (False, False)}
