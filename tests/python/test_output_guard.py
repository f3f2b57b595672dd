"""No command overwrites a measured run, whatever the name of the run file is."""

import gzip
from pathlib import Path

import pytest

from linkscope.cli.main import main

RUN = '{"record":"run","schema":1,"modelled":false}\n'
SOURCE = str(Path(__file__).parents[1] / "golden" / "run-h200x1.jsonl")


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("command", "option", "name"),
    [
        (["report", SOURCE], "-o", "kept.html"),
        (["report", SOURCE], "--markdown", "kept.md"),
        (["report", SOURCE, "--figure", "machine"], "-o", "kept.svg"),
        (["export", SOURCE], "-o", "kept.csv"),
        (["model", SOURCE], "-o", "kept.toml"),
        (["machine"], "--save", "kept.json"),
        (["machine"], "--save", "v.jsonl"),
    ],
)
def test_an_output_that_would_replace_a_run_file_is_refused(
    command: list[str], option: str, name: str, packed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / name
    content = gzip.compress(RUN.encode()) if packed else RUN.encode()
    kept.write_bytes(content)
    assert main([*command, option, str(kept)]) == 2
    assert "run file" in capsys.readouterr().err
    assert kept.read_bytes() == content
