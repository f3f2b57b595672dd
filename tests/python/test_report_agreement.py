"""Numbers that the page states twice are the same number, and name what they are of."""

import re

import pytest

from invented import SIZES, point, run, small_run
from linkscope.report.curve_lines import curve_lines
from linkscope.report.directions import direction_bars
from linkscope.report.doubts_table import counts_text, reason_of
from linkscope.report.html import page
from linkscope.report.page_terms import explainer
from linkscope.report.pair_rates import main_matrix, matrices
from linkscope.report.path_rows import path_rows
from linkscope.report.uniformity import comparisons
from linkscope.report.verdict import verdict
from linkscope.runfile import End, Run

D2D = "d2d/ce/gpu:{}.device->gpu:{}.device/{}?initiator={}&mode=batched&peer=on"
LARGE = SIZES[-1]


def initiated() -> Run:
    """Three GPUs. The destination's copies are slower, start later, and have more sizes."""
    ends = [(src, dst) for src in range(3) for dst in range(3) if src != dst]
    points = [
        point(D2D.format(src, dst, size, "src"), 1e-6 + size / (395e9 + 1e9 * src), limit_gbps=478.0)
        for src, dst in ends
        for size in SIZES[1:]
    ]
    sizes = (*SIZES, 2 * LARGE)
    points += [
        point(D2D.format(src, dst, size, "dst"), 2e-5 + size / 391e9, limit_gbps=478.0)
        for src, dst in ends
        for size in sizes
    ]
    return run(points)


def test_curve_half_rate_matrix_verdict_and_paths_are_of_the_copy_that_the_source_starts() -> None:
    made = initiated()
    (lines,) = curve_lines(made)
    (line,) = lines.lines
    assert dict(line.curve.method.params)["initiator"] == "src"
    half = line.curve.half_rate_bytes()
    (bar,) = direction_bars(made, [])
    assert (
        bar.parts[0].value == "394 GB/s"
        and bar.notes[1] == "peer on: half of 394 GB/s between 4 KiB and 1 MiB"
        and half == 1 << 20
    )
    assert {row.half_rate_bytes for row in path_rows(made.points)} == {half}
    matrix = main_matrix(matrices(made))
    assert matrix is not None and dict(matrix.method.params)["initiator"] == "src"
    (found,) = comparisons(made)
    assert found.slowest.params["initiator"] == "src"


def test_the_verdict_has_the_spread_of_the_rates_in_the_matrix() -> None:
    made = initiated()
    matrix = main_matrix(matrices(made))
    assert matrix is not None
    rates = [cell.value.value for cell in matrix.cells.values()]
    assert f"6 GPU → GPU paths within {100 * (max(rates) / min(rates) - 1):.2g} % at 64 MiB" in verdict(made, [])


def without_links(text: str) -> str:
    return re.sub(r"</?a\b[^>]*>", "", text)


def doubtful() -> Run:
    """A run with each status, and a point that failed because it was above its peak."""
    made = small_run()
    id = "h2d/ce/numa:0.pinned->gpu:3.device/64?mode=batched"
    made.points.append(point(id, status="failed", reason="too fast", guards={"above_limit": 99.0}))
    return made


def test_summary_and_trust_count_the_same_points() -> None:
    made = doubtful()
    text = without_links(page(made))
    sound = sum(reason_of(one) is None for one in made.points)
    said = f"{sound} of {len(made.points)} points are measured within their target precision"
    summary, trust = (
        text.split(f'<section id="{name}">')[1].split("</section>")[0].split("<details")[0]
        for name in ("summary", "trust")
    )
    assert said in summary and said in trust
    rows = re.findall(r'<th scope="row">([^<]*)</th><td class="n" data-label="Points">(\d+)</td>', trust)
    assert sum(int(count) for _, count in rows) == len(made.points) - sound
    failed = sum(one.status == "failed" for one in made.points)
    assert sum(int(count) for reason, count in rows if reason.startswith("failed")) == failed
    assert counts_text(made.points).startswith(f"{failed} failed, ") and counts_text(made.points).count("failed") == 1
    assert f"{failed} points failed" in summary


def test_a_warning_is_named_and_linked_to_its_place() -> None:
    made = run([point(D2D.format(0, 1, LARGE, "src"), 1e-3)], places=["gpu:0"])
    object.__setattr__(made, "end", End(wall_s=1.0, complete=True, counts={}, gained={"gpu:0": {"pcie_replays": 7}}))
    summary, trust = page(made).split('<section id="summary">')[1].split('<section id="trust">')
    assert '<a href="#trust">1 warning</a>: PCIe replays rose on gpu:0 (by 7).' in summary
    assert "<strong>Warning</strong> PCIe replays rose on gpu:0 (by 7)." in trust


def test_a_row_of_trust_links_to_the_row_of_its_path_or_to_its_curve() -> None:
    wide = {"status": "missed_precision", "reason": "wide"}
    managed = "prefetch/prefetch/numa:0.managed->gpu:0.managed/{}?x=1"
    trust = page(run([
        point(D2D.format(0, 1, LARGE, "src"), 1e-3, **wide), point(managed.format(LARGE), 1e-3, status="inherited")
    ])).split('<section id="trust">')[1]  # fmt: skip
    assert '<a href="#d2d-gpu0-gpu1">gpu:0' in trust
    assert 'href="#explorer" data-explore="#explore?path=prefetch|numa:0|gpu:0' in trust


def test_a_failed_point_links_to_its_curve_where_another_size_has_a_value() -> None:
    read = "read/sm/gpu:2.device->gpu:0.device/{}?x=1"
    failed = point(read.format(8), status="failed", reason="too short")
    trust = page(run([failed, point(read.format(LARGE), 1e-3)])).split('<section id="trust">')[1]
    assert 'data-explore="#explore?path=read|gpu:2|gpu:0' in trust.split("</table>")[0]
    trust = page(run([failed, point(D2D.format(0, 1, LARGE, "src"), 1e-3)])).split('<section id="trust">')[1]
    assert "path=read|gpu:2" not in trust


def test_a_row_of_trust_has_the_widest_interval_of_all_its_operations() -> None:
    """The operation with the most points is not the one with the widest interval."""
    narrow = [point(D2D.format(0, 1, size, "src"), 1e-3, status="missed_precision") for size in SIZES]
    wide = point("write/sm/gpu:1.device->gpu:0.device/256?x=1", 1e-5, status="missed_precision")
    wide.flows[0].ci95_s = wide.ci95_s = (1e-5, 9e-5)  # half of it is 400 %
    trust = without_links(page(run([*narrow, wide]))).split('<section id="trust">')[1].split("</table>")[0]
    assert "GPU → GPU, copy engine: 4; 1 other operation" in trust
    assert "±400 %, target was 1 %" in trust and "write, GPU threads: gpu:1 → gpu:0, 256 B" in trust


def test_cards_paths_and_curves_have_the_same_rate_size_and_half() -> None:
    """The best rate is at 1 MiB; one path was measured at sizes far apart."""
    h2d = "h2d/ce/numa:0.pinned->gpu:{}.device/{}?bidirectional=false&mode=batched"
    rates = {8: 1.0, 4096: 9.0, 1 << 20: 55.5, LARGE: 54.0}
    made = run([
        point(h2d.format(gpu, size), size / rate / 1e9, limit_gbps=58.45)
        for gpu in (0, 1) for size, rate in rates.items()
    ])  # fmt: skip
    (bar,) = direction_bars(made, [])
    assert (bar.parts[0].value, bar.parts[0].of_peak) == ("55.5 GB/s", "95 % of 58.5")
    assert bar.notes[0].startswith("2 paths at 1 MiB: 55.5")
    rows = path_rows(made.points)
    assert {(round(row.rate.value, 3), row.point.bytes) for row in rows if row.rate} == {(55.5, 1 << 20)}
    text = page(made)
    assert ">pinned 55.5</text>" in text and ">55.5 [54.4, 56.6]</td>" in text and ">4 KiB-1 MiB</td>" in text


def test_the_share_of_a_card_is_that_of_the_number_beside_it() -> None:
    """38.345 GB/s are 66.56 % of 57.61; the number beside it, 38.3, is 66.48 %."""
    d2d = "d2d/ce/gpu:{}.device->gpu:{}.device/67108864?mode=batched&peer=off"
    made = [point(d2d.format(*ends), LARGE / 38.345e9, limit_gbps=57.61) for ends in ((0, 1), (1, 0))]
    (bar,) = direction_bars(run(made), [])
    assert (bar.parts[0].value, bar.parts[0].of_peak) == ("38.3 GB/s", "66 % of 57.6")


def test_no_path_has_the_rate_of_a_point_with_a_warning_while_another_size_has_none() -> None:
    ids = [D2D.format(0, 1, size, "src") for size in SIZES[-2:]]
    fast = point(ids[1], SIZES[-1] / 470e9, guards={"throttled": True})
    (row,) = path_rows([point(ids[0], SIZES[-2] / 390e9), fast])
    assert row.point.bytes == SIZES[-2] and row.status_text == "ok"
    (row,) = path_rows([fast])
    assert row.status_text == "warning"


def test_usual_paths_come_before_rare_kinds_of_memory() -> None:
    h2d = "h2d/ce/numa:0.{}->gpu:{}.device/1048576?bidirectional=false&mode=batched"
    rare = [point(h2d.format(kind, 0), 1e-4) for kind in ("mapped", "wc", "shm")]
    rare.append(point(h2d.format("pinned", 0).replace("/ce/", "/tma/"), 1e-4))
    usual = [point(h2d.format("pinned", gpu), (1 + 0.1 * gpu) * 1e-4) for gpu in range(4)]
    texts = [row.method_text for row in path_rows([*rare, point(h2d.format("pageable", 0), 1e-3), *usual])]
    assert texts[:5].count("copy engine, pinned") == 4 and "copy engine, pageable" in texts[:5]
    assert set(texts[5:]) == {
        "copy engine, mapped",
        "copy engine, write-combined",
        "copy engine, shared memory",
        "TMA, pinned",
    }


@pytest.mark.parametrize(("rounds", "said"), [(3, True), (6, False)])
def test_a_point_with_an_interval_of_an_older_rule_does_not_count_as_precise(rounds: int, said: bool) -> None:
    made = point(D2D.format(0, 1, LARGE, "src"), 1e-3)
    made.flows[0].round_medians_s = made.flows[0].round_medians_s[:rounds]
    summary, trust = without_links(page(run([made]))).split('<section id="summary">')[1].split('<section id="trust">')
    first, text = (
        summary.split("</section>")[0],
        "an older version of linkscope wrote an interval as wide as the target",
    )
    assert (("(1 precision not known)" in first), ("no interval" in first), text in trust) == (said, said, said)
    assert ("Every rate above is one of them." in first) is not said


def test_a_term_is_explained_where_the_page_first_has_it() -> None:
    text = page(small_run())
    for term in ("pinned", "pageable", "class"):
        (meaning,) = re.findall(rf'<a class="term" href="#words" title="([^"]*)">{term}</a>', text)
        assert meaning and text.index(f">{term}</a>") < text.index('<section id="actions">')
    evil = explainer()("<b>pinned</b> pinned")
    assert evil.startswith("&lt;b&gt;<a ") and evil.count("<a ") == 1


def test_the_page_folds_many_warnings_but_not_those_of_the_whole_run() -> None:
    failed = [
        point(D2D.format(0, 1, size, "src"), status="failed", reason=f"reason {'abc'[number]}")
        for number, size in enumerate(SIZES[:3])
    ]
    made = run([*failed, point(D2D.format(0, 1, LARGE, "src"), 1e-3)], places=["gpu:0"])
    object.__setattr__(made, "end", End(wall_s=1.0, complete=True, counts={}, gained={"gpu:0": {"pcie_replays": 7}}))
    trust = page(made).split('<section id="trust">')[1]
    shown, folded = trust.split("<summary>2 more warnings</summary>")
    assert "PCIe replays rose on gpu:0" in shown and "reason b" not in shown and "reason b" in folded


def test_a_value_above_its_peak_is_marked_in_map_matrix_curve_paths_and_data() -> None:
    ends = [(0, 1), (1, 0), (0, 2)]
    points = [point(D2D.format(*end, size, "src"), size / 500e9, limit_gbps=478.0) for end in ends for size in SIZES]
    machine = {"gpus": [{"index": 0, "nvlinks": [{"active": True, "remote_gpu": 1}]}, {"index": 1}], "numa": []}
    text = page(run(points, **machine))
    assert ">500.0 (!)<small>" in text and "peer access 500 (!)</text>" in text  # matrix and curve
    assert ">above its peak</td>" in text and "105 % (!)" in text and ",above its peak," in text  # paths, map, data
