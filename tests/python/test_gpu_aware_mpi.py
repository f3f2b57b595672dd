"""Buffers of GPUs that MPI takes itself, by a real library that claims GPU support. The fake driver's memory is that of
the host, so the library moves its bytes.
"""

import subprocess
from pathlib import Path

import pytest

from fake_driver import needs_fake, needs_worker
from linkscope.runfile import read_run
from test_ranks import MPIEXEC, mpiexec, needs_mpi

pytestmark = [needs_worker, needs_mpi, needs_fake]

CLAIM = 'extern "C" int MPIX_Query_cuda_support() { return 1; }\n'
ROUND_TRIP = "rank_ping_pong/mpi/rank:0.device->rank:1.device/4096?way=aware"
RATE = "rank_rate/mpi/rank:0.device->rank:1.device/1048576?way=aware&window=64"


def library_with_gpu_support(folder: Path) -> Path:
    """The library of the launcher, except that it says that it takes buffers of GPUs."""
    source, library = folder / "claim.cpp", folder / "libmpi.so.12"
    source.write_text(CLAIM)
    real = MPIEXEC.parent.parent / "lib" / "libmpi.so.12"
    linked = [f"-Wl,--no-as-needed,-rpath,{real.parent}", str(source), str(real)]
    subprocess.run(["g++", "-shared", "-fPIC", *linked, "-o", str(library)], check=True)
    return library


@pytest.mark.skipif(
    not (MPIEXEC.parent.parent / "lib" / "libmpi.so.12").exists(), reason="no library of the package mpich is here"
)
def test_a_library_that_says_that_it_supports_gpus_gets_their_buffers_and_the_bytes_arrive(tmp_path):
    path, library = tmp_path / "run.jsonl", library_with_gpu_support(tmp_path)
    only = [word for id in (ROUND_TRIP, RATE) for word in ("--only", id.replace("?", "[?]"))]
    words = ["--suite", "mpi", *only, "--rounds", "1", "--precision", "99%", "-o", str(path)]
    done = mpiexec(2, *words, LINKSCOPE_MPI=str(library))
    assert path.exists(), done.stderr
    points = read_run(path).points
    assert {point.id for point in points} == {ROUND_TRIP, RATE}
    assert all(point.verified for point in points), [(point.id, point.reason) for point in points]
