"""The page: one file, no external resources, valid, escaped, drawn without JavaScript."""

import re
from html.parser import HTMLParser

import pytest

from invented import SIZES, point, run, small_run
from linkscope.model.curves import Estimate
from linkscope.report.axes import rate_axis, size_axis, time_axis
from linkscope.report.html import page, render
from linkscope.report.panels import basis_text, panels
from linkscope.report.svg import Series, rate_chart, time_chart
from linkscope.runfile import RunWriter

H2D = "h2d/ce/numa:0.pinned->gpu:0.device/{}?bidirectional=false&mode=batched"
EVIL = "<script>alert(1)</script>\"'&"
VOID = {"meta", "input", "br", "link"}


class Checker(HTMLParser):
    """Checks that all tags are closed in order, ids are unique, and links to # have a target."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"


def checked(text: str) -> Checker:
    checker = Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == [] and len(set(checker.ids)) == len(checker.ids)
    assert all(link.startswith("#") and link[1:] in checker.ids for link in checker.links)
    return checker


def cases() -> dict[str, list]:
    return {
        "small": small_run().points,
        "none": [],
        "one": [point(H2D.format(8), 1e-6)],
        "failed": [point(H2D.format(size), status="failed", reason="no") for size in SIZES],
        "no bytes": [point(H2D.format(0), 1e-6)],
        "no interval": [point(H2D.format(size), 1e-6, ci95_s=None, spread=None, flows=[]) for size in SIZES],
    }


@pytest.mark.parametrize("name", cases())
def test_the_page_is_valid_and_loads_nothing(name: str) -> None:
    text = page(run(cases()[name]))
    assert checked(text).tags.count("script") == 1
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"<script>.*?</script>", "", text, flags=re.S))
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "fetch(" not in text and "XMLHttpRequest" not in text


def test_names_are_escaped() -> None:
    made = run([point(H2D.format(8), 1e-6, src=EVIL, limit_gbps=1.0, limit_source=EVIL),
                point(H2D.format(16), status="failed", reason=EVIL, params={"mode": EVIL, EVIL: EVIL})],
               name=EVIL, title=EVIL, warnings=[EVIL, {"text": EVIL}], gpus=[{"name": EVIL}])  # fmt: skip
    made.header.environment[EVIL] = {EVIL: [EVIL]}
    text = page(made)
    assert checked(text).tags.count("script") == 1
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_modelled_runs_are_marked_in_heading_and_figures() -> None:
    text = page(small_run())
    pictures = re.findall(r'<svg class="chart".*?</svg>', text, flags=re.S)
    assert len(pictures) > 10 and all(">MODELLED</text>" in picture for picture in pictures)
    assert "<title>MODELLED: invented" in text and 'class="banner"' in text
    real = page(run(small_run().points, modelled=False))
    assert "MODELLED" not in real


def test_all_numbers_are_in_tables_without_javascript() -> None:
    made = small_run()
    text = re.sub(r"<script>.*?</script>", "", page(made), flags=re.S)
    assert text.count("<tr><td>") == len(made.points)
    tables = text.count("Timing method: virtual. Level of the intervals: 96.9 %.</p>")
    assert tables == text.count("<caption>") > 0
    for word in ("Within a round", "Between rounds", "gpu:2 -&gt; gpu:3", "wrong data: byte 7 of 32", "governor"):
        assert word in text


def test_each_table_states_timing_and_level_of_all_its_rows() -> None:
    ids = [
        f"h2d/ce/numa:0.pinned->gpu:0.device/{size}?mode={mode}" for size in (8, 64) for mode in ("batched", "single")
    ]
    points = [point(id, 1e-6, timing="gate+slope") for id in ids]
    assert basis_text(points) == "Timing method: gate+slope. Level of the intervals: 96.9 %."
    points[1].timing = points[3].timing = "host"
    points[0].ci_level, points[0].flows[0].round_medians_s[3:] = 0.95, []
    assert basis_text(points) == (
        "Timing method: gate+slope (batched), host (single). "
        "Level of the intervals: 95 % (3 rounds), 96.9 % (6 rounds)."
    )
    points[3].timing, points[2].ci_level = "gate+slope", 0.98
    assert basis_text(points) == (
        "Timing method: gate+slope, except host (8 B single). "
        "Level of the intervals: 96.9 %, except 95 % (8 B batched), 98 % (64 B batched)."
    )


def test_batched_and_single_lines_differ_and_intervals_are_drawn() -> None:
    (panel,) = [one for one in panels(small_run().points, modelled=False) if one.path == "numa:0 -> gpu:0"]
    assert 'class="s0"' in panel.rate_svg and re.search(r'class="s\d single"', panel.rate_svg)
    assert 'class="bar"' in panel.rate_svg and 'class="limit"' in panel.rate_svg and "peak 63 GB/s" in panel.rate_svg
    assert panel.limits == ["63 GB/s: PCIe 5.0 x16"] and "PCIe" not in panel.rate_svg
    assert panel.legend[0].text.startswith("h2d by ce, pageable -> device")


def test_more_methods_than_colours_are_counted() -> None:
    points = [
        point(f"h2d/ce/numa:0.pinned->gpu:0.device/1048576?lane={n}&mode=batched", 1e-4 * 2**n) for n in range(11)
    ]
    (panel,) = panels(points, modelled=False)
    assert len(panel.legend) == 8 and panel.not_drawn == 3 and len(panel.tables) == 11


def test_coinciding_methods_are_one_line() -> None:
    points = [point(f"h2d/ce/numa:0.{kind}->gpu:0.device/{size}?mode=batched", 2e-6 + size / 5e10)
              for kind in ("pinned", "registered") for size in SIZES]  # fmt: skip
    (panel,) = panels(points, modelled=False)
    assert [entry.text for entry in panel.legend] == [
        "h2d by ce, pinned -> device and registered -> device, 2 methods within 5%"
    ]


def test_the_size_of_the_page_grows_slowly() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?lane={}&mode=batched"
    sizes = range(3, 31)
    few, many = (
        [point(id.format(gpu, 1 << size, lane), 1e-6) for gpu in range(gpus) for size in sizes for lane in range(12)]
        for gpus in (1, 8)
    )
    grown = len(page(run(many))) - len(page(run(few)))
    assert grown / (len(many) - len(few)) < 300  # bytes per point: 20,000 points stay below 6 MB


def test_render_reads_a_run_file(tmp_path) -> None:
    made = small_run()
    path = tmp_path / "run.jsonl"
    with RunWriter.create(path, made.header) as writer:
        for one in made.points:
            writer.write(one)
    assert "has no end record" in render(path)


def test_axes_have_round_labels() -> None:
    x = size_axis([8, 1 << 30], 0, 100)
    assert 2 <= len(x.ticks) <= 8 and all(0 <= x.at(value) <= 100 for value, _ in x.ticks)
    assert x.at(8) < x.at(1 << 20) < x.at(1 << 30)
    single = size_axis([4096], 0, 100)
    assert single.ticks == ((4096.0, "4 KiB"),) and abs(single.at(4096) - 50) < 1e-9
    y = rate_axis(63, 100, 0)
    assert y.high >= 63 and 3 <= len(y.ticks) <= 8 and y.at(0) == 100
    assert rate_axis(0, 100, 0).high > 0
    assert [text for _, text in time_axis([2e-6, 3e-4], 0, 1).ticks] == ["1 us", "10 us", "100 us", "1 ms"]


def test_charts_have_one_element_per_series() -> None:
    points = [(1 << n, Estimate(float(n), n * 0.5, n * 1.5)) for n in range(3, 31)]
    few, many = (rate_chart("t", [Series(0, False, points[:count])], [], False) for count in (2, 28))
    assert few.count("<path") == many.count("<path")
    assert "NaN" not in many and "nan" not in many
    assert "&lt;b&gt;" in time_chart("<b>", [Series(0, True, points)], True)
