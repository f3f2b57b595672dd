"""The CPUs and the NUMA node of each GPU: `advise --placement` and `doctor`."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from linkscope.advise.binding import (
    Seat,
    cpu_ranges,
    map_by_line,
    mpi_lines,
    rank_file,
    seats_of,
    single_line,
    slurm_line,
)
from linkscope.advise.near_far import DIRECTIONS, FORMULAS, NearFar, hidden_numa, largest, near_far, nearest, value_text
from linkscope.errors import NOT_HERE, UserError
from linkscope.units import format_bytes, format_fraction

if TYPE_CHECKING:
    from linkscope.machine.model import Model
    from linkscope.runfile import Run


@dataclass(frozen=True)
class Seating:
    """A seat for each GPU. `by`: what chose its node: 'copies', 'topology', or '' where the node is not known.

    `found`: near and far rates. `notes`: what a reader must know, as sentences.
    """

    title: str
    modelled: bool
    seats: list[Seat]
    by: dict[str, str]
    found: list[NearFar]
    notes: list[str] = field(default_factory=list)


def seats_of_model(model: "Model", near: Mapping[str, int | None] | None = None) -> list[Seat]:
    """The seats of a machine file, which numbers CPUs node by node. `near`: other nodes than those of the file."""
    from linkscope.machine.model import places

    known = places(model)
    nodes: dict[int, tuple[int, Sequence[int]]] = {}
    for part in model.numa:
        for place in part.places:
            first = _index(place) * part.cpus
            nodes[_index(place)] = (_index(place), range(first, first + part.cpus))
    numa = {gpu: _index(node) for gpu, node in known.gpu_numa.items()}
    return seats_of(known.gpus, numa | dict(near or {}), nodes)


def seats_of_machine(machine: Mapping[str, Any], near: Mapping[str, int | None] | None = None) -> list[Seat]:
    """The seats of a detected machine, as a run file holds it."""
    numa = {f"gpu:{gpu.get('index')}": gpu.get("numa") for gpu in machine.get("gpus", [])}
    nodes = {
        int(node["index"]): (int(node.get("os_index", node["index"])), [int(cpu) for cpu in node["cpus"]])
        for node in machine.get("numa", [])
    }
    gpus = [place for place in map(str, machine.get("places", [])) if place.startswith("gpu:")]
    return seats_of(gpus, numa | dict(near or {}), nodes)


def seating_of_model(model: "Model") -> Seating:
    """The seating of a machine file, by simulated copies."""
    from linkscope.advise.near_far import wanted
    from linkscope.advise.predicted import predicted_points
    from linkscope.machine.model import places
    from linkscope.run.simulate import simulation

    known, content = places(model), model.to_json()
    points = wanted(known.numa, known.gpus)
    with simulation() as machine:
        times = machine.seconds(content, points)
    seconds = {point: one if isinstance(one, str) else one[0] for point, one in zip(points, times, strict=True)}
    made = predicted_points(content, seconds)
    return _seating(
        model.machine.name, True, near_far(made), lambda near: seats_of_model(model, near), _alone(known.numa)
    )


def seating_of_run(run: "Run") -> Seating:
    """The seating of the machine of a run, by its copies; by the topology where it has none from two nodes."""
    import msgspec

    from linkscope.machine.model import Model, places

    machine = run.header.machine
    name, found = str(machine.get("name", "")), near_far(run.points)
    if run.modelled:
        model = msgspec.convert(machine.get("model"), Model)
        return _seating(name, True, found, lambda near: seats_of_model(model, near), _alone(places(model).numa))
    return seating_of_machine(machine, found)


def seating_of_machine(machine: Mapping[str, Any], found: list[NearFar]) -> Seating:
    """The seating of a detected machine; `found`: the copies of a run there."""
    hidden = hidden_numa(machine)
    notes = (
        [f"NUMA is hidden here ({hidden}), so no near node is known."] if hidden else _alone(machine.get("numa", []))
    )
    return _seating(str(machine.get("name", "")), False, found, lambda near: seats_of_machine(machine, near), notes)


def _alone(nodes: Sequence[Any]) -> list[str]:
    return ["There is one NUMA node: every CPU is equally near each GPU."] if len(nodes) == 1 else []


def _seating(
    name: str, modelled: bool, found: list[NearFar], seats: Callable[[Mapping[str, int | None]], list[Seat]],
    notes: list[str],
) -> Seating:  # fmt: skip
    topology = seats({})
    if not topology:
        raise UserError(f"{name} has no GPU, so there is nothing to place", NOT_HERE)
    best = nearest(found)
    numa: dict[str, int | None] = {seat.gpu: seat.numa for seat in topology}
    by = {seat.gpu: "topology" if seat.numa is not None else "" for seat in topology}
    for gpu, nodes in best.items():
        measured = [_index(node) for node in nodes]
        if numa.get(gpu) not in measured:
            if numa.get(gpu) is not None:
                notes = [*notes, f"{gpu}: copies are fastest from {nodes[0]}, but the topology says numa:{numa[gpu]}."]
            numa[gpu] = measured[0]
        by[gpu] = "copies"
        if len(nodes) > 1:
            notes = [*notes, f"{gpu}: {', '.join(nodes)} are equally near (within 2 %)."]
    return Seating(name, modelled, seats(numa), by, found, notes)


def seat_lines(of: Seating) -> list[str]:
    """The CPUs and the NUMA node of each GPU as text."""
    made = [f"{'MODELLED ' if of.modelled else ''}{of.title}: CPUs and NUMA node of each GPU"]
    for seat in of.seats:
        where = f"numa:{seat.numa}" if seat.numa is not None else "NUMA node not known"
        cpus = f", CPUs {cpu_ranges(seat.cpus)}" if seat.cpus else ""
        basis = f"  (by {of.by[seat.gpu]})" if of.by[seat.gpu] else ""
        made.append(f"  {seat.gpu}  {where}{cpus}{basis}")
    return [*made, *(f"  {text}" for text in of.notes)]


def lines(of: Seating) -> list[str]:
    """The seats, their near and far rates, and the lines that bind processes to them."""
    made = seat_lines(of)
    if not of.found and not of.notes:
        made.append("  No copies from two NUMA nodes: `linkscope run --suite quick -o RUN.jsonl` measures them.")
    made += [f"  {penalty_text(one)}" for one in largest(of.found)]
    made += [f"  Penalties {FORMULAS}."] if of.found else []
    made += ["One process:", *(f"  {single_line(seat)}" for seat in of.seats)]
    made += [f"A process for each GPU, by Slurm:\n  {slurm_line(of.seats)}"]
    made += ["By Open MPI:", *(f"  {line}" for line in mpi_lines(of.seats))]
    if without := map_by_line(of.seats):
        made.append(f"  or without FILE: {without}, and the same in each process")
    if all(seat.cpus for seat in of.seats):
        made += ["  FILE:", *(f"    {line}" for line in rank_file(of.title, of.seats).splitlines()[1:])]
    return made


def penalty_text(one: NearFar) -> str:
    """'gpu:0, host to GPU, 64 MiB: 5.95 GB/s from numa:0, 5.18 GB/s from numa:1; 13 % over the good value, …'."""
    values = [f"{value_text(one, node)} from {node}" for node in dict.fromkeys((one.near, one.far))]
    size = f", {format_bytes(one.bytes)}" if one.bytes else ""
    return (
        f"{one.gpu}, {DIRECTIONS[one.direction]}{size}: {', '.join(values)}; {format_fraction(one.over_good)} over the "
        f"good value, {format_fraction(one.over_bad)} over the bad one"
    )


def as_json(of: Seating) -> str:
    """The seating as JSON."""
    known = all(seat.cpus for seat in of.seats)
    gpus = [
        {"gpu": seat.gpu, "numa": seat.numa, "os_numa": seat.os_numa, "cpus": list(seat.cpus), "by": of.by[seat.gpu],
         "command": single_line(seat)}
        for seat in of.seats
    ]  # fmt: skip
    found = [
        {"gpu": one.gpu, "direction": one.direction, "bytes": one.bytes, "unit": "GB/s" if one.bytes else "s",
         "values": one.values, "ci95": one.intervals,
         "near": one.near, "far": one.far, "over_good": one.over_good, "over_bad": one.over_bad}
        for one in of.found
    ]  # fmt: skip
    return json.dumps(
        {"machine": of.title, "modelled": of.modelled, "gpus": gpus, "near_far": found, "formulas": FORMULAS,
         "notes": of.notes, "slurm": slurm_line(of.seats), "open_mpi": mpi_lines(of.seats),
         "map_by": map_by_line(of.seats),
         "rank_file": rank_file(of.title, of.seats) if known else None}
    )  # fmt: skip


def _index(place: str) -> int:
    return int(place.rpartition(":")[2])
