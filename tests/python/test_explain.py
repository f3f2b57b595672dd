"""`linkscope explain` reads profilers' traces and says what each change of the transfers is worth."""

import gzip
import json
import re
import sqlite3
from pathlib import Path

import pytest

from invented import point
from linkscope.cli.main import main
from linkscope.explain import Copy, Kernel, Recorded, Step, by_step, expected_by_run, explain, read_recorded
from test_advise import saved
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

MIB = 1 << 20
PINNED_GBPS, PAGEABLE_GBPS, PEER_GBPS = 50.0, 10.0, 400.0


def curve(path: str, gbps: float) -> list:
    """Copies of several sizes: 1 us and the rate."""
    sizes = (8, 4096, 65536, MIB, 16 * MIB, 256 * MIB)
    benchmark, ends = path.split(" ")
    return [
        point(f"{benchmark}/ce/{ends}/{size}?bidirectional=false&mode=batched", 1e-6 + size / gbps / 1e9)
        for size in sizes
    ]


POINTS = [
    *curve("h2d numa:0.pinned->gpu:0.device", PINNED_GBPS),
    *curve("h2d numa:0.pageable->gpu:0.device", PAGEABLE_GBPS),
    *curve("d2h gpu:0.device->numa:0.pinned", PINNED_GBPS),
    *curve("d2h gpu:0.device->numa:0.pageable", PAGEABLE_GBPS),
    *curve("d2d gpu:0.device->gpu:1.device", PEER_GBPS),
]
EXPECTED = expected_by_run(POINTS, "invented", modelled=False)


def copy(
    src: str, dst: str, size: int, start: float, seconds: float, memory: str = "pinned", stream: str = "7"
) -> Copy:
    memories = [memory if place == "numa:0" else "device" for place in (src, dst)]
    return Copy(src, dst, *memories, size, start, start + seconds, f"gpu:0 stream {stream}")


def h2d(size: int, start: float, seconds: float, memory: str = "pinned", stream: str = "7") -> Copy:
    return copy("numa:0", "gpu:0", size, start, seconds, memory, stream)


def found(copies, kernels=(), steps=()) -> dict[str, float]:
    recorded = Recorded(tuple(copies), tuple(Kernel("gpu:0", *span) for span in kernels), tuple(steps))
    return {one.advice.name: one.worth_s for one in explain(recorded, EXPECTED).findings}


def test_a_pageable_copy_is_worth_its_time_less_that_of_a_pinned_one():
    pinned = 1e-6 + 256 * MIB / PINNED_GBPS / 1e9
    assert found([h2d(256 * MIB, 0.0, 0.030, "pageable")])["pin"] == pytest.approx(0.030 - pinned, rel=1e-6)


def test_what_kernels_hide_is_worth_nothing():
    hidden = h2d(256 * MIB, 0.0, 0.030, "pageable")
    assert found([hidden], kernels=[(0.0, 0.040)]) == {}
    half = found([hidden], kernels=[(0.0, 0.015)])
    assert half["pin"] == pytest.approx(0.015)


def test_a_copy_that_takes_as_long_as_it_should_can_only_run_beside_kernels():
    seconds = 1e-6 + 16 * MIB / PINNED_GBPS / 1e9
    assert found([h2d(16 * MIB, 0.0, seconds)], kernels=[(0.01, 0.05)]) == {"overlap": pytest.approx(seconds)}
    assert found([h2d(16 * MIB, 0.0, seconds)]) == {}, "without kernels there is nothing to run beside"


def test_small_copies_in_a_row_are_compared_with_one_copy():
    row = [h2d(4096, 1e-5 * at, 5e-6) for at in range(100)]
    one = 1e-6 + 100 * 4096 / PINNED_GBPS / 1e9
    assert found(row)["combine"] == pytest.approx(99e-5 + 5e-6 - one, rel=0.01)
    assert "combine" not in found([h2d(4096, 1e-3 * at, 5e-6) for at in range(100)]), "they do not follow one another"


def test_a_value_that_is_read_back_costs_the_pause_after_it():
    read = copy("gpu:0", "numa:0", 4, 0.001, 2e-6, "pageable")
    worth = found([read], kernels=[(0.0, 0.001), (0.0011, 0.002)])["read"]
    assert worth == pytest.approx(0.0001, rel=0.01)
    assert "read" not in found([read], kernels=[(0.0, 0.001), (0.001003, 0.002)])


def test_a_copy_between_gpus_far_below_the_rate_of_peers_lacks_peer_access():
    slow = copy("gpu:0", "gpu:1", 256 * MIB, 0.0, 256 * MIB / 30e9)
    fast = copy("gpu:0", "gpu:1", 256 * MIB, 0.0, 256 * MIB / 380e9)
    assert found([slow])["peer"] == pytest.approx(slow.seconds - 256 * MIB / 400e9 - 1e-6)
    assert found([fast]) == {}


def test_a_slow_copy_beside_another_of_its_link_differs_from_one_that_is_slow_by_itself():
    shared = [h2d(256 * MIB, 0.0, 0.0105), h2d(256 * MIB, 0.0, 0.0105, stream="13")]
    assert list(found(shared)) == ["beside"]
    assert list(found([h2d(256 * MIB, 0.0, 0.0105)])) == ["slow"]


def test_worths_never_add_up_to_more_than_the_time_of_copies_without_kernels():
    row = [h2d(512, 0.04 + at * 1e-5, 4e-6) for at in range(20)]
    copies = [h2d(256 * MIB, 0.0, 0.030, "pageable"), h2d(16 * MIB, 0.030, 0.001), *row]
    recorded = Recorded(tuple(copies), (Kernel("gpu:0", 0.01, 0.02), Kernel("gpu:0", 0.05, 0.2)))
    explained = explain(recorded, EXPECTED)
    row_pauses = 20 * 1e-5
    assert 0 < sum(one.worth_s for one in explained.findings) <= explained.alone_s + row_pauses


def event(category: str, name: str, start_us: float, dur_us: float, **args) -> dict:
    return {"ph": "X", "cat": category, "name": name, "ts": start_us, "dur": dur_us, "pid": 0, "tid": 7, "args": args}


def kineto() -> dict:
    """Two steps: a pageable copy of 256 MiB, a kernel, a loss that is read back."""
    events = [{"ph": "M", "name": "process_name"}]
    for step in range(2):
        at = step * 50_000.0
        events += [
            event("user_annotation", f"ProfilerStep#{step}", at, 50_000),
            event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", at, 30_000, device=0, stream=7, bytes=256 * MIB),
            event("kernel", "gemm", at + 30_000, 10_000, device=0, stream=7),
            event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", at + 40_000, 2, device=0, stream=7, bytes=4),
        ]
    return {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}], "traceEvents": events}


def written(folder: Path, content: object, name: str = "trace.json") -> Path:
    path = folder / name
    data = json.dumps(content).encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_a_trace_of_pytorch_is_read_with_its_steps(tmp_path, name):
    read = read_recorded(written(tmp_path, kineto(), name))
    assert [step.name for step in read.steps] == ["step 0", "step 1"] and read.gpus == {"gpu:0": "NVIDIA H200"}
    assert [(one.kind, one.bytes, one.pageable) for one in read.copies] == 2 * [
        ("h2d", 256 * MIB, True),
        ("d2h", 4, True),
    ]
    assert read.copies[0].seconds == pytest.approx(0.030) and len(read.kernels) == 2


def nsight(path: Path) -> Path:
    """The same program as `kineto`, as Nsight Systems exports it."""
    with sqlite3.connect(path) as database:
        database.executescript("""
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start, end, deviceId, contextId, streamId, correlationId, bytes,
                                                     copyKind, srcKind, dstKind, srcDeviceId, dstDeviceId);
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId);
            CREATE TABLE NVTX_EVENTS (start, end, text, textId);
            CREATE TABLE StringIds (id, value);
            CREATE TABLE TARGET_INFO_GPU (id, name);
            INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200');
            INSERT INTO StringIds VALUES (5, 'step 1');
        """)
        for step in range(2):
            at = step * 50_000_000
            text = ("step 0", None) if step == 0 else (None, 5)
            database.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?)", (at, at + 50_000_000, *text))
            copies = [(at, at + 30_000_000, 256 * MIB, 1, 1, 3), (at + 40_000_000, at + 40_002_000, 4, 2, 3, 1)]
            for start, end, size, kind, src, dst in copies:
                row = (start, end, 0, 1, 7, 0, size, kind, src, dst, 0, 0)
                database.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES ({','.join('?' * 12)})", row)
            database.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 7)", (at + 30_000_000, at + 40_000_000)
            )
    return path


def test_an_export_of_nsight_systems_gives_the_same_as_the_trace_of_pytorch(tmp_path):
    ours, theirs = read_recorded(nsight(tmp_path / "report.sqlite")), read_recorded(written(tmp_path, kineto()))
    assert [step.name for step in ours.steps] == [step.name for step in theirs.steps]
    for one, other in zip(ours.copies, theirs.copies, strict=True):
        assert (one.src, one.dst, one.src_memory, one.dst_memory, one.bytes) == (
            other.src, other.dst, other.src_memory, other.dst_memory, other.bytes,
        )  # fmt: skip
        assert one.start_s == pytest.approx(other.start_s) and one.seconds == pytest.approx(other.seconds)


def test_the_command_ranks_findings_by_what_they_are_worth(tmp_path, capsys):
    run = saved(tmp_path, POINTS)
    assert main(["explain", str(written(tmp_path, kineto())), "--against", str(run)]) == 0
    out = capsys.readouterr().out
    assert "2 steps of 50 ms, 100 ms in all: kernels take 20 ms" in out
    order = [out.index(f"{text}: ") for text in ("1. pin the host memory of these copies", "copy while kernels run")]
    heads, *rows = (line for line in out.partition("Transfers,")[2].splitlines()[1:])
    assert all(" → " in row and len(row) == len(heads) for row in rows) and not re.search(r"\d us\b| -> ", out)
    assert order == sorted(order) and "read results less often: 10 ms of 100 ms (10 %)" in out
    assert main(["explain", str(written(tmp_path, kineto())), "--against", str(run), "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["findings"][0]["name"] == "pin" and made["findings"][0]["worth_s"] == pytest.approx(0.0492, rel=0.01)
    assert len(made["transfers"]) == 4 and made["steps"] == 2


def test_a_trace_without_copies_has_no_table_of_transfers(tmp_path, capsys):
    kernels = [one for one in kineto()["traceEvents"] if one.get("cat") == "kernel"]
    assert main(["explain", str(written(tmp_path, {"traceEvents": kernels})), "--against", "h200x4"]) == 0
    out = capsys.readouterr().out
    assert "copies 0 ns" in out and "Transfers" not in out


def test_without_against_the_bundled_model_of_the_gpu_is_used_and_called_modelled(tmp_path, capsys):
    assert main(["explain", str(written(tmp_path, kineto()))]) == 0
    assert "expected times: MODELLED: h200x1" in capsys.readouterr().out
    other = kineto() | {"deviceProperties": [{"id": 0, "name": "NVIDIA B300"}]}
    assert main(["explain", str(written(tmp_path, other))]) == 3
    assert "names NVIDIA B300, of which there is no bundled model: add --against" in capsys.readouterr().err


def test_events_of_a_clock_that_jumped_are_left_out_and_said(tmp_path, capsys):
    content = kineto()
    content["traceEvents"] += [
        event("kernel", "gemm", 5_000, -3, device=0, stream=7),
        event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 10_000, 100, device=0, stream=7, bytes=8),
    ]
    read = read_recorded(written(tmp_path, content))
    assert len(read.copies) == 4 and len(read.left_out) == 2
    assert main(["explain", str(written(tmp_path, content))]) == 0
    assert "WARNING: 1 copy left out, since the clock jumped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "is not valid JSON"),
        ('{"a": 1}', "it has no list traceEvents"),
        (json.dumps({"traceEvents": []}), "has no event of a GPU"),
        (json.dumps({"traceEvents": [event("kernel", "k", 0, 1)]}), "event 0 (k) is damaged: KeyError 'device'"),
        ("[]", "it has no list traceEvents"),
        ("#!/bin/sh\necho one\n", "trace.json, line 2:\n    echo one"),
        ("numa:0 -> gpu:0 4MiB x 10\n", "lists transfers: add --against RUN.jsonl"),
    ],
)
def test_a_file_that_is_no_trace_is_refused_with_the_reason(tmp_path, capsys, content, says):
    path = tmp_path / "trace.json"
    path.write_text(content)
    assert main(["explain", str(path)]) == 2
    assert says in capsys.readouterr().err


def test_a_database_without_cuda_activities_is_refused_with_the_cure(tmp_path, capsys):
    path = tmp_path / "other.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE a (b)")
    assert main(["explain", str(path)]) == 2
    assert "nsys profile --trace=cuda,nvtx" in capsys.readouterr().err
    path.write_bytes(path.read_bytes()[:100])
    assert main(["explain", str(path)]) == 2
    assert "the database cannot be read" in capsys.readouterr().err


def test_a_trace_that_does_not_exist_and_a_wrong_against_are_named(tmp_path, capsys):
    assert main(["explain", str(tmp_path / "none.json")]) == 2
    assert "none.json: cannot be read" in capsys.readouterr().err
    assert main(["explain", str(written(tmp_path, kineto())), "--against", "auto"]) == 2
    assert "give a run file or a model" in capsys.readouterr().err
    assert main(["explain", str(written(tmp_path, kineto())), "-o", "x.png"]) == 2


def test_a_recorded_trace_is_drawn_as_two_stacked_bars_for_each_step(tmp_path, capsys):
    """CS-27: the bars of a step are its copies as recorded and as expected, by kind."""
    figure, run = tmp_path / "bars.svg", saved(tmp_path, POINTS)
    trace = str(written(tmp_path, kineto()))
    assert main(["explain", trace, "--against", str(run), "-o", str(figure)]) == 0
    drawn = figure.read_text()
    assert "step 0, recorded, host to GPU: 30 ms" in drawn and "step 1, recorded, GPU to host: 2 us" in drawn
    assert drawn.count("expected (MODELLED)</text>") == 2  # the invented run is modelled
    assert main(["explain", trace, "--against", str(run), "--json"]) == 0
    made = json.loads(capsys.readouterr().out.partition("\n")[2])
    rows = {(row["step"], row["kind"]): row for row in made["by_step"]}
    assert rows["step 0", "h2d"]["took_s"] == pytest.approx(0.030) and rows["step 0", "h2d"]["copies"] == 1
    assert rows["step 0", "h2d"]["expected_s"] == pytest.approx(made["transfers"][0]["expected_s"])
    assert made["findings"][0]["worth_s_a_step"] == pytest.approx(made["findings"][0]["worth_s"] / 2)


def test_copies_without_a_step_belong_to_no_bar():
    copies = (h2d(MIB, 0.0, 1e-4), h2d(MIB, 1.5, 1e-4), h2d(MIB, 2.5, 1e-4))
    recorded = Recorded(copies, (), (Step("step 0", 1.0, 2.0), Step("step 1", 3.0, 4.0)))
    found = [
        (step.name, {kind: of.copies for kind, of in step.kinds.items()})
        for step in by_step(explain(recorded, EXPECTED))
    ]
    assert found == [("step 0", {"h2d": 1}), ("step 1", {})]
    (whole,) = by_step(explain(Recorded(copies, ()), EXPECTED))
    assert whole.kinds["h2d"].copies == 3


def test_steps_of_a_clock_that_jumped_and_long_pauses_are_said(tmp_path):
    content = kineto()
    content["traceEvents"] += [
        event("user_annotation", "ProfilerStep#7", 100_000, 3600e6),
        event("kernel", "gemm", 3600e6, 10, device=0, stream=7),
    ]
    read = read_recorded(written(tmp_path, content))
    assert [step.name for step in read.steps] == ["step 0", "step 1"]
    assert any("1 step left out, since the clock jumped" in text for text in read.left_out)
    assert any("no GPU worked for 3600 s" in text for text in read.left_out)


def test_copies_outside_the_steps_do_not_count(tmp_path):
    outside = h2d(256 * MIB, 1.0, 0.030, "pageable")
    assert found([outside, h2d(8, 0.0, 2e-6)], steps=[Step("step 0", 0.0, 0.5)]) == {}


def test_the_recorded_loop_of_the_examples_loses_most_of_its_time_to_pageable_memory(capsys):
    """An H100 recorded it. The mended loop saves 10.9 ms a step (docs/notes/explain-evidence.md)."""
    trace = Path(__file__).parents[2] / "examples" / "training_loop.json.gz"
    assert main(["explain", str(trace), "--against", "h200x1", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    worth = {one["name"]: one["worth_s"] / made["steps"] for one in made["findings"]}
    assert made["steps"] == 5 and next(iter(worth)) == "pin"
    assert sum(worth.values()) == pytest.approx(10.9e-3, rel=0.1)
