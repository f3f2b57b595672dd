"""Where curves break, and what times may be off by: known answers."""

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
STEP = [11.0, 12.0, 13.0, 14.8, 15.8, 16.8]  # 0.8 after 3 B, which no two times tell: 14.8 < 4 / 3 of 13


def test_a_step_needs_the_lines_of_both_sides() -> None:
    """Where one of them ends with the curve, or where they meet in between, there is a bend or nothing to tell."""
    steps = [1.0, 2.0, 3.0, 4.3, 5.3, 6.3]
    assert breaks([1, 2, 3, 4, 5, 6], steps, [0.0] * 6) == [2]
    assert breaks([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.1], [0.0] * 4) == []  # no line behind it
    assert breaks([1, 2, 3, 4, 5, 6], [11.0, 12.0, 13.0, 16.0, 19.0, 22.0], [0.0] * 6) == []  # they meet at 3
    assert breaks([1, 2, 3, 4, 5, 6], [1.0, 2.0, 3.0, 3.5, 4.0, 4.5], [0.0] * 6) == []
    # 0.3 of 4.3 are 7 %, of which 3 % are no step; the lines double what their ends may be off by.
    assert breaks([1, 2, 3, 4, 5, 6], steps, [0.02] * 6) == [2]
    assert breaks([1, 2, 3, 4, 5, 6], steps, [0.03] * 6) == []


def test_what_a_time_may_be_off_by_is_told_by_the_rounds_of_all_sizes_and_no_more_than_its_interval() -> None:
    """Deviations of 1 % and of 3 %, with two degrees of freedom each: 2.24 % together, and 2.456 of it over root 3."""
    calm, wild = [1.0, 1.01, 0.99], [2.0, 2.06, 1.94]
    pooled = 2.456 * math.sqrt((0.01**2 + 0.03**2) / 2) / math.sqrt(3)
    assert doubts([calm, wild], [1.0, None]) == pytest.approx([pooled, pooled])
    assert doubts([calm, wild], [0.02, 0.05]) == pytest.approx([0.02, pooled])
    assert doubts([[1.0, 1.0, 1.3], *[[1.0] * 6] * 30], [1.0] * 31)[0] == pytest.approx(0.15)  # half of its own
    assert doubts([[], []], [0.04, None]) == [0.04, math.inf]  # taken over, or with nothing that tells
    assert doubts([[1.0]], [None]) == [math.inf] and doubts([[1.0]], [0.01]) == [0.01]
    assert doubts([[1.0], [1.0, 1.02, 0.98]], [None, None])[0] == pytest.approx(
        2.456 * 0.02
    )  # one round, by the others


@pytest.mark.parametrize("at, most", [(1, 0.0297), (2, 0.0137), (3, 0.0139), (4, 0.0259)])
def test_each_time_of_a_line_may_be_off(at: int, most: float) -> None:
    """0.8 less 3 % of 14.8: 0.356 = 12 * 0.0297 = 2 * 13 * 0.0137; less 3 % of 13: 0.41 = 2 * 14.8 * 0.0139 = 15.8 *
    0.0259."""

    def found(doubt: float) -> list[int]:
        return breaks(SIX, STEP, [doubt if place == at else 0.0 for place in range(6)])

    assert found(most - 5e-4) == [2] and found(most + 5e-4) == []


def test_what_is_off_a_line_may_be_off_itself() -> None:
    assert breaks(SIX, STEP, [0, 0, 0.012, 0, 0, 0]) == [2]
    assert breaks(SIX, STEP, [0, 0, 0.0125, 0.012, 0, 0]) == []  # 0.325 and 0.178 of 0.356


@pytest.mark.parametrize("step, found", [(0.425, []), (0.44, [2])])
def test_a_step_is_more_than_3_percent_of_what_follows(step: float, found: list[int]) -> None:
    assert breaks(SIX, [11.0, 12.0, 13.0, *(at + step for at in (14, 15, 16))], [0.0] * 6) == found


def test_two_sizes_on_either_side_are_a_line() -> None:
    assert breaks([1, 2, 3, 4], [11.0, 12.0, 13.8, 14.8], [0.0] * 4) == [1]


def test_lines_that_meet_between_two_sizes_are_a_bend() -> None:
    """At 3.25 B: each size is above the line of the other side."""
    assert breaks(SIX, [11.0, 12.0, 13.0, 15.5, 18.5, 21.5], [0.0] * 6) == []


# --- the end of a curve ---

SPACED = st.lists(st.floats(1.2, 4.0), min_size=2, max_size=8)  # each size that many times the one before
RATE = st.floats(1.0, 100.0)


def spaced(times: list[float]) -> list[int]:
    sizes = [1000]
    for factor in times:
        sizes.append(round(sizes[-1] * factor))
    return sizes


def test_copies_of_256_mib_are_streamed_and_not_on_the_line_of_the_smaller_ones() -> None:
    """h2h on four H200s (results/h200x4-standard-i): 23 ms, where 16 and 64 MiB say 36 ms. On two, and on one, copies
    of 192 MiB take less time than of 128 MiB."""
    sizes, milliseconds = [16 << 20, 64 << 20, 256 << 20], [2.252, 9.055, 23.17]
    assert breaks(sizes, milliseconds, [0.098, 0.065, 0.129]) == [1]
    finer = [16 << 20, 24 << 20, 32 << 20, 48 << 20, 64 << 20, 256 << 20]
    assert breaks(finer, [2.223, 3.24, 4.92, 7.06, 9.109, 23.51], [0.107, 0.165, 0.104, 0.158, 0.089, 0.088]) == [4]
    assert breaks(finer[2:], [4.92, 7.06, 9.109, 23.51], [0.104, 0.158, 0.089, 0.088]) == []  # half as long a line


@pytest.mark.parametrize("doubt, found", [(0.0, [2]), (0.05, [2]), (0.12, [])])
def test_an_end_is_far_below_the_line_beyond_doubt(doubt: float, found: list[int]) -> None:
    """The line says 18.4; doubts of 0.12 are 3.9, of 0.05 1.6, and a quarter of 12 is 3."""
    assert breaks([100, 200, 400, 800], [2.6, 4.9, 9.4, 12.0], [doubt] * 4) == found


@pytest.mark.parametrize("seconds, found", [(14.3, [1]), (14.5, []), (18.0, []), (23.5, [])])
def test_an_end_is_a_quarter_of_its_time_below_the_line_and_never_above(seconds: float, found: list[int]) -> None:
    """The line says 18, which is 14.4 and a quarter of it; what slows down is a bend, if less than twice the time."""
    assert breaks([100, 200, 400], [9.0, 12.0, seconds], [0.0] * 3) == found


def test_the_first_size_is_none() -> None:
    """A line through the others says 3.5, and of ramps twice as much as these take, or more."""
    assert breaks([100, 200, 400, 800], [2.1, 4.0, 5.0, 7.0], [0.0] * 4) == []


@pytest.mark.parametrize("times, found", [(4, [2]), (4.1, [])])
def test_no_line_tells_what_a_size_far_away_should_take(times: float, found: list[int]) -> None:
    assert breaks([10, 40, 160, round(160 * times)], [1.0, 4.0, 16.0, 30.0], [0.0] * 4) == found


def test_where_no_size_is_as_far_before_the_end_the_line_is_as_long_as_it_can_be() -> None:
    """From 64 it says 51.2, a quarter more than 41; from 96, which is 1.6 % low, 53."""
    sizes = [64, 96, 128, 512]
    assert breaks(sizes, [6.4, 9.45, 12.8, 41.7], [0.0] * 4) == []
    assert breaks(sizes, [6.4, 9.45, 12.8, 40.5], [0.0] * 4) == [2]


def test_the_line_to_an_end_goes_across_no_break() -> None:
    """From 128 to 192 MiB time falls; from there it grows as before. A line across says 14 for the last, or less."""
    sizes, seconds = [32, 64, 128, 192, 256], [4.0, 8.0, 16.0, 15.0, 20.0]
    assert breaks(sizes, seconds, [0.0] * 5) == [2]
    assert breaks([32, 64, 96, 192], [4.0, 8.0, 12.0, 11.0], [0.0] * 4) == [2]
    up = [1.0, 2.0, 8.0, 10.0]  # more than four times the time for twice the bytes; the line across it says 14
    assert breaks([10, 20, 40, 60], up, [0.0] * 4) == [1]
    assert breaks([10, 20, 40, 80, 160], [0.9, 1.8, 1.2, 2.4, 4.8], [0.0] * 5) == [1]


@given(SPACED, RATE, st.floats(0.0, 1e4), st.floats(0.02, 0.98))
def test_an_end_that_is_faster_than_its_line_by_more_than_a_quarter_is_never_joined_to_it(
    times: list[float], rate: float, latency: float, part: float
) -> None:
    """However much less it takes, as long as the copy before takes less still: of two sizes alone a line could join."""
    sizes = spaced(times)
    seconds = [latency + size / rate for size in sizes]
    low, high = seconds[-2], seconds[-1] / 1.26
    seconds[-1] = low + part * (high - low) if low < high else seconds[-2] * 0.96
    assert breaks(sizes, seconds, [0.0] * len(sizes)) == [len(sizes) - 2]


@given(SPACED, st.lists(st.tuples(st.floats(0.0, 1e4), RATE), min_size=1, max_size=4))
def test_what_the_slowest_of_some_stages_takes_is_no_break(
    times: list[float], stages: list[tuple[float, float]]
) -> None:
    sizes = spaced(times)
    seconds = [max(latency + size / rate for latency, rate in stages) for size in sizes]
    assert breaks(sizes, seconds, [0.0] * len(sizes)) == []


@given(SPACED, st.floats(0.84, 1.0))
def test_a_rate_that_gains_little_by_each_doubling_is_no_break_at_the_end(times: list[float], power: float) -> None:
    sizes = spaced(times)
    found = breaks(sizes, [size**power for size in sizes], [0.0] * len(sizes))
    assert len(sizes) - 2 not in found


def test_odd_sizes_and_times_are_no_crash() -> None:
    assert breaks(SIX, [1.0, 2.0, 0.0, 4.0, 5.0, 6.0], [0.0] * 6) == [1]
    assert breaks([0, 8, 16], [1.0, 1.1, 1.2], [0.0] * 3) == []
    assert breaks([8, 8, 16, 32], [1.0, 1.0, 1.1, 1.2], [0.0] * 4) == []
    assert breaks(SIX, [1.0, 2.0, 0.0, 4.0, 5.0, 6.0], [math.inf] * 6) == []
    assert breaks([], [], []) == [] and breaks([1], [1.0], [0.1]) == []


def test_more_rounds_leave_less_doubt_and_rounds_are_around_their_mean() -> None:
    three, twelve = [1.0, 1.01, 0.99], [1.0, 1.01, 0.99] * 4
    deviation = math.sqrt((0.0002 + 0.0008) / (2 + 11))
    assert doubts([three, twelve], [None, None]) == pytest.approx(
        [2.456 * deviation / math.sqrt(3), max(2.456 * deviation / math.sqrt(12), 0.01)]
    )
    calm = doubts([[1.0] * 12, [1.0, 1.1, 0.9]], [None, None])[0]
    assert calm == pytest.approx(2.456 * math.sqrt(0.02 / 13) / math.sqrt(12))
    skewed = doubts([[1.0, 1.0, 1.3], [1.0, 1.0]], [None, None])[1]
    assert skewed == pytest.approx(2.456 * math.sqrt(0.06 / 3) / math.sqrt(2))


def test_rounds_around_no_time_tell_nothing() -> None:
    assert doubts([[0.0, 0.0, 0.0], [1.0, 1.01, 0.99]], [0.5, None])[0] == 0.5
    assert doubts([[-1.0, -1.1, -0.9]], [0.5]) == [0.5]


def test_a_curve_breaks_where_no_line_joins_two_sizes_beyond_their_doubt() -> None:
    """Twice the bytes in more than 2.06 times the time, or in less than 0.97 times; intervals add half of each."""

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
def test_between_sizes_far_apart_a_steep_part_is_no_step(times: float, found: list[int]) -> None:
    sizes = [100, 200, 300, round(300 * times), round(300 * times) + 100, round(300 * times) + 200]
    assert breaks(sizes, [100.0 + size + (60 if size > 300 else 0) for size in sizes], [0.0] * 6) == found


def test_the_rounds_of_the_first_flow_tell_where_a_curve_breaks() -> None:
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
