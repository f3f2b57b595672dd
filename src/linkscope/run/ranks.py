"""Ranks of MPI. Each rank has a worker, which calls MPI. Rank 0 plans and writes the run file; the others pass requests
from rank 0 to their workers, over a socket (links.py) whose key the workers share through MPI.

MPI can be initialized once in a process that a launcher started. So the workers live as long as the run: a round has
fresh allocations, but the same processes.
"""

import os
import secrets
import select
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

import linkscope
from linkscope.errors import NOT_HERE, SOMETHING_FAILED, UserError
from linkscope.run.contexts import Contexts
from linkscope.run.launcher import CHOICE, Launched, Library, inherited_descriptors, libraries
from linkscope.run.links import CannotReach, Listener, NobodyCame, connect, own_addresses, own_network
from linkscope.run.process import Interrupted, Process, RequestFailed, WorkerGone
from linkscope.run.worker import OPEN_LIMIT_S, Worker, worker_command
from linkscope.run.workers import CannotStart, Workers

_START_LIMIT_S = 60.0  # for all ranks to come
# A rank polls without a pause. On a busy core, another rank waits for its turn with each message.
_BUSY_LIMIT_S = 60.0
_LEAVE_LIMIT_S = 5.0  # a library tells the launcher when its process ends; one that is killed has failed
_END = b'{"op":"end_mpi"}\n'
_PRIVATE = ("version", "meeting", "network", "addresses")  # not for the run file
_CURE = f"{CHOICE}=/path/to/libmpi.so names the library that belongs to the mpiexec in use"


class Mpi(msgspec.Struct):
    """What the library says about itself (docs/reference/worker.md)."""

    rank: int
    size: int
    library: str
    standard: str
    path: str
    why_not_gpu: str


class Rank(msgspec.Struct):
    """One rank, as it goes into the run file. `numa`, `gpu`: its places on its host. `cpus`: that it may use.
    `addresses`: of its host. Ranks with equal `network` meet by Unix sockets."""

    rank: int
    host: str
    process: int
    version: str
    cpus: list[int]
    numa: str = ""
    gpu: str | None = None
    gpu_uuid: str | None = None
    meeting: str = ""
    network: str = ""
    addresses: list[str] = []


@dataclass(frozen=True)
class World:
    """All ranks, as one of them knows them. `process`: its worker, in which MPI is initialized."""

    process: Process
    library: Library
    mpi: Mpi
    ranks: list[Rank]


def own_rank(here: Launched, numa: Sequence[tuple[str, Sequence[int]]], gpus: Sequence[dict[str, Any]]) -> Rank:
    """Returns this rank. `numa`: the CPUs of each NUMA node; `gpus`: as the probe has them. A rank has the GPU of its
    number on the host, and the NUMA node that has most of its CPUs; of equal ones that next to the GPU."""
    cpus = sorted(os.sched_getaffinity(0))
    gpu = gpus[here.local % len(gpus)] if gpus else None
    near = f"numa:{gpu['numa']}" if gpu and gpu.get("numa") is not None else ""
    most = max(numa, key=lambda node: (len(set(node[1]) & set(cpus)), node[0] == near), default=("numa:0", ()))
    return Rank(
        rank=here.rank, host=os.uname().nodename, process=os.getpid(), version=linkscope.__version__, cpus=cpus,
        numa=most[0], gpu=f"gpu:{gpu['index']}" if gpu else None, gpu_uuid=gpu.get("uuid") if gpu else None,
        network=own_network(), addresses=own_addresses(),
    )  # fmt: skip


def start(here: Launched, own: Rank, stop_asked: Callable[[], bool] = lambda: False) -> World:
    """Starts this rank's worker with MPI, and meets the others. Raises UserError if the ranks do not fit together."""
    process, library, mpi = _initialized(here, stop_asked)
    try:
        if mpi.size != here.size:
            raise UserError(
                f"two MPIs are mixed up: {here.launcher} started {here.size} ranks, and {mpi.path} ({mpi.library}) "
                f"knows of {mpi.size}; {_CURE}"
            )
        own.rank = mpi.rank
        own.meeting = secrets.token_hex(16)
        text = msgspec.json.encode(own).decode()
        answer = _ask(process, {"op": "share", "text": text}, _START_LIMIT_S)
        ranks = [msgspec.json.decode(one, type=Rank) for one in answer["texts"]]
        _check_alike(ranks)
    except (WorkerGone, RequestFailed) as problem:
        raise UserError(f"rank {here.rank}: {problem}", SOMETHING_FAILED) from None
    return World(process, library, mpi, ranks)


def _check_alike(ranks: Sequence[Rank]) -> None:
    first = ranks[0]
    for other in ranks[1:]:
        if other.version != first.version:
            raise UserError(
                f"rank {other.rank} on {other.host} has linkscope {other.version}, and rank 0 has {first.version}: "
                "install one version everywhere"
            )


def _initialized(here: Launched, stop_asked: Callable[[], bool]) -> tuple[Process, Library, Mpi]:
    """Starts a worker with the first library that can be loaded."""
    problem = "no library was found"
    for library in libraries():
        process = Process(worker_command(), f"rank {here.rank}", stop_asked, inherited_descriptors())
        try:
            mpi = msgspec.convert(_ask(process, {"op": "mpi", "library": library.name}, _START_LIMIT_S)["mpi"], Mpi)
            return process, library, mpi
        except RequestFailed as failure:
            process.kill()
            problem = str(failure)
            if failure.kind != "unsupported":
                break
        except WorkerGone as gone:
            problem = str(gone)
            break
    raise UserError(f"rank {here.rank} cannot start MPI: {problem}; {_CURE}", NOT_HERE)


def _ask(process: Process, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
    process.send(msgspec.json.encode(request) + b"\n")
    answer: dict[str, Any] = msgspec.json.decode(process.answer(limit_s)[0])
    return answer


# --- the other ranks --------------------------------------------------------------------------------------------------


def follow(world: World) -> int:
    """Passes requests from rank 0 to this rank's worker, and answers back, until rank 0 closes the socket. Returns an
    exit code."""
    number = world.mpi.rank
    first, own = world.ranks[0], world.ranks[number]
    shared = _ask(world.process, {"op": "share", "text": "ready"}, _START_LIMIT_S)  # rank 0 listens
    addresses = first.addresses if first.network != own.network else []
    try:
        with connect(first.meeting, number, addresses, int(shared["texts"][0])) as link:
            if ended := _pass_on(link, world.process):
                world.process.leave(_LEAVE_LIMIT_S)
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
    """Returns whether rank 0 ended the run."""
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
                process.send(data)
            elif data := os.read(process.output, 1 << 20):
                link.sendall(data)
            else:
                return ended


# --- rank 0 -----------------------------------------------------------------------------------------------------------


class _Remote(Process):
    """The worker of another rank, by way of the process that passes requests on."""

    def __init__(self, rank: Rank, link: socket.socket, stop_asked: Callable[[], bool]) -> None:
        self._link = link
        self._rank = rank
        self._use(f"rank {rank.rank}", link.fileno(), link.fileno(), stop_asked)

    @property
    def pid(self) -> int:
        return self._rank.process

    def end(self) -> None:
        self._link.close()

    def kill(self) -> bool:
        self._link.close()
        return True

    def _died(self) -> WorkerGone:
        self._link.close()
        return WorkerGone(f"{self.name} (process {self._rank.process} on {self._rank.host}) has ended")


class RankWorker(Worker):
    """The workers of all ranks. Rank 0 prepares and runs its part itself."""

    def __init__(self, world: World, stop_asked: Callable[[], bool]) -> None:
        world.process.stop_asked = stop_asked
        self._stop_asked = stop_asked
        self._ranks = world.ranks
        self._use(world.process, self._others(world, stop_asked))
        self.why_gone = ""
        self._ports = self._ports_for_peers()

    @staticmethod
    def _others(world: World, stop_asked: Callable[[], bool]) -> list[Process]:
        """Waits for the connections of the other ranks."""
        ranks = world.ranks
        listener = Listener(ranks[0].meeting, far=_several_hosts(ranks))
        _ask(world.process, {"op": "share", "text": str(listener.port)}, _START_LIMIT_S)
        try:
            links = listener.come(range(1, len(ranks)), _START_LIMIT_S, stop_asked)
        except NobodyCame as nobody:
            missing = ranks[nobody.rank]
            raise UserError(f"rank {missing.rank} on {missing.host} does not come", SOMETHING_FAILED) from None
        return [_Remote(ranks[number], links[number], stop_asked) for number in sorted(links)]

    def _ports_for_peers(self) -> list[int]:
        """Returns the port at which each rank's worker awaits those of other hosts; none on one host."""
        if not _several_hosts(self._ranks):
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
                self._drop_unread_run()
                self._release_together()
                self._ask_all(self._all, _END, _BUSY_LIMIT_S)
                self._first.leave(_LEAVE_LIMIT_S)
            except (WorkerGone, RequestFailed, Interrupted):
                pass  # they are killed; after a stop they get no time to answer
        self.kill()

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

    def get(self) -> Worker:
        if self._ranks.why_gone:
            raise CannotStart(self._ranks.why_gone)
        if self._worker is None:
            try:
                self._record_contexts(self._ranks.open(self._request()))
            except (WorkerGone, RequestFailed) as problem:
                self._ranks.why_gone = str(problem)
                raise CannotStart(str(problem)) from None
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


def _several_hosts(ranks: Collection[Rank]) -> bool:
    return len({one.network for one in ranks}) > 1


def rank_places(ranks: Collection[Rank]) -> list[dict[str, str]]:
    """Returns the places of each rank, as cases have them (docs/reference/worker.md), and what tells hosts apart."""
    return [{"numa": one.numa, "host": one.network} | ({"gpu": one.gpu} if one.gpu else {}) for one in ranks]


def in_run_file(world: World, here: Launched) -> dict[str, Any]:
    """Returns what the run file says about MPI and the ranks."""
    mpi = world.mpi
    ranks = [{k: v for k, v in msgspec.to_builtins(one).items() if k not in _PRIVATE} for one in world.ranks]
    return {
        "launcher": here.launcher, "library": mpi.library, "standard": mpi.standard, "path": mpi.path,
        "found": world.library.found, "why_not_gpu": mpi.why_not_gpu, "ranks": ranks,
    }  # fmt: skip
