"""Breaks of curves and the uncertainty of times, against known answers."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from fakes import flow
from invented import point
from linkscope.model.cliffs import breaks as sizes_of_breaks
from linkscope.runfile import Flow, half_width
from linkscope.stats import breaks, doubts

H2D = "h2d/ce/numa:0.pinned->gpu:0.device/{}?mode=batched"
SIX = [1, 2, 3, 4, 5, 6]
STEP = [
    11.0,
    12.0,
    13.0,
    14.8,
    15.8,
    16.8,
]  # a step of 0.8 after 3 B, too small for two points alone: 14.8 < 4 / 3 of 13


def test_a_step_needs_a_line_on_both_sides() -> None:
    """A side that is only the end of the curve, or lines that meet in between, make a bend or no finding."""
    steps = [1.0, 2.0, 3.0, 4.3, 5.3, 6.3]
    assert breaks([1, 2, 3, 4, 5, 6], steps, [0.0] * 6) == [2]
    assert breaks([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.1], [0.0] * 4) == []  # no line after the step
    assert breaks([1, 2, 3, 4, 5, 6], [11.0, 12.0, 13.0, 16.0, 19.0, 22.0], [0.0] * 6) == []  # the lines meet at 3
    assert breaks([1, 2, 3, 4, 5, 6], [1.0, 2.0, 3.0, 3.5, 4.0, 4.5], [0.0] * 6) == []
    # 0.3 of 4.3 is 7 %, of which 3 % are no step; extending the lines doubles the uncertainty of their ends.
    assert breaks([1, 2, 3, 4, 5, 6], steps, [0.02] * 6) == [2]
    assert breaks([1, 2, 3, 4, 5, 6], steps, [0.03] * 6) == []


def test_the_uncertainty_of_a_time_pools_the_rounds_of_all_sizes_and_stays_within_its_interval() -> None:
    """Deviations of 1 % and 3 % with two degrees of freedom each: pooled 2.24 %, times 2.456 over root 3."""
    calm, wild = [1.0, 1.01, 0.99], [2.0, 2.06, 1.94]
    pooled = 2.456 * math.sqrt((0.01**2 + 0.03**2) / 2) / math.sqrt(3)
    assert doubts([calm, wild], [1.0, None]) == pytest.approx([pooled, pooled])
    assert doubts([calm, wild], [0.02, 0.05]) == pytest.approx([0.02, pooled])
    assert doubts([[1.0, 1.0, 1.3], *[[1.0] * 6] * 30], [1.0] * 31)[0] == pytest.approx(
        0.15
    )  # half of its own interval
    assert doubts([[], []], [0.04, None]) == [0.04, math.inf]  # inherited, or without rounds and interval
    assert doubts([[1.0]], [None]) == [math.inf] and doubts([[1.0]], [0.01]) == [0.01]
    assert doubts([[1.0], [1.0, 1.02, 0.98]], [None, None])[0] == pytest.approx(
        2.456 * 0.02
    )  # one round: the deviation of the others


@pytest.mark.parametrize("at, most", [(1, 0.0297), (2, 0.0137), (3, 0.0139), (4, 0.0259)])
def test_each_time_of_a_line_may_be_wrong_by_its_uncertainty(at: int, most: float) -> None:
    """0.8 less 3 % of 14.8: 0.356 = 12 * 0.0297 = 2 * 13 * 0.0137; less 3 % of 13: 0.41 = 2 * 14.8 * 0.0139 = 15.8 *
    0.0259."""

    def found(doubt: float) -> list[int]:
        return breaks(SIX, STEP, [doubt if place == at else 0.0 for place in range(6)])

    assert found(most - 5e-4) == [2] and found(most + 5e-4) == []


def test_a_time_off_the_line_may_be_wrong_by_its_own_uncertainty() -> None:
    assert breaks(SIX, STEP, [0, 0, 0.012, 0, 0, 0]) == [2]
    assert breaks(SIX, STEP, [0, 0, 0.0125, 0.012, 0, 0]) == []  # 0.325 and 0.178 of 0.356


@pytest.mark.parametrize("step, found", [(0.425, []), (0.44, [2])])
def test_a_step_is_more_than_3_percent_of_what_follows(step: float, found: list[int]) -> None:
    assert breaks(SIX, [11.0, 12.0, 13.0, *(at + step for at in (14, 15, 16))], [0.0] * 6) == found


def test_two_sizes_on_either_side_make_a_line() -> None:
    assert breaks([1, 2, 3, 4], [11.0, 12.0, 13.8, 14.8], [0.0] * 4) == [1]


def test_lines_that_meet_between_two_sizes_are_a_bend() -> None:
    """The lines meet at 3.25 B, and each size is above the line of the other side."""
    assert breaks(SIX, [11.0, 12.0, 13.0, 15.5, 18.5, 21.5], [0.0] * 6) == []


# --- the end of a curve ---

SPACED = st.lists(st.floats(1.2, 4.0), min_size=2, max_size=8)  # each size as a multiple of the one before
RATE = st.floats(1.0, 100.0)


def spaced(times: list[float]) -> list[int]:
    sizes = [1000]
    for factor in times:
        sizes.append(round(sizes[-1] * factor))
    return sizes


def test_copies_of_256_mib_are_streamed_and_not_on_the_line_of_the_smaller_ones() -> None:
    """h2h on four H200s (results/h200x4-standard-i): 23 ms, where 16 and 64 MiB predict 36 ms. On two H200s and on one,
    copies of 192 MiB take less time than copies of 128 MiB."""
    sizes, milliseconds = [16 << 20, 64 << 20, 256 << 20], [2.252, 9.055, 23.17]
    assert breaks(sizes, milliseconds, [0.098, 0.065, 0.129]) == [1]
    finer = [16 << 20, 24 << 20, 32 << 20, 48 << 20, 64 << 20, 256 << 20]
    assert breaks(finer, [2.223, 3.24, 4.92, 7.06, 9.109, 23.51], [0.107, 0.165, 0.104, 0.158, 0.089, 0.088]) == [4]
    assert breaks(finer[2:], [4.92, 7.06, 9.109, 23.51], [0.104, 0.158, 0.089, 0.088]) == []  # the line is half as long


@pytest.mark.parametrize("doubt, found", [(0.0, [2]), (0.05, [2]), (0.12, [])])
def test_the_last_size_is_a_break_if_it_is_far_below_the_line_beyond_its_uncertainty(
    doubt: float, found: list[int]
) -> None:
    """The line predicts 18.4; uncertainties of 0.12 add 3.9, of 0.05 1.6, and a quarter of 12 is 3."""
    assert breaks([100, 200, 400, 800], [2.6, 4.9, 9.4, 12.0], [doubt] * 4) == found


@pytest.mark.parametrize("seconds, found", [(14.3, [1]), (14.5, []), (18.0, []), (23.5, [])])
def test_the_last_size_is_a_break_only_if_it_is_a_quarter_of_its_time_below_the_line(
    seconds: float, found: list[int]
) -> None:
    """The line predicts 18, which is 14.4 and a quarter of it. A slower last size is a bend below twice the time."""
    assert breaks([100, 200, 400], [9.0, 12.0, seconds], [0.0] * 3) == found


def test_the_first_size_is_never_a_break() -> None:
    """A line through the others predicts 3.5; the times of the ramps are at most half of its prediction."""
    assert breaks([100, 200, 400, 800], [2.1, 4.0, 5.0, 7.0], [0.0] * 4) == []


@pytest.mark.parametrize("times, found", [(4, [2]), (4.1, [])])
def test_no_line_is_extended_to_a_size_far_away(times: float, found: list[int]) -> None:
    assert breaks([10, 40, 160, round(160 * times)], [1.0, 4.0, 16.0, 30.0], [0.0] * 4) == found


def test_the_line_to_the_last_size_is_as_long_as_the_sizes_allow() -> None:
    """From 64 on the line predicts 51.2, a quarter more than 41; from 96, which is 1.6 % low, 53."""
    sizes = [64, 96, 128, 512]
    assert breaks(sizes, [6.4, 9.45, 12.8, 41.7], [0.0] * 4) == []
    assert breaks(sizes, [6.4, 9.45, 12.8, 40.5], [0.0] * 4) == [2]


def test_the_line_to_the_last_size_crosses_no_break() -> None:
    """From 128 to 192 MiB the time falls, then grows as before. A line across the break predicts 14 or less."""
    sizes, seconds = [32, 64, 128, 192, 256], [4.0, 8.0, 16.0, 15.0, 20.0]
    assert breaks(sizes, seconds, [0.0] * 5) == [2]
    assert breaks([32, 64, 96, 192], [4.0, 8.0, 12.0, 11.0], [0.0] * 4) == [2]
    up = [1.0, 2.0, 8.0, 10.0]  # more than 4 times the time for twice the bytes; the line across predicts 14
    assert breaks([10, 20, 40, 60], up, [0.0] * 4) == [1]
    assert breaks([10, 20, 40, 80, 160], [0.9, 1.8, 1.2, 2.4, 4.8], [0.0] * 5) == [1]


@given(SPACED, RATE, st.floats(0.0, 1e4), st.floats(0.02, 0.98))
def test_a_last_size_a_quarter_faster_than_its_line_is_never_joined_to_it(
    times: list[float], rate: float, latency: float, part: float
) -> None:
    """For any time between that of the copy before and the limit. A smaller time would be a jump between two sizes."""
    sizes = spaced(times)
    seconds = [latency + size / rate for size in sizes]
    low, high = seconds[-2], seconds[-1] / 1.26
    seconds[-1] = low + part * (high - low) if low < high else seconds[-2] * 0.96
    assert breaks(sizes, seconds, [0.0] * len(sizes)) == [len(sizes) - 2]


@given(SPACED, st.lists(st.tuples(st.floats(0.0, 1e4), RATE), min_size=1, max_size=4))
def test_the_slowest_of_several_stages_makes_no_break(times: list[float], stages: list[tuple[float, float]]) -> None:
    sizes = spaced(times)
    seconds = [max(latency + size / rate for latency, rate in stages) for size in sizes]
    assert breaks(sizes, seconds, [0.0] * len(sizes)) == []


@given(SPACED, st.floats(0.84, 1.0))
def test_a_rate_that_rises_slowly_with_size_makes_no_break_at_the_end(times: list[float], power: float) -> None:
    sizes = spaced(times)
    found = breaks(sizes, [size**power for size in sizes], [0.0] * len(sizes))
    assert len(sizes) - 2 not in found


def test_unusual_sizes_and_times_cause_no_error() -> None:
    assert breaks(SIX, [1.0, 2.0, 0.0, 4.0, 5.0, 6.0], [0.0] * 6) == [1]
    assert breaks([0, 8, 16], [1.0, 1.1, 1.2], [0.0] * 3) == []
    assert breaks([8, 8, 16, 32], [1.0, 1.0, 1.1, 1.2], [0.0] * 4) == []
    assert breaks(SIX, [1.0, 2.0, 0.0, 4.0, 5.0, 6.0], [math.inf] * 6) == []
    assert breaks([], [], []) == [] and breaks([1], [1.0], [0.1]) == []


def test_more_rounds_reduce_the_uncertainty_and_deviations_are_from_the_mean() -> None:
    three, twelve = [1.0, 1.01, 0.99], [1.0, 1.01, 0.99] * 4
    deviation = math.sqrt((0.0002 + 0.0008) / (2 + 11))
    assert doubts([three, twelve], [None, None]) == pytest.approx(
        [2.456 * deviation / math.sqrt(3), max(2.456 * deviation / math.sqrt(12), 0.01)]
    )
    calm = doubts([[1.0] * 12, [1.0, 1.1, 0.9]], [None, None])[0]
    assert calm == pytest.approx(2.456 * math.sqrt(0.02 / 13) / math.sqrt(12))
    skewed = doubts([[1.0, 1.0, 1.3], [1.0, 1.0]], [None, None])[1]
    assert skewed == pytest.approx(2.456 * math.sqrt(0.06 / 3) / math.sqrt(2))


def test_rounds_with_a_mean_of_zero_give_no_uncertainty() -> None:
    assert doubts([[0.0, 0.0, 0.0], [1.0, 1.01, 0.99]], [0.5, None])[0] == 0.5
    assert doubts([[-1.0, -1.1, -0.9]], [0.5]) == [0.5]


def test_a_curve_breaks_where_no_line_joins_two_sizes_within_their_uncertainty() -> None:
    """Twice the bytes in more than 2.06 times the time, or in less than 0.97 times; intervals widen both bounds."""

    def broken(factor: float, half: float) -> bool:
        sizes = (1 << 20, 2 << 20)
        points = [point(H2D.format(size), 1e-4 * (factor if at else 1.0))
                  for at, size in enumerate(sizes)]  # fmt: skip
        for one in points:
            one.ci95_s = ((one.median_s or 0) * (1 - half), (one.median_s or 0) * (1 + half))
        return sizes_of_breaks(points) == [sizes[1]]

    assert [broken(factor, 0.0) for factor in (0.96, 0.98, 1.0, 2.05, 2.07)] == [True, False, False, False, True]
    assert [broken(factor, 0.02) for factor in (0.92, 0.95, 2.13, 2.16)] == [True, False, False, True]


@pytest.mark.parametrize("times, found", [(2, [2]), (2.1, [])])
def test_a_steep_part_between_distant_sizes_is_no_step(times: float, found: list[int]) -> None:
    sizes = [100, 200, 300, round(300 * times), round(300 * times) + 100, round(300 * times) + 200]
    assert breaks(sizes, [100.0 + size + (60 if size > 300 else 0) for size in sizes], [0.0] * 6) == found


def test_the_rounds_of_the_first_flow_decide_where_a_curve_breaks() -> None:
    def broken(flows_of: Callable[[float], list[Flow]]) -> list[int]:
        points = []
        for size, seconds in ((1 << 20, 1e-4), (2 << 20, 0.95e-4)):
            made = point(H2D.format(size), seconds, flows=flows_of(seconds))
            points.append(structs.replace(made, ci95_s=(seconds * 0.95, seconds * 1.05)))
        return sizes_of_breaks(points)

    def calm(seconds: float) -> Flow:
        return flow([seconds] * 3)

    def loud(seconds: float) -> Flow:
        return flow([seconds, seconds * 2, seconds / 2])

    assert broken(lambda seconds: [calm(seconds), loud(seconds)]) == [2 << 20]
    assert broken(lambda seconds: [loud(seconds), calm(seconds)]) == []


def test_half_of_the_interval() -> None:
    of = structs.replace(point(H2D.format(8), 2.0), ci95_s=(1.5, 2.3))
    assert half_width(of) == pytest.approx(0.2)
    assert all(half_width(structs.replace(of, median_s=median)) is None for median in (None, 0.0, -2.0))
    assert half_width(structs.replace(of, ci95_s=None)) is None
