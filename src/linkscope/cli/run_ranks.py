"""`linkscope run` as ranks of MPI: `mpiexec -n 2 linkscope run --suite mpi`."""

import argparse
import contextlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from linkscope.errors import NOT_HERE, SOMETHING_FAILED, STOPPED_EARLY, UserError

if TYPE_CHECKING:
    from linkscope.run import StopFlag, Target
    from linkscope.run.launcher import Launched
    from linkscope.run.meeting import World
    from linkscope.run.ranks import RankWorker
    from linkscope.runfile import Run

_OF_RANKS = ("mpi", "nodes", "nodes-shared")
_TASKS = ("sp-8", "sp-9", "sp-11")
_ALSO_OF_RANKS = ("collectives", *_TASKS)  # and of one process
_LEAVES_FILE = (SOMETHING_FAILED, STOPPED_EARLY)
_KEPT = "the run files of the nodes keep what was measured"
_NODES = "srun --ntasks-per-node=1 linkscope run --suite nodes --local quick"
_CURE = "mpiexec -n 2 linkscope run --suite {suite} (`pip install mpich` brings an mpiexec)"


def launched(arguments: argparse.Namespace) -> "Launched | None":
    """Returns this process's place among several ranks; None for a run of one process. The process then is a child of
    the one that the launcher started."""
    from linkscope.run import launcher

    here = launcher.launched()
    if here is None or here.size == 1:
        if arguments.local:
            raise UserError(f"--local {arguments.local} needs a rank on each node: {_NODES}", NOT_HERE)
        return None
    if arguments.local and arguments.output == "-":
        raise UserError("--local: each node has a run file beside that of the pairs; give -o a file")
    if arguments.machine not in (None, "auto"):
        raise UserError(f"--machine {arguments.machine}: {here.launcher} started {here.size} ranks; start one process")
    if not arguments.resume and not _names_ranks(arguments) and not _may_name_ranks(arguments):
        raise UserError(
            f"{here.launcher} started {here.size} ranks, and only messages and collectives need them: add --suite mpi, "
            f"--suite collectives, --suite sp-8, --suite sp-9 or --suite sp-11, or leave {here.launcher} out"
        )
    launcher.outlive_launcher(here.rank)
    return here


def _names_ranks(arguments: argparse.Namespace) -> bool:
    chosen = [*arguments.benchmarks, arguments.src or "", arguments.dst or "", *(arguments.only or [])]
    return arguments.suite in _OF_RANKS or any(re.search("rank[:_]|node_", text) for text in chosen)


def _may_name_ranks(arguments: argparse.Namespace) -> bool:
    """Whether points may be of one process over its GPUs, or of several ranks."""
    return arguments.suite in _ALSO_OF_RANKS or any("/nccl/" in text for text in arguments.only or [])


class Seat:
    """This rank among the others. As a context, it tells them of an end of the run that they would wait for: a mistake
    found before they meet, or an end of rank 0 before they have links to it."""

    def __init__(self, here: "Launched | None") -> None:
        self.here = here
        self.world: World | None = None

    def __enter__(self) -> "Seat":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from linkscope.run import meeting

        mistake = error if isinstance(error, UserError) else None
        if self.here is None or (error is not None and mistake is None):
            return
        if self.here.stage == "apart":
            meeting.refuse(self.here, mistake)
        elif self.here.stage == "met" and self.here.rank == 0 and self.world:
            meeting.dismiss(self.world, mistake)

    def meet(self, target: "Target") -> "World":
        """Starts MPI in this rank's worker, and meets the other ranks."""
        from linkscope.run.meeting import own_rank, start

        assert self.here is not None
        nodes = [(f"numa:{node['index']}", node["cpus"]) for node in target.machine["numa"]]
        self.world = start(self.here, own_rank(self.here, nodes, target.machine["gpus"]))
        return self.world


def follow(seat: Seat) -> int:
    """The whole run of a rank other than 0."""
    from linkscope.run import ranks
    from linkscope.run.target import this_machine

    return ranks.follow(seat.meet(this_machine()))


def with_ranks(arguments: argparse.Namespace, target: "Target", seat: Seat) -> "Target":
    """Returns the machine with the ranks that the chosen points need. Raises UserError if there are none."""
    if seat.here is not None:
        return _with(target, seat)
    if not _names_ranks(arguments) and not (target.modelled and arguments.suite in _TASKS):
        return target
    if target.modelled:
        from linkscope.run.target import with_modelled_ranks

        return with_modelled_ranks(target)
    cure = _CURE.format(suite=arguments.suite if arguments.suite in _OF_RANKS else "mpi")
    raise UserError(f"messages between ranks need two ranks or more: {cure}", NOT_HERE)


def _with(target: "Target", seat: Seat) -> "Target":
    from linkscope.run import target as targets
    from linkscope.run.meeting import in_run_file, rank_places

    world = seat.meet(target)
    assert seat.here is not None
    return targets.with_ranks(target, rank_places(world.ranks), in_run_file(world, seat.here))


def of_resumed(run: "Run", target: "Target", seat: Seat) -> "Target":
    """Returns the machine of a run to be resumed, with as many ranks as it had."""
    here = seat.here
    had = len(run.header.machine.get("mpi", {}).get("ranks", ()))
    if target.modelled or (here is None and not had):
        from linkscope.run.target import with_modelled_ranks

        return with_modelled_ranks(target) if had else target
    if here is None or here.size != had:
        started = f"{here.launcher} started {here.size} ranks" if here else "this is one process"
        cure = f"mpiexec -n {had} linkscope run --resume {run.path}" if had else "leave mpiexec out"
        raise UserError(f"{run.path} was measured by {had or 'no'} ranks, and {started}: {cure}")
    return _with(target, seat)


def measure_nodes(arguments: argparse.Namespace, path: Path, seat: Seat, ranks: "RankWorker | None") -> None:
    """With --local, measures each node by that suite, all nodes at once, and says which files hold the results."""
    if seat.world is None or ranks is None:
        return
    from linkscope.run.meeting import clocks_that_differ
    from linkscope.run.process import Interrupted, WorkerGone

    for sentence in clocks_that_differ(seat.world.ranks):
        print(f"linkscope: {sentence}", file=sys.stderr)
    if not arguments.local:
        return
    if path.exists() and not arguments.force:  # refused before the suites, which take minutes
        raise UserError(f"{path} exists. Choose another -o, or replace it with --force")
    words = ["--suite", arguments.local, *(["--force"] if arguments.force else [])]
    for option in ("rounds", "precision"):
        words += [f"--{option}", given] if (given := getattr(arguments, option)) else []
    try:
        ran = ranks.measure_nodes(lambda host: str(file_of_node(path, host)), words)
    except WorkerGone as gone:
        raise UserError(f"{gone}; {_KEPT}", SOMETHING_FAILED) from None
    except Interrupted:
        raise UserError(f"stopped; {_KEPT}", STOPPED_EARLY) from None
    for one in ran:
        if one.status:
            left = f"{one.file} there keeps what was measured" if one.status in _LEAVES_FILE else "it has no run file"
            print(f"linkscope: {one.host}: exit code {one.status} ({one.why}); {left}", file=sys.stderr)
    files = " ".join([str(path), *(one.file for one in ran)])
    print(f"one file of all: linkscope merge {files} -o {path.with_stem(path.stem + '-all')}", file=sys.stderr)


def file_of_node(path: Path, host: str) -> Path:
    """Returns the run file of a node beside that of the pairs."""
    return path.with_stem(f"{path.stem}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', host)}")


@contextlib.contextmanager
def workers(seat: Seat, stop: "StopFlag") -> "Iterator[RankWorker | None]":
    """The workers of all ranks, which end with the run."""
    if seat.here is None or seat.world is None:
        yield None
        return
    from linkscope.run.ranks import RankWorker

    seat.here.stage = "linked"
    ranks = RankWorker(seat.world, stop)
    try:
        yield ranks
    finally:
        ranks.finish()
