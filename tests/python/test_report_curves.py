"""The figures of rates over size: which lines they have, and where the names stand."""

import itertools
import re

import pytest

from invented import SIZES, point, run, small_run
from linkscope.report.curve_chart import curve_svg, spread
from linkscope.report.curve_lines import curve_lines

H2D = "h2d/ce/numa:0.{}->gpu:0.device/{}?bidirectional={}&mode={}"
D2D = "d2d/ce/gpu:{}.device->gpu:{}.device/{}?mode=batched&peer={}"


def h2d(memory: str, gbps: float, *, both: str = "false", mode: str = "batched", **fields):
    return [
        point(H2D.format(memory, size, both, mode), 2e-6 + size / gbps / 1e9, limit_gbps=63.0, **fields)
        for size in SIZES
    ]


def test_each_direction_has_its_kinds_of_memory_and_of_access() -> None:
    managed = [
        point(f"{name}/{engine}/numa:0.managed->gpu:0.managed/{size}?bidirectional=false", 1e-5 + size / 20e9)
        for name, engine in (("prefetch", "prefetch"), ("demand", "fault"))
        for size in SIZES
    ]
    peers = [
        point(D2D.format(0, 1, size, peer), size / rate)
        for size in SIZES
        for peer, rate in (("on", 4e11), ("off", 4e10))
    ]
    found = curve_lines(run([*h2d("pinned", 55), *h2d("pageable", 9), *managed, *peers]))
    assert {of.direction: [line.name for line in of.lines] for of in found} == {
        "Host → GPU": ["pinned", "pageable", "managed", "on demand"],
        "GPU → GPU": ["peer access", "peer off"],
    }


def test_bidirectional_single_and_doubtful_points_are_no_lines() -> None:
    points = [*h2d("pinned", 55, both="true"), *h2d("pageable", 9, mode="single")]
    points += h2d("registered", 9) + h2d("pinned", 99, guards={"above_limit": 99.0})
    assert curve_lines(run(points)) == []


def test_the_path_with_the_most_measured_sizes_is_drawn() -> None:
    few = [point(D2D.format(0, 1, size, "on"), size / 4e11, status="inherited") for size in SIZES]
    many = [point(D2D.format(2, 3, size, "on"), size / 4e11) for size in SIZES[1:]]
    (lines,) = curve_lines(run([*few, *many]))
    assert str(lines.path) == "gpu:2 -> gpu:3"


def test_a_figure_names_its_lines_with_their_best_rate_and_marks_half_of_it() -> None:
    (lines,) = curve_lines(run([*h2d("pinned", 55), *h2d("pageable", 9)]))
    for logarithmic in (False, True):
        picture = curve_svg(lines, True, logarithmic=logarithmic)
        assert ">pinned 54.9</text>" in picture and ">pageable 9</text>" in picture and "peak 63 GB/s" in picture
        assert picture.count('class="line"') == 2 and "half from 1 MiB" in picture and ">MODELLED</text>" in picture
    assert ">0.001</text>" in curve_svg(lines, False, logarithmic=True)


def test_inherited_dots_are_hollow_and_missed_ones_have_a_ring() -> None:
    made = h2d("pinned", 55)
    made[0].status, made[1].status = "inherited", "missed_precision"
    picture = curve_svg(curve_lines(run(made))[0], False, logarithmic=False)
    hollow, ring = (re.findall(rf'class="{style}" d="([^"]+)"', picture) for style in ("dot hollow", "ring"))
    assert hollow[0].count("M") == ring[0].count("M") == 1


def test_one_point_is_a_figure() -> None:
    (lines,) = curve_lines(run(h2d("pinned", 55)[:1]))
    assert "half from" not in curve_svg(lines, False, logarithmic=True) and curve_lines(run([])) == []
    assert [of.benchmark for of in curve_lines(small_run())] == ["h2d", "d2d"]


@pytest.mark.parametrize("wanted", [[10, 11, 12, 90], [5, 5, 5, 5], [95, 96, 97], [50], []])
def test_names_stand_apart_and_inside(wanted) -> None:
    places = spread(wanted, 14, 0, 100)
    assert all(later - earlier >= 14 for earlier, later in itertools.pairwise(places))
    assert all(0 <= place <= 100 for place in places)
