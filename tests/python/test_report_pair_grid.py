"""The matrix of pairs and the strip: deviations from the median of each class, colours, menus."""

import json
from dataclasses import replace

import pytest
from browser import CHROMIUM, Browser

from invented import point, run, small_run
from linkscope.report.html import page
from linkscope.report.pair_grid import EDGES, best_each, data, deviation_colour, grid, share_colour
from linkscope.report.pair_rates import main_matrix, matrices
from linkscope.report.pair_strip import strip_svg, strip_text
from linkscope.report.uniformity import Comparison
from linkscope.stats import Interval

SIZE = 1 << 28
D2D = "d2d/{}/gpu:{}.device->gpu:{}.device/{}?mode=batched&peer={}"


def pairs(count: int, gbps, *, engine: str = "ce", size: int = SIZE, peer: str = "on", **fields) -> list:
    """All pairs of GPUs; `gbps` is a function of source and destination."""
    ends = [(src, dst) for src in range(count) for dst in range(count) if src != dst]
    return [
        point(D2D.format(engine, src, dst, size, peer), size / gbps(src, dst) / 1e9, limit_gbps=478.0, **fields)
        for src, dst in ends
    ]


def slow(src: int, dst: int) -> float:
    return {(1, 2): 388.0, (0, 2): 399.798}.get((src, dst), 400.0)  # the second is 0.0505 % below


def test_a_pair_three_percent_below_its_class_stands_out() -> None:
    matrix = main_matrix(matrices(run(pairs(4, slow))))
    assert matrix is not None and matrix.slowest is not None
    path, cell = matrix.slowest
    assert str(path) == "gpu:1 -> gpu:2" and cell.deviation == pytest.approx(-0.03)
    made = grid(matrix, "copies")
    assert (made.cells[1][2].style, made.cells[1][2].below, made.cells[1][2].text) == ("d1", "-3.0 %", "388.0")
    assert made.cells[0][1].style == "d3" and made.cells[0][0] is None
    assert made.cells[1][2].link == "#d2d-gpu1-gpu2"


def test_each_class_has_its_own_median() -> None:
    def gbps(src: int, dst: int) -> float:
        return 48.0 if {src, dst} == {0, 1} else 24.0

    points = pairs(4, gbps)
    for one in points:
        one.limit_gbps = 50.0 if one.gbps > 30 else 25.0
    (matrix,) = matrices(run(points))
    assert [cell.deviation for cell in matrix.cells.values()] == pytest.approx([0.0] * 12)


def test_inherited_and_doubtful_pairs_do_not_count_and_are_marked() -> None:
    points = pairs(3, lambda src, dst: 400.0)
    points[0].status, points[1].guards = "inherited", {"above_limit": 500.0}
    (matrix,) = matrices(run(points))
    assert matrix.measured == 5
    made = grid(matrix, "")
    assert made.cells[0][1].text == "^400.0" and made.cells[0][1].style == "d3 inherited"
    assert made.cells[0][2].text == "400.0 (!)" and made.cells[0][2].style == ""
    picture = strip_svg(matrix, True)
    assert picture.split('class="dot hollow" d="')[1].split('"')[0].count("M") == 1 and "MODELLED" in picture


def test_the_main_matrix_is_the_largest_size_that_most_pairs_measured() -> None:
    large = pairs(3, slow, size=2 * SIZE)
    for one in large[1:]:
        one.status = "inherited"
    made = [
        *large,
        *pairs(3, slow),
        *pairs(3, slow, size=4096),
        *pairs(3, slow, engine="sm"),
        *pairs(3, slow, peer="off", size=4 * SIZE),
    ]
    found = main_matrix(matrices(run(made)))
    assert found is not None and (found.bytes, found.method.family.engine) == (SIZE, "ce")
    assert len(best_each(matrices(run(made)))) == 3
    assert main_matrix(matrices(run(pairs(3, slow, peer="off")))) is None


def test_the_strip_names_the_slowest_pair_its_interval_and_the_count() -> None:
    verdict, text = strip_text(matrices(run(pairs(4, slow)))[0], None)
    assert verdict == "GPU pairs are uniform"
    assert text.startswith(
        "The slowest is gpu:1 → gpu:2, 388 GB/s [380, 396] at 256 MiB: 3 % below the median of its class"
    )
    assert text.endswith("12 of 12 pairs were measured at this size")


def test_the_strip_calls_a_pair_slow_only_where_the_difference_is_certain() -> None:
    matrix = matrices(run(pairs(4, lambda src, dst: 300.0 if (src, dst) == (3, 0) else 400.0)))[0]
    verdict, text = strip_text(matrix, None)
    assert "gpu:3 → gpu:0" in text and verdict == "GPU pairs may differ"
    (one, *_) = pairs(2, slow)
    certain = Comparison("GPU → GPU", 12, SIZE, one, one, 1.33, Interval(1.3, 1.36, 0.95), 0.33)
    uncertain = replace(certain, interval=Interval(1.0, 1.8, 0.95))
    assert strip_text(matrix, certain)[0] == "A GPU pair is slow"
    assert strip_text(matrix, uncertain)[0] == "GPU pairs may differ"
    alike = matrices(run(pairs(4, slow)))[0]
    assert strip_text(alike, certain)[0] == "GPU pairs of a class are uniform"
    assert strip_text(alike, uncertain)[0] == "GPU pairs may differ"


def test_colours_have_edges_and_a_value_above_its_peak_is_marked() -> None:
    assert [deviation_colour(edge)[0] for edge in EDGES] == ["d1", "d2", "d3", "d4", "d5", "d6"]
    assert deviation_colour(-0.2) == ("d0", "-20.0 %") and deviation_colour(None) == ("", "")
    assert [share_colour(share) for share in (0.95, 0.6, 1.04)] == [("d6", "95 %"), ("d1", "60 %"), ("d6", "104 % (!)")]


def test_operations_without_bytes_are_times_and_a_longer_time_is_slower() -> None:
    points = [
        point(f"latency/sm/gpu:{a}.device->gpu:{b}.device/0?cache=cold", seconds)
        for a, b, seconds in ((0, 1, 8e-7), (1, 0, 8e-7), (1, 2, 1e-6))
    ]
    (matrix,) = matrices(run(points))
    made = grid(matrix, "")
    assert (made.cells[1][2].text, made.cells[1][2].below) == ("1 us", "-20.0 %") and made.label.endswith(
        "no bytes, time"
    )


def test_names_of_a_run_cannot_end_the_data_of_the_menus() -> None:
    evil = "</script><script>alert(1)</script>"
    points = [point(D2D.format("ce", 0, dst, SIZE, evil), 1e-3) for dst in (1, 2)]
    text = page(run(points))
    assert "alert(1)</script>" not in text and len(json.loads(data(matrices(run(points))))["matrices"]) == 1


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_menus_show_another_method_size_and_colour_and_cells_keep_their_links(tmp_path) -> None:
    made = run(
        [*pairs(4, slow), *pairs(4, lambda src, dst: 200.0, engine="sm", size=1 << 20), *small_run().points[:16]]
    )
    file = tmp_path / "page.html"
    file.write_text(page(made), encoding="utf-8")
    cells = (
        "[...document.querySelectorAll('.menus td')].map((one) => one.className + '|' + "
        "one.innerText.split('\\n').join(' '))"
    )
    links = "[...document.querySelectorAll('.menus td a')].map((one) => one.hash).join()"
    choose = (
        "(({0}) => {{ const made = document.querySelector('.menus select[name={0}]'); made.value = '{1}';"
        " made.dispatchEvent(new Event('change')); }})()"
    )
    with Browser(tmp_path / "profile") as browser:
        browser.open(file, scripts=False)
        before = browser.ask("document.querySelector('.menus .caption').textContent")
        static_cells = browser.ask(cells)
        browser.open(file)
        assert browser.ask(cells) == static_cells and "d3|399.8 -0.1 %" in static_cells
        static = page(made).split('<table class="matrix"')[1]
        assert browser.ask("document.querySelector('.menus .caption').textContent") == before
        assert all(f'href="{link}"' in static for link in browser.ask(links).split(","))
        assert "d1|388.0 -3.0 %" in browser.ask(cells)
        browser.ask(choose.format("colour", "share"))
        assert "d5|388.0 81 %" in browser.ask(cells)
        assert "80 to 90 %" in browser.ask("document.querySelector('.menus .legend').textContent")
        browser.ask(choose.format("method", "GPU threads"))
        assert browser.ask("document.querySelector('.menus [name=size]').value") == "1 MiB"
        assert set(browser.ask(cells)) == {"|", "d0|200.0 42 %"}
        browser.ask(choose.format("direction", "host → GPU"))
        assert "host → GPU, copy engine" in browser.ask("document.querySelector('.menus .caption').textContent")
