"""`linkscope run` as ranks of MPI: `mpiexec -n 2 linkscope run --suite mpi`."""

import argparse
import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from linkscope.errors import NOT_HERE, UserError

if TYPE_CHECKING:
    from linkscope.run import StopFlag, Target
    from linkscope.run.launcher import Launched
    from linkscope.run.ranks import RankWorker, World
    from linkscope.runfile import Run

_CURE = "mpiexec -n 2 linkscope run --suite mpi (`pip install mpich` brings an mpiexec)"


def launched(arguments: argparse.Namespace) -> "Launched | None":
    """Returns this process's place among several ranks; None for a run of one process. The process then is a child of
    the one that the launcher started."""
    from linkscope.run import launcher

    here = launcher.launched()
    if here is None or here.size == 1:
        return None
    if arguments.machine not in (None, "auto"):
        raise UserError(f"--machine {arguments.machine}: {here.launcher} started {here.size} ranks; start one process")
    if not arguments.resume and not _names_ranks(arguments) and not _names_collectives(arguments):
        raise UserError(
            f"{here.launcher} started {here.size} ranks, and only messages and collectives need them: add --suite mpi "
            f"or --suite collectives, or leave {here.launcher} out"
        )
    launcher.outlive_launcher(here.rank)
    return here


def _names_ranks(arguments: argparse.Namespace) -> bool:
    chosen = [*arguments.benchmarks, arguments.src or "", arguments.dst or "", *(arguments.only or [])]
    return arguments.suite == "mpi" or any(re.search("rank[:_]", text) for text in chosen)


def _names_collectives(arguments: argparse.Namespace) -> bool:
    """Whether points may be of one process over its GPUs, or of several ranks."""
    return arguments.suite == "collectives" or any("/nccl/" in text for text in arguments.only or [])


def meet(here: "Launched", target: "Target") -> "World":
    """Starts MPI in this rank's worker, and meets the other ranks."""
    from linkscope.run.ranks import own_rank, start

    nodes = [(f"numa:{node['index']}", node["cpus"]) for node in target.machine["numa"]]
    return start(here, own_rank(here, nodes, target.machine["gpus"]))


def follow(here: "Launched") -> int:
    """The whole run of a rank other than 0."""
    from linkscope.run import ranks
    from linkscope.run.target import this_machine

    return ranks.follow(meet(here, this_machine()))


def with_ranks(
    arguments: argparse.Namespace, target: "Target", here: "Launched | None"
) -> "tuple[Target, World | None]":
    """Returns the machine with the ranks that the chosen points need. Raises UserError if there are none."""
    if here is not None:
        return _with(target, here)
    if not _names_ranks(arguments):
        return target, None
    if target.modelled:
        from linkscope.run.target import with_modelled_ranks

        return with_modelled_ranks(target), None
    raise UserError(f"messages between ranks need two ranks or more: {_CURE}", NOT_HERE)


def _with(target: "Target", here: "Launched") -> "tuple[Target, World]":
    from linkscope.run import target as targets
    from linkscope.run.ranks import in_run_file, rank_places

    world = meet(here, target)
    return targets.with_ranks(target, rank_places(world.ranks), in_run_file(world, here)), world


def of_resumed(run: "Run", target: "Target", here: "Launched | None") -> "tuple[Target, World | None]":
    """Returns the machine of a run to be resumed, with as many ranks as it had."""
    had = len(run.header.machine.get("mpi", {}).get("ranks", ()))
    if target.modelled or (here is None and not had):
        from linkscope.run.target import with_modelled_ranks

        return (with_modelled_ranks(target) if had else target), None
    if here is None or here.size != had:
        started = f"{here.launcher} started {here.size} ranks" if here else "this is one process"
        cure = f"mpiexec -n {had} linkscope run --resume {run.path}" if had else "leave mpiexec out"
        raise UserError(f"{run.path} was measured by {had or 'no'} ranks, and {started}: {cure}")
    return _with(target, here)


@contextlib.contextmanager
def workers(world: "World | None", stop: "StopFlag") -> "Iterator[RankWorker | None]":
    """The workers of all ranks, which end with the run."""
    if world is None:
        yield None
        return
    from linkscope.run.ranks import RankWorker

    ranks = RankWorker(world, stop)
    try:
        yield ranks
    finally:
        ranks.finish()
