"""How ranks meet: each starts a worker with MPI, and all share who they are. Tasks that Slurm started without a PMI
meet without MPI (slurm.py), and their messages are of UCX.

MPI can be initialized once in a process that a launcher started. So these workers live as long as the run.
"""

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

import linkscope
from linkscope.errors import FINE, NOT_HERE, SOMETHING_FAILED, UserError
from linkscope.run import nixl
from linkscope.run.launcher import CHOICE, Launched, Library, inherited_descriptors, libraries
from linkscope.run.links import own_addresses, own_network
from linkscope.run.process import Process, RequestFailed, WorkerGone
from linkscope.run.slurm import CURE, Table, without_pmi
from linkscope.run.worker import worker_command

START_LIMIT_S = 60.0  # for all ranks to come
LEAVE_LIMIT_S = 5.0  # a library tells the launcher when its process ends; one that is killed has failed
_CLOCKS_DIFFER_S = 120.0  # ranks start within this time
_PRIVATE = ("version", "meeting", "network", "addresses", "refusal", "clock_s")  # not for the run file
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
    `addresses`: of its host. Ranks with equal `network` meet by Unix sockets. `refusal`: why this rank ends the run,
    with its exit code. `clock_s`: its time of day when it came."""

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
    refusal: tuple[str, int] | None = None
    clock_s: float = 0.0


class Ready(msgspec.Struct):
    """What rank 0 tells the others once its plan is made: the port for links to it, or how the run ends."""

    port: int
    ends: tuple[str, int] | None = None


@dataclass(frozen=True)
class World:
    """All ranks, as one of them knows them. `process`: its worker, in which MPI is initialized. `library`, `mpi`: None
    where ranks meet at a `table` without MPI."""

    process: Process
    library: Library | None
    mpi: Mpi | None
    ranks: list[Rank]
    table: Table | None = None

    @property
    def rank(self) -> int:
        """The number of this rank."""
        return self.mpi.rank if self.mpi else self.table.rank if self.table else 0

    def share(self, text: str) -> list[str]:
        """Returns the texts of all ranks, in order. All ranks call this."""
        if self.table:
            return self.table.share(text)
        answer = ask(self.process, {"op": "share", "text": text}, START_LIMIT_S)
        return [str(one) for one in answer["texts"]]

    def leave(self) -> None:
        """Ends this rank's worker, together with the others."""
        if self.table:
            self.table.leave()
        ask(self.process, {"op": "end_mpi"}, LEAVE_LIMIT_S)
        self.process.leave(LEAVE_LIMIT_S)


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
    here.stage = "meeting"
    world = _met(here, stop_asked)
    try:
        if (mpi := world.mpi) and mpi.size != here.size:
            raise UserError(
                f"two MPIs are mixed up: {here.launcher} started {here.size} ranks, and {mpi.path} ({mpi.library}) "
                f"knows of {mpi.size}; {_CURE}"
            )
        own.rank = world.rank
        own.meeting = secrets.token_hex(16)
        world.ranks[:] = _shared(world, own)
        if refuses := next((one for one in world.ranks if one.refusal), None):
            world.leave()
            assert refuses.refusal is not None
            text, code = refuses.refusal
            why = f"rank {refuses.rank} on {refuses.host} {'refuses' if code else 'ends'} the run"
            raise UserError(f"rank {own.rank}: {why}" if own.rank else f"{why}: {text}", code)
        if unlike := _unlike(world.ranks):
            world.leave()  # every rank finds it: a launcher would kill those that have not ended yet
            raise UserError(unlike)
    except (WorkerGone, RequestFailed) as problem:
        raise UserError(f"rank {here.rank}: {problem}", SOMETHING_FAILED) from None
    here.stage = "met"
    return world


def refuse(here: Launched, mistake: UserError | None) -> None:
    """Tells the other ranks that this one ends the run before they have met. They would wait for it otherwise. None:
    nothing is left to measure."""
    here.stage = "meeting"
    own = own_rank(here, [], [])
    own.refusal = (str(mistake), mistake.exit_code) if mistake else ("", FINE)
    with contextlib.suppress(UserError, WorkerGone, RequestFailed):
        world = _met(here, lambda: False)
        own.rank = world.rank
        _shared(world, own)
        world.leave()


def dismiss(world: World, mistake: UserError | None) -> None:
    """Ends the run of ranks that have met, before they have links to rank 0, which calls this. None: without error."""
    ends = Ready(0, (str(mistake), mistake.exit_code) if mistake else ("", FINE))
    with contextlib.suppress(UserError, WorkerGone, RequestFailed):
        world.share(msgspec.json.encode(ends).decode())
        world.leave()


def _shared(world: World, own: Rank) -> list[Rank]:
    """Returns all ranks, each as it describes itself."""
    own.clock_s = time.time()
    return [msgspec.json.decode(one, type=Rank) for one in world.share(msgspec.json.encode(own).decode())]


def clocks_that_differ(ranks: Sequence[Rank]) -> list[str]:
    """Returns a sentence for each host whose clock is minutes from that of rank 0's host."""
    found: dict[str, str] = {}
    for one in ranks[1:]:
        apart_s = one.clock_s - ranks[0].clock_s
        if abs(apart_s) > _CLOCKS_DIFFER_S:
            how = f"{abs(apart_s) / 60:.0f} min {'ahead of' if apart_s > 0 else 'behind'}"
            found[one.network] = (
                f"the clock of {one.host} is {how} that of {ranks[0].host}: dates in their run files differ, and no "
                "measured time does"
            )
    return list(found.values())


def _unlike(ranks: Sequence[Rank]) -> str:
    """Returns which rank has another version; '' if none has."""
    first = ranks[0]
    for other in ranks[1:]:
        if other.version != first.version:
            return (
                f"rank {other.rank} on {other.host} has linkscope {other.version}, and rank 0 has {first.version}: "
                "install one version everywhere"
            )
    return ""


def _met(here: Launched, stop_asked: Callable[[], bool]) -> World:
    """Returns a world whose ranks are not known yet."""
    if without_pmi(here):
        process = Process(worker_command(), f"rank {here.rank}", stop_asked)
        return World(process, None, None, [], Table(here, START_LIMIT_S, stop_asked))
    return World(*_initialized(here, stop_asked), [])


def _initialized(here: Launched, stop_asked: Callable[[], bool]) -> tuple[Process, Library, Mpi]:
    """Starts a worker with the first library that can be loaded."""
    problem = "no library was found"
    for library in libraries():
        process = Process(worker_command(), f"rank {here.rank}", stop_asked, inherited_descriptors())
        try:
            mpi = msgspec.convert(ask(process, {"op": "mpi", "library": library.name}, START_LIMIT_S)["mpi"], Mpi)
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


def ask(process: Process, request: dict[str, Any], limit_s: float) -> dict[str, Any]:
    process.send(msgspec.json.encode(request) + b"\n")
    answer: dict[str, Any] = msgspec.json.decode(process.answer(limit_s)[0])
    return answer


def several_hosts(ranks: Collection[Rank]) -> bool:
    return len({one.network for one in ranks}) > 1


def rank_places(ranks: Collection[Rank]) -> list[dict[str, str]]:
    """Returns the places of each rank, as cases have them (docs/reference/worker.md), and what tells hosts apart."""
    return [{"numa": one.numa, "host": one.network} | ({"gpu": one.gpu} if one.gpu else {}) for one in ranks]


def in_run_file(world: World, here: Launched) -> dict[str, Any]:
    """Returns what the run file says about MPI and the ranks."""
    mpi, library = world.mpi, world.library
    ranks = [{k: v for k, v in msgspec.to_builtins(one).items() if k not in _PRIVATE} for one in world.ranks]
    if mpi is None or library is None:
        why = f"srun set up no PMI for MPI; {CURE}"
        return {"launcher": here.launcher, "why_no_mpi": why, "nixl": nixl.in_run_file(), "ranks": ranks}
    return {
        "launcher": here.launcher, "library": mpi.library, "standard": mpi.standard, "path": mpi.path,
        "found": library.found, "why_not_gpu": mpi.why_not_gpu, "nixl": nixl.in_run_file(), "ranks": ranks,
    }  # fmt: skip
