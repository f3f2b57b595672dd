"""Ranks that do not fit together, and libraries that are missing: whole commands, with their exit code and message."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fake_driver import environment, needs_fake, needs_worker, too_short
from linkscope.run.launcher import libraries
from linkscope.runfile import read_run
from test_ranks import LINKSCOPE, MPIEXEC, mpiexec, needs_mpi, without_ranks

pytestmark = [needs_worker]

QUICK = [
    "--suite", "mpi", "--only", "rank_ping_pong/mpi/rank:0.pageable*/1048576", "--rounds", "1", "--precision", "99%",
]  # fmt: skip


def told(done: subprocess.CompletedProcess[str]) -> str:
    """All that a command printed, without the line breaks of its tables."""
    return re.sub(r"\s+", " ", done.stdout + done.stderr)


def two_ranks(change: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Two ranks of `linkscope run`, of which rank 1 first runs `change`."""
    second = [sys.executable, "-c", f"import sys; {change}; from linkscope.cli.main import main; sys.exit(main())"]
    ranks = ["-n", "1", *LINKSCOPE, "run", *words, ":", "-n", "1", *second, "run", *words]
    return subprocess.run([str(MPIEXEC), *ranks], env=without_ranks(), capture_output=True, text=True, timeout=300)


# --- ranks ------------------------------------------------------------------------------------------------------------


@needs_mpi
def test_one_rank_names_the_command_that_starts_two():
    done = mpiexec(1, "--suite", "mpi")
    assert done.returncode == 3 and "mpiexec -n 2 linkscope run --suite mpi" in done.stderr


@pytest.mark.parametrize(("words", "suite"), [(["rank_rate"], "mpi"), (["--suite", "nodes-shared"], "nodes-shared")])
def test_messages_between_ranks_without_mpiexec_say_how_to_start(words, suite):
    done = subprocess.run([*LINKSCOPE, "run", *words], env=without_ranks(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 3 and f"mpiexec -n 2 linkscope run --suite {suite} (" in done.stderr


def test_a_suite_of_one_process_refuses_several_ranks():
    kept = without_ranks() | {"PMI_RANK": "0", "PMI_SIZE": "2"}
    done = subprocess.run([*LINKSCOPE, "run"], env=kept, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "mpiexec started 2 ranks" in done.stderr and "--suite mpi" in done.stderr


@needs_mpi
def test_ranks_of_different_versions_are_named(tmp_path):
    done = two_ranks("import linkscope; linkscope.__version__ = '0.0.1'", *QUICK, "-o", str(tmp_path / "run.jsonl"))
    assert done.returncode == 2, done.stderr
    assert "rank 1 on" in done.stderr and "has linkscope 0.0.1" in done.stderr
    assert "install one version everywhere" in done.stderr
    assert not (tmp_path / "run.jsonl").exists()


@needs_mpi
def test_a_clock_that_is_an_hour_ahead_is_said_and_changes_no_time(tmp_path):
    path = tmp_path / "run.jsonl"
    for _ in range(3):  # on a busy machine a point can be too short for the clock
        path.unlink(missing_ok=True)
        done = two_ranks("import time; now = time.time; time.time = lambda: now() + 3600", *QUICK, "-o", str(path))
        assert re.search(r"the clock of \S+ is 60 min ahead of that of", done.stderr), done.stderr
        (point,) = read_run(path).points
        if not too_short(point):
            break
    assert done.returncode == 0, done.stderr
    assert point.verified and (point.median_s is None or 0 < point.median_s < 60)


@needs_mpi
def test_a_host_that_cannot_be_reached_is_named_with_its_addresses(tmp_path):
    elsewhere = (
        "from linkscope.run import meeting, ranks; meeting.own_network = lambda: 'another kernel'; "
        "reach = ranks.connect; "
        "ranks.connect = lambda key, number, _, port: reach(key, number, ['255.255.255.255'], port)"
    )
    path = tmp_path / "run.jsonl"
    done = two_ranks(elsewhere, *QUICK, "-o", str(path))
    assert done.returncode != 0  # 1 of that rank, and mpiexec then kills the others
    assert re.search(r"rank 1 on \S+ cannot reach rank 0 on \S+: 255\.255\.255\.255: \w", done.stderr), done.stderr
    assert "within 60 s" not in done.stderr and "Traceback" not in done.stderr


# --- libraries --------------------------------------------------------------------------------------------------------


@needs_mpi
@needs_fake
def test_an_mpi_without_gpu_support_refuses_buffers_of_gpus_and_names_the_other_ways(tmp_path):
    path = tmp_path / "run.jsonl"
    done = mpiexec(2, "--suite", "mpi", "--only", "rank_rate/mpi/*way=aware*", "--rounds", "1", "-o", str(path))
    assert done.returncode == 3, done.stderr
    assert "takes no buffers of GPUs: it has no GPU support" in told(done)
    assert "use way=staged or way=double" in told(done)
    assert {point.status for point in read_run(path).points} == {"unsupported"}


def one_rank_of_two(**settings: str) -> subprocess.CompletedProcess[str]:
    """A process that looks like rank 0 of two, although no launcher of its library started it."""
    of_launcher = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    command = [*LINKSCOPE, "run", "--suite", "mpi"]
    kept = without_ranks() | of_launcher | settings
    return subprocess.run(command, env=kept, capture_output=True, text=True, timeout=300)


@needs_mpi
def test_a_library_of_another_mpi_than_the_launcher_is_named():
    library = next(one.name for one in libraries({}) if Path(one.name).exists())
    done = one_rank_of_two(LINKSCOPE_MPI=library)
    assert done.returncode == 2, done.stderr
    assert "two MPIs are mixed up: mpiexec started 2 ranks" in done.stderr and "LINKSCOPE_MPI=" in done.stderr


def test_a_missing_mpi_library_is_named_with_the_cure():
    done = one_rank_of_two(LINKSCOPE_MPI="/no/such/libmpi.so")
    assert done.returncode == 3 and "/no/such/libmpi.so" in done.stderr and "LINKSCOPE_MPI=" in done.stderr


@needs_fake
def test_a_machine_with_gpus_and_without_nccl_names_the_package_that_brings_it(tmp_path):
    path = tmp_path / "run.jsonl"
    only = ["--only", "all_reduce/nccl/*/256[?]*", "--only", "broadcast/nccl/*/256[?]*"]
    words = ["run", "--suite", "collectives", *only, "--rounds", "1", "-o", str(path)]
    settings = environment(CUDA_GPUS=2) | {"LINKSCOPE_NCCL": "/no/such/libnccl.so.2"}
    done = subprocess.run(
        [*LINKSCOPE, *words], env=without_ranks() | settings, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 3, done.stderr
    assert "NCCL cannot be used: /no/such/libnccl.so.2" in told(done)
    assert "`pip install nvidia-nccl-cu13`" in told(done) and "LINKSCOPE_NCCL=" in told(done)
    assert {point.status for point in read_run(path).points} == {"unsupported"}
