"""One message alone between GPUs of two ranks, in chunks through pinned slots: by a real MPI on the fake driver."""

import re
from pathlib import Path

import pytest

from fake_driver import needs_fake, needs_worker, too_short
from linkscope.cli.main import main
from linkscope.runfile import Run, read_run
from test_ranks import mpiexec, needs_mpi

DEVICES, TO_HOST, FROM_HOST = (
    f"rank_ping_pong/mpi/rank:0.{ends}/" for ends in ("device->rank:1.device", "device->rank:1.pinned",
                                                      "pinned->rank:1.device")
)  # fmt: skip


def run_of_trips(path: Path, *ids: str, **settings: str) -> Run:
    only = [word for id in ids for word in ("--only", id)]
    words = [*only, "--rounds", "1", "--precision", "99%", "-q", "-o", str(path)]
    done = mpiexec(2, *words, **settings)
    assert path.exists(), done.stderr
    return read_run(path)


@needs_worker
@needs_mpi
@needs_fake
def test_chunks_of_a_message_arrive_in_their_places_by_any_number_of_slots_from_gpus_and_pinned_memory(tmp_path):
    ids = [
        f"{DEVICES}1048576?chunk=256KiB&way=double",
        f"{DEVICES}786432?chunk=256KiB&slots=4&way=double",  # fewer chunks than slots
        f"{DEVICES}1048576?chunk=256KiB&sends=one&way=double",
        f"{TO_HOST}1048576?chunk=512KiB&slots=3&way=double",
        f"{FROM_HOST}1048576?chunk=256KiB&slots=8&way=double",
        f"{DEVICES}65544?way=double",  # smaller than a chunk, and no multiple of a page
    ]
    run = run_of_trips(tmp_path / "run.jsonl", *ids)
    assert {point.id for point in run.points} == set(ids)
    assert all(point.verified and (point.median_s or too_short(point)) for point in run.points), [
        (point.id, point.reason) for point in run.points
    ]


@needs_worker
@needs_mpi
@needs_fake
def test_a_chunk_that_is_not_copied_is_found(tmp_path):
    (point,) = run_of_trips(
        tmp_path / "run.jsonl", f"{DEVICES}1048576?chunk=256KiB&way=double", FAKE_CUDA_SKIP="3+"
    ).points
    assert point.status == "failed" and point.verified is False


@needs_worker
def test_a_message_in_chunks_is_faster_than_a_whole_one_on_a_model_and_the_report_says_by_how_much(tmp_path, capsys):
    path = tmp_path / "run.jsonl"
    only = "rank_ping_pong/mpi/rank:0.device->rank:1.device/16777216[?]*"
    assert (
        main(["run", "--machine", "h200x2", "--suite", "mpi", "--only", only, "--rounds", "6", "-q", "-o", str(path)])
        == 0
    )
    run = read_run(path)
    medians = {point.id.partition("?")[2]: point.median_s for point in run.points if point.median_s}
    assert medians["chunk=256KiB&way=double"] < 0.95 * medians["way=staged"]
    capsys.readouterr()
    told = []
    for form in ("short", "full"):
        assert main(["report", str(path), f"--summary={form}"]) == 0
        told.append(" ".join(capsys.readouterr().out.split()))
    gain = r"one double-buffered message of GPU buffers alone: ~×1\.\d+ the rate of whole staging\. "
    assert re.search(gain, told[0]), told[0]  # one size: one number
    assert "Speed-up [interval]" in told[1] and re.search(r"One message alone .* ~1\.\d+ \[1\.\d+, 1\.\d+\]", told[1])


@needs_worker
@pytest.mark.parametrize(("sizes", "gain"), [("1048576", "~×[0-9.]+"), ("*", "~×([0-9.]+) to ~×(?!\\1 )[0-9.]+")])
def test_the_gain_of_streams_is_one_number_for_one_size_and_a_range_for_several(tmp_path, capsys, sizes, gain):
    path = tmp_path / "run.jsonl"
    only = f"rank_rate/mpi/rank:0.device->rank:1.device/{sizes}[?]*"
    words = ["--machine", "h200x2", "--suite", "mpi", "--only", only, "--rounds", "2", "-q", "-o", str(path)]
    assert main(["run", *words]) == 0
    capsys.readouterr()
    assert main(["report", str(path), "--summary"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert re.search(f"double-buffered messages of GPU buffers: {gain} the rate of whole staging", told), told
