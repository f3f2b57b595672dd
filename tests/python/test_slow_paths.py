"""Paths slower than their class are named, and healthy paths are not: drawn noise, known answers."""

import math
import random

import pytest
from alarms import SHAPES, alarms

import fakes
from campaign import sample
from fakes import flow, point
from linkscope.model.slow_paths import in_doubt, slow_paths
from linkscope.runfile import Run
from linkscope.stats import median

KINDS = "classes"
PATHS = [(a, b) for a in range(4) for b in range(4) if a != b]
SIZES = (8, 64 << 10, 16 << 20)


def run(points) -> Run:
    header = fakes.header()
    header.plan = {KINDS: [{"kind": "pairs", "paths": [f"gpu:{a}->gpu:{b}" for a, b in PATHS]}]}
    return Run(None, header, points, {}, [], None, [], 0, False)


def drawn(chance: random.Random, noise: float, slow: dict[tuple[int, int], float], both: str = "false") -> Run:
    points = []
    for a, b in PATHS:
        for size in SIZES:
            seconds = (2e-6 + size / 300e9) * slow.get((a, b), 1.0)
            of = flow([seconds * math.exp(chance.gauss(0, noise)) for _ in range(3)])
            id = f"d2d/ce/gpu:{a}.device->gpu:{b}.device/{size}?bidirectional={both}&mode=batched"
            points.append(point(id, flows=[of] * (2 if both == "true" else 1), median_s=seconds, precision_target=0.01))
    return run(points)


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.05])
def test_there_is_at_most_one_false_alarm_in_ten_thousand_paths(noise: float) -> None:
    chance = random.Random(f"in order {noise}")
    alarms = sum(len(slow_paths(drawn(chance, noise, {}))) for _ in range(sample(170, 850)))  # of 2040 or 10,200 paths
    assert alarms <= sample(2, 4)  # 0.2 and 1.02 are expected; more have a probability of 0.1 and 0.4 %


@pytest.mark.parametrize("members", [3, 4])
@pytest.mark.parametrize("noise", [0.05, 0.2])
def test_there_is_at_most_one_false_alarm_in_ten_thousand_paths_of_small_classes(members: int, noise: float) -> None:
    """The same number of paths: between a host and a few GPUs, where few rounds determine the scatter."""
    early, late, _ = alarms("normal", SHAPES["normal"], members, noise, sample(2_040, 10_200) // members)
    assert early <= sample(2, 4) and late <= early


def of_few(medians: dict[str, list[float]]) -> Run:
    """Paths between a host and a few GPUs, by their ids."""
    header = fakes.header()
    paths = sorted({f"numa:0->{id.partition('->')[2].partition('.')[0]}" for id in medians})
    header.plan = {KINDS: [{"kind": "host to GPU", "paths": paths}]}
    points = [point(id, flows=[flow(of)], median_s=median(of), precision_target=0.01) for id, of in medians.items()]
    return Run(None, header, points, {}, [], None, [], 0, False)


def to_gpu(gpu: int, size: int = 8) -> str:
    return fakes.H2D.format(size, "false", "batched").replace("gpu:0", f"gpu:{gpu}")


@pytest.mark.parametrize("name", [name for name in SHAPES if "mode" in name])
def test_six_rounds_are_requested_before_a_path_with_modes_is_called_slow(name: str) -> None:
    """Three rounds may be of one mode by chance: of 10,000 paths in classes of three 38 to 123 would seem slow."""
    early, late, requested = alarms(name, SHAPES[name], 3, 0.05, 2000)
    assert early >= 20 and late <= 8.4 and requested < 0.03  # in 10,000, of 6,000 paths: five are 8.3


def test_more_rounds_are_requested_of_the_slow_point_and_the_compared_points() -> None:
    steady = [1.0e-3, 1.0005e-3, 0.9995e-3]
    slow = [1.2 * of for of in steady]
    few = (
        {to_gpu(gpu): steady for gpu in range(3)} | {to_gpu(3): slow} | {to_gpu(gpu, 4096): steady for gpu in range(4)}
    )
    kind = [{f"numa:0->gpu:{gpu}" for gpu in range(12)}]
    assert in_doubt(of_few(few).points, kind, 6) == {to_gpu(gpu) for gpu in range(4)}
    assert in_doubt(of_few(few | {to_gpu(3): 2 * slow, to_gpu(1): 2 * steady}).points, kind, 6) == {
        to_gpu(0),
        to_gpu(2),
    }
    assert in_doubt(of_few({id: 2 * of for id, of in few.items()}).points, kind, 6) == set()
    many = {to_gpu(gpu): steady for gpu in range(11)} | {to_gpu(11): slow}
    requested = in_doubt(of_few(many).points, kind, 6)
    assert to_gpu(11) in requested and len(requested) == 2  # ten others show the scatter of rounds
    assert in_doubt(of_few(many).points, [], 6) == set()
    fast = {to_gpu(gpu): slow for gpu in range(3)} | {to_gpu(3): steady}
    assert in_doubt(of_few(fast).points, kind, 6) == set()


def test_single_rounds_show_no_slow_path() -> None:
    some = drawn(random.Random(1), 0.001, {(0, 1): 1.5})
    for one in some.points:
        for of in one.flows:
            of.round_medians_s = of.round_medians_s[:1]
    assert slow_paths(some) == []


@pytest.mark.parametrize("factor", [1.05, 1.1, 1.3])
def test_a_slow_link_is_named_with_its_ratio(factor: float) -> None:
    chance = random.Random(f"slow {factor}")
    slow = {(a, 2): factor for a in (0, 1, 3)}
    covered = 0
    for _ in range(40):
        found = slow_paths(drawn(chance, 0.003, slow))
        assert {slow_path.path for slow_path in found} == {f"gpu:{a}->gpu:2" for a, _ in slow}
        assert all(
            slow_path.members == 12 and slow_path.operations == 1 and slow_path.ratio > 1.03 for slow_path in found
        )
        covered += sum(slow_path.low <= factor <= slow_path.high for slow_path in found)
    assert covered >= 0.85 * 120  # below 95 %: the clearest of three sizes lies slightly too far out


def test_only_unidirectional_points_are_compared() -> None:
    assert slow_paths(drawn(random.Random(1), 0.003, {(0, 1): 1.5}, both="true")) == []


def test_of_two_paths_that_differ_neither_is_called_slow() -> None:
    some = drawn(random.Random(1), 0.001, {(0, 1): 1.5})
    two = [one for one in some.points if {one.src, one.dst} == {"gpu:0", "gpu:1"}]
    assert len(two) == 6 and slow_paths(run(two)) == []


def test_without_classes_no_path_is_called_slow() -> None:
    some = drawn(random.Random(1), 0.001, {(0, 1): 1.5})
    some.header.plan = {}
    assert slow_paths(some) == []


STEADY = (0.99, 1.0, 1.01)


def exact(sizes: dict[int, tuple[float, tuple[float, ...]]]) -> Run:
    """gpu:0 -> gpu:1 with a factor at each size, and the factors by which all rounds differ."""
    points = []
    for size, (slower, rounds) in sizes.items():
        for a, b in PATHS:
            seconds = (2e-6 + size / 300e9) * (slower if (a, b) == (0, 1) else 1.0)
            id = f"d2d/ce/gpu:{a}.device->gpu:{b}.device/{size}?bidirectional=false&mode=batched"
            of = flow([seconds * factor for factor in rounds])
            points.append(point(id, flows=[of], median_s=seconds, precision_target=0.01))
    return run(points)


def test_a_path_tested_at_many_sizes_must_be_slower_by_more() -> None:
    """8 % is significant at one size (p-value 1 in 40,000), but not at one of a hundred sizes."""
    one = {8: (1.08, STEADY)}
    (found,) = slow_paths(exact(one))
    assert found.path == "gpu:0->gpu:1"
    assert slow_paths(exact(one | {1 << 20 | at: (1.0, STEADY) for at in range(99)})) == []


def test_a_faster_path_is_not_slow() -> None:
    assert slow_paths(exact({8: (0.7, STEADY), 1 << 20: (0.7, STEADY)})) == []


def test_a_slow_path_is_described_by_its_most_certain_size() -> None:
    """Slower by 22 % with rounds that differ by 1 %, and by 25 % with rounds that differ by 4 %."""
    (found,) = slow_paths(exact({8: (1.25, (0.96, 1.0, 1.04)), 1 << 20: (1.22, STEADY)}))
    assert found.point.bytes == 1 << 20 and found.ratio == pytest.approx(1.22) and found.low > 1.19
