"""The summary at the end of a run: at most 30 lines, the verdict first, headlines from plain copies only."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from campaign import sample
from invented import point, run, small_run
from linkscope.report.headline import headline_rows, is_headline
from linkscope.report.html import page
from linkscope.report.summary import MOST_LINES, summary
from linkscope.report.summary_lines import notes
from linkscope.report.uniformity import comparisons
from linkscope.report.verdict import verdict, warnings
from linkscope.runfile import End, Run, read_run

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
RESULTS = sorted((ROOT / "results").glob("*.jsonl.gz"))
H2D = "h2d/ce/numa:0.{}->gpu:{}.device/{}?bidirectional=false&mode=batched"
D2D = "d2d/ce/gpu:{}.device->gpu:{}.device/{}?bidirectional=false&initiator=src&mode=batched&peer=on"
LARGE = 64 << 20


def text_of(made: Run, width: int = 100) -> str:
    return summary(made, width=width, colour=False)


def pairs(rates: dict[tuple[int, int], float], **fields: object) -> Run:
    """Copies between GPUs at the given GB/s."""
    return run([point(D2D.format(*ends, LARGE), LARGE / gbps / 1e9, limit_gbps=478.0, **fields)
                for ends, gbps in rates.items()], modelled=False)  # fmt: skip


def verdict_of(made: Run) -> str:
    return " ".join(" ".join(text_of(made).split()).partition("GB/s at the best size")[0].split())


def test_a_path_of_which_the_budget_left_out_the_large_sizes_is_not_called_slow() -> None:
    ends = [(path, size) for path in ((0, 1), (1, 0), (1, 2)) for size in (4096, LARGE)][:-1]
    points = [point(D2D.format(*path, size), 2e-6 + size / 400e9) for path, size in ends]
    (row,) = headline_rows(run(points))
    assert [str(path) for path in row.paths] == ["gpu:0 -> gpu:1", "gpu:1 -> gpu:0"]


@pytest.mark.parametrize("width", [80, 140])
def test_the_summary_matches_the_golden_file(width: int) -> None:
    golden = GOLDEN / f"summary-{width}.txt"
    text = text_of(small_run(), width) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name.split(".")[0])
def test_every_committed_run_fits_thirty_lines_of_any_width(path: Path) -> None:
    made = read_run(path, rounds=False)
    # The summary of a large run takes two seconds, and the narrowest has the most lines.
    for width in sample((60,), (60, 80, 140)) if path.stat().st_size > 100_000 else (60, 80, 140):
        lines = text_of(made, width).splitlines()
        assert len(lines) <= MOST_LINES and max(map(len, lines)) <= width


def test_the_slowest_path_is_named_by_its_share_of_the_peak_and_by_its_rate() -> None:
    of_host = H2D.format("pageable", 1, LARGE)
    made = run([
        point(H2D.format("pinned", 0, LARGE), LARGE / 55.5e9, limit_gbps=58.4),
        point(D2D.format(0, 1, LARGE), LARGE / 395e9, limit_gbps=478.0),
        point(D2D.format(1, 0, LARGE), LARGE / 300e9, limit_gbps=478.0),
        point(of_host, LARGE / 9.6e9, limit_gbps=58.4),
    ])  # fmt: skip
    expected = "Slowest   by % of peak gpu:1 → gpu:0, 300 GB/s (63 %); by rate numa:0 → gpu:1, 9.6 GB/s (pageable)"
    assert expected in text_of(made)


def test_a_bidirectional_total_is_compared_with_the_peaks_of_both_directions() -> None:
    both = point(H2D.format("pinned", 0, LARGE).replace("false", "true"), LARGE / 30e9, limit_gbps=60.0)
    back = point(f"d2h/ce/gpu:0.device->numa:0.pinned/{LARGE}?mode=batched", LARGE / 30e9, limit_gbps=40.0)
    (row,) = [row for row in headline_rows(run([both, back])) if row.bidirectional]
    assert row.bidirectional and row.bidirectional.peaks == (100.0,)


def test_simulated_runs_are_marked_in_the_first_line() -> None:
    assert text_of(run([])).startswith("MODELLED")
    assert "MODELLED" not in text_of(run([], modelled=False))


def test_a_run_without_a_value_says_that_nothing_was_measured() -> None:
    failed = run([point(H2D.format("pinned", 0, LARGE), status="failed", reason="the driver said no")])
    for made in (run([]), failed):
        assert "Nothing was measured" in text_of(made)
    assert "WARNING   1 point failed: the driver said no" in text_of(failed)


def test_a_run_of_one_point_has_one_rate_and_no_verdict_on_other_paths() -> None:
    text = text_of(run([point(H2D.format("pinned", 0, LARGE), LARGE / 55.4e9, limit_gbps=58.4)]))
    assert re.search(r"host → GPU +pinned +55\.4 +95", text) and "uniform" not in text
    assert "Slowest" not in text


def test_uniform_paths_are_counted_with_their_difference_and_size() -> None:
    verdict = verdict_of(pairs({(0, 1): 395, (1, 0): 396, (0, 2): 394}))
    assert "Links uniform: 3 GPU → GPU paths within 0.51 % at 64 MiB." in verdict


def test_paths_beyond_the_margin_are_not_called_uniform_though_no_difference_is_certain() -> None:
    made = pairs({(0, 1): 395, (1, 0): 396, (0, 2): 376})
    verdict = verdict_of(made)
    assert (
        "Links may differ: 3 GPU → GPU paths within 5.3 % (slowest: gpu:0 → gpu:2) at 64 MiB." in verdict
        and "uniform" not in verdict
    )
    (found,) = comparisons(made)
    assert not found.differs and not found.is_uniform
    text = page(made)
    assert "GPU pairs may differ" in text and "A GPU pair is slow" not in text


def test_repeated_packets_of_pairs_that_may_differ_ask_for_more_rounds() -> None:
    made = pairs({(0, 1): 395, (1, 0): 396, (0, 2): 376})
    made.header.machine["places"] = ["numa:0", "gpu:0", "gpu:1", "gpu:2"]
    object.__setattr__(made, "end", End(wall_s=1.0, complete=True, counts={}, gained={"gpu:0": {"nvlink_crc_data": 7}}))
    ((text, _),) = warnings(made)
    assert text.endswith(", which can slow a pair, and GPU pairs may differ: measure them again with more --rounds.")


def test_the_slowest_path_is_named_with_ratio_and_interval() -> None:
    verdict = verdict_of(pairs({(0, 1): 395, (1, 0): 396, (0, 2): 396, (2, 0): 250}))
    assert re.search(r"gpu:2 → gpu:0 is slowest, 1\.58 × the time of gpu:\d → gpu:\d \[1\.\d+, 1\.\d+\]", verdict)
    assert "uniform" not in verdict


def test_inherited_points_do_not_count_for_uniformity() -> None:
    made = pairs({(0, 1): 395, (1, 0): 396})
    copied = [msgspec.structs.replace(of, status="inherited") for of in pairs({(0, 2): 200, (2, 0): 200}).points]
    (found,) = comparisons(run([*made.points, *copied]))
    assert found.count == 2 and not found.differs
    text = text_of(run([*made.points, *copied]))
    assert "2 GPU → GPU paths within" in " ".join(text.split()) and "2 inherited" in text


def test_the_table_states_the_number_of_measured_paths() -> None:
    made = pairs({(0, 1): 395, (1, 0): 395})
    made.points[1].status = "inherited"
    assert re.search(r"GPU → GPU .*395 .*1 of 2", text_of(made))


@pytest.mark.parametrize(
    ("id", "guards"),
    [
        (D2D.format(0, 1, LARGE) + "&call=batch&size=4KiB", {}),
        ("d2d/batch/gpu:0.device->gpu:1.device/4096?initiator=src&mode=batched", {}),
        ("pieces/batch/numa:0.pinned->gpu:0.device/67108864?piece=4096", {}),
        ("prefetch/prefetch/numa:0.managed->gpu:0.managed/67108864?bidirectional=false&discard=with", {}),
        (H2D.format("pinned", 0, LARGE) + "&cache=hot", {}),
        (H2D.format("pinned", 0, LARGE), {"nonlinear": "2 s, then 1 s"}),
        (H2D.format("pinned", 0, LARGE), {"above_limit": 99.0}),
    ],
)
def test_special_copies_and_points_with_a_warning_make_no_headline(id: str, guards: dict[str, object]) -> None:
    fast = point(id, LARGE / 999e9, guards=guards)
    assert not is_headline(fast)
    plain = point(H2D.format("pinned", 1, LARGE), LARGE / 55e9)
    values = [value for row in headline_rows(run([fast, plain])) for value in row.first.values]
    assert values == pytest.approx([55.0])


def test_scattered_rates_are_called_unstable_with_their_range() -> None:
    slow = point(H2D.format("pageable", 0, LARGE), LARGE / 10e9)
    slow.flows[0].round_medians_s = [LARGE / rate / 1e9 for rate in (8.1, 9.0, 10.0, 10.0, 11.0, 11.9)]
    text = text_of(run([slow, point(H2D.format("pinned", 0, LARGE), LARGE / 55e9)]))
    assert "unstable, 8.1 to 11.9" in text and "Pageable rates are unstable." in " ".join(text.split())


def test_different_rates_of_a_row_are_a_range_without_brackets() -> None:
    made = run([point(H2D.format("pageable", gpu, LARGE), LARGE / rate / 1e9)
                for gpu, rate in enumerate((8.0, 10.0, 12.0))])  # fmt: skip
    assert re.search(r"pageable +8 to 12", text_of(made))


def test_brackets_hold_confidence_intervals_only() -> None:
    text = text_of(read_run(ROOT / "results" / "h200x4-standard-i.jsonl.gz", rounds=False))
    assert all(re.fullmatch(r"\[[\d.]+, [\d.]+\]", found) for found in re.findall(r"\[[^\]]*\]", text))


def test_missed_precision_is_marked_and_the_mark_explained() -> None:
    wide = point(H2D.format("pinned", 0, LARGE), LARGE / 55e9, status="missed_precision")
    text = text_of(run([wide]))
    assert "~55" in text and "~ marks a value that missed" in " ".join(text.split())
    assert "~" not in text_of(run([point(H2D.format("pinned", 0, LARGE), LARGE / 55e9)]))


def test_rising_error_counters_are_one_warning() -> None:
    made = pairs({(0, 1): 395})
    made.header.machine["places"] = ["numa:0", "gpu:0", "gpu:1"]
    gained = {"gpu:0": {"nvlink_crc_data": 6356}, "gpu:1": {"nvlink_crc_data": 7211}}
    object.__setattr__(made, "end", End(wall_s=1.0, complete=True, counts={}, gained=gained))
    text = text_of(made)
    said = "NVLink CRC errors rose on both GPUs (by 6356 to 7211 a GPU). The counts are even, so no link is suspect."
    assert said in " ".join(text.split())
    assert "1 warning." in text


@pytest.mark.parametrize(("slow", "said"), [
    (395, ", and all GPU pairs are uniform: nothing to do now (later counts: nvidia-smi nvlink -e)."),
    (300, ", which can slow a pair: compare the counts of the slow pair (nvidia-smi nvlink -e)."),
])  # fmt: skip
def test_nvlink_errors_have_a_consequence_and_name_the_gpu_with_the_most(slow: float, said: str) -> None:
    made = pairs({(0, 1): 395, (1, 0): slow})
    made.header.machine["places"] = ["numa:0", "gpu:0", "gpu:1"]
    gained = {"gpu:0": {"nvlink_crc_data": 600}, "gpu:1": {"nvlink_crc_data": 1400}}
    object.__setattr__(made, "end", End(wall_s=1.0, complete=True, counts={}, gained=gained))
    ((text, _),) = warnings(made)
    assert (
        "gpu:1 has 2.3 times the lowest count: if its count is again the highest in the next run, check its links."
        in text
    )
    assert text.endswith(f"The links sent these packets again{said}")


@pytest.mark.parametrize(("counter", "counts", "said"), [
    ("nvlink_crc_data", (33, 520), "gpu:1 has 16 times the lowest count (520 against 33). Suspect its links: run"),
    ("nvlink_crc_data", (0, 520), "gpu:1 has 520, and another GPU none. Suspect its links: run again"),
    ("nvlink_crc_data", (0, 9), "gpu:1 has 9, and another GPU none: if its count is again the highest in the next"),
    ("ecc_corrected", (0, 520), "gpu:1 has 520, and another GPU none. Suspect its memory: run again"),
])  # fmt: skip
def test_a_gpu_with_far_more_errors_than_the_others_is_suspect_though_its_rates_are_good(counter, counts, said) -> None:
    made = pairs({(0, 1): 395, (1, 0): 395})
    made.header.machine["places"] = ["numa:0", "gpu:0", "gpu:1"]
    gained = {f"gpu:{gpu}": {counter: count} for gpu, count in enumerate(counts) if count}
    object.__setattr__(made, "end", End(wall_s=1.0, complete=True, counts={}, gained=gained))
    ((text, _),) = warnings(made)
    assert said in text
    assert ("nothing to do now" in text) == (max(counts) < 50)


def test_a_run_without_a_gpu_names_the_next_step() -> None:
    copied = point("h2h/cpu/numa:0.pageable->numa:0.pinned/67108864?mode=batched", 1e-2)
    text = " ".join(text_of(run([copied], modelled=False, gpus=[])).split())
    assert "no GPU here: `linkscope doctor` says why; `linkscope run --machine h200x4` simulates four GPUs" in text
    assert "no GPU here" not in text_of(small_run())


def test_failed_points_open_the_verdict_only_if_they_are_many() -> None:
    bad = point(H2D.format("pinned", 0, 8), status="failed", reason="faster than the peak (" + 200 * "x" + ")")
    sizes = range(16, 16 + 8 * 120, 8)
    few = run([bad, *(point(H2D.format("pinned", 0, size), 1e-6) for size in sizes)])
    assert "modelled. 1 point failed." in verdict(few, []) and "warning" not in verdict(few, [])
    assert verdict(run([bad, point(H2D.format("pinned", 0, 16), 1e-6)]), []).startswith("1 point failed. ")
    assert warnings(few)[0] == ("1 point failed: faster than the peak", True)  # without the long derivation


def test_a_stopped_and_an_unfinished_run_warn() -> None:
    for end, words in ((End(wall_s=1.0, complete=False, counts={}), "stopped early"), (None, "no end record")):
        made = small_run()
        object.__setattr__(made, "end", end)
        assert words in text_of(made)


def test_runs_without_plain_copies_show_their_other_rates() -> None:
    text = text_of(read_run(ROOT / "results" / "h200x4-mapped.jsonl.gz", rounds=False))
    assert "read by sm, mapped → device, numa:0 → gpu:0: 50.65 GB/s [50.61, 50.68]" in text


def test_a_place_name_cannot_send_escape_sequences() -> None:
    text = text_of(run([point(H2D.format("pinned", 0, 8), status="failed", reason="a\x1b[2Jb")], name="x\x1b[2J"))
    assert "\x1b" not in text and "a?[2Jb" in text


def test_ascii_output_uses_ascii_characters() -> None:
    code = "from invented import small_run; from linkscope.report.summary import summary; print(summary(small_run()))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, cwd=Path(__file__).parent, check=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert b"host -> GPU" in done.stdout


@pytest.mark.parametrize(
    ("memories", "said"),
    [
        (("pageable", "pageable", "pinned"), "3 of 3 modelled points missed precision, 2 of them pageable or managed"),
        (("pageable", "managed"), "2 of 2 modelled points missed precision, all of them pageable or managed"),
    ],
)
def test_the_note_says_how_many_imprecise_points_have_memory_that_scatters(
    memories: tuple[str, ...], said: str
) -> None:
    points = [
        point(f"h2d/ce/numa:0.{memory}->gpu:{gpu}.device/8", 1e-6, status="missed_precision")
        for gpu, memory in enumerate(memories)
    ]
    assert any(said in text for text in notes(run(points), signed=False))
