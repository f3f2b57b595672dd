"""Section 'Put and get: who should drive', on a run of two H200s, and on points changed by hand."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from linkscope.cli.main import main
from linkscope.report.put_get import Series, all_series, bystanders, connections, relaunched
from linkscope.report.put_get_claims import Claim, claims
from linkscope.report.run_view import RunView
from linkscope.report.section import Items, Output, plain
from linkscope.report.sections import put_get
from linkscope.runfile import Point, Run, read_run

RUN = Path(__file__).parents[2] / "results" / "h200x2-putget.jsonl.gz"
BETWEEN = ("gpu:0", "gpu:1")


@functools.cache
def measured() -> Run:
    return read_run(RUN)


def only(keep: Callable[[Point], bool], change: Callable[[Point], Point] = lambda point: point) -> Run:
    run = measured()
    return dataclasses.replace(run, points=[change(point) for point in run.points if keep(point)])


def timed(point: Point, factor: float) -> Point:
    """The point with all its times multiplied."""
    flows = [
        msgspec.structs.replace(
            flow,
            median_s=factor * (flow.median_s or 0.0),
            round_medians_s=[factor * seconds for seconds in flow.round_medians_s],
        )
        for flow in point.flows
    ]
    return msgspec.structs.replace(point, median_s=factor * (point.median_s or 0.0), flows=flows)


def series(run: Run, benchmark: str, ends: tuple[str, str] = BETWEEN) -> Series:
    return next(one for one in all_series(run) if (one.benchmark, one.src, one.dst) == (benchmark, *ends))


def claim(run: Run, start: str) -> Claim:
    return next(one for one in claims(run) if one.text.startswith(start))


def test_a_stream_with_several_messages_at_once_is_judged_and_shown_by_the_time_of_one() -> None:
    def is_stream(point: Point) -> bool:
        known = point.params.get("control"), point.params.get("connections"), point.params.get("threads")
        return point.benchmark == "put" and point.dst == "gpu:1" and point.bytes == 1 << 20 and known in (
            ("direct", "1", "1024"), ("host", "1", None))  # fmt: skip

    run = only(is_stream)
    (before,) = [point for point in run.points if point.params["control"] == "direct"]
    faster = msgspec.structs.replace(timed(before, 0.5 * 4), params={**before.params, "at_once": "4"})
    (message,) = series(dataclasses.replace(run, points=[*run.points, faster]), "put").messages
    assert message.modes["direct"] is faster
    assert (message.ratio or 0) == pytest.approx(2 * (series(run, "put").messages[0].ratio or 0))
    assert message.interval and message.interval.low <= (message.ratio or 0) <= message.interval.high


@pytest.mark.parametrize(
    "benchmark, ends, advice",
    [
        ("put_ping_pong", BETWEEN, "GPU up to 256 KiB, host from 1 MiB"),
        ("put_ping_pong", ("gpu:0", "numa:0"), "GPU up to 256 KiB, either at 1 MiB, host from 4 MiB"),
        ("get_ping_pong", BETWEEN, "GPU up to 256 KiB, host from 1 MiB"),
        ("put", BETWEEN, "GPU up to 64 KiB, host from 256 KiB"),
        ("put", ("gpu:0", "numa:0"), "either up to 16 KiB, host from 64 KiB"),
        ("get", ("numa:0", "gpu:0"), "either up to 16 KiB, host from 64 KiB"),
    ],
)
def test_the_advice_names_the_driver_of_each_size(benchmark: str, ends: tuple[str, str], advice: str) -> None:
    assert series(measured(), benchmark, ends).advice == advice


def test_the_fastest_mode_of_the_gpu_and_of_the_host_are_compared_with_an_interval() -> None:
    small = series(measured(), "put_ping_pong").messages[0]
    times = {mode: point.median_s for mode, point in small.modes.items()}
    assert small.bytes == 8 and set(times) == {"direct", "notified", "host", "assisted"}
    assert small.ratio == pytest.approx(min(times["host"], times["assisted"]) / min(times["direct"], times["notified"]))
    assert small.interval and small.interval.low < small.ratio < small.interval.high
    assert small.driver == "GPU"


def test_the_number_of_threads_that_is_fastest_counts() -> None:
    small = series(measured(), "put_ping_pong").messages[0]
    of = [point for point in measured().points if point.benchmark == "put_ping_pong" and point.bytes == 8]
    direct = [point for point in of if point.dst == "gpu:1" and point.params.get("control") == "direct"]
    assert len(direct) > 1 and small.modes["direct"].median_s == min(point.median_s or 0 for point in direct)


def test_a_mode_of_which_only_one_thread_was_measured_is_not_judged() -> None:
    def keep(point: Point) -> bool:
        return point.bytes != 4096 or point.engine == "ce" or point.params.get("threads") == "1"

    small = next(one for one in series(only(keep), "put_ping_pong").messages if one.bytes == 4096)
    assert set(small.modes) == {"host", "assisted"} and small.driver == ""


def test_one_driver_at_all_sizes_is_said_as_such() -> None:
    slow = only(lambda one: True, lambda one: timed(one, 1000) if one.engine == "ce" and one.flows else one)
    assert series(slow, "put_ping_pong").advice == "GPU at all sizes, 8 B to 64 MiB"
    small = only(lambda one: one.bytes == 8, lambda one: timed(one, 1000) if one.engine == "ce" and one.flows else one)
    assert series(small, "put_ping_pong").advice == "GPU at 8 B, the only size"


def test_a_run_of_one_round_does_not_know_the_driver_however_much_the_times_differ() -> None:
    def of_one_round(point: Point) -> Point:
        flows = [msgspec.structs.replace(flow, round_medians_s=flow.round_medians_s[:1]) for flow in point.flows]
        return msgspec.structs.replace(point, flows=flows)

    run = only(lambda one: True, of_one_round)
    assert series(run, "put_ping_pong").advice == "not known at all sizes, 8 B to 64 MiB"
    crossing = claim(run, "GPU and host change")
    assert (crossing.answer, crossing.evidence) == ("not known", "round trips: not known from 8 B")


def test_a_single_size_of_a_driver_stands_for_no_other_size() -> None:
    run = only(lambda one: one.bytes in (8, 4 << 20))
    assert series(run, "put_ping_pong").advice == "GPU at 8 B, host at 4 MiB"


def test_modes_of_one_driver_alone_give_no_advice() -> None:
    run = only(lambda one: one.engine == "sm")
    assert all(one.advice == "" for one in all_series(run))
    assert put_get.section(RunView(run)) is None


def test_a_rate_is_the_sum_over_connections_and_counts_only_if_they_ran_together() -> None:
    rates = {(one.mode, one.count): one for one in connections(measured()) if one.path == BETWEEN and
             one.point.benchmark == "put"}  # fmt: skip
    four, sixteen = rates["direct", 4], rates["direct", 16]
    of = [flow.median_s for flow in four.point.flows if flow.role == "measured"]
    assert len(of) == 4 and four.per_s == pytest.approx(sum(1 / (seconds or 1) for seconds in of))
    assert four.counts and four.together > 0.85
    assert not sixteen.counts and sixteen.together == pytest.approx(0.48, abs=0.01)


def test_packed_words_have_rows_of_their_own_and_a_conclusion() -> None:
    def packed(point: Point) -> Point:
        """Blocks of 32 threads become faster ones with packed words."""
        if point.params.get("threads") != "32" or not point.flows:
            return point
        return timed(msgspec.structs.replace(point, params={**point.params, "word": "packed"}), 0.25)

    run = only(lambda one: True, packed)
    small = claim(run, "A small footprint")
    assert small.holds and small.evidence.startswith("8 B: separate words 4.004 us, packed words ")
    assert series(run, "put_ping_pong").messages[0].modes["direct"].params["word"] == "packed"
    assert {one.form for one in connections(run) if one.mode == "direct"} == {"direct, packed"}
    section = put_get.section(RunView(run))
    assert section is not None and "direct, packed" in repr(section)


@pytest.mark.parametrize("words", [["--summary=full"], ["--markdown", "{}/out"], ["-o", "{}/out"]])
def test_terminal_markdown_and_page_show_the_section(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(RUN), *(word.format(tmp_path) for word in words)]) == 0
    file = tmp_path / "out"
    shown = " ".join((file.read_text() if file.exists() else capsys.readouterr().out).split())
    title = "Put/get: who should drive" if "-o" in words else "Put and get: who should drive"
    for text in (title, "GPU up to 64 KiB, host from 256 KiB", "does not hold", "-, 48 %"):
        assert text in shown
    assert ("4.1 \\[3.95, 4.21\\]" in shown) == ("--markdown" in words)


def test_messages_of_several_connections_alone_make_no_section() -> None:
    section = put_get.section(RunView(measured()))
    assert section is not None and plain(section.title) == "Put and get: who should drive"
    assert put_get.section(RunView(only(lambda one: one.params.get("connections", "1") != "1"))) is None


def with_more(*points: Point) -> Run:
    return dataclasses.replace(measured(), points=[*measured().points, *points])


def test_relaunched_kernels_stand_beside_those_that_stay_and_in_no_mode() -> None:
    stays = series(measured(), "put_ping_pong").messages[0].modes["direct"]
    again = timed(msgspec.structs.replace(stays, params={**stays.params, "kernel": "relaunched"}), 0.5)
    run = with_more(again)
    (one,) = relaunched(run)
    assert one.before == stays and one.ratio == pytest.approx(0.5)
    assert one.interval and one.interval.low < 0.5 < one.interval.high
    assert series(run, "put_ping_pong").messages[0].modes["direct"] == stays
    section = put_get.section(RunView(run))
    assert section is not None and "A kernel for each message" in repr(section) and "0.5 [" in repr(section)


def test_bystanders_have_a_slowdown_for_each_work_and_number_of_blocks() -> None:
    some = series(measured(), "put_ping_pong").messages[0].modes["direct"]

    def product(factor: float, **params: str) -> Point:
        point = msgspec.structs.replace(some, benchmark="bystander", dst="numa:0", bytes=0, params=params)
        return timed(point, factor)

    run = with_more(
        product(1, beside="none"), product(4, beside="poll"), product(3, beside="post", blocks="16"),
        product(2, beside="post", blocks="4"), product(1.5, beside="post"),
    )  # fmt: skip
    assert [one.ratio for one in bystanders(run)] == pytest.approx([1.5, 2, 3, 4])
    section = put_get.section(RunView(run))
    assert section is not None and "gpu:0, poll" in repr(section) and "1.5 [" in repr(section)
    alone = put_get.section(
        RunView(dataclasses.replace(run, points=[p for p in run.points if p.benchmark == "bystander"]))
    )
    assert alone is not None and "gpu:0, poll" in repr(alone)
    assert bystanders(measured()) == []


def test_the_page_says_each_advice_once_with_its_paths() -> None:
    section = put_get.section(RunView(measured()))
    assert section is not None
    (listed,) = (block for block in section.only(Output.PAGE) if isinstance(block, Items))
    texts = [plain(item.text) for item in listed.items]
    heads = [text.split(": ")[0] for text in texts]
    assert len(set(heads)) == len(heads) == len({one.advice for one in all_series(measured()) if one.advice})
    assert any("gpu:0 → gpu:1 (" in text for text in texts) and all(text.endswith(").") for text in texts)


def test_rates_of_one_kernel_and_of_a_kernel_for_each_block_stand_in_rows_of_their_own() -> None:
    run = read_run(RUN.with_name("h100x1-putget-within.jsonl.gz"))
    rates = {(one.form, one.count): one.per_s for one in connections(run) if one.mode == "direct"}
    assert rates["direct", 16] > 6e6 and rates["direct, a kernel each", 16] < 2e6
    keys = [(*one.path, one.point.benchmark, one.point.bytes, one.form, one.count) for one in connections(run)]
    assert len(keys) == len(set(keys))  # a table of these keys shows each rate
