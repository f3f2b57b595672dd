"""Points between nodes: pairs in rounds in which no two pairs share a node, and sets of pairs that share links.

One rank measures for its node: the first one of each host.
"""

import functools
from collections.abc import Iterable, Iterator

from linkscope.flow import write_paths
from linkscope.plan.facts import MachineFacts, host_of
from linkscope.plan.suite_rules import Suite
from linkscope.runfile import PointId

_NEEDS = "pairs of nodes need ranks on two hosts or more: srun --nodes=2 linkscope run --suite nodes"
_MEMORY = "pageable"
_SHORT, _LONG = 8, 4 << 20
Pair = tuple[str, str]


def tournament(count: int) -> list[list[tuple[int, int]]]:
    """Returns rounds in which everybody of `count` meets at most one other, and after which everybody has met everybody
    once: the circle method. The smaller number of a pair comes first."""
    seats: list[int | None] = [*range(count), *([None] if count % 2 else [])]
    rounds = []
    for _ in range(len(seats) - 1):
        pairs = zip(seats[: len(seats) // 2], reversed(seats), strict=False)
        rounds.append(sorted((min(a, b), max(a, b)) for a, b in pairs if a is not None and b is not None))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return rounds


def first_ranks(machine: MachineFacts) -> list[str]:
    """Returns the first rank of each host, in order of rank."""
    found: dict[str, str] = {}
    for number, at in enumerate(machine.ranks):
        found.setdefault(at.get("host") or host_of(at["numa"]), f"rank:{number}")
    return list(found.values())


def in_rounds(machine: MachineFacts) -> Iterator[PointId]:
    """Yields all pairs of nodes, if there are several, in rounds: round trips, and messages in each direction."""
    nodes, point = first_ranks(machine), functools.partial(_point, "mpi" if machine.has_mpi else "ucx")
    for pairs in tournament(len(nodes)) if len(nodes) > 1 else ():
        there = [(nodes[one], nodes[other]) for one, other in pairs]
        back = [(dst, src) for src, dst in there]
        yield point("node_ping_pong", _SHORT, there)
        yield point("node_rate", _LONG, there)
        yield point("node_rate", _LONG, back)


def sharing(machine: MachineFacts) -> Iterator[PointId]:
    """Yields pairs alone and at once: between the first and the second half of the nodes, and from many nodes to the
    first one."""
    nodes, point = first_ranks(machine), functools.partial(_point, "mpi" if machine.has_mpi else "ucx")
    if len(nodes) < 2:
        return
    half = len(nodes) // 2
    across = [(nodes[at], nodes[at + half]) for at in range(half)]
    inwards = [(node, nodes[0]) for node in nodes[1:]]
    for pair in dict.fromkeys([*across, *inwards]):
        yield point("node_rate", _LONG, [pair])
    if half > 1:
        yield point("node_rate", _LONG, across)
    for count in sorted({2, half, len(inwards)}):
        if 1 < count <= len(inwards):
            yield point("node_rate", _LONG, inwards[:count])


def _point(engine: str, benchmark: str, size: int, pairs: Iterable[Pair]) -> PointId:
    (src, dst), *others = pairs
    params = (("with", write_paths(others)),) if others else ()
    return PointId(benchmark, engine, src, _MEMORY, dst, _MEMORY, size, params)


OF_NODES = (
    Suite(
        "nodes",
        "all pairs of nodes (srun linkscope run --suite nodes), in rounds in which no two pairs share a node: "
        "round trips, and messages in each direction",
        (),
        alike_contexts=False,
        more=in_rounds,
        needs=_NEEDS,
    ),
    Suite(
        "nodes-shared",
        "pairs of nodes alone and at once: half of the nodes to the other half, and many to one; shows the links "
        "that they share",
        (),
        alike_contexts=False,
        more=sharing,
        needs=_NEEDS,
    ),
)
