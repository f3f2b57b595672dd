"""Finds what flows share: both directions of a link, and groups of links that carry less than their sum.

Concurrent flows that get less than their links allow share something. The candidate groups are sets of links that such
flows cross. The group whose capacity explains the concurrent points best is added, then the next, as long as each
explains clearly more than it costs. So uplinks are found that a virtual machine hides.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from linkscope.flow import read_path
from linkscope.model.constants import Constant
from linkscope.model.curves import Path
from linkscope.model.fit import Fit, Place, Pooled, directions, gain_needed
from linkscope.model.flows import is_plain
from linkscope.model.interference import Group
from linkscope.model.observed import Observation, totals
from linkscope.model.skeleton import Content
from linkscope.model.text import places_text
from linkscope.runfile import PointId
from linkscope.stats.least_squares import huber

_MOST = 24
_ALONE = ("h2d", "d2h", "d2d")
_TOGETHER = 0.95  # flows that end one after the other leave the rest of the time to the last one
_NEARLY = 0.9  # for a total that is uncertain by the part of the time in which not all flows ran
_FLOOR = 0.003  # variation of large concurrent flows between runs
_REFINED, _STEPS = 5, 5  # number of candidates, ranked by their largest load, whose capacity is fitted
_CLEARLY = 1.0  # ratio of losses between two candidates; of equal ones the first is taken
_SEEN = 0.97  # of the largest load: the least capacity
_BINDS = 0.98  # of the rates of its links: a group that carries this much is not a share
_BOTH_DIRECTIONS = Constant("link", "both_ways_gbps", 1.0, 1e-3, 1e5)
_MEMORY = Constant("numa", "dram_gbps", 1.0, 1e-3, 1e5)
_SHARE = Constant("share", "gbps", 1.0, 1e-3, 1e5)

Links = frozenset[str]
Candidates = Mapping[Links, float | None]  # and their measured total, if known


@dataclass(frozen=True)
class Crossing:
    """A point: GB/s of all its flows, the part of it that crosses each directed link, and its two ends."""

    gbps: float
    parts: dict[str, float]
    places: tuple[str, str]
    joint: bool

    def load(self, links: Iterable[str]) -> float:
        """GB/s over these links together."""
        return self.gbps * sum(self.parts.get(link, 0.0) for link in links)


def find_shares(
    fit: Fit, joint: Callable[[PointId], bool], most: int = _MOST, groups: Sequence[Group] | None = None
) -> bool:
    """Adds `both_ways_gbps`, [[share]] and memory rates to the content, as the concurrent points of this kind require.

    At most `most` are added. Returns whether any was. `groups`: paths that are known to share something.
    """
    chosen = _largest(filter(None, map(_at_once, (one for one in fit.observations if joint(one.point)))))
    alone = [one for one in fit.observations if one.point.engine == "ce" and not one.joint]
    crossings = _crossings(fit, chosen)
    if crossings:  # a single copy shows what its links carry, too
        crossings += _crossings(fit, _largest(one for one in alone if one.point.benchmark in _ALONE))
    if groups is not None:  # known groups decide; otherwise the rate of each flow
        chosen = totals(chosen)
    times = fit.times(fit.content, (one.point for one in chosen))
    pooled = [  # each separately: paths are equal until a shared capacity distinguishes them
        Pooled(replace(one, sigma=math.hypot(_FLOOR, one.spread)), 1)
        for one in chosen
        if one.of(times[str(one.point)]) is not None
    ]
    if not pooled or not crossings:
        return False
    places: list[Place] = []
    plain = _crossings(fit, _largest(one for one in alone if is_plain(one.point)))
    if groups is None:
        candidates: Candidates = dict.fromkeys(_groups(crossings))
    else:  # and what all GPUs share, if there are transfers to or from all of them
        of_all = [one for one in crossings if any("all" in place for place in one.places)]
        candidates = dict.fromkeys(_groups(of_all)) | _links_of(groups, plain)
    while len(places) < most:
        added = _best(fit, places, pooled, crossings, candidates)
        if added is None:
            break
        places.append(added)
    fit.solve(places, pooled)
    places = _without_idle(fit, places)
    fit.record(places, fit.solve(places, pooled), pooled)
    return bool(places)


def _at_once(one: Observation) -> Observation | None:
    """The observation as one of concurrent flows; None if they overlapped too little."""
    if one.overlap >= _TOGETHER:
        return one
    if one.flow >= 0 or one.overlap < _NEARLY:
        return None
    spread = math.hypot(one.spread, 1 - one.overlap)
    return replace(one, spread=spread, sigma=math.hypot(one.sigma, 1 - one.overlap))


def _without_idle(fit: Fit, places: list[Place]) -> list[Place]:
    """The places without shares that limit nothing once all capacities are fitted."""
    shares = fit.content.get("share", [])
    rows = [row for place in places if place.constant.table == "share" for row in place.rows]
    idle = [row for row in rows if not _binds(fit.content, shares[row]["links"], shares[row]["gbps"]["v"])]
    if not idle:
        return places
    fit.content["share"] = [share for row, share in enumerate(shares) if row not in idle]
    if not fit.content["share"]:
        del fit.content["share"]
    renumbered = {row: row - sum(gone < row for gone in idle) for row in rows}
    return [
        replace(place, rows=tuple(renumbered[row] for row in place.rows)) if place.constant.table == "share" else place
        for place in places
        if place.constant.table != "share" or not set(place.rows) & set(idle)
    ]


def _largest(observations: Iterable[Observation]) -> list[Observation]:
    """The largest size of each method on each path; pinned and registered memory count as one."""
    best: dict[tuple[object, ...], Observation] = {}
    for one in sorted(
        observations, key=lambda one: (one.point.bytes, "pinned" in (one.point.src_memory, one.point.dst_memory))
    ):
        point = one.point
        best[point.benchmark, point.src, point.dst, point.params, one.flow] = one
    return list(best.values())


def _crossings(fit: Fit, chosen: Sequence[Observation]) -> list[Crossing]:
    points = {str(one.point): one for one in chosen}
    carried = fit.simulation.carried(fit.content, [one.point for one in points.values()])
    found = []
    for (key, first), links in zip(points.items(), carried, strict=True):
        flows = [one for one in chosen if str(one.point) == key]
        if not links or (first.flow >= 0 and len(flows) < len(first.flow_bytes)):
            continue
        payload = sum(first.flow_bytes)
        gbps = (
            payload / first.seconds if first.flow < 0 else sum(f.flow_bytes[f.flow] / f.seconds for f in flows)
        ) / 1e9
        found.append(
            Crossing(
                gbps,
                {link: size / payload for link, size in links.items()},
                (first.point.src, first.point.dst),
                first.joint,
            )
        )
    return found


def _best(
    fit: Fit, places: Sequence[Place], pooled: Sequence[Pooled], crossings: Sequence[Crossing], groups: Candidates
) -> Place | None:
    """Adds the candidate that explains the concurrent points best; None if no candidate pays for itself."""
    start = fit.content
    now = huber(fit.residuals(start, pooled))
    tried = [
        (huber(fit.residuals(content, pooled)), at, content, place)
        for at, (content, place) in enumerate(_additions(fit, start, crossings, groups))
    ]
    least = sorted(tried, key=lambda one: one[0])[:_REFINED]
    refined = [one for one in tried if one in least or one[3].constant.key == _MEMORY.key]
    best, chosen, added = math.inf, start, None
    for _, _, fit.content, place in refined:
        loss = fit.solve([*places, place], pooled, _STEPS).loss
        enough = now - (_CLEARLY if _is_known(fit.content, place, groups) else gain_needed(len(pooled)))
        if loss < min(enough, best - (_CLEARLY if added else 0)):
            best, chosen, added = loss, fit.content, place
    fit.content = chosen
    return added


def _is_known(content: Content, place: Place, groups: Candidates) -> bool:
    """Whether these links are a known group."""
    shares = content.get("share", [])
    return place.constant.table == "share" and groups.get(frozenset(shares[place.rows[0]]["links"])) is not None


def _additions(
    fit: Fit, start: Content, crossings: Sequence[Crossing], groups: Candidates
) -> Iterable[tuple[Content, Place]]:
    """Candidates, the likeliest first: on hosts with several nodes the memory of each node before groups of links; on
    hosts with one node the memory last, since its links explain as much."""
    several = sum(len(numa["places"]) for numa in start["numa"]) > 1
    if several:
        yield from _memories(fit, start, crossings)
    yield from _capacities_of_links(fit, start, crossings, groups)
    if not several:
        yield from _memories(fit, start, crossings)


def _capacities_of_links(
    fit: Fit, start: Content, crossings: Sequence[Crossing], groups: Candidates
) -> Iterable[tuple[Content, Place]]:
    names = [directions(link) for link in start["link"]]
    for place in fit.places(_BOTH_DIRECTIONS):
        load = max(crossing.load(names[row]) for crossing in crossings for row in place.rows)
        if _BOTH_DIRECTIONS.key in start["link"][place.rows[0]] or not _binds(start, names[place.rows[0]], load):
            continue
        content = copy.deepcopy(start)
        place.put(content, {"v": load, "from": "fitted"})
        yield content, replace(place, constant=_at_least(_BOTH_DIRECTIONS, load))
    known = [frozenset(share["links"]) for share in start.get("share", [])]
    for links, capacity in groups.items():
        load = capacity or max(crossing.load(links) for crossing in crossings)
        if links in known or not _binds(start, links, load):
            continue
        content = copy.deepcopy(start)
        shares = content.setdefault("share", [])
        quantity = {"v": load, "from": "fitted"}
        shares.append({"name": _name(links), "links": sorted(links), "gbps": quantity})
        yield content, Place(_at_least(_SHARE, load), (len(shares) - 1,))


def _at_least(constant: Constant, load: float) -> Constant:
    """The least possible capacity: the largest load that was seen, less noise."""
    return replace(constant, low=_SEEN * load)


def _memories(fit: Fit, start: Content, crossings: Sequence[Crossing]) -> Iterable[tuple[Content, Place]]:
    for place in fit.places(_MEMORY):
        hosts = [host for row in place.rows for host in start["numa"][row]["places"]]
        loads = [
            crossing.load(link for link in crossing.parts if host in _ends(link))
            for crossing in crossings
            for host in hosts
            if host in crossing.places
        ]
        load = max(loads, default=0)
        if start["numa"][place.rows[0]][_MEMORY.key]["from"] != "fitted" and load > 0:
            content = copy.deepcopy(start)
            place.put(content, {"v": load, "from": "fitted"})
            yield content, replace(place, constant=_at_least(_MEMORY, load))


def _groups(crossings: Sequence[Crossing]) -> list[Links]:
    """Candidate groups: the links that the flows of a point cross, all of them or one direction at a host; and those of
    all points at hosts."""
    found: dict[Links, None] = {}
    at_hosts = frozenset(link for one in crossings for link in one.parts if "numa" in (end[:4] for end in _ends(link)))
    together = [frozenset(crossing.parts) for crossing in crossings if crossing.joint]
    if not any("all" in place for one in crossings for place in one.places):  # only pairs: they may all share it
        together.insert(0, at_hosts)
    for links in together:
        ways = (frozenset(link for link in links if _ends(link)[at].partition(":")[0] == "numa") for at in (0, 1))
        for group in (links, *ways):
            if len(group) > 1 and not _one_link(group):
                found[group] = None
    return list(found)


def _links_of(groups: Sequence[Group], crossings: Sequence[Crossing]) -> dict[Links, float | None]:
    """For each group, links that its paths cross and no other path does, merged: the first of each path, or the
    last."""
    ways = {Path(*crossing.places): _in_order(crossing) for crossing in crossings}
    over: dict[str, set[Path]] = {}
    for path, links in ways.items():
        for link in links:
            over.setdefault(link, set()).add(path)
    found: dict[Links, float | None] = {}
    for group in groups:
        own = [[link for link in ways.get(path, []) if over[link] <= set(group.paths)] for path in group.paths]
        for end in (0, -1) if all(own) else ():
            chosen = frozenset(links[end] for links in own)
            once = all(len(chosen & set(links)) == 1 for links in own)
            if once and len(chosen) > 1 and not _one_link(chosen):
                found[chosen] = group.capacity.value
    return found


def _in_order(crossing: Crossing) -> list[str]:
    """The links of a path in order from its source."""
    here, found = crossing.places[0], []
    left = {_ends(link)[0]: link for link in crossing.parts}
    while here in left:
        found.append(left.pop(here))
        here = _ends(found[-1])[1]
    return found


def _one_link(group: Links) -> bool:
    """Whether the links are both directions of one link, which `both_ways_gbps` describes."""
    return len(group) == 2 and len({frozenset(_ends(link)) for link in group}) == 1


def _binds(content: Content, links: Iterable[str], load: float) -> bool:
    """Whether the load is clearly less than what these links carry one by one and in both directions."""
    wanted, most = set(links), 0.0
    for link in content["link"]:
        raw = (link["gbps"]["v"], link.get("back_gbps", link["gbps"])["v"])
        used = [gbps for name, gbps in zip(directions(link), raw, strict=True) if name in wanted]
        both = link.get("both_ways_gbps", {}).get("v", math.inf) if len(used) > 1 else math.inf
        most += min(sum(used) * link["efficiency"]["v"], both)
    return 0 < load < _BINDS * most


def _ends(link: str) -> tuple[str, str]:
    return read_path(link.rpartition(" ")[2])


def _name(links: Links) -> str:
    """'numa:0 to gpu:0-3', 'numa:0 to gpu:0-3 and back'."""
    pairs = {_ends(link) for link in links}
    forth = {pair for pair in pairs if pair[0].partition(":")[0] == "numa"} or pairs
    back = pairs - forth
    mirrored = {(one, other) for other, one in back} == forth
    text = f"{places_text({one for one, _ in forth})} to {places_text({other for _, other in forth})}"
    if mirrored:
        return f"{text} and back"
    return text + (f"; {places_text({o for o, _ in back})} to {places_text({o for _, o in back})}" if back else "")
