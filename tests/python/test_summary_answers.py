"""The summary of a run without plain copies says what its suite found, instead of a list of rates."""

import dataclasses
import itertools
from pathlib import Path

import msgspec
import pytest

from linkscope.cli.main import main
from linkscope.report.html import page
from linkscope.report.section import Output, plain
from linkscope.report.sections import sections
from linkscope.report.summary import MOST_LINES, summary
from linkscope.report.verdict import verdict
from linkscope.runfile import TOO_SHORT, Run, read_run
from linkscope.units import with_signs

RESULTS = Path(__file__).parents[2] / "results"


def run_of(name: str) -> Run:
    return read_run(RESULTS / f"{name}.jsonl.gz")


def only(globs: list[str]) -> list[str]:
    return [word for glob in globs for word in ("--only", glob)]


def text_of(run: Run) -> str:
    return " ".join(summary(run, width=96, colour=False).split())


# What the tables of these runs say, found by hand.
FOUND = {
    "h100x1-contention-a": [
        "Slowdown Zero-copy reads slow others: GPU-CPU round trips ~×45.8 (2.726 µs → 125 µs), kernel launches ~×33.5",
        "Not clearly slowed by other work: messages, messages by socket (2 of 13 kinds).",
    ],
    "h100x1-loaded-latency": [
        "At full load, small operations take ~×1.34 to ~×75.9 their time alone. The largest ratio is that of GPU-CPU "
        "round trips beside zero-copy reads, ~2.653 µs → ~201.2 µs.",
    ],
    "h100x1-sharing": [
        "kernel launches, 4 clients: processes under MPS ~333,314 /s (~×3.4 of one alone), threads",
        "processes in turn ~7,270 /s (~×0.083 of one alone).",
    ],
    "h100x1-sp-5": ["Compute Transfers lengthen iterations by ×1.03 (stencil, pinned) to ~×290 (reduction, pageable)"],
    "h100x1-sp-10": [
        "Up to 16 tasks for each GPU: no rate collapses. The slowest task gets ~79 % of an equal share or more (2",
    ],
    "h100x1-sp-11": ["Messages beside transfers take up to ~119 % longer (median; numa:0: 1 transfer + 1 message of"],
    "h100x4-lu": [
        "n = 8192 on 4 GPUs: ~16.4 TFLOP/s (6.1 % of the peak). The worst of 4 variants takes ~72 % longer: panels "
        "through the host instead of panels by peer copies.",
        "n = 8192 on 1 GPU: ~12.1 TFLOP/s (18 % of the peak). n",  # `near` is the only node
    ],
    "h100x1-lu": ["12.1 TFLOP/s (18 % of the peak). Its 3 variants do not clearly differ."],  # intervals overlap
    "h100x1-nn": ["product, cuBLAS, best rates, and % of the peak at the highest clock: bf16 825.9 TFLOP/s (77 %)"],
    "h100x2-puts": [
        "Messages round trips written, gpu:0 → gpu:1: 8 B ~2.053 µs (direct).",
        "streams written, gpu:0 → gpu:1: 64 MiB ~369.9 GB/s (direct).",
    ],
    "h200x2-putget": ["Drive by GPU up to 256 KiB, host from 1 MiB: gpu:0 → gpu:1"],
    "h100x1-mpi": [
        "latency of the smallest message: pinned → device 4.504 µs (8 B); device → device 131.6 µs (8 B); pinned → "
        "pinned ~801.9 ns (512 B)",
        "pinned → pinned ~14.15 GB/s at 64 KiB",  # both directions together reach 14.45
        "double-buffered messages of GPU buffers: ~×0.927 to ~×1.46 the rate of whole staging, by size.",
    ],
    "h100x2-mpi": [
        "GPU buffers handed to the message library, many messages: device → device ~×2.6 to ~×65.6; device → pinned "
        "~×0.647 to ~×1.12; pinned → device ~×0.243 to ~×0.533 the rate of whole staging, by size.",
    ],
    "h100x1-ranks-a": [
        "GPU buffers handed to the message library, many messages: device → device, by UCX ~×8.58 the rate of whole "
        "staging.",
        "half of a round trip of the smallest message: device → device ~179.3 µs (16 MiB, by NIXL).",
        "best rates: device → device ~1886 GB/s at 16 MiB, by NIXL.",
        "rank:0 and rank:1 share a GPU: their messages between GPU buffers cross no link between GPUs. Rates above "
        "1676 GB/s are of its L2 cache: copies in its memory reach no more.",
    ],
    "h200x2-ranks": [
        "2 ranks, at 4 GiB: all_reduce 339.4 GB/s.",
        "2 ranks, at 1 GiB: all_gather ~274.3 GB/s, broadcast 366.8 GB/s, send_receive 361.8 GB/s.",
        "Single calls by NCCL, 2 ranks, at 8 B: reduce ~20.09 µs, send_receive ~25.43 µs.",
    ],
    "h200x1-collectives-all_reduce": ["1 rank: there is no other rank, so no data crosses a link"],
    "h200x2-collectives-all_reduce": ["Bus bandwidth by NCCL, 2 ranks, at 4 GiB: all_reduce 341.1 GB/s."],
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_the_summary_of_a_suite_says_what_it_found(name: str) -> None:
    text = text_of(run_of(name))
    assert [wanted for wanted in FOUND[name] if wanted not in text] == []
    assert "Best rates" not in text


@pytest.mark.parametrize("name", FOUND)
def test_answers_keep_the_summary_within_its_lines_and_its_labels_within_their_column(name: str) -> None:
    run = run_of(name)
    assert summary(run, width=96, colour=False).count("\n") < MOST_LINES
    labels = [section.label for section in sections(run, Output.TERMINAL) if section.answers]
    assert labels
    assert all(0 < len(label) < 10 for label in labels)


def test_the_page_has_the_same_answers_on_its_first_screen() -> None:
    run = run_of("h100x1-contention-a")
    first = next(plain(one.answers[0]) for one in sections(run, Output.PAGE) if one.anchor == "contention")
    text = page(run)
    name, _, rest = first.partition(":")
    place = text.index(name)
    assert text.index('id="summary"') < place < text.index('id="contention"')
    assert with_signs(rest.split(",")[0].strip()) in text[place : place + 200]


def test_a_rate_below_half_of_an_equal_share_is_called_a_collapse() -> None:
    run = run_of("h100x1-sp-10")
    slowed = []
    for point in run.points:
        flows = list(point.flows)
        if point.params.get("tasks") == "16":
            flows[0] = msgspec.structs.replace(flows[0], gbps=(flows[0].gbps or 0.0) / 3)
        slowed.append(msgspec.structs.replace(point, flows=flows))
    assert "Up to 16 tasks for each GPU: the rate collapses." in text_of(dataclasses.replace(run, points=slowed))


def test_penalties_within_the_drift_are_not_stated() -> None:
    text = text_of(run_of("h100x1-sp-9"))
    assert "Transfers beside messages: the rate changes by no more than the drift." in text


def test_clients_that_ran_alone_only_say_nothing_of_sharing() -> None:
    run = run_of("h100x1-sharing")
    alone = [point for point in run.points if point.params.get("clients") == "1"]
    assert "Sharing" not in text_of(dataclasses.replace(run, points=alone))


def test_no_work_is_named_where_none_clearly_slows_another() -> None:
    run = run_of("h100x1-contention-a")
    calm = [point for point in run.points if point.benchmark == "contended_message"]
    assert "Slowdown No kind of work clearly slows another one." in text_of(dataclasses.replace(run, points=calm))


def test_a_modelled_summary_names_the_operations_that_were_not_compared_with_hardware(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    globs = [f"contended_h2d/*gpu:0*beside={beside}" for beside in ("none", "h2d")]
    assert main(["run", "--machine", "h200x1", "--suite", "contention", *only(globs), "-o", str(path), "-q"]) == 0
    text = text_of(read_run(path))
    assert "points modelled." in text and "points measured" not in text
    assert "accuracy unknown for 1 of 1 operation, not compared with hardware: contended_h2d" in text


def test_a_kind_that_did_not_run_beside_each_other_kind_is_not_called_unslowed() -> None:
    run = run_of("h100x1-contention-a")
    few = [one for one in run.points if not (one.benchmark == "contended_message" and one.params["beside"] == "triad")]
    text = text_of(dataclasses.replace(run, points=few))
    assert "Not clearly slowed by other work: messages by socket (1 of 13 kinds)." in text


def test_a_long_reason_loses_what_it_has_in_brackets_and_keeps_what_follows() -> None:
    run = run_of("h100x1-mpi")
    reason = f"rank 2 (process 7 (of 9) on vm) has ended; a worker last ended while it measured {'x' * 90}"
    failed = [msgspec.structs.replace(run.points[0], status="failed", reason=reason, median_s=None)]
    assert "1 point failed: rank 2 has ended; a worker last" in text_of(dataclasses.replace(run, points=failed))


def test_the_note_explains_the_sign_where_only_an_answer_has_it() -> None:
    assert "~ marks a value that missed it" in text_of(run_of("h100x1-contention-a"))
    run = run_of("h100x1-bystander")
    assert "~" not in text_of(dataclasses.replace(run, points=[one for one in run.points if one.status == "ok"]))


def test_the_blocks_that_slow_products_most_are_named_with_the_ratio_and_its_interval() -> None:
    text = text_of(run_of("h100x1-bystander"))
    assert "slowed most by 32 blocks that poll, gpu:0 → numa:0: ~×3.54 [2.52, 4.86] of the time alone" in text


@pytest.mark.parametrize(("measured", "names"), [(1, True), (3, False)])
def test_the_reason_is_named_where_more_points_are_not_supported_than_measured(measured: int, names: bool) -> None:
    run = run_of("h100x1-mpi")
    run.points[:] = [point for point in run.points if point.median_s is not None][: measured + 2]
    for point in run.points[measured:]:
        point.status, point.reason, point.median_s = "unsupported", "NCCL cannot be used: pip install brings it", None
    text = " ".join(text_of(run).split())
    assert "2 not supported" in text
    assert ("not supported, 2 points: NCCL cannot be used: pip install brings it" in text) == names


def test_points_that_were_too_short_for_the_clock_are_not_said_to_have_failed_and_the_cure_is_named() -> None:
    run = run_of("h200x2-putget")
    assert verdict(run, []) == "424 points measured. 5 points were too short for the clock. 1 warning."
    text = text_of(run)
    assert "5 points have no value, too short for the clock: measure again with more --rounds." in text
    assert "failed" not in text
    shown = page(run)
    assert '<a href="#trust">5 points were too short for the clock</a>' in shown
    assert "5 too short for the clock" in shown and "5 failed" not in shown


@pytest.mark.parametrize(
    ("cpus_of_ranks", "hosts", "cure"),
    [
        ([range(16)] * 16, ["vm"], "16 ranks on vm share 16 CPUs and wait for each other; give each rank a core"),
        ([[0, 1], [0, 1]], ["vm"], "2 ranks on vm share 2 CPUs and wait for each other"),
        ([[0], [1]] * 2, ["a", "a", "b", "b"], "a rank with one CPU starts late, because linkscope shares it"),
        ([[number] for number in range(16)], ["vm"], "measure again with more --rounds"),
        ([range(16)] * 15, ["vm"], "measure again with more --rounds"),
    ],
)
def test_ranks_that_share_all_cpus_are_the_named_cause_of_points_that_were_too_short(
    cpus_of_ranks: list[list[int]], hosts: list[str], cure: str
) -> None:
    run = run_of("h100x1-mpi")
    ranks = [
        {"rank": number, "host": host, "numa": "numa:0", "cpus": list(cpus)}
        for number, (cpus, host) in enumerate(zip(cpus_of_ranks, itertools.cycle(hosts), strict=False))
    ]
    run.header.machine["mpi"] = run.header.machine["mpi"] | {"ranks": ranks}
    short = next(point for point in run.points if point.benchmark == "rank_rate")
    short.status, short.reason, short.median_s = "failed", f"{TOO_SHORT}: the batch took no longer", None
    assert f"1 point has no value, too short for the clock: {cure}" in text_of(run)
    assert cure in page(run)


@pytest.mark.parametrize("way", ["staged", "none"])
def test_ranks_with_one_cpu_are_named_only_where_a_message_is_staged_by_their_threads(way: str) -> None:
    run = run_of("h100x1-mpi")
    for rank in run.header.machine["mpi"]["ranks"]:
        rank["cpus"] = [rank["rank"]]
    of_way = [point for point in run.points if (point.params.get("way") == "staged") == (way == "staged")]
    listed = [point for point in of_way if point.params.get("way") in (None, way)]
    said = page(dataclasses.replace(run, points=listed))
    assert ("which its threads share" in said) == (way == "staged")


def test_a_failed_point_beside_one_that_was_too_short_is_still_said_to_have_failed() -> None:
    run = run_of("h200x2-putget")
    listed = [*run.points]
    place = next(index for index, point in enumerate(listed) if point.status == "failed")
    listed[place] = msgspec.structs.replace(listed[place], reason="wrong data: byte 3 of 16")
    text = verdict(dataclasses.replace(run, points=listed), [])
    assert text == "424 points measured. 1 point failed. 4 points were too short for the clock. 1 warning."
