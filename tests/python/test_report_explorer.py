"""Explorer, paths and data of the page: every interaction in a browser, and the CSV that they read."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from browser import Browser

from invented import SIZES, point, run, small_run
from linkscope.report.anchors import explorer_link, path_anchor
from linkscope.report.data_csv import COLUMNS, data_csv
from linkscope.report.html import page
from linkscope.report.path_rows import path_rows
from linkscope.report.run_view import RunView
from linkscope.report.sections.paths import FEW, section
from linkscope.runfile import PointId, read_run

RESULTS = Path(__file__).parents[2] / "results"
EVIL = '<script>document.title="taken"</script>,\n"quoted"'
WATCH = """<script>
const errors = [], saved = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => errors.push(String(event.reason)));
const clicked = HTMLAnchorElement.prototype.click;
URL.createObjectURL = (blob) => { saved.push({ blob }); return "#data"; };
HTMLAnchorElement.prototype.click = function () {
  if (this.download) saved.at(-1).name = this.download; else clicked.call(this);
};
</script>"""
CURVES = "[...document.querySelectorAll('.curves li')].map((one) => one.textContent.trim())"
ROWS = "[...document.querySelectorAll('.sorted tbody tr')].filter((one) => one.checkVisibility())"
SAY = "document.querySelector('.explorer .shown').textContent"
START = "(document.querySelector('.explorer').scrollIntoView(), document.querySelector('.chart-box').focus())"
LOOK = """new Promise((done) => {{
  const until = performance.now() + 10000;
  const look = () => {{
    if ({0} || performance.now() > until) done(Boolean({0})); else setTimeout(look, 20);
  }};
  look();
}})"""


def rows_of(points) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data_csv(run(points)))))


def test_the_csv_has_each_point_once_with_its_values() -> None:
    made = small_run()
    rows = rows_of(made.points)
    assert [row["id"] for row in rows] == [one.id for one in made.points] and tuple(rows[0]) == COLUMNS
    for row, one in zip(rows, made.points, strict=True):
        assert row["origin"] == ("measured" if one.median_s else "")
        assert one.median_s is None or float(row["time_s"]) == pytest.approx(one.median_s, rel=1e-5)
    (missed,) = [row for row in rows if row["status"] == "missed precision"]
    assert missed["note"] == "the interval is +-2.00 % after 9 rounds" and missed["modelled"] == "true"


def test_the_csv_tells_inherited_points_warnings_and_totals() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/4096?bidirectional=true&mode=batched"
    (row,) = rows_of([point(id, 1e-6, status="inherited", guards={"above_limit": 1.1})])
    assert (row["origin"], row["note"], row["bidirectional"]) == ("inherited", "above its peak", "true")
    assert float(row["total_gbps"]) == pytest.approx(2 * float(row["gbps"])) and "bidirectional" not in row["params"]


def test_names_with_quotes_commas_and_line_feeds_stay_in_their_field() -> None:
    (row,) = rows_of([point("h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched", 1e-6, src=EVIL + "\r", reason=EVIL)])
    assert row["src"] == EVIL + " " and row["note"] == EVIL and row["dst"] == "gpu:0"


def test_anchors_name_operation_and_places() -> None:
    assert path_anchor("d2d", "gpu:0", "gpu:1") == "d2d-gpu0-gpu1"
    (row, *_) = path_rows(small_run().points)
    link = explorer_link(row.kind, row.path.src, row.path.dst, row.method)
    assert link == "#explore?path=h2d|numa:0|gpu:0&method=ce|pinned|device|&direction=uni"


def test_the_slowest_and_the_fastest_path_of_each_method_come_first() -> None:
    rows = path_rows(small_run().points)
    methods = {(row.kind, row.method_text) for row in rows if row.rate}
    first = [(row.kind, row.method_text) for row in rows[: 2 * len(methods)]]
    assert set(first) >= methods
    peers = [row for row in rows if (row.kind, row.method_text) == ("d2d", "copy engine")]
    assert (peers[0].path.src, peers[0].path.dst) == ("gpu:2", "gpu:3")  # the slow pair
    assert peers[1].rate.value == max(row.rate.value for row in peers if row.rate)


def test_other_rows_and_anchors_go_by_the_usual_method_of_a_path() -> None:
    peer = "d2d/ce/gpu:{}.device->gpu:{}.device/{}?mode=batched&peer={}"
    ends = [(src, dst) for src in range(4) for dst in range(4) if src != dst]
    rate = {"on": 400e9, "off": 40e9}
    made = [
        point(peer.format(*end, SIZES[3], on), SIZES[3] / (rate[on] + 1e9 * index * (1 if on == "on" else -1)))
        for index, end in enumerate(ends)
        for on in ("on", "off")
    ]
    rows = path_rows(made)
    assert [row.method_text for row in rows] == (
        ["copy engine"] * 2 + ["copy engine, peer off"] * 2 + ["copy engine"] * 10 + ["copy engine, peer off"] * 10
    )
    text = page(run(made)).split('<section id="paths">')[1]
    anchored = re.findall(r'<tr id="d2d-[^"]*"[^>]*>.*?</td><td class="n v"', text)
    assert len(anchored) == 12 and not any("peer off" in row for row in anchored)


def test_a_row_has_the_best_rate_and_the_single_copy_of_the_smallest_size() -> None:
    row, *others = path_rows(small_run().points)
    assert any(one.latency is None for one in others)  # a batched time is no latency
    assert row.point.bytes == SIZES[-1] and row.smallest is not None and row.smallest.bytes == SIZES[0]
    assert row.latency is not None and row.latency.value == pytest.approx(8e-6, rel=1e-3)
    assert row.half_rate_bytes == 1 << 20 and row.status_text == "ok"


def test_parameters_are_named_only_where_they_are_special() -> None:
    id = "d2d/ce/gpu:0.device->gpu:1.device/1048576?{}&mode=batched"
    points = [point(id.format(f"after=kernel&initiator=src&peer={peer}"), 1e-5) for peer in ("on", "off")]
    points.append(point(id.format("after=kernel&initiator=dst&peer=on"), 1e-5))
    assert [row.method_text for row in path_rows(points)] == ["copy engine", "copy engine, peer off"]
    assert path_rows(points[2:])[0].method_text == "copy engine, initiator dst"


def test_other_operations_have_folded_tables_of_their_own() -> None:
    ids = ["allocation/cpu/gpu:0.device->gpu:0.device/0?phase=allocate",
           "latency/sm/gpu:0.device->gpu:0.device/0?range=2MiB",
           "pieces/ce/gpu:0.device->gpu:1.device/1048576?piece=4KiB"]  # fmt: skip
    made = section(RunView(run([point(id, 1e-6) for id in ids])))
    assert [block.title.split(":")[0] for block in made.blocks] == ["Latencies", "Allocation", "Copies in pieces"]


def test_a_run_without_values_says_so() -> None:
    id = "h2d/ce/numa:0.pinned->gpu:0.device/8?mode=batched"
    failed = run([point(id, status="failed", reason="broken")])
    text = page(failed)
    assert ">failed</td>" in text and 'id="h2d-numa0-gpu0"' in text and 'class="explorer"' not in text
    assert "No point has a value." in page(run([]))


def test_the_page_names_and_contains_the_licence_of_its_library() -> None:
    text = page(small_run())
    assert "uPlot 1.6.32, which draws the explorer, is under the MIT License" in text
    assert "Copyright (c) 2022 Leon Sorokin" in text


def opened(browser: Browser, tmp_path, made, address: str = "") -> None:
    file = tmp_path / "page.html"
    file.write_text(page(made).replace("<head>", "<head>" + WATCH, 1), encoding="utf-8")
    browser.open(file)
    if address:
        browser.ask(f"void (location.hash = {json.dumps(address)})")
    browser.ask(START)
    assert browser.ask(LOOK.format(f"{SAY} || document.querySelector('.curves li')"))


def choose(browser: Browser, name: str, value: str) -> None:
    browser.ask(
        f"(() => {{ const one = document.querySelector('.explorer select[name={name}]');"
        f" one.value = {json.dumps(value)};"
        " one.dispatchEvent(new Event('change', { bubbles: true })); })()"
    )


def key(browser: Browser, name: str) -> None:
    event = f"new KeyboardEvent('keydown', {{ key: '{name}', bubbles: true }})"
    browser.ask(f"document.querySelector('.chart-box').dispatchEvent({event})")


def drag(browser: Browser, start: float, end: float) -> None:
    """Drags between two fractions of the width of the chart."""
    browser.ask("document.querySelector('.chart-box').scrollIntoView({ block: 'center' })")
    box = "(() => { const { left, top, width, height } = document.querySelector('.u-over').getBoundingClientRect();"
    left, top, width, height = browser.ask(box + " return [left, top, width, height]; })()")
    browser.drag((left + start * width, top + height / 2), (left + end * width, top + height / 2))


def test_curves_are_chosen_stepped_through_and_kept_in_the_address(browser, tmp_path) -> None:
    opened(browser, tmp_path, small_run())
    first = browser.ask(CURVES)
    assert "copy numa:0 → gpu:0, copy engine, pinned → device" in first
    browser.ask("document.querySelector('input[value=\"h2d|numa:0|gpu:1\"]').click()")
    assert "copy numa:0 → gpu:1, copy engine, pinned → device" in browser.ask(CURVES)
    browser.ask("document.querySelector('input[value=\"ce|pageable|device|\"]').click()")
    choose(browser, "mode", "all")
    choose(browser, "value", "time")
    chosen = browser.ask(CURVES)
    assert {
        "copy numa:0 → gpu:1, copy engine, pageable → device",
        "copy numa:0 → gpu:0, copy engine, pinned → device, single",
    } <= set(chosen)
    for name in ("Home", "ArrowRight", "ArrowDown"):
        key(browser, name)
    assert "4 KiB: " in browser.ask(SAY) and " µs to " in browser.ask(SAY) and "6 rounds, ok" in browser.ask(SAY)
    address = browser.ask("location.hash")
    assert address.startswith("#explore?") and "value=time" in address
    browser.ask("void history.back()")
    assert browser.ask(LOOK.format("!location.hash.includes('value=time')"))
    assert browser.ask(LOOK.format("document.querySelector('select[name=value]').value === 'rate'"))
    opened(browser, tmp_path, small_run(), address)
    assert browser.ask(LOOK.format("document.querySelector('select[name=value]').value === 'time'"))
    assert browser.ask(CURVES) == chosen and browser.ask("errors") == []


def test_zoom_tooltip_and_ratio(browser, tmp_path) -> None:
    opened(browser, tmp_path, small_run())
    drag(browser, 0.5, 0.9)
    assert browser.ask(LOOK.format("location.hash.includes('zoom=')"))
    low, high = map(float, browser.ask("new URLSearchParams(location.hash.slice(9)).get('zoom')").split(","))
    assert 8 < low < high < 64 << 20
    key(browser, "-")
    assert "zoom" not in browser.ask("location.hash")
    key(browser, "End")
    tip = browser.ask("document.querySelector('.tip').innerText")
    assert "64 MiB: " in tip and " to " in tip and "6 rounds" in tip and "ok, measured" in tip
    options = browser.ask("[...document.querySelector('select[name=over]').options].map((one) => one.value)")
    choose(browser, "over", options[1])
    choose(browser, "under", options[2])
    (ratio,) = browser.ask(CURVES)
    assert " / " in ratio
    key(browser, "End")
    assert " ×, " in browser.ask(SAY) and browser.ask("errors") == []


@pytest.mark.parametrize("modelled", [True, False])
def test_saved_figures_mark_modelled_runs_and_downloads_hold_every_point(browser, tmp_path, modelled) -> None:
    made = run(small_run().points, modelled=modelled)
    opened(browser, tmp_path, made)
    for name in (".svg", ".png"):
        browser.ask(f"document.querySelector('.explorer {name}').click()")
    assert browser.ask(LOOK.format("saved.length === 2"))
    names = browser.ask("saved.map((one) => one.name)")
    assert names == [("MODELLED-" if modelled else "") + f"invented.{kind}" for kind in ("svg", "png")]
    svg = browser.ask("saved[0].blob.text()")
    assert svg.startswith("<svg ") and (">MODELLED<" in svg) is modelled and svg.count('class="curve"') > 1
    assert "NaN" not in svg and browser.ask("saved[1].blob.size") > 5000
    browser.ask("document.querySelectorAll('.downloads button').forEach((one) => one.click())")
    text, found = browser.ask("saved[2].blob.text()"), json.loads(browser.ask("saved[3].blob.text()"))
    assert text == data_csv(made) and len(found) == len(made.points) and found[0]["modelled"] is modelled


def test_paths_are_sorted_filtered_and_opened_by_their_address(browser, tmp_path) -> None:
    points = small_run().points
    for gpu in range(4, 40):
        points.append(point(f"h2d/ce/numa:0.pinned->gpu:{gpu}.device/1048576?mode=batched", 1e-4))
    opened(browser, tmp_path, run(points))
    assert len(browser.ask(ROWS + ".map((one) => one.id)")) == FEW
    rates = ROWS + ".map((one) => Number(one.cells[2].dataset.v))"
    browser.ask("document.querySelectorAll('.sorted thead button')[2].click()")
    assert browser.ask(rates) == sorted(browser.ask(rates), reverse=True)
    browser.ask("document.querySelectorAll('.sorted thead button')[2].click()")
    assert browser.ask(rates) == sorted(browser.ask(rates))
    browser.ask("void (location.hash = 'd2d-gpu2-gpu3')")
    assert browser.ask(LOOK.format("document.getElementById('d2d-gpu2-gpu3').checkVisibility()"))
    browser.ask("(() => { const box = document.querySelector('.filter input'); box.value = 'gpu:3 gpu:2';"
                " box.dispatchEvent(new Event('input')); })()")  # fmt: skip
    assert set(browser.ask(ROWS + ".map((one) => one.id)")) == {"d2d-gpu2-gpu3", "d2d-gpu3-gpu2"}
    browser.ask("document.querySelector('#d2d-gpu2-gpu3 a').click()")
    assert browser.ask(LOOK.format(f"{CURVES}.join() === 'copy gpu:2 → gpu:3, copy engine, device'"))
    assert browser.ask("errors") == []


def test_names_with_markup_and_quotes_stay_text(browser, tmp_path) -> None:
    params = tuple(sorted([("mode", "batched"), (EVIL, EVIL)]))
    ids = [PointId("h2d", "ce", EVIL, "pinned", "gpu:0", "device", size, params) for size in SIZES]
    opened(browser, tmp_path, run([point(str(id), 1e-6 + id.bytes / 5e10) for id in ids]))
    key(browser, "Home")
    assert "8 B: " in browser.ask(SAY)
    browser.ask("document.querySelectorAll('.downloads button')[1].click()")
    found = json.loads(browser.ask("saved[0].blob.text()"))
    assert {one["src"] for one in found} == {EVIL} and {one["params"] for one in found} == {f"{EVIL}={EVIL}"}
    assert browser.ask("document.title").startswith("MODELLED") and browser.ask("errors") == []


def test_downloads_of_a_measured_run_have_the_columns_that_the_page_finds_in_ids_and_status(browser, tmp_path) -> None:
    """The page leaves these columns out: they would be a third of its text."""
    made = read_run(RESULTS / "h200x4-standard-i.jsonl.gz")
    assert "inherited" in {point.status for point in made.points}
    opened(browser, tmp_path, made)
    browser.ask("document.querySelector('.downloads button').click()")
    assert browser.ask("saved[0].blob.text()") == data_csv(made)


def test_one_point_is_a_curve(browser, tmp_path) -> None:
    opened(browser, tmp_path, run([point("h2d/ce/numa:0.pinned->gpu:0.device/4096?mode=batched", 1e-6)]))
    key(browser, "Home")
    assert "4 KiB: " in browser.ask(SAY) and browser.ask("errors") == []


def test_an_address_of_unknown_curves_says_what_to_choose(browser, tmp_path) -> None:
    opened(browser, tmp_path, small_run(), "#explore?path=d2d|gpu:8|gpu:9&method=x&value=nothing&zoom=1")
    assert "choose a path and a method" in browser.ask(SAY) and browser.ask("errors") == []


def test_a_ratio_of_two_methods_on_different_paths_can_be_chosen(browser, tmp_path) -> None:
    opened(browser, tmp_path, small_run())
    names = browser.ask("[...document.querySelector('select[name=over]').options].map((one) => one.text)")
    host, peers = (next(name for name in names if name.startswith(kind)) for kind in ("copy numa", "copy gpu"))
    values = browser.ask("[...document.querySelector('select[name=over]').options].map((one) => one.value)")
    choose(browser, "over", values[names.index(host)])
    choose(browser, "under", values[names.index(peers)])
    assert browser.ask(CURVES) == [f"{host} / {peers}"] and browser.ask("errors") == []


def test_lines_run_through_the_middle_of_their_dots(browser, tmp_path) -> None:
    sizes = [1 << power for power in range(10, 28, 4)]
    flat = [point(f"h2d/ce/numa:0.pinned->gpu:0.device/{size}?mode=batched", size / 50e9) for size in sizes]
    for one in flat:
        one.ci95_s = None
    opened(browser, tmp_path, run(flat, modelled=False))
    middle = """((bytes) => {
      const canvas = document.querySelector('.u-wrap canvas'), chart = document.querySelector('.u-over');
      const [left, right] = [Math.log(BYTES[0] / 1.3), Math.log(BYTES.at(-1) * 1.3)];
      const share = (Math.log(bytes) - left) / (right - left), off = chart.offsetLeft;
      const x = Math.round((off + share * chart.offsetWidth) * devicePixelRatio);
      const { data } = canvas.getContext('2d').getImageData(x, 0, 1, canvas.height), rows = [];
      const blue = (y) => data[4 * y + 3] > 120 && data[4 * y + 2] - data[4 * y] > 90;
      for (let y = 0; y < canvas.height; y += 1) if (blue(y)) rows.push(y);
      return [(rows[0] + rows.at(-1)) / 2, rows.length]; })""".replace("BYTES", json.dumps(sizes))
    (dot, high), (line, thin) = (browser.ask(f"{middle}({bytes})") for bytes in (sizes[2], 2 * sizes[2]))
    assert high > thin > 0 and abs(dot - line) <= 0.5
