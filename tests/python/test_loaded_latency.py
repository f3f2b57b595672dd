"""Suite `loaded-latency`: small operations against background traffic in ten steps."""

from pathlib import Path

import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.cli.predictions import with_predictions
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.report.loaded import Loaded, loaded
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import Run, read_run
from test_cli import linkscope

pytestmark = [needs_worker]
KINDS = ("h2d", "d2h", "zero_copy", "launch", "ping_pong")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A copy to a GPU and a launch, beside copies in both directions at four loads."""
    path = tmp_path_factory.mktemp("loaded") / "run.jsonl"
    only = [word for kind in ("h2d", "launch") for load in (0, 2, 5, 10)
            for word in ("--only", f"loaded_{kind}/*beside=both&load={load}")]  # fmt: skip
    assert main(["run", "--machine", "h200x4", "--suite", "loaded-latency", *only, "-o", str(path), "-q"]) == 0
    return read_run(path)


def curves(run: Run) -> dict[str, Loaded]:
    return {one.kind: one for one in loaded(run)}


def test_the_suite_has_ten_steps_and_none_for_each_operation_and_background() -> None:
    points = points_of(SUITES["loaded-latency"], choose("h200x4", 1).facts, benchmark_table())
    steps = {(point.benchmark, point.param("beside"), point.param("load")) for point in points}
    assert steps == {
        (f"loaded_{kind}", beside, str(load))
        for kind in KINDS for beside in ("both", "zero_copy", "memory") for load in range(11)
    }  # fmt: skip
    assert len(points) == len(steps)


def test_the_background_works_for_its_tenths_of_the_time(run: Run) -> None:
    rates = {level.load: level.background_gbps for level in curves(run)["launch"].levels}
    assert rates[0] is None and rates[10] is not None
    assert [rates[2], rates[5]] == pytest.approx([0.2 * rates[10], 0.5 * rates[10]], rel=0.1)


def test_a_small_copy_waits_longer_the_more_its_engine_is_loaded_and_a_launch_does_not(run: Run) -> None:
    medians = [level.half.value for level in curves(run)["h2d"].levels]
    assert medians == sorted(medians) and medians[-1] > 50 * medians[0]
    launches = [level.half.value for level in curves(run)["launch"].levels]
    assert max(launches) < 1.2 * min(launches)


def test_medians_and_p99_have_intervals_and_the_model_predicts_them(run: Run) -> None:
    for level in curves(with_predictions(run, None))["h2d"].levels:
        for value in (level.half, level.tail):
            assert value.low is not None and value.high is not None and value.low <= value.value <= value.high
        assert level.half.value <= level.tail.value
        assert level.predicted_s == pytest.approx(level.half.value, rel=0.25)


def test_the_report_draws_a_chart_for_each_background(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, chart = tmp_path / "page.html", tmp_path / "chart.svg"
    assert main(["report", str(run.path), "-o", str(page)]) == 0
    text = page.read_text()
    assert 'id="loaded"' in text and "solid: median, dashed: p99" in text and "10/10" in text
    assert main(["report", str(run.path), "--figure", "loaded-both", "-o", str(chart)]) == 0
    assert "load by other work" in chart.read_text() and "MODELLED" in chart.read_text()
    capsys.readouterr()
    assert main(["report", str(run.path), "--summary=full"]) == 0
    out = capsys.readouterr().out
    assert "Latency under load" in out and "At half load" in out and "Who slows whom" not in out


@pytest.mark.parametrize("left", ["load=0", "load=1*"])
def test_a_run_without_time_alone_or_without_full_load_has_no_ratio(
    left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    words = ["run", "--machine", "h200x1", "--suite", "loaded-latency", "--only", f"loaded_h2d/*beside=both&{left}"]
    assert main([*words, "-o", str(path)]) == 0
    assert "their time alone" not in capsys.readouterr().out
    assert main(["report", str(path), "--summary=full"]) == 0


@needs_fake
def test_small_copies_beside_a_resting_background_on_a_gpu(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    only = [word for kind in KINDS for load in (0, 3, 10)
            for word in ("--only", f"loaded_{kind}/*beside=both&load={load}")]  # fmt: skip
    words = ("--suite", "loaded-latency", *only, "--rounds", "1", "--contexts", "any", "-o", str(path), "--json")
    done = linkscope("run", *words, environment=environment())
    assert done.returncode == 0, done.stderr
    points = read_run(path).points
    assert len(points) == 15 and all(point.median_s and point.verified for point in points)
    for point in points:
        background = [flow.gbps for flow in point.flows if flow.role == "background" and flow.bytes]
        assert len(background) == (0 if point.params["load"] == "0" else 2) and all(background)
