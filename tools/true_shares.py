"""Derives the shared links of a modelled machine from its links: max-min fair shares in closed form.

`tools/planner_proofs.py interference` and tests/python/test_interference.py use it as the truth. Flows are copies by
copy engine without a common GPU; they cross the memories at both ends, the links between them, both directions of a
link with a joint rate, and [[share]]s.
"""

import fnmatch
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.machine.model import Model, places
from linkscope.machine.model_paths import directed_links, routes
from linkscope.model.curves import Path

SLOWED = 0.9  # as in linkscope/stats/sharing.py
EQUAL = 0.03


@dataclass(frozen=True)
class Truth:
    """Capacities in GB/s, and how often each path crosses each of them."""

    capacity: Mapping[str, float]
    crossed: Mapping[Path, Mapping[str, int]]

    def rates(self, flows: Sequence[Path]) -> dict[Path, float]:
        """GB/s of concurrent flows."""
        found: dict[Path, float] = {}
        left = dict(self.capacity)
        while rising := [flow for flow in flows if flow not in found]:
            load: dict[str, int] = {}
            for flow in rising:
                for name, times in self.crossed[flow].items():
                    load[name] = load.get(name, 0) + times
            level = min(left[name] / times for name, times in load.items())
            full = {name for name, times in load.items() if left[name] <= level * times * (1 + 1e-9)}
            for flow in rising:
                if full & self.crossed[flow].keys():
                    found[flow] = level
                    for name, times in self.crossed[flow].items():
                        left[name] -= level * times
        return found

    def held_by(self, flows: Sequence[Path]) -> dict[str, set[Path]]:
        """The saturated capacities that several of these flows cross, if a flow is slowed."""
        rates = self.rates(flows)
        full: dict[str, set[Path]] = {}
        for name, most in self.capacity.items():
            over = {flow for flow in flows if name in self.crossed[flow]}
            used = sum(rates[flow] * self.crossed[flow][name] for flow in over)
            if len(over) > 1 and used >= most * (1 - 1e-6) and any(self.slowed(flow, rates[flow]) for flow in over):
                full[name] = over
        return full

    def alone(self, flow: Path) -> float:
        """GB/s of a path alone."""
        return self.rates([flow])[flow]

    def slowed(self, flow: Path, gbps: float) -> bool:
        """Whether the rate is less than nine tenths of that alone."""
        return gbps < SLOWED * self.alone(flow)

    def groups(self, sets: Iterable[Sequence[Path]]) -> dict[frozenset[Path], float]:
        """The capacities that any of these sets saturates, each with its flows in all sets. A capacity is left out if
        one of equal or lower rate covers these paths and more.
        """
        members: dict[str, set[Path]] = {}
        for flows in sets:
            for name, over in self.held_by(flows).items():
                members.setdefault(name, set()).update(over)
        found: dict[frozenset[Path], float] = {}
        for name, over in members.items():
            paths = frozenset(over)
            found[paths] = min(self.capacity[name], found.get(paths, self.capacity[name]))
        return {
            paths: gbps
            for paths, gbps in found.items()
            if not any(paths < other and most <= gbps * (1 + EQUAL) for other, most in found.items())
        }


def truth_of(model: Model) -> Truth:
    """All paths between a NUMA node and a GPU, or two GPUs with peer access."""
    known, ways, links = places(model), routes(model), directed_links(model)
    capacity = {place: numa.dram_gbps.v for numa in model.numa for place in numa.places}
    capacity |= {place: gpu.memory_gbps.v for gpu in model.gpu for place in gpu.places()}
    capacity |= {link.name: link.gbps for link in links}
    groups: dict[str, set[str]] = {}
    for share in model.share:
        name = f"share {share.name}"
        groups[name] = {one.name for one in links if any(fnmatch.fnmatchcase(one.name, of) for of in share.links)}
        capacity[name] = share.gbps.v
    for link in model.link:
        for one, other in link.between if link.both_ways_gbps else ():
            name = f"both directions of {link.name} {one}-{other}"
            groups[name] = {f"{link.name} {one}->{other}", f"{link.name} {other}->{one}"}
            capacity[name] = link.both_ways_gbps.v if link.both_ways_gbps else 0.0
    crossed = {}
    for src, dst in itertools.permutations([*known.numa, *known.gpus], 2):
        between = src in known.gpus and dst in known.gpus
        if (between and (src, dst) not in known.peers) or not {src, dst} & set(known.gpus) or (src, dst) not in ways:
            continue
        over = [src, dst, *(link.name for link in ways[src, dst])]
        over += [name for name, of in groups.items() for link in ways[src, dst] if link.name in of]
        crossed[Path(src, dst)] = {name: over.count(name) for name in over}
    return Truth(capacity, crossed)
