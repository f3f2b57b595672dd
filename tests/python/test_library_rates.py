"""tools/library_rates.py without a GPU: its points are in the table, and a slower computation is marked."""

from pathlib import Path
from types import SimpleNamespace

import library_rates as tool
import pytest

from fake_driver import needs_worker
from linkscope.run import benchmark_table
from linkscope.runfile import PointId


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
    source = (Path(tool.__file__).parents[1] / "core" / "benchmarks" / "computations.cpp").read_text()
    units = {f"{count}_{unit}": count * scale for unit, scale in (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30))
             for count in range(1, 1025)}  # fmt: skip
    for name, lengths in tool._LENGTHS.items():
        line = next(line for line in source.splitlines() if f'{{"compute_{name}",' in line)
        words = line.split("{")[2].split("}")[0].replace(" ", "").split(",")
        assert [units.get(word) or int(word) for word in words] == [lengths[size] for size in ("small", "shoc", "full")]


def test_a_computation_that_takes_more_than_5_percent_longer_is_marked() -> None:
    lines = tool.table({"sgemm": 1.04e-3, "sort": 2e-3}, {"sgemm": 1e-3, "sort": 1e-3, "fft": 1e-3})
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[-1] for row in cells] == ["yes", "no", "-"] and cells[2][1] == "not measured"


def test_a_call_of_pytorch_is_timed_among_several() -> None:
    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None: ...
        def synchronize(self) -> None: ...
        def elapsed_time(self, end: "Event") -> float:
            return 20.0

    torch = SimpleNamespace(cuda=SimpleNamespace(Event=Event))
    assert tool.seconds_by_torch(torch, lambda: None) == pytest.approx(2e-3)
