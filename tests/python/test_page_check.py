"""tools/page_check.py: what it measures on small pages, and the limits on a real full run."""

import pathlib

import page_check
import pytest
from browser import CHROMIUM, Browser

from campaign import only_long
from invented import small_run
from linkscope.report.html import page, render
from test_runs_page import compared_page, one_run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "results"
BAD = """<!DOCTYPE html><html lang="en"><head><title>Bad</title></head><body>
<p style="color: #ccc; background: #fff">three pale words</p>
<details><summary>Two words</summary><p>folded</p></details>
<svg width="200" height="40" aria-hidden="true"><text x="5" y="20">label</text><text x="9" y="22">label</text></svg>
<div style="width: 2000px; height: 1800px"></div><img alt="" src="http://127.0.0.1:9/none.png">
<script>nothing();</script></body></html>"""


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as made:
        yield made


def checked(browser, tmp_path, text: str) -> page_check.Found:
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    return page_check.check(browser, file)


def test_each_fault_of_a_page_is_counted(browser, tmp_path) -> None:
    values = checked(browser, tmp_path, BAD).values
    assert values["words"] == 5 and 2 < values["screens"] < 2.5 and values["elements"] == 14
    assert values["overlapping labels"] == values["outside requests"] == 1 and values["wider than a window"] == 2
    assert values["console errors"] == 2  # the missing function and the missing picture
    assert values["axe violations"] == 1  # the contrast


def test_figures_signs_and_rows_scrolled_out_of_a_list_are_no_words(browser, tmp_path) -> None:
    rows = "".join(f"<label style='display:block'>row {number}</label>" for number in range(40))
    text = (
        f"<body><p>55.4 GB/s [55.3, 55.5] → 95 % at 256 MiB</p><div class=list style='height:30px;overflow:auto'>{rows}"
    )
    values = checked(browser, tmp_path, f'<!DOCTYPE html><html lang="en"><head><title>x</title></head>{text}').values
    assert values["words"] == 3 + 2 and values["words and figures"] == 10 + 2 * 2  # two rows are in view


def test_the_page_of_a_small_run_is_within_all_limits(browser, tmp_path) -> None:
    found = checked(browser, tmp_path, page(small_run()))
    assert [one for one in found.beyond if "seconds" not in one] == [], found.faults


def test_the_page_of_a_comparison_is_within_all_limits(browser, tmp_path) -> None:
    found = checked(browser, tmp_path, compared_page(one_run(1e-3, gpus=16), one_run(1.5e-3, gpus=16)))
    assert [one for one in found.beyond if "seconds" not in one] == [], found.faults


@only_long
@pytest.mark.parametrize("name", ["h200x4-full", "h100x1-contention-a", "h200x2-putget", "h100x1-mpi"])
def test_the_pages_of_real_runs_are_within_all_limits(browser, tmp_path, name) -> None:
    found = checked(browser, tmp_path, render(RESULTS / f"{name}.jsonl.gz"))
    assert [one for one in found.beyond if "seconds" not in one] == [], found.faults
