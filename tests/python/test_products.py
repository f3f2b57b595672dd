"""Products of matrices and operations of neural networks (MB-4): their suite, their results on the fake driver and its
libraries, and the section that shows them as shares of the GPU's peak."""

import dataclasses
from pathlib import Path

import pytest
from msgspec import structs

from fake_driver import LIBRARIES, environment, needs_fake
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
from linkscope.runfile import Point, read_run
from test_cli import linkscope
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]
H100 = {"index": 0, "pci": "a", "sms": 132, "compute_capability": "9.0"}


@pytest.mark.parametrize(
    ("element", "tops"),
    [("bf16", 989.4), ("f16", 989.4), ("tf32", 494.7), ("fp8", 1978.9), ("f64", 61.8), ("f32", 61.8)],
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


def test_suite_nn_has_every_operation_in_every_element_at_every_length() -> None:
    found: dict[str, set[tuple[str, str]]] = {}
    for one in points_of(SUITES["nn"], choose("h200x1", 1).facts, benchmark_table()):
        length = one.param("n") or one.param("channels") or one.param("length")
        found.setdefault(one.benchmark, set()).add((one.param("element") or "", length or ""))
    lengths = ("1024", "2048", "4096", "8192", "16384")
    assert found == {
        name: {(element, n) for element in elements for n in each}
        for name, elements, each in (
            ("gemm", ("bf16", "f32", "f64", "tf32", "fp8", "f16"), lengths),
            ("gemm_floor", ("bf16", "f16", "tf32"), lengths),
            ("convolution", ("bf16", "f16"), ("64", "256", "1024")),
            ("attention", ("bf16", "f16"), ("512", "2048", "8192")),
            ("softmax", ("f32", "bf16"), ("1024", "4096", "32768")),
        )
    }


def test_the_section_shows_shares_of_the_peak_on_a_model(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    globs = ("gemm/*n=8192", "gemm_floor/*n=8192", "convolution/*", "attention/*", "softmax/*")
    words = [word for glob in globs for word in ("--only", glob)]
    assert main(["run", "--machine", "h200x1", "--suite", "nn", *words, "-q", "-o", str(path)]) == 0
    run = read_run(path)
    assert {one.status for one in run.points} <= {"ok", "missed_precision"}
    made = products.section(RunView(run))
    assert made is not None
    (table,) = (block for block in made.blocks if isinstance(block, Table))
    cells = {row.cells[1:4]: row.cells for row in table.groups[0].rows}
    assert "fp8_tflops of the machine file: 1979" in cells["product, cuBLAS", "fp8", "8192"]
    assert "f16_tflops of the machine file: 989" in cells["product, floor", "f16", "8192"]
    softmax = cells["softmax, cuDNN", "f32", "4096"]
    assert softmax[5].endswith(" GB/s") and softmax[7].startswith("memory_gbps of the machine file")
    assert all(cells[name, "bf16", length][5].endswith(" TFLOP/s") for name, length in
               (("convolution, cuDNN", "256"), ("attention, cuDNN", "8192")))  # fmt: skip
    assert "products" in {one.anchor for one in sections(run, Output.TERMINAL)}


def test_the_section_of_a_measured_run_derives_the_peak_from_its_gpu() -> None:
    measured = read_run(Path(__file__).parents[2] / "results" / "h200x1-full.jsonl.gz", rounds=False)
    id = "gemm/sm/gpu:0.device->gpu:0.device/0?element=bf16&n=8192"
    of = point(id, median_s=1.5e-3, flows=[structs.replace(flow([1.5e-3]), operations=2.0 * 8192**3)])
    larger = structs.replace(of, params={**of.params, "n": "16384"})
    run = dataclasses.replace(measured, points=[larger, of])
    made = products.section(RunView(run))
    assert made is not None
    (table,) = (block for block in made.blocks if isinstance(block, Table))
    assert [row.cells[3] for row in table.groups[0].rows] == ["8192", "16384"]
    cells = table.groups[0].rows[0].cells
    assert cells[5] == "733 TFLOP/s" and cells[7].endswith("x 1980 MHz = 1071 Top/s") and cells[6].startswith("68")


def test_the_peak_of_softmax_is_that_of_the_memory_which_it_reads_and_writes() -> None:
    measured = read_run(Path(__file__).parents[2] / "results" / "h200x1-full.jsonl.gz", rounds=False)
    of = point(
        "softmax/sm/gpu:0.device->gpu:0.device/0?element=f32&length=4096",
        median_s=1e-4,
        flows=[structs.replace(flow([1e-4]), bytes=2 << 27)],
    )
    made = products.section(RunView(dataclasses.replace(measured, points=[of])))
    assert made is not None
    (table,) = (block for block in made.blocks if isinstance(block, Table))
    cells = table.groups[0].rows[0].cells
    assert cells[5] == "2684 GB/s" and cells[7].startswith("memory: ") and cells[7].endswith(" GB/s")


# --- the fake driver and its libraries ---

OPERATIONS = ("gemm/*element=fp8&n=1024", "gemm_floor/*element=bf16&n=1024", "convolution/*channels=64&element=f16",
              "attention/*element=bf16&length=512")  # fmt: skip


def measured(tmp_path: Path, libraries: bool, **settings: str | int) -> dict[str, Point]:
    path = tmp_path / "run.jsonl"
    words = [word for glob in OPERATIONS for word in ("--only", glob)]
    of = environment(CUDA_GPUS=1, **settings)
    if libraries:
        of["LD_LIBRARY_PATH"] = f"{LIBRARIES / 'libraries'}:{of['LD_LIBRARY_PATH']}"
    linkscope("run", "--suite", "nn", *words, "--rounds", "1", "-o", str(path), "-q", environment=of)
    return {one.benchmark: one for one in read_run(path).points}


@needs_fake
def test_operations_are_measured_and_wrong_results_of_any_of_them_fail(tmp_path: Path) -> None:
    right = measured(tmp_path, True)
    assert len(right) == 4 and {one.status for one in right.values()} <= {"ok", "missed_precision"}
    (tmp_path / "run.jsonl").unlink()
    for name, one in measured(tmp_path, True, CUDA_CORRUPT="1+").items():
        assert one.status == "failed" and "bytes are wrong" in (one.reason or ""), name


@needs_fake
def test_absent_libraries_and_old_gpus_are_reasons(tmp_path: Path) -> None:
    absent = measured(tmp_path, False)
    assert {name: one.status for name, one in absent.items() if name != "gemm_floor"} == dict.fromkeys(
        ("gemm", "convolution", "attention"), "unsupported"
    )
    assert "libcudnn.so.9 cannot be loaded" in (absent["attention"].reason or "")
    (tmp_path / "run.jsonl").unlink()
    old = measured(tmp_path, True, CUDA_CAPABILITY=70)
    for name in ("gemm_floor", "attention"):
        assert (old[name].status, "needs compute capability 8.0, which gpu:0 lacks" in (old[name].reason or "")) == (
            "unsupported", True,
        )  # fmt: skip
