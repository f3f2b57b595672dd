"""Managed memory on simulated machines, from the machine file to the run file."""

import re

import pytest

from fakes import H2D, facts, plan
from linkscope.errors import UserError
from linkscope.machine import model as models
from linkscope.plan import SUITES, make_plan
from linkscope.plan.enumerate import points_of
from linkscope.run import benchmark_table, measure
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.calibrate import CHASE_S
from linkscope.run.sampler import Sampler
from linkscope.run.steady import steady_rates
from linkscope.run.target import modelled
from linkscope.runfile import PointId, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

MIB = 1 << 20
MANAGED = {"demand", "prefetch", "fault_latency"}
WITH_TABLE = ("ac922", "s822lc", "minsky", "newell", "4029gp", "h200x1", "h200x2", "h200x4", "h200x8")


@pytest.mark.parametrize("machine", sorted(models.bundled()))
def test_machines_with_known_costs_have_the_table_of_managed_memory(machine):
    assert (models.load(machine).managed is not None) == (machine in WITH_TABLE)


def test_four_suites_measure_managed_memory_at_few_points():
    machine, table = modelled(models.load("ac922"), 1).facts, benchmark_table()
    for name, suite in SUITES.items():
        found = [point for point in points_of(suite, machine, table) if point.benchmark in MANAGED]
        some = {"full": MANAGED} | {key: {"demand", "prefetch"} for key in ("standard", "comm-scope", "sanity")}
        assert {point.benchmark for point in found} == some.get(name, set())
        assert all(point.bytes <= 256 * MIB for point in found)
    threads = {point.param("threads") for point in found if point.benchmark == "demand"}
    assert threads == {"", "1", "2", "4", "8", "16", "all"}


def refusal(old, new):
    text = models.bundled()["ac922"].read_text()
    managed = text[text.index("[managed]") : text.index("[pageable]")]
    assert re.search(old, managed)
    with pytest.raises(UserError) as refused:
        models.parse(text.replace(managed, re.sub(old, new, managed)), "ac922.toml")
    return str(refused.value)


@pytest.mark.parametrize(
    "old, new, words",
    [
        ("page_kib = { v = 64", "page_kib = { v = 0", "managed.page_kib: 0 is not above 0"),
        ("cpu_fault_us = { v = 12", "cpu_fault_us = { v = -1", "managed.cpu_fault_us: -1 is not a time"),
        ("gpu_batch_pages = { v = 256", "gpu_batch_pages = { v = 2.5", "managed.gpu_batch_pages: 2.5 is not a count"),
        ("cpu_fault_pages = { v = 1", "cpu_fault_pages = { v = 1.5", "managed.cpu_fault_pages: 1.5 is not a count"),
        (
            "cpu_fault_pages = { v = 1",
            'cpu_block_pages = { v = 3, from = "assumed", why = "-" }\ncpu_fault_pages = { v = 2',
            "managed.cpu_block_pages: a block of 3 pages does not consist of faults of 2 pages; write a multiple",
        ),
        (
            "cpu_fault_us = ",
            'cpu_block_pages = { v = 1.5, from = "assumed", why = "-" }\ncpu_fault_us = ',
            "managed.cpu_block_pages: 1.5 is not a count",
        ),
        ("piece_kib = { v = 2048", "piece_kib = { v = 100", "not whole pages of 64 KiB; write a multiple of page_kib"),
        ("prefetch_us = .*", "", "managed.prefetch_us: it is missing"),
        ("launch_us = ", "start_us = ", "managed.start_us: there is no such key"),
    ],
)
def test_an_invalid_table_of_managed_memory_is_refused(old, new, words):
    assert words in refusal(old, new)


class Limited:
    """A worker whose operation takes 10 us and whose samples have a limited number of iterations."""

    def __init__(self, most, size):
        self.most, self.size, self.largest = most, size, 0

    def prepare(self, case, key, limit_s, then=None):
        flow = FlowFacts(0, "numa:0", "gpu:0", "managed", "managed", self.size, "measured")
        return Prepared(True, actors=1, flows=[flow], most_iterations=self.most)

    def run(self, samples, batches, *, verify, limit_s):
        self.largest = max(self.largest, *(batch[0] for batch in batches))
        stamps = [stamp for batch in batches * samples for stamp in (0.0, 1e-6 + batch[0] * 10e-6)]
        return Trace(samples, len(batches), 1, "gate", stamps=stamps)


@pytest.mark.parametrize(
    "most, size, batch", [(1, 64, 1), (2, 64, 1), (16, 64, 8), (64, 0, 32), (512, 0, 256), (0, 0, 256)]
)
def test_a_sample_has_no_more_iterations_than_the_program_allows(most, size, batch):
    assert CHASE_S / 10e-6 < 256
    worker = Limited(most, size)
    name = "demand" if size else "fault_latency"
    id = f"{name}/fault/numa:0.managed->gpu:0.managed/{size}"
    any_plan = plan(H2D.format(8, "false", "batched"))
    made = Sampler(worker, any_plan, facts()).measure(Task(PointId.parse(id), 0))
    assert made.batch == [batch]
    assert made.flows[0].samples_s[0] == pytest.approx(10e-6)
    assert worker.largest == (1 if most == 1 else 2 * batch)


def test_operations_without_a_steady_state_are_not_predicted():
    point = PointId("demand", "fault", "numa:0", "managed", "gpu:0", "managed", MIB)
    with pytest.raises(UserError, match="no steady state"):
        steady_rates(models.load("ac922"), [point])


def measured(machine, folder, *only):
    target = modelled(models.load(machine), 1)
    chosen = make_plan(target.facts, benchmark_table(), suite="full", only=only, seed=1)
    measure(target, chosen, folder / "run.jsonl")
    return {str(point.id): point for point in read_run(folder / "run.jsonl").points}


def test_a_run_has_one_point_for_each_count_of_threads_and_more_are_faster_cs_13(tmp_path):
    points = measured("ac922", tmp_path, "demand/fault/gpu:0.managed->numa:0.managed/67108864[?]*")
    by_thread_count = {
        point.params["threads"]: point
        for point in points.values()
        if point.params["access"] == "write" and not point.bidirectional and not {"touch", "advice"} & set(point.params)
    }
    assert set(by_thread_count) == {"1", "2", "4", "8", "16", "all"}
    rates = [by_thread_count[count].gbps for count in ("1", "2", "4", "8", "16", "all")]
    assert rates == sorted(rates) and rates[-1] > 3 * rates[0]
    for point in by_thread_count.values():
        assert point.verified and point.batch == [1] and point.footprint_bytes == point.bytes


def test_advice_helps_many_cpu_threads_that_reach_a_gpus_memory(tmp_path):
    """On ac922 a thread reads GPU memory at 2 GB/s and migrated pages at 3.35; sixteen threads read at 32 GB/s. Over
    PCIe a CPU cannot read GPU memory, so pages migrate in spite of the advice."""
    ends = "demand/fault/gpu:0.managed->numa:0.managed/67108864?access=read"
    ids = {
        (advice, threads): f"{ends}&{advice}&bidirectional=false&threads={threads}"
        for advice in ("advice=accessed_by", "advice=preferred_src", "advice=preferred_dst")
        for threads in (1, 16)
    }
    for machine, reaches in (("ac922", True), ("h200x1", False)):
        points = measured(machine, tmp_path, *ids.values())
        rates = {key: points[id].gbps for key, id in ids.items()}
        (tmp_path / "run.jsonl").unlink()
        for threads in (1, 16):
            ahead, kept, came = (rates[advice, threads] for advice, many in ids if many == threads)
            if not reaches:
                assert ahead == pytest.approx(came, rel=0.1) and kept == pytest.approx(came, rel=0.1)
                continue
            assert ahead == pytest.approx(2 * threads, rel=0.1) and kept < 0.9 * ahead
            assert (ahead > 1.2 * came) == (threads == 16)


def test_a_machine_without_the_table_states_the_reason(tmp_path):
    for point in measured("jorda-c", tmp_path, "prefetch/*numa:0.managed->gpu:0.managed/1048576[?]*").values():
        assert point.status == "unsupported" and "[managed]" in point.reason
