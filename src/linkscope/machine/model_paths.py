"""Paths through a modelled machine, as the simulation takes them (core/platform/sim/routes.cpp), and their peaks."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import dataclass

from linkscope.machine.model_places import order, places
from linkscope.machine.model_schema import Quantity
from linkscope.machine.model_types import Link, Model


@dataclass(frozen=True)
class DirectedLink:
    name: str  # "pcie numa:0->gpu:1"
    start: str
    to: str
    raw: Quantity
    efficiency: float
    link: Link

    @property
    def gbps(self) -> float:
        """The rate that copies can get."""
        return self.raw.v * self.efficiency


@dataclass(frozen=True)
class PathLimit:
    """The peak of a path, before any protocol's cost, and its derivation."""

    gbps: float
    derivation: str


def nodes(model: Model) -> list[str]:
    """NUMA nodes, GPUs, NICs, disks, switches."""
    known = places(model)
    switches = sorted((name for switch in model.switch for name in switch.places), key=order)
    return [*known.numa, *known.gpus, *known.nics, *known.disks, *switches]


def directed_links(model: Model) -> list[DirectedLink]:
    """Both directions of every link, in the order of the file."""
    found = []
    for link in model.link:
        for one, other in link.between:
            for start, to, raw in ((one, other, link.gbps), (other, one, link.back_gbps or link.gbps)):
                found.append(DirectedLink(f"{link.name} {start}->{to}", start, to, raw, link.efficiency.v, link))
    return found


def widest(model: Model, start: str, to: str) -> DirectedLink | None:
    """The widest link between two nodes."""
    joining = [link for link in directed_links(model) if (link.start, link.to) == (start, to)]
    return max(joining, key=lambda link: link.gbps, default=None)


def routes(model: Model) -> dict[tuple[str, str], list[DirectedLink]]:
    """The links from each node to each other: fewest, then widest, never through a GPU or a disk; [[route]]
    overrides."""
    links = directed_links(model)
    found: dict[tuple[str, str], list[DirectedLink]] = {}
    for start in nodes(model):
        found |= {(start, to): path for to, path in _from(start, links).items()}
    for route in model.route:
        stops = [route.start, *route.via, route.to]
        hops = [widest(model, one, other) for one, other in itertools.pairwise(stops)]
        found[route.start, route.to] = [hop for hop in hops if hop is not None]
    return found


def _from(start: str, links: list[DirectedLink]) -> dict[str, list[DirectedLink]]:
    paths: dict[str, list[DirectedLink]] = {start: []}
    edge = [start]
    while edge:
        reached: dict[str, list[DirectedLink]] = {}
        for here in edge:
            if here != start and ("gpu:" in here or "disk:" in here):
                continue
            for link in links:
                if link.start != here or link.to in paths:
                    continue
                path = [*paths[here], link]
                if link.to not in reached or _width(path) > _width(reached[link.to]):
                    reached[link.to] = path
        paths |= reached
        edge = list(reached)
    return paths


def _width(path: list[DirectedLink]) -> float:
    return min(link.gbps for link in path)


def limits(model: Model) -> dict[tuple[str, str], PathLimit]:
    """The peaks of all ordered pairs of NUMA nodes and GPUs, each with itself too."""
    ways = routes(model)
    known = places(model)
    everyone = [*known.numa, *known.gpus]
    return {(src, dst): _limit(model, ways[src, dst], src, dst) for src in everyone for dst in everyone}


def through_host(model: Model, src: str, dst: str) -> dict[str, tuple[list[DirectedLink], list[DirectedLink]]]:
    """The paths into and out of host memory between two GPUs without peer access, by the NUMA node of the staging
    memory.

    That node is the one near the GPU whose stream queues the copy, the source or the destination.
    """
    ways = routes(model)
    near = places(model).gpu_numa
    return {host: (ways[src, host], ways[host, dst]) for host in (near[src], near[dst])}


def limit_through_host(model: Model, src: str, dst: str) -> PathLimit:
    """The peak between two GPUs without peer access: the narrower of both halves, through the better node."""

    def narrower(host: str, into: list[DirectedLink], out: list[DirectedLink]) -> PathLimit:
        return min(_limit(model, into, src, host), _limit(model, out, host, dst), key=lambda limit: limit.gbps)

    through = [narrower(host, *both) for host, both in through_host(model, src, dst).items()]
    return max(through, key=lambda limit: limit.gbps)


def limit_finder(model: Model) -> Callable[[str, str, bool, bool], PathLimit | None]:
    """A function that gives the peak of a path from its ends, whether peer access is used, and whether managed pages
    move; None: no path.

    Without peer access it is the peak through the host, except for managed pages over NVLink, because the driver makes
    linked GPUs peers.
    """
    ways, everywhere, known = routes(model), limits(model), places(model)

    @functools.cache
    def limit(src: str, dst: str, peer: bool, managed: bool) -> PathLimit | None:
        if {src, dst} & {*known.disks} and (src, dst) in ways:
            return _limit(model, ways[src, dst], src, dst)
        if src == dst or src not in known.gpus or dst not in known.gpus:
            return everywhere.get((src, dst))
        over_nvlink = all(link.link.kind == "nvlink" for link in ways[src, dst])
        directly = (src, dst) in known.peers and (peer or (managed and over_nvlink))
        return everywhere[src, dst] if directly else limit_through_host(model, src, dst)

    return limit


def _limit(model: Model, way: list[DirectedLink], src: str, dst: str) -> PathLimit:
    candidates = [
        PathLimit(link.raw.v, f"{_link_text(link)}, {link.raw.v:g} GB/s raw ({link.raw.source()})") for link in way
    ]
    for place in dict.fromkeys((src, dst)):
        memory = _memory(model, place)
        if memory is None:
            continue
        both = src == dst
        text = f"the memory of {place}, {memory.v:g} GB/s ({memory.source()})"
        candidates.append(PathLimit(memory.v / 2 if both else memory.v, text + (", read and written" if both else "")))
    return min(candidates, key=lambda limit: limit.gbps)


def _link_text(link: DirectedLink) -> str:
    return f"{link.name} ({link.link.kind}{f' x{link.link.lanes}' if link.link.lanes > 1 else ''})"


def _memory(model: Model, place: str) -> Quantity | None:
    """The rate of a memory; None for a disk, whose link has its rate."""
    for numa in model.numa:
        if place in numa.places:
            return numa.dram_gbps
    return next((gpu.memory_gbps for gpu in model.gpu if place in gpu.places()), None)
