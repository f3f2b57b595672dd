"""No command overwrites a measured run, whatever the name of the run file is."""

import gzip
import tomllib
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
        (["compare", SOURCE, SOURCE], "-o", "kept.svg"),
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


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    new, other = tmp_path / "new.jsonl", tmp_path / "other.jsonl"
    other.write_text("no run\n")
    for target in (new, other):
        assert main(["export", SOURCE, "--format", "csv", "-o", str(target)]) == 0
        assert target.read_text().startswith("id,status")


def test_a_torn_archive_and_a_header_in_another_order_are_runs(tmp_path: Path) -> None:
    torn, turned = tmp_path / "torn", tmp_path / "turned"
    torn.write_bytes(gzip.compress(Path(SOURCE).read_bytes())[:600])
    turned.write_text('{"schema":1,"modelled":false,"record":"run"}\n')
    for kept in (torn, turned):
        content = kept.read_bytes()
        assert main(["export", SOURCE, "--format", "csv", "-o", str(kept)]) == 2
        assert kept.read_bytes() == content


def test_a_file_that_holds_no_run_cannot_be_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("notes")
    assert main(["run", "h2d", "--machine", "h200x1", "--sizes", "8", "-q", "-o", str(other)]) == 2
    said = capsys.readouterr().err
    assert "It holds no run" in said and "--resume" not in said and other.read_text() == "notes"


def test_model_prints_the_machine_file_alone_and_its_progress_on_standard_error(
    capfd: pytest.CaptureFixture[str],
) -> None:
    results = Path(__file__).parents[2] / "results"
    assert main(["model", str(results / "h200x1-quick.jsonl.gz"), "-o", "-"]) == 0
    out, err = capfd.readouterr()
    assert "machine" in tomllib.loads(out) and err.startswith("linkscope: fitting ")


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
