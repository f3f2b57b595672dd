"""CSV: one row for each flow of a point, with all columns documented and filled."""

import csv
import io
from pathlib import Path

from invented import point, run, small_run
from linkscope.report.export import COLUMNS, to_csv, write_csv


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_every_flow_has_one_row() -> None:
    made = small_run()
    expected = sum(max(1, len(one.flows)) for one in made.points)
    assert len(rows(to_csv(made))) == expected > len(made.points)


def test_columns_are_documented_and_in_order() -> None:
    header = to_csv(small_run()).splitlines()[0].split(",")
    assert header == [name for name, *_ in COLUMNS] and len(set(header)) == len(header)
    assert all(about for _, _, about, _ in COLUMNS)


def test_the_page_in_docs_lists_the_columns() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "export.md").read_text()
    listed = [line for line in text.splitlines() if line.startswith("| `")]
    types = {str: "string", int: "int64", float: "double", bool: "bool"}
    assert listed[: len(COLUMNS)] == [f"| `{name}` | {types[kind]} | {about} |" for name, kind, about, _ in COLUMNS]


def test_the_row_of_a_point_has_its_values() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/1000?bidirectional=true&mode=batched"
    first, second = rows(to_csv(run([point(id, 1e-6, limit_gbps=63.0, longer=4)])))
    assert (first["flow"], second["flow"]) == ("0", "1")
    assert (first["src"], first["dst"]) == (second["dst"], second["src"]) == ("numa:0", "gpu:0")
    assert (first["src_memory"], second["src_memory"]) == ("pinned", "device")
    assert float(first["gbps"]) == 1.0 and float(first["total_gbps"]) == 2.0 and float(first["limit_gbps"]) == 63.0
    assert (float(first["ci_low_s"]), float(first["ci_high_s"])) == (0.98e-6, 1.02e-6)
    assert (first["mode"], first["params"], first["modelled"]) == ("batched", "bidirectional=true", "true")
    assert (first["rounds"], first["samples"], first["verified"]) == ("6", "12", "true")
    assert (first["batch"], first["longer"]) == ("16", "4")


def test_each_flow_has_the_peak_of_its_direction() -> None:
    """Other points provide the peak of the opposite direction and of flows between other places."""
    both = "h2d/ce/numa:0.pinned->gpu:0.device/1000?bidirectional=true&mode=batched"
    back = "d2h/ce/gpu:0.device->numa:0.pinned/8?bidirectional=false&mode=batched"
    peers = [f"d2d/ce/gpu:0.device->gpu:1.device/8?bidirectional=false&peer={peer}" for peer in ("on", "off")]
    all_of_them = "d2d/ce/gpu:1.device->gpu:0.device/8?bidirectional=true"
    points = [point(both, 1e-6, limit_gbps=63.0, limit_source="to"), point(all_of_them, 1e-6, limit_gbps=470.0)]
    peaks = [row["limit_gbps"] for row in rows(to_csv(run(points)))]
    assert peaks == ["63.0", "", "470.0", ""]  # the other peaks are unknown
    points += [point(back, limit_gbps=57.0, limit_source="from")]
    points += [point(id, limit_gbps=limit) for id, limit in zip(peers, (478.0, 57.0), strict=True)]
    found = rows(to_csv(run(points)))
    assert [row["limit_gbps"] for row in found[:4]] == ["63.0", "57.0", "470.0", "478.0"]
    assert [row["limit_source"] for row in found[:2]] == ["to", "from"]
    points += [point(back.replace("/8?", "/64?"), limit_gbps=58.0, limit_source="another word")]
    assert rows(to_csv(run(points)))[1]["limit_gbps"] == ""  # ambiguous, so unknown


def test_points_without_a_value_and_unusual_names_are_exported() -> None:
    id = "h2d/ce/numa:0.pinned->disk:/a,%22b.device/8?mode=batched"
    (row,) = rows(to_csv(run([point(id, status="failed", reason='it said "no",\nloudly')])))
    assert row["dst"] == 'disk:/a,"b' and row["reason"] == 'it said "no",\nloudly'
    assert row["median_s"] == row["gbps"] == row["ci_low_s"] == "" and row["rounds"] == "0"


def test_an_empty_run_is_a_header_only() -> None:
    stream = io.StringIO()
    write_csv(run([]), stream)
    assert stream.getvalue().count("\n") == 1
