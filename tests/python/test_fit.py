"""The fit of a machine file's constants against a simulation in closed form: known answers, without a worker."""

import copy
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from linkscope.model import defaults
from linkscope.model.constants import DIRECT, Block, Constant
from linkscope.model.fit import Fit, Times, directions
from linkscope.model.observed import Observation
from linkscope.model.skeleton import quantity
from linkscope.runfile import PointId

MIB = 1 << 20
SMALL, LARGE = (8, 16, 32, 64), (16 * MIB, 64 * MIB, 256 * MIB)
SET_UP = Constant("copy", "to_device_us", 1.0, 1e-4, 1e6)
EFFICIENCY = Constant("link", "efficiency", 0.9, 0.01, 1.0)
STEP = Constant("copy", "staged_us", 0.02, 1e-4, 1e6, optional=True)
OTHER = Constant("copy", "peer_us", 1.0, 1e-4, 1e6)


class Lines:
    """A set-up time, an optional step from 1 KiB, and bytes over the rate of the link."""

    def seconds(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[Times]:
        return [[self._one(machine, point)] for point in points]

    def carried(self, machine: dict[str, Any], points: Sequence[PointId]) -> list[dict[str, int]]:
        return [{directions(link_of(machine, point.dst))[0]: point.bytes} for point in points]

    def _one(self, machine: dict[str, Any], point: PointId) -> float:
        link = link_of(machine, point.dst)
        step = machine["copy"].get("staged_us", {"v": 0.0})["v"] if point.bytes >= 1024 else 0.0
        rate = link["gbps"]["v"] * link.get("efficiency", {"v": 1.0})["v"]
        return (machine["copy"]["to_device_us"]["v"] + step) * 1e-6 + point.bytes / rate / 1e9


def link_of(content: dict[str, Any], gpu: str) -> dict[str, Any]:
    return next(link for link in content["link"] if link["between"][0][1] == gpu)


def observations(
    seconds: Callable[[int, int], float], sizes: Sequence[int], gpus: int = 1, sigma: float = 0.01
) -> list[Observation]:
    """An observation of every GPU and size with the time that the function returns."""
    made = []
    for gpu in range(gpus):
        for size in sizes:
            point = PointId.parse(f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/{size}?mode=batched")
            made.append(Observation(point, 0, (size,), seconds(gpu, size), sigma, sigma, 1.0))
    return made


def machine(gpus: int) -> dict[str, Any]:
    """A machine with this number of GPUs, each on its own link of 60 GB/s."""
    link = {"name": "pcie", "kind": "pcie", "gbps": quantity(60.0, "derived"), "efficiency": quantity(1.0, "assumed")}
    return {
        "gpu": [{"places": ["gpu:0"]}],
        "link": [copy.deepcopy(link) | {"between": [["numa:0", f"gpu:{gpu}"]]} for gpu in range(gpus)],
    }


def fitted(made: Sequence[Observation], *constants: Constant, gpus: int = 1) -> dict[str, Any]:
    content = machine(gpus)
    fit = Fit(content, made, Lines(), "run")
    fit.blocks([Block("copies", lambda point: point.benchmark == "h2d", constants)], lambda text: None)
    return fit.content


def interval(value: dict[str, Any]) -> tuple[float, float]:
    (statement,) = value["fitted_to"]
    low, high = re.findall(r"interval (\S+) to (\S+)", statement)[0]
    return float(low), float(high)


def test_a_set_up_time_and_a_rate_are_recovered() -> None:
    made = observations(lambda _, size: 2e-6 + size / 48e9, (*SMALL, *LARGE), gpus=2)
    found = fitted(made, SET_UP, EFFICIENCY, gpus=2)
    assert found["copy"]["to_device_us"]["v"] == pytest.approx(2.0, rel=1e-3)
    assert [link["efficiency"]["v"] for link in found["link"]] == pytest.approx([0.8, 0.8], rel=1e-3)
    assert found["copy"]["to_device_us"]["from"] == found["link"][0]["efficiency"]["from"] == "fitted"


def test_intervals_have_a_level_of_95_percent() -> None:
    """Four times with 2 % each: half of that, and 1.96 deviations on either side."""
    made = observations(lambda _, size: 2e-6 + size / 60e9, SMALL, sigma=0.02)
    low, high = interval(fitted(made, SET_UP)["copy"]["to_device_us"])
    assert math.log(high / 2) == pytest.approx(1.96 * 0.02 / 2, rel=0.03)
    assert math.log(low / 2) == pytest.approx(-1.96 * 0.02 / 2, rel=0.03)


@pytest.mark.parametrize("sigma, origin", [(0.5, "fitted"), (0.8, "assumed")])
def test_a_constant_with_a_deviation_above_thirty_percent_is_not_fitted(sigma: float, origin: str) -> None:
    """Four observations halve the deviation: 0.25 and 0.4."""
    found = fitted(observations(lambda _, size: 2e-6 + size / 60e9, SMALL, sigma=sigma), SET_UP)
    assert found["copy"]["to_device_us"]["from"] == origin


def test_a_constant_without_influence_on_any_point_keeps_its_default() -> None:
    found = fitted(observations(lambda _, size: 2e-6 + size / 60e9, SMALL), SET_UP, OTHER)
    assert found["copy"]["peer_us"] == defaults.table("copy")["peer_us"]
    assert found["copy"]["to_device_us"]["from"] == "fitted"


def test_an_unneeded_constant_is_left_out_and_a_needed_one_is_recovered() -> None:
    """Times are alternately 1 % off, as their sigma states: a step of 1 % is not significant, 10 % is."""
    sizes = tuple(8 << at for at in range(14))

    def seconds(step: float) -> Callable[[int, int], float]:
        off = (1.01, 0.99)
        return lambda _, size: (2e-6 + (step if size >= 1024 else 0.0) + size / 60e9) * off[size.bit_length() % 2]

    assert "staged_us" not in fitted(observations(seconds(0.02e-6), sizes), SET_UP, STEP)["copy"]
    found = fitted(observations(seconds(0.2e-6), sizes), SET_UP, STEP)["copy"]
    assert found["staged_us"]["v"] == pytest.approx(0.2, rel=0.1) and found["staged_us"]["from"] == "fitted"


FORTH = Constant("link", "kernel_efficiency", 0.85, 0.01, 1.0, optional=True)
BACK = Constant("link", "kernel_back_efficiency", 0.85, 0.01, 1.0, optional=True)


class Kernels(Lines):
    """Kernels reach a part of the link's rate, by direction. Without a constant for the way back both are equal."""

    def _one(self, machine: dict[str, Any], point: PointId) -> float:
        link = machine["link"][0]
        forth = link.get("kernel_efficiency", {"v": 0.75})
        part = forth if point.benchmark == "read" else link.get("kernel_back_efficiency", forth)
        return float(machine["copy"]["to_device_us"]["v"]) * 1e-6 + point.bytes / (60e9 * part["v"])


@pytest.mark.parametrize(
    "forth, back, expected",
    [(0.75, 0.75, []), (0.6, 0.6, ["forth"]), (0.6, 0.9375, ["forth", "back"]), (0.75, 0.9375, ["back"])],
)
def test_efficiencies_that_differ_by_direction_are_found_together(
    forth: float, back: float, expected: list[str]
) -> None:
    """0.6 and 0.9375 are equally far from 0.75: changing both directions at once improves neither."""
    made = []
    for size in (*SMALL, *LARGE):
        link_directions = (
            ("read/sm/numa:0.pinned->gpu:0.device", forth),
            ("write/sm/gpu:0.device->numa:0.pinned", back),
        )
        for id, part in link_directions:
            seconds = 2e-6 + size / (60e9 * part)
            made.append(Observation(PointId.parse(f"{id}/{size}"), 0, (size,), seconds, 0.01, 0.01, 1.0))
    fit = Fit(machine(1), made, Kernels(), "run")
    fit.blocks([Block("threads", lambda point: True, (SET_UP, FORTH, BACK))], lambda text: None)
    link = fit.content["link"][0]
    found = {direction: link[key]["v"] for direction, key in (("forth", FORTH.key), ("back", BACK.key)) if key in link}
    assert found == pytest.approx(
        {direction: {"forth": forth, "back": back}[direction] for direction in expected}, rel=0.01
    )


@pytest.mark.parametrize("slower, apart", [(1.0, []), (1.02, []), (1.04, ["gpu:3"]), (0.96, ["gpu:3"])])
def test_a_link_with_slower_or_faster_copies_gets_its_own_constant(slower: float, apart: list[str]) -> None:
    def seconds(gpu: int, size: int) -> float:
        return 2e-6 + size / 48e9 * (slower if gpu == 3 else 1.0)

    found = fitted(observations(seconds, (*SMALL, *LARGE), gpus=4), SET_UP, EFFICIENCY, gpus=4)
    assert [link["between"][0][1] for link in found["link"] if link.get("own")] == apart
    efficiencies = {link["between"][0][1]: link["efficiency"]["v"] for link in found["link"]}
    assert efficiencies["gpu:0"] == pytest.approx(0.8, rel=0.01)
    if apart:
        assert efficiencies["gpu:3"] == pytest.approx(0.8 / slower, rel=0.005)


def test_equal_paths_become_one_observation_no_more_precise_than_four() -> None:
    """The median of nine with half of their deviation: errors of the model are equal in all of them."""
    times = [1e-6 * (2 + at / 10) for at in range(9)]
    made = observations(lambda gpu, size: times[gpu], (8,), gpus=9, sigma=0.04)
    content = machine(9) | {"copy": {"to_device_us": quantity(2.0, "assumed")}}
    (one,) = Fit(content, made, Lines(), "run").pooled(made)
    assert one.count == 9 and one.observation.seconds == pytest.approx(2.4e-6)
    assert one.observation.sigma == pytest.approx(0.04 / 2)
    (two,) = Fit(content, made, Lines(), "run").pooled(made[:2])
    assert two.observation.sigma == pytest.approx(0.04 / math.sqrt(2))


def test_one_outlier_changes_little() -> None:
    """One of eight sizes takes ten times the time, for a cause that the simulation lacks."""
    sizes = tuple(8 + at for at in range(8))
    made = observations(lambda _, size: 2e-6 * (10 if size == 8 else 1) + size / 60e9, sizes)
    assert fitted(made, SET_UP)["copy"]["to_device_us"]["v"] == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(
    "pays", [{"a": "b", "b": "", "c": "b"}, {"a": "c", "b": "a", "c": ""}, {"a": "c", "b": "b", "c": ""}]
)
def test_constants_that_need_another_are_tried_again_once_it_is_there(monkeypatch, pays) -> None:
    """`pays` maps a constant to the one that must be added before it; a constant mapped to itself is never added."""
    tried: list[str] = []

    def add(self, constant, places, fitted, pooled):
        tried.append(constant)
        return ([*places, constant] if pays[constant] in ("", *places) else places), fitted

    monkeypatch.setattr(Fit, "_add", add)
    places, _ = object.__new__(Fit)._add_optional(["a", "b", "c"], [], None, [])
    assert set(places) == {name for name, beside in pays.items() if beside != name}
    assert len(places) == len(set(places)) and len(tried) <= 6


def test_loads_are_fitted_to_chases_on_any_sm() -> None:
    (loads, *_) = [block for block in DIRECT if any(one.key == "load_us" for one in block.constants)]
    chain = "latency/sm/gpu:0.device->gpu:0.device/0?cache=cold&range=2MiB"
    assert [loads.points(PointId.parse(f"{chain}{sm}")) for sm in ("", "&sm=0", "&sm=131")] == [True, False, False]
