"""`linkscope advise --talk MATRIX`: the GPU of each process, by who sends how much to whom."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.units import format_seconds

if TYPE_CHECKING:
    from linkscope.advise.binding import Seat
    from linkscope.advise.placement import PairCosts, Placement
    from linkscope.machine.model import Model
    from linkscope.runfile import Run


@dataclass(frozen=True)
class Node:
    """The GPUs of a node with the costs between them, and their NUMA nodes."""

    title: str
    gpus: tuple[str, ...]
    seats: "dict[str, Seat]"
    costs: "PairCosts"


def of_model(model: "Model") -> Node:
    """The node of a machine file; its costs are simulated."""
    from linkscope.advise.pair_costs import costs_of_model
    from linkscope.cli.seats import seats_of_model
    from linkscope.machine.model import places
    from linkscope.run.simulate import simulation

    known = places(model)
    _refuse_few(model.machine.name, known.gpus)
    with simulation() as machine:
        costs = costs_of_model(model.to_json(), known.gpus, machine.seconds)
    return Node(f"MODELLED {model.machine.name}", known.gpus, _by_gpu(seats_of_model(model)), costs)


def of_run(run: "Run") -> Node:
    """The node of a run; its costs are measured (or modelled, if the run is)."""
    import msgspec

    from linkscope.advise.pair_costs import costs_of_run
    from linkscope.cli.seats import seats_of_machine, seats_of_model
    from linkscope.machine.model import Model

    machine = run.header.machine
    places = [str(place) for place in machine.get("places", [])]
    gpus = tuple(place for place in places if place.startswith("gpu:"))
    name = str(machine.get("name", ""))
    _refuse_few(name, gpus)
    title = f"MODELLED {name}" if run.modelled else name
    seats = seats_of_machine(machine)
    if run.modelled and "model" in machine:
        seats = seats_of_model(msgspec.convert(machine["model"], Model))
    return Node(title, gpus, _by_gpu(seats), costs_of_run(run.points, gpus))


def _by_gpu(seats: "list[Seat]") -> "dict[str, Seat]":
    return {seat.gpu: seat for seat in seats}


def place_ranks(arguments: argparse.Namespace, node: Node) -> int:
    """Prints the placement, and writes the rank file if -o names one."""
    from linkscope.advise.binding import rank_file
    from linkscope.advise.placement import place
    from linkscope.advise.talk import read_matrix
    from linkscope.cli.target import check_writable, name_output, write

    matrix = Path(arguments.talk)
    target = Path(arguments.output) if arguments.output else None
    if target:
        check_writable(target, [], force=arguments.force)
    found = place(read_matrix(matrix), node.costs)
    seats = [node.seats[node.gpus[at]] for at in found.gpus]
    if arguments.json:
        print(json.dumps(_as_json(found, seats, node)))
    else:
        _print(found, seats, node, matrix)
    if target:
        write(target, rank_file(node.title, seats))
        if not arguments.json:
            name_output("rank file", target)
    return FINE


def _print(found: "Placement", seats: "list[Seat]", node: Node, matrix: Path) -> None:
    from linkscope.advise.binding import map_by_line, mpi_lines, slurm_line
    from linkscope.cli.screen import filled

    print(f"{node.title}: {len(seats)} processes of {matrix}")
    for rank, seat in enumerate(seats):
        print(f"  rank {rank}  {seat.gpu}" + (f"  numa:{seat.numa}" if seat.numa is not None else ""))
    tried = "no placement is faster" if found.exact else "the fastest that a search found"
    if found.seconds == found.in_order_s:
        default = "GPUs in the order of ranks are as fast"
    else:
        gain = found.in_order_s / found.seconds
        default = f"GPUs in the order of ranks take {format_seconds(found.in_order_s)} (×{gain:.2f})"
    print(filled(f"all messages take {format_seconds(found.seconds)} ({tried}); {default}; the worst placement takes "
                 f"{format_seconds(found.worst_s)}", "  ", "    "))  # fmt: skip
    print("  The times of messages are added; messages that share a link at the same time take longer.")
    print(f"  Slurm: {slurm_line(seats)}")
    command, gpu = mpi_lines(seats)
    print(f"  Open MPI: {command.replace('FILE', 'FILE, with the FILE of -o')}\n    {gpu}")
    if without := map_by_line(seats):
        print(f"    or without FILE: {without}")


def _as_json(found: "Placement", seats: "list[Seat]", node: Node) -> dict[str, Any]:
    from linkscope.advise.binding import slurm_line

    ranks = [{"rank": rank, "gpu": seat.gpu, "numa": seat.numa} for rank, seat in enumerate(seats)]
    return {"machine": node.title.removeprefix("MODELLED "), "modelled": node.title.startswith("MODELLED "),
            "ranks": ranks, "seconds": found.seconds, "exact": found.exact, "in_order_s": found.in_order_s,
            "worst_s": found.worst_s, "slurm": slurm_line(seats)}  # fmt: skip


def _refuse_few(name: str, gpus: tuple[str, ...]) -> None:
    if len(gpus) < 2:
        raise UserError(f"{name} has {len(gpus) or 'no'} GPU, so there is nothing to place", NOT_HERE)
