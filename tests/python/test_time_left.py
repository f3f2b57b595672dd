"""The remaining time of a budget, and the time until the end of a run."""

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import structs

from fakes import H2D, facts, measured, plan, target
from linkscope.plan.classes import PathClass
from linkscope.plan.work import Underway
from linkscope.run import supervisor
from linkscope.run.answers import Prepared
from linkscope.run.assemble import Assembler
from linkscope.run.budget import Budget
from linkscope.run.forecast import Forecast
from linkscope.run.noise import RunNoise
from linkscope.run.states import State
from linkscope.run.worker import Worker
from linkscope.runfile import PointId, read_run
from test_assemble import ONE
from test_progress import MIB, h2d, round_with_rates

LARGE = H2D.format(64 << 20, "false", "batched")


# --- the remaining budget ---


def test_a_share_of_a_budget_is_less_than_the_budget() -> None:
    budget = Budget(10.0, modelled=True, spent_s=1.0)
    budget.add(3.0)
    assert budget.spent() == 4.0 and budget.left() == 6.0
    assert budget.allows(6.0) and not budget.allows(6.1)
    assert budget.allows(1.0, 5.0) and not budget.allows(1.1, 5.0)
    assert Budget(None, modelled=True).allows(1e9, 5.0)


def test_on_hardware_a_budget_counts_wall_time_and_earlier_sessions(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("linkscope.run.budget.time", SimpleNamespace(monotonic=lambda: now[0]))
    budget = Budget(10.0, modelled=False, spent_s=4.0)
    now[0] = 103.0
    budget.add(1.0)  # already part of the wall time
    assert budget.spent() == 7.0 and budget.left() == 3.0


@pytest.mark.parametrize("rounds", [2.5, 3.9, 5.2])
def test_a_round_that_does_not_fit_into_the_budget_is_not_started(tmp_path, rounds: float) -> None:
    uninterrupted, part = tmp_path / "whole.jsonl", tmp_path / "part.jsonl"
    measured(target(), plan(LARGE), uninterrupted)
    each = [one.device_s for one in read_run(uninterrupted).rounds[LARGE]]
    budget_s = sum(each[: int(rounds)]) + (rounds % 1) * each[int(rounds)]
    made = structs.replace(plan(LARGE, budget_s=budget_s), classes=[PathClass("host to GPU", ["numa:0->gpu:0"])])
    measured(target(), made, part)
    spent_s = sum(one.device_s for one in read_run(part).rounds.get(LARGE, []))
    assert 0 < spent_s <= budget_s


@pytest.mark.parametrize("classes", [[], [PathClass("host to GPU", ["numa:0->gpu:0"])]], ids=["process", "platform"])
def test_no_worker_is_opened_if_no_round_fits_into_the_budget(tmp_path, monkeypatch, classes: list[PathClass]) -> None:
    now, opens = [0.0], []
    monkeypatch.setattr("linkscope.run.budget.time", SimpleNamespace(monotonic=lambda: now[0]))
    ask, prepare = Worker.ask_to_open, Worker.prepare

    def noted(worker: Worker, request: dict[str, Any]) -> None:
        opens.append(worker.pid)
        ask(worker, request)

    def long(worker: Worker, *given: Any) -> Prepared:
        now[0] = 99.9999999
        return prepare(worker, *given)

    monkeypatch.setattr(Worker, "ask_to_open", noted)
    monkeypatch.setattr(Worker, "prepare", long)
    made = structs.replace(plan(ONE, budget_s=100.0), classes=classes)
    found = measured(target(modelled=False), made, tmp_path / "a.jsonl").points[ONE]
    assert len(found.flows[0].samples_s) == len(opens) == 1 and "the budget" in found.guards["stopped"]


def enough_s(*, stopped: bool, rounds: int, opening_s: float) -> float:
    """Two points of 1 s a round: one with this many of its six rounds, which the budget stopped or which is still under
    way, and one that was never measured."""
    first, second = (h2d(size=MIB << n) for n in range(2))
    budget = Budget(10.0, modelled=True)
    states = {id: State(PointId.parse(id), 1.0, cost_s=1.0) for id in (first, second)}
    states[first].rounds = [structs.replace(round_with_rates(first, n, 50.0), device_s=1.0) for n in range(rounds)]
    states[first].stopped = budget.reason() if stopped else None
    budget.add(rounds + opening_s)
    forecast = Forecast(plan(first, second), states, budget, RunNoise(states), modelled=True)
    return forecast.enough_s([second])


def test_a_budget_that_is_enough_has_the_missing_rounds_of_points_that_the_budget_stopped_or_left_out() -> None:
    """A quarter is added, because estimates are rough."""
    assert enough_s(stopped=True, rounds=2, opening_s=0) == pytest.approx(1.25 * (2 + 4 + 6))
    assert enough_s(stopped=False, rounds=2, opening_s=0) == pytest.approx(1.25 * (2 + 6))


def test_a_budget_that_is_enough_opens_the_machine_in_each_pass() -> None:
    """Two of six passes took 1 s beside their rounds."""
    assert enough_s(stopped=True, rounds=2, opening_s=1) == pytest.approx(1.25 * (2 + 4 + 6 + 3))


def test_the_reason_names_a_budget_that_is_enough_and_never_less_than_the_one_that_was_too_small() -> None:
    budget = Budget(10.0, modelled=True)
    assert budget.reason_and_cure(12.34).endswith("left no time; `--budget 13s` is enough for all points")
    assert "`--budget 10s` is enough" in budget.reason_and_cure(3.0)


def test_one_expensive_benchmark_does_not_make_the_budget_for_all_points_too_large() -> None:
    """One point took 16 times its estimate. Nine points of another benchmark have the same estimate."""
    costly, *cheap = (
        h2d(),
        *(h2d(size=MIB << n).replace("h2d", "d2d").replace("numa:0.pinned", "gpu:1.device") for n in range(9)),
    )
    states = {id: State(PointId.parse(id), 1.0) for id in (costly, *cheap)}
    states[costly].rounds = [structs.replace(round_with_rates(costly, 0, 50.0), device_s=16.0)]
    states[costly].cost_s = 16.0
    budget = Budget(16.0, modelled=True)
    budget.add(16.0)
    enough = Forecast(plan(costly, *cheap), states, budget, RunNoise(states), modelled=True).enough_s(cheap)
    rounds = 6 * len(cheap)
    assert 1.25 * (16 + rounds * 1.0) < enough < 1.25 * (16 + rounds * 4.0)


# --- the remaining work ---


def forecast_of(rates: list[float], hot: int = -1, **wishes: Any) -> tuple[Forecast, list[str]]:
    """Three points with this number of rounds at these rates, one round throttled; the target is 1 %."""
    ids = [h2d(size=MIB << n) for n in range(3)]
    made = plan(*ids, precision=0.01, **wishes)
    states = {id: State(PointId.parse(id), 1e-3) for id in ids}
    for number, rate in enumerate(rates):
        for id, state in states.items():
            guards = {"throttled": ["hw_thermal"]} if number == hot else {}
            state.rounds.append(round_with_rates(id, number, rate, **guards))
            state.cost_s = 1e-3
    return Forecast(made, states, Budget(None, modelled=True), RunNoise(states), modelled=True), ids


def share(rates: list[float], number: int, hot: int = -1, **wishes: Any) -> float:
    looks, ids = forecast_of(rates, hot, **wishes)
    return looks.left({}, dict.fromkeys(ids, wishes.get("rounds", 6)), number).share


def test_without_results_three_in_ten_points_are_expected_to_miss_precision() -> None:
    assert share([50.0], 0) == pytest.approx(1 / (6 + 0.3 * 3))


def test_a_throttled_round_does_not_count_for_the_forecast_of_missed_precision() -> None:
    assert share([50.0, 40.0, 50.0], 2, hot=1) == pytest.approx(3 / 6)
    assert share([50.0, 40.0, 50.0], 2) == pytest.approx(3 / 9)


def test_for_nine_or_more_rounds_the_outermost_are_dropped() -> None:
    """Rounds 1.6 % apart are ±0.8 %; an interval of nine rounds will be 1.65 times as wide, of six rounds 2.2 times."""
    assert share([50.0, 50.8], 1, rounds=9) < 2 / 9
    assert share([50.0, 50.5], 1, rounds=9) == pytest.approx(2 / 9)
    assert share([50.0, 50.5], 1) < 2 / 6


def test_the_range_of_six_rounds_is_expected_to_be_2_2_times_that_of_two() -> None:
    """Of normal values: 2.534 over 1.128 deviations. The target is 1 %, so two rounds may be ±0.445 % apart."""
    assert share([50.0 * 0.99560, 50.0 * 1.0044], 1) == pytest.approx(2 / 6)
    assert share([50.0 * 0.99545, 50.0 * 1.00455], 1) < 2 / 6


@pytest.mark.parametrize(("scatter", "each"), [(0.0001, 3.0), (0.01, 4.3)])
def test_the_rounds_of_a_new_point_are_expected_from_the_scatter_of_its_family(scatter: float, each: float) -> None:
    """Twelve points have three rounds; a thirteenth has one. The target is 1 %."""
    ids = [h2d(size=MIB + 4096 * n) for n in range(13)]
    made = structs.replace(plan(h2d(), precision=0.01), points=ids, early=True)
    states = {id: State(PointId.parse(id), 1e-3) for id in ids}
    for at, id in enumerate(ids):
        for number in range(3 if at < 12 else 1):
            states[id].rounds.append(round_with_rates(id, number, 50.0 * (1 + scatter * (number - 1))))
            states[id].cost_s = 1e-3
    noise = RunNoise(states)
    noise.refresh()
    looks = Forecast(made, states, Budget(None, modelled=True), noise, modelled=True)
    points = {id: Assembler(made, facts(), lambda point: None, noise.of).point(id, states[id].rounds) for id in ids}
    del points[ids[-1]]
    for point in points.values():
        point.status = "ok"
    assert looks.left(points, dict.fromkeys(ids, 3), 0).share == pytest.approx(37 / (37 + each - 1), abs=0.01)


def test_the_expected_rounds_of_unfinished_points_are_set_aside(tmp_path, monkeypatch) -> None:
    """The planner spends on new work only the time that the points under way are not expected to need."""
    seen: list[tuple[Underway, float]] = []
    ask = supervisor.next_work

    def noted(plan: Any, points: Any, left_s: float, underway: Underway) -> Any:
        seen.append((underway, sum(underway.rounds.values())))
        return ask(plan, points, left_s, underway)

    monkeypatch.setattr(supervisor, "next_work", noted)
    monkeypatch.setattr(RunNoise, "expected_rounds", lambda self, plan, state: 7.0)
    measured(target(noise=0.05), plan(suite="standard", budget_s=1e4), tmp_path / "a.jsonl")
    each_s = [underway.seconds / rounds for underway, rounds in seen if rounds]
    assert max(each_s) > 1.5 * min(each_s)


def test_an_overdrawn_budget_leaves_zero() -> None:
    looks, ids = forecast_of([50.0] * 2)
    looks._budget = Budget(5e-3, modelled=True, spent_s=8e-3)
    forecast = looks.left({}, dict.fromkeys(ids, 6), 1)
    assert forecast.share == 1.0


def test_stopped_points_are_not_expected_to_continue() -> None:
    looks, ids = forecast_of([50.0] * 2)
    looks._states[ids[0]].stopped = "the budget left no time"
    forecast = looks.left({}, dict.fromkeys(ids, 6), 1)
    assert forecast.points == 2 and forecast.share == pytest.approx(6 / (6 + 2 * 4))


@pytest.mark.parametrize("last, more", [(50.4, 0), (52.0, 3)])
def test_a_point_that_missed_precision_is_expected_to_get_more_rounds(last: float, more: int) -> None:
    looks, ids = forecast_of([50.0, 50.4, 50.0, 50.4, 50.0, last])
    made = Assembler(plan(*ids, precision=0.01), facts(), lambda point: None)
    points = {id: made.point(id, looks._states[id].rounds) for id in ids}
    assert {found.status for found in points.values()} == {"missed_precision" if more else "ok"}
    forecast = looks.left(points, dict.fromkeys(ids, 6), 5)
    assert forecast.share == pytest.approx(6 / (6 + more)) and forecast.points == (3 if more else 0)


def test_the_remaining_time_of_a_resumed_run_follows_from_its_own_rounds(monkeypatch) -> None:
    """Three of six rounds were measured before, the fourth took 3 s per point: two more rounds take 18 s."""
    now = [0.0]
    monkeypatch.setattr("linkscope.run.forecast.time", SimpleNamespace(monotonic=lambda: now[0]))
    looks, ids = forecast_of([50.0] * 3)
    for at, id in enumerate(ids):
        assert looks.left({}, dict.fromkeys(ids, 6), 3).left_s is None
        now[0] = 3.0 * (at + 1)
        looks._states[id].rounds.append(round_with_rates(id, 3, 50.0))
    assert looks.left({}, dict.fromkeys(ids, 6), 3).left_s == pytest.approx(9.0 * 6 / 3)
