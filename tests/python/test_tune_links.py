"""The tuner finds the settings of copies over the links of several GPUs on the model of a node with four GPUs."""

import pytest

from linkscope.machine import model as models
from linkscope.run.simulate import Simulation, quiet, simulation
from linkscope.runfile import PointId
from linkscope.tune import Failure, Job, Ring, tune
from linkscope.tune.prior import Prior, first_candidates
from test_sim_machines import pytestmark
from test_tune import HOSTS, MIB, SimulatedBench

__all__ = ["pytestmark"]

CHUNKS = [MIB, 2 * MIB, 4 * MIB, 8 * MIB]  # of the benchmarks
PLACES = {
    "relay_to_gpu": ("numa:0", "gpu:0"),
    "relay_to_host": ("gpu:0", "numa:0"),
    "between_gpus": ("gpu:0", "gpu:1"),
    "ring_to_gpu": ("numa:0", "gpu:0"),
    "ring_to_host": ("gpu:0", "numa:0"),
}
SMALL = {64 << 10: "64KiB", 128 << 10: "128KiB", 256 << 10: "256KiB", 512 << 10: "512KiB"}


class ModelBench(SimulatedBench):
    """h200x4: each copy takes what the simulation gives for the benchmark that moves data in the same way."""

    helpers = 3

    def __init__(self, simulated: Simulation) -> None:
        super().__init__(HOSTS["fast CPUs"], 1.0, scatter=0.01)
        self._simulated = simulated
        self._content = quiet(models.load("h200x4").to_json())
        self._known = dict[PointId, float]()

    def modelled_s(self, method: str, ring: Ring | None, nbytes: int) -> float:
        point = point_of(method, ring, nbytes)
        if point not in self._known:
            (found,) = self._simulated.seconds(self._content, [point])
            if isinstance(found, str):
                raise Failure(found)
            self._known[point] = max(found)
        return self._known[point]

    def copy(self, method: str, ring: Ring | None, nbytes: int, repeats: int) -> float:
        return self._timed(self.modelled_s(method, ring, nbytes), repeats)

    def default(self, method: str, nbytes: int) -> Ring:
        return Ring(8, 4 * MIB, 2) if method.startswith("ring") else super().default(method, nbytes)


def point_of_ring(method: str, ring: Ring | None, nbytes: int) -> PointId:
    """Pageable memory through pinned slots, also over the links of helpers. Each link has the threads of the setting,
    or the number that the benchmark has next below, and chunks of 1 MiB where it has no smaller ones."""
    ends = [(place, "device" if place.startswith("gpu") else "pageable") for place in PLACES[method]]
    name = {"ring_to_gpu": "h2d", "ring_to_host": "d2h"}[method]
    params = {"mode": "single"} | ({"bidirectional": "false"} if name == "h2d" else {})
    if ring is None:
        params["clock"] = "host"
    else:
        links = ring.links
        threads = max(known for known in (1, 2, 4, 8, 16) if known <= ring.threads)
        chunk = max(ring.chunk, MIB) if links > 1 else ring.chunk
        if links not in (1, 2, 4) or (links > 1 and threads > 8) or ring.sm_blocks or ring.depth > 4:
            raise Failure("no benchmark of the model has these settings")
        name = "relayed" if links > 1 else "staged"
        own = {"helpers": str(links - 1)} if links > 1 else {"slots": str(ring.depth), "bidirectional": "false"}
        params |= {"chunk": SMALL.get(chunk, f"{chunk // MIB}MiB"), "threads": str(threads), **own}
        if links > 1:
            params.pop("bidirectional", None)
    (src, src_memory), (dst, dst_memory) = ends
    return PointId(name, "ce", src, src_memory, dst, dst_memory, nbytes, tuple(sorted(params.items())))


def point_of(method: str, ring: Ring | None, nbytes: int) -> PointId:
    if method.startswith("ring"):
        return point_of_ring(method, ring, nbytes)
    src, dst = PLACES[method]
    memories = ["device" if place.startswith("gpu") else "pinned" for place in (src, dst)]
    name, params = {"relay_to_gpu": "h2d", "relay_to_host": "d2h"}.get(method, "d2d"), {"mode": "single"}
    if ring is None:
        params |= {"clock": "host"} | ({"peer": "off"} if name == "d2d" else {})
    elif ring.chunk not in CHUNKS or (name != "d2d" and ring.links not in (2, 4)):
        raise Failure("no benchmark of the model has these settings")
    elif name == "d2d":
        name, params = "staged", params | {"slots": str(ring.depth), "ring": "numa:0", "bidirectional": "false"}
    else:
        name, params = "relayed", params | {"helpers": str(ring.links - 1)}
    if ring is not None:
        params["chunk"] = f"{ring.chunk // MIB}MiB"
    return PointId(name, "ce", src, memories[0], dst, memories[1], nbytes, tuple(sorted(params.items())))


@pytest.mark.parametrize(
    ("path", "method", "least_gain"),
    [
        ("pinned-to-gpu", "relay_to_gpu", 2.5),
        ("pinned-from-gpu", "relay_to_host", 2.5),
        ("gpu-to-gpu", "between_gpus", 1.1),
    ],
)
def test_copies_over_several_links_are_tuned_to_the_best_that_a_model_of_four_gpus_has(
    path, method, least_gain
) -> None:
    nbytes, links, depths = 256 * MIB, (2, 4), (1,)
    if path == "gpu-to-gpu":
        links, depths = (1,), (2, 3)
    every = [Ring(1, chunk, depth, links=count) for chunk in CHUNKS for depth in depths for count in links]
    with simulation() as simulated:
        bench = ModelBench(simulated)
        (row,) = tune(bench, [Job(path, 64 * MIB, nbytes)], 20, now=bench.now)
        plain_s = bench.modelled_s(method, None, nbytes)
        best_s = min(bench.modelled_s(method, ring, nbytes) for ring in every)
        assert isinstance(row.choice, Ring)
        chosen_s = bench.modelled_s(method, row.choice, nbytes)
    assert chosen_s < 1.06 * best_s
    assert row.gain is not None and row.gain.low > least_gain
    assert row.ratio == pytest.approx(plain_s / chosen_s, rel=0.03)


@pytest.mark.parametrize(("path", "method"), [("to-gpu", "ring_to_gpu"), ("to-warm", "ring_to_host")])
def test_threads_and_links_together_are_tuned_for_pageable_memory_on_a_model_of_four_gpus(path, method) -> None:
    """The ring of pinned slots with the links of three helpers: the best uses all of them. The model is flat below
    chunks of 1 MiB, which cost 8 to 13 % there, so the search may stay on that plateau."""
    nbytes = 256 * MIB
    every = [Ring(t, chunk, 2, links=n) for n in (1, 2, 4) for t in (2, 4, 8) for chunk in CHUNKS[:3]]
    with simulation() as simulated:
        bench = ModelBench(simulated)
        bench.cpus = 64
        (row,) = tune(bench, [Job(path, 128 * MIB, nbytes)], 30, now=bench.now)
        best_s = min(bench.modelled_s(method, ring, nbytes) for ring in every)
        one_link_s = min(bench.modelled_s(method, ring, nbytes) for ring in every if ring.links == 1)
        assert isinstance(row.choice, Ring)
        chosen_s = bench.modelled_s(method, row.choice, nbytes)
    assert row.choice.links == 4 and chosen_s < 1.16 * best_s
    assert one_link_s / chosen_s > 1.7


def test_threads_of_a_setting_count_once_for_each_link_and_settings_of_all_links_are_spread_over_ring_sizes() -> None:
    prior = Prior(thread_rate=5e9, link_rate=50e9, chunk_s=1e-6, wake_s=0.0, start_s=1e-6)
    wide = Prior(thread_rate=5e9, link_rate=200e9, chunk_s=1e-6, wake_s=0.0, start_s=1e-6)
    over_four = prior.seconds(1 << 30, Ring(4, MIB, links=4))
    assert over_four == pytest.approx(wide.seconds(1 << 30, Ring(16, MIB)), rel=0.01)
    with simulation() as simulated:
        bench = ModelBench(simulated)
        bench.cpus, bench.slots = 64, 64
        found = first_candidates(prior, bench, Ring(10, 2 * MIB), 1 << 30, 8)
    rings = {ring.threads * ring.chunk * ring.depth for ring in found if ring.links == 4}
    assert min(rings) <= 4 * MIB and max(rings) >= 48 * MIB
