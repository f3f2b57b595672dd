"""Cost curves of known shape are recovered as segments; noise makes no segment; no prediction crosses a cliff."""

import math
import random
from itertools import pairwise

import pytest

from campaign import only_long
from linkscope.model.curves import Estimate
from linkscope.model.description import segments_text
from linkscope.model.segments import MOST_SEGMENTS, Costs, Segment, costs

MIB = 1 << 20
SIZES = [1 << exponent for exponent in range(3, 31)]


def line(latency_s: float, gbps: float, size: int) -> float:
    return latency_s + size / gbps / 1e9


def measured(times: list[float], sigma: float, seed: int = 1) -> list[float]:
    generator = random.Random(seed)
    return [time * math.exp(generator.gauss(0, sigma)) for time in times]


@pytest.mark.parametrize("sigma", [0.001, 0.01, 0.03])
def test_a_linear_cost_is_one_segment_with_its_latency_and_rate(sigma: float) -> None:
    truth = [line(2.4e-6, 55.5, size) for size in SIZES]
    found = costs(SIZES, measured(truth, sigma), [sigma] * len(SIZES))
    (segment,) = found.segments
    assert not found.cliffs and (segment.first, segment.last) == (SIZES[0], SIZES[-1])
    assert segment.latency_s.value == pytest.approx(2.4e-6, rel=2 * sigma)
    assert segment.rate == pytest.approx(55.5e9, rel=2 * sigma)
    assert segment.half_bytes == pytest.approx(2.4e-6 * 55.5e9, rel=3 * sigma)


@only_long
def test_intervals_have_their_nominal_coverage() -> None:
    truth = [line(5e-6, 12.0, size) for size in SIZES]
    held = complete = 0
    for seed in range(100):
        segments = costs(SIZES, measured(truth, 0.02, seed), [0.02] * len(SIZES)).segments
        found = segments[0].latency_s
        if len(segments) == 1 and found.low is not None and found.high is not None:
            complete += 1
            held += found.low <= 5e-6 <= found.high
    assert complete >= 95  # in the others noise made several segments
    assert 0.91 <= held / complete <= 0.99


def test_a_change_of_the_drivers_method_is_a_cliff_without_prediction() -> None:
    at = 64 << 10
    truth = [line(1.5e-6, 6.7, size) if size <= at else line(20e-6, 10.5, size) for size in SIZES]
    found = costs(SIZES, measured(truth, 0.01), [0.01] * len(SIZES))
    assert found.cliffs == ((at, 2 * at),)
    assert found.seconds(3 * at // 2) is None
    assert found.seconds(at) == pytest.approx(truth[SIZES.index(at)], rel=0.03)
    assert found.seconds(4 * at) == pytest.approx(line(20e-6, 10.5, 4 * at), rel=0.03)


def test_a_bend_without_a_jump_is_no_cliff() -> None:
    truth = [max(line(2e-6, 20, size), line(0.2e-6, 5, size)) for size in SIZES]
    found = costs(SIZES, measured(truth, 0.01), [0.01] * len(SIZES))
    assert 2 <= len(found.segments) <= 3 and not found.cliffs
    for one, other in pairwise(SIZES):
        middle = int(math.sqrt(one * other))
        expected = max(line(2e-6, 20, middle), line(0.2e-6, 5, middle))
        assert found.seconds(middle) == pytest.approx(expected, rel=0.04)


def test_between_two_segments_the_larger_of_both_lines_counts() -> None:
    """10 us up to 1 KiB, and proportional to the bytes for 4 KiB and more: the lines meet at 2 KiB."""
    flat = Segment(8, 1024, Estimate(10e-6), Estimate(0.0))
    rising = Segment(4096, 65536, Estimate(0.0), Estimate(10e-6 / 2048))
    found = Costs((flat, rising), ())
    assert found.seconds(1536) == pytest.approx(10e-6) and found.seconds(3072) == pytest.approx(15e-6)
    assert found.seconds(8) == 10e-6 and found.seconds(65536) == pytest.approx(320e-6)
    assert found.seconds(4) is None and found.seconds(65537) is None
    # If the second line is below the first, the faster method is assumed as soon as it is faster.
    falling = Costs((Segment(8, 1024, Estimate(0.0), Estimate(10e-6 / 1024)),
                     Segment(4096, 65536, Estimate(15e-6), Estimate(0.0))), ())  # fmt: skip
    assert falling.seconds(1280) == pytest.approx(12.5e-6) and falling.seconds(2048) == pytest.approx(15e-6)


def test_lines_that_meet_before_the_next_size_are_no_cliff() -> None:
    """10 us up to 1 KiB, and a proportional cost from 9.5 us at 4 KiB, which is far lower at 1 KiB."""
    sizes = [8 << at for at in range(8)] + [4096 << at for at in range(8)]
    found = costs(sizes, [10e-6 if size < 4096 else 9.5e-6 * size / 4096 for size in sizes], [0.001] * len(sizes))
    assert len(found.segments) == 2 and found.cliffs == ()
    assert found.seconds(2048) == pytest.approx((10e-6 * 9.5e-6) ** 0.5, rel=1e-3)


def test_points_that_scatter_more_than_stated_widen_the_interval() -> None:
    """Four points are 1 % off the line: a stated uncertainty of 1.12 % or 1.32 % makes no difference."""
    sizes = [MIB << at for at in range(4)]
    times = [line(100e-6, 12.0, size) * (1 + off) for size, off in zip(sizes, (0.01, -0.01, -0.01, 0.01), strict=True)]

    def width(sigma: float) -> float:
        (segment,) = costs(sizes, times, [sigma] * 4).segments
        return (segment.latency_s.high or math.inf) - (segment.latency_s.low or 0.0)

    assert width(0.0112) == pytest.approx(width(0.0132), rel=0.02)
    assert width(0.04) == pytest.approx(2 * width(0.02), rel=0.02)  # a larger stated uncertainty counts


def test_there_are_at_most_five_segments() -> None:
    wild = measured([1e-6] * len(SIZES), 1.5)
    assert len(costs(SIZES, wild, [0.01] * len(SIZES)).segments) <= MOST_SEGMENTS


def test_there_is_no_prediction_outside_the_measured_sizes() -> None:
    found = costs([4096, 65536], [3e-6, 5e-6], [0.01, 0.01])
    assert found.seconds(8) is None and found.seconds(1 << 20) is None
    assert found.seconds(4096) == pytest.approx(3e-6, rel=1e-6)
    assert costs([64], [2e-6], [0.01]).seconds(64) == pytest.approx(2e-6)


def test_a_curve_without_points_is_an_error_of_the_caller() -> None:
    with pytest.raises(ValueError, match="a time and a deviation for each size"):
        costs([], [], [])
    with pytest.raises(ValueError, match="a time and a deviation for each size"):
        costs([8, 16], [1e-6], [0.01])


def test_a_rate_that_no_copy_reaches_is_not_printed() -> None:
    """Bytes hide behind the set-up time: the line is flat, and half of its rate lies beyond its sizes."""
    sure = Estimate(1 / 852.8e9)
    hidden = Costs((Segment(8, 2 * MIB, Estimate(13.09e-6), sure),), ())
    assert segments_text(hidden) == "8 B to 2 MiB 13.09 us to 15.55 us"
    visible = Costs((Segment(8, 256 * MIB, Estimate(13.09e-6), sure),), ())
    assert segments_text(visible) == "8 B to 256 MiB 13.09 us + 852.8 GB/s (half at 10.65 MiB)"
