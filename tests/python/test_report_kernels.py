"""Copies by SM over blocks, copies to all GPUs concurrently, and latencies, in the page, tables and Markdown."""

import csv
import io
import re

import pytest

from invented import flow, point, run, small_run
from invented_kernels import BLOCKS, MACHINE, SIZE, joint_points, kernel_points, latency_points
from linkscope.model.curves import share_of, total_of
from linkscope.report.data_csv import data_csv
from linkscope.report.details import details
from linkscope.report.figures import figures
from linkscope.report.findings import point_findings
from linkscope.report.head import tiles
from linkscope.report.html import page
from linkscope.report.joint import joint_lines, joints
from linkscope.report.markdown import to_markdown
from linkscope.report.overview import overview
from linkscope.report.pair_grid import grid
from linkscope.report.pair_rates import matrices
from linkscope.report.sweep import sm_counts, sweep_rows, sweeps
from linkscope.report.sweep_charts import sweep_charts
from linkscope.report.wires import wires

MODEL = {"gpu": [{"sms": 80, "at": {"numa:0": ["gpu:0", "gpu:1"]}}]}


def rows_of(points) -> list[dict]:
    return list(csv.DictReader(io.StringIO(data_csv(run(points)))))


def swept(rates: dict[str, float], *, size: int = SIZE) -> list:
    id = "local/sm/gpu:0.device->gpu:0.device/{}?blocks={}&mode=batched"
    return [point(id.format(size, blocks), size / rate) for blocks, rate in rates.items()]


def test_the_number_of_blocks_for_95_percent_is_shown_with_all_sms_and_the_copy_engine() -> None:
    (row,) = sweep_rows(run(kernel_points(), **MACHINE))
    assert (row.paths, row.path_count, row.needed, row.sms, row.bytes) == ("gpu:0,1 -> gpu:0,1", 2, "16", "132", SIZE)
    assert row.best.value == pytest.approx(384) and row.other is not None and row.other.value == pytest.approx(395)
    assert [blocks for blocks, _ in row.drawn.values] == list(BLOCKS)


@pytest.mark.parametrize(
    ("rates", "needed"),
    [
        ({"1": 10e9, "2": 94e9, "4": 100e9}, "4"),
        ({"1": 95.1e9, "2": 100e9, "4": 99e9}, "1"),
        ({"1": 50e9, "2": 100e9, "4": 99e9, "8": 60e9}, "2-4"),
        ({"128": 50e9, "16": 40e9, "all": 100e9}, "all"),
        ({"9": 10e9, "10": 100e9, "sms": 50e9}, "10"),
    ],
)
def test_a_range_ends_where_more_blocks_are_slower(rates, needed) -> None:
    (found,) = sweeps(swept(rates))
    assert found.needed == needed


def test_a_sweep_has_one_size_and_several_numbers_of_blocks() -> None:
    assert sweeps(swept({"1": 50e9})) == [] and sweeps(small_run().points) == []
    (found,) = sweeps([*swept({"1": 1e9, "2": 2e9, "4": 4e9}), *swept({"1": 1e9, "2": 2e9}, size=2 * SIZE)])
    assert found.bytes == SIZE and len(found.points) == 3
    (found,) = sweeps([*swept({"1": 1e9, "2": 2e9}), *swept({"1": 1e9, "2": 2e9}, size=2 * SIZE)])
    assert found.bytes == 2 * SIZE


def test_rows_differ_by_needed_blocks_and_copying_gpu() -> None:
    points = []
    for src, dst, few in ((0, 1, 50e9), (1, 0, 99e9)):
        for initiator in ("src", "dst"):
            for blocks, rate in (("1", few), ("2", 100e9)):
                how = f"blocks={blocks}&initiator={initiator}&mode=batched"
                id = f"d2d/sm/gpu:{src}.device->gpu:{dst}.device/{SIZE}?{how}"
                points.append(point(id, SIZE / rate))
    machine = {"gpus": [{"index": 0, "sms": 132}, {"index": 1, "sms": 80}]}
    rows = {(row.paths, row.params): (row.needed, row.sms) for row in sweep_rows(run(points, **machine))}
    assert rows == {
        ("gpu:0 -> gpu:1", "initiator src"): ("2", "132"), ("gpu:0 -> gpu:1", "initiator dst"): ("2", "80"),
        ("gpu:1 -> gpu:0", "initiator src"): ("1", "80"), ("gpu:1 -> gpu:0", "initiator dst"): ("1", "132"),
    }  # fmt: skip
    (family,) = overview(points)
    assert family.sweep == "95 % of it with 1 to 2 blocks or more, by path"


def test_if_only_all_sms_reach_the_rate_there_is_no_number_of_blocks() -> None:
    (family,) = overview(swept({"1": 10e9, "32": 50e9, "pieces": 100e9}))
    assert family.sweep == ""


def test_the_half_rate_size_comes_from_an_equal_method_with_more_sizes() -> None:
    id = "local/sm/gpu:0.device->gpu:0.device/{}?mode=batched&threads={}"
    points = [point(id.format(SIZE, 256), SIZE / 50.1e9)]
    points += [point(id.format(size, 512), 1e-6 + size / 50e9) for size in (4096, 1 << 20, SIZE)]
    (family,) = overview(points)
    assert family.minor_params == ["threads"] and [row.half_text for row in family.rows] == ["1 MiB"]


def test_copy_engines_are_compared_only_at_equal_path_and_size() -> None:
    other_size = point("local/ce/gpu:0.device->gpu:0.device/4096?mode=batched", 1e-9)
    other_path = point(f"local/ce/gpu:1.device->gpu:1.device/{SIZE}?mode=batched", 1e-9)
    (row,) = sweep_rows(run([*swept({"1": 1e9, "2": 2e9}), other_size, other_path]))
    assert row.other is None and row.sms == ""


@pytest.mark.parametrize(
    ("machine", "counts"),
    [
        ({"gpus": [{"index": 3, "sms": 132}, {"index": 4, "sms": None}]}, {"gpu:3": 132}),
        ({"model": MODEL}, {"gpu:0": 80, "gpu:1": 80}),
        ({"gpus": [7]}, {}),
        ({"model": {"gpu": 3}}, {}),
        ({}, {}),
    ],
)
def test_the_number_of_sms_is_known_for_probed_and_simulated_machines(machine, counts) -> None:
    assert sm_counts(machine) == counts


def test_rates_of_few_blocks_make_no_slow_path() -> None:
    points = kernel_points()
    families = {str(found.family): found for found in overview(points)}
    kernels = families["d2d by sm, device -> device"]
    assert len(kernels.rows) == 1 and kernels.rows[0].rate is not None and kernels.rows[0].rate.value > 380
    assert kernels.sweep == "95 % of it with 16 blocks or more" and families["d2d by ce, device -> device"].sweep == ""
    assert kernels.rows[0].half_rate_bytes == SIZE and kernels.rows[0].smallest_bytes == 4096
    assert point_findings(points) == []


def test_charts_over_blocks_draw_every_row_and_every_number() -> None:
    made = run(kernel_points(), modelled=True, **MACHINE)
    (chart,) = sweep_charts(sweep_rows(made), modelled=True)
    assert all(f">{blocks}</text>" in chart.svg for blocks in BLOCKS) and "MODELLED" in chart.svg
    line = re.search(r'class="line" d="M([^"]+)"', chart.svg)
    assert line is not None and line[1].count("L") == len(BLOCKS) - 1
    assert [entry.text for entry in chart.legend] == ["d2d by sm, device -> device, gpu:0 -> gpu:1"]
    assert "blocks-d2d" in figures(made) and "peak 478 GB/s" in chart.svg


def test_page_summary_and_markdown_have_the_blocks() -> None:
    made = run([*kernel_points(), *small_run().points], **MACHINE)
    text = page(made)
    assert '<h2 id="blocks">' in text and "Rate over blocks" in text
    text = details(made, width=120, colour=False)
    assert "95 % of it with 16 blocks or more" in text and "blocks 8" not in text
    assert "| 384 GB/s \\[376, 392\\] | 16 | 132 | 395 GB/s \\[387, 403\\] |" in to_markdown(made)
    assert 'id="blocks"' not in page(small_run()) and "Blocks that" not in to_markdown(small_run())


def test_joint_flows_have_rates_and_shares() -> None:
    (joint,) = joints(joint_points())
    assert [str(row.path) for row in joint.rows] == [f"gpu:{n} -> gpu:all" for n in range(4)]
    first = joint.rows[0]
    assert first.total.value == 400 and [part.share for part in first.parts] == pytest.approx([0.25, 0.25, 0.5])
    fast, itself = first.part("-> gpu:3"), first.part("-> gpu:0")
    assert fast is not None and fast.rate.value == pytest.approx(200) and itself is None
    assert fast.rate.low is not None and fast.rate.low < 200 and joint.names[0] == "-> gpu:0"
    (line,) = joint_lines(joint_points())
    assert line.paths == "gpu:0-3 -> gpu:all" and line.total == "400 GB/s [392, 408]"
    assert line.each == "3 flows of 100 to 200 GB/s, 25 to 50 % each"


def test_joint_flows_that_ran_in_turn_have_a_total_and_no_rates_of_their_own() -> None:
    points = joint_points()
    for one in points:
        one.guards["in_turn"] = True
    assert [row.parts for joint in joints(points) for row in joint.rows] == [()] * 4
    (line,) = joint_lines(points)
    assert line.total == "400 GB/s [392, 408]" and line.each == "its flows did not run together"


def test_bidirectional_joint_flows_have_separate_columns() -> None:
    one = point("host_to_all/ce/numa:0.pinned->gpu:all.device/4096?bidirectional=true", 1e-6)
    one.flows = [flow("numa:0", f"gpu:{n}", ("pinned", "device"), 4096, 1e-6) for n in (0, 1)]
    one.flows += [flow(f"gpu:{n}", "numa:0", ("device", "pinned"), 4096, 1e-6) for n in (0, 1)]
    one.total_gbps = 4 * 4.096
    (joint,) = joints([one])
    assert joint.names == ("-> gpu:0", "-> gpu:1", "gpu:0 ->", "gpu:1 ->")
    all_to_one = point("all_to_one/sm/gpu:all.device->gpu:1.device/4096?initiator=src", 1e-6)
    all_to_one.flows = [flow("gpu:0", "gpu:1", ("device", "device"), 4096, 1e-6)]
    (joint,) = joints([all_to_one])
    assert joint.names == ("gpu:0 ->",)


def test_joint_flows_that_did_not_run_together_have_no_total() -> None:
    points = joint_points(total=None)
    assert total_of(points[0]) is None and joints(points) == [] and "All at once" not in page(run(points))
    assert {row["total_gbps"] for row in rows_of(points)} == {""}


def test_joint_flows_are_not_in_tables_of_single_paths() -> None:
    points = joint_points()
    for one in points:
        one.limit_gbps, one.flows = 478.0, one.flows[:1]
    switched = {"index": 0, "nvlinks": [{"active": True, "remote": "switch"}]}
    made = run(points, numa=[], gpus=[switched])
    assert share_of(points[0]) is None and point_findings(points) == []
    assert matrices(made) == [] and overview(points) == []
    assert [tile.label for tile in tiles(made)] == ["Points to check"]
    assert [(wire.other, wire.there, wire.back) for wire in wires(made)] == [("NVSwitch", None, None)]


def test_page_summary_and_markdown_have_the_joint_flows() -> None:
    made = run([*joint_points(), *small_run().points], **MACHINE)
    text = page(made)
    assert 'id="joint"' in text and 'data-label="-&gt; gpu:3">200 GB/s [196, 204] <span class="count">50 %' in text
    row = next(one for one in rows_of(made.points) if (one["src"], one["dst"]) == ("gpu:0", "gpu:all"))
    assert float(row["total_gbps"]) == pytest.approx(400, rel=1e-3)
    text = details(made, width=140, colour=False)
    assert "- gpu:0-3 → gpu:all: 400 GB/s [392, 408] at 64 MiB; 3 flows" in text
    assert "| gpu:0-3 → gpu:all | 64 MiB | 400 GB/s \\[392, 408\\] | 3 flows of" in to_markdown(made)


def test_latencies_are_maps_and_rows_in_nanoseconds() -> None:
    points = latency_points()
    pairs, host = map(grid, matrices(run(points)), ("", ""))
    assert pairs.columns == ("gpu:0", "gpu:1", "gpu:2", "gpu:3") and host.rows == ("numa:0",)
    assert (pairs.cells[1][1].text, pairs.cells[1][2].text, host.cells[0][3].text) == ("280 ns", "812 ns", "1.23 us")
    (within, between), (from_host,) = (found.rows for found in overview(points))
    assert within.paths == "within gpu:0-3" and within.best_text == "280 ns, 274 to 286"  # the shortest first
    assert between.best_text.startswith("812 ns, ") and from_host.best_text.startswith("1215 ns, ")
    assert (within.at_text, within.smallest_text, within.half_text, within.batched_s) == ("", "", "", None)


def test_latencies_appear_in_all_outputs_without_a_size() -> None:
    made = run([*latency_points(), *kernel_points()], modelled=False, **MACHINE)
    latencies = [one for one in rows_of(made.points) if one["bytes"] == "0"]
    assert "8.12e-07" in {one["time_s"] for one in latencies} and {one["gbps"] for one in latencies} == {""}
    assert "812 ns" in page(made) and "812 ns  796 to 828" in details(made, width=140, colour=False)
    assert "| within gpu:0-3 |  | 280 ns, 274 to 286 |  |  |  |  |  |  |" in to_markdown(made)


def test_long_operations_without_bytes_are_not_in_nanoseconds() -> None:
    long = point("allocation/cpu/gpu:0.device->gpu:0.device/0?phase=allocate", 63.85e-6)
    assert overview([long])[0].rows[0].best_text.startswith("63.8 us [")
    (family,) = overview([point("latency/sm/numa:0.pinned->gpu:0.device/0?range=2MiB", 2e-3)])
    assert family.rows[0].best_text.startswith("2.00 ms [")


def test_bidirectional_points_without_a_total_are_no_dip_and_no_best_rate() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/{}?bidirectional=true&mode=batched"
    points = [point(id.format(size), size / rate) for size, rate in ((1 << 20, 50e9), (1 << 26, 20e9))]
    assert [finding.kind for finding in point_findings(points)] == ["dip"]
    points[1].total_gbps = None  # its flows ran in turn
    assert point_findings(points) == []
    (family,) = overview(points)
    assert family.rows[0].at_bytes == 1 << 20 and family.rows[0].rate is not None
    assert overview(points[1:]) == []
