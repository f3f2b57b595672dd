"""Suites `sp-9` and `sp-11`: transfer tasks beside message tasks, on a model and on this machine."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from fake_driver import ROOT, environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.errors import FINE, NOT_HERE
from linkscope.machine import model as models
from linkscope.plan.cases import case_of
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.report.details import details
from linkscope.report.section import Output, Table
from linkscope.report.sections import sections
from linkscope.report.summary import summary
from linkscope.report.task_sets import Compared, TaskSet, task_sets, thread_costs
from linkscope.run import benchmark_table
from linkscope.run.simulate import simulation
from linkscope.run.target import choose
from linkscope.runfile import PointId, Run, read_run
from test_cli import linkscope

pytestmark = [needs_worker]
TWO_CPUS = 2


def measured(path: Path, suite: str, *only: str, machine: str = "sl390") -> Run:
    globs = [word for glob in only for word in ("--only", f"tasks/ce/numa:0.pinned->gpu:0.*{glob}")]
    words = ["run", "--machine", machine, "--suite", suite, *globs, "--rounds", "2", "-o", str(path), "-q"]
    assert main(words) in (FINE, NOT_HERE)
    return read_run(path)


def by_name(one: TaskSet) -> dict[str, Compared]:
    return {compared.name: compared for compared in one.compared}


def test_sp_9_has_both_scenarios_alone_at_once_and_alone_again() -> None:
    machine = choose("sl390", 1).facts
    points = [point for point in points_of(SUITES["sp-9"], machine, benchmark_table()) if point.dst == "gpu:0"]
    combinations = [(message, messages) for message in ("8B", "64KiB") for messages in ("each", "cores")]
    found = [
        (point.param("at"), point.param("again"), point.param("message"), point.param("messages")) for point in points
    ]
    wanted = [("both", "", *of) for of in combinations]
    wanted += [("messages", again, *of) for of in combinations for again in ("", "true")]
    wanted += [("transfers", again, "8B", "each") for again in ("", "true")]
    assert sorted(found) == sorted(wanted)


def test_sp_11_has_one_to_four_sets_by_one_thread_and_by_two() -> None:
    points = points_of(SUITES["sp-11"], choose("h200x4", 1).facts, benchmark_table())
    both = {(point.param("sets"), point.param("threads")) for point in points if point.param("at") == "both"}
    assert both == {(sets, threads) for sets in "1234" for threads in ("", "one")}


def test_tasks_on_all_gpus_and_cpus_need_to_know_them() -> None:
    machine = choose("sl390", 1).facts
    id = "tasks/ce/numa:0.pinned->gpu:0.device/8?at=both&message=8B&messages=cores&sets=all"
    case = case_of(PointId.parse(id), machine)
    assert case["others"] == ["gpu:0", "gpu:1", "gpu:2"] and case["cpus"] == [6, 6]


def test_a_quantity_that_a_task_lacks_has_no_penalty(tmp_path: Path) -> None:
    """A fault can leave a flow without a rate. The report of a run under random faults divided by it."""
    run = measured(tmp_path / "a.jsonl", "sp-9", "at=transfers*", "at=messages*8B*each*", "at=both*8B*each*")
    assert {name for one in task_sets(run) for name in by_name(one)} >= {"transfers", "messages, median"}
    points = [
        structs.replace(one, flows=[structs.replace(flow, gbps=None) for flow in one.flows])
        if one.params.get("at") == "transfers"
        else one
        for one in run.points
    ]
    lacking = dataclasses.replace(run, points=points)
    names = {name for one in task_sets(lacking) for name in by_name(one)}
    assert "transfers" not in names and "messages, median" in names
    assert "messages, median" in details(lacking)


def test_penalties_of_each_task_by_both_formulas() -> None:
    rates = Compared("transfers", True, [10.0, 20.0], [5.0, 16.0], [9.0, 18.0])
    assert (rates.over_good.low, rates.over_good.mean, rates.over_good.high) == pytest.approx((0.2, 0.35, 0.5))
    assert (rates.over_bad.low, rates.over_bad.mean, rates.over_bad.high) == pytest.approx((0.25, 0.625, 1.0))
    assert rates.drift == pytest.approx(-0.1)
    times = Compared("messages", False, [1e-6], [4e-6], [])
    assert times.over_good.mean == pytest.approx(3) and times.over_bad.mean == pytest.approx(0.75)
    assert times.drift is None
    assert times.longer_s == pytest.approx(3e-6) and rates.longer_s is None


def test_transfers_and_messages_on_a_model_of_keeneland(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = measured(tmp_path / "run.jsonl", "sp-9", "message=8B&messages=*")
    found = {one.point.params["messages"]: by_name(one) for one in task_sets(run)}
    assert set(found) == {"each", "cores"}
    # Twelve CPUs: three drive GPUs, four pairs are left.
    assert [len(found[key]["messages, median"].good) for key in ("each", "cores")] == [3, 4]
    small = found["cores"]
    assert len(small["transfers"].good) == 3
    assert small["messages, median"].good[0] == pytest.approx(1.2e-6, rel=0.1)
    assert small["messages, median"].over_good.high < 0.1  # small messages suffer least
    assert abs(small["transfers"].drift or 1) < 0.01
    capsys.readouterr()
    assert main(["report", str(run.path), "--summary=full"]) == 0
    text = capsys.readouterr().out
    assert "Transfer tasks beside message tasks" in text and "(bad - good) / good" in text


def test_sp_8_has_a_transfer_and_messages_between_ranks_by_turns_and_at_once(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    only = ("--only", "rank_tasks/*")
    words = ["run", "--machine", "h200x2", "--suite", "sp-8", *only, "--rounds", "2", "-o", str(path), "-q"]
    assert main(words) == FINE
    found = {one.point.params["message"]: by_name(one) for one in task_sets(read_run(path))}
    assert set(found) == {"8B", "64KiB"}
    for compared in found.values():
        assert [len(of.good) for of in compared.values()] == [1, 1, 1]  # a transfer, and a pair of ranks
        assert all(of.drift is not None and of.over_good.mean < 0.2 for of in compared.values())


@pytest.mark.parametrize("suite", ["sp-8", "sp-9", "sp-11"])
def test_the_report_does_not_take_message_tasks_between_ranks_for_round_trips(suite: str) -> None:
    run = read_run(ROOT / "results" / f"h100x1-{suite}-mpi.jsonl.gz")
    assert {point.benchmark for point in run.points} == {"rank_tasks"}
    (ranks,) = [one for one in sections(run, Output.TERMINAL) if one.anchor == "ranks"]
    labels = [block.label for block in ranks.only(Output.TERMINAL) if isinstance(block, Table)]
    assert (ranks.answers, labels) == ((), ["Ranks"])  # the places of the ranks, without latencies
    text = summary(run, width=96, colour=False)
    assert "Messages beside transfers" in text and "latency of the smallest message" not in text


def test_sp_9_has_messages_between_ranks_of_a_model_with_both_penalties(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    only = ("--only", "rank_tasks/mpi/rank:0.*message=64KiB&messages=all&*", "--only", "rank_tasks/*at=transfers*")
    words = ["run", "--machine", "h200x4", "--suite", "sp-9", *only, "--rounds", "2", "-o", str(path), "-q"]
    assert main(words) in (FINE, NOT_HERE)
    (one,) = [one for one in task_sets(read_run(path)) if one.point.src == "rank:0"]
    found = by_name(one)
    assert set(found) == {"transfers", "messages, median", "messages, p99"}
    assert [len(of.good) for of in found.values()] == [4, 2, 2]  # four GPUs, two pairs of ranks
    assert all(of.drift is not None for of in found.values())
    assert found["messages, median"].over_bad.high < found["messages, median"].over_good.high + 1e-9 < 1


def test_one_thread_for_both_makes_messages_slower_and_copies_hardly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = measured(tmp_path / "run.jsonl", "sp-11", "message=64KiB*sets=1*", "message=8B&messages=each&sets=1")
    found = {
        one.point.params.get("threads", "two"): by_name(one)
        for one in task_sets(run)
        if one.point.params["message"] == "64KiB"
    }
    median = {threads: of["messages, median"].bad[0] for threads, of in found.items()}
    assert 1e-6 < median["one"] - median["two"] < 10e-6  # the paper: about 5 us
    rate = {threads: of["transfers"].bad[0] for threads, of in found.items()}
    assert rate["one"] == pytest.approx(rate["two"], rel=0.05)
    (cost,) = thread_costs(run)  # the messages of 8 B were measured by two threads only
    of = {compared.name: compared for compared in cost.compared}
    assert of["messages, median"].longer_s == pytest.approx(median["one"] - median["two"])
    assert of["messages, median"].over_good.mean == pytest.approx(median["one"] / median["two"] - 1)
    assert of["messages, median"].over_bad.mean == pytest.approx(1 - median["two"] / median["one"])
    assert set(cost.drift) == set(of) and all(abs(drift) < 0.05 for drift in cost.drift.values())
    capsys.readouterr()
    assert main(["report", str(run.path), "--summary=full"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "One thread Longer by Over good Over bad" in text and "with one thread for both" in text
    assert main(["report", str(run.path), "--summary"]) == 0
    assert "One thread for both instead of two, messages: 64KiB up to" in " ".join(capsys.readouterr().out.split())


def test_one_thread_is_compared_with_two_of_the_same_sets_also_without_tasks_alone(tmp_path: Path) -> None:
    run = measured(tmp_path / "run.jsonl", "sp-11", "at=both&message=8B&messages=each&sets=[12]*")
    assert not task_sets(run)
    found = thread_costs(run)
    assert [one.one.params["sets"] for one in found] == ["1", "2"] == [one.two.params["sets"] for one in found]
    assert all("threads" not in one.two.params and not one.drift for one in found)


def test_a_prediction_of_a_model_has_a_flow_for_each_task() -> None:
    """Twelve CPUs: three drive GPUs, four pairs exchange messages."""
    id = "tasks/ce/numa:0.pinned->gpu:0.device/67108864?at=both&message=8B&messages=cores&sets=all"
    with simulation() as simulated:
        (found,) = simulated.seconds(models.load("sl390").to_json(), [PointId.parse(id)])
    assert len(found) == 3 + 4


def test_more_sets_than_gpus_and_more_tasks_than_cpus_are_a_stated_skip(tmp_path: Path) -> None:
    run = measured(tmp_path / "run.jsonl", "sp-11", "at=both&message=8B&messages=each&sets=4")
    assert [point.status for point in run.points] == ["unsupported"]
    assert "gpu:3" in (run.points[0].reason or "")
    text = (Path(__file__).parents[2] / "machines" / "sl390.toml").read_text()
    few = tmp_path / "few.toml"
    few.write_text(text.replace("cpus = 6", "cpus = 2"))
    run = measured(tmp_path / "cpus.jsonl", "sp-9", "at=both&message=8B&messages=each&sets=all", machine=str(few))
    assert "a task needs CPU number 4 of numa:0 for itself, and the node has 2 CPUs" in (run.points[0].reason or "")


@needs_fake
def test_tasks_by_one_thread_on_this_machine(tmp_path: Path) -> None:
    """Two CPUs are enough for one set: the thread of the stream, and the process that answers."""
    path = tmp_path / "run.jsonl"
    only = "tasks/ce/numa:0.pinned->gpu:0.*at=both&message=8B&messages=each&sets=1&threads=one"
    words = ("--suite", "sp-11", "--only", only, "--rounds", "1", "--contexts", "any", "-o", str(path), "-q")
    done = linkscope("run", *words, environment=environment(CUDA_GPUS=1, CUDA_COPY_US=2000))
    assert done.returncode == 0, done.stderr
    (point,) = read_run(path).points
    if point.status == "unsupported":
        assert "for itself" in (point.reason or "")
        return
    transfer, message = point.flows
    assert point.verified and transfer.gbps and message.p50_s and message.p99_s
    assert message.p50_s <= message.p99_s and transfer.p50_s is None
