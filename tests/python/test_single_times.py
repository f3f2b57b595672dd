"""Median and p99 of single messages: how many are stamped, what a round and a point keep of them, and the report."""

from pathlib import Path
from typing import Any

import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.report.put_get_singles import singles
from linkscope.report.run_view import RunView
from linkscope.report.section import Table
from linkscope.report.sections import put_get
from linkscope.run.answers import FlowFacts, Latencies, Prepared
from linkscope.run.stamped import add_single_times
from linkscope.runfile import Point, Round, RoundFlow, read_run
from test_assemble import ONE, assembler, round_of
from test_cli import linkscope

WITHIN = "put_ping_pong/sm/gpu:0.device->gpu:0.device/8?*threads=1024*"
PACKED = Path(__file__).parents[2] / "results" / "h100x1-packed.jsonl.gz"  # one point is of two processes under MPS
OF_TWO = "put_ping_pong/sm/gpu:0.ipc->gpu:0.ipc/8?threads=1024&way=processes&word=*"
WORD = "ping_pong/sm/gpu:0.device->gpu:0.device/0"


class Stand:
    """A worker whose first actor notes the times of its iterations, and whose second one is of the same kernel."""

    def __init__(self, *, modelled: bool = False) -> None:
        self.is_modelled = modelled
        self.batch: list[int] = []

    def run_stamped(self, batch: list[int], limit_s: float) -> list[Latencies | None]:
        self.batch = batch
        return [Latencies(batch[0] - 1, 2.5e-6, 2e-6, 9e-6), None]


def added(each_s: float, most: int = 0, **of_worker: Any) -> tuple[Round, list[int]]:
    ends = ("gpu:0", "gpu:1", "device", "device", 8, "measured")
    flows = [RoundFlow(*ends, samples_s=[each_s]) for _ in range(2)]
    record = Round(
        id=WORD, round=0, flows=flows, batch=[9, 9], overhead_s=0.0, timing="gate+slope", verified=True, guards={},
        device_s=0.0,
    )  # fmt: skip
    facts = [FlowFacts(actor, *ends) for actor in range(2)]
    worker: Any = Stand(**of_worker)
    add_single_times(worker, record, Prepared(supported=True, actors=2, most_iterations=most, flows=facts))
    return record, worker.batch


def test_a_round_keeps_median_and_p99_of_the_actor_that_noted_them_and_the_cost_of_a_stamp() -> None:
    record, batch = added(2.4e-6)
    assert batch == [2048, 2048]
    assert (record.flows[0].p50_s, record.flows[0].p99_s) == (2e-6, 9e-6)
    assert (record.flows[1].p50_s, record.flows[1].p99_s) == (None, None)
    assert record.guards == {"stamped_operations": 2047, "stamp_cost_s": pytest.approx(0.1e-6)}


@pytest.mark.parametrize(
    "each_s, most, modelled, operations",
    [(1e-6, 0, False, 2048), (20e-6, 0, False, 500), (1e-3, 0, False, 101), (10e-3, 0, False, 20),
     (1e-6, 64, False, 64), (-1e-6, 0, False, 101), (1e-6, 0, True, 101), (1e-3, 0, True, 101)],
)  # fmt: skip
def test_enough_messages_for_a_p99_are_stamped_unless_they_take_too_long(each_s, most, modelled, operations) -> None:
    record, batch = added(each_s, most, modelled=modelled)
    assert batch == [operations, operations]
    assert (record.flows[0].p99_s is not None) == (operations > 100)


def measured(path: Path, *only: str, rounds: int = 6, **fake: str | int) -> list[Point]:
    words = [word for one in only for word in ("--only", one)]
    suite = ("run", "--suite", "putget", *words, "--rounds", str(rounds), "-o", str(path), "-q")
    if not fake:
        assert main([*suite, "--machine", "h200x1"]) == 0
    else:
        for _ in range(3):  # on a busy machine a point can be too short for the clock
            path.unlink(missing_ok=True)
            done = linkscope(*suite, "--contexts", "any", environment=environment(**fake))
            if done.returncode == 0:
                break
        assert done.returncode == 0, done.stderr
    return read_run(path).points


@needs_worker
def test_messages_within_a_modelled_gpu_have_the_median_of_their_batches_and_a_table_beside_a_bare_word(
    tmp_path,
) -> None:
    points = measured(tmp_path / "run.jsonl", WITHIN, WORD)
    assert len(points) == 4  # a bare word; separate words in both memories, packed words
    for point in points:
        (flow, *_) = point.flows
        assert flow.p50_s == pytest.approx(point.median_s, rel=0.05) and flow.p99_s and flow.p99_s >= flow.p50_s
        assert flow.p50_ci95_s and flow.p50_ci95_s[0] <= flow.p50_s <= flow.p50_ci95_s[1]
        assert flow.p99_ci95_s and flow.p99_ci95_s[0] <= flow.p99_s <= flow.p99_ci95_s[1]
    run = read_run(tmp_path / "run.jsonl")
    word, *others = singles(run)
    assert word.point.benchmark == "ping_pong" and word.over_word is None
    assert all(one.over_word == pytest.approx(one.flow.p50_s / word.flow.p50_s) for one in others)
    found = put_get.section(RunView(run))
    tables = [block for block in found.blocks if isinstance(block, Table)] if found else []
    assert [(table.label, len(table.groups[0].rows)) for table in tables] == [("Single messages", 4)]


def test_each_line_of_single_messages_says_how_it_differs_from_the_others() -> None:
    made = singles(read_run(PACKED))
    lines = [(one.point.benchmark, one.point.src, one.point.dst, one.point.bytes, one.form) for one in made]
    assert len(set(lines)) == len(lines) > 50


def test_round_trips_beside_other_work_are_no_put_or_get() -> None:
    run = read_run(PACKED.with_name("h100x1-contention-disk.jsonl.gz"))
    assert any("ping_pong" in point.benchmark and point.flows[0].p99_s for point in run.points)
    assert not singles(run) and put_get.section(RunView(run)) is None


@needs_fake
@needs_worker
def test_kernels_of_one_gpu_and_of_two_processes_have_medians_p99_and_intervals_on_the_fake_driver(tmp_path) -> None:
    points = measured(tmp_path / "run.jsonl", WITHIN, WORD, OF_TWO, WORD.replace("device", "ipc") + "?way=processes",
                      rounds=3, CUDA_GPUS=1)  # fmt: skip
    ends = {(point.benchmark, point.src_memory) for point in points}
    assert ends == {(name, memory) for name in ("ping_pong", "put_ping_pong") for memory in ("device", "ipc")}
    for point in points:
        (flow, *_) = point.flows
        assert point.verified, point.reason
        assert flow.p50_s and flow.p50_ci95_s and flow.p50_ci95_s[0] <= flow.p50_s <= flow.p50_ci95_s[1]
        assert point.guards["stamped_operations"] > 0 and "stamp_cost_s" in point.guards
        if flow.p99_s:  # a busy host needs so long for a message that fewer than 100 are stamped
            assert flow.p50_s <= flow.p99_s


def rounds_of(*of_rounds: tuple[float, float | None]) -> list[Round]:
    rounds = [round_of(number, [2e-6], guards={"stamp_cost_s": number * 1e-9}) for number in range(len(of_rounds))]
    for record, (p50_s, p99_s) in zip(rounds, of_rounds, strict=True):
        record.flows[0].p50_s, record.flows[0].p99_s = p50_s, p99_s
    return rounds


def test_a_point_has_the_medians_of_its_rounds_with_intervals_of_their_own() -> None:
    found = assembler().point(ONE, rounds_of(*((2e-6 + at * 1e-8, 3e-6 + at * 1e-7) for at in range(6))))
    (flow,) = found.flows
    assert (flow.p50_s, flow.p99_s) == (pytest.approx(2.025e-6), pytest.approx(3.25e-6))
    assert flow.p50_ci95_s == pytest.approx((2e-6, 2.05e-6)) and flow.p99_ci95_s == pytest.approx((3e-6, 3.5e-6))
    assert found.guards["stamp_cost_s"] == pytest.approx(2.5e-9)


def test_few_rounds_have_a_wider_interval_than_their_own_ends() -> None:
    (flow,) = assembler().point(ONE, rounds_of((2e-6, 3e-6), (2.02e-6, 3.3e-6), (2.04e-6, 3.6e-6))).flows
    assert flow.p50_ci95_s and flow.p50_ci95_s[0] < 2e-6 and flow.p50_ci95_s[1] > 2.04e-6
    assert flow.p99_ci95_s and flow.p99_ci95_s[0] < 3e-6 and flow.p99_ci95_s[1] > 3.6e-6


def test_a_point_of_which_a_round_had_too_few_operations_has_no_p99() -> None:
    (flow,) = assembler().point(ONE, rounds_of((2e-6, 3e-6), (9e-6, None), (2e-6, 3e-6))).flows
    assert flow.p50_s == 2e-6 and flow.p99_s is None and flow.p99_ci95_s is None
