"""The folders that a site is made from: odd file names, sites inside, equal files, folders without permission."""

import os
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from linkscope.cli import main as command_line
from linkscope.errors import UserError
from linkscope.site import build as site_build
from linkscope.site.build import build
from site_runs import machine


def not_shown(site: Path) -> str:
    return (site / "not-shown.html").read_text(encoding="utf-8")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.jsonl").write_bytes(machine(50.0))
    return tmp_path / "runs"


def test_a_file_name_that_is_no_utf8_is_shown_with_its_bytes(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, text in ((b"b\xff.jsonl", machine(60.0)), (b"c\xfe.jsonl", b"hello")):
        (runs / os.fsdecode(name)).write_bytes(text)
    assert build([runs], tmp_path / "out").runs == 2
    assert r"c\xfe.jsonl is not a linkscope run file" in not_shown(tmp_path / "out")
    assert command_line.main(["site", "--check", str(runs)]) == 2
    assert "not a linkscope run file" in capsys.readouterr().out


def test_runs_inside_another_site_are_not_run_files_of_the_input(runs: Path, tmp_path: Path) -> None:
    build([runs], runs / "copy of the site")
    (runs / "a.jsonl").write_bytes(machine(60.0))
    built = build([runs], tmp_path / "out")
    assert (built.runs, built.refused) == (1, [])
    page = (tmp_path / "out" / "p" / "h2d-pinned.html").read_text()
    assert "60.0 GB/s" in page and "50.0 GB/s" not in page


def test_an_equal_file_says_whether_the_first_one_is_shown(runs: Path, tmp_path: Path) -> None:
    (runs / "b.jsonl").write_bytes(machine(50.0))
    for name in ("c.jsonl", "d.jsonl"):
        (runs / name).write_bytes(b"")
    build([runs], tmp_path / "out")
    assert "a duplicate of a.jsonl, which is shown" in not_shown(tmp_path / "out")
    assert "a duplicate of c.jsonl, which has no page either" in not_shown(tmp_path / "out")


def test_a_file_that_is_named_twice_is_no_duplicate(runs: Path, tmp_path: Path) -> None:
    built = build([runs, runs / "a.jsonl", runs], tmp_path / "out")
    assert (built.runs, built.refused) == (1, [])


def test_a_folder_that_cannot_be_read_is_named_and_ends_the_command_if_it_is_an_input(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "secret").mkdir()
    scan = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    closed = runs / "secret"
    assert build([runs], tmp_path / "out").refused == [("secret", "cannot be read: Permission denied")]
    assert command_line.main(["site", "--check", str(runs)]) == 2
    assert "secret:\n  cannot be read: Permission denied" in capsys.readouterr().out
    closed = runs
    with pytest.raises(UserError, match=r"runs cannot be read: Permission denied\. Name a folder that you may read"):
        build([runs], tmp_path / "out")
    assert (tmp_path / "out" / "index.html").exists()


def test_a_check_of_a_folder_without_run_files_does_not_pass(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["site", "--check", str(tmp_path)]) == 2
    assert "no file there ends in .jsonl" in capsys.readouterr().err


@pytest.mark.parametrize("step", ["make", "report"])
def test_a_file_that_is_written_meanwhile_is_not_shown_in_two_states(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (runs / "b.jsonl").write_bytes(machine(60.0).partition(b"\n")[0] + b"\n")
    real = getattr(site_build, step)

    def late(path: Path, name: str, *words: object) -> object:
        if name == "b.jsonl":
            path.write_bytes(machine(60.0))
        return real(path, name, *words)

    monkeypatch.setattr(site_build, step, late)
    assert build([runs], tmp_path / "out").runs == 1
    assert "b.jsonl changed while the site was made" in not_shown(tmp_path / "out")
    monkeypatch.setattr(site_build, step, real)
    assert build([runs], tmp_path / "out").runs == 2


def test_the_feed_is_xml_whatever_the_title_of_a_machine(runs: Path, tmp_path: Path) -> None:
    (runs / "a.jsonl").write_bytes(machine(50.0, title="a\x01<b>\x0b \ufffe \u00b5"))
    build([runs], tmp_path / "out")
    titles = [one.text for one in xml.parse(tmp_path / "out" / "changes.xml").iter("title")]
    assert titles[1] == "added: a?<b>? ? \u00b5: 2026-11-25, quick"
