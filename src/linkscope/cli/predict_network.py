"""`linkscope predict` for a transfer from one host to another: its methods by rank."""

import argparse
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linkscope.errors import FINE, NOT_HERE, UserError
from linkscope.flow import kind_of
from linkscope.units import format_bytes, format_seconds, with_signs

if TYPE_CHECKING:
    from linkscope.machine.model import Model
    from linkscope.model.network import NetworkMethod

_DEFAULTS = {"memory": "pinned", "engine": "ce", "peer": "on", "threads": "1", "helpers": None}


@dataclass(frozen=True)
class Ranked:
    """The best variant of a method, in seconds of the transfer alone; a reason where the model has no such method."""

    method: "NetworkMethod"
    seconds: float | None
    reason: str = ""

    @property
    def gbps(self) -> float:
        return self.method.point.bytes / self.seconds / 1e9 if self.seconds else 0.0


def ranked(model: "Model", src: str, dst: str, size: int) -> list[Ranked]:
    """The methods, fastest first, then those that the model does not have. Of several chunks the best counts."""
    from linkscope.machine.model import places
    from linkscope.model.network import network_methods
    from linkscope.run.simulate import quiet, simulation

    methods = network_methods(src, dst, size, places(model).gpu_numa)
    with simulation() as simulated:
        found = simulated.seconds(quiet(model.to_json()), [one.point for one in methods])
    best: dict[str, Ranked] = {}
    for method, value in zip(methods, found, strict=True):
        one = Ranked(method, None, value) if isinstance(value, str) else Ranked(method, value[0])
        before = best.get(method.name)
        if before is None or (one.seconds or float("inf")) < (before.seconds or float("inf")):
            best[method.name] = one
    return sorted(best.values(), key=lambda one: one.seconds or float("inf"))


def between_hosts(arguments: argparse.Namespace, model: "Model", ends: tuple[str, str], size: int) -> int:
    """Prints the methods of one transfer between two hosts, by rank. Raises UserError where the model has none."""
    src, dst = ends
    for option, usual in _DEFAULTS.items():
        if getattr(arguments, option) != usual:
            raise UserError(f"--{option} does not apply to a transfer between hosts: leave it out")
    refuse_ends(ends, size)
    found = ranked(model, src, dst, size)
    best = found[0]
    if best.seconds is None:
        raise UserError(f"{src} -> {dst}: {best.reason}", NOT_HERE)
    if arguments.json:
        print(json.dumps(as_json(model, found)))
        return FINE
    print(f"MODELLED: {model.machine.title}")
    print(f"{src} → {dst}  {format_bytes(size)}, one transfer alone; fastest method first")
    for number, one in enumerate(found, 1):
        if one.seconds is None:
            print(f"   {title(one)}: {one.reason}")
        else:
            took = with_signs(format_seconds(one.seconds))
            print(f"{number}. {title(one):<32} {one.gbps:>8.4g} GB/s  {took:>10}")
    return FINE


def refuse_ends(ends: tuple[str, str], size: int) -> None:
    """Raises UserError for ends or a size that no network card can transfer."""
    if "disk" in map(kind_of, ends):
        raise UserError(f"{ends[0]} -> {ends[1]}: network cards reach host memory and GPUs only", NOT_HERE)
    if size % 8:
        raise UserError(f"--bytes {size}: write a multiple of 8 B")


def on_hosts(src: str, dst: str) -> tuple[str, str]:
    """The ends of a transfer. Where one of them names a host, the other one without a host is on host:0."""
    if src.startswith("host:") == dst.startswith("host:"):
        return src, dst
    return (src, f"host:0/{dst}") if src.startswith("host:") else (f"host:0/{src}", dst)


def title(one: Ranked) -> str:
    from linkscope.model.network import BUFFERED

    chunk = f", chunks of {format_bytes(one.method.chunk)}" if one.method.name == BUFFERED else ""
    return one.method.name + chunk


def as_json(model: "Model", found: list[Ranked]) -> dict[str, Any]:
    best = found[0].method.point
    flow = {"src": best.src, "dst": best.dst, "bytes": best.bytes, "gbps": found[0].gbps, "seconds": found[0].seconds}
    methods = [
        {"method": one.method.name, "chunk": one.method.chunk, "gbps": one.gbps if one.seconds else None,
         "seconds": one.seconds, "reason": one.reason, "id": str(one.method.point)}
        for one in found
    ]  # fmt: skip
    name = model.machine.name
    return {"modelled": True, "machine": name, "flows": [flow], "methods": methods, "deviation": None}
