"""A new operation is one file and one row of the table: a worker with one more file, from the table to the export."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from test_cli import linkscope

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core"
BUILDS = [ROOT / "build" / name for name in ("dev", "run")]
ROOMS = ("base", "program", "host", "gpu", "mpi", "nccl", "ucx", "nixl", "platform_cuda", "platform_sim", "benchmarks")
BACK_AND_FORTH = """
// Copies from host memory to a GPU and back, one after the other.
#include "benchmarks/copies.hpp"

namespace linkscope {
namespace {

Program build(const Case& c) {
  Program program = empty_program(c);
  add_copy(program, c, {c.src, c.dst, c.src_memory, c.dst_memory}, stream_of(c));
  Move back = std::get<Move>(program.actors[0].loop[0]);
  std::swap(back.from, back.to);
  program.actors[0].loop.push_back(back);
  return program;
}

}  // namespace

std::vector<Benchmark> back_and_forth() {
  Benchmark row{"back_and_forth", "a copy to a GPU and back", "a test", Engine::ce, PlaceKind::numa, PlaceKind::gpu,
                Relation::any, {{MemKind::pinned, MemKind::device}}, {mode_param()}, build};
  row.suites = {{"SUITE", {1 << 20, 16 << 20}}};
  return {std::move(row)};
}

}  // namespace linkscope
"""


@pytest.fixture(scope="module")
def build_dir() -> Path:
    found = [one for one in BUILDS if (one / "libbenchmarks.a").exists()]
    if not found or shutil.which("c++") is None:
        pytest.skip("no build tree with the worker's libraries, or no C++ compiler")
    return max(found, key=lambda one: (one / "libbenchmarks.a").stat().st_mtime)


def worker_with(suite: str, build_dir: Path, folder: Path) -> str:
    """Builds a worker with one file more, and one row more in table.cpp. Returns its path."""
    table = (CORE / "benchmarks" / "table.cpp").read_text()
    assert table.count("file(concurrent_copies)") == 1
    (folder / "table.cpp").write_text(
        table.replace("file(concurrent_copies)", "file(concurrent_copies) file(back_and_forth)")
    )
    (folder / "back_and_forth.cpp").write_text(BACK_AND_FORTH.replace("SUITE", suite))
    compile_ = ["c++", "-std=c++20", "-O0", *(f"-I{build_dir / 'core' / room}" for room in ROOMS)]
    sources = [str(folder / "table.cpp"), str(folder / "back_and_forth.cpp")]
    # The objects of the files that the build has: each by itself, or several compiled together.
    objects = build_dir / "CMakeFiles" / "linkscope-worker.dir"
    main = sorted(map(str, objects.glob("Unity/*.o"))) or sorted(map(str, objects.glob("core/worker/*.o")))
    libraries = [str(build_dir / f"lib{room}.a") for room in reversed(ROOMS)]
    group = ["-Wl,--start-group", *libraries, "-Wl,--end-group", "-ldl", "-lpthread"]
    path = str(folder / "worker")
    subprocess.run([*compile_, *sources, *main, *group, "-o", path], check=True)
    return path


@pytest.fixture(scope="module")
def environment(build_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return {**os.environ, "LINKSCOPE_WORKER": worker_with("quick", build_dir, tmp_path_factory.mktemp("worker"))}


@pytest.fixture(scope="module")
def run_file(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "run.jsonl"
    made = linkscope("run", "--machine", "h200x1", "--suite", "quick", "-o", str(path), "-q", environment=environment)
    assert made.returncode == 0, made.stderr
    return path


def test_a_new_operation_is_listed_with_its_source(environment) -> None:
    rows = json.loads(linkscope("list", "--json", environment=environment).stdout)
    (row,) = [row for row in rows if row["name"] == "back_and_forth"]
    assert row["source"] == "a test" and row["role"] == "copy"


def test_a_new_operation_is_planned_in_the_suite_that_its_row_names_and_in_suite_full(environment) -> None:
    quick, standard, full = (
        linkscope("run", "--machine", "h200x1", "--suite", suite, "--only", "back_and_forth*", "--plan-only", "--json",
                  environment=environment)
        for suite in ("quick", "standard", "full")
    )  # fmt: skip
    id = "back_and_forth/ce/numa:0.pinned->gpu:0.device/{}?mode=batched"
    assert {point["id"] for point in json.loads(quick.stdout)["points"]} == {id.format(1 << 20), id.format(16 << 20)}
    assert standard.returncode != 0 and "back_and_forth" in standard.stderr
    assert len(json.loads(full.stdout)["points"]) >= 3


def test_a_new_operation_is_measured_on_a_model_and_exported(run_file, environment, tmp_path) -> None:
    points = [point for point in map(json.loads, run_file.read_text().splitlines()) if point["record"] == "point"]
    found = [one for one in points if one["benchmark"] == "back_and_forth"]
    assert {one["bytes"]: one["status"] for one in found} == {1 << 20: "ok", 16 << 20: "ok"}
    there = next(one for one in points if one["id"].startswith("h2d/ce/numa:0.pinned->gpu:0.device/67108864"))
    rate = next(one["gbps"] for one in found if one["bytes"] == 16 << 20)
    assert rate == pytest.approx(there["gbps"] / 2, rel=0.1)  # the way back takes as long
    csv = tmp_path / "points.csv"
    assert linkscope("export", str(run_file), "-o", str(csv), environment=environment).returncode == 0
    assert csv.read_text().count("\nback_and_forth/") == 2


def test_a_new_operation_is_reported_on_the_page(run_file, environment, tmp_path) -> None:
    page = tmp_path / "page.html"
    assert linkscope("report", str(run_file), "-o", str(page), environment=environment).returncode == 0
    assert "back_and_forth" in page.read_text()


def test_a_row_whose_suite_does_not_exist_is_an_error_that_names_the_row(build_dir, tmp_path) -> None:
    environment = {**os.environ, "LINKSCOPE_WORKER": worker_with("quik", build_dir, tmp_path)}
    asked = linkscope("run", "--machine", "h200x1", "--plan-only", environment=environment)
    assert asked.returncode == 2 and "back_and_forth by ce" in asked.stderr and "'quik'" in asked.stderr
