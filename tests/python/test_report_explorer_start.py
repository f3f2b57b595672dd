"""The explorer at its start and under quick changes, in Chromium."""

import re

import pytest
from browser import CHROMIUM, Browser

from invented import SIZES, point, run, small_run
from linkscope.report.html import page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")

TO_EXPLORER = """new Promise((done) => {
  document.getElementById("explorer").scrollIntoView();
  const look = (left) => {
    const drawn = document.querySelector(".explorer canvas") !== null;
    if (drawn || left === 0) done(drawn); else setTimeout(look, 20, left - 1);
  };
  look(200);
})"""
CHANGES = """(() => {
  const push = Array.prototype.push; // an endless loop over ticks fails here in place of hanging
  Array.prototype.push = function (...all) {
    if (this.length > 1e5) throw new Error("an endless list");
    return push.apply(this, all);
  };
  const change = (name, value) => {
    const select = document.querySelector(`.explorer select[name=${name}]`);
    select.value = value;
    select.dispatchEvent(new Event("change", { bubbles: true }));
  };
  change("value", "time");
  change("y", "log");
  return location.hash;
})()"""


def opened(browser: Browser, tmp_path, points) -> Browser:
    file = tmp_path / "page.html"
    file.write_text(page(run(points)), encoding="utf-8")
    browser.open(file)
    return browser


def test_two_changes_before_the_chart_is_drawn_do_not_hang_the_page(browser, tmp_path) -> None:
    """uPlot draws after the script that made it; by then the state is that of the second change."""
    opened(browser, tmp_path, small_run().points)
    assert browser.ask(TO_EXPLORER) and browser.ask(CHANGES).endswith("value=time&x=log&y=log")
    assert browser.ask("new Promise((done) => setTimeout(() => done(1), 50))") == 1 and browser.errors == []


@pytest.mark.parametrize("mode", ["batched", "single"])
def test_the_explorer_of_a_run_without_plain_copies_shows_a_curve(browser, tmp_path, mode) -> None:
    id = "read/sm/gpu:0.device->gpu:1.device/{}?mode=" + mode
    opened(browser, tmp_path, [point(id.format(size), 1e-6 + size / 1e11) for size in SIZES])
    assert browser.ask(TO_EXPLORER) and browser.ask("document.querySelector('.shown').textContent") == ""
    assert re.search("read gpu:0", browser.ask("document.querySelector('.curves').textContent"))
