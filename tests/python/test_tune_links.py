"""The tuner finds the settings of copies over the links of several GPUs on the model of a node with four GPUs."""

import pytest

from linkscope.machine import model as models
from linkscope.run.simulate import Simulation, quiet, simulation
from linkscope.runfile import PointId
from linkscope.tune import Failure, Job, Ring, tune
from test_sim_machines import pytestmark
from test_tune import HOSTS, MIB, SimulatedBench

__all__ = ["pytestmark"]

CHUNKS = [MIB, 2 * MIB, 4 * MIB, 8 * MIB]  # of the benchmarks
PLACES = {"relay_to_gpu": ("numa:0", "gpu:0"), "relay_to_host": ("gpu:0", "numa:0"), "between_gpus": ("gpu:0", "gpu:1")}


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


def point_of(method: str, ring: Ring | None, nbytes: int) -> PointId:
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
