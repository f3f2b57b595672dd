"""Finds flows that share a capacity, from the rate of each flow beside others over its rate alone.

Two flows interfere if one of them falls below `SLOWED` of its rate. Flows that share one capacity interfere in pairs,
and no pair exceeds the capacity. Groups are therefore the largest sets in which all pairs interfere (cliques; Bron and
Kerbosch, Algorithm 457, 1973), level by level of the total rate of pairs. Several flows that get less than the max-min
fair shares of all groups (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2) share something wider: its
members are found by leaving out one flow at a time.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from linkscope.stats.equivalence import Contrast, holm

SLOWED = 0.9  # of its rate alone
LEVEL = 0.01  # over all simultaneous tests
EQUAL = 0.03  # relative difference of capacities that count as one
_FASTER = 0.03  # gain of a flow when another is left out

Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Slowdown(Generic[Name]):
    """A flow in a set: its time there over its time alone, and whether it was shown to be slowed."""

    flow: Name
    flows: frozenset[Name]
    of: Contrast
    slowed: bool


@dataclass(frozen=True)
class Shared(Generic[Name]):
    """Flows that share a capacity, in the unit of the rates; `in_pairs`: two of them reach it."""

    flows: frozenset[Name]
    capacity: float
    in_pairs: bool


def tested(contrasts: Iterable[Contrast], margin: float) -> list[bool]:
    """Which of the times exceed the margin; the probability of any false result is `LEVEL`."""
    return holm([of.chance_other(margin) if of.log_ratio > 0 else 1.0 for of in contrasts], LEVEL)


def slowdowns(contrasts: Mapping[tuple[Name, frozenset[Name]], Contrast]) -> list[Slowdown[Name]]:
    """The slowdowns of all flows in all sets, by flow and set."""
    slowed = tested(contrasts.values(), 1 / SLOWED - 1)
    return [Slowdown(flow, flows, of, so) for ((flow, flows), of), so in zip(contrasts.items(), slowed, strict=True)]


def shared_by_pairs(
    found: Iterable[Slowdown[Name]], totals: Mapping[frozenset[Name], float], one_end: Callable[[Name, Name], str]
) -> list[Shared[Name]]:
    """The groups that pairs show.

    `totals`: the total rates of sets. `one_end` of two flows that pairs cannot separate: "same" if both start at one
    place or both end there, so that both cross everything behind it; "other" if one starts where the other ends; "" if
    neither.
    """
    interfering = {one.flows: totals[one.flows] for one in found if one.slowed and len(one.flows) == 2}
    known: list[Shared[Name]] = []
    for level in _levels(sorted(interfering.values())):
        edges = {pair: total for pair, total in interfering.items() if total <= level}
        for shared in _at_level(edges, totals, one_end):
            if any(shared.flows <= of.flows and _equal(of.capacity, shared.capacity) for of in known):
                continue
            known = [of for of in known if not (of.flows <= shared.flows and _equal(of.capacity, shared.capacity))]
            if not any(shared.flows == of.flows for of in known):
                known.append(shared)
    return known


def _at_level(
    edges: Mapping[frozenset[Name], float], totals: Mapping[frozenset[Name], float],
    one_end: Callable[[Name, Name], str],
) -> list[Shared[Name]]:  # fmt: skip
    """The groups of pairs with at most this total; only pairs with the full total of the group if several of its flows
    exceed its capacity."""
    found = []
    for flows in _merged(_cliques(edges, one_end), edges, one_end):
        within = {pair: total for pair, total in edges.items() if pair <= flows}
        most = max(within.values())
        if all(total <= most * (1 + EQUAL) for of, total in totals.items() if of <= flows):
            found.append(Shared(flows, most, in_pairs=True))
            continue
        strict = {pair: total for pair, total in within.items() if _equal(total, most)}
        if len(strict) < len(within):
            found += _at_level(strict, totals, one_end)
        else:
            found += [Shared(pair, total, in_pairs=True) for pair, total in strict.items()]
    return found


def fair_rates(alone: Mapping[Name, float], groups: Iterable[Shared[Name]]) -> dict[Name, float]:
    """The rates of concurrent flows: max-min fair shares of every capacity, at most their rates alone."""
    left = {number: group.capacity for number, group in enumerate(groups)}
    members = {number: group.flows & alone.keys() for number, group in enumerate(groups)}
    rates: dict[Name, float] = {}
    while len(rates) < len(alone):
        rising = alone.keys() - rates.keys()
        counts = {number: len(of & rising) for number, of in members.items() if of & rising}
        level = min([alone[flow] for flow in rising] + [left[number] / count for number, count in counts.items()])
        full = {number for number, count in counts.items() if left[number] / count <= level * (1 + 1e-9)}
        stopping = {flow for flow in rising if alone[flow] <= level or any(flow in members[number] for number in full)}
        for flow in stopping:
            rates[flow] = level
            for number, of in members.items():
                left[number] -= level if flow in of else 0.0
    return rates


def unexplained(
    found: Iterable[Slowdown[Name]], alone: Mapping[Name, float], groups: Sequence[Shared[Name]]
) -> dict[frozenset[Name], frozenset[Name]]:
    """Sets of three or more flows, each with the flows that get clearly less than the groups explain."""
    wide = [one for one in found if len(one.flows) > 2]
    expected = {flows: fair_rates({f: alone[f] for f in flows}, groups) for flows in {one.flows for one in wide}}
    left = {
        (one.flow, one.flows): Contrast(
            one.of.log_ratio - math.log(alone[one.flow] / expected[one.flows][one.flow]), one.of.error, one.of.freedom
        )
        for one in wide
    }
    held: dict[frozenset[Name], set[Name]] = {}
    for (flow, flows), slowed in zip(left, tested(left.values(), 1 / SLOWED - 1), strict=True):
        if slowed:
            held.setdefault(flows, set()).add(flow)
    return {flows: frozenset(of) for flows, of in held.items()}


def sharing_sets(gains: Mapping[tuple[Name, Name], Contrast]) -> list[frozenset[Name]]:
    """Flows that are faster without each other. `gains` of (a, b): the time of a with all flows over that without b."""
    tests = zip(gains, tested(gains.values(), _FASTER), strict=True)
    # A set has another order in every process, and the planner measures flows in the order of the result.
    edges = dict.fromkeys(frozenset(pair) for pair, faster in tests if faster)
    return [frozenset(of) for of in _components(edges)]


def _levels(totals: Sequence[float]) -> list[float]:
    """The upper end of every run of nearly equal totals, ascending."""
    ends = [one for one, other in itertools.pairwise(totals) if not _equal(one, other)]
    return ends + list(totals[-1:])


def _equal(one: float, other: float) -> bool:
    return max(one, other) <= min(one, other) * (1 + EQUAL)


def _cliques(edges: Iterable[frozenset[Name]], one_end: Callable[[Name, Name], str]) -> list[frozenset[Name]]:
    """The largest sets in which all flows interfere or have an end in common; every member interferes with another."""
    edges = set(edges)
    names = sorted({name for pair in edges for name in pair}, key=repr)
    beside: dict[Name, set[Name]] = {name: set() for name in names}
    for one, other in itertools.combinations(names, 2):
        if frozenset((one, other)) in edges or one_end(one, other) == "same":
            beside[one].add(other)
            beside[other].add(one)
    found = []
    for clique in _bron_kerbosch(frozenset(), set(names), set(), beside):
        members = {name for pair in edges if pair <= clique for name in pair}
        if members:
            found.append(frozenset(members))
    return list(dict.fromkeys(found))


def _bron_kerbosch(
    chosen: frozenset[Name], left: set[Name], done: set[Name], beside: Mapping[Name, set[Name]]
) -> Iterator[frozenset[Name]]:
    if not left and not done:
        yield chosen
        return
    pivot = max(left | done, key=lambda name: (len(beside[name] & left), repr(name)))
    for name in sorted(left - beside[pivot], key=repr):
        yield from _bron_kerbosch(chosen | {name}, left & beside[name], done & beside[name], beside)
        left = left - {name}
        done = done | {name}


def _merged(
    cliques: Sequence[frozenset[Name]], edges: Mapping[frozenset[Name], float], one_end: Callable[[Name, Name], str]
) -> list[frozenset[Name]]:
    """Merges cliques of one capacity that are separate only because of common ends."""

    def capacity(flows: frozenset[Name]) -> float:
        return max(total for pair, total in edges.items() if pair <= flows)

    def joined(one: frozenset[Name], other: frozenset[Name]) -> bool:
        across = ((a, b) for a in one - other for b in other - one)
        fit = all(frozenset(pair) in edges or one_end(*pair) for pair in across)
        return fit and _equal(capacity(one), capacity(other))

    groups = list(cliques)
    while pair := next((two for two in itertools.combinations(groups, 2) if joined(*two)), None):
        groups = [group for group in groups if group not in pair] + [pair[0] | pair[1]]
    return groups


def _components(edges: Iterable[frozenset[Name]]) -> list[set[Name]]:
    found: list[set[Name]] = []
    for edge in edges:
        touching = [of for of in found if of & edge]
        found = [of for of in found if not of & edge] + [set(edge).union(*touching)]
    return found
