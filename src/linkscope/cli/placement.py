"""`linkscope advise --talk MATRIX`: the GPU of each process, by who sends how much to whom."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.units import format_seconds

if TYPE_CHECKING:
    from linkscope.advise.placement import PairCosts, Placement
    from linkscope.machine.model import Model
    from linkscope.runfile import Run


@dataclass(frozen=True)
class Node:
    """The GPUs of a node with the costs between them. `numa`: the NUMA node of each GPU; None: not known. `cpus`: the
    CPUs of each NUMA node."""

    title: str
    gpus: tuple[str, ...]
    numa: dict[str, int | None]
    cpus: dict[int, list[int]]
    costs: "PairCosts"


def of_model(model: "Model") -> Node:
    """The node of a machine file; its costs are simulated."""
    from linkscope.advise.pair_costs import costs_of_model
    from linkscope.machine.model import places
    from linkscope.run.simulate import simulation

    known = places(model)
    _refuse_few(model.machine.name, known.gpus)
    numa: dict[str, int | None] = {gpu: _index(node) for gpu, node in known.gpu_numa.items()}
    cpus: dict[int, list[int]] = {}
    for part in model.numa:
        for place in part.places:
            first = _index(place) * part.cpus
            cpus[_index(place)] = list(range(first, first + part.cpus))
    with simulation() as machine:
        costs = costs_of_model(model.to_json(), known.gpus, machine.seconds)
    return Node(f"MODELLED {model.machine.name}", known.gpus, numa, cpus, costs)


def of_run(run: "Run") -> Node:
    """The node of a run; its costs are measured (or modelled, if the run is)."""
    from linkscope.advise.pair_costs import costs_of_run

    machine = run.header.machine
    places = [str(place) for place in machine.get("places", [])]
    gpus = tuple(place for place in places if place.startswith("gpu:"))
    name = str(machine.get("name", ""))
    _refuse_few(name, gpus)
    of_gpu = {f"gpu:{gpu.get('index')}": gpu.get("numa") for gpu in machine.get("gpus", [])}
    cpus = {int(node["index"]): [int(cpu) for cpu in node["cpus"]] for node in machine.get("numa", [])}
    title = f"MODELLED {name}" if run.modelled else name
    return Node(title, gpus, {gpu: of_gpu.get(gpu) for gpu in gpus}, cpus, costs_of_run(run.points, gpus))


def place_ranks(arguments: argparse.Namespace, node: Node) -> int:
    """Prints the placement, and writes the rank file if -o names one."""
    from linkscope.advise.placement import place
    from linkscope.advise.talk import read_matrix
    from linkscope.cli.target import check_writable, name_output, write

    matrix = Path(arguments.talk)
    target = Path(arguments.output) if arguments.output else None
    if target:
        check_writable(target, [], force=arguments.force)
    found = place(read_matrix(matrix), node.costs)
    gpus = [node.gpus[at] for at in found.gpus]
    if arguments.json:
        print(json.dumps(_as_json(found, gpus, node)))
    else:
        _print(found, gpus, node, matrix)
    if target:
        write(target, _rank_file(gpus, node))
        if not arguments.json:
            name_output("rank file", target)
    return FINE


def _print(found: "Placement", gpus: list[str], node: Node, matrix: Path) -> None:
    from linkscope.cli.screen import filled

    print(f"{node.title}: {len(gpus)} processes of {matrix}")
    for rank, gpu in enumerate(gpus):
        numa = node.numa[gpu]
        print(f"  rank {rank}  {gpu}" + (f"  numa:{numa}" if numa is not None else ""))
    tried = "no placement is faster" if found.exact else "the fastest that a search found"
    if found.seconds == found.in_order_s:
        default = "GPUs in the order of ranks are as fast"
    else:
        gain = found.in_order_s / found.seconds
        default = f"GPUs in the order of ranks take {format_seconds(found.in_order_s)} (×{gain:.2f})"
    print(filled(f"all messages take {format_seconds(found.seconds)} ({tried}); {default}; the worst placement takes "
                 f"{format_seconds(found.worst_s)}", "  ", "    "))  # fmt: skip
    print("  The times of messages are added; messages that share a link at the same time take longer.")
    print(f"  Slurm: {_slurm(gpus, node)}")
    print(f"  Open MPI: mpirun -n {len(gpus)} --rankfile FILE, with the FILE of -o, and in each process")
    print(f"    CUDA_VISIBLE_DEVICES=$(echo {' '.join(map(_number, gpus))} | cut -d' ' "
          "-f$((OMPI_COMM_WORLD_LOCAL_RANK + 1)))")  # fmt: skip


def _slurm(gpus: list[str], node: Node) -> str:
    text = f"srun --ntasks={len(gpus)} --gpu-bind=map_gpu:{','.join(map(_number, gpus))}"
    nodes = [node.numa[gpu] for gpu in gpus]
    return text if None in nodes else f"{text} --cpu-bind=map_ldom:{','.join(map(str, nodes))}"


def _rank_file(gpus: list[str], node: Node) -> str:
    """Lines of an Open MPI rank file. Ranks of one NUMA node share its CPUs equally."""
    unknown = [gpu for gpu in gpus if node.numa[gpu] is None]
    if unknown:
        raise UserError(
            f"{node.title}: the NUMA node of {unknown[0]} is not known, so a rank file has no CPUs to name. "
            "Leave out -o: the GPUs of the ranks are printed", NOT_HERE,
        )  # fmt: skip
    nodes = [numa for gpu in gpus if (numa := node.numa[gpu]) is not None]
    lines = [f"# {node.title}; rank -> GPU: {' '.join(f'{rank}->{_number(gpu)}' for rank, gpu in enumerate(gpus))}"]
    seen: dict[int, int] = {}
    for rank, numa in enumerate(nodes):
        cpus, sharers, turn = node.cpus[numa], nodes.count(numa), seen.get(numa, 0)
        seen[numa] = turn + 1
        each = max(len(cpus) // sharers, 1)
        first = turn * each % len(cpus)
        lines.append(f"rank {rank}=localhost slot={','.join(map(str, cpus[first : first + each]))}")
    return "\n".join(lines) + "\n"


def _as_json(found: "Placement", gpus: list[str], node: Node) -> dict[str, Any]:
    ranks = [{"rank": rank, "gpu": gpu, "numa": node.numa[gpu]} for rank, gpu in enumerate(gpus)]
    return {"machine": node.title.removeprefix("MODELLED "), "modelled": node.title.startswith("MODELLED "),
            "ranks": ranks, "seconds": found.seconds, "exact": found.exact, "in_order_s": found.in_order_s,
            "worst_s": found.worst_s, "slurm": _slurm(gpus, node)}  # fmt: skip


def _refuse_few(name: str, gpus: tuple[str, ...]) -> None:
    if len(gpus) < 2:
        raise UserError(f"{name} has {len(gpus) or 'no'} GPU, so there is nothing to place", NOT_HERE)


def _index(place: str) -> int:
    return int(place.rpartition(":")[2])


def _number(gpu: str) -> str:
    return gpu.rpartition(":")[2]
