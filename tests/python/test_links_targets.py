"""The targets of copies over several links beside the rows of tools/links_bench.py, and of several processes."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import links_targets as tool
import loaders_on_gpus as loaders
import numpy as np
import pytest
from processes_bench import SETTINGS, cpus_of, into_slots

from fake_driver import ROOT, environment, needs_fake
from test_transfer import LIBRARY

MIB, GIB = 1 << 20, 1 << 30
FAKE_TORCH = """
import fake_torch
from fake_gpu import driver
fake_torch.module.cuda.synchronize = lambda: driver.ok("cuCtxSynchronize")
"""


def row(method: str, gbps: float, nbytes: int = 256 * MIB, **facts: object) -> dict:
    return {
        "section": "links", "method": method, "bytes": nbytes, "gbps": gbps, "seconds": [nbytes / gbps / 1e9]
    } | facts  # fmt: skip


def met(*rows: dict) -> dict[tuple[str, str], bool | None]:
    return {(one.transfer, one.target): one.met for one in tool.verdicts(list(rows))}


@pytest.mark.parametrize(("gbps", "share", "ratio"), [(172.1, True, False), (182.0, True, True), (140.0, False, False)])
def test_pinned_copies_over_all_links_are_compared_with_the_driver_and_with_all_gpus_at_once(
    gbps: float, share: bool, ratio: bool
) -> None:
    rows = [row("driver, pinned to gpu", 55.0), row("driver, to all gpus at once", 181.0, GIB)]
    rows += [row("pinned to gpu", 100.0, helpers=1), row("pinned to gpu", gbps, helpers=3)]
    name = "pinned to gpu, 256 MiB, all links"
    found = met(*rows)
    assert (found[name, "3.3 times"], found[name, "95 % of all at once"]) == (ratio, share)


def test_a_file_without_the_rows_of_a_target_has_no_line_for_it_and_the_others_have(tmp_path: Path) -> None:
    rows = [row("pageable to gpu", 120.0, GIB, helpers=3), row("linkscope, gpu to gpu", 52.0)]
    assert met(*rows) == {}
    rows += [row("driver, gpu to gpu", 39.0)]
    assert met(*rows) == {("GPU to GPU without peer access, 256 MiB", "1.3 times"): True}
    path = tmp_path / "h200x4-links.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"rows": rows}).encode()))
    command = [sys.executable, str(ROOT / "tools" / "links_targets.py"), str(path)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "| pageable to gpu | 3 |  | 120.0 |" in said and "1.33 times the driver" in said
    assert len(list(tool.table([]))) == 5


def test_only_the_default_settings_of_processes_have_a_target(tmp_path: Path) -> None:
    rows = [row(f"linkscope{of}, from 4 processes", rate, 4 * GIB) for of, rate in (("", 124.9), (", kernel", 130.0))]
    found = [one.met for one in tool.verdicts(rows)]
    assert found == [False, None]


@pytest.mark.parametrize(("gbps", "fine"), [(54.0, True), (53.9, False)])
def test_the_copy_that_is_slowest_against_the_driver_decides_whether_helpers_cost_more_than_2_percent(
    gbps: float, fine: bool
) -> None:
    rows = [row("driver, pinned to gpu", 55.0, 4 * MIB), row("pinned to gpu", gbps, 4 * MIB, helpers=3)]
    rows += [row("driver, pinned to gpu", 55.0), row("pinned to gpu", 170.0, helpers=3)]
    assert met(*rows)["slowest against a plain copy, with helpers", "+2 % or 150 ns"] is fine


@pytest.mark.parametrize(
    ("driver_ns", "more_ns", "fine"),
    [(1500, 149, True), (1500, 200, False), (20000, 390, True), (20000, 410, False)],
)
def test_a_call_is_compared_where_its_copy_is_queued_whole(driver_ns: float, more_ns: float, fine: bool) -> None:
    def call(of: int, driver: float, more: float, helpers: int = 3) -> dict:
        return {"section": "small", "bytes": of, "driver_ns": driver, "run_ns": driver + more, "helpers": helpers}

    rows = [call(1, 30000, 450), call(4 * MIB, driver_ns, more_ns), call(64, 1500, 10)]
    over_links = call(16 * MIB, 1500, 190e3)  # such a call returns when its copy has nearly ended
    alone = call(4096, 1500, 900, helpers=0)
    assert met(*rows, over_links, alone) == {
        ("prepared copy while helpers are allowed, 4194304 B", "+2 % or 150 ns"): fine
    }


def test_processes_get_equal_parts_of_the_cpus_from_either_end() -> None:
    cpus = list(range(10, 20))
    parts = [cpus_of("forward", number, 4, cpus) for number in range(4)]
    assert [one for part in parts for one in part] == cpus and {len(part) for part in parts} == {2, 3}
    assert [cpus_of("reversed", number, 4, cpus) for number in range(4)] == parts[::-1]
    assert cpus_of("", 1, 4, cpus) == cpus == cpus_of("forward", 1, 11, cpus)


@pytest.mark.parametrize(("words", "threads"), [(3 * MIB + 5, 4), (7, 3), (2, 5)])
def test_the_cpus_alone_copy_the_whole_memory_and_their_rate_has_no_target(words: int, threads: int) -> None:
    assert into_slots(np.zeros(words, np.int64), threads) == 8 * words
    (alone,) = [one.name for one in SETTINGS if one.by_cpus]
    assert met(row(f"{alone}, from 4 processes", 90.0, 4 * GIB)) == {}


def test_loaders_of_all_gpus_are_compared_with_the_best_other_one_and_failures_are_named() -> None:
    rates = {"linkscope": 120.0, "InstantTensor": 100.0, "pinned copy": 180.0}
    rows = [{"loader": name, "buffers": "new", "gbps": gbps} for name, gbps in rates.items()]
    rows += [{"loader": "linkscope", "buffers": "kept", "gbps": 130.0}]
    rows += [{"loader": "fastsafetensors", "buffers": "new", "reason": "ImportError: no"}]
    said = "\n".join(loaders.table(rows))
    assert "| linkscope | 120.0 GB/s | 130.0 GB/s |" in said and "| InstantTensor | 100.0 GB/s |  |" in said
    assert "| fastsafetensors | ImportError: no |" in said
    assert "linkscope has 1.20 times InstantTensor" in said and "buffers kept: linkscope" not in said


@needs_fake
@pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
def test_two_processes_load_one_file_at_once_and_a_loader_that_fails_takes_no_further_part(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    paths = [str(tmp_path), str(ROOT / "tests" / "python"), str(ROOT / "src")]
    output = tmp_path / "rows.json"
    words = ["-o", str(output), "--gib", "0.004", "--repeats", "2", "--directory", str(tmp_path)]
    command = [
        sys.executable,
        str(ROOT / "tools" / "loaders_on_gpus.py"),
        *words,
        "--loaders",
        "safetensors",
        "linkscope",
    ]

    def call(*more: str) -> str:
        variables = environment(CUDA_GPUS=2, NVML_GPUS=2) | {"PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run([*command, *more], env=variables, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    call()
    found = [(row["loader"], row["buffers"], row["gpus"], "gbps" in row) for row in json.loads(output.read_text())]
    assert found == [("safetensors", "new", 2, False), ("linkscope", "new", 2, True), ("linkscope", "kept", 2, True)]
    rows = json.loads(output.read_text())
    output.write_text(json.dumps(rows[1:2]))
    call("--loaders", "linkscope")
    assert json.loads(output.read_text())[0]["seconds"] == rows[1]["seconds"]
    assert [row["buffers"] for row in json.loads(output.read_text())] == ["new", "kept"]
