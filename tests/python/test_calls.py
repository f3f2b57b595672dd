"""Calls, ping-pong and atomics on simulated machines, from the machine file to the run file."""

import pytest

from fakes import H2D, facts, plan
from linkscope.errors import UserError
from linkscope.machine import model as models
from linkscope.plan import SUITES, make_plan
from linkscope.plan.enumerate import points_of
from linkscope.run import benchmark_table, measure
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.sampler import Sampler
from linkscope.run.target import modelled
from linkscope.runfile import PointId, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

OPERATIONS = {
    "launch", "launch_to_end", "synchronize", "event", "stream", "graph", "copy_call", "ping_pong", "atomic",
    "atomic_latency",
}  # fmt: skip


@pytest.mark.parametrize("machine", ["h200x2", "ac922"])
def test_only_the_full_suite_measures_all_operations_and_at_most_60_per_pair(machine):
    machine, table = modelled(models.load(machine), 1).facts, benchmark_table()
    pairs = len(machine.of_kind("gpu")) * (len(machine.of_kind("numa")) + len(machine.of_kind("gpu")))
    for name, suite in SUITES.items():
        found = [point for point in points_of(suite, machine, table) if point.benchmark in OPERATIONS]
        some = {
            "putget": {"ping_pong"},
            "putget-queues": {"ping_pong"},
            "sanity": {"ping_pong", "launch", "atomic_latency"},
        }
        assert {point.benchmark for point in found} == (OPERATIONS if name == "full" else some.get(name, set()))
        assert len(found) <= 60 * pairs


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    """The points of one pair of places each, on h200x2."""
    file = tmp_path_factory.mktemp("calls") / "run.jsonl"
    target = modelled(models.load("h200x2"), 1)
    only = [f"{name}/*0?*->*" for name in OPERATIONS]
    measure(target, make_plan(target.facts, benchmark_table(), suite="full", only=only, seed=1), file)
    return {str(point.id): point for point in read_run(file).points}


def us(points, id):
    point = points[id]
    assert point.status in ("ok", "missed_precision"), point.reason
    return point.median_s * 1e6


CALL = "{}/cpu/numa:0.pageable->gpu:0.device/0{}"
KNOWN = {  # from results/h200x2-full-a, or computed from the machine file; rounds differ by 3 %
    CALL.format("launch", "?arguments=0&threads=1"): 3.1,
    CALL.format("launch", "?arguments=4096&threads=1"): 3.1 + 4 * 0.13,
    CALL.format("launch", "?arguments=0&threads=8"): 8 * 1.1,
    CALL.format("launch_to_end", ""): 8.6,
    CALL.format("graph", "?nodes=1000&what=instantiate"): 0.8 + 1600,
    CALL.format("graph", "?nodes=1000&what=launch"): 1.5 + 1,
    CALL.format("synchronize", "?what=event"): 1.5,
    "copy_call/cpu/numa:0.pinned->gpu:0.device/0?size=4KiB": 1.3,
    "ping_pong/sm/gpu:0.device->gpu:1.device/0?word=waiter": 1.36,
    "atomic_latency/sm/gpu:0.device->gpu:0.device/0?scope=system": 0.22,
}  # fmt: skip


@pytest.mark.parametrize("id", KNOWN)
def test_a_simulated_run_returns_the_constants_of_the_machine_file(points, id):
    assert us(points, id) == pytest.approx(KNOWN[id], rel=0.06)


def test_a_round_trip_through_host_memory_costs_two_polls_by_the_gpu_and_agrees_with_the_measurement(points):
    found = us(points, "ping_pong/cpu/numa:0.pinned->gpu:0.pinned/0")
    assert found == pytest.approx(2 * (2 * 0.53 + 0.108), rel=0.06)
    assert found == pytest.approx(2.60, rel=0.15)  # anchors


def test_impossible_operations_have_a_reason(points):
    assert "not mapped for the host" in points["ping_pong/cpu/numa:0.device->gpu:0.device/0"].reason
    assert "no words are set in it yet" in points["ping_pong/cpu/numa:0.managed->gpu:0.managed/0"].reason


def test_additions_to_one_word_are_serialised(points):
    each, one = (
        points[f"atomic/sm/gpu:0.device->gpu:0.device/{size}?scope=gpu&words={words}"]
        for size, words in ((16 << 20, "each"), (64 << 10, "one"))
    )
    assert each.verified and one.verified
    assert one.median_s == pytest.approx(1.8e-6 + (64 << 10) / 8 / 1.5e9, rel=0.05)  # after the launch
    assert each.gbps > 10 * one.gbps
    assert each.limit_gbps is None  # a path's limit counts bytes, not operations


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("locked_us = { v = 1.1", "locked_us = { v = 3.2", "3.2 us cannot be a part of launch_us of [costs], 3.1 us"),
        ("gpu_gops = { v = 190", "gpu_gops = { v = 0", "atomic.gpu_gops: 0 is not above 0"),
        ("same_gops = ", "same_gbps = ", "did you mean 'same_gops'"),
        ("query_us = ", "ask_us = ", "calls.ask_us: there is no such key"),
    ],
)
def test_an_inconsistent_table_is_refused(old, new, words):
    text = models.bundled()["h200x2"].read_text()
    assert old in text
    with pytest.raises(UserError) as refused:
        models.parse(text.replace(old, new), "h200x2.toml")
    assert words in str(refused.value)


class Partners:
    """A worker with two actors that wait for each other; one actor's clock runs fast."""

    def __init__(self):
        self.batches = []

    def prepare(self, case, key, limit_s, then=None):
        ends = (("numa:0", "gpu:0", "measured"), ("gpu:0", "numa:0", "background"))
        flows = [FlowFacts(at, src, dst, "pinned", "pinned", 0, role) for at, (src, dst, role) in enumerate(ends)]
        return Prepared(True, actors=2, flows=flows, most_iterations=0)

    def run(self, samples, batches, *, verify, limit_s):
        self.batches += batches
        each = (2e-6, 0.9e-6)
        stamps = [
            stamp
            for batch in batches * samples
            for count, one in zip(batch, each, strict=True)
            for stamp in (0.0, 1e-6 + count * one)
        ]
        return Trace(samples, len(batches), 2, "host", stamps=stamps)


def test_all_actors_of_an_operation_without_bytes_do_the_same_number_of_iterations():
    worker = Partners()
    any_plan = plan(H2D.format(8, "false", "batched"))
    id = "ping_pong/cpu/numa:0.pinned->gpu:0.pinned/0"
    made = Sampler(worker, any_plan, facts()).measure(Task(PointId.parse(id), 0))
    assert made.batch in ([500, 500], [501, 501])  # 1 ms of the slower actor
    assert all(one == other for one, other in worker.batches)
    assert [flow.role for flow in made.flows] == ["measured", "background"]
