"""Rounds of a duration: an actor that ends nothing, as on a loaded host, gets more time, and then a reason."""

from typing import Any

import pytest

from linkscope.plan import time_of
from linkscope.run.answers import ActorSeries, FlowFacts, Prepared, Trace, Verdict, Window
from linkscope.run.batches import Task
from linkscope.run.beside import contended_round
from linkscope.run.worker import RequestFailed
from linkscope.runfile import PointId

STREAM = PointId.parse("put/sm/gpu:0.device->gpu:1.device/64?connections=16&control=direct&threads=32&word=separate")
FIRST_S, INTERVAL_S = time_of(STREAM, modelled=False)
FLOW = FlowFacts(0, "gpu:0", "gpu:1", "device", "device", 64, "measured")
PREPARED = Prepared(
    supported=True, actors=2, flows=[FLOW, FlowFacts(1, "gpu:1", "gpu:0", "device", "device", 0, "background")]
)


class LoadedWorker:
    """A worker whose second actor ends one operation each `operation_s` seconds."""

    is_modelled = False

    def __init__(self, operation_s: float) -> None:
        self.operation_s = operation_s
        self.asked: list[tuple[float, float]] = []

    def run_for(self, duration_s: float, interval_s: float, **_: Any) -> Trace:
        self.asked.append((duration_s, interval_s))
        count = round(duration_s / interval_s)
        slow = [interval_s / self.operation_s] * count
        actors = [ActorSeries(1000, [50.0] * count), ActorSeries(int(sum(slow)), slow)]
        window = Window(0.0, duration_s, actors)
        return Trace(1, 1, 2, "host", verdict=Verdict(True, 64, 0, ""), stamps=[0.0, duration_s] * 2, series=[window])


def measured(operation_s: float) -> tuple[Any, LoadedWorker]:
    worker = LoadedWorker(operation_s)
    return contended_round(worker, Task(STREAM, 0, None), PREPARED), worker  # type: ignore[arg-type]


def test_actors_that_end_operations_are_measured_once() -> None:
    record, worker = measured(INTERVAL_S / 2)
    assert worker.asked == [(FIRST_S, INTERVAL_S)]
    assert record.flows[0].samples_s == [pytest.approx(INTERVAL_S / 50)] * (round(FIRST_S / INTERVAL_S) - 1)


def test_an_actor_that_waits_for_a_core_gets_a_longer_round_with_longer_intervals() -> None:
    record, worker = measured(2 * FIRST_S)
    assert worker.asked == [(FIRST_S, INTERVAL_S), (4 * FIRST_S, 4 * INTERVAL_S)]
    assert record.flows[0].samples_s[0] == pytest.approx(4 * INTERVAL_S / 50)


def test_an_operation_that_takes_longer_than_the_longest_round_is_a_reason() -> None:
    with pytest.raises(RequestFailed, match=r"longer than the common time of 3\.2 s"):
        measured(100 * FIRST_S)
