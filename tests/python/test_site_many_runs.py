"""`linkscope site` with many runs of a machine: which have a report, and what a later call reads and writes again."""

import contextlib
import csv
import errno
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linkscope.cli import main as command_line
from linkscope.errors import STOPPED_EARLY, UserError
from linkscope.site import build as site_build
from linkscope.site import downloads, sources
from linkscope.site.build import build
from linkscope.site.downloads import formats
from linkscope.site.entry import Entry
from linkscope.site.folder import Folder
from linkscope.site.make import Made, make
from site_runs import machine

DAYS = ["2026-11-21", "2026-11-22", "2026-11-23", "2026-11-24"]


@pytest.fixture
def four(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with four run files of one machine, 41 to 44 GB/s, and its site with reports of the newest two."""
    runs = tmp_path / "runs"
    runs.mkdir()
    for number, day in enumerate(DAYS, 1):
        (runs / f"{number}.jsonl").write_bytes(machine(40.0 + number, f"{day}T10:00:00+00:00"))
    build([runs], tmp_path / "out", reports=2)
    return runs, tmp_path / "out"


def pages(site: Path) -> dict[str, str]:
    """The page of each run by its day."""
    [one] = json.loads((site / "index.json").read_text())["machines"]
    return {run["started"][:10]: (site / run["page"]).read_text() for run in one["runs"]}


def with_report(site: Path) -> list[str]:
    return sorted(day for day, text in pages(site).items() if 'id="summary"' in text)


def rows(site: Path) -> list[dict[str, str]]:
    """The rows of the compressed CSV, sorted by their addresses."""
    lines = gzip.decompress((site / "points.csv.gz").read_bytes()).decode().splitlines()
    return sorted(csv.DictReader(lines), key=lambda row: row["address"])


def test_the_newest_runs_have_reports_and_older_ones_short_pages(four: tuple[Path, Path]) -> None:
    _, site = four
    assert with_report(site) == DAYS[2:]
    old = pages(site)[DAYS[0]]
    assert "41.0 GB/s [40.2, 41.8]" in old and "<code>linkscope report run.jsonl.gz</code>" in old
    [folder] = [path for path in site.rglob(f"{DAYS[0]}*") if path.is_dir()]
    assert {"points.html", "points.csv", "run.jsonl.gz", "map.svg", "summary.json"} <= {
        path.name for path in folder.iterdir()
    }
    listed = (folder.parent / "runs.html").read_text()
    assert [day for day in DAYS if f"{day}, " in listed] == DAYS and 'href="runs.html"' in next(
        path.read_text() for path in site.glob("m/*/index.html")
    )


def test_a_removed_run_gives_an_older_one_its_report_back(four: tuple[Path, Path]) -> None:
    runs, site = four
    (runs / "4.jsonl").unlink()
    build([runs], site, reports=2)
    assert with_report(site) == DAYS[1:3]
    (runs / "5.jsonl").write_bytes(machine(45.0, "2026-11-25T10:00:00+00:00"))
    build([runs], site, reports=2)
    assert with_report(site) == [DAYS[2], "2026-11-25"]
    build([runs], site)
    assert len(with_report(site)) == 4 and not list(site.rglob("runs.html"))


def test_a_later_build_makes_the_same_site_as_a_build_from_nothing(four: tuple[Path, Path], tmp_path: Path) -> None:
    runs, site = four
    (runs / "2.jsonl").unlink()
    (runs / "3.jsonl").write_bytes(machine(53.0, "2026-11-20T10:00:00+00:00"))
    (runs / "5.jsonl").write_bytes(machine(45.0, "2026-11-25T10:00:00+00:00"))
    build([runs], site, reports=2)
    build([runs], tmp_path / "anew", reports=2)
    tables = {*formats(), "changes.xml"}
    found = [
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (site, tmp_path / "anew")
    ]
    differing = [str(name) for name in found[1] if found[0].get(name) != found[1][name] and name.name[0] != "."]
    assert found[0].keys() == found[1].keys() and set(differing) <= tables
    assert rows(site) == rows(tmp_path / "anew") and len(rows(site)) == 8


def test_every_table_loses_removed_runs_and_gains_new_ones(four: tuple[Path, Path]) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    duckdb = pytest.importorskip("duckdb")
    runs, site = four
    (runs / "2.jsonl").unlink()
    (runs / "5.jsonl").write_bytes(machine(45.0, "2026-11-25T10:00:00+00:00"))
    build([runs], site)
    expected = sorted(row["address"] for row in rows(site))
    assert sorted({row["started"][:10] for row in rows(site)}) == [DAYS[0], *DAYS[2:], "2026-11-25"]
    assert sorted(pyarrow.read_table(site / "points.parquet").column("address").to_pylist()) == expected
    with duckdb.connect(str(site / "points.duckdb"), read_only=True) as base:
        assert [row[0] for row in base.execute("SELECT address FROM points ORDER BY address").fetchall()] == expected


def test_tables_of_an_interrupted_build_are_made_anew(four: tuple[Path, Path]) -> None:
    runs, site = four
    expected = rows(site)
    (site / "points.csv.gz").write_bytes(gzip.compress(b"half of\n"))
    (site / ".linkscope-site.journal").write_text("points.csv.gz\n")
    build([runs], site, reports=2)
    assert rows(site) == expected and with_report(site) == DAYS[2:]


def killed(*_: object) -> None:
    """Ends its own process as the system does when memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("function", "table"), [("_write_parquet", "points.parquet"), ("_write_duckdb", "points.duckdb")]
)
def test_a_table_whose_process_is_killed_is_named_in_one_line_and_all_other_files_are_written(
    four: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    function: str, table: str,
) -> None:  # fmt: skip
    if table not in formats():
        pytest.skip(f"the package for {table} is not here")
    runs, site = four
    (runs / "5.jsonl").write_bytes(machine(45.0, "2026-11-25T10:00:00+00:00"))
    with monkeypatch.context() as patched:
        patched.setattr(downloads, function, killed)
        assert command_line.main(["site", str(runs), "-o", str(site)]) == 1
    out, err = capfd.readouterr()
    assert "5 runs of 1 machine; files" in out and f"site: {site / 'index.html'}" in out
    [line] = err.splitlines()
    assert f"{site / table} was not written" in line and "killed" in line and "Call `linkscope site` again" in line
    assert len(pages(site)) == 5 and len(rows(site)) == 10
    assert not (site / table).exists() and table not in (site / "downloads.html").read_text()
    assert all((site / name).exists() for name in formats() if name != table)
    assert command_line.main(["site", str(runs), "-o", str(site)]) == 0
    assert (site / table).exists() and table in (site / "downloads.html").read_text()


def disk_is_full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_command_because_other_files_would_be_missing_too(
    four: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, site = four
    table = next((name for name in ("points.parquet", "points.duckdb") if name in formats()), "")
    if not table:
        pytest.skip("no package for a table is here")
    (runs / "5.jsonl").write_bytes(machine(45.0, "2026-11-25T10:00:00+00:00"))
    monkeypatch.setattr(downloads, {"points.parquet": "_write_parquet"}.get(table, "_write_duckdb"), disk_is_full)
    with pytest.raises(OSError, match="No space left"):
        site_build.build([runs], site, "", 10)


def killed_by_the_second(path: Path, name: str, content: str) -> Made:
    if name == "2.jsonl":
        killed()
    return make(path, name, content)


def test_a_run_file_whose_process_is_killed_is_named_and_all_others_have_their_pages(
    four: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("with one CPU all pages are made in one process")
    site = tmp_path / "killed"
    monkeypatch.setattr(site_build, "make", killed_by_the_second)
    assert command_line.main(["site", str(four[0]), "-o", str(site)]) == 0
    assert "1 not shown" in capsys.readouterr().out and sorted(pages(site)) == [DAYS[0], *DAYS[2:]]
    text = (site / "not-shown.html").read_text()
    assert "2.jsonl" in text and "the system killed the process" in text


short_page = site_build._short_page


def killed_on_the_second_day(root: Path, entry: Entry) -> Made:
    if entry.started.startswith(DAYS[1]):
        killed()
    return short_page(root, entry)


def test_a_run_whose_short_page_cannot_be_made_leaves_no_files(
    four: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("with one CPU all pages are made in one process")
    runs, site = four[0], tmp_path / "killed"
    (runs / "5.jsonl").write_bytes(machine(45.0, "2026-11-25T10:00:00+00:00"))
    monkeypatch.setattr(site_build, "_short_page", killed_on_the_second_day)
    assert command_line.main(["site", str(runs), "-o", str(site), "--reports", "1"]) == 0
    assert "1 not shown" in capsys.readouterr().out and sorted(pages(site)) == [DAYS[0], *DAYS[2:], "2026-11-25"]
    assert [file for file in site.rglob("*") if DAYS[1].replace("-", "") in str(file).replace("-", "")] == []


def test_only_changed_files_are_read_again(four: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    runs, site = four
    monkeypatch.setattr(sources, "_SETTLED_NS", -(10**18))  # no wait for the clock of the file system
    read = []
    real = sources.hash_of_text
    monkeypatch.setattr(sources, "hash_of_text", lambda path: read.append(path.name) or real(path))
    build([runs], site)
    assert sorted(read) == ["1.jsonl", "2.jsonl", "3.jsonl", "4.jsonl"]
    read.clear()
    (runs / "3.jsonl").write_bytes(machine(53.0, f"{DAYS[2]}T10:00:00+00:00"))  # of the same length
    assert build([runs], site).runs == 4
    assert read == ["3.jsonl"] and [row["gbps"] for row in rows(site) if row["gbps"].startswith("53")]


def test_a_site_needs_one_report_for_the_page_of_a_machine(
    four: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.main(["site", str(four[0]), "-o", str(four[1]), "--reports", "0"]) == 2
    assert "--reports 0: give 1 or more" in capsys.readouterr().err


def sleeping(path: Path, name: str, content: str) -> Made:
    (path.parent / "began").touch()
    time.sleep(60)
    raise AssertionError


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_ends_the_command_and_its_processes_at_once(
    four: tuple[Path, Path], tmp_path: Path, presses: int
) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("with one CPU all pages are made in one process")
    code = (
        "import sys; from linkscope.cli import main; from linkscope.site import build\n"
        "import test_site_many_runs as own\n"
        "build.make = own.sleeping; sys.exit(main.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "site", str(four[0]), "-o", str(tmp_path / "stopped")]
    folders = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": folders}, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as one:
        try:
            while not (four[0] / "began").exists() and one.poll() is None:
                time.sleep(0.01)
            for _ in range(presses):
                os.killpg(one.pid, signal.SIGINT)  # as a terminal does: to all processes of the command
            _, said = one.communicate(timeout=30)  # a command that waits for its processes takes 60 s or for ever
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
    assert one.returncode in (STOPPED_EARLY, -signal.SIGINT) and "Traceback" not in said


def test_two_commands_do_not_write_one_site_together(four: tuple[Path, Path]) -> None:
    runs, site = four
    first = Folder(site)
    with pytest.raises(UserError, match="another `linkscope site` writes this site"):
        build([runs], site)
    first.close()
    assert build([runs], site, reports=2).runs == 4
