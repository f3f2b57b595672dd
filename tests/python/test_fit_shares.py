"""Shared capacities fitted to a simulation in closed form: known answers, without a worker."""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from linkscope.model.curves import Estimate, Path
from linkscope.model.fit import Fit, directions
from linkscope.model.interference import Group
from linkscope.model.observed import Observation, Times
from linkscope.model.sharing import find_shares
from linkscope.model.skeleton import quantity
from linkscope.runfile import PointId
from linkscope.stats import Shared
from linkscope.stats.sharing import fair_rates

SIZE = 64 << 20
LINK = 60.0  # GB/s a direction
IN, OUT = "numa:0->gpu:{}", "gpu:{}->numa:0"


class Capacities:
    """Max-min fair shares of links, of their bidirectional capacities, and of [[share]]s; no set-up times."""

    def seconds(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[Times]:
        return [self._seconds(machine, point) for point in points]

    def carried(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[dict[str, int]]:
        found: list[dict[str, int]] = []
        for point in points:
            found.append({})
            for path in point.paths:
                for link in route(machine, *path):
                    found[-1][link] = found[-1].get(link, 0) + point.bytes
        return found

    def _seconds(self, machine: dict[str, Any], point: PointId) -> list[float]:
        routes = [route(machine, *path) for path in point.paths]
        groups = []
        for link in machine["link"]:
            names, rate = directions(link), link["gbps"]["v"] * link["efficiency"]["v"]
            groups += [({name}, rate) for name in names]
            groups += [(set(names), link["both_ways_gbps"]["v"])] if "both_ways_gbps" in link else []
        groups += [(set(share["links"]), share["gbps"]["v"]) for share in machine.get("share", ())]
        crossing = [(frozenset(at for at, of in enumerate(routes) if links & set(of)), most) for links, most in groups]
        single = dict.fromkeys(range(len(routes)), 1e6)
        rates = fair_rates(single, [Shared(flows, most, True) for flows, most in crossing if flows])
        return [point.bytes / rates[at] / 1e9 for at in range(len(routes))]


def route(machine: dict[str, Any], src: str, dst: str) -> list[str]:
    """The directed links from place to place in order."""
    pairs = [(name, *of) for link in machine["link"] for name, of in zip(directions(link), _both(link), strict=True)]
    reached: dict[str, list[str]] = {src: []}
    for _ in machine["link"]:
        for name, one, other in pairs:
            if one in reached:
                reached.setdefault(other, [*reached[one], name])
    return reached[dst]


def _both(link: dict[str, Any]) -> list[list[str]]:
    return [link["between"][0], link["between"][0][::-1]]


def machine(gpus: int, names: Sequence[str] = ("pcie",) * 4) -> dict[str, Any]:
    """A machine with this number of GPUs, each on its own link; links of one name form a class."""
    rate = {"kind": "pcie", "gbps": quantity(LINK, "derived"), "efficiency": quantity(1.0, "fitted", fitted_to=["it"])}
    made = [{"name": names[gpu], "between": [["numa:0", f"gpu:{gpu}"]], **copy.deepcopy(rate)} for gpu in range(gpus)]
    numa = {"places": ["numa:0"], "dram_gbps": quantity(500.0, "assumed")}
    return {"gpu": [{"places": ["gpu:0"]}], "numa": [numa], "link": made}


def share(machine: dict[str, Any], gbps: float, *paths: str) -> dict[str, Any]:
    """The machine with a capacity that the links of these paths share."""
    row = {"name": "s", "links": sorted(links(machine, *paths)), "gbps": quantity(gbps, "assumed")}
    return machine | {"share": [*machine.get("share", ()), row]}


def id_of(*paths: str) -> PointId:
    memory = {True: "device", False: "pinned"}
    src, dst = paths[0].split("->")
    ends = f"{src}.{memory['gpu:' in src]}->{dst}.{memory['gpu:' in dst]}"
    if len(paths) == 1:
        return PointId.parse(f"{'h2d' if 'gpu:' in dst else 'd2h'}/ce/{ends}/{SIZE}?mode=batched")
    return PointId.parse(f"concurrent/ce/{ends}/{SIZE}?with={','.join(paths[1:])}")


def observed(truth: dict[str, Any], *paths: str, overlap: float = 1.0) -> list[Observation]:
    """The times of concurrent flows on these paths of the machine, with a deviation of 0.1 %."""
    point = id_of(*paths)
    (times,) = Capacities().seconds(truth, [point])
    sizes = (SIZE,) * len(paths)
    return [Observation(point, at, sizes, float(of), 0.001, 0.01, overlap) for at, of in enumerate(times)]


def found(
    start: dict[str, Any], observations: Sequence[Observation], groups: Sequence[Group] | None = None
) -> dict[str, Any]:
    """The machine with the shares that the fit found."""
    fit = Fit(copy.deepcopy(start), observations, Capacities(), "run")
    added = find_shares(fit, lambda point: len(point.paths) > 1, groups=groups)
    assert added == (shares(fit.content) != {} or bidirectional(fit.content) != {})
    return fit.content


def shares(machine: dict[str, Any]) -> dict[frozenset[str], float]:
    """GB/s of each share, by its links."""
    return {frozenset(of["links"]): of["gbps"]["v"] for of in machine.get("share", ())}


def bidirectional(machine: dict[str, Any]) -> dict[str, float]:
    return {of["between"][0][1]: of["both_ways_gbps"]["v"] for of in machine["link"] if "both_ways_gbps" in of}


def links(machine: dict[str, Any], *paths: str) -> frozenset[str]:
    return frozenset(link for path in paths for link in route(machine, *path.split("->")))


@pytest.mark.parametrize("overlap, is_shown", [(0.99, True), (0.90, False)])
def test_flows_that_ran_in_turn_show_no_shared_capacity(overlap: float, is_shown: bool) -> None:
    """Two flows of 60 GB/s get 40 each. A flow that ran alone for a tenth of the time has a mixed rate."""
    paths, here = [IN.format(0), IN.format(1)], machine(2)
    single = [one for path in paths for one in observed(here, path)]
    content = found(here, [*single, *observed(share(here, 80.0, *paths), *paths, overlap=overlap)])
    assert shares(content) == (pytest.approx({links(here, *paths): 80.0}, rel=0.005) if is_shown else {})
    assert bidirectional(content) == {}


@pytest.mark.parametrize("overlap, is_shown", [(0.99, True), (0.92, True), (0.89, False)])
def test_a_total_over_all_gpus_shows_a_shared_capacity_at_slightly_less_overlap(overlap: float, is_shown: bool) -> None:
    """Four flows of 60 GB/s get 120 in total, far less than a tenth of the time alone could explain."""
    paths, here = [IN.format(gpu) for gpu in range(4)], machine(4)
    single = [one for path in paths for one in observed(here, path)]
    flows = observed(share(here, 120.0, *paths), *paths, overlap=overlap)
    total = replace(flows[0], flow=-1, seconds=4 * SIZE / 120e9)
    content = found(here, [*single, total])
    assert shares(content) == (pytest.approx({links(here, *paths): 120.0}, rel=0.05) if is_shown else {})


def test_the_capacity_of_a_known_group_is_fitted_to_its_total() -> None:
    """Copies to the host keep 55 GB/s, the others get the rest of 80; single flows would suggest 110."""
    paths, here = [OUT.format(0), IN.format(1)], machine(2)
    single = [one for path in paths for one in observed(here, path)]
    steady, scattered = observed(here, *paths)
    uneven = [replace(steady, seconds=SIZE / 55e9), replace(scattered, seconds=SIZE / 25e9, spread=0.05)]
    parts = tuple(Path(*path.split("->")) for path in paths)
    group = Group(parts, Estimate(80.0, 79.0, 81.0), True, str(id_of(*paths)), ())
    content = found(here, [*single, *uneven], [group])
    assert shares(content) == pytest.approx({links(here, *paths): 80.0}, rel=0.005)


@pytest.mark.parametrize("known", [True, False])
def test_a_group_of_known_capacity_needs_no_further_evidence(known: bool) -> None:
    """Three flows of 60 GB/s get 165 in total, with a deviation of 4 %: too little evidence for this point alone."""
    paths, here = [IN.format(gpu) for gpu in range(3)], machine(3)
    single = [one for path in paths for one in observed(here, path)]
    total = replace(observed(here, *paths)[0], flow=-1, seconds=3 * SIZE / 165e9, spread=0.04)
    parts = tuple(Path(*path.split("->")) for path in paths)
    group = Group(parts, Estimate(165.0, 160.0, 170.0), True, str(id_of(*paths)), ())
    content = found(here, [*single, total], [group] if known else None)
    assert shares(content) == (pytest.approx({links(here, *paths): 165.0}, rel=0.01) if known else {})


@pytest.mark.parametrize("part, is_shown", [(0.99, False), (0.90, True)])
def test_links_at_nearly_their_full_rate_share_nothing(part: float, is_shown: bool) -> None:
    """Bidirectional traffic on two links: 1 % less than alone is within the scatter of large copies."""
    paths, here = [IN.format(0), OUT.format(0), IN.format(1), OUT.format(1)], machine(2)
    truth = share(here, 4 * LINK * part, *paths)
    single = [one for path in paths for one in observed(here, path)]
    content = found(here, [*single, *observed(truth, *paths), *observed(truth, *reversed(paths))])
    assert bool(shares(content) or bidirectional(content)) is is_shown


def test_a_capacity_is_at_least_the_largest_observed_total() -> None:
    """Any two of four flows get 35 each, but one pair 45 each: one capacity of 70 would fit most points."""
    paths, here = [IN.format(gpu) for gpu in range(4)], machine(4)
    observations = [one for path in paths for one in observed(here, path)]
    pairs = {(a, b): 90.0 if (a, b) == (0, 1) else 70.0 for b in range(4) for a in range(b)}
    for (a, b), gbps in pairs.items():
        observations += observed(share(here, gbps, paths[a], paths[b]), paths[a], paths[b])
    capacities = shares(found(here, observations))
    for (a, b), gbps in pairs.items():
        through = {of: most for of, most in capacities.items() if links(here, paths[a], paths[b]) <= of}
        assert min(through.values()) == pytest.approx(gbps, rel=0.01)


def test_a_share_explained_by_bidirectional_capacities_is_left_out() -> None:
    """Two links of different classes carry 80 GB/s bidirectionally. Most points have all four flows, which get 160 of
    240: a single capacity explains them first, but has no effect once the capacity of each link is known."""
    paths, here = [IN.format(0), OUT.format(0), IN.format(1), OUT.format(1)], machine(2, ("pcie", "other"))
    truth = copy.deepcopy(here)
    for link in truth["link"]:
        link["both_ways_gbps"] = quantity(80.0, "assumed")
    observations = [one for path in paths for one in observed(here, path)]
    for at in range(4):
        observations += observed(truth, *paths[at:], *paths[:at])
    observations += [*observed(truth, *paths[:2]), *observed(truth, *paths[2:])]
    content = found(here, observations)
    assert shares(content) == {} and bidirectional(content) == pytest.approx({"gpu:0": 80.0, "gpu:1": 80.0}, rel=0.01)


@pytest.mark.parametrize("far", [False, True])
def test_a_group_with_a_path_without_its_own_link_is_no_share(far: bool) -> None:
    """Copies from another node use the third path's link too, and these are not in the group."""
    here = machine(3)
    host = {"name": "host", "kind": "cpu", "gbps": quantity(LINK, "derived"), "efficiency": quantity(1.0, "assumed")}
    here["link"].append(host | {"between": [["numa:1", "numa:0"]]})
    here["numa"][0]["places"] = ["numa:0", "numa:1"]
    paths = [IN.format(gpu) for gpu in range(3)]
    observations = [one for path in (*paths, *(["numa:1->gpu:2"] if far else [])) for one in observed(here, path)]
    observations += observed(share(here, 90.0, *paths), *paths)
    members = tuple(Path(*path.split("->")) for path in paths)
    group = Group(members, Estimate(90.0, 89.0, 91.0), False, str(id_of(*paths)), ())
    content = found(here, observations, [group])
    assert shares(content) == ({} if far else pytest.approx({links(here, *paths): 90.0}, rel=0.005))
