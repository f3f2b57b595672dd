"""Shared parts of the tests of the papers' machines: steady-state rates, as `linkscope predict` computes them.

The tests contain numbers and shapes of the papers. They never read them from the machine files.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from linkscope.machine import model as models
from linkscope.machine.model_paths import directed_links, routes
from linkscope.plan.facts import kind_of
from linkscope.run.steady import steady_rates
from linkscope.runfile import PointId

KIB, MIB = 1 << 10, 1 << 20
IBM = ("ac922", "s822lc", "minsky", "newell")


@cache
def rates(
    machine: str, *ends: str, size: int = 64 * MIB, memory: str = "pinned", peer: str = "on", engine: str = "ce"
) -> list[float]:
    """GB/s of each transfer ("numa:0 > gpu:1") while all of them run."""
    points = [_point(*end.split(" > "), size, memory, peer, engine) for end in ends]
    return [flow.gbps for flow in steady_rates(models.load(machine), points)]


def rate(machine: str, end: str, **how: Any) -> float:
    return rates(machine, end, **how)[0]


def bidirectional_rates(machine: str, end: str, **how: Any) -> list[float]:
    src, dst = end.split(" > ")
    return rates(machine, end, f"{dst} > {src}", **how)


def _point(src: str, dst: str, size: int, memory: str, peer: str, engine: str) -> PointId:
    kinds = (kind_of(src), kind_of(dst))
    if kinds == ("numa", "numa"):
        return PointId("h2h", "cpu", src, "pageable", dst, "pinned", size)
    if kinds == ("gpu", "gpu"):
        return PointId("d2d", "ce", src, "device", dst, "device", size, (("peer", peer),))
    if kinds[0] == "numa":
        return PointId("h2d", engine, src, memory, dst, "device", size)
    return PointId("d2h", engine, src, "device", dst, memory, size)


def raw(machine: str, name: str) -> float:
    """GB/s of a directed link in one direction, without protocol overhead."""
    return next(link.raw.v for link in directed_links(models.load(machine)) if link.name == name)


def penalty(near: float, far: float) -> float:
    """The loss in percent: (near - far) / near."""
    return 100 * (near - far) / near


def hops(machine: str, src: str, dst: str) -> list[tuple[str, int]]:
    return [(hop.link.kind, hop.link.lanes) for hop in routes(models.load(machine))[src, dst]]


@dataclass(frozen=True)
class Number:
    """A number from a paper: `expected` within 5 %, a penalty within a tenth or 2 points."""

    item: str
    found: Any  # a function of no arguments
    expected: float
    is_penalty: bool = False


@dataclass(frozen=True)
class Span:
    """A range from a paper: from `least` to `most`."""

    item: str
    found: Any  # a function of no arguments
    least: float
    most: float


def is_near(number: Number, found: float) -> bool:
    allowed = max(0.1 * number.expected, 2) if number.is_penalty else 0.05 * number.expected
    return abs(found - number.expected) <= allowed


def check(number: Number) -> None:
    found = number.found()
    assert is_near(number, found), f"{number.item}: {found:.4g} for {number.expected:g}"
