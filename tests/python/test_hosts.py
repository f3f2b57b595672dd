"""Ranks of MPI on several hosts: a real mpiexec over networks of this machine (networks.py)."""

import itertools
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from campaign import only_long
from fake_driver import needs_worker, too_short
from linkscope.cli.main import main
from linkscope.runfile import Run, read_run
from networks import Host, hosts, launch, needs_hosts
from test_ranks import (
    KILLED,
    LINKSCOPE,
    MPIEXEC,
    ended,
    needs_mpi,
    run_until_rank_1_is_killed,
    wait_for_a_round,
    without_ranks,
)

pytestmark = [needs_worker, needs_mpi, needs_hosts]

PING_PONG = "rank_ping_pong/mpi/rank:0.pageable->rank:1.pageable"


def command(on: list[Host], folder: Path, *words: str) -> list[str]:
    return [*launch(MPIEXEC, on, folder), *LINKSCOPE, "run", *words]


def run_on(on: list[Host], folder: Path, only: list[str], *words: str, suite: str = "mpi") -> Run:
    """The complete run of these points, with a rank on each of the hosts."""
    path = folder / "run.jsonl"
    globs = [word for id in only for word in ("--only", id.replace("?", "[?]"))]
    words = ("--suite", suite, *globs, "-o", str(path), *words)
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


# The clock of node1 is an hour ahead, also its time of day.
CLOCKS = (
    "import os, sys, time; now = time.time; ahead_s = 3600 * (os.uname().nodename == 'node1'); "
    "time.time = lambda: now() + ahead_s; from linkscope.cli.main import main; sys.exit(main())"
)


def test_nodes_with_clocks_an_hour_apart_measure_themselves_and_each_other_and_their_files_become_one(tmp_path):
    path = tmp_path / "run.jsonl"
    with hosts(2) as (here, other):
        on = [here, replace(other, ahead_s=3600)]
        words = ["--suite", "nodes", "--local", "check", "--rounds", "1", "-o", str(path)]
        ranks = [*launch(MPIEXEC, on, tmp_path), sys.executable, "-c", CLOCKS, "run", *words]
        done = subprocess.run(ranks, env=without_ranks(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "the clock of node1 is 60 min ahead of that of node0" in done.stderr
    files = [path, tmp_path / "run-node0.jsonl", tmp_path / "run-node1.jsonl"]
    pairs, *nodes = (read_run(file) for file in files)
    assert [one.header.machine["host"] for one in nodes] == ["node0", "node1"]
    for point in pairs.points:
        assert point.verified and point.median_s is not None and 0 < point.median_s < 60, point
    assert len(pairs.points) == 3 and all(one.end and one.end.complete and one.points for one in nodes)
    assert main(["merge", *map(str, files), "-o", str(tmp_path / "all.jsonl")]) == 0
    whole = read_run(tmp_path / "all.jsonl")
    assert len(whole.points) == 3 + sum(len(one.points) for one in nodes)
    assert "host:1/gpu:0" in whole.header.machine["places"] and whole.end and whole.end.complete
    of_ranks = whole.header.machine["mpi"]["ranks"]
    assert [(one["rank"], one["host"], one["gpu"]) for one in of_ranks] == [
        (0, "node0", "gpu:0"),
        (1, "node1", "gpu:0"),
    ]


def test_three_nodes_measure_every_pair_and_what_the_pairs_share(tmp_path):
    with hosts(3) as on:
        run = run_on(on, tmp_path, [], "--rounds", "1", suite="nodes")
        shared = run_on(on, tmp_path, [], "--rounds", "1", "--force", suite="nodes-shared")
    assert {(of.src, of.dst) for point in run.points for of in point.flows} == set(
        itertools.permutations(("rank:0", "rank:1", "rank:2"), 2)
    )
    assert all(point.verified for point in (*run.points, *shared.points))
    inwards = [point for point in shared.points if point.params.get("with") == "rank:2->rank:0"]
    assert [of.bytes for of in inwards[0].flows if of.role == "measured"] == [4 << 20, 4 << 20]


@only_long
def test_a_host_that_vanishes_is_named(tmp_path):
    path = tmp_path / "run.jsonl"
    with hosts(2) as on:
        started = subprocess.Popen(command(on, tmp_path, *KILLED, "-o", str(path)), env=without_ranks())
        try:
            wait_for_a_round(path, started)
            on[1].run("ip", "link", "set", "eth0", "down")
            gone = time.monotonic()
            run = ended(path)
            print(f"named {time.monotonic() - gone:.1f} s after its link went down")
        finally:
            started.kill()
            started.wait()
    reasons = [point.reason or "" for point in run.points]
    assert any("rank 1 (process" in reason and "on node1" in reason for reason in reasons), reasons


@only_long
def test_the_rate_of_a_shaped_link_is_found(tmp_path):
    with hosts(2, "tbf", "rate", "100mbit", "burst", "16k", "limit", "400k") as on:
        run = run_on(on, tmp_path, [f"{PING_PONG}/1048576"], "--rounds", "6", "--precision", "2%")
    (point,) = run.points
    payload = 1448 / 1514  # of a full frame of TCP, as tbf counts it
    assert point.median_s is not None
    assert 2 * 1048576 / point.median_s == pytest.approx(100e6 / 8 * payload, rel=0.02), point
