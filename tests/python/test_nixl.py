"""Messages by NIXL between two ranks: by the fake of tests/fake_cuda, and by NVIDIA's package where it is installed."""

import os
import subprocess
from pathlib import Path

import pytest

from fake_driver import LIBRARIES, needs_fake, needs_worker, too_short
from linkscope.cli.main import main
from linkscope.run.nixl import in_run_file, libraries
from linkscope.runfile import Point, Run, read_run
from test_ranks import mpiexec, needs_mpi

FAKE = LIBRARIES / "nixl" / "libnixl_capi.so"
REAL = next((one["name"] for one in libraries() if Path(one["name"]).is_file()), "")
needs_nixl = pytest.mark.skipif(
    not REAL, reason="no NIXL; `pip install --no-deps nixl-cu12` brings it, and LINKSCOPE_NIXL names another"
)
pytestmark = [needs_worker, needs_mpi, needs_fake]

TRIPS = "rank_ping_pong/nixl/rank:0.pageable->rank:1.pageable/8"
EMPTY = "rank_empty/nixl/rank:0.pageable->rank:1.pageable/0"
ONE, BOTH = (
    f"rank_rate/nixl/rank:0.pageable->rank:1.pageable/65536?bidirectional={both}&window=4" for both in ("false", "true")
)
LONGER = "rank_rate/nixl/rank:0.pinned->rank:1.pinned/4096?bidirectional=false&window=256"
OF_GPUS = (
    "rank_ping_pong/nixl/rank:0.device->rank:1.device/65536",
    "rank_rate/nixl/rank:0.pinned->rank:1.device/4096?window=4",
    "rank_rate/nixl/rank:0.device->rank:1.device/65536?bidirectional=true&window=4",
)


def run_by(library: str | Path, folder: Path, *ids: str, **settings: str) -> Run:
    """The run of these points by two ranks."""
    path = folder / "run.jsonl"
    only = [word for id in ids for word in ("--only", id)]
    files = {"LINKSCOPE_NIXL": str(library), "FAKE_NIXL_FOLDER": str(folder)}
    done = mpiexec(2, *only, "--rounds", "2", "--precision", "99%", "-q", "-o", str(path), **files, **settings)
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete and len(run.points) == len(ids), done.stderr
    return run


def all_arrived(points: list[Point]) -> bool:
    return all(one.verified and (one.median_s or too_short(one)) for one in points)


def test_writes_with_notifications_arrive_one_after_the_other_in_windows_and_in_both_directions(tmp_path):
    run = run_by(FAKE, tmp_path, TRIPS, EMPTY, ONE, BOTH, LONGER)
    assert all_arrived([one for one in run.points if one.bytes]), [(one.id, one.reason) for one in run.points]
    assert run.header.machine["mpi"]["nixl"] == {"path": str(FAKE), "found": "LINKSCOPE_NIXL names it"}
    assert all(one.guards["nixl"] == f"{FAKE}: LINKSCOPE_NIXL names it" for one in run.points if one.median_s)


def test_bytes_that_no_write_delivers_are_found(tmp_path):
    (point,) = run_by(FAKE, tmp_path, ONE, FAKE_NIXL_LOSES="1").points
    assert point.status == "failed" and point.verified is False


def test_memory_of_gpus_is_registered_as_such_and_its_bytes_arrive(tmp_path):
    run = run_by(FAKE, tmp_path, *OF_GPUS, FAKE_NIXL_CUDA="1", FAKE_CUDA_GPUS="2")
    assert all_arrived(run.points), [(one.id, one.reason) for one in run.points]


def test_a_library_that_takes_no_memory_of_gpus_is_a_reason_and_host_memory_is_measured(tmp_path):
    run = run_by(FAKE, tmp_path, *OF_GPUS, TRIPS, FAKE_CUDA_GPUS="2")
    of_gpus = [one for one in run.points if "device" in one.id]
    assert {one.status for one in of_gpus} == {"unsupported"}
    assert all("does not register memory of gpu:" in (one.reason or "") for one in of_gpus), of_gpus[0].reason
    assert all_arrived([one for one in run.points if "device" not in one.id])


def test_a_missing_library_is_a_reason_with_its_cure(tmp_path):
    (point,) = run_by("/no/such/libnixl_capi.so", tmp_path, TRIPS).points
    assert point.status == "unsupported" and "NIXL cannot be used: /no/such/libnixl_capi.so" in (point.reason or "")
    assert "pip install nixl-cu12" in point.reason and "LINKSCOPE_NIXL=" in point.reason


def test_a_library_without_a_function_is_named_with_it(tmp_path):
    source, library = tmp_path / "old.cpp", tmp_path / "libnixl_capi.so"
    source.write_text('extern "C" int nixl_capi_create_agent(const char*, void**) { return 0; }')
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    (point,) = run_by(library, tmp_path, TRIPS).points
    assert point.status == "unsupported"
    assert f"{library} has no nixl_capi_create_configured_agent" in (point.reason or "")


def test_the_chosen_library_is_the_only_one_and_the_run_file_says_where_it_is_or_that_there_is_none(tmp_path):
    file = tmp_path / "libnixl_capi.so"
    chosen = {"LINKSCOPE_NIXL": str(file)}
    assert [one["name"] for one in libraries(chosen)] == [str(file)]
    assert "names no file" in in_run_file(chosen)["why_not"]
    file.touch()
    assert in_run_file(chosen) == {"path": str(file), "found": "LINKSCOPE_NIXL names it"}
    assert libraries({})[-1]["name"] == "libnixl_capi.so"


@needs_nixl
def test_the_real_nixl_delivers_the_bytes_of_host_memory_beside_the_mpi_that_started_the_ranks(tmp_path):
    ids = [TRIPS, EMPTY, ONE, BOTH, LONGER.replace("pinned", "pageable")]
    # The module for CUDA of NIXL's UCX ends a process whose driver is the fake one.
    run = run_by(REAL, tmp_path, *ids, LD_LIBRARY_PATH=os.environ.get("LD_LIBRARY_PATH", ""))
    print(f"NIXL: {run.header.machine['mpi']['nixl']}")
    assert all_arrived([one for one in run.points if one.bytes]), [(one.id, one.reason) for one in run.points]


def test_the_doctor_says_where_it_is(monkeypatch, capsys):
    monkeypatch.setenv("LINKSCOPE_NIXL", str(FAKE))
    main(["doctor"])
    assert f"NIXL: {FAKE}: LINKSCOPE_NIXL names it." in capsys.readouterr().out
