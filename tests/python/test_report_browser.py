"""The page in headless Chromium: no external request, no error, all charts drawn, with and without scripts."""

import csv
import io
import json
from urllib.parse import unquote

import pytest
from browser import CHROMIUM, Browser

from campaign import only_long
from invented import SIZES, point, run, small_run
from linkscope.report.html import page

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")

EVIL = "<script>document.title='taken'</script>"
WATCH = """<script>
const errors = []; addEventListener("error", (event) => errors.push(String(event.message || event.target.src)), true);
addEventListener("securitypolicyviolation", (event) => errors.push(event.blockedURI));
for (const name of ["error", "warn"]) console[name] = (...words) => errors.push(words.join(" "));
const made = []; URL.createObjectURL = (blob) => { made.push(blob); return "#"; };
</script>"""
ASK = """<script>
(async () => {
  const ready = performance.now();
  const few = document.querySelectorAll("td").length < 20000; // laying out more takes a minute
  if (few) document.querySelectorAll("details").forEach((one) => { one.open = true; });
  document.querySelectorAll(".downloads button").forEach((one) => one.click());
  const charts = [...document.querySelectorAll("svg.chart")];
  const found = {
    errors, ready, title: document.title,
    requests: performance.getEntriesByType("resource").map((entry) => entry.name),
    charts: charts.length,
    empty: charts.filter((one) => !one.querySelector(".line, .cell, .wire, .dot, .h3, .ring")
      || (few && one.getBoundingClientRect().width < 50)).length,
    unmarked: charts.filter((one) => !one.textContent.includes("MODELLED")).length,
    csv: few ? await made[0].text() : "", json: few ? JSON.parse(await made[1].text()) : [],
    rows: JSON.parse(await made[1].text()).length,
  };
  const out = document.createElement("pre");
  out.id = "answer"; out.textContent = encodeURIComponent(JSON.stringify(found));
  document.body.append(out);
})();
</script>"""


END = """new Promise((done) => {
  const look = () => {
    const out = document.getElementById("answer");
    if (out) done(out.textContent); else setTimeout(look, 50);
  };
  look();
})"""


def opened(browser: Browser, tmp_path, text: str, *, scripts: bool = True) -> Browser:
    file = tmp_path / "page.html"
    file.write_text(text, encoding="utf-8")
    browser.open(file, scripts=scripts)
    return browser


def answer(tmp_path, text: str) -> dict:
    with Browser(tmp_path / "profile") as browser:
        return json.loads(unquote(opened(browser, tmp_path, text).ask(END)))


def watched(made) -> str:
    text = page(made)
    return text.replace("<head>", "<head>" + WATCH, 1).replace("</body>", ASK + "</body>", 1)


def cases() -> dict[str, list]:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/{}?bidirectional=false&mode=batched"
    return {
        "small": small_run().points,
        "one": [point(id.format(4096), 1e-6)],
        "none worked": [point(id.format(size), status="failed", reason=EVIL) for size in SIZES],
        "evil": [point(id.format(size), 1e-6 * size, src=EVIL, params={EVIL: EVIL}) for size in SIZES],
        "empty": [],
    }


@pytest.mark.parametrize("name", cases())
def test_no_external_request_no_error_and_all_charts_drawn(tmp_path, name) -> None:
    points = cases()[name]
    found = answer(tmp_path, watched(run(points, name=EVIL)))
    assert found["errors"] == [] and found["requests"] == [] and found["empty"] == found["unmarked"] == 0
    assert "taken" not in found["title"].replace(EVIL, "") and found["title"] != "taken"
    assert (found["charts"] > 0) == (name in ("small", "one"))
    assert len(found["json"]) == len(points) == len(list(csv.reader(io.StringIO(found["csv"])))) - 1


def test_downloads_hold_the_numbers_of_the_points(tmp_path) -> None:
    made = small_run()
    found = answer(tmp_path, watched(made))["json"]
    rows = [row for row in found if row["kind"] == "h2d" and (row["src"], row["dst"]) == ("numa:0", "gpu:0")]
    (row,) = [
        row
        for row in rows
        if (row["bytes"], row["mode"], row["src_memory"]) == (64 << 20, "batched", "pinned")
        and not row["bidirectional"]
    ]
    (real,) = [p for p in made.points if p.id.startswith("h2d/ce/numa:0.pinned->gpu:0") and p.bytes == 64 << 20
               and p.params == {"bidirectional": "false", "mode": "batched"}]  # fmt: skip
    assert row["time_s"] == pytest.approx(real.median_s, rel=1e-3) and row["gbps"] == pytest.approx(real.gbps, rel=1e-3)
    assert (
        row["gbps_low"] < row["gbps"] < row["gbps_high"]
        and row["of_peak"] == pytest.approx(0.887, abs=1e-3)
        and row["rounds"] == 6
    )
    assert row["modelled"] is True and row["status"] == "ok"


def test_paths_and_points_can_be_read_without_scripts(tmp_path) -> None:
    with Browser(tmp_path / "profile") as browser:
        opened(browser, tmp_path, page(small_run()), scripts=False)
        text = browser.ask("document.documentElement.outerHTML")
        shown = browser.ask("document.querySelector('.downloads').checkVisibility()")
        browser.ask("document.querySelector('#data details').open = true")
        points = browser.ask("document.getElementById('points').innerText")
    for part in ("gpu:2 → gpu:3", "Plain copies"):
        assert part in text
    assert not shown and len(points.strip().splitlines()) == len(small_run().points) + 1


def test_the_word_modelled_stays_in_view(tmp_path) -> None:
    top = "(scrollTo(0, {}), document.querySelector('nav .modelled').getBoundingClientRect().top)"
    with Browser(tmp_path / "profile") as browser:
        opened(browser, tmp_path, page(small_run()))
        assert browser.ask(top.format(0)) > 0
        assert 0 <= browser.ask(top.format("document.body.scrollHeight")) < 50


def many(count: int) -> list:
    id = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?lane={}&mode=batched"
    made = (point(id.format(gpu, 1 << size, lane), 1e-6 * (1 + lane) + (1 << size) / 5e10, limit_gbps=63.0)
            for lane in range(1000) for gpu in range(8) for size in range(3, 31))  # fmt: skip
    return [one for one, _ in zip(made, range(count), strict=False)]


@pytest.mark.parametrize(("count", "most"), [(20_000, 6e6), (50_000, 15e6)])
@only_long
def test_large_runs_stay_small_and_open(tmp_path, count, most) -> None:
    text = watched(run(many(count)))
    assert len(text.encode()) < most
    found = answer(tmp_path, text)
    print(f"{count} points: {len(text) / 1e6:.1f} MB, ready after {found['ready'] / 1e3:.2f} s")
    assert found["errors"] == [] and found["empty"] == 0 and found["rows"] == count
