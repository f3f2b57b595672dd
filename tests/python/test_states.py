"""The life of a point: it is in one phase at a time, and moves along legal steps only."""

import pytest

from fakes import H2D, facts, plan
from linkscope.run.states import Ledger, Phase, State
from linkscope.runfile import Point, PointId
from test_assemble import assembler

ONE, OTHER, ADDED = (H2D.format(size, "false", "batched") for size in (8, 4096, 24))


def ledger() -> Ledger:
    return Ledger(plan(ONE, OTHER), facts())


def skipped(id: str) -> Point:
    return assembler().without_value(id, "skipped", "no time")


def test_a_point_goes_from_planned_over_waiting_to_final() -> None:
    points = ledger()
    state = points.states[ONE]
    assert state.phase is Phase.PLANNED and not points.unfinished() and state.next_round is None
    points.ask(ONE, 3)
    assert state.phase is Phase.UNDER_WAY and state.next_round == 0 and points.underway().rounds == {ONE: 3}
    points.wait(ONE)
    assert state.next_round is None and [*points.waiting()] == [*points.unfinished()] == [ONE]
    points.admit(ONE)
    assert state.next_round == 0 and not points.waiting() and [*points.unfinished()] == [ONE]
    points.leave_open(skipped(ONE))
    assert not points.unfinished() and [*points.results()] == [ONE] and not points.final()
    points.finish(skipped(ONE))
    assert [*points.final()] == [ONE] and not points.open()


def test_an_unfinished_point_keeps_its_earlier_record_for_the_planner_only() -> None:
    points = ledger()
    points.finish(skipped(ONE))
    points.ask(ONE, 6)
    assert [*points.known()] == [ONE] and not points.results() and not points.final()


def test_a_point_that_the_plan_adds_during_the_run_gets_a_state() -> None:
    points = ledger()
    assert points.ask(ADDED, 3) is points.states[ADDED] and points.states[ADDED].estimate_s > 0


def test_unfinished_points_keep_the_order_in_which_they_were_asked_for() -> None:
    points = ledger()
    for id in (OTHER, ONE):
        points.ask(id, 3)
    points.wait(OTHER)
    points.admit(OTHER)
    assert [*points.unfinished()] == [OTHER, ONE]


def test_the_planner_sees_records_in_the_order_in_which_they_were_made() -> None:
    points = ledger()
    for id in (OTHER, ONE):
        points.leave_open(skipped(id))
    points.finish(skipped(OTHER))
    assert [*points.known()] == [*points.results()] == [OTHER, ONE] and [*points.final()] == [OTHER]
    points.ask(OTHER, 6)
    assert [*points.known()] == [ONE, OTHER]


@pytest.mark.parametrize("phase, wrong", [
    (Phase.PLANNED, Phase.WAITING), (Phase.UNDER_WAY, Phase.UNDER_WAY), (Phase.WAITING, Phase.UNDER_WAY),
    (Phase.OPEN, Phase.ADMITTED), (Phase.FINAL, Phase.WAITING), (Phase.FINAL, Phase.PLANNED),
])  # fmt: skip
def test_an_illegal_step_is_an_error_that_names_the_point_and_both_phases(phase: Phase, wrong: Phase) -> None:
    state = State(PointId.parse(ONE), 1.0, phase=phase)
    with pytest.raises(AssertionError, match=f"{phase.value} cannot become {wrong.value}"):
        state.move(wrong)
    assert state.phase is phase
