"""The targets of the transfer library beside what tools/transfer_bench.py measured."""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import transfer_bench
from issue_table import table, verdicts

from fake_driver import ROOT, environment
from test_transfer import LIBRARY

MIB, GIB = 1 << 20, 1 << 30
needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")


def row(section: str, method: str, gbps: float, nbytes: int = 64 * MIB, **facts: object) -> dict:
    return {"section": section, "method": method, "gbps": gbps, "bytes": nbytes} | facts


def met(*rows: dict) -> dict[tuple[str, str], bool | None]:
    return {(one.transfer, one.target): one.met for one in verdicts(list(rows))}


def test_pageable_copies_are_compared_with_the_driver_with_pinned_memory_and_with_cpu_time() -> None:
    of = [row("to gpu", "driver, pageable", 8.0), row("to gpu", "driver, pinned", 50.0)]
    name = "pageable to gpu, 64 MiB"
    assert met(*of, row("to gpu", "linkscope", 45.0, core_s_per_gb=0.2)) == {
        (name, "5.5 times the driver"): True, (name, "0.9 of pinned"): True, (name, "0.2 core-seconds a GB"): True,
    }  # fmt: skip
    assert not any(met(*of, row("to gpu", "linkscope", 43.0, core_s_per_gb=0.21)).values())
    small = row("to gpu", "linkscope", 20.0, 16 * MIB, core_s_per_gb=0.3)
    assert met(small) == {("pageable to gpu, 16 MiB", "stated"): None}


def test_new_memory_and_tensors_have_their_targets() -> None:
    rows = [row("to fresh", "linkscope", 21.0)]
    rows += [row("torch", name, gbps, GIB) for name, gbps in (("linkscope.copy", 56), (".to('cuda')", 10))]
    rows += [row("torch", name, gbps, GIB) for name, gbps in (("linkscope.to_cpu", 23), (".cpu()", 2))]
    assert list(met(*rows).values()) == [False, False, True]


def blocks(section: str, sms: int, auto: float) -> list[dict]:
    rates = {"one copy": 50.0, "batch": 5.0, "kernel 12": 44.0, "auto": auto}
    of = [row(section, f"{name}, to {end}", rate) for name, rate in rates.items() for end in ("gpu", "host")]
    return [one | {"sms": sms, "seconds": [109e-6, 109e-6]} for one in of]


def test_blocks_are_compared_with_one_copy_and_with_the_better_method_and_few_sms_from_16_kib() -> None:
    assert all(met(*blocks("4096 x 16 KiB", 8, 45.0)).values())
    found = met(*blocks("4096 x 16 KiB", 9, 43.0))
    assert len(found) == 6 and not any(found.values())
    found = met(*blocks("1000 x 4 KiB", 32, 45.0))
    assert len(found) == 5 and found["1000 x 4 KiB", "110 µs"]
    rows = blocks("1000 x 4 KiB from C", 0, 45.0)
    assert met(*rows)["1000 x 4 KiB from C", "110 µs"]
    for one in rows:
        one["seconds"] = [111e-6]
    assert met(*rows)["1000 x 4 KiB from C", "110 µs"] is False


@pytest.mark.parametrize(("rate", "best", "share"), [(46.0, True, True), (45.0, False, False)])
def test_loaders_are_compared_with_the_best_other_one_and_the_pinned_copy(rate, best, share) -> None:
    rates = {"linkscope": rate, "a": 40.0, "b": 30.0, "pinned copy": 51.0}
    rows = [{"loader": name, "directory": "/d", "buffers": "new", "gbps": gbps} for name, gbps in rates.items()]
    name = "safetensors in /d, buffers new"
    assert met(*rows) == {(name, "1.15 times the best other loader"): best, (name, "0.9 of pinned"): share}


def test_cold_files_short_copies_and_products_have_their_lines() -> None:
    cold = [row("cold file", "disk alone, depth 4", 2.4), row("cold file", "disk alone, depth 1", 1.0)]
    small = [
        {"section": "small", "bytes": n, "driver_ns": d, "run_ns": r} for n, d, r in ((1, 1e3, 1149), (2, 1e4, 10201))
    ]
    gemm = [row("gemm", "alone", 0.0), row("gemm", "beside 4 SMs to gpu", 0.0, slowdown=1.02)]
    assert list(met(*cold, row("cold file", "linkscope", 2.3), *small, *gemm).values()) == [True, True, False, None]


def test_rows_without_a_target_and_no_rows_give_an_empty_table() -> None:
    assert len(list(table([row("registered", "driver", 1.0)]))) == len(list(table([]))) == 2


def bench(tmp_path: Path, *words: str) -> tuple[dict, str]:
    output = tmp_path / "rows.json"
    command = [sys.executable, str(ROOT / "tools" / "transfer_bench.py"), "--issue", "-o", str(output), *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(output.read_text()), done.stdout


@needs_library
def test_one_call_has_the_blocks_from_python_and_from_c_and_their_targets(tmp_path) -> None:
    found, said = bench(
        tmp_path, "--largest", "1", "--repeats", "1", "--budget", "1e6", "--sections", "blocks", "c", "small"
    )
    assert found["left_out"] == []
    if "cuda.h was not found" not in said:
        assert "| 1000 x 4 KiB from C, to host |" in said and "| prepared copy, 1 B |" in said
        methods = {one["method"] for one in found["rows"] if one["section"] == "8192 x 4 KiB from C"}
        names = ("one copy", "loop", "auto", "batch", "kernel 12")
        assert methods == {f"{name}, to {end}" for name in names for end in ("gpu", "host")}
    assert "| 256 x 4 KiB, to gpu |" in said and "FAILED" not in said


@needs_library
def test_what_the_budget_has_no_time_for_is_left_out_and_named(tmp_path) -> None:
    found, said = bench(tmp_path, "--budget", "0")
    assert found["rows"] == [] and found["left_out"] == list(transfer_bench.ISSUE)
    assert "loaders        left out" in said


def test_each_section_has_its_part_of_the_time_and_one_that_is_cut_leaves_the_rest_to_the_others(monkeypatch) -> None:
    clock, ends = [0.0], dict[str, float]()
    monkeypatch.setattr(transfer_bench, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(transfer_bench, "ISSUE", {"torch": 40.0, "copies": 80.0, "c": 40.0})
    one = SimpleNamespace(left_out=[], ends=0.0)

    def section(name: str, seconds: float, out: bool = False) -> None:
        ends[name] = one.ends
        clock[0] += seconds
        if out:
            raise transfer_bench.OutOfTime

    sections = {"torch": partial(section, "torch", 10.0), "copies": partial(section, "copies", 50.0, True)}
    sections["c"] = partial(section, "c", 1.0)
    transfer_bench.measure(one, sections, list(sections), True, 80.0)
    assert ends == {"torch": 20.0, "copies": 10 + 70 * 80 / 120}
    assert one.left_out == ["copies", "c"], "20 s are left, and c needs 40"
    clock[0] = 0.0
    transfer_bench.measure(one, sections, ["c"], True, 40.0)
    assert ends["c"] == 40.0 and one.left_out == ["copies", "c"]


def test_repeats_end_with_the_time_of_the_section_and_nothing_starts_after_it(monkeypatch) -> None:
    clock = [0.0]
    one = transfer_bench.Bench.__new__(transfer_bench.Bench)
    one.repeats, one.ends, one.sync = 5, 10.0, lambda: None
    monkeypatch.setattr(
        transfer_bench, "time", SimpleNamespace(monotonic=lambda: clock[0], perf_counter=lambda: clock[0])
    )

    def call() -> None:
        clock[0] += 4.0

    assert one.seconds(call) == [4.0, 4.0]  # after one that is not counted
    with pytest.raises(transfer_bench.OutOfTime):
        one.seconds(call)


def test_rows_of_a_section_that_was_cut_give_the_targets_that_they_can() -> None:
    full = [*blocks("4096 x 16 KiB", 8, 45.0), row("torch", ".cpu()", 2.0), row("cold file", "linkscope", 2.3)]
    full += [row("to gpu", "driver, pageable", 8.0), row("to gpu", "linkscope", 45.0, core_s_per_gb=0.2)]
    for end in range(len(full)):
        list(verdicts(full[:end]))
    assert met(*full[-2:]) == {
        ("pageable to gpu, 64 MiB", "5.5 times the driver"): True,
        ("pageable to gpu, 64 MiB", "0.2 core-seconds a GB"): True,
    }
