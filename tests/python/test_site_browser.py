"""The site in headless Chromium: no outside request, no error, every link leads somewhere, tables sort and filter."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from browser import CHROMIUM, Browser

from linkscope.site.build import build
from site_runs import write_all

WATCH = """window.seen = [];
addEventListener("error", (event) => seen.push(String(event.message || event.target.src || event.target.href)), true);
for (const name of ["error", "warn"]) console[name] = (...words) => seen.push(words.join(" "));"""
FOUND = """({seen, title: document.title, requests: performance.getEntriesByType("resource").map((one) => one.name)})"""
NAMES = """[...document.querySelectorAll("#site-table tbody tr")].filter((row) => row.getBoundingClientRect().height)
  .map((row) => row.cells[0].textContent)"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browsed")
    write_all(folder / "runs")
    build([folder / "runs"], folder / "out", reports=1)  # so machine alpha has a run with a short page
    return folder / "out"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        one._call("Page.addScriptToEvaluateOnNewDocument", source=WATCH)
        yield one


class Links(HTMLParser):
    """The addresses and the anchors of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value or "")
            if name == "id":
                self.anchors.add(value or "")


def test_every_link_leads_to_a_file_and_an_anchor_of_the_site(site: Path) -> None:
    pages = {path.resolve(): Links(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    reached, wrong = {(site / "index.html").resolve()}, []
    for page, found in pages.items():
        for link in found.links:
            parts = urlsplit(link)
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            inside = site.resolve() in target.parents
            if link.startswith(("data:", "#explore?")):  # the explorer reads its state from the address
                continue
            if parts.scheme or not inside or not target.is_file():
                wrong.append(f"{page.relative_to(site.resolve())}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                wrong.append(f"{page.relative_to(site.resolve())}: {link} has no such anchor")
            reached.add(target)
    assert not wrong
    assert not pages.keys() - reached, "each page can be reached"


def test_no_page_has_an_error_or_an_outside_request(site: Path, browser: Browser) -> None:
    for path in sorted(site.rglob("*.html")):
        browser.open(path)
        found = browser.ask(FOUND)
        assert found["seen"] == [] and found["title"] != "taken", path
        assert not [name for name in found["requests"] if not name.startswith(site.resolve().as_uri())], path


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
