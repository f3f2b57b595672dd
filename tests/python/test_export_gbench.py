"""JSON of Google Benchmark: the fields that tools/gbench uses, with the numbers of the run file."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from invented import ROUNDS, point, run, small_run
from linkscope.report.export_gbench import to_gbench
from linkscope.runfile import read_run

BIDIRECTIONAL = "h2d/ce/numa:0.pinned->gpu:0.device/1000?bidirectional=true&mode=batched"
LOCAL = "local/ce/gpu:0.device->gpu:0.device/{}?mode=batched"
RESULTS = Path(__file__).parents[2] / "results"
MEASURED = [read_run(RESULTS / f"h200x{name}.jsonl.gz") for name in ("1-standard-a", "2-standard")]


def benchmarks(made, name: str | None = None) -> list[dict[str, Any]]:
    rows = json.loads(to_gbench(made))["benchmarks"]
    return [row for row in rows if name in (None, row["run_name"])]


@pytest.mark.parametrize("made", [small_run(), *MEASURED], ids=["invented", "measured", "planned"])
def test_each_row_has_the_fields_of_the_tools(made) -> None:
    """Google Benchmark compares rows by name and time_unit, and fails on a row without both times."""
    for row in benchmarks(made):
        assert row["time_unit"] == "ns" and row["real_time"] == row["cpu_time"] >= 0
        assert row["run_type"] in ("iteration", "aggregate") and row["threads"] == 1 and row["repetitions"] >= 1
        assert ("repetition_index" in row) == (row["run_type"] == "iteration") != ("aggregate_name" in row)


def test_sorting_by_the_tools_keeps_the_order_of_the_file() -> None:
    """Google Benchmark sorts by family, instance, aggregates last, repetition. Rows of one name must be rounds only."""
    found = benchmarks(small_run())
    for key in (
        lambda row: row.get("repetition_index", -1),
        lambda row: row["run_type"] == "aggregate",
        lambda row: row["per_family_instance_index"],
        lambda row: row["family_index"],
    ):
        found = sorted(found, key=key)
    assert found == benchmarks(small_run())
    for name in {row["name"] for row in found}:
        same = [row for row in found if row["name"] == name]
        assert len({row["run_type"] for row in same}) == 1
        assert len(same) == (1 if same[0]["run_type"] == "aggregate" else same[0]["repetitions"])


def test_rounds_are_repetitions() -> None:
    rounds = [
        row for row in benchmarks(run([point(BIDIRECTIONAL, 1e-6)]), BIDIRECTIONAL) if row["run_type"] == "iteration"
    ]
    assert {row["name"] for row in rounds} == {BIDIRECTIONAL}
    assert [(row["repetition_index"], row["repetitions"], row["iterations"]) for row in rounds] == [
        (index, 6, 2) for index in range(6)
    ]
    assert [row["real_time"] for row in rounds] == pytest.approx([1000 * factor for factor in ROUNDS])
    assert [row["bytes_per_second"] for row in rounds] == pytest.approx([1e9 / factor for factor in ROUNDS])


def test_an_inherited_point_has_one_row() -> None:
    inherited = point(LOCAL.format(1000), 1e-6, status="inherited", inherited_from=LOCAL.format(8))
    inherited.flows[0].round_medians_s, inherited.flows[0].samples_s = [], []
    (row,) = benchmarks(run([inherited], modelled=False))
    assert (row["label"], row["real_time"], row["bytes_per_second"]) == ("inherited", 1000.0, 1e9)
    assert (row["run_type"], row["repetitions"], row["iterations"]) == ("iteration", 1, 0)


def test_aggregates_are_over_the_rounds() -> None:
    rows = benchmarks(run([point(BIDIRECTIONAL, 1e-6)]), BIDIRECTIONAL)
    found = {row["aggregate_name"]: row for row in rows if row["run_type"] == "aggregate"}
    assert list(found) == ["mean", "median", "stddev", "cv"] and rows[-4:] == list(found.values())
    spread = statistics.stdev(ROUNDS)
    times = {"mean": 1000, "median": 1000, "stddev": 1000 * spread, "cv": spread}
    for what, row in found.items():
        assert row["name"] == f"{BIDIRECTIONAL}_{what}" and row["iterations"] == row["repetitions"] == 6
        assert row["real_time"] == pytest.approx(times[what])
        assert row["aggregate_unit"] == ("percentage" if what == "cv" else "time")
    assert found["median"]["bytes_per_second"] == 1e9
    assert found["stddev"]["bytes_per_second"] == pytest.approx(statistics.stdev([1e9 / factor for factor in ROUNDS]))


def test_the_median_equals_that_of_the_run_file() -> None:
    made = MEASURED[0]
    found = {row["name"]: row for row in benchmarks(made)}
    for one in made.points:
        for number, flow in enumerate(one.flows):
            row = found[one.id + (f"/flow:{number}" if number else "") + "_median"]
            assert flow.median_s is not None and flow.gbps is not None
            assert (row["real_time"], row["bytes_per_second"]) == (flow.median_s * 1e9, flow.gbps * 1e9)


def test_each_flow_is_a_benchmark() -> None:
    made = run([point(BIDIRECTIONAL, 1e-6)])
    made.points[0].flows[1].role = "background"
    names = {row["run_name"]: row.get("label") for row in benchmarks(made)}
    assert names == {BIDIRECTIONAL: "modelled", f"{BIDIRECTIONAL}/flow:1": "background, modelled"}


@pytest.mark.parametrize("status", ["failed", "unsupported", "skipped"])
def test_points_without_a_value_are_errors(status: str) -> None:
    with_samples = point(LOCAL.format(16), 1e-6, status=status, median_s=None)
    with_samples.flows[0].median_s = with_samples.flows[0].gbps = None
    with_value = point(LOCAL.format(32), 1e-6, status=status)  # invalid in a run file, and in any case no value
    for one in (point(LOCAL.format(8), status=status), with_samples, with_value):
        one.reason = "because"
        (row,) = benchmarks(run([one]))
        assert (row["error_occurred"], row["error_message"]) == (True, f"{status}: because")
        assert (row["name"], row["real_time"], row["cpu_time"], row["iterations"]) == (one.id, 0, 0, 0)


def test_every_point_has_a_row() -> None:
    made = small_run()
    assert {row["run_name"].split("/flow:")[0] for row in benchmarks(made)} == {one.id for one in made.points}
    missed = next(one for one in made.points if one.status == "missed_precision")
    assert {row["label"] for row in benchmarks(made, missed.id)} == {"missed_precision, modelled"}


def test_one_round_no_bytes_and_a_time_of_zero_are_exported() -> None:
    """One repetition has no spread, an operation without bytes has no rate, and a time of zero is never a divisor."""
    one_round, empty, short = (point(LOCAL.format(size), 1e-6) for size in (8, 0, 16))
    one_round.flows[0].round_medians_s, one_round.flows[0].samples_s = [1e-6], [[1e-6]]
    short.flows[0].round_medians_s[0] = 0.0
    made = run([one_round, empty, short])
    assert [row["run_type"] for row in benchmarks(made, one_round.id)] == ["iteration"]
    assert not any("bytes_per_second" in row for row in benchmarks(made, empty.id))
    assert [row["name"] for row in benchmarks(made, short.id) if "bytes_per_second" in row] == [f"{short.id}_median"]


def test_the_context_describes_the_machine_and_the_run() -> None:
    for modelled in (True, False):
        context = json.loads(to_gbench(run([], modelled=modelled, cpu={"threads": 16})))["context"]
        assert context == {
            "date": "2026-11-21T00:00:00+00:00",
            "host_name": "invented",
            "executable": "linkscope",
            "num_cpus": 16,
            "json_schema_version": 1,  # Google Benchmark refuses anything else
            "linkscope_version": "0.1.0",
            "modelled": modelled,
        }
    assert "num_cpus" not in json.loads(to_gbench(run([])))["context"]


def test_measured_runs_are_not_called_modelled() -> None:
    assert not any("modelled" in row.get("label", "") for row in benchmarks(run(small_run().points, modelled=False)))
