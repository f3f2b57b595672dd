"""Products of matrices (MB-4): their suite, and the section that shows them as shares of the GPU's peak."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from fakes import flow, point
from linkscope.cli.main import main
from linkscope.model.computing import peak, peak_of_model
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.report.run_view import RunView
from linkscope.report.section import Output, Table
from linkscope.report.sections import products, sections
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]
H100 = {"index": 0, "pci": "a", "sms": 132, "compute_capability": "9.0"}


@pytest.mark.parametrize(
    ("element", "tops"), [("bf16", 989.4), ("tf32", 494.7), ("fp8", 1978.9), ("f64", 61.8), ("f32", 61.8)]
)
def test_the_peak_of_an_h100_at_its_boost_clock_is_that_of_its_whitepaper(element: str, tops: float) -> None:
    found, source = peak(H100, 1830, element)
    assert found is not None and found / 1e12 == pytest.approx(tops, rel=1e-3)
    assert source.startswith("132 SMs x ") and f"= {found / 1e12:.4g} Top/s" in source
    assert ("tensor" in source) == (element != "f32")


def test_a_peak_that_is_not_known_has_a_reason() -> None:
    assert peak(H100 | {"compute_capability": "8.9"}, 1830, "bf16")[1] == (
        "the peaks of compute capability 8.9 are not known here"
    )
    assert peak(H100 | {"compute_capability": "7.0"}, 1530, "fp8") == (None, "compute capability 7.0 has no fp8")
    assert peak(H100, "hidden", "f32") == (None, "SMs or clock of the GPU are not visible here")
    assert peak_of_model({"gpu": []}, "gpu:0", "f32") == (None, "the machine file has no f32_tflops")


def test_suite_nn_has_every_element_at_every_length() -> None:
    found = points_of(SUITES["nn"], choose("h200x1", 1).facts, benchmark_table())
    assert {(one.param("element"), one.param("n")) for one in found if one.benchmark == "gemm"} == {
        (element, n)
        for element in ("bf16", "f32", "f64", "tf32", "fp8")
        for n in ("1024", "2048", "4096", "8192", "16384")
    }


def test_the_section_shows_shares_of_the_peak_on_a_model(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x1", "--suite", "nn", "--only", "gemm/*n=8192", "-q", "-o", str(path)]) == 0
    run = read_run(path)
    assert {one.status for one in run.points} <= {"ok", "missed_precision"}
    made = products.section(RunView(run))
    assert made is not None
    table = made.blocks[1]
    assert isinstance(table, Table)
    cells = {row.cells[1]: row.cells for row in table.groups[0].rows}
    assert "fp8_tflops of the machine file: 1979" in cells["fp8"] and set(cells) == {
        "bf16",
        "f32",
        "f64",
        "tf32",
        "fp8",
    }
    assert "products" in {one.anchor for one in sections(run, Output.TERMINAL)}


def test_the_section_of_a_measured_run_derives_the_peak_from_its_gpu() -> None:
    measured = read_run(Path(__file__).parents[2] / "results" / "h200x1-full.jsonl.gz", rounds=False)
    id = "gemm/sm/gpu:0.device->gpu:0.device/0?element=bf16&n=8192"
    of = point(id, median_s=1.5e-3, flows=[structs.replace(flow([1.5e-3]), operations=2.0 * 8192**3)])
    larger = structs.replace(of, params={**of.params, "n": "16384"})
    run = dataclasses.replace(measured, points=[larger, of])
    made = products.section(RunView(run))
    assert made is not None
    table = made.blocks[1]
    assert isinstance(table, Table)
    assert [row.cells[2] for row in table.groups[0].rows] == ["8192", "16384"]
    cells = table.groups[0].rows[0].cells
    assert cells[4] == "733" and cells[6].endswith("x 1980 MHz = 1071 Top/s") and cells[5].startswith("68")
