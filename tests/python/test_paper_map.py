"""The map from papers and tools to points names only existing points, and covers every numbered item."""

import dataclasses
import fnmatch
import importlib.util
import itertools
import json
import re
from functools import cache
from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.plan import SOURCES, SUITES, Entry, Source, Suite, make_plan, patterns, presets
from linkscope.plan.enumerate import points_of
from linkscope.plan.suite_rules import of_preset
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import PointId, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

table = cache(benchmark_table)
ROOT = Path(__file__).resolve().parents[2]
ENTRIES = [(source, entry) for source in SOURCES.values() for entry in source.rows]
ANSWERED = [(source, entry) for source, entry in ENTRIES if entry.points]
NAMED = [f"{source.name}: {entry.theirs}" for source, entry in ANSWERED]


# Number of items of each source in the project's list of the papers' statements, and their prefix.
def test_each_pattern_matches_points_of_a_suite() -> None:
    """`run --only PATTERN` selects them in that suite."""
    named = ("full", "sm", "sp-5", "sp-7", "sp-8", "sp-9", "sp-10", "sp-11", "sp-13", *SOURCES)
    suites = [suite for name, suite in SUITES.items() if name in named]
    ids = {str(point) for suite in suites for point in points_of(suite, machine("ac922"), table())}
    missing = {
        (source.name, glob)
        for source, entry in ENTRIES if entry.points
        for glob in patterns(source, entry, table())
        if not any(fnmatch.fnmatchcase(id, glob) for id in ids)
    }  # fmt: skip
    assert not missing


ITEMS = {"comm-scope": ("CS-", 40), "microbench": ("MB-", 7), "spafford": ("SP-", 14), "jorda": ("JO-", 17),
         "klenk": ("KL-", 12), "nvbandwidth": ("", 35)}  # fmt: skip


@cache
def machine(name: str):
    return choose(name, 1).facts


@cache
def points_of_suite_full() -> dict[str, PointId]:
    rules = Suite("rules of full", "", SUITES["full"].rules)
    return {str(point): point for point in points_of(rules, machine("ac922"), table())}


def points(source: Source, entry: Entry, name: str) -> list[PointId]:
    rules = tuple(presets(source, entry))
    return points_of(Suite("of one entry", "", rules), machine(name), table())


@pytest.mark.parametrize(("source", "entry"), ANSWERED, ids=NAMED)
@pytest.mark.parametrize("name", ["h200x4", "ac922"])
def test_the_points_of_the_map_exist(source: Source, entry: Entry, name: str) -> None:
    """Each preset has points at each size of its source, and a run accepts each of them by id."""
    ids: dict[str, None] = {}
    for rule in presets(source, entry):
        found = points_of(Suite("of one preset", "", (rule,)), machine(name), table())
        ids |= {str(point): None for point in found}
        assert found, rule
        managed = "managed" in (found[0].src_memory, found[0].dst_memory)
        sizes = {size for size in source.sizes if size <= 1 << 28 or not managed}
        assert {point.bytes for point in found} in ({0}, sizes)
    made = make_plan(machine(name), table(), only=list(ids)[:: max(1, len(ids) // 20)])
    assert len(made.points) >= min(20, len(ids))


@pytest.mark.parametrize(("source", "entry"), ANSWERED, ids=NAMED)
def test_patterns_match_the_points_of_their_entry_only(source: Source, entry: Entry) -> None:
    """A glob cannot name two different places, so patterns for pairs also match a GPU with itself. A trailing `*` also
    matches parameters that ids show only at other values."""
    found = {str(point): point for point in points(source, entry, "ac922")}
    globs = patterns(source, entry, table())
    assert globs and all(any(fnmatch.fnmatchcase(id, glob) for id in found) for glob in globs)
    matches = re.compile("|".join(map(fnmatch.translate, globs))).match
    assert all(map(matches, found))
    for id, point in (points_of_suite_full() | found).items():
        if matches(id) and all(any(f"{name}=" in glob for glob in globs) for name, _ in point.params):
            alike = dataclasses.replace(point, bytes=point.bytes and source.sizes[0])
            assert str(alike) in found or point.src == point.dst, point


@pytest.mark.parametrize("name", ITEMS)
def test_every_item_has_a_row_and_no_other_item_has_one(name: str) -> None:
    prefix, count = ITEMS[name]
    found = {item for entry in SOURCES[name].rows for item in entry.items}
    assert found == {f"{prefix}{number}" for number in range(1, count + 1)}


def test_each_row_has_one_answer() -> None:
    for source, entry in ENTRIES:
        assert entry.theirs and entry.items and not (entry.points and entry.instead), (source.name, entry)


def test_named_replacements_exist() -> None:
    """The named files and commands exist."""
    named = " ".join(entry.instead for _, entry in ENTRIES)
    files = re.findall(r"(?:machines|docs|tests)/[\w./-]*\w", named)
    assert len(files) > 10 and not [file for file in files if not (ROOT / file).exists()]
    for verb in re.findall(r"`linkscope (\w+)", named):
        assert (ROOT / "src" / "linkscope" / "cli" / f"{verb}.py").exists(), verb


# Comm|Scope


def test_all_29_ticked_cells_of_comm_scopes_table_have_a_row() -> None:
    """Ten items, each with its number of ticked directions."""
    cells = SOURCES["comm-scope"].entries[:29]
    counts = (3, 3, 3, 3, 2, 2, 2, 2, 4, 5)
    ticked = {f"CS-{number}": count for number, count in enumerate(counts, 1)}
    assert sum(ticked.values()) == 29 == len(cells)
    for item, count in ticked.items():
        assert sum(entry.items[0] == item for entry in cells) == count
    assert len({entry.theirs for entry in cells}) == 29


def test_each_cell_of_comm_scopes_table_has_points_of_its_own() -> None:
    """No cell is an alias of another, and zero-copy has all sizes, managed memory those up to 256 MiB."""
    source = SOURCES["comm-scope"]
    cells = [set(points(source, entry, "ac922")) for entry in source.entries[:29]]
    for one, other in itertools.combinations(cells, 2):
        assert not one & other
    for cell in cells:
        managed = any("managed" in point.src_memory for point in cell)
        assert {point.bytes for point in cell} == {1 << exponent for exponent in range(8, 29 if managed else 33)}


def test_memory_without_binding_has_one_point_for_each_gpu() -> None:
    (unbound,) = [
        entry for entry in SOURCES["comm-scope"].entries if entry.theirs == "cudaMemcpyAsync, pinned: host to GPU"
    ]
    found = {point for point in points(SOURCES["comm-scope"], unbound, "ac922") if point.bytes == 1 << 20}
    assert {(point.src, point.dst) for point in found} == {("numa:0", f"gpu:{n}") for n in range(4)}


def test_suite_comm_scope_has_exactly_the_points_of_the_map() -> None:
    source = SOURCES["comm-scope"]
    wanted = {point for entry in source.entries if entry.points for point in points(source, entry, "ac922")}
    found = set(points_of(SUITES["comm-scope"], machine("ac922"), table()))
    assert found == wanted
    assert {point.bytes for point in found} == {1 << exponent for exponent in range(8, 33)}
    for point in found:
        assert point.param("mode", "single") == "single" and point.param("after", "wait") == "wait", point
        assert point.benchmark not in ("read", "write") or point.src != point.dst, point
        assert "pinned" not in (point.src_memory, point.dst_memory) or point.benchmark == "h2h", point


def test_zero_copy_has_the_papers_blocks_of_256_threads() -> None:
    found = points_of(SUITES["comm-scope"], machine("h200x1"), table())
    accesses = [point for point in found if point.benchmark in ("read", "write")]
    assert accesses and {point.param("threads") for point in accesses} == {"256"}
    assert {"registered"} <= {memory for point in accesses for memory in (point.src_memory, point.dst_memory)}


# nvbandwidth


def test_the_tests_of_nvbandwidth_are_its_suite() -> None:
    source = SOURCES["nvbandwidth"]
    wanted = {point for entry in source.entries for point in points(source, entry, "h200x4")}
    suite = SUITES["nvbandwidth"]
    both = Suite("both", "", (*suite.rules, *suite.theirs))
    found = set(points_of(both, machine("h200x4"), table()))
    # The suite has each operation in all combinations, the map only some of them.
    assert wanted <= found
    assert {(point.benchmark, point.engine) for point in found} == {(point.benchmark, point.engine) for point in wanted}


def test_the_tests_of_nvbandwidth_are_named_like_its_tables() -> None:
    text = (ROOT / "docs" / "notes" / "nvbandwidth.md").read_text()
    tables = {match[1] for match in re.finditer(r"^\| (\w+) \|", text, re.MULTILINE)} - {"table"}
    names = {entry.theirs for entry in SOURCES["nvbandwidth"].entries}
    assert {re.sub(r"_(read[12]|write[12]|total)$", "", table) for table in tables} == names and len(names) == 35


# The registry


def items_of(text: str) -> set[str]:
    """The items of a text; parses 'CS-1 to CS-4' and 'CS-7, CS-8'."""
    found = set()
    for prefix, first, last in re.findall(r"\b(CS|SP|MB|JO|KL)-(\d+)(?: to \w\w-(\d+))?", text):
        found |= {f"{prefix}-{number}" for number in range(int(first), int(last or first) + 1)}
    return found


def test_every_item_named_by_an_operation_has_that_operation_in_its_row() -> None:
    """A new operation that names (CS-n) needs a row in linkscope/plan/papers."""
    answered: dict[str, set[str]] = {}
    for source, entry in ANSWERED:
        for rule in presets(source, entry):
            answered.setdefault(f"{rule.benchmarks[0]} by {rule.engines[0]}", set()).update(entry.items)
    # Operations between hosts have no points on one machine: a page answers.
    by_page = {item for _, entry in ENTRIES if entry.instead for item in entry.items}
    missing = [
        f"{name}: {item}"
        for row in table()
        for name in [f"{row.name} by {row.engine}"]
        for answer in [by_page if row.relation == "other_host" else answered.get(name, set())]
        for item in sorted(items_of(row.source) - answer)
    ]
    assert not missing, "add them to src/linkscope/plan/papers, and run tools/papers_page.py"


def test_a_preset_is_parsed_as_written() -> None:
    rule = of_preset("read/sm/gpu.device->other.device?threads=256,512&blocks=*", (8, 16))
    assert (rule.benchmarks, rule.engines, rule.sizes) == (("read",), ("sm",), (8, 16))
    assert rule.ends == (("gpu", "device"), ("other", "device")) and rule.apart
    assert dict(rule.params) == {"threads": ("256", "512"), "blocks": ("*",)}
    found = points_of(Suite("s", "", (rule,)), machine("h200x2"), table())
    assert {(point.src, point.dst) for point in found} == {("gpu:0", "gpu:1"), ("gpu:1", "gpu:0")}
    with pytest.raises(ValueError):
        of_preset("read/gpu.device->gpu.device", (8,))


@pytest.mark.parametrize(
    "gone", ["h2d/ce/numa.vmm->gpu.device", "h2d/ce/gpu.pinned->gpu.device", "copy/ce/numa.pinned->gpu.device",
             "h2d/ce/numa.pinned->gpu.device?nosuch=1", "h2d/ce/numa.pinned->gpu.device?mode=nosuch"],
)  # fmt: skip
def test_a_missing_operation_has_no_points(gone: str) -> None:
    """Without this, the test of existing points could never fail."""
    rule = of_preset(gone, (8,))
    assert points_of(Suite("s", "", (rule,)), machine("h200x2"), table()) == []
    source = SOURCES["comm-scope"]
    assert patterns(source, Entry(("CS-1",), "gone", (gone,)), table()) == []


# The page, and the command


def test_the_page_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("papers_page", ROOT / "tools" / "papers_page.py")
    assert spec is not None and spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    assert tool.PAGE == ROOT / "docs" / "notes" / "papers.md"
    assert tool.page(table()) == tool.PAGE.read_text(), "run .venv/bin/python tools/papers_page.py"


def test_the_page_names_the_points_of_every_row_or_says_not_yet() -> None:
    page = (ROOT / "docs" / "notes" / "papers.md").read_text()
    rows = re.findall(r"^\| (?!item)(.*?) \| (.*) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == len(ENTRIES)
    for (items, _, answer), (_, entry) in zip(rows, ENTRIES, strict=True):
        assert items == " ".join(entry.items)
        assert answer.startswith("not yet") == (not entry.points and not entry.instead)


@pytest.mark.parametrize("name", SOURCES)
def test_the_items_of_a_source_are_listed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--source", name]) == 0
    output = capsys.readouterr().out
    assert output.startswith(SOURCES[name].title[:20])
    assert main(["list", "--source", name, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(SOURCES[name].rows)
    for row in rows:
        assert row["name"] and row["summary"] and row["source"] == name
        assert all(glob in output for glob in row["points"])
        assert bool(row["sizes"]) == bool(row["points"] and SOURCES[name].sizes)
    assert (output.count("not yet") > 0) == any(not row["points"] and not row["instead"] for row in rows)


def test_the_sizes_and_parameters_of_the_paper_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--source", "comm-scope"]) == 0
    output = capsys.readouterr().out
    assert "sizes: 256 B to 4 GiB by powers of two" in output
    assert "h2d/ce/numa:*.registered->gpu:*.device/*?after=wait&bidirectional=true&mode=single" in output
    assert "threads=256" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "comscope"], "--source comscope: unknown source; available: comm-scope, nvbandwidth"),
        (["--source", ""], "--source has an empty value"),
        (["suites", "--source", "klenk"], "leave out suites"),
    ],
)
def test_wrong_arguments_of_list_get_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_listed_pattern_selects_points_in_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--source", "comm-scope", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    row = next(row for row in rows if row["name"] == "CS-10" and "bidirectional" in row["summary"])
    path = tmp_path / "run.jsonl"
    only = list(itertools.chain(*(("--only", glob) for glob in row["points"])))
    assert main(["run", "--machine", "h200x1", "--suite", "comm-scope", *only, "-o", str(path), "--json"]) == 0
    run = read_run(path)
    assert [point.bytes for point in run.points if point.bidirectional] and run.header.plan["rule"] == "linkscope"
    assert {point.bytes for point in run.points} == set(row["sizes"])
    assert {(point.benchmark, point.status) for point in run.points} <= {
        ("prefetch", status) for status in ("ok", "missed_precision", "unsupported")
    }
