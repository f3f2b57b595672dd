"""Pages of comparisons and histories, the trust chapter, the chart of memory costs, and `report --open`."""

import math
import re
import webbrowser

import pytest

from invented import point, run, small_run
from linkscope.cli.main import main
from linkscope.compare import compare, differences, same_machine
from linkscope.compare.history_page import headlines, history_page
from linkscope.compare.page import Sides, comparison_page
from linkscope.report.doubts_table import reasons, strips, worst_points
from linkscope.report.html import page

H2D = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?bidirectional=false&mode=batched"
EVIL = "<script>document.title='taken'</script>"


def one_run(seconds: float, *, gpus: int = 1, started: str = "2026-11-21T00:00:00+00:00", **machine):
    points = [
        point(H2D.format(gpu, size), seconds * size / (64 << 20)) for gpu in range(gpus) for size in (1 << 20, 64 << 20)
    ]
    made = run(points, modelled=False, **machine)
    made.header.started = started
    return made


def compared_page(before, after) -> str:
    sides = Sides(
        [before], [after], same_machine(before.header, after.header), differences(before.header, after.header)
    )
    return comparison_page(sides, compare([before], [after]))


def test_a_comparison_names_the_biggest_change_first_with_its_interval() -> None:
    before, after = one_run(1e-3, gpus=16), one_run(1e-3, gpus=16)
    after.points[1] = point(H2D.format(0, 64 << 20), 1.5e-3)
    after.points[3] = point(H2D.format(1, 64 << 20), 3e-3)
    text = compared_page(before, after)
    changes = text[text.index('id="changes"') : text.index('id="values"')]
    rows = re.findall(r'<th scope="row">([^<]+)</th><td[^>]*>([^<]+)<', changes)
    assert [verdict for verdict, _ in rows[:2]] == ["slower", "slower"]
    assert rows[0][1].startswith("+200 % [") and rows[1][1].startswith("+50 % [")
    assert "All 14 paths without a change" in changes and "slower: 2" in text
    assert text.count('<g class="s1"><path class="mark"') == 1  # both in one element


def test_a_comparison_says_what_it_leaves_out_and_what_else_differs() -> None:
    before, after = one_run(1e-3, driver="580"), one_run(1e-3, gpus=2, driver="590")
    text = compared_page(before, after)
    assert "2 points only in invented.jsonl." in text
    assert re.search(r"machine.driver</th><td[^>]*>580</td><td[^>]*>590</td>", text)


def test_pages_of_runs_hold_names_with_scripts_as_text() -> None:
    before, after = one_run(1e-3, name=EVIL, title=EVIL), one_run(2e-3, name=EVIL, title=EVIL)
    for text in (compared_page(before, after), history_page([before, after])):
        assert EVIL not in text and "&lt;script&gt;document" in text


def test_a_comparison_without_a_value_on_both_sides_has_no_figure() -> None:
    before, after = one_run(1e-3), run([point(H2D.format(0, 1 << 20), status="failed", reason="no")], modelled=False)
    text = compared_page(before, after)
    assert "No point has a value on both sides." in text and "broken" in text


def test_a_history_marks_the_run_since_which_a_headline_changed() -> None:
    runs = [one_run(1e-3, started=f"2026-11-{20 + day}T00:00:00+00:00") for day in range(4)]
    runs += [one_run(2e-3, started=f"2026-11-{24 + day}T00:00:00+00:00") for day in range(4)]
    text = history_page(runs[::-1])  # put in the order of time
    assert "slower, time +1e+02 %" in text or "slower, time +100 %" in text
    assert "2026-11-20T00:00:00+00:00 to 2026-11-27T00:00:00+00:00" in text
    changes = text[text.index('id="changes"') : text.index('id="runs"')]
    assert "2026-11-24T00:00:00+00:00" in changes and changes.count("<tr>") == 3


def test_headlines_of_a_history_have_a_value_in_every_run() -> None:
    runs = [one_run(1e-3), one_run(1e-3)]
    del runs[1].points[1:]
    (points,) = headlines(runs).values()
    assert [one.bytes for one in points] == [1 << 20] * 2
    runs[1].points.clear()
    assert headlines(runs) == {} and "No headline point has a value" in history_page(runs)


def test_report_of_several_runs_is_a_history_and_refuses_options_of_one_run(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("linkscope.cli.report.read", lambda path: one_run(1e-3))
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    target = tmp_path / "page.html"
    assert main(["report", "a.jsonl", "b.jsonl", "-o", str(target), "--open"]) == 0
    assert "over 2 runs" in target.read_text()
    assert f"no browser can be opened here; the page is {target}" in capsys.readouterr().out
    assert main(["report", "a.jsonl", "b.jsonl", "--summary"]) != 0
    assert "--summary takes one run file, not 2" in capsys.readouterr().err


def test_open_gives_the_page_to_the_browser(tmp_path, monkeypatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("linkscope.cli.report.read", lambda path: one_run(1e-3))
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    assert main(["report", "a.jsonl", "-o", str(tmp_path / "a.html"), "--open"]) == 0
    assert opened == [(tmp_path / "a.html").as_uri()]


def test_reasons_come_by_gravity_then_by_the_interval_against_the_target() -> None:
    wide = {"status": "missed_precision", "reason": "wide"}
    points = [
        point(H2D.format(0, 8), 1e-6, **wide),
        point(H2D.format(0, 16), 1e-6, ci95_s=(0.5e-6, 2e-6), **wide),
        point(H2D.format(1, 32), 1e-6, status="failed", reason="no", guards={"above_limit": 99.0}),
        point(H2D.format(1, 64), 1e-6),
    ]
    points[1].flows[0].ci95_s = points[1].ci95_s
    found = reasons(points)
    assert [one.reason for one in found] == ["failed: above the peak", "missed precision"]
    assert found[1].worst is points[1] and found[1].width == pytest.approx(0.75)
    assert [one.bytes for one in worst_points(points)] == [16, 8]


def test_strips_draw_each_round_where_its_ratio_to_the_median_says() -> None:
    made = point(H2D.format(0, 8), 1e-6, status="missed_precision", reason="wide")
    made.flows[0].round_medians_s = [1e-6, 1e-6, 1e-6, 4e-6]
    [drawn] = strips([made], False)
    places = [float(x) for x in re.findall(r"M([\d.]+) [\d.]+a4", drawn)]
    assert places[0] == places[1] == places[2] < places[3]
    middle, reach = places[0], 1.05 * math.log(4)
    half = (560 - 74 - 8) / 2
    assert places[3] - middle == pytest.approx(half * math.log(4) / reach, abs=0.2)


def test_the_trust_chapter_says_when_every_value_can_be_used() -> None:
    assert "Every value can be used." in page(run([point(H2D.format(0, 8), 1e-6)]))
    text = page(small_run())
    trust = text[text.index('id="trust"') :]
    assert trust.index("failed") < trust.index("missed precision") and "MODELLED: round medians" in trust
