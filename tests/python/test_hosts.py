"""Ranks of MPI on several hosts: a real mpiexec over networks of this machine (networks.py)."""

import re
import subprocess
from pathlib import Path

import pytest

from campaign import only_long
from fake_driver import needs_worker, too_short
from linkscope.runfile import Run, read_run
from networks import Host, hosts, launch, needs_hosts
from test_ranks import KILLED, LINKSCOPE, MPIEXEC, needs_mpi, run_until_rank_1_is_killed, without_ranks

pytestmark = [needs_worker, needs_mpi, needs_hosts]

PING_PONG = "rank_ping_pong/mpi/rank:0.pageable->rank:1.pageable"


def command(on: list[Host], folder: Path, *words: str) -> list[str]:
    return [*launch(MPIEXEC, on, folder), *LINKSCOPE, "run", *words]


def run_on(on: list[Host], folder: Path, only: list[str], *words: str) -> Run:
    """The complete run of these points, with a rank on each of the hosts."""
    path = folder / "run.jsonl"
    globs = [word for id in only for word in ("--only", id.replace("?", "[?]"))]
    words = ("--suite", "mpi", *globs, "-o", str(path), *words)
    done = subprocess.run(command(on, folder, *words), env=without_ranks(), capture_output=True, text=True, timeout=300)
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete, done.stderr
    return run


def test_ranks_on_two_hosts_measure_messages_between_them_and_the_run_file_names_the_hosts(tmp_path):
    only = [f"{PING_PONG}/4096", "rank_rate/mpi/rank:0.pinned->rank:1.pinned/65536?bidirectional=true*"]
    with hosts(2) as on:
        run = run_on(on, tmp_path, only, "--rounds", "2", "--precision", "99%")
        sent = int(on[1].run("cat", "/sys/class/net/eth0/statistics/tx_bytes"))
    ranks = run.header.machine["mpi"]["ranks"]
    assert [(one["rank"], one["host"]) for one in ranks] == [(0, "node0"), (1, "node1")]
    assert ranks[0]["process"] != ranks[1]["process"]
    assert len(run.points) == 2
    for point in run.points:
        assert point.verified or too_short(point), (point.id, point.status, point.reason)
    assert sent > 64 * 65536  # the messages took the network


def test_rank_0_keeps_what_was_measured_when_a_rank_of_another_host_is_killed(tmp_path):
    path = tmp_path / "run.jsonl"
    with hosts(2) as on:
        run = run_until_rank_1_is_killed(command(on, tmp_path, *KILLED, "-o", str(path)), path)
    reasons = [point.reason or "" for point in run.points]
    assert any(re.search(r"rank 1 \(process \d+ on node1\) has ended", reason) for reason in reasons), reasons


@only_long
def test_the_rate_of_a_shaped_link_is_found(tmp_path):
    with hosts(2, "tbf", "rate", "100mbit", "burst", "16k", "limit", "400k") as on:
        run = run_on(on, tmp_path, [f"{PING_PONG}/1048576"], "--rounds", "6", "--precision", "2%")
    (point,) = run.points
    payload = 1448 / 1514  # of a full frame of TCP, as tbf counts it
    assert point.median_s is not None
    assert 2 * 1048576 / point.median_s == pytest.approx(100e6 / 8 * payload, rel=0.02), point
