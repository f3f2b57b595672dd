"""`linkscope advise` for a transfer from one host to another, on a model: the ways by rank, with what each needs."""

import argparse
import json
from typing import TYPE_CHECKING

from linkscope.cli import options
from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.flow import kind_of
from linkscope.units import format_bytes, format_seconds, with_signs

if TYPE_CHECKING:
    from linkscope.cli.predict_network import Ranked
    from linkscope.machine.model import Model

_OTHERS = ("memory", "alone", "reuse", "pieces", "others")
_SIMPLEST = "staged whole"  # what a program does whose MPI takes no memory of GPUs


def names_hosts(arguments: argparse.Namespace) -> bool:
    """Whether the ends of the transfer are on two hosts."""
    from linkscope.cli.predict_network import on_hosts
    from linkscope.machine.model_places import host_of

    src, dst = on_hosts(arguments.src, arguments.dst)
    return host_of(src) != host_of(dst)


def between_hosts(arguments: argparse.Namespace) -> int:
    """Answers and prints."""
    from linkscope.cli.advise_transfer import modelled
    from linkscope.cli.predict import refuse_unknown
    from linkscope.cli.predict_network import on_hosts, ranked, refuse_ends
    from linkscope.machine.model_hosts import joined_for

    if arguments.run or not arguments.machine:
        raise UserError("a transfer between hosts is answered on a model: --machine NAME|FILE, and no run file")
    for option in _OTHERS:
        if getattr(arguments, option):
            name = "with" if option == "others" else option
            raise UserError(f"--{name} does not apply to a transfer between hosts: leave it out")
    ends = on_hosts(arguments.src, arguments.dst)
    size = options.size("--bytes", arguments.bytes)
    model = joined_for(modelled(arguments.machine), ends)
    refuse_unknown(model, [ends])
    refuse_ends(ends, size)
    found = ranked(model, *ends, size)
    if found[0].seconds is None:
        raise UserError(f"{ends[0]} -> {ends[1]}: {found[0].reason}", NOT_HERE)
    if arguments.json:
        print(json.dumps(_json(model, found)))
    else:
        _print(model, found)
    return FINE


def needs(one: "Ranked", near: dict[str, str]) -> list[str]:
    """What a way needs. `near`: the NUMA node of each GPU."""
    point = one.method.point
    gpus = [place for place in (point.src, point.dst) if kind_of(place) == "gpu"]
    if one.method.name == "direct":
        of_gpus = ["GPUDirect RDMA (nvidia-peermem or dma-buf): the network card reads and writes the GPU's memory"]
        return of_gpus if gpus else ["pinned memory at both ends, registered with the network card"]
    slots = "one pinned buffer" if one.method.name == _SIMPLEST else "two pinned buffers"
    where = ", ".join(f"on {near[gpu]} for {gpu}" for gpu in gpus)
    found = [f"{slots} of {format_bytes(one.method.chunk)}: {where}"]
    if one.method.name != _SIMPLEST:
        found.append("a CPU thread at each such end, which waits for copies and sends or receives the chunks")
    return found


def _near(model: "Model") -> dict[str, str]:
    from linkscope.machine.model import places

    return places(model).gpu_numa


def _gain(one: "Ranked", found: "list[Ranked]") -> float | None:
    """How many times faster than the simplest way; None where either has no time."""
    simplest = next((other.seconds for other in found if other.method.name == _SIMPLEST), None)
    return simplest / one.seconds if simplest and one.seconds else None


def _print(model: "Model", found: "list[Ranked]") -> None:
    from linkscope.cli.predict_network import title

    point, near = found[0].method.point, _near(model)
    print(f"MODELLED: {model.machine.title}")
    print(f"{point.src} → {point.dst}  {format_bytes(point.bytes)}, one transfer alone; fastest way first")
    for number, one in enumerate(found, 1):
        if one.seconds is None:
            print(f"   {title(one)}: {one.reason}")
            continue
        gain = _gain(one, found)
        beside = f"  {gain:.3g} times {_SIMPLEST}" if gain and one.method.name != _SIMPLEST else ""
        took = with_signs(format_seconds(one.seconds))
        print(f"{number}. {title(one):<32} {one.gbps:>8.4g} GB/s  {took:>10}{beside}")
        for need in needs(one, near):
            print(f"     needs {need}")


def _json(model: "Model", found: "list[Ranked]") -> dict[str, object]:
    from linkscope.cli.predict_network import as_json

    answer = as_json(model, found)
    near = _near(model)
    return answer | {
        "methods": [
            {**row, "needs": needs(one, near), "gain": _gain(one, found)}
            for row, one in zip(answer["methods"], found, strict=True)
        ]
    }
