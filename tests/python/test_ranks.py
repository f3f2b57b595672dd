"""Ranks of MPI: whole runs under a real mpiexec, and what happens if ranks or libraries are missing or do not fit."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_driver import WORKER, environment, needs_fake, needs_worker, too_short
from linkscope.report.task_sets import task_sets
from linkscope.report.verdict import incomplete
from linkscope.run.launcher import launched, libraries
from linkscope.runfile import Run, read_run
from linkscope.site.check import problems

MPIEXEC = Path(sys.executable).with_name("mpiexec")
needs_mpi = pytest.mark.skipif(
    not MPIEXEC.exists(), reason=f"no mpiexec beside {sys.executable}; `pip install mpich` brings one"
)
pytestmark = [needs_worker]

LINKSCOPE = [sys.executable, "-m", "linkscope"]
_OF_RANKS = ("PMI_", "PMIX_", "OMPI_", "MPI_LOCAL", "SLURM_")


def without_ranks() -> dict[str, str]:
    """The environment of a process that no launcher started, with the fake driver."""
    kept = {name: value for name, value in environment().items() if not name.startswith(_OF_RANKS)}
    # Ranks share cores with other tests. The module of UCX for CUDA ends a process whose driver is the fake one.
    return kept | {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1", "UCX_MODULES": "^cuda"}


def mpiexec(count: int, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = [str(MPIEXEC), "-n", str(count), *LINKSCOPE, "run", *words]
    return subprocess.run(command, env=without_ranks() | settings, capture_output=True, text=True, timeout=300)


def run_of(count: int, path: Path, only: list[str], *words: str) -> Run:
    globs = [word for glob in only for word in ("--only", glob.replace("?", "[?]"))]
    done = mpiexec(count, "--suite", "mpi", *globs, "--rounds", "2", "--precision", "99%", "-o", str(path), *words)
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete, done.stderr
    return run


@needs_mpi
@needs_fake
def test_ranks_that_open_their_machine_anew_use_nothing_that_has_ended(tmp_path):
    log, path = tmp_path / "log", tmp_path / "run.jsonl"
    only = ["--only", "rank_rate/mpi/*device*/65536[?]way=staged*", "--only", "rank_ping_pong/mpi/*pageable*/8"]
    words = ["--suite", "mpi", *only, "--rounds", "3", "--precision", "99%", "-o", str(path)]
    done = mpiexec(2, *words, FAKE_CUDA_LOG=str(log))
    assert read_run(path).end.complete, done.stderr
    lines = log.read_text().splitlines()
    assert lines.count("ended") == 2  # both workers ended by themselves
    assert [line for line in lines if line.startswith("misuse")] == []


@needs_mpi
@needs_fake
def test_two_ranks_measure_round_trips_and_rates_of_host_memory_and_of_gpus(tmp_path):
    only = [
        "rank_empty/mpi/*", "rank_ping_pong/mpi/rank:0.pageable*/8", "rank_ping_pong/*device*->*device*/65536?*",
        "rank_rate/mpi/rank:0.pinned*pinned/4096?bidirectional=false*", "rank_rate/*pinned*pinned/1048576?*true*",
        "rank_rate/mpi/rank:0.device->rank:1.device/1048576?*",
    ]  # fmt: skip
    run = run_of(2, tmp_path / "run.jsonl", only)
    about = run.header.machine["mpi"]
    print(f"{about['library']}, {about['path']}: {about['found']}")
    assert str(MPIEXEC.parent.parent) in about["path"] and "belongs to the launcher" in about["found"]
    assert "  " not in about["library"]  # MPICH's own text has columns
    assert [(one["rank"], one["host"], one["gpu"]) for one in about["ranks"]] == [
        (0, os.uname().nodename, "gpu:0"), (1, os.uname().nodename, "gpu:1")
    ]  # fmt: skip
    assert about["ranks"][0]["process"] != about["ranks"][1]["process"]
    points = {point.id: point for point in run.points}
    aware = {id: point for id, point in points.items() if "way=aware" in id}
    others = {id: point for id, point in points.items() if id not in aware}
    assert len(others) >= 7 and any("way=double" in id for id in others)
    measured = [point for point in others.values() if not too_short(point)]
    assert len(measured) >= 4
    for point in measured:
        assert point.status in ("ok", "missed_precision") and point.verified, (point.id, point.status, point.reason)
    assert aware and all(
        point.status == "unsupported" and "use way=staged" in (point.reason or "") for point in aware.values()
    )


@needs_mpi
def test_four_ranks_measure_a_pair_that_rank_0_does_not_belong_to(tmp_path):
    id = "rank_ping_pong/mpi/rank:2.pageable->rank:3.pageable/64"
    run = run_of(4, tmp_path / "run.jsonl", [id])
    (point,) = run.points
    assert point.verified or too_short(point)
    assert (point.src, point.dst) == ("rank:2", "rank:3") and len(run.header.machine["mpi"]["ranks"]) == 4


@needs_mpi
@needs_fake
@pytest.mark.parametrize("suite, threads", [("sp-8", {"two"}), ("sp-11", {"two", "one"})])
def test_two_ranks_exchange_messages_beside_transfers_by_two_threads_and_by_one(tmp_path, suite, threads):
    path = tmp_path / "run.jsonl"
    parts = ("at=both&message=8B&messages=each&sets=1*", "at=transfers*sets=1*", "at=messages*8B*sets=1*")
    globs = [word for at in parts for word in ("--only", f"rank_tasks/mpi/rank:0.*{at}")]
    words = ["--suite", suite, *globs, "--rounds", "1", "--contexts", "any", "-o", str(path), "-q"]
    done = mpiexec(2, *words, CUDA_GPUS="1", CUDA_COPY_US="2000")
    assert path.exists(), done.stderr
    run = read_run(path)
    assert {point.params.get("threads", "two") for point in run.points} == threads
    for point in run.points:
        assert point.flows and point.verified, (point.id, point.status, point.reason)
        # Round trips follow each other, so half of them take at most twice the longest mean of a sample.
        for flow in point.flows:
            assert flow.p50_s is None or flow.p50_s <= 2.1 * max(map(max, flow.samples_s)), point.id
    assert any(flow.p50_s for point in run.points for flow in point.flows)
    for one in task_sets(run):
        found = {compared.name: compared for compared in one.compared}
        assert set(found) == {"transfers", "messages, median", "messages, p99"}, one.point.id
        assert 0 < found["messages, median"].bad[0] <= found["messages, p99"].bad[0]
        assert found["transfers"].bad[0] > 0


# Messages that no busy machine makes too short for the clock, which would end the run early.
KILLED = ("rank_ping_pong", "--memory", "pageable", "--sizes", "64KiB,256KiB", "--rounds", "1000")


def wait_for_a_round(path: Path, started: subprocess.Popen[Any]) -> None:
    """Waits until a run that was started has written its first round."""
    deadline = time.monotonic() + 300
    while not (path.exists() and '"record":"round"' in path.read_text()):
        assert time.monotonic() < deadline and started.poll() is None
        time.sleep(0.1)


def ended(path: Path) -> Run:
    """The run when rank 0 has written its last lines: the launcher ends before."""
    for _ in range(3000):
        run = read_run(path)
        if run.end is not None:
            break
        time.sleep(0.1)
    assert run.end is not None and run.rounds
    return run


def run_until_killed(command: list[str], path: Path, victim: Callable[[Path], int]) -> tuple[Run, str]:
    """Starts a command that measures KILLED into the file, kills the process that `victim` finds after the first round,
    and waits for the end of the file. Returns the run, and what all ranks printed on standard error."""
    with path.with_suffix(".txt").open("w+") as errors:
        started = subprocess.Popen(command, env=without_ranks(), stderr=errors)
        try:
            wait_for_a_round(path, started)
            os.kill(victim(path), signal.SIGKILL)
            assert started.wait(300) != 0
        finally:
            started.kill()
        return ended(path), path.with_suffix(".txt").read_text()


def rank_1(path: Path) -> int:
    """The process of rank 1, which passes requests on to its worker."""
    process: int = read_run(path, rounds=False).header.machine["mpi"]["ranks"][1]["process"]
    return process


def run_until_rank_1_is_killed(command: list[str], path: Path) -> Run:
    """As run_until_killed, for rank 1."""
    return run_until_killed(command, path, rank_1)[0]


@needs_mpi
def test_the_others_end_and_keep_what_was_measured_when_a_rank_is_killed(tmp_path):
    path = tmp_path / "run.jsonl"
    run = run_until_rank_1_is_killed([str(MPIEXEC), "-n", "2", *LINKSCOPE, "run", *KILLED, "-o", str(path)], path)
    assert any("rank 1 (process" in (point.reason or "") for point in run.points), [one.reason for one in run.points]


@needs_mpi
def test_a_run_of_two_ranks_that_is_stopped_says_how_two_ranks_go_on_with_it(tmp_path):
    path, printed = tmp_path / "run.jsonl", tmp_path / "printed.txt"
    with printed.open("w") as file:
        command = [str(MPIEXEC), "-n", "2", *LINKSCOPE, "run", *KILLED, "-o", str(path)]
        started = subprocess.Popen(command, env=without_ranks(), stdout=file, stderr=subprocess.DEVNULL)
        try:
            wait_for_a_round(path, started)
            started.send_signal(signal.SIGINT)
            started.wait(300)
        finally:
            started.kill()
        run = ended(path)
    assert not run.end.complete
    assert "`mpiexec -n 2 linkscope run --resume RUN` measures the rest." in incomplete(run)[0]
    assert problems(path)[0].cure == f"`mpiexec -n 2 linkscope run --resume {path}`"
    deadline = time.monotonic() + 60
    while "continue with: " not in printed.read_text() and time.monotonic() < deadline:
        time.sleep(0.1)  # rank 0 outlives the launcher
    assert re.search(r"continue with: mpiexec -n 2 .*run --resume ", printed.read_text()), printed.read_text()


@needs_mpi
def test_a_rank_whose_worker_is_killed_says_so_and_does_not_accuse_rank_0(tmp_path):
    path = tmp_path / "run.jsonl"
    command = [str(MPIEXEC), "-n", "2", *LINKSCOPE, "run", *KILLED, "-o", str(path)]
    _, printed = run_until_killed(command, path, lambda path: worker_of(1, path))
    assert "linkscope: rank 1 was ended by SIGKILL" in printed, printed
    assert "rank 0 has ended" not in printed


# A worker whose program ends with an error: it carries `release` out, and answers that this failed.
FAILS_TO_RELEASE = """
import os, subprocess, sys, threading
worker = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, close_fds=False)
release = threading.Event()
def pass_answers():
    while answer := os.read(worker.stdout.fileno(), 1 << 20):
        if release.is_set():
            answer = b'{"ok":false,"error":{"kind":"failed","message":"memory stays open"}}\\n'
            release.clear()
        os.write(1, answer)
threading.Thread(target=pass_answers, daemon=True).start()
for request in iter(sys.stdin.buffer.readline, b""):
    if b'"release"' in request:
        release.set()
    worker.stdin.write(request)
worker.stdin.close()
worker.wait()
"""


@needs_mpi
def test_a_rank_that_fails_when_all_is_measured_leaves_the_run_complete_with_a_warning(tmp_path):
    path, program = tmp_path / "run.jsonl", tmp_path / "fails_to_release.py"
    program.write_text(FAILS_TO_RELEASE)
    words = [
        "--suite",
        "mpi",
        "--only",
        "rank_ping_pong/mpi/rank:0.pageable*/1048576",
        "--rounds",
        "1",
        "-o",
        str(path),
    ]
    second = ["env", f"LINKSCOPE_WORKER={sys.executable} {program} {WORKER}", *LINKSCOPE, "run", *words]
    command = [str(MPIEXEC), "-n", "1", *LINKSCOPE, "run", *words, ":", "-n", "1", *second]
    done = subprocess.run(command, env=without_ranks(), capture_output=True, text=True, timeout=300)
    run = read_run(path)
    is_noisy = any(too_short(point) for point in run.points)  # a point without a value: exit code 1
    assert done.returncode == int(is_noisy), done.stdout + done.stderr
    told = (
        "linkscope: warning: the ranks did not end as they should: rank 1: memory stays open; what was measured is kept"
    )
    assert told in done.stderr and "rank 0 has ended" not in done.stderr
    assert run.end and run.end.complete and run.rounds


# Rank 0 waits a minute for an answer, and here for five seconds in which its worker has a CPU.
IMPATIENT = (
    "import sys; from linkscope.run import ranks; ranks._BUSY_LIMIT_S, ranks._STATE_LIMIT_S = 5.0, 60.0; "
    "from linkscope.cli.main import main; "
)


def worker_of(rank: int, path: Path) -> int:
    """The process of a rank's worker, which calls MPI."""
    parent = read_run(path, rounds=False).header.machine["mpi"]["ranks"][rank]["process"]
    tasks = Path(f"/proc/{parent}/task").iterdir()
    children = [Path("/proc", pid) for task in tasks for pid in (task / "children").read_text().split()]
    with_mpi = [one for one in children if "libmpi" in (one / "maps").read_text()]
    (worker,) = [int(one.name) for one in with_mpi if b"linkscope-worker" in (one / "cmdline").read_bytes()]
    return worker


@needs_mpi
def test_a_rank_that_is_stopped_within_an_all_reduce_is_named_and_the_others_end(impatient, tmp_path):
    path = tmp_path / "run.jsonl"
    words = ["run", "--suite", "mpi", "--only", "all_reduce/mpi/*/4096[?]*", "--rounds", "1000", "-o", str(path)]
    command = [str(MPIEXEC), "-n", "3", sys.executable, "-c", f"{IMPATIENT}sys.exit(main())", *words]
    started = subprocess.Popen(command, env=without_ranks(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for_a_round(path, started)
        worker = worker_of(1, path)
        os.kill(worker, signal.SIGSTOP)
        assert started.wait(300) != 0
    finally:
        started.kill()
    run = ended(path)
    reasons = [point.reason or "" for point in run.points]
    assert any(
        re.search(r"no answer within .* s, because the worker of rank 1 \(process \d+ on .*\) is stopped", reason)
        for reason in reasons
    ), reasons
    assert run.rounds
    assert not Path(f"/proc/{worker}").exists()


@needs_mpi
@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["--precision", "300%"], 2, "between 0 % and 100 %"),  # before the ranks meet
        (["--only", "rank_ping_pong/mpi/x*"], 3, "matches no point"),  # when they have met
        (["--plan-only"], 0, ""),
    ],
)
def test_an_end_of_rank_0_before_it_measures_ends_the_other_ranks(words, code, told):
    done = mpiexec(2, "--suite", "mpi", *words)
    assert done.returncode == code, done.stderr
    assert told in done.stderr and "no answer" not in done.stderr
    assert ("rank 1: rank 0 on" in done.stderr) == bool(code)


@needs_mpi
def test_ranks_of_a_run_that_is_complete_end_with_it(tmp_path):
    path = tmp_path / "run.jsonl"
    run_of(2, path, ["rank_empty/*"])
    done = mpiexec(2, "--resume", str(path))
    assert done.returncode == 0, done.stderr
    assert "is complete: nothing is left to measure" in done.stderr and "ends the run" in done.stderr


def test_the_launcher_tells_rank_size_and_place_on_the_host():
    assert launched({}) is None
    open_mpi = launched({"OMPI_COMM_WORLD_RANK": "5", "OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_RANK": "1"})
    assert open_mpi and (open_mpi.rank, open_mpi.size, open_mpi.local) == (5, 8, 1)
    hydra = launched({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"})
    assert hydra and (hydra.rank, hydra.size, hydra.launcher) == (1, 2, "mpiexec")
    slurm = launched({"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "0"})
    assert slurm and (slurm.rank, slurm.local, slurm.launcher) == (3, 0, "srun")
    assert launched({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}) is None  # a batch script, and no task of srun


def test_the_chosen_library_is_the_only_one_and_that_of_the_launcher_comes_first(tmp_path):
    assert [one.name for one in libraries({"LINKSCOPE_MPI": "/x/libmpi.so"})] == ["/x/libmpi.so"]
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libmpi.so.40").touch()
    first = next(libraries({"OMPI_COMM_WORLD_RANK": "0", "OPAL_PREFIX": str(tmp_path)}))
    assert first.name == str(tmp_path / "lib" / "libmpi.so.40") and "belongs to the launcher" in first.found
