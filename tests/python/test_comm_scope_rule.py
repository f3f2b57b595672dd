"""Comm|Scope's rule: the samples it requests, its use of the stamps, and its points, reports and exports."""

import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import H2D, facts, plan
from linkscope.cli.main import main
from linkscope.plan import estimated_seconds
from linkscope.report.export_gbench import to_gbench
from linkscope.run.answers import FlowFacts, Prepared, Trace, Verdict
from linkscope.run.assemble import Assembler
from linkscope.run.batches import Task
from linkscope.run.comm_scope import MOST_AT_ONCE, CommScopeSampler
from linkscope.runfile import Point, PointId, Round, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

SIZE = 1 << 20
ID = H2D.format(SIZE, "false", "single")
BOTH = H2D.format(SIZE, "true", "single")


class Paced:
    """A worker whose operations have the stamps that `stamps` gives for their number."""

    def __init__(self, stamps: Any, actors: int = 1) -> None:
        ends = [("numa:0", "gpu:0"), ("gpu:0", "numa:0")]
        self.flows = [FlowFacts(n, *ends[n], "pinned", "device", SIZE, "measured") for n in range(actors)]
        self.stamps, self.actors, self.done = stamps, actors, 0
        self.cases: list[dict[str, Any]] = []
        self.asked: list[tuple[int, bool]] = []

    def prepare(self, case: Any, key: str, limit_s: float, then: Any = None) -> Prepared:
        self.cases.append(case)
        return Prepared(True, actors=self.actors, flows=self.flows)

    def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float) -> Trace:
        assert batches == [[1] * self.actors]
        self.asked.append((samples, verify))
        numbers = range(self.done, self.done + samples)
        self.done += samples
        verdict = Verdict(True, 8, 0, "") if verify else None
        stamps = [stamp for number in numbers for stamp in self.stamps(number)]
        return Trace(samples, 1, self.actors, "events", verdict=verdict, stamps=stamps)


def ruled(worker: Paced, id: str = ID) -> Round:
    sampler = CommScopeSampler(worker, plan(ID, rule="comm-scope"), facts())  # type: ignore[arg-type]
    return sampler.measure(Task(PointId.parse(id), 0))


def point_of(made: Round, rule: Any = "comm-scope") -> Point:
    return Assembler(plan(made.id, rounds=1, rule=rule), facts(), lambda _: None).point(made.id, [made])


def test_each_repetition_has_the_operations_of_the_first_second() -> None:
    """0.3 s each: four operations, found after the first; five repetitions, and only the last request is verified."""
    worker = Paced(lambda _: (7.0, 7.3))
    made = ruled(worker)
    assert worker.asked == [(1, False), (3, False), *[(4, False)] * 3, (4, True)]
    assert made.flows[0].samples_s == pytest.approx([0.3] * 5) and made.batch == [4]
    assert made.timing == "events" and made.verified is True and made.round == 0
    assert "together_s" not in made.guards and "joint_overlap" not in made.guards


def test_long_operations_run_once_per_repetition() -> None:
    worker = Paced(lambda number: (0.0, 2.0 + number))
    made = ruled(worker)
    assert [samples for samples, _ in worker.asked] == [1] * 5
    assert made.flows[0].samples_s == [2.0, 3.0, 4.0, 5.0, 6.0]


def test_many_operations_are_requested_in_parts() -> None:
    each = 2e-5
    worker = Paced(lambda _: (1.0, 1.0 + each))
    made = ruled(worker)
    (count,) = made.batch
    assert count * each >= 1.0 and (count - 1) * each < 1.0 + 1e-9
    assert max(samples for samples, _ in worker.asked) == MOST_AT_ONCE
    assert sum(samples for samples, _ in worker.asked) == 5 * count
    assert [verify for _, verify in worker.asked].index(True) == len(worker.asked) - 1


def test_a_repetition_is_the_mean_of_its_operations() -> None:
    """1 s, then 0.1 s each: every repetition has one operation, like the first. A median would show 0.1 s."""
    worker = Paced(lambda number: (0.0, 0.4 if number % 3 == 0 else 0.35))
    made = ruled(worker)
    assert made.batch == [3] and made.flows[0].samples_s == pytest.approx([1.1 / 3] * 5)


def test_the_point_has_mean_and_standard_deviation_of_the_five() -> None:
    made = ruled(Paced(lambda number: (0.0, 2.0 + number**2)))
    found = point_of(made)
    values = [2.0, 3.0, 6.0, 11.0, 18.0]
    (flow,) = found.flows
    assert (flow.mean_s, flow.stddev_s) == (pytest.approx(8.0), pytest.approx(statistics.stdev(values)))
    assert found.median_s == 6.0 and found.gbps == pytest.approx(SIZE / 6.0 / 1e9)
    assert found.status == "missed_precision" and found.ci95_s is None  # a single process has no interval
    other = point_of(made, rule="linkscope").flows[0]
    assert other.mean_s is None and other.stddev_s is None


def test_bidirectional_time_is_from_first_start_to_last_end() -> None:
    """From 0 to 0.3 s and from 0.1 to 0.5 s."""
    made = ruled(Paced(lambda _: (0.0, 0.3, 0.1, 0.5), actors=2), BOTH)
    assert made.batch == [2, 2]
    assert [flow.samples_s for flow in made.flows] == [pytest.approx([0.3] * 5), pytest.approx([0.4] * 5)]
    assert made.guards["together_s"] == pytest.approx(0.5)
    found = point_of(made)
    assert found.total_gbps == pytest.approx(2 * SIZE / 0.5 / 1e9)
    assert "in_turn" not in found.guards


def test_sequential_copies_count_both_times() -> None:
    """A small copy ends before the host has queued the other. Comm|Scope's time includes this."""
    found = point_of(ruled(Paced(lambda _: (0.0, 0.2, 0.2, 0.4), actors=2), BOTH))
    assert found.total_gbps == pytest.approx(2 * SIZE / 0.4 / 1e9) and "in_turn" not in found.guards


def test_only_latencies_use_a_gate() -> None:
    worker = Paced(lambda _: (0.0, 2.0))
    ruled(worker)
    assert worker.cases[0]["held"] is False

    class Chase(Paced):
        def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float) -> Trace:
            stamps = [t for _ in range(samples) for batch in batches for t in (0.0, 5e-6 + batch[0] * 1e-6)]
            return Trace(samples, len(batches), 1, "gate", stamps=stamps)

    chase = Chase(None)
    made = ruled(chase, "latency/sm/gpu:1.device->gpu:0.device/0?cache=hot&range=2MiB")
    assert "held" not in chase.cases[0]
    assert made.flows[0].samples_s == pytest.approx([1e-6] * len(made.flows[0].samples_s))


# Complete commands on simulated machines

PINNED = "h2d/ce/numa:0.registered->gpu:0.device/{}?after=wait&bidirectional={}&mode=single"
SMALL, LARGE = PINNED.format(256, "false"), PINNED.format(64 << 20, "false")


@pytest.fixture(scope="module")
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comm-scope") / "run.jsonl"
    ids = [SMALL, LARGE, PINNED.format(64 << 20, "true"), LARGE.replace("registered", "pageable")]
    only = [word for id in (*ids, "demand/*numa:0*gpu:0*/67108864*") for word in ("--only", id)]
    words = ["run", "--machine", "ac922", "--suite", "comm-scope", "--rule", "comm-scope", *only]
    assert main([*words, "-o", str(path), "--json"]) == 0
    return path


def test_a_repetition_on_a_model_has_one_second_or_1000_operations(run_path: Path) -> None:
    run = read_run(run_path)
    assert run.header.plan["rule"] == "comm-scope" and run.header.plan["rounds"] == 1
    assert len(run.points) == 5
    assert [1000] in [point.batch for point in run.points]  # the small copies
    for point in run.points:
        (samples,) = point.flows[0].samples_s
        assert len(samples) == 5 and point.batch and point.verified, point.id
        (operations,) = point.batch[:1]
        assert operations <= 1000, point.id
        assert operations == 1000 or 4.9 < point.device_s < 5.6, point.id
        flow = point.flows[0]
        assert flow.mean_s == pytest.approx(statistics.fmean(samples))
        assert flow.stddev_s == pytest.approx(statistics.stdev(samples))


def test_small_copies_include_the_cost_of_queueing_and_large_ones_do_not(run_path: Path, tmp_path: Path) -> None:
    """By linkscope's rule the host has queued the copy before it starts."""
    held = tmp_path / "held.jsonl"
    assert main(["run", "--machine", "ac922", "--only", SMALL, "--only", LARGE, "-o", str(held), "--json"]) == 0
    theirs, ours = ({point.id: point.median_s or 0.0 for point in read_run(path).points} for path in (run_path, held))
    assert theirs[SMALL] > 1.5 * ours[SMALL]
    assert theirs[SMALL] - ours[SMALL] == pytest.approx(theirs[LARGE] - ours[LARGE], rel=0.25)  # the same microseconds
    assert theirs[LARGE] == pytest.approx(ours[LARGE], rel=0.02)


def test_the_rule_reproduces_the_numbers_of_the_paper_cs_28_cs_31(run_path: Path) -> None:
    found = {point.id: point for point in read_run(run_path).points}
    assert found[LARGE].gbps == pytest.approx(72, rel=0.05)
    assert found[PINNED.format(64 << 20, "true")].total_gbps == pytest.approx(2 * 72, rel=0.05)
    assert found[LARGE.replace("registered", "pageable")].gbps < 0.5 * 72


def test_one_seed_gives_one_result(run_path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    words = ["run", "--machine", "ac922", "--rule", "comm-scope", "--only", LARGE, "-o", str(again), "--json"]
    assert main(words) == 0
    (point,) = read_run(again).points
    assert point.flows[0].samples_s == next(p for p in read_run(run_path).points if p.id == LARGE).flows[0].samples_s


def test_all_outputs_name_the_rule(run_path: Path, tmp_path: Path, capsys) -> None:
    page, text = tmp_path / "page.html", tmp_path / "text.md"
    assert main(["report", str(run_path), "-o", str(page)]) == 0
    assert main(["report", str(run_path), "--markdown", str(text)]) == 0
    assert main(["report", str(run_path), "--summary"]) == 0
    for output in (page.read_text(), text.read_text(), capsys.readouterr().out.replace("\n", " ")):
        assert "measured by the rule of comm-scope" in output


def test_the_table_has_mean_and_deviation_of_each_direction_and_the_total(run_path: Path, capsys) -> None:
    assert main(["report", str(run_path), "--comm-scope"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("MODELLED")
    head, *lines = printed.splitlines()[2:]
    assert head.split() == ["mean", "stddev", "GB/s"]
    of_both = [line for line in lines if line.startswith(PINNED.format(64 << 20, "true"))]
    assert "numa:0 -> gpu:0" in of_both[0] and "gpu:0 -> numa:0" in of_both[1] and "bidirectional" in of_both[2]
    assert float(of_both[2].split()[-1]) == pytest.approx(2 * 72, rel=0.05)


def test_a_run_by_another_rule_has_no_comm_scope_table(tmp_path: Path, capsys) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x1", "--only", SMALL, "-o", str(path), "--json"]) == 0
    assert main(["report", str(path), "--comm-scope"]) == 3
    assert "--rule comm-scope" in capsys.readouterr().err
    assert "mean_s" not in path.read_text()


def test_repetitions_match_those_of_google_benchmark(run_path: Path) -> None:
    rows = [row for row in json.loads(to_gbench(read_run(run_path)))["benchmarks"] if row["run_name"] == LARGE]
    (point,) = [point for point in read_run(run_path).points if point.id == LARGE]
    assert [row["iterations"] for row in rows[:5]] == (point.batch or []) * 5
    assert [row["real_time"] for row in rows[:5]] == pytest.approx([1e9 * time for time in point.flows[0].samples_s[0]])
    aggregates = {row["aggregate_name"]: row["real_time"] for row in rows[5:]}
    assert aggregates["mean"] == pytest.approx(1e9 * point.flows[0].mean_s)
    assert aggregates["stddev"] == pytest.approx(1e9 * point.flows[0].stddev_s)


def test_the_plan_counts_five_seconds_per_point_and_less_for_1000_short_operations_of_a_model(capsys) -> None:
    assert 5.0 <= estimated_seconds(PointId.parse(SMALL), replace(facts(), modelled=False), "comm-scope") < 6.0
    words = ["run", "--machine", "h200x1", "--rule", "comm-scope", "--only", SMALL, "--only", LARGE]
    assert main([*words, "--plan-only", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    expected = {point["id"]: point["expected_s"] for point in answer["points"]}
    assert answer["rounds"] == 1 and expected[SMALL] < 0.1 and 5.0 <= expected[LARGE] < 6.0


def test_the_rule_takes_one_round(capsys) -> None:
    assert main(["run", "--machine", "h200x1", "--rule", "comm-scope", "--rounds", "6"]) == 2
    assert "comm-scope's rule is one round, in one process; leave it out" in capsys.readouterr().err
