"""The simulation (core/platform/sim/routes.cpp) uses the routes from which Python derives the peaks of a model.

Two programs choose the routes. With different choices, a simulated rate would be compared with another path's peak.
"""

import itertools
import os
import pathlib
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from linkscope.machine import model as models
from linkscope.machine.model_checks import check
from linkscope.machine.model_mistakes import Mistake
from linkscope.machine.model_paths import DirectedLink, routes, through_host
from linkscope.machine.model_places import host_of
from worker_pipe import Pipe

WORKER = pathlib.Path(__file__).resolve().parents[2] / "src" / "linkscope" / "_native" / "linkscope-worker"
HOST_MEMORY = {"h2h": ("pageable", "pinned"), "h2d": ("pinned", "device"), "d2h": ("device", "pinned")}

pytestmark = pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")


@pytest.fixture(scope="module")
def worker() -> Iterator[Pipe]:
    with Pipe(WORKER, dict(os.environ)) as pipe:
        yield pipe


@pytest.mark.parametrize("name", sorted(models.bundled()))
def test_the_routes_of_bundled_machines_agree(name: str, worker: Pipe) -> None:
    compare(worker, models.load(name), seed=1)


@pytest.mark.parametrize("seed", range(25))
def test_the_routes_of_invented_machines_agree(seed: int, worker: Pipe) -> None:
    """Equal widths, parallel links, other widths back, switches, a disk, given routes; other noise each time."""
    compare(worker, invented(random.Random(seed)), seed)


def test_the_invented_machines_have_several_possible_routes() -> None:
    """Without this, the test above could be trivial: another order of the links must give other routes."""

    def routes_of(content: dict[str, Any]) -> dict[tuple[str, str], str]:
        return {pair: words(route, pair[0]) for pair, route in routes(msgspec.convert(content, models.Model)).items()}

    contents = [invented(random.Random(seed)).to_json() for seed in range(25)]
    assert sum(routes_of(content) != routes_of({**content, "link": content["link"][::-1]}) for content in contents) > 12


def compare(worker: Pipe, model: models.Model, seed: int) -> None:
    assert worker.ask("open", platform="sim", machine=model.to_json(), seed=seed)["ok"]
    both = {case: (simulated_route(worker, *case), route) for case, route in expected(model)}
    assert not {case: found for case, found in both.items() if found[0] != found[1]}


Case = tuple[str, str, str, tuple[tuple[str, str], ...]]


def expected(model: models.Model) -> Iterator[tuple[Case, str]]:
    """Every ordered pair of places of a host, equal ones included, in every variant that could use its own route."""
    variants = routes(model)
    known = models.places(model)
    for src, dst in itertools.product((*known.numa, *known.gpus), repeat=2):
        if host_of(src) != host_of(dst):
            continue  # nothing copies to disks
        kind = "".join("d" if "gpu" in place else "h" for place in (src, dst))
        direct = words(variants[src, dst], src)
        if kind != "dd" or src == dst:
            yield ("local" if kind == "dd" else f"{kind[0]}2{kind[1]}", src, dst, ()), direct
            continue
        for initiator, queued_by in (("src", src), ("dst", dst)):
            if (src, dst) in known.peers:
                yield ("d2d", src, dst, (("initiator", initiator), ("peer", "on"))), direct
            staged = through_host(model, src, dst)[known.gpu_numa[queued_by]]
            yield ("d2d", src, dst, (("initiator", initiator), ("peer", "off"))), words([*staged[0], *staged[1]], src)


def words(route: list[DirectedLink], src: str) -> str:
    return ", ".join(link.name for link in route) or f"within {src}"


def simulated_route(worker: Pipe, benchmark: str, src: str, dst: str, params: tuple[tuple[str, str], ...]) -> str:
    memories = dict(zip(("src_memory", "dst_memory"), HOST_MEMORY.get(benchmark, ("device", "device")), strict=True))
    case = {"benchmark": benchmark, "engine": "cpu" if benchmark == "h2h" else "ce", "src": src, "dst": dst, **memories}
    ready = worker.ask("prepare", case={**case, "bytes": 64, "footprint_bytes": 64, "params": dict(params)}, key="a#0")
    assert ready["ok"] and ready["supported"], ready
    route: str = worker.ask("run", samples=1, batches=[[1]], verify=False)["notes"]["route a0"]
    return route


def invented(chance: random.Random) -> models.Model:
    """A machine of two NUMA nodes, three GPUs, two switches and a disk, connected at random."""
    nodes = ["numa:0", "numa:1", "gpu:0", "gpu:1", "gpu:2", "switch:0", "switch:1", "disk:0"]
    while True:
        content = models.load("ac922").to_json()
        content["gpu"][0]["at"] = {"numa:1": ["gpu:1"], "numa:0": ["gpu:2", "gpu:0"]}
        content["switch"] = [{"places": ["switch:0", "switch:1"]}]
        content["disk"] = [{"places": ["disk:0"]}]
        content["peer"]["groups"] = [["gpu:0", "gpu:1"], ["gpu:1", "gpu:2"]]
        content["link"] = [link(f"l{i}", *chance.sample(nodes, 2), chance) for i in range(18)]
        ends = [end for one in content["link"] for pair in one["between"] for end in (pair, pair[::-1])]
        detour = next(((a, b, d) for a, b in ends for c, d in ends if b == c and a != d), None)
        if detour:
            content["route"] = [{"from": detour[0], "to": detour[2], "via": [detour[1]]}]
        model = msgspec.convert(content, models.Model)
        try:
            check(model)
        except Mistake:
            continue
        return model


def link(name: str, one: str, other: str, chance: random.Random) -> dict[str, Any]:
    def assumed(value: float) -> dict[str, Any]:
        return {"v": value, "from": "assumed", "why": "invented"}

    made = {"name": name, "kind": "other", "between": [[one, other]], "efficiency": assumed(chance.choice((0.5, 1.0)))}
    made |= {"gbps": assumed(chance.choice((10, 20))), "latency_us": assumed(0.5)}
    return made | ({"back_gbps": assumed(20)} if chance.random() < 0.3 else {})
