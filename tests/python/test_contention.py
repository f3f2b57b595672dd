"""Suite `contention`: one kind of work beside another, its matrix of slowdowns, and what cannot run."""

import dataclasses
import itertools
import json
from pathlib import Path

import msgspec
import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.errors import FINE, NOT_HERE
from linkscope.plan import in_order, make_plan
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.report.contention import MatrixRow, matrix
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import PointId, Run, read_run
from test_cli import linkscope

pytestmark = [needs_worker]
RESULTS = Path(__file__).parents[2] / "results"
KINDS = (
    "h2d", "d2h", "both", "local", "peer", "zero_copy", "memory", "triad", "gemm", "launch", "ping_pong", "host",
    "message", "socket",
)  # fmt: skip


def measured(path: Path, *only: str, machine: str = "h200x4") -> Run:
    globs = [word for glob in only for word in ("--only", glob)]
    words = ["run", "--machine", machine, "--suite", "contention", *globs, "-o", str(path), "-q"]
    assert main(words) == 0
    return read_run(path)


def rows(run: Run) -> dict[str, MatrixRow]:
    return {row.kind: row for row in matrix(run)}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Copies to a GPU, to and from it at once, and to another GPU: alone and beside copies to the first GPU."""
    path = tmp_path_factory.mktemp("contention") / "run.jsonl"
    globs = [f"contended_{kind}/*beside={other}" for kind in ("h2d", "both", "peer") for other in ("none", "h2d")]
    globs.append("contended_h2d/*again=true*")
    return measured(path, *globs)


def test_the_suite_measures_each_kind_alone_and_beside_each_kind_on_one_path() -> None:
    table = benchmark_table()
    named = {row.name for row in table if row.name.startswith("contended_")}
    assert named == {f"contended_{kind}" for kind in (*KINDS, "disk")}
    named.remove("contended_disk")  # no disk here
    points = points_of(SUITES["contention"], choose("h200x4", 1).facts, table)
    assert {(point.benchmark, point.param("beside")) for point in points} == {
        (name, other) for name in named for other in ("none", *KINDS)
    }
    again = [point for point in points if point.param("again")]
    assert {(point.benchmark, point.param("beside")) for point in again} == {(name, "none") for name in named}
    assert len(points) == len(KINDS) * (len(KINDS) + 2)


@pytest.mark.parametrize("suite, kinds", [("contention", KINDS), ("sp-8", ("h2d", "d2h", "message", "host"))])
def test_where_there_is_a_disk_its_reads_are_a_row_and_a_column(suite: str, kinds: tuple[str, ...]) -> None:
    found = points_of(SUITES[suite], choose("jorda-b", 1).facts, benchmark_table())
    of_disk = {point.param("beside") for point in found if point.benchmark == "contended_disk"}
    assert of_disk == {"none", "disk", *kinds}
    beside_disk = {point.benchmark: point for point in found if point.param("beside") == "disk"}
    assert beside_disk.keys() == {f"contended_{kind}" for kind in (*kinds, "disk")}
    assert {point.src for point in beside_disk.values()} == {"disk:0"}


def test_reads_of_a_disk_share_it_and_leave_the_links_of_gpus_alone(tmp_path: Path) -> None:
    globs = [f"contended_disk/*beside={other}" for other in ("none", "disk", "h2d")]
    globs += [f"contended_{kind}/*beside={other}" for kind in ("h2d", "host") for other in ("none", "disk")]
    run = measured(tmp_path / "run.jsonl", *globs, machine="jorda-b")
    found = rows(run)
    assert found["disk"].beside["disk"].ratio == pytest.approx(2, rel=0.03)
    assert found["disk"].beside["h2d"].ratio == pytest.approx(1, rel=0.03)
    h2d = found["h2d"]
    assert h2d.path == "numa:0 -> gpu:0" and found["host"].path == "numa:0"
    assert h2d.beside["disk"].ratio == pytest.approx(1, rel=0.03)
    (beside,) = [point for point in run.points if point.id == h2d.beside["disk"].id]
    assert [(flow.src, flow.dst, flow.role) for flow in beside.flows] == [
        ("numa:0", "gpu:0", "measured"), ("disk:0", "numa:0", "background"),
    ]  # fmt: skip


def test_suite_full_measures_each_kind_alone_only() -> None:
    points = points_of(SUITES["full"], choose("h200x1", 1).facts, benchmark_table())
    assert {point.param("beside") for point in points if point.benchmark.startswith("contended")} == {"none"}


def test_background_work_has_its_role_and_no_part_in_the_total(run: Run) -> None:
    points = {point.id: point for point in run.points}
    point = points["contended_h2d/ce/numa:0.pinned->gpu:0.device/0?beside=h2d"]
    assert [flow.role for flow in point.flows] == ["measured", "background"]
    assert point.total_gbps == pytest.approx(point.flows[0].gbps, rel=0.01)
    assert len(point.flows[0].samples_s) >= 3 and all(len(of) >= 19 for of in point.flows[0].samples_s)


def test_copies_on_one_link_halve_each_other_and_other_links_keep_their_rate(run: Run) -> None:
    found = rows(run)
    assert found["h2d"].beside["h2d"].ratio == pytest.approx(2, rel=0.02) and found["h2d"].slowed_by("h2d")
    assert found["peer"].beside["h2d"].ratio == pytest.approx(1, rel=0.01)


def test_two_measured_flows_count_by_their_joint_rate(run: Run) -> None:
    both = rows(run)["both"]
    slowed = both.beside["h2d"]
    one, other = (flow.gbps for flow in both.alone.flows)
    assert both.alone.total_gbps == pytest.approx(one + other, rel=0.01)
    assert slowed.interval is not None and slowed.interval.low <= slowed.ratio <= slowed.interval.high
    # Copies to the GPU get half of their link, copies from it keep theirs.
    assert slowed.ratio == pytest.approx(2 / 1.5, rel=0.03)


def test_rows_have_the_order_of_the_plan_and_a_p99(run: Run) -> None:
    assert [row.kind for row in matrix(run)] == ["h2d", "both", "peer"]
    row = rows(run)["h2d"]
    samples = sorted(sample for of in row.alone.flows[0].samples_s for sample in of)
    assert row.alone_times.p99 == samples[-2]  # of 114 to 120 samples
    assert row.alone_times.p99_ends == (min(slowest := [max(of) for of in row.alone.flows[0].samples_s]), max(slowest))


def test_median_and_p99_of_copies_in_both_directions_count_both_as_their_time_does(run: Run) -> None:
    both = rows(run)["both"].alone_times
    assert both.median == pytest.approx(rows(run)["both"].alone_s, rel=0.01)
    assert both.interval is not None and both.interval[0] <= both.median <= both.interval[1]
    assert both.p99 is not None and both.p99_ends is not None
    assert both.median <= both.p99_ends[1] and both.p99_ends[0] <= both.p99 <= both.p99_ends[1] < 1.05 * both.median


def test_fewer_than_100_samples_have_no_p99(run: Run) -> None:
    alone = rows(run)["h2d"].alone
    short = [msgspec.structs.replace(flow, samples_s=[of[:20] for of in flow.samples_s]) for flow in alone.flows]
    few = [msgspec.structs.replace(p, flows=short) if p.id == alone.id else p for p in run.points]
    times = rows(dataclasses.replace(run, points=few))["h2d"].alone_times
    assert (times.median, times.p99, times.p99_ends) == (alone.median_s, None, None)


def test_page_and_markdown_show_median_and_p99_of_each_pair_with_their_ends(run: Run, tmp_path: Path) -> None:
    for name in ("--markdown", "-o"):
        path = tmp_path / f"file{name}.html"
        assert main(["report", str(run.path), name, str(path)]) == 0
        text = path.read_text()
        assert "Median and p99" in text or "p99 with the lowest and the highest p99 of a round" in text
        lines = [line for line in text.splitlines() if line.startswith("| h2d | h2d | ")]
        if name == "--markdown":
            assert len(lines) == 1 and lines[0].count("µs") == 2 and lines[0].count("[") == 2


def test_a_row_without_its_value_alone_is_left_out(tmp_path: Path) -> None:
    assert not matrix(measured(tmp_path / "run.jsonl", "contended_h2d/*beside=h2d"))


def test_the_report_shows_the_matrix(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run.path), "--summary=full"]) == 0
    text = capsys.readouterr().out
    assert "Who slows whom" in text and "Over bad" in text and "No point has a value" not in text
    page = tmp_path / "page.html"
    assert main(["report", str(run.path), "-o", str(page)]) == 0
    assert 'id="contention"' in page.read_text() and "Slowdown by work beside it" in page.read_text()
    assert 'id="paths"' not in page.read_text()  # no point is of one transfer


def test_the_time_alone_in_the_matrix_is_the_one_that_its_slowdowns_divide_by(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = RESULTS / "h100x1-contention-a.jsonl.gz"  # the median of launches alone is 2.92 us, and the mean 3.08 us
    slowed = rows(read_run(path))["launch"].beside["zero_copy"]
    assert main(["report", str(path), "--summary=full"]) == 0
    (line,) = [one for one in capsys.readouterr().out.splitlines() if one.startswith("  launch ") and "~33.5" in one]
    alone, unit = line.split()[1:3]
    assert (alone[0], unit) == ("~", "µs")
    assert float(alone[1:]) * slowed.ratio == pytest.approx(slowed.seconds * 1e6, rel=0.001)


def test_penalties_over_the_good_and_over_the_bad_value(run: Run) -> None:
    slowed = rows(run)["h2d"].beside["h2d"]
    assert slowed.over_good == pytest.approx(1, rel=0.03) and slowed.over_bad == pytest.approx(1 / 2, rel=0.03)
    alone = rows(run)["h2d"]
    assert alone.drift == pytest.approx(0, abs=0.005)
    assert dataclasses.replace(alone, again=None).drift is None


def test_a_slowdown_below_the_drift_is_not_marked(run: Run) -> None:
    row = rows(run)["h2d"]
    assert row.again is not None
    (flow,) = row.again.flows
    drifting = msgspec.structs.replace(flow, round_medians_s=[2.5 * time for time in flow.round_medians_s])
    row = dataclasses.replace(row, again=msgspec.structs.replace(row.again, flows=[drifting]))
    assert row.drift == pytest.approx(1.5, rel=0.02) and not row.slowed_by("h2d")


def turn(point: PointId) -> str:
    if point.param("again"):
        return "again"
    at_once = point.param("beside", "none") != "none" or point.param("tasks") or point.param("at") == "both"
    return "at once" if at_once else "alone"


@pytest.mark.parametrize("suite", ["contention", "sp-8", "sp-9", "sp-10", "sp-11"])
def test_each_pass_runs_work_alone_then_at_once_then_alone_again(suite: str) -> None:
    plan = make_plan(choose("h200x4", 1).facts, benchmark_table(), suite=suite)
    for number in range(2):
        turns = [turn(PointId.parse(id)) for id in in_order(plan, plan.points, number)]
        assert [key for key, _ in itertools.groupby(turns)] == ["alone", "at once", "again"]


def test_several_tasks_share_their_gpu_equally_as_in_spafford_5_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    only = (
        "--only",
        "*numa:0*false",
        "--only",
        "*numa:0*tasks=2",
        "--only",
        "*numa:0*tasks=3",
        "--only",
        "*numa:0*tasks=16",
        "--only",
        "*numa:0*again=true*",
    )
    assert main(["run", "--machine", "sl390", "--suite", "sp-10", *only, "-o", str(path), "-q"]) == 0
    slowest = {
        point.params.get("tasks", "1"): min(flow.gbps or 0 for flow in point.flows)
        for point in read_run(path).points
        if "again" not in point.params
    }
    for tasks in ("2", "3", "16"):
        assert slowest[tasks] * int(tasks) == pytest.approx(slowest["1"], rel=0.02)
    capsys.readouterr()
    assert main(["report", str(path), "--summary=full"]) == 0
    text = capsys.readouterr().out
    assert "Several tasks for each GPU" in text and "collapsed" not in text.split("Path")[-1] and "Drift" in text


def test_several_tasks_also_share_a_gpu_that_is_alone(tmp_path: Path) -> None:
    """A copy to all GPUs without tasks would be the copy to the only one, so other suites leave it out."""
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x1", "--suite", "sp-10", "--rounds", "1", "-o", str(path), "-q"]) == 0
    found = read_run(path).points
    assert sorted(len(point.flows) for point in found) == [1, 1, 2, 3, 4, 6, 8, 12, 16]
    slowest = {len(point.flows): min(flow.gbps or 0 for flow in point.flows) for point in found}
    assert slowest[16] * 16 == pytest.approx(slowest[1], rel=0.02)
    full = points_of(SUITES["full"], choose("h200x1", 1).facts, benchmark_table())
    assert not [point for point in full if "gpu:all" in (point.src, point.dst)]


def test_suite_sp_8_has_copies_messages_and_cpu_traffic_beside_each_other() -> None:
    points = points_of(SUITES["sp-8"], choose("h200x4", 1).facts, benchmark_table())
    kinds = ("h2d", "d2h", "message", "host")
    assert {(point.benchmark, point.param("beside")) for point in points} == {
        (f"contended_{kind}", other) for kind in kinds for other in ("none", *kinds)
    }


def test_what_a_machine_lacks_is_unsupported_with_its_reason(tmp_path: Path) -> None:
    run = measured(
        tmp_path / "run.jsonl", "contended_gemm/*beside=none", "contended_h2d/*beside=none",
        "contended_h2d/*beside=peer", machine="ac922",
    )  # fmt: skip
    reasons = {point.id: point.reason for point in run.points if point.status == "unsupported"}
    assert reasons and all("bf16_tflops" in (reason or "") for reason in reasons.values())
    alone = measured(
        tmp_path / "one.jsonl", "contended_h2d/*beside=none", "contended_h2d/*beside=peer", machine="h200x1"
    )
    (refused,) = [point for point in alone.points if point.status == "unsupported"]
    assert refused.params["beside"] == "peer" and "gpu:1" in (refused.reason or "")


@needs_fake
def test_work_beside_other_work_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    besides = ("none", "both", "peer", "zero_copy", "memory", "triad", "launch", "ping_pong", "gemm")
    only = [word for beside in besides for word in ("--only", f"contended_d2h/ce/gpu:0*beside={beside}")]
    words = ("--suite", "contention", *only, "--rounds", "1", "--contexts", "any", "-o", str(path), "--json")
    done = linkscope("run", *words, environment=environment())
    assert done.returncode == 0, done.stderr
    points = {point.params["beside"]: point for point in read_run(path).points}
    assert "libcublas" in points.pop("gemm").reason
    assert all(point.median_s and point.verified for point in points.values()), json.loads(done.stdout)


@needs_fake
def test_copies_beside_reads_of_a_file_in_a_directory(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    only = ("--only", "contended_d2h/ce/gpu:0*beside=none", "--only", "contended_d2h/ce/disk*->gpu:0*")
    words = ("--suite", "contention", *only, "--directory", str(tmp_path), "--rounds", "1", "--contexts", "any", "-q")
    done = linkscope("run", *words, "-o", str(path), environment=environment())
    assert done.returncode in (FINE, NOT_HERE), done.stderr
    run = read_run(path)
    (beside,) = [point for point in run.points if point.params["beside"] == "disk"]
    if beside.status == "unsupported":  # a directory in memory, whose files are never cold
        assert "page cache" in (beside.reason or "")
        return
    assert beside.verified and [flow.role for flow in beside.flows] == ["measured", "background"]
    assert rows(run)["d2h"].beside["disk"].ratio > 0


@needs_fake
def test_wrong_data_beside_other_work_fails_the_point(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    words = (
        "--suite",
        "contention",
        "--only",
        "contended_d2h/ce/gpu:0*/0?beside=none",
        "--rounds",
        "1",
        "-o",
        str(path),
    )
    done = linkscope("run", *words, "--contexts", "any", "-q", environment=environment(CUDA_CORRUPT="9+"))
    (point,) = read_run(path).points
    assert done.returncode == 1 and point.status == "failed" and "bytes are wrong" in point.reason
