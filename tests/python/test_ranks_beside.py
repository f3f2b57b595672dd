"""tools/ranks_beside.py: linkscope's messages beside a bare loop of MPI calls."""

import gzip
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import ranks_beside as tool

from fake_driver import ROOT
from linkscope.errors import UserError

MPIEXEC = Path(sys.executable).with_name("mpiexec")
needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists(), reason=f"no mpiexec beside {sys.executable}; `pip install mpich` brings one"
)


def turn(ours: dict[int, float], bare: dict[int, float]) -> tool.Turn:
    return {tool.LINKSCOPE: ours, tool.BARE: bare, tool.SINGLE: bare}


@pytest.mark.parametrize(
    ("ours_ns", "bare_ns", "near"),
    [(530, 481, True), (532, 481, False), (2100, 2000, True), (2110, 2000, False), (1890, 2000, False)],
)
def test_times_are_near_within_5_percent_or_50_ns(ours_ns: int, bare_ns: int, near: bool) -> None:
    assert tool.is_near(ours_ns * 1e-9, bare_ns * 1e-9) is near


def test_the_median_of_the_turns_counts_and_a_size_that_differs_or_has_no_time_fails() -> None:
    near, far = {0: 500e-9, 8: 560e-9}, {0: 900e-9, 8: 560e-9}
    assert tool.holds([turn(near, near), turn(far, near), turn(near, near)])
    assert not tool.holds([turn(far, near), turn(far, near), turn(near, near)])
    assert not tool.holds([turn({8: 560e-9}, near)])


def test_a_row_has_the_median_and_the_range_of_the_turns_and_says_what_has_no_time() -> None:
    found = [turn({0: at * 1e-9}, {0: 500e-9, 8: 600e-9}) for at in (510, 490, 520)]
    _, _, empty, eight = tool.table(found)
    assert "510 ns (490 ns to 520 ns)" in empty and empty.endswith("+2.0% |")
    assert "no time" in eight and eight.endswith("| - |")


def test_a_time_of_linkscope_is_half_of_its_round_trip(monkeypatch, tmp_path: Path) -> None:
    points = [SimpleNamespace(bytes=0, median_s=0.9e-6), SimpleNamespace(bytes=8, median_s=None)]
    monkeypatch.setattr(tool, "read_run", lambda path: SimpleNamespace(points=points))
    assert tool.by_linkscope(["true"], tmp_path / "run.jsonl") == {0: 0.45e-6}


def test_a_run_that_fails_does_not_give_the_times_of_the_turn_before(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(gzip.decompress((ROOT / "results" / "h100x1-mpi.jsonl.gz").read_bytes()))
    with pytest.raises(UserError, match=r"run\.jsonl"):
        tool.by_linkscope(["false"], path)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tool.compiled(str(MPIEXEC.with_name("mpicc")), tmp_path_factory.mktemp("bare"))


@needs_mpi
@pytest.mark.parametrize("how", ["serialized", "single"])
def test_the_bare_loop_runs_by_a_real_mpi_and_has_a_time_for_each_size(program: Path, how: str) -> None:
    found = tool.bare([str(MPIEXEC), "-n", "2"], program, how, "1")
    assert set(found) == set(tool.SIZES) and all(10e-9 < seconds < 1 for seconds in found.values())


@needs_mpi
def test_a_call_without_time_for_a_second_turn_keeps_the_first(program: Path, monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tool, "by_linkscope", lambda launch, path: {0: 500e-9, 8: 600e-9})
    monkeypatch.setattr(tool, "bare", lambda launch, program, *words: {0: 490e-9, 8: 610e-9})
    monkeypatch.setattr(tool, "compiled", lambda mpicc, folder: program)
    clock = iter(range(0, 1000, 20))
    monkeypatch.setattr(tool.time, "monotonic", lambda: next(clock))
    kept = tmp_path / "turns.json"
    words = ["--mpiexec", str(MPIEXEC), "--mpicc", sys.executable, "--seconds", "90", "--json", str(kept)]
    assert tool.main(words) == 0
    assert 1 <= len(json.loads(kept.read_text())) <= 3


def test_without_a_compiler_of_the_mpi_the_message_names_the_option(tmp_path: Path, capsys) -> None:
    with pytest.raises(SystemExit) as ended:
        tool.main(["--mpiexec", str(tmp_path / "mpiexec")])
    assert ended.value.code == 2 and "--mpicc" in capsys.readouterr().err
