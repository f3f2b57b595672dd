"""How much the rounds of similar points scatter: the same method on all paths, at the nearest sizes."""

import math
import random

import pytest
from msgspec import structs

from invented import point
from linkscope.model.rounds import Spreads, rounds_of
from linkscope.runfile import Point
from linkscope.stats import ratio_interval

H2D = "h2d/ce/numa:0.pinned->gpu:{}.device/67108864?bidirectional=false&mode=batched"


def timed(seconds: float, gpu: int, scatter: tuple[float, ...]) -> Point:
    made = point(H2D.format(gpu), seconds)
    made.flows[0].round_medians_s = [seconds * factor for factor in scatter]
    return made


def test_four_points_of_a_class_determine_its_scatter_by_size() -> None:
    """The scatter is the mean of their variances. A single copy and a batch are different classes."""
    large = [timed(1e-3, gpu, (1 - part, 1 + part)) for gpu, part in enumerate((0.01, 0.01, 0.01, 0.03))]
    small = [structs.replace(one, bytes=8) for one in (timed(1e-6, gpu, (0.9, 1.1)) for gpu in range(3))]
    single = structs.replace(large[0], params={**large[0].params, "mode": "single"})
    assert Spreads(large[:3]).of(large[0]) is None
    spreads = Spreads([*large, *small])
    assert spreads.of(large[0]) == pytest.approx(2 * (3 * 0.01**2 + 0.03**2) / 4, rel=1e-3)
    assert spreads.of(small[0]) == pytest.approx((8 * (3 * 0.01**2 + 0.03**2) / 4 + 3 * 2 * 0.1**2) / 7, rel=1e-2)
    assert spreads.of(single) is None and Spreads([]).of(large[0]) is None


@pytest.mark.parametrize("gpus", [1, 2, 4])
def test_intervals_of_few_rounds_and_few_paths_miss_no_more_often_than_their_level(gpus: int) -> None:
    """Two planned runs of three rounds each, noise of 3 % at 8 B and 0.2 % at 512 MiB: neighbouring sizes add what
    a few points of one size cannot show about their scatter."""
    chance, missed, count = random.Random(1), dict.fromkeys((0.95, 0.99, 0.999), 0), 0
    for _ in range(320 // gpus):
        rounds = {}
        for gpu in range(gpus):
            for at in range(14):
                noise = 0.03 * 0.82**at
                for run_of in (0, 1):
                    scatter = tuple(math.exp(chance.gauss(0, noise)) for _ in range(3))
                    rounds[gpu, 8 * 4**at, run_of] = structs.replace(timed(1e-3, gpu, scatter), bytes=8 * 4**at)
        spreads = Spreads(rounds.values())
        for (gpu, size, run_of), one in rounds.items():
            if run_of:
                continue
            before, after = (rounds_of(rounds[gpu, size, of]) for of in (0, 1))
            count += 1
            for level in missed:
                interval = ratio_interval(before, after, alike=spreads.of(one), level=level)
                missed[level] += interval is None or not interval.low <= 1 <= interval.high
    for level, times in missed.items():
        assert times <= count * (1 - level) + 2 * math.sqrt(count * (1 - level)), level
