"""tools/library_rates.py without a GPU: its points are in the table, and a slower computation is marked."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import library_rates as tool
import pytest

from fake_driver import needs_worker
from linkscope.plan.cases import case_of
from linkscope.run import benchmark_table
from linkscope.run.table import temporary_worker
from linkscope.run.target import choose
from linkscope.runfile import PointId, read_run

ROOT = Path(__file__).parents[2]


@needs_worker
@pytest.mark.parametrize("size", ["shoc", "small", "full"])
def test_every_computation_that_is_compared_is_a_row_with_that_size(size: str) -> None:
    rows = {(row.name, row.src, row.dst): row for row in benchmark_table()}
    for name in tool._LENGTHS:
        point = PointId.parse(tool.point_of(name, size))
        row = rows[point.benchmark, "gpu", "gpu"]
        assert size in next(param.values for param in row.params if param.name == "size")


@needs_worker
def test_the_lengths_are_those_of_the_computations() -> None:
    """A call of PyTorch on other lengths would compare nothing."""
    machine = choose("h200x1", 1)
    with temporary_worker(None) as worker:
        worker.open(machine.open_request)
        for name, lengths in tool._LENGTHS.items():
            for size, length in lengths.items():
                point = tool.point_of(name, size)
                program = worker.prepare(case_of(PointId.parse(point), machine.facts), f"{point}#0").program
                said = rf" ({length}) \1 \1 read r0" if "gemm" in name else rf"^region r0 \S+ {length} B "
                assert re.search(said, program), (point, program)


def test_a_computation_that_takes_more_than_5_percent_longer_is_marked() -> None:
    lines = [tool.row("sgemm", 1.04e-3, 1e-3), tool.row("sort", 2e-3, 1e-3), tool.row("fft", None, 1e-3)]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[-1] for row in cells] == ["yes", "no", "-"] and cells[2][1] == "not measured"


class Event:
    """Each pair of events is 20 ms apart."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, end: "Event") -> float:
        return 20.0


@pytest.mark.parametrize("limit_s, together, repeats", [(100.0, 10, 12), (0.0, 1, 3)])
def test_a_call_of_pytorch_is_timed_among_several_unless_it_takes_too_long(
    limit_s: float, together: int, repeats: int
) -> None:
    torch, called = SimpleNamespace(cuda=SimpleNamespace(Event=Event)), []
    assert tool.seconds_by_torch(torch, lambda: called.append(1), limit_s) == pytest.approx(20e-3 / together)
    assert len(called) == 2 + repeats * together


def test_a_run_that_takes_longer_than_its_share_is_ended_and_its_value_so_far_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, float] = {}

    def too_long(command: list[str], *, timeout: float, **_: object) -> None:
        given["timeout"] = timeout
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(tool.subprocess, "run", too_long)
    assert tool.seconds_by_linkscope(tmp_path / "absent.jsonl", "point", 10.0) is None
    assert given["timeout"] < 10
    run = tmp_path / "run.jsonl"
    run.write_text((ROOT / "tests" / "golden" / "run-h200x1.jsonl").read_text())
    assert tool.seconds_by_linkscope(run, "point", 10.0) == read_run(run).points[0].median_s


def test_the_table_has_a_row_for_each_computation_and_ends_within_the_budget(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = SimpleNamespace(now=1000.0)

    def by_linkscope(path: Path, point: str, share_s: float) -> float:
        clock.now += tool._ALLOWED_IN_ALL * share_s
        return 1e-3

    def by_torch(torch: object, call: object, limit_s: float) -> float:
        clock.now += limit_s
        return 1e-3

    cuda = SimpleNamespace(get_device_name=lambda: "GPU", empty_cache=lambda: None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="1", cuda=cuda, __spec__=object()))
    monkeypatch.setattr(tool.time, "monotonic", lambda: clock.now)
    for name, made in (("seconds_by_linkscope", by_linkscope), ("seconds_by_torch", by_torch)):
        monkeypatch.setattr(tool, name, made)
    monkeypatch.setattr(tool, "calls", lambda *_: None)
    assert tool.main(["--budget", "80s"]) == 0
    assert clock.now <= 1080
    rows = [line for line in capsys.readouterr().out.splitlines() if line.endswith("| yes |")]
    assert [line.split("|")[1].strip() for line in rows] == list(tool._LENGTHS)
