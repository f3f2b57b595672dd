"""`linkscope export`: the formats it writes, and errors that it reports before reading the run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from linkscope.cli.main import main
from linkscope.runfile import read_run


@pytest.fixture(scope="module")
def modelled(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("run") / "a.jsonl"
    assert main(["run", "--machine", "h200x4", "--suite", "quick", "--only", "h2d/*pinned*", "-o", str(path)]) == 0
    return path


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)


def kind_of(content: bytes) -> str:
    if content.startswith(b"PAR1"):
        return "parquet"
    return "gbench" if content.startswith(b"{") else "csv" if content.startswith(b"id,status,") else "?"


@pytest.mark.parametrize(
    "words, kind",
    [
        (["-o", "a.csv"], "csv"),
        (["-o", "a.parquet"], "parquet"),
        (["-o", "a.PARQUET"], "parquet"),
        (["-o", "a.json"], "gbench"),
        (["-o", "a.txt"], "csv"),
        (["-o", "a"], "csv"),
        (["-o", "a", "--format", "parquet"], "parquet"),
        (["-o", "a.json", "--format", "csv"], "csv"),
        (["--format", "gbench", "-o", "a"], "gbench"),
    ],
)
def test_the_format_follows_from_the_option_or_the_file_name(modelled, words, kind) -> None:
    assert main(["export", str(modelled), *words]) == 0
    (made,) = Path().iterdir()
    assert kind_of(made.read_bytes()) == kind


@pytest.mark.parametrize("words, kind", [([], "csv"), (["--format", "gbench"], "gbench")])
def test_text_goes_to_standard_output(modelled, words, kind, capsys) -> None:
    assert main(["export", str(modelled), *words]) == 0
    assert kind_of(capsys.readouterr().out.encode()) == kind


def test_all_formats_mark_modelled_runs(modelled) -> None:
    points = read_run(modelled).points
    for name in ("a.csv", "a.parquet", "a.json"):
        assert main(["export", str(modelled), "-o", name]) == 0
    assert all(line.endswith(",true") for line in Path("a.csv").read_text().splitlines()[1:])
    table = pq.read_table("a.parquet")
    assert set(table["modelled"].to_pylist()) == {True} and table.schema.metadata[b"linkscope.modelled"] == b"true"
    assert table.schema.metadata[b"linkscope.machine"] == b"h200x4"
    made = json.loads(Path("a.json").read_text())
    assert made["context"]["modelled"] and all("modelled" in row["label"] for row in made["benchmarks"])
    assert len(set(table["id"].to_pylist())) == len(points) > 0
    assert {one.id for one in points} <= {row["name"] for row in made["benchmarks"]}


@pytest.mark.parametrize(
    "words, names",
    [
        (["--format", "xml"], "xml"),
        (["--format", "CSV"], "CSV"),
        (["--format", "parquet"], "-o FILE.parquet"),
        (["-o", "no/a.parquet"], "no/a.parquet"),
        (["-o", "no/a.json"], "no/a.json"),
        (["-o", "."], "directory"),
        (["-o", "x" * 300], "too long"),
        (["-o", "none.jsonl"], "is a run file"),
    ],
)
def test_an_unwritable_output_is_found_before_the_run_is_read(words, names, capsys) -> None:
    assert main(["export", "none.jsonl", *words]) == 2
    message = capsys.readouterr().err
    assert names in message and message.count("\n") == 1 and "does not exist" not in message
    assert not list(Path().iterdir())


def test_an_unreadable_run_leaves_existing_outputs_unchanged(capsys) -> None:
    Path("old.json").write_text("old")
    for name in ("a.json", "old.json"):
        assert main(["export", "none.jsonl", "-o", name]) == 2
        assert "none.jsonl does not exist" in capsys.readouterr().err
    assert [path.read_text() for path in Path().iterdir()] == ["old"]


@pytest.mark.parametrize("kind", ["csv", "parquet", "gbench"])
def test_a_full_disk_is_reported(modelled, kind, capsys) -> None:
    assert main(["export", str(modelled), "-o", "/dev/full", "--format", kind]) == 2
    assert "-o /dev/full: cannot be written: No space left" in capsys.readouterr().err


def test_a_pipe_receives_the_complete_output(modelled) -> None:
    os.mkfifo("pipe")
    command = [sys.executable, "-m", "linkscope", "export", str(modelled), "-o", "pipe"]
    with subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE) as reader:
        try:
            assert subprocess.run(command, timeout=300).returncode == 0
            content, _ = reader.communicate(timeout=300)
        finally:
            reader.kill()
    assert kind_of(content) == "csv" and Path("pipe").is_fifo()
