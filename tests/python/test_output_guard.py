"""No command overwrites a measured run, whatever the name of the run file is."""

import gzip
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.cli.target import check_writable
from linkscope.errors import UserError

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


@pytest.mark.parametrize(
    "content",
    [
        gzip.compress(RUN.encode())[:12],
        b"\x1f\x8bno gzip",
        gzip.compress(b"")[:10] + b"\xff" * 20,
        b"\x1f",
    ],
    ids=["truncated", "another header", "damaged content", "one byte"],
)
def test_a_file_that_only_begins_like_gzip_may_be_replaced(content: bytes, tmp_path: Path) -> None:
    target = tmp_path / "old.html"
    target.write_bytes(content)
    check_writable(target, runs=[])
    assert target.read_bytes() == content


def test_a_run_that_a_command_reads_is_never_replaced_not_even_under_another_name(tmp_path: Path) -> None:
    run, link = tmp_path / "a.jsonl", tmp_path / "page.html"
    run.write_text(RUN)
    link.symlink_to(run)
    with pytest.raises(UserError, match="this is a run file that the command reads"):
        check_writable(link, runs=[run], force=True)
