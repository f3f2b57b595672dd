"""Ranks of MPI on several hosts: a real mpiexec over networks of this machine (networks.py)."""

import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from campaign import only_long
from fake_driver import needs_worker, too_short
from linkscope.cli.main import main
from linkscope.report.counters import counter_findings
from linkscope.report.nodes import together_of
from linkscope.runfile import Run, read_run
from networks import Host, hosts, hosts_on_two_switches, launch, needs_hosts, two_far_hosts
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


def run_on(
    on: list[Host],
    folder: Path,
    only: list[str],
    *words: str,
    suite: str = "mpi",
    before: Callable[[], None] | None = None,
) -> Run:
    """The complete run of these points, with a rank on each of the hosts. `before`: called in mpiexec's process."""
    path = folder / "run.jsonl"
    globs = [word for id in only for word in ("--only", id.replace("?", "[?]"))]
    words = ("--suite", suite, *globs, "-o", str(path), *words)
    done = subprocess.run(
        command(on, folder, *words), env=without_ranks(), capture_output=True, text=True, timeout=300, preexec_fn=before
    )
    assert path.exists(), done.stderr
    run = read_run(path)
    assert run.end and run.end.complete, done.stderr
    return run


def sent_by(host: Host) -> int:
    """The bytes that the host has sent. /sys shows the devices of this machine in every network, and /proc its own."""
    (line,) = [one for one in host.run("cat", "/proc/net/dev").splitlines() if one.strip().startswith("eth0:")]
    return int(line.partition(":")[2].split()[8])


def test_ranks_on_two_hosts_measure_messages_between_them_and_the_run_file_names_the_hosts(tmp_path):
    only = [f"{PING_PONG}/4096", "rank_rate/mpi/rank:0.pinned->rank:1.pinned/65536?bidirectional=true*"]
    with hosts(2) as on:
        run = run_on(on, tmp_path, only, "--rounds", "2", "--precision", "99%")
        sent = sent_by(on[1])
    ranks = run.header.machine["mpi"]["ranks"]
    assert [(one["rank"], one["host"]) for one in ranks] == [(0, "node0"), (1, "node1")]
    assert ranks[0]["process"] != ranks[1]["process"]
    assert len(run.points) == 2
    for point in run.points:
        assert point.verified or too_short(point), (point.id, point.status, point.reason)
    assert sent > 64 * 65536  # the messages took the network


def test_tasks_of_ranks_on_two_hosts_are_refused_for_want_of_a_common_clock(tmp_path):
    """Both kinds of tasks run for a duration, which ranks with clocks of their own cannot begin and end together."""
    only = ["rank_tasks/mpi/rank:0.*at=both&message=8B&messages=each&sets=1"]
    with hosts(2) as on:
        run = run_on(on, tmp_path, only, "--rounds", "1", "--contexts", "any", suite="sp-8")
    (point,) = run.points
    assert point.status == "unsupported" and "several hosts have no common clock" in (point.reason or ""), (
        point.status,
        point.reason,
    )


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
    for attempt in range(3):  # two busy ranks on two CPUs may make a round of 8 B too noisy for a time
        folder = tmp_path / str(attempt)
        folder.mkdir()
        path = folder / "run.jsonl"
        with hosts(2) as (here, other):
            on = [here, replace(other, ahead_s=3600)]
            words = ["--suite", "nodes", "--local", "check", "--rounds", "1", "-o", str(path)]
            ranks = [*launch(MPIEXEC, on, folder), sys.executable, "-c", CLOCKS, "run", *words]
            done = subprocess.run(ranks, env=without_ranks(), capture_output=True, text=True, timeout=300)
        files = [path, folder / "run-node0.jsonl", folder / "run-node1.jsonl"]
        pairs, *nodes = (read_run(file) for file in files)
        failed = [point for one in (pairs, *nodes) for point in one.points if point.status == "failed"]
        if done.returncode == 0 or all(map(too_short, failed)):
            break
    assert done.returncode == 0 or all(map(too_short, failed)), (done.stderr, [point.reason for point in failed])
    assert "the clock of node1 is 60 min ahead of that of node0" in done.stderr
    assert [one.header.machine["host"] for one in nodes] == ["node0", "node1"]
    for point in pairs.points:
        assert point.verified and (too_short(point) or 0 < (point.median_s or 0.0) < 60), point
    assert len(pairs.points) == 3 and all(one.end and one.end.complete and one.points for one in nodes)
    assert main(["merge", *map(str, files), "-o", str(folder / "all.jsonl")]) == 0
    whole = read_run(folder / "all.jsonl")
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


def test_lost_packets_of_a_far_host_are_said_and_no_latency_is_below_the_delay(tmp_path):
    with two_far_hosts(1e-3, 0.03, 1500) as on:
        run = run_on(on, tmp_path, [f"{PING_PONG}/65536"], "--rounds", "2", "--precision", "99%")
    (point,) = run.points
    # A longer batch may lose less and take no longer than a short one: then the point has no value, and says so.
    assert point.verified and (point.median_s or 1.0) >= 2e-3
    assert point.median_s or "too short for the clock" in point.reason
    counts = run.tcp()
    assert set(counts) == {"node0", "node1"} and sum(of["sent_again"] for of in counts.values()) > 0
    assert any("the network loses packets" in finding.text for finding in counter_findings(run))


def test_nothing_stays_of_a_link_between_hosts_after_a_failure():
    devices = set(os.listdir("/sys/class/net"))
    processes = []
    with pytest.raises(ZeroDivisionError), two_far_hosts(1e-3, 0.0, 1500) as on:
        relays = subprocess.run(["pgrep", "-f", f"relay.py {on[0].holder.pid} "], capture_output=True, text=True)
        processes = [*(one.holder.pid for one in on), *map(int, relays.stdout.split())]
        assert len(processes) >= 3
        1 / 0  # noqa: B018
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
    assert set(os.listdir("/sys/class/net")) == devices


# The other end of a bare program, and the program: half of a round trip of 8 B, in seconds: the lowest median of 20
# blocks, because other work on the machine only adds to a time. Both poll, as ranks do: the
# kernel takes 70 us to wake a program that sleeps.
POLL = """
def come(link):
    while True:
        try:
            return link.recv(8)
        except BlockingIOError:
            pass
"""
ECHO = f"""{POLL}
import socket
listener = socket.create_server(("", 5000))
print("ready", flush=True)
link, _ = listener.accept()
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
link.setblocking(False)
while data := come(link):
    link.sendall(data)
"""
TRIPS = f"""{POLL}
import socket, statistics, sys, time
link = socket.create_connection((sys.argv[1], 5000))
link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
link.setblocking(False)
times = []
for _ in range(2000):
    start = time.perf_counter()
    link.sendall(b"12345678")
    come(link)
    times.append(time.perf_counter() - start)
print(min(statistics.median(times[at : at + 100]) for at in range(0, 2000, 100)) / 2)
"""


def bare_latency(on: list[Host]) -> float:
    """Half of a round trip by TCP between two hosts, in seconds."""
    echo = subprocess.Popen(
        [*on[1].enter, sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True, preexec_fn=ahead_of_others
    )
    try:
        assert echo.stdout is not None and echo.stdout.readline() == "ready\n"
        trips = [*on[0].enter, sys.executable, "-c", TRIPS, on[1].address]
        return float(subprocess.run(trips, check=True, stdout=subprocess.PIPE, preexec_fn=ahead_of_others).stdout)
    finally:
        echo.kill()
        echo.wait()


def ahead_of_others() -> None:
    """Lets this process and its children run before all others of this machine, and the relay before them. Ranks poll,
    and a program that waits for a core measures the other work here, and no link."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def why_not_ahead() -> str:
    try:
        subprocess.run(["true"], preexec_fn=ahead_of_others, check=True)
    except subprocess.SubprocessError:
        return "this user may not run processes before others (SCHED_RR)"
    return ""


needs_to_be_ahead = pytest.mark.skipif(bool(why_not_ahead()), reason=why_not_ahead() or "processes may run first")

# A bucket that holds 4 ms of its rate keeps the rate by its own clock, also if the kernel comes to it some ms late. It
# starts full, with 0.4 % of a message of 128 MiB.
SHAPE = ("tbf", "rate", "1gbit", "burst", "512k", "limit", "4m")


@only_long
@needs_to_be_ahead
def test_the_latency_of_a_far_host_is_that_of_a_bare_program(tmp_path):
    with two_far_hosts(1e-3, 0.0, 65000, *SHAPE) as on:
        before_s = bare_latency(on)
        run = run_on(on, tmp_path, [f"{PING_PONG}/8"], "--rounds", "12", "--precision", "2%", before=ahead_of_others)
        bare_s = min(before_s, bare_latency(on))
    (trips,) = run.points
    lowest_s = min(trips.flows[0].round_medians_s) / 2
    print(f"half a round trip {lowest_s:.6f} s {trips.median_s} {trips.ci95_s}, bare {bare_s:.6f} s")
    assert lowest_s == pytest.approx(bare_s, rel=0.02)


@only_long
def test_the_rate_of_a_far_host_is_that_of_its_link(tmp_path):
    only = ["rank_rate/mpi/rank:0.pageable->rank:1.pageable/134217728?bidirectional=false&window=64"]
    with two_far_hosts(1e-3, 0.0, 65000, *SHAPE) as on:
        run = run_on(on, tmp_path, only, "--rounds", "6", "--precision", "2%")
    (rate,) = run.points
    payload = (65000 - 52) / 65000
    print(f"{rate.gbps} GB/s of {payload / 8}")
    assert rate.gbps == pytest.approx(payload / 8, rel=0.02)


@only_long
def test_a_link_that_loses_one_packet_in_a_hundred_is_measured_and_said(tmp_path):
    only = [f"{PING_PONG}/8", f"{PING_PONG}/1048576"]
    with two_far_hosts(1e-3, 0.01, 1500, "tbf", "rate", "1gbit", "burst", "64k", "limit", "4m") as on:
        run = run_on(on, tmp_path, only, "--rounds", "6", "--precision", "2%")
    shares = {host: of["sent_again"] / of["sent"] for host, of in run.tcp().items()}
    print(f"sent again: {shares}; {run.wall_s:.1f} s; {[(one.bytes, one.median_s, one.ci95_s) for one in run.points]}")
    assert all(0.003 < share < 0.03 for share in shares.values())
    assert any("the network loses packets" in finding.text for finding in counter_findings(run))


@only_long
def test_the_link_that_eight_nodes_share_is_found(tmp_path):
    with hosts_on_two_switches(8, "tbf", "rate", "200mbit", "burst", "64k", "limit", "1m") as on:
        run = run_on(on, tmp_path, [], "--rounds", "6", "--precision", "5%", suite="nodes-shared")
    across = next(one for one in together_of(run.points) if not one.to)
    print(f"{across.gbps:.4f} GB/s {across.interval} of 4 pairs, alone {across.alone_gbps / 4:.4f} GB/s each")
    assert len(across.pairs) == 4 and across.shares and len(across.slowed) == 4
    assert across.gbps == pytest.approx(0.2 / 8 * 1448 / 1514, rel=0.05)


@only_long
def test_the_rate_of_a_shaped_link_is_found(tmp_path):
    with hosts(2, "tbf", "rate", "100mbit", "burst", "16k", "limit", "400k") as on:
        run = run_on(on, tmp_path, [f"{PING_PONG}/1048576"], "--rounds", "6", "--precision", "2%")
    (point,) = run.points
    payload = 1448 / 1514  # of a full frame of TCP, as tbf counts it
    assert point.median_s is not None
    assert 2 * 1048576 / point.median_s == pytest.approx(100e6 / 8 * payload, rel=0.02), point
