"""The page with all points of a run, in headless Chromium: a table for each operation, laid out when it is seen."""

from pathlib import Path

import pytest
from browser import Browser

from invented import point, run
from linkscope.site.build import build
from linkscope.site.entry import anchor
from site_runs import GPU, NODE, text_of

COPY = "{}/ce/numa:0.{}->gpu:0.device/{}?mode=batched"
TIMES = {4096: 900e-9, 65536: 8.29e-6, 1 << 20: 26.9e-6, 1 << 30: 20.1e-3}
SHOWN = "[...{}.querySelectorAll('tbody tr:not([hidden])')].map((row) => row.cells[0].textContent)"
WRITE = """(() => {{ const field = document.querySelector("[data-filters]"); field.value = "{}";
  field.dispatchEvent(new Event("input")); }})()"""


# In the order in which a table has them: by engine, path, parameters with numbers by their value, and size.
STAGED = [
    f"d2d/{engine}/gpu:{gpu}.device->gpu:1.device/{size}?chunk={chunk}&mode=batched"
    for engine in ("ce", "sm") for gpu in (2, 10) for chunk in ("8KiB", "64KiB") for size in (8192, 65536)
]  # fmt: skip


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points in the order of a run, which is none; the last operation is far below the first window."""
    points = [
        point(COPY.format("h2d", "pageable", size), TIMES[size], limit_gbps=100.0)
        for size in (1 << 30, 4096, 1 << 20, 65536)
    ]
    why = {"status": "unsupported", "reason": "no huge pages"}
    points = [point(COPY.format("h2d", "hugepage", 4096), **why), *points]
    points += [point(COPY.format("strided", "pinned", 1000 + more), 1e-5) for more in range(300)]
    points += [point(COPY.format("write", "pinned", 4096), 1e-5), point(COPY.format("d2h", "pinned", 4096), 1e-5)]
    points += [point(id, 1e-5) for id in reversed(STAGED)]
    folder = tmp_path_factory.mktemp("points")
    written = run(points, modelled=False, name="many", title="4 us-east +-3", gpus=[GPU], numa=[NODE])
    (folder / "runs").mkdir()
    (folder / "runs" / "many.jsonl").write_bytes(text_of(written))
    build([folder / "runs"], folder / "out", reports=1)
    return next((folder / "out").rglob("points.html"))


def ids(browser: Browser, operation: str) -> list[str]:
    return browser.ask(SHOWN.format(f"document.getElementById('operation-{operation}')"))


def test_operations_have_a_table_each_and_a_path_its_sizes_in_order(page: Path, browser: Browser) -> None:
    browser.open(page)
    titles = browser.ask("[...document.querySelectorAll('.site-part h2')].map((one) => one.textContent)")
    assert titles == ["host → GPU", "GPU → host", "GPU → GPU", "strided", "write"]
    found = ids(browser, "h2d")
    assert found[:-1] == [COPY.format("h2d", "pageable", size) for size in sorted(TIMES)]
    assert found[-1] == COPY.format("h2d", "hugepage", 4096)  # it has no value
    assert ids(browser, "d2d") == STAGED
    assert browser.ask("document.querySelector('.site-parts').innerText").endswith("strided 300 · write 1")
    links = browser.ask("[...document.querySelectorAll('.site-parts a')].map((one) => one.hash)")
    assert links == browser.ask("[...document.querySelectorAll('.site-part')].map((one) => `#${one.id}`)")


def test_a_row_has_the_values_of_its_point_as_text_and_as_numbers_to_sort_by(page: Path, browser: Browser) -> None:
    browser.open(page)
    row = f"document.getElementById('{anchor(COPY.format('h2d', 'pageable', 65536))}')"
    texts = browser.ask(f"[...{row}.cells].slice(1).map((one) => one.textContent)")
    assert texts[0].startswith("8.29 µs [") and texts[1].startswith("7.91 GB/s [")
    assert texts[2:] == ["7.9 %", "6", "ok"]
    numbers = browser.ask(f"[...{row}.cells].slice(1, 4).map((one) => Number(one.dataset.value))")
    assert numbers == pytest.approx([8.29e-6, 7.905, 0.07905], rel=1e-3)


@pytest.mark.parametrize("column", [1, 2])
def test_columns_of_times_and_rates_sort_by_value_and_not_by_text(page: Path, browser: Browser, column: int) -> None:
    rate = {size: size / seconds for size, seconds in TIMES.items()}
    by = sorted(TIMES, key=lambda size: rate[size] if column == 2 else TIMES[size])
    browser.open(page)
    for falling in (True, False):
        browser.ask(f"document.querySelectorAll('#operation-h2d thead button')[{column}].click()")
        sizes = [int(one.rpartition("/")[2].partition("?")[0]) for one in ids(browser, "h2d")[:-1]]
        assert sizes == (by[::-1] if falling else by)


def test_a_table_far_below_is_laid_out_when_an_address_leads_there(page: Path, browser: Browser) -> None:
    browser.open(page)
    row = f"document.getElementById('{anchor(COPY.format('write', 'pinned', 4096))}')"
    seen = f"{row}.checkVisibility({{contentVisibilityAuto: true}})"
    assert browser.ask(f"{seen} || {row}.getBoundingClientRect().top < innerHeight") is False
    browser.ask(f"location.hash = {row}.id; new Promise((done) => requestAnimationFrame(() => setTimeout(done, 50)))")
    assert browser.ask(seen) and browser.ask(f"0 <= {row}.getBoundingClientRect().top") is True
    assert browser.ask(f"{row}.getBoundingClientRect().bottom <= innerHeight")


def test_the_page_is_about_as_high_before_its_tables_are_laid_out_as_afterwards(page: Path, browser: Browser) -> None:
    browser.open(page)
    height = "document.documentElement.scrollHeight"
    before = browser.ask(height)
    browser.ask("for (const part of document.querySelectorAll('.site-part')) part.style.contentVisibility = 'visible'")
    assert browser.ask(height) / 2 < before < browser.ask(height) * 2


def test_paper_has_all_tables_as_wide_as_the_page(page: Path, browser: Browser) -> None:
    browser.open(page)
    browser.media("print")
    assert browser.ask("getComputedStyle(document.querySelector('.site-part')).contentVisibility") == "visible"
    browser.resize(703, 900)  # A4
    assert browser.ask("document.documentElement.scrollWidth") <= 703


def test_a_filter_leaves_out_tables_without_a_row(page: Path, browser: Browser) -> None:
    browser.open(page)
    before = browser.ask("document.documentElement.scrollHeight")
    browser.ask(WRITE.format("STRIDED 1001"))
    assert browser.ask("[...document.querySelectorAll('.site-part')].filter((one) => !one.hidden).length") == 1
    assert ids(browser, "strided") == [COPY.format("strided", "pinned", 1001)]
    assert browser.ask("document.documentElement.scrollHeight") < before / 4
    assert browser.ask("document.querySelector('.site-parts').checkVisibility()") is False  # some links lead nowhere
    browser.ask(WRITE.format(""))
    assert len(browser.ask(SHOWN.format("document"))) == 307 + len(STAGED)
    assert browser.ask("document.querySelector('.site-parts').checkVisibility()")


def test_signs_are_in_texts_of_linkscope_and_not_in_the_name_of_a_machine(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "8.29 µs" in text and "4 us-east +-3" in text
