"""Messages by UCX: two processes without a launcher, ranks, and a library that is missing or does not fit."""

import re
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from fake_driver import needs_fake, needs_worker, too_short
from linkscope.cli.main import main
from linkscope.run.ucx import libraries
from linkscope.runfile import Point, Run, read_run
from test_ranks import LINKSCOPE, needs_mpi, run_of, without_ranks

try:
    PACKAGE = metadata.version("libucx-cu12")
except metadata.PackageNotFoundError:
    PACKAGE = ""
needs_ucx = pytest.mark.skipif(not PACKAGE, reason="no UCX; `pip install libucx-cu12` brings it")
pytestmark = [needs_worker]

TRIPS = "process_ping_pong/ucx/numa:0.pageable->numa:0.pageable/8"


def run_by_ucx(folder: Path, *only: str, **settings: str) -> Run:
    """The complete run of these points of suite `ucx`."""
    path = folder / "run.jsonl"
    globs = [word for glob in only for word in ("--only", glob.replace("?", "[?]"))]
    words = ["run", "--suite", "ucx", *globs, "--rounds", "2", "--precision", "99%", "-q", "-o", str(path)]
    kept = without_ranks() | settings
    done = subprocess.run([*LINKSCOPE, *words], env=kept, capture_output=True, text=True, timeout=300)
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete, done.stderr
    return run


def all_measured(points: list[Point]) -> bool:
    """Both directions of a point have a total only, if a busy host let them run in turn."""
    return all(one.verified and (one.median_s or one.total_gbps or too_short(one)) for one in points)


@needs_ucx
def test_two_processes_exchange_messages_by_ucx_in_one_and_in_both_directions(tmp_path):
    of_rate = "process_rate/ucx/numa:0.pageable->numa:0.pageable/{}?bidirectional={}&window=64"
    only = [TRIPS, of_rate.format(65536, "false"), of_rate.format(65536, "true"), of_rate.format(1 << 20, "false")]
    run = run_by_ucx(tmp_path, *only)
    assert len(run.points) == 4 and all_measured(run.points), [(one.id, one.reason) for one in run.points]
    both = next(one for one in run.points if "bidirectional=true" in one.id)
    assert len(both.flows) == 2
    assert run.points[0].guards["ucx"].startswith(f"{PACKAGE}, ")


@needs_mpi
@needs_fake
@needs_ucx
def test_two_ranks_exchange_messages_by_ucx_and_buffers_of_gpus_are_refused_without_cuda(tmp_path):
    only = [
        "rank_ping_pong/ucx/*pageable*/8",
        "rank_rate/ucx/*pageable*/65536?*false*",
        "rank_rate/ucx/*device*/65536?*",
    ]
    run = run_of(2, tmp_path / "run.jsonl", only)
    on_host = [one for one in run.points if one.src_memory == "pageable"]
    of_gpus = [one for one in run.points if one.src_memory == "device"]
    assert len(on_host) == 2 and all_measured(on_host), [(one.id, one.reason) for one in on_host]
    assert len(of_gpus) == 1 and of_gpus[0].status == "unsupported"
    assert re.search(r"UCX \S+ \(the MPI library has loaded it\) takes no buffers of GPUs: ", of_gpus[0].reason)
    assert "its module for CUDA is missing (/" in of_gpus[0].reason and "libuct_cuda.so)" in of_gpus[0].reason
    assert "`pip install libucx-cu12` (or -cu13) brings" in of_gpus[0].reason


def test_a_missing_library_is_a_reason_with_its_cure(tmp_path):
    (point,) = run_by_ucx(tmp_path, TRIPS, LINKSCOPE_UCX="/no/such/libucp.so.0").points
    assert point.status == "unsupported" and "UCX cannot be used: /no/such/libucp.so.0" in point.reason
    assert "pip install libucx-cu12" in point.reason and "LINKSCOPE_UCX=" in point.reason


OLD = 'extern "C" void ucp_get_version(unsigned* a, unsigned* b, unsigned* c) { *a = 1, *b = 9, *c = 0; }'


def test_a_library_that_is_too_old_is_named_with_the_version_that_is_needed(tmp_path):
    source, library = tmp_path / "old.cpp", tmp_path / "libucp.so.0"
    source.write_text(OLD)
    subprocess.run(["g++", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    (point,) = run_by_ucx(tmp_path, TRIPS, LINKSCOPE_UCX=str(library)).points
    assert point.status == "unsupported"
    assert "libucp.so.0 is UCX 1.9.0, and 1.10 or newer" in point.reason


def test_the_chosen_library_is_the_only_one():
    assert [one["name"] for one in libraries({"LINKSCOPE_UCX": "/x/libucp.so.0"})] == ["/x/libucp.so.0"]
    assert libraries({})[-1] == {"name": "libucp.so.0", "found": "the loader knows its name"}


@needs_mpi
@needs_fake
def test_ranks_exchange_managed_memory_and_staged_buffers_of_gpus_in_both_directions(tmp_path):
    gpus = "rank_rate/mpi/rank:0.device->rank:1.device/1048576?bidirectional=true&"
    only = [f"{gpus}*way=staged*", f"{gpus}*way=double*", f"{gpus}*way=aware*", "rank_rate/mpi/*managed*/4096?*"]
    run = run_of(2, tmp_path / "run.jsonl", only)
    ways = {one.params.get("way", "managed"): one for one in run.points}
    assert set(ways) == {"staged", "double", "aware", "managed"}
    assert ways["aware"].status == "unsupported" and "way=staged" in ways["aware"].reason
    assert all_measured([ways["staged"], ways["double"], ways["managed"]])
    for way in ("staged", "double"):
        assert [(of.src, of.dst) for of in ways[way].flows if of.role == "measured"] == [
            ("rank:0", "rank:1"), ("rank:1", "rank:0")
        ]  # fmt: skip


@pytest.mark.parametrize("way", ["staged", "double"])
def test_messages_in_both_directions_through_slots_deliver_their_bytes_on_a_model(tmp_path, way):
    path = tmp_path / "run.jsonl"
    only = f"rank_rate/mpi/rank:0.device*/1048576[?]bidirectional=true&way={way}*"
    words = ["--suite", "mpi", "--only", only, "--rounds", "1", "-q", "-o", str(path)]
    assert main(["run", "--machine", "h200x2", *words]) == 0
    (point,) = read_run(path).points
    assert point.verified and point.median_s
