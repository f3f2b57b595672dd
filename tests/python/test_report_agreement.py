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
    assert bar.parts[0].value == "394 GB/s" and bar.notes[1].startswith("half of it from 1 MiB") and half == 1 << 20
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


@pytest.mark.parametrize(("rounds", "said"), [(3, True), (6, False)])
def test_intervals_of_an_older_rule_are_named_in_the_summary(rounds: int, said: bool) -> None:
    made = point(D2D.format(0, 1, LARGE, "src"), 1e-3)
    made.flows[0].round_medians_s = made.flows[0].round_medians_s[:rounds]
    summary, trust = without_links(page(run([made]))).split('<section id="summary">')[1].split('<section id="trust">')
    text = "1 interval comes from an older rule: fewer than six rounds"
    assert (text in summary.split("</section>")[0], text in trust) == (said, said)


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
    shown, folded = trust.split("<summary>3 more warnings</summary>")
    assert "PCIe replays rose on gpu:0" in shown and "reason a" not in shown and "reason a" in folded


def test_a_value_above_its_peak_is_marked_in_map_matrix_curve_paths_and_data() -> None:
    ends = [(0, 1), (1, 0), (0, 2)]
    points = [point(D2D.format(*end, size, "src"), size / 500e9, limit_gbps=478.0) for end in ends for size in SIZES]
    machine = {"gpus": [{"index": 0, "nvlinks": [{"active": True, "remote_gpu": 1}]}, {"index": 1}], "numa": []}
    text = page(run(points, **machine))
    assert ">500 (!)<small>" in text and "peer access 500 (!)</text>" in text  # matrix and curve
    assert ">above its peak</td>" in text and "105 % (!)" in text and ",above its peak," in text  # paths, map, data
