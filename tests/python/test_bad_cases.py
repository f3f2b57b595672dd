"""Impossible points and memory that runs out: an error with its cure, an exit code, and the rest of the run."""

import itertools
import json
import subprocess
import sys

import pytest

from driver_cases import H2H, MIB, d2h, failure, h2d, local, opened, prepare, run, worker, works
from fake_driver import WORKER, environment, needs_fake, needs_worker, too_short
from linkscope.cli.main import main
from linkscope.runfile import read_run

__all__ = ["worker"]  # a fixture

pytestmark = [needs_worker]

TO_GPU = "numa:0.pinned->gpu:0.device"
UNIDIRECTIONAL = "after=kernel&bidirectional=false"


@pytest.fixture
def real_worker(monkeypatch):
    monkeypatch.setenv("LINKSCOPE_WORKER", str(WORKER))


CANNOT_BE = {
    # sizes
    f"h2d/ce/{TO_GPU}/0?{UNIDIRECTIONAL}&mode=batched": "0 B is not a possible size",
    f"pieces/ce/{TO_GPU}/4104?mode=batched&piece=4096": "1000 of them are 4096000 B",
    f"strided/ce/{TO_GPU}/1000?gaps=both&mode=batched&row=512&shape=2d": "sizes are multiples of 4096 B",
    "halo/ce/gpu:0.device->gpu:1.device/24?face=z&mode=batched&way=direct": "powers of two from 32 B",
    "latency/sm/numa:0.pinned->gpu:0.device/8?range=2MiB": "latency moves no bytes; write 0",
    "latency/sm/numa:0.pinned->gpu:0.device/0?cache=cold&range=2MiB&sm=999": "sm is any or 0 to 255, not '999'",
    "latency/cpu/numa:0.pageable->numa:0.pageable/0?cache=cold&range=2MiB&sm=0": "no parameter 'sm'; it has range",
    # places and kinds
    f"h2d/ce/gpu:0.pinned->gpu:1.device/8?{UNIDIRECTIONAL}&mode=batched": "h2d copies from numa:N to gpu:N",
    f"d2d/ce/gpu:0.device->gpu:0.device/8?{UNIDIRECTIONAL}&call=memcpy&initiator=src&mode=batched&peer=on":
        "d2d needs two places",
    f"h2d/ce/numa:0.managed->gpu:0.device/8?{UNIDIRECTIONAL}&mode=batched":
        "h2d does not copy from managed to device memory",
    # parameters
    f"h2d/ce/{TO_GPU}/8?after=dinner&bidirectional=false&mode=batched": "after is kernel or wait, not 'dinner'",
    f"h2d/ce/{TO_GPU}/8?{UNIDIRECTIONAL}&colour=red&mode=batched": "no parameter 'colour'; it has mode, after",
    f"h2d/ce/{TO_GPU}/8?{UNIDIRECTIONAL}&clock=moon&mode=batched": "clock is event or host, not 'moon'",
    f"h2d/ce/{TO_GPU}/8?{UNIDIRECTIONAL}&idle_gap_s=5&mode=single": "0.01 or 0.1, not '5'",
    f"h2d/ce/{TO_GPU}/8?{UNIDIRECTIONAL}&idle_gap_s=0.1&mode=batched": "idle_gap_s needs mode=single",
    "allocation/cpu/numa:0.pinned->gpu:0.device/0?phase=register&size=1MiB": "pinned",
    f"read/sm/{TO_GPU}/8?blocks=sms&stride=256&threads=512": "ask for more bytes",
}  # fmt: skip


@pytest.mark.parametrize("id", CANNOT_BE)
def test_an_impossible_point_is_refused_before_any_measurement(real_worker, tmp_path, capsys, id):
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x2", "--only", id, "-o", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.startswith(f"linkscope: --only {id}: ") and message.count("\n") == 1
    assert CANNOT_BE[id] in message
    assert not path.exists()


def test_long_lists_of_values_are_shortened(real_worker, capsys):
    assert main(["list", "latency"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        printed.count("sm = any | 0 to 255: number of the SM that runs the thread") == 2
    )  # a CPU has no such parameter
    assert main(["list", "latency", "--json"]) == 0
    params = [param for row in json.loads(capsys.readouterr().out) for param in row["params"] if param["name"] == "sm"]
    assert [param["values"] for param in params] == [["any", *map(str, range(256))]] * 2


def test_a_pointer_chase_on_an_sm_that_the_model_lacks_is_unsupported(real_worker, tmp_path):
    path = tmp_path / "run.jsonl"
    ids = [f"latency/sm/gpu:1.device->gpu:0.device/0?cache=cold&range=2MiB&sm={sm}" for sm in (131, 132, 200)]
    assert main(["run", "--machine", "h200x2", *itertools.chain(*(("--only", id) for id in ids)), "-o", str(path)]) == 0
    points = {point.id: point for point in read_run(path).points}
    assert [points[id].status for id in ids] == ["ok", "unsupported", "unsupported"]
    assert points[ids[2]].reason == "gpu:0 has no SM 200: it has 132 SMs, numbered from 0"


def test_a_possible_point_is_measured(real_worker, tmp_path, capsys):
    id = f"pieces/batch/{TO_GPU}/8192?clock=host&mode=single&piece=4096"
    assert main(["run", "--machine", "h200x2", "--only", id, "-o", str(tmp_path / "run.jsonl"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"] == {"ok": 1}


HUGE = f"h2d/ce/numa:0.hugepage->gpu:0.device/4096?{UNIDIRECTIONAL}&mode=batched&pages={{}}"


def test_huge_pages_that_a_model_has_not_reserved_are_unsupported_with_the_cure(real_worker, tmp_path):
    path = tmp_path / "run.jsonl"
    ids = [HUGE.format(pages) for pages in ("1GiB", "2MiB")]
    only = itertools.chain(*(("--only", id) for id in ids))
    assert main(["run", "--machine", "h200x2", *only, "-o", str(path), "--json"]) == 0
    large, small = read_run(path).points
    assert (large.status, small.status) == ("unsupported", "ok")
    assert "0 huge pages of 1 GiB are reserved on numa:0 of the model h200x2" in large.reason
    assert "huge_1gib_pages of its [[numa]]" in large.reason


@needs_fake
def test_a_point_without_enough_pinned_memory_fails_and_the_others_continue(tmp_path):
    """The largest of three sizes does not fit."""
    path = tmp_path / "run.jsonl"
    sizes = itertools.product(("pinned", "registered"), (4096, 65536, 128 * MIB))
    ids = [f"h2d/ce/numa:0.{kind}->gpu:0.device/{size}?{UNIDIRECTIONAL}&mode=batched" for kind, size in sizes]
    command = [sys.executable, "-m", "linkscope", "run", "--rounds", "2", "--precision", "99%"]
    command += ["-o", str(path), "--json"]
    command += itertools.chain(*(("--only", id) for id in ids))
    done = subprocess.run(
        command, env=environment(CUDA_GPUS=1, CUDA_PINNED=120 * MIB), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1, done.stderr  # the run is complete, and a point failed
    for point in read_run(path).points:
        if point.bytes < 128 * MIB:
            assert too_short(point) or point.status in ("ok", "missed_precision"), (point.id, point.reason)
            continue
        assert point.status == "failed", (point.id, point.reason)
        kind = point.src_memory
        assert f"of {kind} memory left on numa:0: cuMemHost" in point.reason
        assert "CUDA_ERROR_OUT_OF_MEMORY (out of memory); free host memory, raise the limit" in point.reason


@needs_fake
def test_cached_memory_of_earlier_points_is_freed_for_later_ones(worker):
    """Only one of pinned and registered memory fits; likewise only one buffer of the GPU's memory."""
    size = 48 * MIB
    pipe, _ = opened(worker, CUDA_PINNED=64 * MIB)
    for memory in ("pinned", "registered", "pinned"):
        works(pipe, h2d(memory, size=MIB, footprint=size))
    size = 110 * MIB
    pipe, _ = opened(worker, CUDA_MEMORY=160 * MIB)  # one buffer, and 2 MiB to flush the L2 with
    for case_of in (h2d, d2h, h2d):
        works(pipe, case_of(size=MIB, footprint=size))


@needs_fake
def test_an_allocation_failure_on_a_gpu_names_the_gpu_and_the_cure(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=48 * MIB)
    error = failure(prepare(pipe, local(size=MIB, footprint=32 * MIB)))
    assert error["kind"] == "memory"
    assert error["message"].startswith("no 32 MiB of device memory left on gpu:0: cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY")
    assert "end other processes that hold memory of this GPU" in error["message"]
    works(pipe, H2H)


@needs_fake
def test_a_gpu_without_room_for_the_l2_flush_says_so(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=3 * MIB)
    error = failure(run(pipe, h2d()))
    assert error["kind"] == "memory" and "no 2 MiB left on the GPU at " in error["message"]
    assert "to flush its L2 with" in error["message"] and "ask for smaller sizes" in error["message"]
    works(pipe, H2H)
