"""The page with all points of a run, in headless Chromium: a table for each operation, laid out when it is seen."""

from pathlib import Path

import pytest
from browser import CHROMIUM, Browser

from invented import point, run
from linkscope.site.build import build
from linkscope.site.entry import anchor
from site_runs import GPU, NODE, text_of

COPY = "{}/ce/numa:0.{}->gpu:0.device/{}?mode=batched"
TIMES = {4096: 900e-9, 65536: 8.29e-6, 1 << 20: 26.9e-6, 1 << 30: 20.1e-3}
SHOWN = "[...{}.querySelectorAll('tbody tr:not([hidden])')].map((row) => row.cells[0].textContent)"
WRITE = """(() => {{ const field = document.querySelector("[data-filters]"); field.value = "{}";
  field.dispatchEvent(new Event("input")); }})()"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points in the order of a run, which is none; the last operation is far below the first window."""
    points = [point(COPY.format("h2d", "pageable", size), TIMES[size]) for size in (1 << 30, 4096, 1 << 20, 65536)]
    why = {"status": "unsupported", "reason": "no huge pages"}
    points = [point(COPY.format("h2d", "hugepage", 4096), **why), *points]
    points += [point(COPY.format("strided", "pinned", 1000 + more), 1e-5) for more in range(300)]
    points += [point(COPY.format("write", "pinned", 4096), 1e-5), point(COPY.format("d2h", "pinned", 4096), 1e-5)]
    folder = tmp_path_factory.mktemp("points")
    written = run(points, modelled=False, name="many", title=None, gpus=[GPU], numa=[NODE])
    (folder / "runs").mkdir()
    (folder / "runs" / "many.jsonl").write_bytes(text_of(written))
    build([folder / "runs"], folder / "out", reports=1)
    return next((folder / "out").rglob("points.html"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory):
    if CHROMIUM is None:
        pytest.skip("no Chromium here")
    with Browser(tmp_path_factory.mktemp("profile")) as one:
        yield one


def ids(browser: Browser, operation: str) -> list[str]:
    return browser.ask(SHOWN.format(f"document.getElementById('operation-{operation}')"))


def test_operations_have_a_table_each_and_a_path_its_sizes_in_order(page: Path, browser: Browser) -> None:
    browser.open(page)
    titles = browser.ask("[...document.querySelectorAll('.site-part h2')].map((one) => one.textContent)")
    assert titles == ["host → GPU", "GPU → host", "strided", "write"]
    found = ids(browser, "h2d")
    assert found[:-1] == [COPY.format("h2d", "pageable", size) for size in sorted(TIMES)]
    assert found[-1] == COPY.format("h2d", "hugepage", 4096)  # it has no value
    assert browser.ask("document.querySelector('.site-parts').innerText").endswith("strided 300 · write 1")


def test_a_column_of_times_sorts_by_the_time_and_not_by_its_text(page: Path, browser: Browser) -> None:
    browser.open(page)
    part = "document.getElementById('operation-h2d')"
    for falling in (True, False):
        browser.ask(f"{part}.querySelectorAll('thead button')[1].click()")
        sizes = [int(one.rpartition("/")[2].partition("?")[0]) for one in ids(browser, "h2d")[:-1]]
        assert sizes == sorted(TIMES, reverse=falling)


def test_a_table_far_below_is_laid_out_when_an_address_leads_there(page: Path, browser: Browser) -> None:
    browser.open(page)
    row = f"document.getElementById('{anchor(COPY.format('write', 'pinned', 4096))}')"
    seen = f"{row}.checkVisibility({{contentVisibilityAuto: true}})"
    assert browser.ask(f"{seen} || {row}.getBoundingClientRect().top < innerHeight") is False
    browser.ask(f"location.hash = {row}.id; new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert browser.ask(seen) and browser.ask(f"0 <= {row}.getBoundingClientRect().top") is True
    assert browser.ask(f"{row}.getBoundingClientRect().bottom <= innerHeight")


def test_a_filter_leaves_out_tables_without_a_row(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.ask(WRITE.format("PAGEABLE 65536"))
    assert browser.ask("[...document.querySelectorAll('.site-part')].filter((one) => !one.hidden).length") == 1
    assert ids(browser, "h2d") == [COPY.format("h2d", "pageable", 65536)]
    browser.ask(WRITE.format(""))
    assert len(browser.ask(SHOWN.format("document"))) == 307


def test_text_for_people_has_the_sign_of_micro(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "8.29 µs" in text and " us" not in text
