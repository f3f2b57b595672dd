"""The page for readers: by keyboard, on a phone, on paper, in dark mode, without scripts, and with many points."""

import re
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser

from campaign import only_long
from invented import point, run, small_run
from invented_kernels import MACHINE, joint_points, kernel_points, latency_points
from linkscope.report.html import page, render
from test_report_browser import many
from test_report_explorer_start import TO_EXPLORER

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")

REAL = Path(__file__).parents[2] / "results" / "h200x4-standard-a.jsonl.gz"
STOP = """(() => {
  const one = document.activeElement, box = one.getBoundingClientRect(), style = getComputedStyle(one);
  const all = [...document.querySelectorAll("*")];
  return {tag: one.tagName, place: all.indexOf(one), text: one.textContent.trim(),
    scrolls: one.scrollWidth > one.clientWidth,
    seen: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    scroll: one.className === "scroll",
    inside: box.bottom > 0 && box.top < innerHeight && box.width > 0};
})()"""
CONTROLS = """[...document.querySelectorAll(
  "a[href], button, input, select, summary, [tabindex='0']:not(.scroll)")].filter((one) =>
  one.checkVisibility({contentVisibilityAuto: true}) && one.tabIndex >= 0).length"""
WIDE = """(() => {
  document.querySelectorAll("details").forEach((one) => { one.open = true; });
  const wide = [...document.querySelectorAll("main *, header *")].filter((one) => one.getClientRects().length
    && one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".scroll"));
  const stacks = [...document.querySelectorAll(".stack")].map((one) => one.parentElement);
  return {page: document.documentElement.scrollWidth, wide: wide.map((one) => one.outerHTML.slice(0, 80)),
    stacks: stacks.filter((one) => one.scrollWidth > one.clientWidth).length, count: stacks.length,
    heads: [...document.querySelectorAll(".stack thead")].filter((one) => one.offsetHeight > 1).length,
    small: Math.min(...[...document.querySelectorAll(".charts .chart text:not(.modelled)")]
      .map((one) => one.getBoundingClientRect().height).filter(Boolean))};
})()"""
PAPER = """(() => {
  dispatchEvent(new Event("beforeprint"));
  const right = innerWidth + 1;
  const parts = [...document.querySelectorAll("table, svg.chart, figure, .tiles li")];
  const cut = parts.filter((one) => one.checkVisibility()
    && one.getBoundingClientRect().right > right).map((one) => one.outerHTML.slice(0, 120));
  const charts = [...document.querySelectorAll("svg.chart")].filter((one) => one.checkVisibility());
  const light = (colour) => colour.match(/\\d+/g).slice(0, 3).reduce((sum, one) => sum + Number(one), 0) / 765;
  const body = getComputedStyle(document.body);
  return {cut, ink: light(body.color),
    ground: light(body.backgroundColor), broken: charts.filter((one) => !one.closest("figure")
      || getComputedStyle(one.closest("figure")).breakInside !== "avoid").length,
    nav: document.querySelector("nav").checkVisibility()};
})()"""
PAPER_WIDTH = 718  # width in pixels between the margins of a letter page; A4 has 703


def everything() -> str:
    points = [*small_run().points, *kernel_points(), *joint_points(), *latency_points()]
    return page(run(points, **MACHINE))


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as made:
        yield made


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "page.html"
    made.write_text(everything(), encoding="utf-8")
    return made


@pytest.mark.parametrize("width", [390, 1280])
def test_tab_reaches_all_controls_in_order_with_a_visible_focus(browser, file, width) -> None:
    browser.open(file, width=width)
    # The explorer makes its controls when the window comes near it, which is not before Tab does on a busy machine.
    assert browser.ask(TO_EXPLORER)
    browser.ask("scrollTo(0, 0)")
    stops = []
    while True:
        browser.press("Tab")
        stop = browser.ask(STOP)
        if stop["tag"] == "BODY" or (stops and stop["place"] == stops[0]["place"]):
            break
        stops.append(stop)
    assert [stop["place"] for stop in stops] == sorted(stop["place"] for stop in stops)
    assert all(stop["seen"] and stop["inside"] for stop in stops)
    assert len([stop for stop in stops if not stop["scroll"]]) == browser.ask(CONTROLS)
    assert all(stop["scrolls"] for stop in stops if stop["scroll"])  # only regions that scroll are stops of the Tab key


def focus(browser, text: str) -> None:
    """Presses Tab until a control that starts with `text` has the focus."""
    for _ in range(200):
        browser.press("Tab")
        if browser.ask(STOP)["text"].startswith(text):
            return
    raise AssertionError(f"Tab never came to '{text}'")


@pytest.mark.parametrize("scripts", [True, False])
def test_the_keyboard_opens_a_folded_part_also_without_scripts(browser, file, scripts) -> None:
    browser.open(file, scripts=scripts)
    focus(browser, "Suite, seed, versions")
    shown = "document.querySelector('header details ul').checkVisibility()"
    assert browser.ask(shown) is False
    browser.press("Enter")
    assert browser.ask(shown) is True
    assert browser.ask("document.querySelector('.menus .tools').checkVisibility()") is scripts


def test_an_address_opens_the_folded_parts_around_its_target(browser, file) -> None:
    browser.open(file)
    term = "document.querySelector('#words dl').checkVisibility()"
    assert browser.ask(term) is False
    browser.ask("location.hash = '#words'; new Promise((done) => setTimeout(done, 100))")
    assert browser.ask(term) is True
    assert 0 <= browser.ask("document.getElementById('words').getBoundingClientRect().top") < 900
    assert browser.ask("document.querySelector('nav [aria-current]').textContent") == "Method"


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_the_page_and_its_first_tables_fit_all_widths(browser, file, width, dark) -> None:
    browser.open(file, width=width, dark=dark)
    found = browser.ask(WIDE)
    assert found["page"] <= width and found["wide"] == []
    assert found["stacks"] == 0 and found["count"] > 2
    assert found["heads"] == (found["count"] if width > 1024 else 0)  # a narrow page repeats the heading with numbers
    assert width < 390 or found["small"] > 9  # pixels, so that letters in charts are readable


@pytest.mark.parametrize("real", [False, True])
def test_printed_pages_are_light_and_complete(browser, file, real) -> None:
    if real:
        file.write_text(render(REAL), encoding="utf-8")
    browser.open(file, width=PAPER_WIDTH, dark=True)
    browser.media("print", dark=True)
    found = browser.ask(PAPER)
    assert found["cut"] == [] and found["broken"] == 0
    assert found["ink"] < 0.2 and found["ground"] > 0.95 and found["nav"] is False


def test_printing_has_the_open_tables_and_leaves_the_page_unchanged(browser, file) -> None:
    browser.open(file)
    opened = "document.querySelectorAll('details[open]').length"
    before = browser.ask(opened)
    without = pages(browser.pdf())
    assert browser.ask(opened) == before
    browser.ask("document.querySelectorAll('.more').forEach((one) => { one.open = true; })")
    assert pages(browser.pdf()) > without


DRAWN = """new Promise((done) => {
  document.querySelector(".chart-box").scrollIntoView();
  const look = () => document.querySelector(".chart-box canvas") ? done() : setTimeout(look, 20);
  look();
})"""


def test_on_paper_the_explorer_does_not_shrink_the_page(browser, file) -> None:
    """The explorer was drawn for a wide window. If paper had room for it, all letters would be smaller."""
    file.write_text(render(REAL.with_name("h200x4-standard-i.jsonl.gz")), encoding="utf-8")
    browser.open(file, width=1440)
    browser.ask(DRAWN)
    with_it = pages(browser.pdf())
    browser.ask("document.querySelectorAll('.explorer').forEach((one) => one.remove())")
    assert with_it >= pages(browser.pdf())


def pages(pdf: bytes) -> int:
    return len(re.findall(rb"/Type\s*/Page\b", pdf))


@only_long
def test_a_page_of_twenty_thousand_points_stays_within_its_limits(browser, tmp_path) -> None:
    file = tmp_path / "large.html"
    file.write_text(page(run(many(20_000))), encoding="utf-8")
    browser.open(file)
    loaded = browser.ask("performance.getEntriesByType('navigation')[0].loadEventEnd")
    elements = browser.ask("document.querySelectorAll('*').length")
    print(f"{elements} elements, {file.stat().st_size} bytes, loaded after {loaded / 1e3:.2f} s")
    assert loaded > 0 and elements < 15_000 and file.stat().st_size < 6e6


def test_a_name_with_markup_stays_text_in_the_new_tables(browser, tmp_path) -> None:
    evil = "<script>document.title='taken'</script>"
    points = [*kernel_points(), *joint_points(), *latency_points()]
    for one in points:
        one.benchmark = evil
    points.append(point("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched", 1e-6))
    file = tmp_path / "evil.html"
    file.write_text(page(run(points, **MACHINE)), encoding="utf-8")
    browser.open(file)
    assert browser.ask("document.title").startswith("MODELLED")
    assert browser.ask("document.querySelectorAll('script:not([type])').length") == 1
