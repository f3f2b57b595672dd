"""What a model predicts stands beside what was measured: contention, flows, and `predict --flow`."""

import dataclasses
import json
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.cli.predictions import with_predictions
from linkscope.errors import NOT_HERE, WRONG_USAGE
from linkscope.machine.choose import bundled_for
from linkscope.report.contention import matrix
from linkscope.runfile import Run, read_run
from linkscope.stats import Interval
from test_cli import linkscope

pytestmark = [needs_worker]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    path = tmp_path_factory.mktemp("predictions") / "run.jsonl"
    only = [word for kind in ("h2d", "d2h") for other in ("none", "h2d", "d2h")
            for word in ("--only", f"contended_{kind}/*beside={other}")]  # fmt: skip
    assert main(["run", "--machine", "h200x4", "--suite", "contention", *only, "-o", str(path), "-q"]) == 0
    return read_run(path)


def test_the_model_of_a_run_predicts_each_pair(run: Run) -> None:
    rows = {row.kind: row for row in matrix(with_predictions(run, None))}
    same, opposite = rows["h2d"].beside["h2d"], rows["h2d"].beside["d2h"]
    assert same.predicted == pytest.approx(2, rel=0.02) and opposite.predicted == pytest.approx(
        opposite.ratio, rel=0.02
    )
    assert same.deviation == pytest.approx(same.predicted / same.ratio - 1) and not same.missed
    assert rows["h2d"].predicted_s == pytest.approx(rows["h2d"].alone_s, rel=0.02)
    assert all(of.predicted is None for row in matrix(run) for of in row.beside.values())


def test_a_prediction_that_is_off_by_more_than_ten_percent_is_said(run: Run, tmp_path: Path, capsys: Captured) -> None:
    """The old links of dl160 carry less in both directions together than those of h200x4."""
    rows = {row.kind: row for row in matrix(with_predictions(run, "dl160"))}
    assert {(kind, name) for kind, row in rows.items() for name, of in row.beside.items() if of.missed} == {
        ("h2d", "d2h"), ("d2h", "h2d"),
    }  # fmt: skip
    assert main(["report", str(run.path), "--against", "dl160", "--summary=full"]) == 0
    out = capsys.readouterr().out
    assert "The model dl160 predicts 2 of 4 slowdowns within 10 %. A prediction is MODELLED" in out
    assert "By the model" in out and "Of the times alone" in out
    page = tmp_path / "page.html"
    assert main(["report", str(run.path), "-o", str(page)]) == 0
    assert "The model h200x4 predicts 4 of 4 slowdowns" in page.read_text() and ", model 2" in page.read_text()
    assert "Slowdowns that the model misses" not in page.read_text()


def test_a_missed_slowdown_within_the_measured_interval_is_counted(run: Run) -> None:
    (row, *_) = matrix(with_predictions(run, "dl160"))
    slow = row.beside["d2h"]
    assert slow.missed and not slow.uncertain and slow.predicted is not None
    wide = dataclasses.replace(slow, interval=Interval(1.0, 1.1 * slow.predicted, 0.95))
    assert wide.uncertain and not dataclasses.replace(wide, predicted=None).uncertain


def test_a_machine_without_a_model_has_no_predictions(run: Run) -> None:
    assert bundled_for({"gpu:0": "NVIDIA B300"}) is None and bundled_for({"gpu:0": ""}) is None
    found = bundled_for({"gpu:0": "NVIDIA H200", "gpu:2": ""})
    assert found is not None and found.machine.name == "h200x4"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--against", "auto"], WRONG_USAGE, "give a model"),
        (["--against", "nothing"], WRONG_USAGE, "there is no machine 'nothing'"),
        (["--against", "h200x1", "--shared"], WRONG_USAGE, "only the page"),
        (["--against", "klenk-ib"], NOT_HERE, "klenk-ib has no gpu:0, numa:0"),
    ],
)
def test_a_model_that_cannot_predict_the_run_is_refused(
    run: Run, tmp_path: Path, capsys: Captured, words: list[str], code: int, says: str
) -> None:
    output = [] if "--shared" in words else ["-o", str(tmp_path / "page.html")]
    assert main(["report", str(run.path), *words, *output]) == code
    assert says in capsys.readouterr().err


def test_a_run_without_contention_has_nothing_to_predict(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "run.jsonl"
    words = ["--src", "numa:0", "--dst", "gpu:0", "--sizes", "1MiB", "--rounds", "1", "-o", str(path), "-q"]
    assert main(["run", "h2d", "--machine", "h200x1", *words]) == 0
    assert main(["report", str(path), "--against", "h200x1", "--summary=full"]) == NOT_HERE
    assert "has no work beside other work" in capsys.readouterr().err


def flow(capsys: Captured, *words: str) -> dict:
    assert main(["flow", *words, "--seconds", "0.05", "--rounds", "1", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_flow_states_the_rate_that_another_model_predicts(capsys: Captured) -> None:
    text = "numa:0 -> gpu:0 16MiB x2; launch gpu:0"
    found = flow(capsys, text, "--machine", "h200x4", "--against", "h200x1")
    assert found["predicted_by"] == "h200x1"
    for one in found["flows"]:
        assert one["deviation"] == pytest.approx(one["predicted_per_s"] / one["per_s"] - 1)
        assert (one["predicted_gbps"] is None) == (one["gbps"] is None)
    assert abs(found["flows"][0]["deviation"]) < 0.02
    alone = flow(capsys, text, "--machine", "h200x4")
    assert alone["predicted_by"] is None and alone["flows"][0]["deviation"] is None


def test_flow_names_the_rates_that_the_model_misses(capsys: Captured) -> None:
    words = ["flow", "numa:0 -> gpu:0 16MiB", "--machine", "h200x4", "--seconds", "0.05", "--rounds", "1"]
    assert main([*words, "--against", "dl160"]) == 0
    out = capsys.readouterr().out
    assert "model 5." in out and "MODELLED by dl160; off by more than 10 %: numa:0 → gpu:0 16MiB" in out
    assert main([*words, "--against", "h200x1"]) == 0
    assert "MODELLED by h200x1; all are within 10 %" in capsys.readouterr().out


def test_flow_against_a_model_without_the_place_points_at_it(capsys: Captured) -> None:
    words = ["flow", "gpu:0 -> gpu:1 16MiB", "--machine", "h200x4", "--seconds", "0.05", "--rounds", "1"]
    assert main([*words, "--against", "h200x1"]) == NOT_HERE
    assert "h200x1 has no gpu:1" in capsys.readouterr().err


@needs_fake
def test_flow_on_a_gpu_has_the_prediction_of_its_bundled_model() -> None:
    words = ("flow", "numa:0 -> gpu:0 1MiB", "--seconds", "0.05", "--rounds", "1", "--json")
    done = linkscope(*words, environment=environment())
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["predicted_by"].startswith("h200x") and found["flows"][0]["predicted_gbps"] > 0


def test_predict_takes_flows_and_work(capsys: Captured) -> None:
    words = ["predict", "--machine", "h200x4", "--json"]
    assert main([*words, "--flow", "numa:0 -> gpu:0 x2; gemm gpu:1 bf16 8192"]) == 0
    found = json.loads(capsys.readouterr().out)
    one, other, product = found["flows"]
    assert found["modelled"] is True and (one["src"], product["work"]) == ("numa:0", "gemm")
    assert main([*words, "--src", "numa:0", "--dst", "gpu:0", "--with", "numa:0 -> gpu:0"]) == 0
    steady = json.loads(capsys.readouterr().out)["flows"]
    assert [one["gbps"], other["gbps"]] == pytest.approx([of["gbps"] for of in steady], rel=0.02)
    assert main([*words[:3], "--flow", "numa:0 -> gpu:0 x2; gemm gpu:1 bf16 8192"]) == 0
    assert "TFLOP/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--flow", "numa:0 -> gpu:0", "--dst", "gpu:0"], "leave out --dst"),
        (["--flow", "numa:0 -> gpu:0", "--with", "numa:0 -> gpu:1"], "leave out --with"),
        (["--flow", "numa:0 -> gpu:0", "--engine", "sm"], "leave out --engine"),
        (["--flow", "numa:0 => gpu:0"], "^^"),
        (["--src", "numa:0"], "give --src and --dst of one transfer, or --flow"),
    ],
)
def test_options_of_predict_that_do_not_fit_are_refused(capsys: Captured, words: list[str], says: str) -> None:
    assert main(["predict", "--machine", "h200x4", *words]) == WRONG_USAGE
    assert says in capsys.readouterr().err
