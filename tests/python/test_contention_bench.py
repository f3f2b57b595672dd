"""tools/contention_bench.py on models: every section that needs no hardware, and what it says about the others."""

import gzip
import re
import time
from pathlib import Path
from types import SimpleNamespace

import all_gather_bench as gathers
import contention_bench as tool
import pytest
from bench_sections import STOPPED, OutOfTime, all_lines

from campaign import only_long
from fake_driver import needs_worker
from linkscope.runfile import read_run

pytestmark = [needs_worker]
QUICK = ("--seconds", "0.05", "--rounds", "1")


def page(folder: Path, *words: str, machine: str = "h200x4", status: int = 0) -> str:
    assert tool.main([str(folder), "--machine", machine, *QUICK, *words]) == status
    return (folder / "contention.md").read_text()


def rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:2] == "| "]


def test_capacity_grows_with_the_number_of_gpus_beside_a_models_prediction(tmp_path: Path) -> None:
    text = page(tmp_path, "--sections", "capacity", "--against", "h200x2", machine="h200x2")
    assert text.startswith("# Contention on MODELLED")
    found = {(row[0], row[1]): row for row in rows(text)[1:]}
    assert list(found) == [(f"{way} GPUs", str(count)) for way in ("to", "from") for count in (1, 2)]
    assert float(found["to GPUs", "2"][2]) > 1.5 * float(found["to GPUs", "1"][2])
    assert all(abs(float(row[4]) / float(row[2]) - 1) < 0.05 for row in found.values())
    assert (tmp_path / "capacity-to-2.json").exists()


def few_points(monkeypatch: pytest.MonkeyPatch, **globs: tuple[str, ...]) -> list[str]:
    """Runs of suites measure only their points with these globs, in one round. Returns all commands as they start."""
    command, started = tool.Bench.command, []

    def shorter(bench: tool.Bench, words: list[str]) -> object:
        started.append(" ".join(words))
        if "--suite" in words:
            of = globs[words[words.index("--suite") + 1].replace("-", "_")]
            words = [*words, "--rounds", "1", *(word for glob in of for word in ("--only", glob))]
        return command(bench, words)

    monkeypatch.setattr(tool.Bench, "command", shorter)
    return started


def test_the_matrix_runs_twice_and_says_what_changed_and_the_folder_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = few_points(
        monkeypatch, contention=("contended_h2d*=none*", "contended_h2d*=d2h"), loaded_latency=("loaded_h2d*both*",)
    )
    text = page(tmp_path, "--sections", "matrix,loaded", machine="h200x1")
    assert {"h2d"} <= {row[0] for row in rows(text)} and "Both runs:" in text and "## Latency under load" in text
    assert len(started) == 4 and (tmp_path / "contention-b.jsonl").exists()
    assert page(tmp_path, "--sections", "matrix,loaded", machine="h200x1") == text
    assert [words.split()[3] for words in started[4:]] == ["compare"]
    with pytest.raises(SystemExit):
        page(tmp_path, "--sections", "matrix", machine="h200x2")


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = few_points(monkeypatch, sharing=("shared_h2d*clients=1*", "shared_h2d*clients=2&way=threads"))
    whole = page(tmp_path, "--sections", "sharing", machine="h200x1")
    path = tmp_path / "sharing.jsonl"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"record":"end"' not in line))
    assert page(tmp_path, "--sections", "sharing", machine="h200x1") == whole
    assert [f"--resume {path}" in words for words in started] == [False, True]


def test_points_without_a_value_are_named(tmp_path: Path) -> None:
    """Runs of results/ stand for answers of the folder: the budget of one left out points, and points of one failed."""
    results = Path(tool.__file__).parents[1] / "results"
    for name, run in (("sharing", "h100x1-packed"), ("sp-5", "h200x2-shared")):
        (tmp_path / f"{name}.jsonl").write_bytes(gzip.decompress((results / f"{run}.jsonl.gz").read_bytes()))
    text = page(tmp_path, "--sections", "sharing,computation", "--limit", "0", machine="h200x1", status=STOPPED)
    assert "- sharing: 3 points, for lack of time" in text
    failed = [point.id for point in read_run(tmp_path / "sp-5.jsonl").points if point.status == "failed"]
    assert len(failed) == 2 and all(f"- sp-5: {id}: " in text for id in failed)


def test_penalties_of_computations_have_both_formulas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few_points(monkeypatch, sp_5=("compute_triad*",), sp_6=("compute_triad*",))
    text = page(tmp_path, "--sections", "computation,libraries", machine="sl390")
    (row,) = (row for row in rows(text) if row[0] == "triad")
    pinned, pageable, alone, busy = (float(row[at].split()[0]) for at in (2, 3, 5, 6))
    over_good, over_bad = (float(number) / 100 for number in re.findall(r"[\d.]+", row[4]))
    assert [over_good, over_bad] == pytest.approx([1 - pinned / pageable, pageable / pinned - 1], abs=6e-3)
    assert alone == pytest.approx(pinned, rel=0.02) and busy > alone and row[7].endswith("%)")
    assert "- libraries: a model has no PyTorch" in text


@only_long
def test_tasks_of_all_suites_have_their_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = ("tasks*message=64KiB*messages=each*", "tasks*at=transfers*")
    few_points(
        monkeypatch, sp_8=("contended_h2d*=none*", "contended_h2d*=message"), sp_9=tasks, sp_11=tasks,
        sp_10=("*tasks=2", "*=false"),
    )  # fmt: skip
    text = page(tmp_path, "--sections", "tasks", machine="h200x1")
    parts = re.split(r"^### Suite `", text, flags=re.MULTILINE)[1:]
    assert [part.partition("`")[0] for part in parts] == ["sp-10", "sp-8", "sp-9", "sp-11"]
    assert all(len(rows(part)) >= 2 for part in parts)


def test_a_section_gets_the_part_of_the_time_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)  # no section uses any time
    given: list[float] = []

    def section(bench: SimpleNamespace) -> list[str]:
        given.append(bench.ends - time.monotonic())
        return []

    bench = SimpleNamespace(
        target=SimpleNamespace(modelled=True, machine={"title": "a model"}, facts=None), ends=0.0, missing=[]
    )
    titles = {name: (name, section) for name in ("short", "long", "usual")}
    list(all_lines("Parts", titles, bench, list(titles), 100.0, {"short": 2.0, "long": 7.0}))
    assert given == pytest.approx([20.0, 87.5, 100.0])  # of what is left


@only_long
def test_presets_run_twice_and_work_across_gpus_has_a_cell_for_each_pair(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool, "PRESETS", ("ring", "same-path:N"))
    monkeypatch.setattr(tool, "_WORK", {kind: tool._WORK[kind] for kind in ("h2d", "gemm")})
    text = page(tmp_path, "--sections", "presets,across,nccl,nvbandwidth")
    table = {row[0]: row for row in rows(text)}
    assert float(table["ring"][2]) == pytest.approx(float(table["ring"][3]), rel=0.05)
    assert {"same-path:2", "same-path:4"} <= set(table)
    assert (tmp_path / "preset-ring-a.json").exists() and (tmp_path / "preset-ring-b.json").exists()
    assert [float(cell) for cell in table["h2d"][1:]] == pytest.approx([1.0] * 2, abs=0.05)  # links of their own
    assert "- nccl: a model has no NCCL" in text and "- nvbandwidth: give its binary" in text


def test_an_lu_is_ranked_by_placement_for_each_number_of_gpus(tmp_path: Path) -> None:
    text = page(tmp_path, "--sections", "lu")
    assert "8192 rows in the memory of gpu:0: " in text
    rates = {point.benchmark for point in read_run(tmp_path / "lu.jsonl").points}
    assert rates >= {"h2d", "d2h", "d2d", "host_to_all", "one_to_all"}  # what predictions are made from
    assert re.search(r"^(\d+) of \1 factorizations have a residual within", text, re.MULTILINE)
    found = rows(text)[1:]
    assert {row[1] for row in found} == {"0", "01", "0123"}
    assert {(row[0], row[1]) for row in found} >= {("16384", "0"), ("16384", "01"), ("16384", "0123")}
    first = next(row for row in found if row[1] == "0123")
    assert first[4] == "peer" and first[10] == "0 %" and first[12] == "1"
    assert all("to" in row[8] and row[11] != "-" for row in found)  # an interval and a prediction of each
    assert {row[6] for row in found if row[1] == "0123"} == {"urgent", "usual"}
    text = page(tmp_path / "one", "--sections", "lu", machine="h200x1")
    assert {row[1] for row in rows(text)[1:]} == {"0"} and "## Not measured" not in text
    text = page(tmp_path / "two", "--sections", "lu", machine="h200x2")  # where no copy has one source and several ends
    assert {row[1] for row in rows(text)[1:]} == {"0", "01"} and "## Not measured" not in text


def test_a_section_without_time_is_named_and_one_gpu_has_no_pairs(tmp_path: Path) -> None:
    assert "- capacity: its part of the 0 s ended" in page(
        tmp_path, "--sections", "capacity", "--limit", "0", status=STOPPED
    )
    text = page(tmp_path, "--sections", "matrix,computation,lu", "--limit", "0", status=STOPPED)
    for name in ("contention-a", "contention-b", "sp-5", "sp-6", "lu"):
        assert f"- {name}: its part of the time ended" in text
    text = page(tmp_path / "one", "--sections", "across", machine="h200x1")
    assert "- across: it needs two GPUs" in text
    with pytest.raises(SystemExit):
        tool.main([str(tmp_path), "--sections", "capacity,weather"])


def test_a_matrix_across_gpus_that_runs_out_of_time_keeps_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(2 * len(tool._WORK) + 1))

    def flow(bench: tool.Bench, *words: str, rounds: int) -> dict:
        if next(left, None) is None:
            raise OutOfTime
        return {"flows": [{"seconds": 1.0}, {"seconds": 1.0}]}

    monkeypatch.setattr(tool.Bench, "flow", flow)
    text = page(tmp_path, "--sections", "across", status=STOPPED)
    assert rows(text)[1][:3] == ["h2d", "1.00", "-"] and "- across: its part of the" in text


def test_the_table_of_an_all_gather_counts_what_a_gpu_receives() -> None:
    found = rows(gathers.table([100.0, 800.0, 50.0, 400.0], count=4, part_bytes=100 << 20))
    assert found[1][1:] == ["31.5", "15.7", "2.000"] and found[2][1:] == ["53.7", "26.8", "2.000"]


@pytest.mark.parametrize("count", ["1", "0"])
def test_an_all_gather_of_one_gpu_is_refused(count: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        gathers.main(["--gpus", count])
    assert "needs two GPUs" in capsys.readouterr().err


def test_ranks_that_fail_end_the_others(tmp_path: Path) -> None:
    assert gathers.start_ranks(2, ["--gpus", "0"], lambda rank: rank.wait(300)) == 2
