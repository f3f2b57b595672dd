"""`linkscope report --plots`: figures for papers that a YAML file declares."""

import json
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.report import plot_spec, plots
from linkscope.report.plot_spec import Figure
from linkscope.runfile import read_run

RESULTS = Path(__file__).parents[2] / "results"
RUN = RESULTS / "h200x2-standard.jsonl.gz"
COPIES = "h2d/ce/numa:0.*->gpu:0.device/*?after=kernel&bidirectional=false&mode=batched"


def specification(folder: Path, **figure: object) -> Path:
    path = folder / "plots.yaml"
    path.write_text(json.dumps({"figures": [{"name": "one", "points": [COPIES], **figure}]}))  # JSON is YAML
    return path


def report(*words: object) -> int:
    return main(["report", *map(str, words)])


@pytest.fixture(scope="module")
def run():
    return read_run(RUN, rounds=False)


def test_a_curve_has_the_rates_and_intervals_of_the_run_in_the_order_of_size(run) -> None:
    data = plots.select([run], Figure(name="one", points=[COPIES], curves=["src_memory"]))
    assert set(data.curves) == {"pinned", "pageable", "registered"} and not data.modelled
    values = data.curves["pinned"]
    assert [value.x for value in values] == sorted(value.x for value in values)
    largest = next(
        point for point in run.points if point.id == COPIES.replace("*?", "67108864?").replace("*", "pinned")
    )
    (found,) = [value for value in values if value.x == 64 << 20]
    assert found.y == largest.gbps and found.peak == largest.limit_gbps
    assert found.ends is not None and found.ends[0] <= found.y <= found.ends[1]


def test_without_named_curves_each_difference_makes_a_curve(run) -> None:
    data = plots.select([run], Figure(name="one", points=[COPIES.replace("gpu:0", "gpu:*")]))
    assert "pinned, gpu:1" in {", ".join(sorted(name.split(", "), reverse=True)) for name in data.curves}


def test_several_runs_are_curves_named_after_their_files(run) -> None:
    other = read_run(RESULTS / "h200x2-standard-b.jsonl.gz", rounds=False)
    figure = Figure(name="one", points=[COPIES.replace("numa:0.*", "numa:0.pinned")])
    assert list(plots.select([run, other], figure).curves) == ["h200x2-standard", "h200x2-standard-b"]


def test_curves_that_do_not_tell_two_values_apart_name_what_would(run) -> None:
    with pytest.raises(plots.UserError, match="two values at one bytes; tell them apart by src_memory"):
        plots.select([run], Figure(name="one", points=[COPIES], curves=["src"]))


def test_sizes_on_the_axis_are_in_the_order_of_their_bytes() -> None:
    assert sorted(["2MiB", "16MiB", "512KiB", "whole"], key=plots._in_order) == ["512KiB", "2MiB", "16MiB", "whole"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"points": ["h2d/ce/nothing*"]}, "the run has for example h2d/ce/numa:0"),
        ({"curves": ["colour"]}, "not every point has 'colour'; they have after, benchmark"),
        ({"y": "speed"}, "speed"),
        ({"colour": "red"}, "unknown field `colour`"),
        ({"name": "../one"}, "'../one' is not the name of a file"),
    ],
)
def test_a_figure_that_names_what_is_not_there_says_what_is(tmp_path, capsys, change, message) -> None:
    assert report(RUN, "--plots", specification(tmp_path, **change), "-o", tmp_path / "out") == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_no_yaml_names_the_line(tmp_path, capsys) -> None:
    path = tmp_path / "plots.yaml"
    path.write_text("figures:\n  - name: [\n")
    assert report(RUN, "--plots", path) == 2
    assert "line 3" in capsys.readouterr().err


def test_an_unknown_specification_lists_those_that_are_ready(capsys) -> None:
    assert report(RUN, "--plots", "spaford") == 2
    assert "comm-scope, jorda, klenk, microbench, spafford" in capsys.readouterr().err


def test_figures_are_drawn_again_only_when_data_or_specification_changed(tmp_path, capsys) -> None:
    out = tmp_path / "out"
    path = specification(tmp_path, curves=["src_memory"])
    states = []
    for run, title in ((RUN, ""), (RUN, ""), (RUN, "Copies"), (RESULTS / "h200x2-standard-b.jsonl.gz", "Copies")):
        specification(tmp_path, curves=["src_memory"], title=title)
        assert report(run, "--plots", path, "-o", out) == 0
        states.append("unchanged" in capsys.readouterr().out)
    assert states == [False, True, False, False]
    (out / "one.svg").unlink()
    assert report(RESULTS / "h200x2-standard-b.jsonl.gz", "--plots", path, "-o", out) == 0
    assert (out / "one.svg").exists()


def test_one_run_gives_the_same_bytes_each_time(tmp_path) -> None:
    path = specification(tmp_path, curves=["src_memory"])
    for name in "ab":
        assert report(RUN, "--plots", path, "-o", tmp_path / name) == 0
    assert (tmp_path / "a" / "one.svg").read_bytes() == (tmp_path / "b" / "one.svg").read_bytes()


def test_a_picture_of_a_model_says_so_and_a_measured_one_does_not(tmp_path, run) -> None:
    path = specification(tmp_path, curves=["src_memory"])
    assert report(RUN, "--plots", path, "-o", tmp_path / "measured") == 0
    assert "MODELLED" not in (tmp_path / "measured" / "one.svg").read_text()
    modelled = tmp_path / "modelled.jsonl"
    assert main(["run", "--machine", "h200x1", "--only", COPIES, "--sizes", "1MiB", "-o", str(modelled), "-q"]) == 0
    assert report(modelled, "--plots", path, "-o", tmp_path / "modelled") == 0
    assert "MODELLED" in (tmp_path / "modelled" / "one.svg").read_text()


@pytest.mark.parametrize(
    "name, file",
    [
        ("comm-scope", "h200x2-standard"), ("comm-scope", "h200x4-full"), ("microbench", "h200x4-standard-a"),
        ("klenk", "h200x2-putget"),
    ],
)  # fmt: skip
def test_the_figures_of_a_paper_are_drawn_from_a_measured_run(tmp_path, name, file) -> None:
    drawn = plots.draw(
        [read_run(RESULTS / f"{file}.jsonl.gz", rounds=False)], plot_spec.read_specification(name), tmp_path
    )
    assert len(list(drawn)) >= 4 + 6 * (file == "h200x4-full") and all(
        path.stat().st_size > 1000 for path in tmp_path.glob("*.svg")
    )


def test_a_run_without_any_figure_of_a_paper_says_what_it_has(tmp_path, capsys) -> None:
    assert report(RUN, "--plots", "klenk", "-o", tmp_path / "out") == 2
    assert "put_ping_pong" in capsys.readouterr().err


def test_the_figures_of_messages_leave_out_kernels_that_are_launched_for_each(tmp_path) -> None:
    """A full run has both; as one curve they would have two values at one size."""
    path = tmp_path / "run.jsonl"
    pair = "gpu:0.device->gpu:1.device/4096?"
    globs = (f"put*/*{pair}*control=direct*", f"put/*{pair}*control=host*")
    only = [word for glob in globs for word in ("--only", glob)]
    assert main(["run", "--machine", "h200x2", "--suite", "full", *only, "--rounds", "1", "-o", str(path), "-q"]) in (
        0,
        1,
    )
    ids = [one.id for one in read_run(path, rounds=False).points]
    assert any("launch=each" in id for id in ids) and any("kernel=relaunched" in id for id in ids)
    assert report(path, "--plots", "klenk", "-o", tmp_path / "out") == 0
    assert {"round-trip-by-control.svg", "stream-by-control.svg"} <= {one.name for one in tmp_path.glob("out/*.svg")}


def test_a_legend_with_long_names_has_one_column_so_that_none_is_cut() -> None:
    long = "sm, control direct, word separate, threads 1024"
    assert plots.legend_columns(["pinned", "pageable"], 120) == 2 and plots.legend_columns(["pinned", long], 120) == 1
    assert plots.legend_columns([long], 240) == 2
