"""The links between rank 0 and the other ranks, within a host and between hosts: how they come about, and end."""

import os
import socket
import subprocess
import sys
import threading
import time

import pytest
from msgspec import structs

from fakes import target
from linkscope.run import links, process
from linkscope.run.launcher import Library
from linkscope.run.links import CannotReach, Listener, NobodyCame, connect
from linkscope.run.meeting import Mpi, Rank, World, rank_places
from linkscope.run.process import Process, WorkerGone
from linkscope.run.ranks import RankWorker, _Remote
from linkscope.run.target import with_ranks

# A worker that meets the others, and answers nothing else.
SILENT = """
import sys
for line in sys.stdin:
    if '"share"' in line:
        print('{"ok":true,"texts":[]}', flush=True)
"""

# Starts a process that lives as long as it does, and says its number.
PARENT = """
import subprocess, sys
with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"]) as child:
    print(child.pid, flush=True)
"""


def rank(number: int) -> Rank:
    return Rank(rank=number, host=f"node{number}", process=100 + number, version="1", cpus=[0], numa="numa:0")


def test_a_rank_that_is_killed_with_unread_requests_is_named():
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    remote = _Remote(rank(1), here, lambda: False)
    remote.send(b'{"op":"run"}\n')
    there.close()  # the kernel then answers ECONNRESET, and not the end of the stream
    with pytest.raises(WorkerGone, match=r"rank 1 \(process 101 on node1\) has ended"):
        remote.answer(300.0)


@pytest.mark.parametrize("here", [True, False])
def test_time_in_which_a_rank_of_this_host_waits_for_a_cpu_does_not_count_as_a_hang(impatient, monkeypatch, here):
    """The answer takes 1.2 s, and its deadline is 0.4 s. The rank's worker waits for a CPU nearly all the time."""
    link, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with subprocess.Popen([sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        waits = {parent.pid: 0.0, worker: 0.999}
        monkeypatch.setattr(process, "cpu_waits", lambda pids: {pid: waits[pid] * time.monotonic() for pid in pids})
        remote = _Remote(structs.replace(rank(1), process=parent.pid), link, never, here=here)
        if here:
            threading.Timer(1.2, lambda: there.sendall(b'{"ok": true}\n')).start()
            assert remote.answer(0.4)[0] == b'{"ok": true}'
        else:
            with pytest.raises(WorkerGone, match=r"no answer within 0\.4 s"):
                remote.answer(0.4)
        parent.communicate()


def test_a_stop_does_not_wait_for_ranks_that_give_no_answer():
    silent = Process([sys.executable, "-c", SILENT], "rank 0", lambda: False)
    world = World(silent, Library("libmpi.so", "a test"), Mpi(0, 1, "MPI", "4.1", "libmpi.so", ""), [rank(0)])
    stop: list[str] = []
    ranks = RankWorker(world, lambda: bool(stop))
    stop.append("asked")
    ranks.finish()
    with pytest.raises(ProcessLookupError):
        os.kill(silent.pid, 0)


def never() -> bool:
    return False


def come_to(listener: Listener, ranks: list[int], *come: tuple[str, int, list[str]]) -> dict[int, socket.socket]:
    """The links of rank 0, when others come with a key and a number, to these addresses."""
    kept = []
    port = listener.port

    def others() -> None:
        kept.extend(connect(key, number, addresses, port) for key, number, addresses in come)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        return listener.come(ranks, 20.0, never)
    finally:
        thread.join()
        for link in kept:
            link.close()


def test_ranks_come_by_a_unix_socket_within_a_host_and_by_tcp_from_others():
    key = os.urandom(8).hex()
    found = come_to(Listener(key, far=True), [1, 2], (key, 1, []), (key, 2, ["127.0.0.1"]))
    assert found[1].family == socket.AF_UNIX and found[2].family in (socket.AF_INET, socket.AF_INET6)
    for link in found.values():
        link.close()


def test_a_stranger_without_the_key_is_refused_and_the_ranks_come(monkeypatch):
    monkeypatch.setattr(links, "_GREETING_LIMIT_S", 0.05)
    key = os.urandom(8).hex()
    listener = Listener(key, far=True)
    here = ["127.0.0.1"]
    with socket.create_connection(("127.0.0.1", listener.port)):  # it says nothing
        found = come_to(listener, [1], ("0" * 16, 1, here), (key, 5, here), (key, 1, here))
    assert list(found) == [1]
    found[1].close()


def test_the_port_for_other_hosts_is_closed_when_all_have_come_and_open_only_for_them():
    key = os.urandom(8).hex()
    assert Listener(key, far=False).port == 0
    key = os.urandom(8).hex()
    listener = Listener(key, far=True)
    port = listener.port
    come_to(listener, [1], (key, 1, ["127.0.0.1"]))[1].close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_rank_that_does_not_come_is_named_after_the_limit_or_a_stop():
    for limit_s, stop in ((0.0, False), (60.0, True)):
        with pytest.raises(NobodyCame) as nobody:
            Listener(os.urandom(8).hex(), far=True).come([2, 1], limit_s, lambda stop=stop: stop)
        assert nobody.value.rank == 1


def test_a_host_that_cannot_be_reached_is_named_with_every_address():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(CannotReach, match=r"127\.0\.0\.1: Connection refused, 255\.255\.255\.255: "):
        connect("key", 1, ["127.0.0.1", "255.255.255.255"], port)
    with pytest.raises(CannotReach, match="Connection refused"):
        connect("nobody listens", 1, [], 0)


def test_a_rank_on_another_host_that_ends_is_noticed_while_others_are_awaited():
    listener = socket.create_server(("127.0.0.1", 0))
    there = socket.create_connection(listener.getsockname())
    far, near = listener.accept()[0], socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ended, awaited = _Remote(rank(2), far, never), _Remote(rank(1), near[0], never)
    awaited.watch([awaited, ended])
    there.close()
    with pytest.raises(WorkerGone, match=r"rank 2 \(process 102 on node2\) has ended"):
        awaited.answer(300.0)
    for one in (listener, near[0], near[1]):
        one.close()


def test_ranks_at_the_same_place_of_two_hosts_are_a_kind_of_their_own():
    places = rank_places([rank(0), rank(1)])
    places[1]["host"] = "another kernel"
    machine = with_ranks(target(), [*places, places[0]], {})
    kinds = machine.facts.kinds()
    assert kinds["rank:0", "rank:1"] == "between ranks of two hosts"
    assert kinds["rank:0", "rank:2"] == "between ranks of one NUMA node"
