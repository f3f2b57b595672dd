"""The site in headless Chromium: no outside request, no error, every link leads somewhere, tables sort and filter."""

from pathlib import Path

import pytest
import site_pages
from browser import Browser

from linkscope.site.build import build
from site_runs import write_all

NAMES = """[...document.querySelectorAll("#site-table tbody tr")].filter((row) => row.getBoundingClientRect().height)
  .map((row) => row.cells[0].textContent)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browsed")
    write_all(folder / "runs")
    build([folder / "runs"], folder / "out", reports=1)  # so machine alpha has a run with a short page
    return folder / "out"


def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(site: Path) -> None:
    links, wrong = site_pages.check_links(site)
    assert links > 50 and wrong == []


def test_a_link_that_leads_nowhere_and_a_page_without_a_link_are_named(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text('<a href="a.html#here"><a href="a.html#there"><a href="http://x.org/">')
    (tmp_path / "a.html").write_text('<p id="here"><a href="../b.html">')
    (tmp_path / "c.html").write_text("<p>")
    assert site_pages.check_links(tmp_path)[0] == 4
    assert sorted(site_pages.check_links(tmp_path)[1]) == [
        "a.html: ../b.html",
        "c.html: no page leads here",
        "index.html: a.html#there has no such anchor",
        "index.html: http://x.org/",
    ]


def test_no_page_has_an_error_or_an_outside_request(site: Path, browser: Browser) -> None:
    seconds, wrong = site_pages.open_pages(browser, site)
    assert len(seconds) == len(list(site.rglob("*.html"))) and all(
        ready > 0 and cpu > 0 for ready, cpu in seconds.values()
    )
    assert wrong == []


def test_a_script_in_a_name_does_not_run(site: Path, browser: Browser) -> None:
    with_script = [path for path in sorted(site.rglob("*.html")) if "taken" in path.read_text(encoding="utf-8")]
    assert with_script
    for path in with_script:
        browser.open(path)
        assert browser.ask("document.title") != "taken", path


def test_an_error_and_an_outside_request_of_a_page_are_named(tmp_path: Path, browser: Browser) -> None:
    text = '<script>console.error("wrong")</script><img src="http://127.0.0.1:9/a.png">'
    (tmp_path / "index.html").write_text(text)
    wrong = site_pages.open_pages(browser, tmp_path)[1]
    assert "index.html: wrong" in wrong and "index.html: request of http://127.0.0.1:9/a.png" in wrong


def test_the_table_hides_models_and_sorts_and_filters(site: Path, browser: Browser) -> None:
    browser.open(site / "table.html")
    shown = browser.ask(NAMES)
    assert shown and not [name for name in shown if "MODELLED" in name]
    browser.ask("document.getElementById('site-models').click()")
    assert [name for name in browser.ask(NAMES) if "MODELLED" in name]
    sort = """[...document.querySelectorAll("#site-table thead th")]
      .find((one) => one.textContent.startsWith("Host → GPU, pinned")).querySelector("button").click()"""
    values = """[...document.querySelectorAll("#site-table tbody tr")].map((row) => row.cells[2].dataset.value || "")"""
    for falling in (True, False):
        browser.ask(sort)
        numbers = [float(value) for value in browser.ask(values) if value]
        assert len(numbers) > 2 and numbers == sorted(numbers, reverse=falling)
        assert browser.ask(values)[len(numbers) :] == [""] * (len(browser.ask(values)) - len(numbers))
    write = """(() => { const field = document.querySelector("[data-filters]"); field.value = "alpha";
      field.dispatchEvent(new Event("input")); })()"""
    browser.ask(write)
    assert len(browser.ask(NAMES)) == 2 and all("alpha" in name for name in browser.ask(NAMES))


def test_the_site_works_without_scripts(site: Path, browser: Browser) -> None:
    browser.open(site / "table.html", scripts=False)
    text = "document.body.innerText"
    assert "50.0 GB/s" in browser.ask(text) and "Filter" not in browser.ask(text)
    assert browser.ask("document.querySelectorAll('button').length") == 0
    assert not [name for name in browser.ask(NAMES) if "MODELLED" in name]
    browser.ask("document.getElementById('site-models').click()")
    assert [name for name in browser.ask(NAMES) if "MODELLED" in name]


def test_the_gallery_shows_the_maps(site: Path, browser: Browser) -> None:
    browser.open(site / "index.html")
    script = """Promise.all([...document.images].map(async (one) => {
      one.loading = "eager"; await one.decode(); return one.naturalWidth; }))"""
    widths = browser.ask(script)
    assert len(widths) >= 4 and min(widths) > 100


def test_a_table_of_points_is_as_wide_as_its_page_and_laid_out_without_measuring_its_cells(
    site: Path, browser: Browser
) -> None:
    browser.open(next(site.rglob("points.html")))
    browser.ask("document.querySelector('.site-status').textContent = 'not supported: ' + '/sys/devices'.repeat(40)")
    table = "document.querySelector('#site-points table')"
    assert browser.ask(f"getComputedStyle({table}).tableLayout") == "fixed"
    assert browser.ask(f"{table}.scrollWidth <= {table}.parentElement.clientWidth")
