"""Parquet holds the content of the CSV with types. Only this format needs pyarrow."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fakes import header
from invented import point, run, small_run
from linkscope.cli.main import main
from linkscope.report.export import COLUMNS, rows, to_csv
from linkscope.report.export_parquet import to_parquet
from linkscope.runfile import RunWriter, read_run

PARSE = {
    pa.string(): str,
    pa.int64(): int,
    pa.float64(): float,
    pa.bool_(): {"true": True, "false": False}.__getitem__,
}
MEASURED = Path(__file__).parents[2] / "results" / "h200x1-standard-a.jsonl.gz"


def table(made) -> pa.Table:
    return pq.read_table(io.BytesIO(to_parquet(made)))


@pytest.mark.parametrize("made", [small_run(), read_run(MEASURED)], ids=["invented", "measured"])
def test_every_value_equals_that_of_the_csv(made) -> None:
    found = table(made)
    lines = list(csv.DictReader(io.StringIO(to_csv(made))))
    assert found.column_names == list(lines[0]) and found.num_rows == len(lines) >= len(made.points)
    for name in found.column_names:
        parse = PARSE[found.schema.field(name).type]
        wanted = [parse(line[name]) if line[name] else None for line in lines]
        # A CSV does not distinguish an empty text from a missing one.
        assert [None if value == "" else value for value in found[name].to_pylist()] == wanted, name


def test_types_do_not_depend_on_the_values() -> None:
    expected = {str: "string", int: "int64", float: "double", bool: "bool"}
    for made in (small_run(), run([])):
        assert [str(field.type) for field in table(made).schema] == [expected[kind] for _, kind, _, _ in COLUMNS]


def test_a_point_has_its_values_in_their_columns() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/1000?bidirectional=true&mode=batched"
    first, second = table(run([point(id, 1e-6, limit_gbps=63.0)])).to_pylist()
    assert (first["id"], first["flow"], second["flow"], first["bytes"]) == (id, 0, 1, 1000)
    assert (first["median_s"], first["gbps"], first["total_gbps"], first["limit_gbps"]) == (1e-6, 1.0, 2.0, 63.0)
    assert (first["rounds"], first["samples"], first["batch"]) == (6, 12, 16)
    assert first["verified"] is True and first["modelled"] is True and first["reason"] is None


def test_a_run_without_a_value_is_exported() -> None:
    id = "local/ce/gpu:0.device->gpu:0.device/{}?mode=batched"
    made = run([point(id.format(8), status="failed", reason="bad"), point(id.format(16), status="unsupported")])
    found = table(made).to_pylist()
    assert [(row["status"], row["reason"]) for row in found] == [("failed", "bad"), ("unsupported", None)]
    assert all(row["median_s"] is None and row["verified"] is None and row["rounds"] == 0 for row in found)


def test_the_file_describes_itself() -> None:
    for modelled in (True, False):
        found = table(run([], modelled=modelled))
        assert found.num_rows == 0 and found.schema.metadata == {
            b"linkscope.schema": b"2",
            b"linkscope.machine": b"invented",
            b"linkscope.modelled": str(modelled).lower().encode(),
            b"linkscope.started": b"2026-11-21T00:00:00+00:00",
            b"linkscope.version": b"0.1.0",
        }
        assert set(table(run(small_run().points, modelled=modelled))["modelled"].to_pylist()) == {modelled}


def test_the_types_of_the_columns_match_their_values() -> None:
    for row in rows(read_run(MEASURED)):
        for value, (name, kind, _, _) in zip(row, COLUMNS, strict=True):
            assert value is None or type(value) is kind, name


@pytest.mark.parametrize("words", [["-o", "a.parquet"], ["-o", "a.x", "--format", "parquet"]])
def test_a_missing_pyarrow_is_reported(words, monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "linkscope.report.export_parquet")
    assert main(["export", "none.jsonl", *words]) == 3  # the error comes before the run is read
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and "pip install pyarrow" in message and "--format csv" in message
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a.csv", "a.json"])
def test_pyarrow_is_not_imported_for_other_formats(name, tmp_path) -> None:
    RunWriter.create(tmp_path / "run.jsonl", header()).close()
    program = "import sys; sys.modules['pyarrow'] = None; from linkscope.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", program, "export", "run.jsonl", "-o", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "") and (tmp_path / name).stat().st_size > 0
