"""`linkscope site`: known values, bad input, addresses, and what changes when run files change."""

import csv
import email.utils
import gzip
import json
import shlex
import xml.etree.ElementTree as xml
from pathlib import Path

import pytest

from linkscope.cli import main as command_line
from linkscope.errors import UserError
from linkscope.report.export import COLUMNS
from linkscope.runfile import Run
from linkscope.site import downloads, make
from linkscope.site.build import build
from linkscope.site.downloads import ADDED_MEANINGS
from linkscope.site.entry import anchor
from site_runs import EVIL, SIZE, machine, write_all

ID = f"h2d/ce/numa:0.pinned->gpu:0.device/{SIZE}?bidirectional=false&mode=batched"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a site of all files of site_runs."""
    folder = tmp_path_factory.mktemp("site")
    write_all(folder / "runs")
    build([folder / "runs"], folder / "out", "https://example.org/site")
    return folder / "out"


@pytest.fixture
def small(tmp_path: Path) -> tuple[Path, Path]:
    """A folder with two run files, and its site."""
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "a.jsonl").write_bytes(machine(50.0))
    (runs / "b.jsonl").write_bytes(machine(40.0, "2026-11-22T10:00:00+00:00"))
    build([runs], tmp_path / "out")
    return runs, tmp_path / "out"


def index(site: Path) -> list[dict]:
    return json.loads((site / "index.json").read_text())["machines"]


def files(site: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every file that is not hidden."""
    found = (path for path in sorted(site.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(site).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns) for path in found}


def test_the_newest_run_gives_the_value_of_a_machine(made: Path) -> None:
    page = (made / "p" / "h2d-pinned.html").read_text()
    assert "50.0 GB/s [49.0, 51.0]" in page and "50 %" in page
    assert "60.0 GB/s [58.8, 61.2]" in page and "40.0 GB/s" not in page
    assert page.index("60.0 GB/s") < page.index("50.0 GB/s"), "the best is first"


def test_two_machines_of_one_name_are_kept_apart(made: Path) -> None:
    names = [one["name"] for one in index(made) if one["name"].startswith("alpha")]
    assert len(names) == len(set(names)) == 2
    assert [len(one["runs"]) for one in index(made) if one["name"].startswith("alpha")] in ([1, 2], [2, 1])


def test_values_of_older_methods_and_of_other_rules_are_not_compared(made: Path) -> None:
    page = (made / "p" / "d2d-peer.html").read_text()
    compared, older = page.split('id="older"')
    assert "alpha" in compared and "&lt;script&gt;" in older and "&lt;script&gt;" not in compared
    assert "ruled" not in page
    assert "measured by the rule nvbandwidth" in (made / "not-shown.html").read_text()


def test_the_page_not_shown_names_every_file_with_its_reason(made: Path) -> None:
    page = (made / "not-shown.html").read_text()
    for text in ("words.jsonl", "schema 9", "a duplicate of a-new.jsonl", "describes no links", "no point has a value"):
        assert text in page
    assert "README.md" not in page and str(made.parent) not in page


def test_no_page_holds_a_script_of_a_run_file(made: Path) -> None:
    pages = [path for path in made.rglob("*.html")]
    assert pages and not [path for path in pages if EVIL in path.read_text()]


def test_every_address_of_the_index_exists(made: Path) -> None:
    runs = [run for one in index(made) for run in one["runs"]]
    names = [run[key] for run in runs for key in ("page", "points", "csv", "summary", "file")]
    assert len(runs) == 7 and not [name for name in names if not (made / name).is_file()]
    assert not [one["page"] for one in index(made) if not (made / one["page"]).is_file()]


def test_a_run_file_can_be_downloaded_as_it_was(made: Path) -> None:
    newest = next(run for one in index(made) for run in one["runs"] if run["started"] == "2026-11-22T10:00:00+00:00")
    assert gzip.decompress((made / newest["file"]).read_bytes()) == machine(40.0, "2026-11-22T10:00:00+00:00")


def test_the_tables_hold_every_point_once(made: Path) -> None:
    rows = list(csv.DictReader(gzip.decompress((made / "points.csv.gz").read_bytes()).decode().splitlines()))
    runs = {row["run"] for row in rows}
    assert len(runs) == 7
    mine = [row for row in rows if row["id"] == ID and row["gbps"].startswith("60")]
    assert len(mine) == 1 and mine[0]["address"].endswith(f"points.html#{anchor(ID)}")
    pyarrow = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.read_table(made / "points.parquet")
    assert table.num_rows == len(rows) and table.column("gbps").type == "double"
    assert table.column("modelled").type == "bool" and table.column("id").to_pylist() == [row["id"] for row in rows]
    assert pyarrow.ParquetFile(made / "points.parquet").num_row_groups == 1, "runs share a group of rows"
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(made / "points.duckdb"), read_only=True) as base:
        found = base.execute("SELECT count(*), max(gbps) FROM points WHERE id = ? AND NOT modelled", [ID]).fetchone()
        explained = base.execute('SELECT count(*) FROM "columns" WHERE meaning IS NOT NULL').fetchone()
    assert found is not None and found[0] == 5 and found[1] == pytest.approx(70.0)
    assert explained == (len(COLUMNS) + len(ADDED_MEANINGS),)


def test_the_schema_page_explains_every_column(made: Path) -> None:
    page = (made / "downloads.html").read_text()
    assert not [name for name, _, _, _ in COLUMNS if f'<th scope="row">{name}</th>' not in page]


def test_the_feed_names_added_replaced_and_removed_runs(small: tuple[Path, Path]) -> None:
    runs, site = small
    (runs / "a.jsonl").write_bytes(machine(51.0))
    (runs / "b.jsonl").unlink()
    build([runs], site)
    feed = xml.parse(site / "changes.xml").getroot()
    assert (feed.tag, feed.get("version")) == ("rss", "2.0")
    items = feed.findall("channel/item")
    titles = [item.findtext("title", "") for item in items]
    assert [title.partition(":")[0] for title in titles] == ["replaced", "removed", "added", "added"]
    assert all((site / item.findtext("link", "")).is_file() for item in items)
    dates = [email.utils.parsedate_to_datetime(item.findtext("pubDate", "")) for item in items]
    assert dates == sorted(dates, reverse=True)
    assert len({item.findtext("guid") for item in items}) == len(items)


def test_nothing_is_written_where_no_run_file_changed(small: tuple[Path, Path]) -> None:
    runs, site = small
    before = files(site)
    assert build([runs], site).folder.written == 0
    assert files(site) == before


def test_a_new_run_leaves_the_addresses_and_pages_of_others_as_they_are(small: tuple[Path, Path]) -> None:
    runs, site = small
    before = files(site)
    (runs / "c.jsonl").write_bytes(machine(55.0, "2026-11-26T10:00:00+00:00"))
    build([runs], site)
    after = files(site)
    old = [name for name in before if name.count("/") == 3]
    assert old and not [name for name in old if after[name] != before[name]]
    assert f'id="{anchor(ID)}"' in after[next(name for name in old if name.endswith("points.html"))][0].decode()
    machine_page = next(text for name, (text, _) in after.items() if name.startswith("m/") and name.count("/") == 2)
    assert b"2026-11-26" in machine_page and b"All runs (3)" in machine_page


def test_a_removed_run_file_takes_its_pages_with_it(small: tuple[Path, Path]) -> None:
    runs, site = small
    (runs / "a.jsonl").unlink()
    assert build([runs], site).folder.removed > 0
    assert "50.0 GB/s" not in (site / "table.html").read_text() and "40.0 GB/s" in (site / "table.html").read_text()
    assert not [name for name in files(site) if "2026-11-25" in name]


def test_a_folder_with_foreign_files_is_refused_and_keeps_them(small: tuple[Path, Path], tmp_path: Path) -> None:
    runs, site = small
    (site / "m" / "mine.txt").write_text("mine")
    before = files(site)
    with pytest.raises(UserError, match=r"m/mine\.txt"):
        build([runs], site)
    assert files(site) == before
    with pytest.raises(UserError, match="this is an input"):
        build([runs], runs)
    with pytest.raises(UserError, match="did not write"):
        build([runs / "a.jsonl"], runs)
    assert sorted(path.name for path in runs.iterdir()) == ["a.jsonl", "b.jsonl"]


def test_an_interrupted_build_is_continued(small: tuple[Path, Path]) -> None:
    runs, site = small
    names = files(site)
    (site / ".linkscope-site.json").unlink()
    (site / ".linkscope-site.journal").write_text("".join(f"{name}\n" for name in names))
    (runs / "b.jsonl").unlink()
    build([runs], site)
    assert "points.csv.gz" in files(site) and not [name for name in files(site) if "2026-11-22" in name]


def test_a_state_that_names_files_outside_deletes_none(small: tuple[Path, Path], tmp_path: Path) -> None:
    runs, site = small
    (tmp_path / "precious").write_text("precious")
    state = json.loads((site / ".linkscope-site.json").read_text())
    state["files"] += ["../precious", str(tmp_path / "precious")]
    (site / ".linkscope-site.json").write_text(json.dumps(state))
    build([runs], site)
    assert (tmp_path / "precious").read_text() == "precious"


def test_many_copies_of_a_run_are_one_run(tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"{number}.jsonl").write_bytes(machine(50.0))
    built = build([tmp_path], tmp_path / "out")
    assert (built.runs, built.machines, len(built.refused)) == (1, 1, 199)


def test_runs_are_made_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 files must not be in memory together."""
    from linkscope.site import build as module

    under_way, most = [0], [0]

    class Later:
        def result(self) -> str:
            under_way[0] -= 1
            return "made"

    class Pool:
        def __init__(self, count: int) -> None: ...
        def __enter__(self) -> "Pool":
            return self

        def __exit__(self, *error: object) -> None: ...
        def submit(self, *words: object) -> Later:
            under_way[0] += 1
            most[0] = max(most[0], under_way[0])
            return Later()

    monkeypatch.setattr(module, "processes", Pool)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: {0, 1})
    jobs = [(str(number),) for number in range(1000)]
    assert [job for job, _ in module._parallel(print, jobs)] == jobs
    assert most[0] <= 4


def test_a_folder_without_run_files_and_a_missing_one_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file there ends in"):
        build([tmp_path], tmp_path / "out")
    with pytest.raises(UserError, match="does not exist"):
        build([tmp_path / "none"], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_check_names_each_problem_with_its_cure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_all(tmp_path / "runs")
    assert command_line.main(["site", "--check", "--json", str(tmp_path / "runs" / "a-new.jsonl")]) == 1
    [found] = json.loads(capsys.readouterr().out)
    assert [one["what"] for one in found["problems"]] == ["personal data: 1 UUID (first in machine.gpus.uuid)"]
    assert "export --anonymous" in found["problems"][0]["cure"]
    assert command_line.main(["site", "--check", str(tmp_path / "runs" / "empty.jsonl")]) == 1
    out = capsys.readouterr().out
    assert "no map" in out and "no point has a value" in out and "1 point failed" in out and "cure: " in out
    assert command_line.main(["site", "--check", str(tmp_path / "runs" / "rule.jsonl")]) == 1
    assert "older measuring methods: d2d (method 1, now 2)" in capsys.readouterr().out
    assert command_line.main(["site", "--check", str(tmp_path / "runs" / "schema.jsonl")]) == 2
    assert "schema 9" in capsys.readouterr().out


def test_an_anonymous_file_passes_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_bytes(machine(50.0))
    clean = tmp_path / "clean.jsonl"
    assert command_line.main(["export", "--anonymous", str(tmp_path / "a.jsonl"), "-o", str(clean)]) == 0
    assert command_line.main(["site", "--check", str(clean)]) == 0
    assert capsys.readouterr().out == f"{clean}: fine\n"


def test_a_cure_can_be_pasted_whatever_the_name_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a $(touch taken).jsonl"
    file.write_bytes(machine(50.0))
    assert command_line.main(["site", "--check", str(file)]) == 1
    [cure] = [line for line in capsys.readouterr().out.splitlines() if "--anonymous" in line]
    assert shlex.split(cure.partition("`")[2].rstrip("`"))[:4] == ["linkscope", "export", "--anonymous", str(file)]


def test_a_file_whose_page_fails_is_named_and_the_others_have_pages(
    small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = make.page

    def fails_once(run: Run) -> str:
        if run.header.started.startswith("2026-11-22"):
            raise KeyError("gpus")
        return real(run)

    monkeypatch.setattr(make, "page", fails_once)
    built = build([small[0]], tmp_path / "other")
    assert built.runs == 1
    assert built.refused[0][0] == "b.jsonl" and "KeyError: 'gpus'" in built.refused[0][1]


def test_each_group_of_rows_in_parquet_has_rows_of_its_own(
    small: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(downloads, "_GROUP", 1)
    build([small[0]], tmp_path / "other")
    table = pyarrow.ParquetFile(tmp_path / "other" / "points.parquet")
    rows = gzip.decompress((tmp_path / "other" / "points.csv.gz").read_bytes()).decode().splitlines()[1:]
    assert table.num_row_groups == 2 and table.metadata.num_rows == len(rows)


def test_many_points_fit_into_the_memory_that_duckdb_gets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction for all tables would need memory for all of them."""
    duckdb = pytest.importorskip("duckdb")
    names = ",".join([name for name, _ in ADDED_MEANINGS] + [name for name, _, _, _ in COLUMNS])
    tables = [tmp_path / f"it's {number}.csv" for number in range(5)]
    for number, table in enumerate(tables):
        table.write_text(f"{names}\n" + f"machine,{number}{',' * names.count(',')}\n".replace(",,", ",", 1) * 100)
    monkeypatch.setattr(downloads, "_TRANSACTION", 2 * tables[0].stat().st_size)
    assert [len(some) for some in downloads._portions(tables)] == [2, 2, 1]
    downloads._write_duckdb(None, tmp_path / "points.duckdb", [], tables)
    with duckdb.connect(str(tmp_path / "points.duckdb"), read_only=True) as base:
        found = base.execute("SELECT run, count(*), count(gbps) FROM points GROUP BY run ORDER BY run").fetchall()
    assert found == [(str(number), 100, 0) for number in range(5)]


def test_a_site_of_anonymous_files_publishes_no_uuid(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "a.jsonl").write_bytes(machine(50.0))
    words = ["export", "--anonymous", str(tmp_path / "runs" / "a.jsonl"), "-o", str(tmp_path / "clean" / "a.jsonl.gz")]
    (tmp_path / "clean").mkdir()
    assert command_line.main(words) == 0
    built = {name: build([tmp_path / name], tmp_path / f"site-{name}").folder.root for name in ("runs", "clean")}
    found = {name: [path.name for path in site.rglob("*") if _holds(path, b"ef120a50")] for name, site in built.items()}
    assert "run.jsonl.gz" in found["runs"] and found["clean"] == []


def _holds(path: Path, word: bytes) -> bool:
    content = path.read_bytes() if path.is_file() else b""
    return word in (gzip.decompress(content) if path.suffix == ".gz" else content).lower()


def test_the_command_says_what_it_wrote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.jsonl").write_bytes(machine(50.0))
    (tmp_path / "b.jsonl").write_text("{}")
    assert command_line.main(["site", str(tmp_path), "-o", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "1 run of 1 machine; files" in out and "1 not shown" in out
    assert f"site: {tmp_path / 'out' / 'index.html'}" in out
