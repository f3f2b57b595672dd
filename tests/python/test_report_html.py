"""The page: one file, no external resources, valid, escaped, drawn without JavaScript."""

import re
from html.parser import HTMLParser

import pytest
from jinja2 import Environment

from invented import SIZES, point, run, small_run
from linkscope.model.curves import Estimate
from linkscope.report.axes import rate_axis, size_axis, time_axis
from linkscope.report.html import page, render
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
    targets = {link[1:].replace("explore?", "explorer?").partition("?")[0] for link in checker.links}
    assert all(link.startswith("#") for link in checker.links) and targets - set(checker.ids) == set()
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
    assert checked(text).tags.count("script") <= 2  # one runs, one has the data of the matrices
    assert not re.search(r"https?:|//[a-z]|@import|url\(", re.sub(r"<script>.*?</script>", "", text, flags=re.S))
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)""", text)
    assert "fetch(" not in text and "XMLHttpRequest" not in text


def test_names_are_escaped() -> None:
    made = run([point(H2D.format(8), 1e-6, src=EVIL, limit_gbps=1.0, limit_source=EVIL),
                point(H2D.format(16), status="failed", reason=EVIL, params={"mode": EVIL, EVIL: EVIL})],
               name=EVIL, title=EVIL, warnings=[EVIL, {"text": EVIL}], gpus=[{"name": EVIL}])  # fmt: skip
    made.header.environment[EVIL] = {EVIL: [EVIL]}
    text = page(made)
    assert checked(text).tags.count("script") <= 2
    assert "<script>alert" not in text and "&lt;script&gt;alert" in text


def test_modelled_runs_are_marked_in_heading_and_figures() -> None:
    text = page(small_run())
    pictures = re.findall(r'<svg class="chart[ "].*?</svg>', text, flags=re.S)
    assert len(pictures) >= 5 and all(">MODELLED</text>" in picture for picture in pictures)
    assert "<title>MODELLED: invented" in text and 'class="banner"' in text
    real = page(run(small_run().points, modelled=False))
    assert "MODELLED" not in re.sub(r"<script>.*?</script>", "", real, flags=re.S)


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


def test_templates_are_compiled_once_and_each_page_explains_its_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site of 200 runs must not compile the templates 200 times."""
    first = page(small_run())
    compiled = []
    monkeypatch.setattr(Environment, "compile", lambda *words, **_: compiled.append(words))
    assert page(small_run()) == first and 'class="term"' in first
    assert not compiled
