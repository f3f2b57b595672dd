"""Ranks of MPI. Each rank has a worker, which calls MPI. Rank 0 plans and writes the run file; the others pass requests
from rank 0 to their workers, over a socket (links.py) whose key the workers share through MPI (meeting.py).

A round has fresh allocations, but the same processes.
"""

import contextlib
import os
import select
import socket
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from linkscope.errors import FINE, SOMETHING_FAILED, STOPPED_EARLY, UserError
from linkscope.run import local_suite
from linkscope.run.answers import Trace
from linkscope.run.contexts import Contexts
from linkscope.run.links import CannotReach, Listener, NobodyCame, connect, own_tcp_counts
from linkscope.run.meeting import LEAVE_LIMIT_S, START_LIMIT_S, Rank, Ready, World, several_hosts
from linkscope.run.process import Interrupted, Process, RequestFailed, WorkerGone
from linkscope.run.worker import OPEN_LIMIT_S, Worker
from linkscope.run.workers import CannotStart, Workers

# A rank polls without a pause. On a busy core, another rank waits for its turn with each message.
_BUSY_LIMIT_S = 60.0
_END = b'{"op":"end_mpi"}\n'
_STATE = b'{"op":"state"}\n'  # answered by the process that passes requests on
_STATE_LIMIT_S = 2.0
_STOPPED = ("T", "t")  # states in /proc


# --- the other ranks --------------------------------------------------------------------------------------------------


def follow(world: World) -> int:
    """Passes requests from rank 0 to this rank's worker, and answers back, until rank 0 closes the socket. Returns an
    exit code."""
    number = world.rank
    first, own = world.ranks[0], world.ranks[number]
    try:
        shared = world.share("ready")
    except (WorkerGone, RequestFailed) as problem:
        raise UserError(f"rank {number}: {problem}", SOMETHING_FAILED) from None
    ready = msgspec.json.decode(shared[0], type=Ready)
    if ready.ends:
        world.leave()
        if not ready.ends[0]:
            return FINE
        raise UserError(f"rank {number}: rank 0 on {first.host} refuses the run", ready.ends[1])
    addresses = first.addresses if first.network != own.network else []
    try:
        with connect(first.meeting, number, addresses, ready.port) as link:
            if ended := _pass_on(link, world.process):
                world.process.leave(LEAVE_LIMIT_S)
    except WorkerGone as gone:  # its name has the rank
        raise UserError(str(gone), SOMETHING_FAILED) from None
    except (OSError, CannotReach) as problem:
        raise UserError(
            f"rank {number} on {own.host} cannot reach rank 0 on {first.host}: {problem}", SOMETHING_FAILED
        ) from None
    finally:
        world.process.kill()
    if not ended:
        raise UserError(f"rank {number}: rank 0 has ended", SOMETHING_FAILED)
    return 0


def _pass_on(link: socket.socket, process: Process) -> bool:
    """Returns whether rank 0 ended the run. Raises WorkerGone if the worker of this rank ends before that."""
    ended = False
    watched = select.poll()
    watched.register(link, select.POLLIN)
    watched.register(process.output, select.POLLIN)
    while True:
        for file, _ in watched.poll():
            if file == link.fileno():
                try:
                    data = link.recv(1 << 20)
                except OSError:  # rank 0 was killed with unread answers, or its host does not answer
                    data = b""
                if not data:
                    return ended
                ended = ended or data.endswith(_END)
                if data.startswith(local_suite.MEASURE):
                    ran = local_suite.measure(data, lambda: local_suite.is_closed(link))
                    link.sendall(msgspec.json.encode(ran) + b"\n")
                elif data == _STATE:
                    told = {"ok": True, "state": _state(process.pid), "tcp": own_tcp_counts()}
                    link.sendall(msgspec.json.encode(told) + b"\n")
                else:
                    process.send(data)
            elif data := os.read(process.output, 1 << 20):
                link.sendall(data)
            elif ended:
                return True
            else:
                raise process.died()


def _state(pid: int) -> str:
    """Returns the state of a process of this host, as /proc has it; '' if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def _children(pid: int) -> list[int]:
    """Returns the numbers of the processes that a process of this host has started; none where /proc does not say."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += map(int, path.read_text().split())
    return found


# --- rank 0 -----------------------------------------------------------------------------------------------------------


class _Remote(Process):
    """The worker of another rank, by way of the process that passes requests on."""

    def __init__(self, rank: Rank, link: socket.socket, stop_asked: Callable[[], bool], *, here: bool = False) -> None:
        """`here`: whether the rank is of this host."""
        self._link = link
        self._rank = rank
        self._here = here
        self._use(f"rank {rank.rank}", link.fileno(), link.fileno(), stop_asked)

    @property
    def pid(self) -> int:
        return self._rank.process

    @property
    def pids_here(self) -> tuple[int, ...]:
        """The process that passes requests on, and its worker."""
        return (self.pid, *_children(self.pid)) if self._here else ()

    def end(self) -> None:
        self._link.close()

    def kill(self) -> bool:
        self._link.close()
        return True

    def died(self) -> WorkerGone:
        self._link.close()
        return WorkerGone(f"{self.full_name} has ended")

    @property
    def host(self) -> str:
        """The name of its host."""
        return self._rank.host

    @property
    def full_name(self) -> str:
        """The rank with its process and its host."""
        return f"{self.name} (process {self._rank.process} on {self._rank.host})"

    def told(self, deadline: float) -> dict[str, Any] | None:
        """Returns the answer to a request for the state of the rank's worker; None without one.

        Late answers of the worker may come before.
        """
        text = b""
        while (left := deadline - time.monotonic()) > 0:
            try:
                if not select.select([self._link], [], [], left)[0] or not (data := self._link.recv(1 << 16)):
                    return None
            except (OSError, ValueError):  # the connection was lost, or is closed
                return None
            text += data
            for line in text.splitlines():
                if line.startswith(b'{"ok":true,"state":') and line.endswith(b"}"):
                    found: dict[str, Any] = msgspec.json.decode(line)
                    return found
        return None


class RankWorker(Worker):
    """The workers of all ranks. Rank 0 prepares and runs its part itself."""

    def __init__(self, world: World, stop_asked: Callable[[], bool]) -> None:
        world.process.stop_asked = stop_asked
        self._stop_asked = stop_asked
        self._ranks = world.ranks
        self._use(world.process, self._others(world, stop_asked))
        for process in self._all:
            process.explain_hang = self._who_is_stopped
        self.why_gone = ""
        self._ports = self._ports_for_peers()
        self._last_tcp_counts: dict[str, dict[str, int]] = {}

    @staticmethod
    def _others(world: World, stop_asked: Callable[[], bool]) -> list[Process]:
        """Waits for the connections of the other ranks."""
        ranks = world.ranks
        listener = Listener(ranks[0].meeting, far=several_hosts(ranks))
        world.share(msgspec.json.encode(Ready(listener.port)).decode())
        try:
            links = listener.come(range(1, len(ranks)), START_LIMIT_S, stop_asked)
        except NobodyCame as nobody:
            missing = ranks[nobody.rank]
            if stop_asked():
                raise UserError(f"stopped before rank {missing.rank} on {missing.host} came", STOPPED_EARLY) from None
            raise UserError(
                f"rank {missing.rank} on {missing.host} does not join within {START_LIMIT_S:.0f} s", SOMETHING_FAILED
            ) from None
        own = ranks[0].network
        return [
            _Remote(ranks[number], links[number], stop_asked, here=ranks[number].network == own)
            for number in sorted(links)
        ]

    def _ports_for_peers(self) -> list[int]:
        """Returns the port at which each rank's worker awaits those of other hosts; none on one host."""
        if not several_hosts(self._ranks):
            return []
        try:
            answers = self._ask_all(self._all, b'{"op":"listen"}\n', _BUSY_LIMIT_S)
        except (WorkerGone, RequestFailed) as problem:
            raise UserError(str(problem), SOMETHING_FAILED) from None
        return [msgspec.json.decode(line)["port"] for line, _ in answers]

    def _seen_by(self, process: int, processes: int) -> dict[str, Any]:
        if not self._ports:
            return {}
        own = self._ranks[process]
        return {
            "addresses": [
                [f"{address}:{port}" for address in other.addresses] if other.network != own.network else []
                for other, port in zip(self._ranks[:processes], self._ports[:processes], strict=True)
            ]
        }

    def _run_together(self, line: bytes, limit_s: float) -> Trace:
        """Ranks of one host have one clock. A rank that starts before the others waits for them, which is no part of
        its operations."""
        trace = super()._run_together(line, limit_s)
        return trace if several_hosts(self._ranks) else trace.from_last_entry()

    def measure_nodes(self, file_of: Callable[[str], str], words: Sequence[str]) -> list[local_suite.NodeRun]:
        """Lets the first rank of each host measure its host by `linkscope run` with these words, all at once.

        `file_of`: the run file of a host. Raises Interrupted after a stop, and WorkerGone if a rank ends.
        """
        own = self._ranks[0]
        others = {one.network: one for one in reversed(self._ranks) if one.network != own.network}
        chosen = sorted(others.values(), key=lambda one: one.rank)
        for one in chosen:
            self._peers[one.rank - 1].send(local_suite.request(one.host, file_of(one.host), words))
        here = local_suite.measure(local_suite.request(own.host, file_of(own.host), words), self._stop_asked)
        if self._stop_asked():
            raise Interrupted
        lines = [self._peers[one.rank - 1].answer(local_suite.REST_LIMIT_S)[0] for one in chosen]
        return [here, *(msgspec.json.decode(line, type=local_suite.NodeRun) for line in lines)]

    def _who_is_stopped(self) -> str:
        """Names the ranks that cannot answer. The others wait for them in MPI, and are not at fault."""
        found = [f"rank 0 (process {self._first.pid}) is stopped"] if _state(self._first.pid) in _STOPPED else []
        for other, told in self._states():
            if told is None:
                found.append(f"{other.full_name} does not react")
            elif told["state"] in _STOPPED:
                found.append(f"the worker of {other.full_name} is stopped")
        return f", because {', '.join(found)}" if found else ""

    def _states(self) -> list[tuple[_Remote, dict[str, Any] | None]]:
        """Asks the processes that pass requests on, all at once; they answer while their workers are in MPI."""
        asked = []
        for other in self._peers:
            assert isinstance(other, _Remote)
            with contextlib.suppress(WorkerGone):
                other.send(_STATE)
                asked.append(other)
        deadline = time.monotonic() + _STATE_LIMIT_S
        return [(other, other.told(deadline)) for other in asked]

    def tcp_counts(self) -> dict[str, dict[str, int]]:
        """Returns the segments that TCP has sent, and sent again, by host. Without hosts that do not answer. {} on one
        host, whose messages take no network. Of ranks that have ended, what they sent until then."""
        if not self._ports or self.why_gone:
            return self._last_tcp_counts
        found = {self._ranks[0].host: own_tcp_counts()}
        for other, told in self._states():
            if told and told["tcp"]:
                found.setdefault(other.host, told["tcp"])
        return found

    def ask_to_open(self, request: dict[str, Any]) -> None:
        """Sends the request to all ranks."""
        self._drop_unread_run()
        self._kill_peers()
        self._opened = request
        line = msgspec.json.encode({"op": "open", **request}) + b"\n"
        for process in self._all:
            process.send(line)

    def opened(self) -> dict[str, Any]:
        """Returns rank 0's answer, when all have opened their machines."""
        answers: list[dict[str, Any]] = [msgspec.json.decode(one.answer(OPEN_LIMIT_S)[0]) for one in self._all]
        return answers[0]

    def _ask_all(
        self, processes: Sequence[Process], lines: bytes | Sequence[bytes], limit_s: float
    ) -> list[tuple[bytes, bytes]]:
        return super()._ask_all(processes, lines, max(limit_s, _BUSY_LIMIT_S))

    def finish(self) -> None:
        """Leaves MPI in all ranks, and ends their workers."""
        if not self.why_gone:
            try:
                self._leave_mpi()
            except Interrupted:
                pass  # they get no time to answer
            except (WorkerGone, RequestFailed) as problem:
                why = f"the ranks did not end as they should: {problem}; what was measured is kept"
                print(f"linkscope: warning: {why}", file=sys.stderr)
        self.kill()

    def _leave_mpi(self) -> None:
        """Ends the last program and then MPI in all ranks. MPI ends even if the program did not end well."""
        failure: RequestFailed | None = None
        self._drop_unread_run()
        try:
            self._release_together()
        except RequestFailed as problem:
            failure = problem
        self._last_tcp_counts = self.tcp_counts()
        self._ask_all(self._all, _END, _BUSY_LIMIT_S)
        self._first.leave(LEAVE_LIMIT_S)
        if failure:
            raise failure

    def note(self, gone: WorkerGone) -> WorkerGone:
        """Remembers why the ranks cannot go on."""
        self.why_gone = self.why_gone or str(gone)
        return gone

    @property
    def _all(self) -> list[Process]:
        return [self._first, *self._peers]

    def _meet(self, processes: int) -> list[Process]:
        together = self._all[:processes]
        self._join(together)
        return together

    def _kill_peers(self) -> None:
        """The ranks live on; they meet anew for the next program."""
        self._together, self._acting, self._joined = [], [], 1


class RankWorkers(Workers):
    """Hands out the workers of the ranks. They cannot be replaced: a fresh round opens the machine anew in them."""

    def __init__(self, worker: RankWorker, open_request: dict[str, Any], contexts: Contexts | None = None) -> None:
        super().__init__([], open_request, lambda: False, contexts)
        self._ranks = worker
        self._opened = 0  # how often the machine was opened

    def get(self) -> Worker:
        if self._ranks.why_gone:
            raise CannotStart(self._ranks.why_gone)
        if self._worker is None:
            try:
                self._record_contexts(self._ranks.open(self._request()))
            except (WorkerGone, RequestFailed) as problem:
                anew = f"opened anew after pass {self._opened}" if self._opened else "opened"
                self._ranks.why_gone = f"{problem}; the machine was being {anew}"
                raise CannotStart(self._ranks.why_gone) from None
            self._opened += 1
            self._worker = self._ranks
        return self._worker

    def replace(self) -> bool:
        self._worker = None  # get() opens it anew
        return True

    renew = replace

    def drop(self) -> bool:
        self._ranks.finish()
        self._ranks.why_gone = self._ranks.why_gone or "the ranks have ended"
        return True

    def gone(self, gone: WorkerGone) -> None:
        self._ranks.note(gone)
        self.forget()
