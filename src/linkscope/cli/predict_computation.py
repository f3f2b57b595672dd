"""`linkscope predict --computation`: a computation with its transfers from each NUMA node of a model."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from linkscope.errors import FINE, NOT_HERE, UserError, suggestion
from linkscope.units import format_fraction, format_seconds, with_signs

if TYPE_CHECKING:
    from linkscope.machine.model import Model
    from linkscope.runfile import PointId

_PREFIX = "compute_"
_OF_TRANSFERS = ("src", "dst", "others", "bidirectional", "helpers", "flow", "transfer")
_USUAL = {"engine": "ce", "peer": "on", "threads": "1", "bytes": "64MiB"}


def computation(arguments: argparse.Namespace, model: "Model") -> int:
    """Prints the times on the first GPU of --computation, as suite `sp-5` has them, without noise."""
    from linkscope.machine.model import places
    from linkscope.run.simulate import simulation

    _refuse_others(arguments)
    name, size = _name_and_size(arguments.computation)
    there = places(model)
    if not there.gpus:
        raise UserError(f"--computation {name}: {model.machine.name} has no GPU", NOT_HERE)
    gpu, memory = there.gpus[0], arguments.memory
    if memory not in ("pinned", "pageable"):
        raise UserError(f"--memory {memory}: write pinned or pageable, the host memory of computations")
    alone = _point(name, size, gpu, "device", gpu)
    points = [alone, *(_point(name, size, node, memory, gpu) for node in there.numa)]
    with simulation() as simulated:
        found = simulated.seconds(model.to_json(), points)
        if reason := next((one for one in found if isinstance(one, str)), None):
            raise UserError(f"--computation {name}: {reason}", NOT_HERE)
        operations = simulated.operations(alone)
    times = [float(one[0]) for one in found]
    near = there.gpu_numa[gpu]
    good = times[1 + list(there.numa).index(near)]
    placed = [
        {
            "src": node, "near": node == near, "seconds": seconds, "operations_per_s": operations / seconds,
            "penalty_over_good": 1 - good / seconds, "penalty_over_bad": seconds / good - 1,
        }
        for node, seconds in zip(there.numa, times[1:], strict=True)
    ]  # fmt: skip
    made = {"computation": name, "size": size, "gpu": gpu, "memory": memory, "operations": operations}
    _print(model, {**made, "alone_s": times[0], "placements": placed}, as_json=arguments.json)
    return FINE


def _refuse_others(arguments: argparse.Namespace) -> None:
    given = [name for name in _OF_TRANSFERS if getattr(arguments, name)]
    given += [name for name, usual in _USUAL.items() if getattr(arguments, name) != usual]
    if given:
        option = {"others": "--with", "transfer": "the transfer"}.get(given[0], f"--{given[0]}")
        raise UserError(f"--computation has transfers of its own: leave out {option}")


def _name_and_size(text: str) -> tuple[str, str]:
    """The name without prefix, and the size: 'md' or 'md:full'. Raises UserError for those that there are not."""
    from linkscope.run import benchmark_table

    rows = [row for row in benchmark_table() if row.name.startswith(_PREFIX) and row.src == "numa"]
    names = [row.name.removeprefix(_PREFIX) for row in rows]
    name, _, size = text.partition(":")
    if name not in names:
        raise UserError(f"--computation {name}: unknown{suggestion(name, names)}; there is {', '.join(names)}")
    sizes = next(param.values for param in rows[names.index(name)].params if param.name == "size")
    if (size or sizes[0]) not in sizes:
        raise UserError(f"--computation {text}: unknown size; sizes are {', '.join(sizes)}")
    return name, size or sizes[0]


def _point(name: str, size: str, src: str, memory: str, gpu: str) -> "PointId":
    from linkscope.runfile import PointId

    return PointId(_PREFIX + name, "sm", src, memory, gpu, "device", 0, (("size", size),))


def _print(model: "Model", made: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"modelled": True, "machine": model.machine.name, **made}))
        return
    print(f"MODELLED: {model.machine.title}")
    alone = with_signs(format_seconds(made["alone_s"]))
    print(f"{made['computation']}, size {made['size']}, on {made['gpu']}: {alone} alone")
    for one in made["placements"]:
        rate = f"{one['operations_per_s'] / 1e9:.4g} Gop/s, " if made["operations"] else ""
        cost = (
            "near" if one["near"] else
            f"{format_fraction(one['penalty_over_good'])} less than near, (good - bad) / good of the rates; "
            f"{format_fraction(one['penalty_over_bad'])} by (good - bad) / bad"
        )  # fmt: skip
        print(f"{one['src']}.{made['memory']}: {with_signs(format_seconds(one['seconds']))}, {rate}{cost}")
