"""Suite `nvbandwidth`, its tables and its rule, in complete runs on a simulated machine without noise."""

import json
import tomllib
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.machine import model as models
from linkscope.report.nvbandwidth import tables
from linkscope.runfile import Run, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

# The keys of the SUM lines of nvbandwidth 0.8, in the order of its tests.
BOTH = [f"device_to_device_bidirectional_memcpy_{word}" for word in ("read", "write")]
KEYS = [
    key
    for engine in ("ce", "sm")
    for key in (
        f"host_to_device_memcpy_{engine}", f"device_to_host_memcpy_{engine}",
        f"host_to_device_bidirectional_memcpy_{engine}", f"device_to_host_bidirectional_memcpy_{engine}",
        f"device_to_device_memcpy_read_{engine}", f"device_to_device_memcpy_write_{engine}",
        *(f"{BOTH[0]}_{engine}_{which}" for which in ("read1", "read2", "total")),
        *(f"{BOTH[1]}_{engine}_{which}" for which in ("write1", "write2", "total")),
        f"all_to_host_memcpy_{engine}", f"all_to_host_bidirectional_memcpy_{engine}",
        f"host_to_all_memcpy_{engine}", f"host_to_all_bidirectional_memcpy_{engine}",
        f"all_to_one_write_{engine}", f"all_to_one_read_{engine}",
        f"one_to_all_write_{engine}", f"one_to_all_read_{engine}",
    )
] + ["host_device_latency_sm", "device_to_device_latency_sm", "device_local_copy"]  # fmt: skip

# Expected values from the model's links, uplinks and memories in GB/s and ns, written here by hand.
EXPECTED = {
    "host_to_device_memcpy_ce": 55.5, "device_to_host_memcpy_ce": 55.5,
    "host_to_device_bidirectional_memcpy_ce": 51.1, "device_to_host_bidirectional_memcpy_ce": 51.1,
    "device_to_device_memcpy_read_ce": 390, "device_to_device_memcpy_write_ce": 390,
    f"{BOTH[0]}_ce_read1": 390, f"{BOTH[0]}_ce_read2": 390, f"{BOTH[0]}_ce_total": 780,
    "all_to_host_memcpy_ce": 37.5, "host_to_all_memcpy_ce": 45.5,
    "all_to_host_bidirectional_memcpy_ce": 23.5, "host_to_all_bidirectional_memcpy_ce": 23.5,
    "all_to_one_write_ce": 390, "all_to_one_read_ce": 390, "one_to_all_write_ce": 390, "one_to_all_read_ce": 390,
    "host_to_device_memcpy_sm": 51.7, "device_to_host_memcpy_sm": 51.7,
    "device_to_device_memcpy_read_sm": 376, "device_to_device_memcpy_write_sm": 376,
    "host_device_latency_sm": 1168, "device_to_device_latency_sm": 1001, "device_local_copy": 2110,
}  # fmt: skip


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Machine h200x4 without noise, as a file."""
    path = tmp_path_factory.mktemp("machine") / "quiet.toml"
    text = models.bundled()["h200x4"].read_text()
    path.write_text(text[: text.index("# Sigmas of log-normal factors")])
    assert "noise" not in tomllib.loads(path.read_text())
    return path


@pytest.fixture(scope="module")
def measured(machine: Path) -> Path:
    path = machine.with_name("run.jsonl")
    assert main(["run", "--machine", str(machine), "--suite", "nvbandwidth", "-o", str(path), "--json"]) == 0
    return path


@pytest.fixture(scope="module")
def ruled(machine: Path) -> Run:
    path = machine.with_name("ruled.jsonl")
    words = ["run", "--machine", str(machine), "--suite", "nvbandwidth", "--rule", "nvbandwidth", "--json"]
    assert main([*words, "-o", str(path)]) == 0
    return read_run(path)


def test_every_table_of_nvbandwidth_has_the_expected_values(measured: Path) -> None:
    made = {table.key: table for table in tables(read_run(measured))}
    assert list(made) == KEYS
    for key, expected in EXPECTED.items():
        cells = made[key].cells
        filled = [value for row in cells for value in row if value is not None]
        assert filled == pytest.approx([expected] * len(filled), rel=0.011), key
        assert len(filled) == (12 if len(cells) == 4 else 4), key
        if len(cells) == 4:
            assert [cells[at][at] for at in range(4)] == [None] * 4


def test_the_text_has_the_layout_of_nvbandwidth(measured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(measured), "--nvbandwidth"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("MODELLED\n\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n")
    lines = printed.splitlines()
    at = lines.index("memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)")
    assert lines[at + 1] == "           0         1         2         3"
    assert lines[at + 2][:12] == " 0       N/A" and all(len(line) == 42 for line in lines[at + 1 : at + 6])
    assert lines[at + 6] == "" and lines[at + 7].startswith("SUM device_to_device_memcpy_read_ce 46")


def test_three_rounds_are_enough_if_they_reach_the_precision_and_other_points_have_six(tmp_path: Path) -> None:
    path = tmp_path / "noisy.jsonl"
    assert main(["run", "--machine", "h200x4", "--suite", "nvbandwidth", "-o", str(path)]) == 0
    points = read_run(path).points
    assert {len(point.flows[0].round_medians_s) for point in points} == {3, 6}
    for point in points:
        three = len(point.flows[0].round_medians_s) == 3
        assert three or point.ci_method in ("pooled", "order_statistics")
        assert not three or point.ci_level == 0.95
        widths = [(flow.ci95_s[1] - flow.ci95_s[0]) / 2 / flow.median_s for flow in point.flows if flow.ci95_s]
        assert (point.status == "ok") == (max(widths) <= point.precision_target and "in_turn" not in point.guards)


def test_a_run_without_its_measurements_has_no_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x1", "--only", "h2h/*/4096?*", "--rounds", "1", "-o", str(path)]) == 0
    capsys.readouterr()
    assert main(["report", str(path), "--nvbandwidth"]) == 3
    assert "--suite nvbandwidth" in capsys.readouterr().err


def test_the_rule_of_nvbandwidth_takes_one_round_of_three_samples_of_sixteen_copies(ruled: Run) -> None:
    assert ruled.header.plan["rule"] == "nvbandwidth" and ruled.header.plan["rounds"] == 1
    for point in ruled.points:
        if point.bytes and point.flows:
            assert set(point.batch or ()) == {16}
            assert [len(samples) for samples in point.flows[0].samples_s] == [3]
            assert point.status == "missed_precision" and point.ci95_s is None and point.verified


def test_the_rule_agrees_with_the_default_if_flows_share_nothing(ruled: Run) -> None:
    made = {table.key: table for table in tables(ruled)}
    for key in ("host_to_device_memcpy_ce", "device_to_host_memcpy_sm", "device_to_device_memcpy_read_ce"):
        filled = [value for row in made[key].cells for value in row if value is not None]
        assert filled == pytest.approx([EXPECTED[key]] * len(filled), rel=0.011)


def test_the_rule_counts_the_warm_ups_of_other_flows_if_one_engine_serves_all(ruled: Run) -> None:
    """The flows run in turn: after the fourth copy of the first flow, 56 of 60 copies are timed and 48 counted."""
    totals = [
        point.total_gbps for point in ruled.points
        if (point.benchmark, point.engine, point.params.get("initiator")) == ("one_to_all", "ce", "src")
    ]  # fmt: skip
    assert totals == pytest.approx([390 * 48 / 56] * 4, rel=0.01)


def test_an_unknown_rule_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--machine", "h200x1", "--rule", "guess"]) == 2
    assert "unknown rule; choose linkscope, nvbandwidth, comm-scope" in capsys.readouterr().err


def test_the_rule_plans_one_round(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--machine", "h200x1", "--rule", "nvbandwidth", "--rounds", "6"]) == 2
    assert "one round" in capsys.readouterr().err


INVALID = [
    ("latency/sm/gpu:0.device->gpu:1.device/8?cache=cold&range=2MiB", 2, "no bytes"),
    ("h2d/ce/numa:0.pinned->gpu:all.device/4096?after=kernel&bidirectional=false&mode=batched", 2, "gpu:all"),
    ("host_to_all/ce/numa:0.pinned->gpu:1.device/4096?bidirectional=false", 2, "gpu:all"),
    ("host_to_all/ce/numa:0.pinned->host:1/gpu:all.device/4096?bidirectional=false", 2, "gpu:all"),
    ("one_to_all/ce/gpu:0.device->gpu:all.device/4096?initiator=src", 3, "has no GPU for gpu:all"),
]


@pytest.mark.parametrize(("id", "code", "expected"), INVALID)
def test_an_invalid_id_is_refused_with_its_reason(id: str, code: int, expected: str, capsys, tmp_path: Path) -> None:
    machine = "h200x1" if code == 3 else "h200x4"
    assert main(["run", "--machine", machine, "--only", id, "-o", str(tmp_path / "run.jsonl")]) == code
    output = capsys.readouterr().err
    assert expected in output and not (tmp_path / "run.jsonl").exists()


def test_a_complete_id_of_all_gpus_is_measured(capsys, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    id = "one_to_all/ce/gpu:2.device->gpu:all.device/1048576?initiator=dst"
    assert main(["run", "--machine", "h200x4", "--only", id, "--json", "-o", str(path)]) == 0
    (point,) = read_run(path).points
    assert [(flow.src, flow.dst) for flow in point.flows] == [("gpu:2", f"gpu:{other}") for other in (0, 1, 3)]


def test_a_resumed_run_keeps_its_rule(machine: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.jsonl"
    words = ["run", "--machine", str(machine), "--suite", "nvbandwidth", "--rule", "nvbandwidth", "--only", "d2h/*"]
    assert main([*words, "-o", str(path), "--json"]) == 0
    kept = path.read_text().splitlines()
    path.write_text("\n".join(line for line in kept[:6] if json.loads(line)["record"] != "end") + "\n")
    assert main(["run", "--resume", str(path), "--json"]) == 0
    assert len(read_run(path).points) == 8
    assert all(point.batch == [16] for point in read_run(path).points)
    assert main(["run", "--resume", str(path), "--rule", "linkscope"]) == 2
