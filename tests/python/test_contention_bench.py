"""tools/contention_bench.py on models: every section that needs no hardware, and what it says about the others."""

from pathlib import Path

import all_gather_bench as gathers
import contention_bench as tool
import pytest

from campaign import only_long
from fake_driver import needs_worker

pytestmark = [needs_worker]
QUICK = ("--seconds", "0.05", "--rounds", "1")


def page(folder: Path, *words: str, machine: str = "h200x4") -> str:
    assert tool.main([str(folder), "--machine", machine, *QUICK, *words]) == 0
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
    found = rows(page(tmp_path, "--sections", "lu"))[1:]
    assert {row[1] for row in found} == {"0", "01", "0123"}
    assert {(row[0], row[1]) for row in found} >= {("16384", "0"), ("16384", "01"), ("16384", "0123")}
    first = next(row for row in found if row[1] == "0123")
    assert first[4] == "peer" and first[8] == "0 %" and first[10] == "1"


def test_a_section_without_time_is_named_and_one_gpu_has_no_pairs(tmp_path: Path) -> None:
    assert "- capacity: its part of the 0 s ended" in page(tmp_path, "--sections", "capacity", "--budget", "0")
    text = page(tmp_path, "--sections", "across", machine="h200x1")
    assert "- across: it needs two GPUs" in text
    with pytest.raises(SystemExit):
        tool.main([str(tmp_path), "--sections", "capacity,weather"])


def test_a_matrix_across_gpus_that_runs_out_of_time_keeps_its_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(range(2 * len(tool._WORK) + 1))

    def flow(bench: tool.Bench, *words: str, rounds: int) -> dict:
        if next(left, None) is None:
            raise tool.OutOfTime
        return {"flows": [{"seconds": 1.0}, {"seconds": 1.0}]}

    monkeypatch.setattr(tool.Bench, "flow", flow)
    text = page(tmp_path, "--sections", "across")
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
    assert gathers.start_ranks(2, ["--gpus", "0"], lambda rank: rank.wait(60)) == 2
