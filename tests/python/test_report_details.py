"""All tables of a run in the terminal (`--summary=full`), its findings and its problems."""

import dataclasses
import os
import re
from pathlib import Path

import msgspec
import pytest

from campaign import only_long
from invented import SIZES, flow, point, run, small_run
from linkscope.report.details import details
from linkscope.report.findings import findings, point_findings
from linkscope.report.html import page
from linkscope.report.markdown import to_markdown
from linkscope.report.outcome import problems, run_text
from linkscope.runfile import Spread, read_run

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
H2D = "h2d/ce/numa:0.pinned->gpu:0.device/{}?bidirectional=false&mode=batched"


def kinds(points) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in point_findings(points):
        found.setdefault(finding.kind, []).append(finding.text)
    return found


@pytest.mark.parametrize("width", [80, 140])
def test_the_tables_match_the_golden_file(width: int) -> None:
    text = details(small_run(), width=width, colour=False) + "\n"
    golden = GOLDEN / f"details-{width}.txt"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("width", [20, 60, 80, 100, 300])
def test_table_lines_fit_the_width(width: int) -> None:
    for line in details(small_run(), width=width, colour=False).splitlines():
        assert len(line) <= max(60, min(width, 140)) or line.startswith("    "), line  # ids are never broken


def test_only_terminals_get_colours(monkeypatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")  # a terminal of type dumb has no colours
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain, coloured = (details(small_run(), width=100, colour=colour) for colour in (False, True))
    assert "\x1b" not in plain and "\x1b[" in coloured
    assert re.sub(r"\x1b\[[\d;]*m", "", coloured) == plain
    assert details(small_run()) == plain  # under pytest, standard output is no terminal


def test_a_place_name_cannot_send_escape_sequences() -> None:
    id = "local/ce/gpu:0.device->gpu:0.device/8?mode=%1b[31mred"
    text = details(
        run([point(id, 1e-6), point(id.replace("/8", "/16"), status="failed", reason="a\x1b[2Jb")]), colour=False
    )
    assert "\x1b" not in text and "a?[2Jb" in text


def test_only_modelled_runs_start_with_modelled() -> None:
    assert details(run([]), colour=False).startswith("MODELLED")
    assert "MODELLED" not in details(run([], modelled=False), colour=False)


def test_runs_of_no_point_of_one_point_and_of_failures_only_are_shown() -> None:
    assert "No point has a value" in details(run([]), colour=False)
    assert "55.4" in details(run([point(H2D.format(1 << 20), (1 << 20) / 55.4e9)]), colour=False)
    failed = [point(H2D.format(size), status="failed", reason="the driver said no") for size in SIZES]
    text = details(run(failed), colour=False)
    assert "failed, 4 points: the driver said no" in text and "No point has a value" in text


def test_concurrent_flows_without_single_rates_show_their_totals() -> None:
    id = "concurrent/ce/numa:0.pinned->gpu:0.device/1048576?with=numa:0->gpu:1"
    of = ("pinned", "device"), 1 << 20
    flows = [flow("numa:0", dst, *of, (1 << 20) / rate) for dst, rate in (("gpu:0", 55e9), ("gpu:1", 45e9))]
    text = details(run([point(id, (1 << 20) / 55e9, flows=flows, total_gbps=100.0)]), colour=False)
    assert "numa:0 → gpu:0,1: 100 GB/s [98, 102] in total at 1 MiB, 55 GB/s and 45 GB/s" in " ".join(text.split())
    assert "No point has a value" not in text and "their single rates were not measured" in " ".join(text.split())


def test_points_without_an_interval_are_marked() -> None:
    assert "no interval" in details(run([point(H2D.format(8), 1e-6, ci95_s=None)]), colour=False)


def test_operations_with_the_most_points_that_missed_precision_are_listed() -> None:
    id = "h2h/cpu/numa:0.{}->numa:0.pinned/{}"
    wide = [
        msgspec.structs.replace(point(id.format(chr(97 + kind), size), 1e-6), status="missed_precision")
        for kind in range(15) for size in SIZES[: 1 + (kind >= 5)]
    ]  # fmt: skip
    text = " ".join(details(run(wide), colour=False).split("Status of points")[1].split())
    assert text.count("missed precision, 2 points: ") == 10 and "missed precision, 1 point: " not in text
    assert "missed precision, 5 points more of 5 other operations: see the page" in text
    few = " ".join(details(run(wide[:10]), colour=False).split())
    assert few.count("missed precision, ") == len({one.src_memory for one in wide[:10]}) and "more of" not in few


def test_the_full_form_prints_every_anomaly(monkeypatch) -> None:
    made = small_run()
    (one, *_) = findings(made)
    many = [dataclasses.replace(one, text=f"anomaly {number}.") for number in range(22)]
    monkeypatch.setattr("linkscope.report.sections.anomalies.findings", lambda run: many)
    text = details(made, colour=False)
    assert all(f"- {one.text}\n" in text for one in many) and "more: see the page" not in text


@pytest.mark.parametrize("only, expected", [
    (["d2d/*", "h2d/*gpu:0*"], "suite standard (only d2d/* h2d/*gpu:0*), "),
    ([H2D.format(8)], "suite standard (only 1 point), "),
    ([H2D.format(8), H2D.format(64)], "suite standard (only 2 points), "),
    ([H2D.format(8), H2D.format("*")], "suite standard (only 2 patterns), "),
    (["\x1b[31m"], "suite standard (only ?[31m), "),
    ([], "suite standard, "),
    (7, "suite standard, "),
])  # fmt: skip
def test_a_partial_suite_names_its_patterns(only, expected) -> None:
    made = run([])
    header = msgspec.structs.replace(made.header, plan={"suite": "standard", "rounds": 6, "only": only})
    object.__setattr__(made, "header", header)
    assert expected in details(made, width=140, colour=False)


def test_a_killed_run_is_reported_as_cut_off() -> None:
    made = run([])
    object.__setattr__(made, "end", None)
    assert "no end record: the run was cut off" in run_text(made)


def test_modelled_runs_show_the_modelled_time() -> None:
    points = [point(H2D.format(8), 1e-6, device_s=2.0), point(H2D.format(64), 1e-6, device_s=0.5)]
    assert run_text(run(points)).endswith("2.5 s of modelled time, simulated in 1.5 s")
    assert run_text(run(points, modelled=False)).endswith("; took 1.5 s")


def test_problems_are_grouped_by_reason() -> None:
    found = problems(small_run().points)
    assert [(one.status, len(one.ids)) for one in found] == [
        ("failed", 2), ("unsupported", 1), ("skipped", 1), ("missed_precision", 1),
    ]  # fmt: skip
    assert found[0].reason == "wrong data: byte 3 of 16"
    assert "widest +-2 %, target was 1 %" in found[3].text()


def test_findings_of_the_invented_run() -> None:
    found = kinds(small_run().points)
    assert list(found) == [
        "slow path", "below half of peak", "spread between rounds", "two modes", "cost of a single copy",
    ]  # fmt: skip
    (slow,) = found["slow path"]
    assert "gpu:2 -> gpu:3" in slow and "48 % below the median of 12 paths" in slow
    assert any("14 % of peak" in text for text in found["below half of peak"])
    assert (
        "5 % between rounds" in found["spread between rounds"][0]
        and "within a round" in found["spread between rounds"][0]
    )
    assert "6 us more as a single copy" in found["cost of a single copy"][0]


def test_equal_paths_have_no_anomalies() -> None:
    ids = [f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/{1 << 26}?mode=batched" for gpu in range(8)]
    assert point_findings([point(id, 1.2e-3, limit_gbps=63.0) for id in ids]) == []


def test_a_slow_half_of_the_paths_is_no_outlier_and_peaks_separate_classes() -> None:
    ids = [f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/{1 << 26}?mode=batched" for gpu in range(8)]
    halves = [point(id, 1e-3 if number < 4 else 2e-3, limit_gbps=90.0) for number, id in enumerate(ids)]
    assert "slow path" not in kinds(halves)
    limits = [point(id, 2e-3 if not n else 1e-3, limit_gbps=41.0 if not n else 90.0) for n, id in enumerate(ids)]
    assert "slow path" not in kinds(limits)
    assert "slow path" in kinds([point(id, 2e-3 if not n else 1e-3) for n, id in enumerate(ids)])


def test_dips_and_throttling_are_anomalies() -> None:
    rates = {8: 1e9, 4096: 30e9, 1 << 20: 20e9, 64 << 20: 55e9}
    points = [point(H2D.format(size), size / rate) for size, rate in rates.items()]
    assert "33 % slower at 1 MiB (20 GB/s) than at 4 KiB (30 GB/s)" in kinds(points)["dip"][0]
    points[0].guards["throttled_rounds"] = [{"round": 0}]
    assert "during 1 point" in kinds(points)["throttled"][0]


def test_a_small_spread_between_rounds_is_no_anomaly() -> None:
    quiet = Spread(within_rounds=0.0001, between_rounds=0.005, modes_s=None)
    assert "spread between rounds" not in kinds([point(H2D.format(8), 1e-6, spread=quiet)])


def test_rising_counters_are_anomalies() -> None:
    made = small_run()
    assert not [finding for finding in findings(made) if finding.kind in {"errors", "repeats", "steal"}]
    made = small_run()  # a run keeps its findings
    gained = {"gpu:0": {"ecc_uncorrected": 1, "pcie_replays": 2}, "gpu:1": {"pcie_replays": 4}}
    made.end.gained = {"cpu_steal": 0.03, **gained}
    lost, repeated, steal = [finding.text for finding in findings(made)[:3]]
    assert lost.startswith("uncorrected ECC errors rose on gpu:0 (by 1).")
    assert repeated == "PCIe replays rose on gpu:0,1 (by 2 to 4 a GPU). The counts are even, so no link is suspect."
    assert "3 %" in steal and "hypervisor" in steal


@pytest.mark.parametrize("width", [60, 80, 100, 132])
def test_every_terminal_width_shows_the_percentage_of_peak(width) -> None:
    run_file = Path(__file__).parents[2] / "results" / "h200x4-standard-a.jsonl.gz"
    text = details(read_run(run_file), width=width, colour=False)
    line = next(line for line in text.splitlines() if line.startswith("path"))
    assert "% of peak" in line and len(line) <= width
    assert re.search(r"55\.\d+ to 55\.\d+ +9[56] %", text)


def test_a_half_rate_at_the_smallest_size_is_an_upper_bound() -> None:
    ids = [f"h2d/ce/numa:0.pinned->gpu:0.device/{size}?mode=batched" for size in (4096, 1 << 20)]
    alike = [point(id, size / 10e9) for id, size in zip(ids, (4096, 1 << 20), strict=True)]
    assert "<= 4 KiB" in details(run(alike), width=140, colour=False)
    slower = [point(ids[0], 1.0), alike[1]]
    assert "<=" not in details(run(slower), width=140, colour=False)


@pytest.mark.parametrize(
    ("limit", "size", "expected"), [(478.0, 1 << 20, False), (478.0, 16 << 20, True), (57.6, 1 << 20, True)]
)
def test_small_sizes_are_not_compared_with_the_peak(limit, size, expected) -> None:
    """1 MiB takes 2.2 us on a link of 478 GB/s, so a copy of 5 us cannot be much faster."""
    id = f"d2d/ce/gpu:0.device->gpu:1.device/{size}?mode=batched"
    found = kinds([point(id, size / (0.39 * limit * 1e9), limit_gbps=limit, limit_source="NVLink")])
    assert ("below half of peak" in found) is expected


def test_a_narrow_terminal_names_small_sizes_after_the_path() -> None:
    """The mixture of sizes comes from a run that was cut off early."""
    host = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?bidirectional=false&mode={}"
    small = [(0, 8, 1e-6), (2, 4096, 1e-6), (1, 64 << 20, 1.2e-3)]
    mixed = [
        point(host.format(gpu, size, mode), seconds, limit_gbps=63.0, limit_source="PCIe 5.0 x16")
        for gpu, size, seconds in small
        for mode in ("batched", "single")
    ]
    wide, narrow = (details(run(mixed), width=width, colour=False) for width in (140, 60))
    assert "at  smallest" in wide and "(at " not in wide
    assert "  at" not in narrow and narrow.count("(at ") == 2 and "(at 8 B)" in narrow and "(at 4 KiB)" in narrow


def test_a_time_below_its_noise_is_unresolved_and_no_interval_starts_below_zero() -> None:
    id = "allocation/cpu/numa:0.pinned->gpu:0.device/0?phase=map&size=16MiB"
    made = run([point(id, 5.3e-7, ci95_s=(-6.4e-7, 2.47e-6))])
    for text in (details(made, colour=False), page(made), to_markdown(made)):
        assert "at most 2.5 us" in text.replace("µs", "us") and "unresolved" in text and not re.search(r"\[-\d", text)


@only_long
def test_no_interval_of_a_committed_run_starts_below_zero() -> None:
    made = read_run(Path(__file__).parents[2] / "results" / "h200x4-full.jsonl.gz", rounds=False)
    for text in (details(made, width=140, colour=False), page(made), to_markdown(made).replace("\\", "")):
        assert not re.search(r"\[-\d", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
