"""`linkscope run` by word: benchmarks, places, memory and sizes; ids without defaults; any size."""

import fcntl
import json
from pathlib import Path

import pytest

from fake_driver import needs_worker
from linkscope.cli.main import main
from linkscope.errors import NOT_HERE, UserError
from linkscope.plan import SUITES, Selection, make_plan
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import PointId, Run, RunWriter, read_run
from linkscope.runfile.methods import CHANGES, current, version
from linkscope.units import parse_bytes, parse_percent, parse_sizes

pytestmark = needs_worker
KIB, MIB = 1 << 10, 1 << 20


def points(*words: str, machine: str = "h200x2", only: tuple[str, ...] = (), **fields: object) -> list[PointId]:
    facts = choose(machine, 1).facts
    selection = Selection(tuple(words), **fields)  # type: ignore[arg-type]
    plan = make_plan(facts, benchmark_table(), only=only, selection=selection)
    return [PointId.parse(id) for id in plan.points]


def test_words_select_operation_path_and_memory() -> None:
    found = points("h2d", src="numa:0", dst="gpu:1", memory=("pinned",))
    assert found
    assert {(p.benchmark, p.src, p.dst, p.src_memory) for p in found} == {("h2d", "numa:0", "gpu:1", "pinned")}


def test_a_benchmark_of_the_other_direction_is_selected_on_the_same_path() -> None:
    found = points("h2d", "d2h", src="numa:0", dst="gpu:1", memory=("pinned",))
    assert {(p.benchmark, p.src, p.dst) for p in found} == {("h2d", "numa:0", "gpu:1"), ("d2h", "gpu:1", "numa:0")}


def test_sizes_replace_those_of_the_suite() -> None:
    found = points("h2d", dst="gpu:0", memory=("pinned",), sizes=(4 * KIB, 777))
    assert {p.bytes for p in found} == {4 * KIB, 777}
    assert len({str(p) for p in found}) == len(found)


def test_a_benchmark_outside_the_suite_comes_from_suite_full() -> None:
    standard = make_plan(choose("h200x2", 1).facts, benchmark_table()).points
    assert "atomic" not in {PointId.parse(id).benchmark for id in standard}
    assert {p.benchmark for p in points("atomic")} == {"atomic"}


def test_a_benchmark_of_one_path_of_a_class_is_measured_on_the_path_that_is_named() -> None:
    near, far = (points("pieces", "staged", src="numa:0", dst=dst) for dst in ("gpu:0", "gpu:1"))
    assert {p.dst for p in far} == {"gpu:1"} and {p.benchmark for p in far} == {"pieces", "staged"}
    assert [str(p).replace("gpu:1", "gpu:0") for p in far] == [str(p) for p in near]


def test_words_and_only_patterns_both_restrict_the_points() -> None:
    assert {p.engine for p in points("h2d", only=("*/ce/*16777216*",))} == {"ce"}
    with pytest.raises(UserError, match="no such point") as refused:
        points("d2h", only=("h2d/*",), src="numa:0")
    assert refused.value.exit_code == NOT_HERE


@pytest.mark.parametrize("ends", ["numa:0.pinned->gpu:0.device", "*pinned->gpu:0.device"])
def test_ids_may_leave_out_parameters_at_their_default(ends: str) -> None:
    facts = choose("h200x2", 1).facts
    (id,) = make_plan(facts, benchmark_table(), only=[f"h2d/ce/{ends}/1048576"]).points
    assert id == "h2d/ce/numa:0.pinned->gpu:0.device/1048576?after=kernel&bidirectional=false&mode=batched"


def test_a_default_that_ids_omit_may_be_written() -> None:
    facts = choose("h200x2", 1).facts
    named = "h2d/ce/numa:0.pinned->gpu:0.device/8?cache=cold&mode=single"
    (id,) = make_plan(facts, benchmark_table(), only=[named]).points
    assert "cache" not in id and "mode=single" in id


@pytest.mark.parametrize("size", [1, 7, 777, 1000, 1_000_001])
def test_any_size_is_measured_and_padding_is_stated(size: int, tmp_path: Path) -> None:
    run_file = tmp_path / "run.jsonl"
    words = ["run", "h2d", "--machine", "h200x1", "--memory", "pinned", "--sizes", str(size), "-q", "-o", str(run_file)]
    assert main(words) == 0
    for point in read_run(run_file).points:
        moved = -(-size // 8) * 8
        assert point.bytes == size and point.median_s and f"/{size}?" in point.id
        assert (
            point.flows[0].bytes == moved and point.footprint_bytes is not None and point.footprint_bytes % moved == 0
        )
        assert point.guards.get("padding_bytes", 0) == moved - size


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("8", [8]), ("4KiB:32KiB", [4096, 8192, 16384, 32768]), ("3:13", [3, 6, 12]), ("1kB,1KiB,1kB", [1000, 1024]),
     ("0", None), ("8:4", None), ("x", None), ("", None), (":8", None)],
)  # fmt: skip
def test_sizes_are_lists_and_ranges_that_double(text: str, sizes: list[int] | None) -> None:
    assert parse_sizes(text) == sizes


@pytest.mark.parametrize(("text", "size"), [("64MB", 64_000_000), ("1 GB", 10**9), ("2kB", 2000), ("64MiB", 64 * MIB)])
def test_decimal_and_binary_units_differ(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_a_precision_without_percent_is_ambiguous_and_refused() -> None:
    assert parse_percent("0.5%") == pytest.approx(0.005) and parse_percent("0.5") is None


def test_run_to_standard_output_writes_only_the_run_file_there(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["run", "h2d", "--machine", "h200x1", "--memory", "pinned", "--sizes", "1MiB", "-o", "-"]) == 0
    captured = capfdbinary.readouterr()
    records = [json.loads(line)["record"] for line in captured.out.splitlines()]
    assert records[0] == "run" and records[-1] == "end" and b"GB/s" in captured.err


def test_quiet_prints_the_file_and_verbose_a_line_for_each_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "h2d", "--machine", "h200x1", "--memory", "pinned", "--sizes", "1MiB"]
    assert main([*words, "-q", "-o", str(tmp_path / "q.jsonl")]) == 0
    quiet = capsys.readouterr()
    assert quiet.out.splitlines() == [f"run file: {tmp_path / 'q.jsonl'} ({_size(tmp_path / 'q.jsonl')})"]
    assert quiet.err == ""
    assert main([*words, "-v", "-o", str(tmp_path / "v.jsonl")]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "h2d/ce/" in line]
    assert len(lines) == len(read_run(tmp_path / "v.jsonl").points)


def _size(path: Path) -> str:
    from linkscope.units import format_bytes

    return format_bytes(path.stat().st_size)


@pytest.mark.parametrize("verb", ["run", "topo"])
def test_help_of_a_verb_is_its_own_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for words in (["help", verb], [verb, "--help"]):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] and "usage: linkscope" in texts[0]


def test_the_overview_names_topo(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0 and "topo" in capsys.readouterr().out


def test_two_runs_cannot_write_to_one_file(tmp_path: Path) -> None:
    header = read_run(Path(__file__).parents[2] / "results" / "h200x1-quick.jsonl.gz").header
    path = tmp_path / "run.jsonl"
    with RunWriter.create(path, header):
        written = path.read_bytes()
        with pytest.raises(UserError, match="another run is writing"):
            RunWriter.create(path, header, force=True)
        assert path.read_bytes() == written
    RunWriter.create(path, header, force=True).close()
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        run: Run = read_run(path)
        with pytest.raises(UserError, match="another run is writing"):
            RunWriter.go_on(run, None)  # type: ignore[arg-type]


def test_a_run_without_any_value_does_not_exit_with_0(tmp_path: Path) -> None:
    words = ["run", "--machine", "dl160", "--only", "latency/sm/*", "-q", "-o", str(tmp_path / "run.jsonl")]
    assert main(words) == NOT_HERE
    assert all(point.median_s is None for point in read_run(tmp_path / "run.jsonl").points)


def test_force_replaces_a_measured_run_and_nothing_else_does(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "results" / "h200x1-quick.jsonl.gz"
    kept = tmp_path / "kept.csv"
    kept.write_bytes(source.read_bytes())
    assert main(["export", str(source), "-o", str(kept)]) == 2 and kept.read_bytes() == source.read_bytes()
    assert main(["export", str(source), "-o", str(kept), "--force"]) == 0
    assert kept.read_text().startswith("id,status")


def test_method_versions_are_stored_and_inferred_from_the_date_of_older_runs() -> None:
    results = Path(__file__).parents[2] / "results"
    before, after = (read_run(results / f"h200x4-standard-{name}.jsonl.gz", rounds=False).header for name in "ai")
    assert version(before, "h2h") == 1 and version(after, "h2h") == 2
    assert version(before, "h2d") == version(after, "h2d") == 1
    changed = {name for change in CHANGES for name in change.benchmarks}
    assert {name for name, number in current(row.name for row in benchmark_table()).items() if number > 1} == changed
    after.tool["methods"] = {"h2h": 7}
    assert version(after, "h2h") == 7 and version(after, "h2d") == 1


def test_points_of_different_methods_are_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    results = Path(__file__).parents[2] / "results"
    files = [str(results / f"h200x4-standard-{name}.jsonl.gz") for name in "ai"]
    main(["compare", *files, "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert answer["not_compared"]["other_method"]["h2h"] > 30
    assert "h2h" not in {path["benchmark"] for path in answer["paths"]}


def test_a_simulated_run_stores_versions_but_no_commit(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["run", "h2d", "--machine", "h200x1", "--sizes", "8", "-q", "-o", str(path)]) == 0
    tool = read_run(path).header.tool
    assert tool["methods"]["h2d"] == 1 and "commit" not in tool and list(tool["methods"]) == ["h2d"]
    assert set(SUITES) >= {"quick", "standard", "full"}
