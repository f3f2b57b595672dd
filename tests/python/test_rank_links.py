"""The link between rank 0 and another rank: whatever ends it, rank 0 names the rank and goes on to its last record."""

import os
import socket
import sys

import pytest

from linkscope.run.launcher import Library
from linkscope.run.process import Process, WorkerGone
from linkscope.run.ranks import Mpi, Rank, RankWorker, World, _Remote

# A worker that meets the others, and answers nothing else.
SILENT = """
import sys
for line in sys.stdin:
    if '"share"' in line:
        print('{"ok":true}', flush=True)
"""


def rank(number: int) -> Rank:
    return Rank(rank=number, host=f"node{number}", process=100 + number, version="1", cpus=[0])


def test_a_rank_that_is_killed_with_unread_requests_is_named():
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    remote = _Remote(rank(1), here, lambda: False)
    remote.send(b'{"op":"run"}\n')
    there.close()  # the kernel then answers ECONNRESET, and not the end of the stream
    with pytest.raises(WorkerGone, match=r"rank 1 \(process 101 on node1\) has ended"):
        remote.answer(5.0)


def test_a_stop_does_not_wait_for_ranks_that_give_no_answer():
    silent = Process([sys.executable, "-c", SILENT], "rank 0", lambda: False)
    world = World(silent, Library("libmpi.so", "a test"), Mpi(0, 1, "MPI", "4.1", "libmpi.so", ""), [rank(0)])
    stop: list[str] = []
    ranks = RankWorker(world, lambda: bool(stop))
    stop.append("asked")
    ranks.finish()
    with pytest.raises(ProcessLookupError):
        os.kill(silent.pid, 0)
