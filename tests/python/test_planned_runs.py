"""Complete planned runs on simulated machines: measured points, inherited points, names and messages."""

import itertools
import json
import re
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec import structs

import fakes
from campaign import sample
from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.model.slow_paths import slow_paths
from linkscope.plan import (
    inheritances,
    make_plan,
    representatives,
)
from linkscope.report import html, summary
from linkscope.run import Controls, benchmark_table, go_on, measure
from linkscope.run.interrupt import StopFlag
from linkscope.run.target import Target, modelled
from linkscope.run.worker import Worker
from linkscope.runfile import PointId, Run, read_run

MIB = 1 << 20


@pytest.fixture(scope="module")
def slowed() -> Target:
    """Four GPUs; one link is 10 % slower than in the machine file."""
    model = models.load("h200x4")
    fault = models.parse(
        models.bundled()["h200x4"].read_text()
        + '\n[[fault]]\nkind = "slow"\nfactor = 0.9\nlinks = ["nvlink switch:0->gpu:2"]\n', "slow",
    ).fault  # fmt: skip
    return modelled(structs.replace(model, fault=fault), 1)


@pytest.fixture(scope="module")
def staged(slowed: Target, tmp_path_factory) -> Run:
    path = tmp_path_factory.mktemp("planner") / "run.jsonl"
    plan = make_plan(slowed.facts, benchmark_table(), budget_s=30.0)
    assert measure(slowed, plan, path).complete
    return read_run(path)


def test_inherited_points_name_their_source(staged: Run) -> None:
    points = {found.id: found for found in staged.points}
    inherited = [found for found in points.values() if found.status == "inherited"]
    assert len(inherited) > 20
    for found in inherited:
        source = points[found.inherited_from]
        assert source.status in ("ok", "missed_precision") and source.bytes == found.bytes
        assert found.median_s == source.median_s and found.gbps == source.gbps and not found.flows[0].samples_s
        assert found.ci95_s[0] <= source.ci95_s[0] and found.ci95_s[1] >= source.ci95_s[1]
        assert "not measured" in found.reason
    assert set(staged.header.plan["points"]) <= points.keys()


def test_intervals_of_inherited_points_cover_the_measured_values(staged: Run, slowed: Target, tmp_path: Path) -> None:
    inherited = {found.id: found for found in staged.points if found.status == "inherited"}
    exhaustive = make_plan(slowed.facts, benchmark_table(), only=list(inherited), seed=1)
    measure(slowed, exhaustive, tmp_path / "all.jsonl")
    truth = {found.id: found.median_s for found in read_run(tmp_path / "all.jsonl").points}
    covered = sum(found.ci95_s[0] <= truth[id] <= found.ci95_s[1] for id, found in inherited.items())
    assert covered >= 0.94 * len(inherited)


def test_a_slow_link_is_named_with_its_paths_and_these_are_measured(staged: Run) -> None:
    found = slow_paths(staged)
    assert {slow_path.path for slow_path in found} == {f"gpu:{n}->gpu:2" for n in (0, 1, 3)}
    for slow_path in found:
        assert slow_path.low <= 1 / 0.9 * 1.005 and slow_path.high >= 1 / 0.9 * 0.97
    text = " ".join(summary.summary(staged, width=140, colour=False).split())
    assert re.search(r"Slow path: gpu:\d → gpu:2 takes 1\.1\d × the time of its class \[1\.\d+, 1\.\d+\]", text)
    assert "and 2 other paths too" in text
    inherited = [found for found in staged.points if found.status == "inherited" and found.bytes >= 16 * MIB]
    by_copies = [found for found in inherited if found.benchmark == "d2d" and found.params["peer"] == "on"]
    assert all("->gpu:2" in found.inherited_from for found in by_copies if found.dst == "gpu:2")


def test_all_readers_mark_inherited_points(staged: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    count = sum(found.status == "inherited" for found in staged.points)
    text = " ".join(summary.summary(staged, width=140, colour=False).split())
    assert f"{count} inherited" in text
    page = html.page(staged)
    assert page.count(",inherited,") == count and "hollow" in page
    assert main(["export", str(staged.path), "-o", str(tmp_path / "run.csv")]) == 0
    assert "inherited" in (tmp_path / "run.csv").read_text()
    assert main(["compare", str(staged.path), str(staged.path)]) == 0
    capsys.readouterr()


def test_an_interrupted_run_resumes_to_the_same_map(slowed: Target, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    plan = make_plan(slowed.facts, benchmark_table(), suite="quick", budget_s=3.0)
    measure(slowed, plan, path)
    uninterrupted = {found.id: found.status for found in read_run(path).points}
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    assert go_on(slowed, read_run(path)).complete
    again = {found.id: found.status for found in read_run(path).points}
    assert again.keys() == uninterrupted.keys()
    measured = [sum(status in ("ok", "missed_precision") for status in of.values()) for of in (uninterrupted, again)]
    assert measured[1] == pytest.approx(measured[0], rel=0.1)  # the points that fit into the time may differ


@pytest.fixture(scope="module")
def lines_of_one_gpu(tmp_path_factory) -> list[bytes]:
    here, path = modelled(models.load("h200x1"), 1), tmp_path_factory.mktemp("one") / "run.jsonl"
    measure(here, make_plan(here.facts, benchmark_table(), budget_s=15.0), path)
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("part", [0.45, *sample([], [0.81, 0.9]), 0.97])
def test_a_truncated_run_resumes_with_records_of_all_rounds(part: float, lines_of_one_gpu, tmp_path: Path) -> None:
    """Also for added sizes, and for points that were getting more rounds when the time ended."""
    here, path, lines = modelled(models.load("h200x1"), 1), tmp_path / "run.jsonl", lines_of_one_gpu
    path.write_bytes(b"".join(lines[: int(part * len(lines))]))
    assert go_on(here, read_run(path)).complete
    run = read_run(path)
    rounds = {found.id: len(found.flows[0].round_medians_s) if found.flows else 0 for found in run.points}
    assert {id: rounds.get(id) for id in run.rounds} == {id: len(of) for id, of in run.rounds.items()}


@pytest.mark.parametrize("looks", sample([1150], [1050, 1150, 1250]))
def test_a_stopped_planned_run_has_records_of_all_rounds_of_its_points(looks: int, tmp_path: Path) -> None:
    """Also for points with a record that were getting more rounds."""
    here, left = modelled(models.load("h200x1"), 1), itertools.count(looks, -1)

    class Stop(StopFlag):
        def __call__(self) -> bool:
            return next(left) <= 0

    plan = make_plan(here.facts, benchmark_table(), budget_s=15.0)
    assert not measure(here, plan, tmp_path / "run.jsonl", controls=Controls(stop=Stop())).complete
    run = read_run(tmp_path / "run.jsonl")
    counts = {found.id: len(found.flows[0].round_medians_s) for found in run.points if found.flows}
    assert counts == {id: len(rounds) for id, rounds in run.rounds.items()}


def test_single_copies_after_a_kernel_are_on_every_path_and_after_a_wait_on_one_per_class() -> None:
    points = map(PointId.parse, make_plan(modelled(models.load("h200x4"), 1).facts, benchmark_table()).points)
    paths: dict[tuple[str | None, ...], set[tuple[str, str]]] = defaultdict(set)
    for one in points:
        if (one.engine, one.bytes, one.param("mode")) == ("ce", 4096, "single") and one.src_memory != "pageable":
            paths[one.benchmark, one.param("after")].add((one.src, one.dst))
    assert {what: len(of) for what, of in paths.items()} == {
        ("h2d", "kernel"): 4, ("d2h", "kernel"): 4, ("d2d", "kernel"): 12, ("local", "kernel"): 4,
        ("h2d", "wait"): 1, ("d2h", "wait"): 1, ("d2d", "wait"): 1, ("local", "wait"): 1,
    }  # fmt: skip


def test_the_plan_lists_classes_roles_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--machine", "h200x4", "--plan-only", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    (pairs,) = [of for of in plan["classes"] if "nvlink" in of["kind"]]
    assert len(pairs["paths"]) == 12 and pairs["representative"] in pairs["paths"]
    for curve in pairs["curves"]:
        assert curve["audit"] != curve["representative"] and len(curve["checks"]) <= 3 and curve["expected_s"] > 0
    assert {of["role"] for of in plan["points"]} == {"representative", "audit", "check", "optional", "concurrent"}
    assert all(of["expected_s"] > 0 for of in plan["points"])


def test_a_budget_too_small_for_any_point_states_the_needed_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--machine", "h200x4", "--budget", "1s", "--plan-only"]) == 2
    message = capsys.readouterr().err
    assert "is too small" in message
    full_s, part_s = map(
        float, re.findall(r"about ([\d.]+) s on h200x4. Give that much time \(or ([\d.]+) s ", message)[0]
    )
    # the proposed budget is sufficient
    assert main(["run", "--machine", "h200x4", "--budget", f"{part_s}s", "--plan-only"]) == 0
    assert (
        full_s > 2 * part_s and main(["run", "--machine", "h200x4", "--budget", f"{0.9 * part_s}s", "--plan-only"]) == 2
    )
    capsys.readouterr()
    assert main(["run", "--machine", "h200x4", "--budget", "1us", "--only", "h2d/ce/*pinned*", "--plan-only"]) == 2
    assert "the cheapest point takes about" in capsys.readouterr().err
    assert main(["run", "--machine", "h200x1", "--only", "h2d/*", "--budget", "1s", "--plan-only"]) == 0
    assert "the budget of 1 s leaves no time for some points" in capsys.readouterr().out


@pytest.mark.parametrize("rule", ["comm-scope", "nvbandwidth"])
def test_the_stated_budget_of_a_rule_is_sufficient(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another tool's rule measures a point completely or not at all."""
    command = ["run", "--machine", "h200x1", "--rule", rule, "--suite", rule, "--only", "h2d/ce/*"]
    assert main([*command, "--budget", "1ms"]) == 2
    needed = re.search(r"takes about ([\d.]+) (m?s) on", capsys.readouterr().err)
    assert needed
    number, unit = float(needed[1]), needed[2]
    assert main([*command, "--budget", f"{0.9 * number:.4g}{unit}"]) == 2
    path = tmp_path / "run.jsonl"
    assert main([*command, "--budget", f"{number}{unit}", "-o", str(path)]) == 0
    assert any(point.median_s for point in read_run(path).points)


def test_points_named_by_only_are_all_measured() -> None:
    target = modelled(models.load("h200x2"), 1)
    table = benchmark_table()
    assert make_plan(target.facts, table, suite="quick", budget_s=10.0).classes
    assert not make_plan(target.facts, table, suite="quick", only=["d2d/*"], budget_s=10.0).classes
    assert not make_plan(target.facts, table, suite="full", budget_s=10.0).classes
    assert not make_plan(target.facts, table, suite="quick").classes


def test_every_point_of_the_plan_has_a_record_however_small_the_budget(slowed: Target, tmp_path: Path) -> None:
    plan = make_plan(slowed.facts, benchmark_table(), budget_s=6.0)
    assert measure(slowed, plan, tmp_path / "run.jsonl").complete
    points = {found.id: found for found in read_run(tmp_path / "run.jsonl").points}
    assert set(plan.points) <= points.keys()
    skipped = [found for found in points.values() if found.status == "skipped"]
    assert skipped and all("the budget" in found.reason for found in skipped)


@pytest.mark.parametrize(("suite", "budget_s"), [("quick", 2.8), ("standard", 12.0)])
def test_no_skipped_point_inherits_from_a_point_that_the_budget_cut_short(
    suite: str, budget_s: float, tmp_path
) -> None:
    """In any order of measuring and skipping."""
    here = modelled(models.load("h200x4"), 1)
    plan = make_plan(here.facts, benchmark_table(), suite=suite, budget_s=budget_s)
    points = measure(here, plan, tmp_path / "run.jsonl").points
    skipped = {id for id, found in points.items() if found.status == "skipped"}
    known = {id: found for id, found in points.items() if id not in skipped}
    assert skipped and not skipped & {inheritance.id for inheritance in inheritances(plan, known)}


def test_on_hardware_passes_alternate_between_a_fresh_process_and_a_fresh_platform(tmp_path, monkeypatch) -> None:
    opened = Worker.opened
    pids: list[int] = []

    def noted(worker: Worker):
        pids.append(worker.pid)
        return opened(worker)

    monkeypatch.setattr(Worker, "opened", noted)
    where = fakes.target(modelled=False)
    plan = make_plan(where.facts, fakes.table(), suite="quick", budget_s=60.0)
    assert fakes.measured(where, plan, tmp_path / "run.jsonl").complete
    assert len(pids) >= 3 and pids[0] == pids[1] != pids[2]  # rounds 0, 1, 2 have a platform each


def test_first_rounds_use_the_batch_of_the_representative(staged: Run) -> None:
    plan = make_plan(modelled(models.load("h200x4"), 1).facts, benchmark_table(), budget_s=30.0)
    assert plan.points == staged.header.plan["points"]
    batches = {id: of[0].batch for id, of in staged.rounds.items()}
    source_of = {id: source for id, source in representatives(plan).items() if id in batches and source in batches}
    assert len(source_of) > 100
    assert sum(batches[id] == batches[source] for id, source in source_of.items()) >= 0.95 * len(source_of)
