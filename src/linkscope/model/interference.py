"""Shared links, from points of concurrent flows: the groups found, and the sets to measure next
(docs/method/shared-links.md).

`stats/sharing.py` holds the tests and the grouping; this module selects the points.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from linkscope.model.curves import Estimate, Path
from linkscope.model.flows import Joint, are_apart, joints, rates_alone
from linkscope.runfile import Point
from linkscope.stats import (
    Shared,
    Slowdown,
    contrast,
    log_variance,
    median,
    shared_by_pairs,
    sharing_sets,
    slowdowns,
    student_interval,
    unexplained,
)
from linkscope.stats.sharing import EQUAL

LEVEL = 0.95
FAIR = 1.05  # shares that differ by less are equal


@dataclass(frozen=True)
class Part:
    """A flow of a group: its GB/s while the group is saturated, and its share."""

    path: Path
    gbps: float
    share: float
    alone_gbps: float


@dataclass(frozen=True)
class Group:
    """Paths that share a capacity, in GB/s. `parts`: the flows of the point `id` that showed it, the largest set.

    `in_pairs`: two flows reach the capacity; otherwise it takes more.
    """

    paths: tuple[Path, ...]
    capacity: Estimate
    in_pairs: bool
    id: str
    parts: tuple[Part, ...]

    @property
    def fair(self) -> bool:
        """Whether all slowed flows get the same rate."""
        slowed = [part.gbps for part in self.parts if part.gbps < part.alone_gbps / FAIR]
        return not slowed or max(slowed) <= FAIR * min(slowed)


@dataclass(frozen=True)
class Open:
    """Concurrent paths that get less than the groups explain: GB/s in total, and the sum of their rates alone."""

    paths: tuple[Path, ...]
    gbps: float
    alone_gbps: float


@dataclass(frozen=True)
class Interference:
    """The result: `slowdowns` by flow and set, the groups, and sets that get less than the groups explain.

    `ids`: the points of the sets. `next`: sets to measure next.
    """

    slowdowns: tuple[Slowdown[Path], ...]
    groups: tuple[Group, ...]
    open: tuple[Open, ...]
    ids: Mapping[frozenset[Path], str]
    next: tuple[tuple[Path, ...], ...]

    def sets(self) -> dict[frozenset[Path], list[Slowdown[Path]]]:
        """The flows of every measured set."""
        found: dict[frozenset[Path], list[Slowdown[Path]]] = {}
        for one in self.slowdowns:
            found.setdefault(one.flows, []).append(one)
        return found

    def pairs(self) -> dict[frozenset[Path], list[Slowdown[Path]]]:
        """Both flows of every pair."""
        return {flows: of for flows, of in self.sets().items() if len(flows) == 2}

    def slowed_pairs(self) -> dict[str, frozenset[Path]]:
        """The pairs with a slowed flow, by id."""
        return {self.ids[one.flows]: one.flows for one in self.slowdowns if one.slowed and len(one.flows) == 2}


def interference(points: Iterable[Point]) -> Interference:
    """The shared links of a run; without groups if no flows ran concurrently, or nothing is shared."""
    points = list(points)
    by_itself = rates_alone(points)
    sets = [one for one in joints(points) if all((path, one.bytes) in by_itself for path in one.rounds)]
    return _Finding(by_itself, sets).found()


class _Finding:
    def __init__(self, by_itself: Mapping[tuple[Path, int], Sequence[float]], sets: Sequence[Joint]) -> None:
        self._of = {frozenset(one.rounds): one for one in sets}
        beside = [of for one in sets for of in one.rounds.values()]
        # At the size of the sets only: rounds of small copies differ far more.
        sizes = {one.bytes for one in sets}
        self._spread = _spread([*(of for (_, size), of in by_itself.items() if size in sizes), *beside])
        self._besides = slowdowns(
            {
                (path, flows): contrast(rounds, by_itself[path, one.bytes], self._spread)
                for flows, one in self._of.items()
                for path, rounds in one.rounds.items()
            }
        )
        self._rates = {
            path: one.bytes / median(by_itself[path, one.bytes]) / 1e9 for one in sets for path in one.rounds
        }

    def found(self) -> Interference:
        totals = {flows: median(one.totals()) for flows, one in self._of.items()}
        pairs = shared_by_pairs(self._besides, totals, one_end)
        wide = self._wide(pairs)
        left = self._open([*pairs, *(shared for shared, _ in wide)])
        groups = [self._group(shared, self._widest(shared)) for shared in pairs]
        groups += [self._group(shared, self._of[flows]) for shared, flows in wide]
        asked = [self._saturating(shared) for shared in pairs]
        asked += [flows - {path} for flows in self._open(pairs) for path in sorted(flows)]
        asked += [members for flows in self._open(pairs) for members in self._members(flows) if len(members) == 2]
        next_sets = [one for one in asked if one not in self._of]
        return Interference(
            tuple(self._besides),
            tuple(sorted(groups, key=_order)),
            tuple(
                Open(tuple(flows), totals[frozenset(flows)], self._sum(flows)) for flows in sorted(map(sorted, left))
            ),
            {flows: one.id for flows, one in self._of.items()},
            tuple(tuple(sorted(one)) for one in dict.fromkeys(next_sets)),
        )

    def _open(self, groups: Sequence[Shared[Path]]) -> list[frozenset[Path]]:
        """Sets that get less than the groups explain and are not part of another such set."""
        found = unexplained(self._besides, self._rates, groups)
        return [flows for flows in found if not any(flows < other for other in found)]

    def _wide(self, pairs: Sequence[Shared[Path]]) -> list[tuple[Shared[Path], frozenset[Path]]]:
        """Groups that only more than two flows show, each with its set."""
        found = [
            (Shared(members, _capacity(self._of[flows], members).value, in_pairs=False), flows)
            for flows in self._open(pairs)
            for members in self._members(flows)
            if len(members) > 2
        ]
        return _merged(found)

    def _members(self, flows: frozenset[Path]) -> list[frozenset[Path]]:
        """The members of a set that are faster without each other, as far as sets without them were measured."""
        whole, less = self._of[flows], {path: self._of.get(flows - {path}) for path in sorted(flows)}
        return sharing_sets(
            {
                (path, other): contrast(whole.rounds[path], without.rounds[path], self._spread)
                for other, without in less.items()
                if without is not None
                for path in sorted(flows - {other})
            }
        )

    def _sum(self, flows: Iterable[Path]) -> float:
        """The sum of the rates of the paths alone, in GB/s."""
        return sum(self._rates[path] for path in flows)

    def _widest(self, shared: Shared[Path]) -> Joint:
        """The largest set of a group's flows that reaches the capacity."""
        return max(self._meeting(shared), key=lambda one: (len(one.rounds), median(one.totals())))

    def _saturating(self, shared: Shared[Path]) -> frozenset[Path]:
        """The most flows of a group without a common GPU. A pair that reaches the capacity comes first."""
        chosen = sorted(max(self._meeting(shared), key=lambda one: (-len(one.rounds), median(one.totals()))).rounds)
        for path in sorted(shared.flows):
            if are_apart([*chosen, path]):
                chosen.append(path)
        return frozenset(chosen)

    def _meeting(self, shared: Shared[Path]) -> list[Joint]:
        within = [one for flows, one in self._of.items() if flows <= shared.flows]
        return [one for one in within if median(one.totals()) * (1 + EQUAL) >= shared.capacity]

    def _group(self, shared: Shared[Path], joint: Joint) -> Group:
        members = [path for path in sorted(joint.rounds) if path in shared.flows]
        total = sum(joint.gbps(path) for path in members)
        parts = tuple(Part(path, joint.gbps(path), joint.gbps(path) / total, self._rates[path]) for path in members)
        capacity = _capacity(joint, frozenset(members))
        return Group(tuple(sorted(shared.flows)), capacity, shared.in_pairs, joint.id, parts)


def one_end(one: Path, other: Path) -> str:
    """`same`: both start at one GPU, or end at one; `other`: one starts where the other ends."""
    if any(a == b and "gpu:" in a for a, b in ((one.src, other.src), (one.dst, other.dst))):
        return "same"
    return "" if are_apart((one, other)) else "other"


def _merged(
    found: Sequence[tuple[Shared[Path], frozenset[Path]]],
) -> list[tuple[Shared[Path], frozenset[Path]]]:
    """Merges groups of one capacity that cross the same places in both directions: each GPU has one direction in
    each of them."""
    merged: list[tuple[Shared[Path], frozenset[Path]]] = []
    for shared, flows in found:
        for at, (known, of) in enumerate(merged):
            alike = max(shared.capacity, known.capacity) <= (1 + EQUAL) * min(shared.capacity, known.capacity)
            if alike and _mixed(shared.flows) and _mixed(known.flows) and _ends(shared.flows) == _ends(known.flows):
                merged[at] = (Shared(known.flows | shared.flows, known.capacity, in_pairs=False), of)
                break
        else:
            if not any(shared.flows == known.flows for known, _ in merged):
                merged.append((shared, flows))
    return merged


def _mixed(flows: Iterable[Path]) -> bool:
    return {"gpu:" in flow.src for flow in flows} == {True, False}


def _ends(flows: Iterable[Path]) -> set[str]:
    return {place for flow in flows for place in (flow.src, flow.dst)}


def _capacity(joint: Joint, members: frozenset[Path]) -> Estimate:
    """GB/s of these flows together, with the interval over rounds."""
    totals = Joint(joint.id, joint.bytes, {path: of for path, of in joint.rounds.items() if path in members}).totals()
    interval = student_interval(totals, LEVEL)
    return Estimate(median(totals), *((interval.low, interval.high) if interval else ()))


def _spread(rounds: Iterable[Sequence[float]]) -> float:
    """The mean variance of the logarithms within a flow's rounds."""
    known = [log_variance(of) for of in rounds if len(of) > 1]
    return sum(known) / len(known) if known else 0.0


def _order(group: Group) -> tuple[tuple[Path, ...], float]:
    return group.paths, group.capacity.value
