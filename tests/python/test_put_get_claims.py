"""The conclusions of Klenk, Oden and Froning, on a run of two H200s and on points changed by hand."""

import dataclasses
from pathlib import Path

import msgspec
import put_get_claims as tool
import pytest

from linkscope.report.put_get_claims import Claim, best_claims, claims
from linkscope.report.run_view import RunView
from linkscope.report.sections import put_get
from linkscope.runfile import Point, Run, read_run
from test_report_put_get import RUN, claim, measured, only, series, timed

NOTE = Path(__file__).parents[2] / "docs" / "notes" / "put-get-evidence.md"


def test_the_papers_conclusions_that_hold_on_two_h200s() -> None:
    assert {one.text: one.holds for one in claims(measured())} == {
        "A GPU that drives messages needs more time than the host": False,
        "The host's help costs more than polling in GPU memory": True,
        "Polling in host memory costs more than polling in GPU memory": True,
        "GPU and host change places at about 2 KiB": False,
        "The rate falls beyond 1 MiB": False,
        "Polling takes longer than posting": None,
        "Polling over posting is higher with queues in host than in GPU memory": None,
        "Polling over posting is equal for large messages, wherever the queue lies": None,
        "Blocks of one kernel and kernels of one block reach the same rate": None,
        "One block sends fewer messages a second than the host": False,
        "Many blocks reach the rate of the host": None,
        "The rate with the host's help is flat beyond 4 connections": None,
        "A small footprint saves time: payload and number in one word": None,
        "Threads that move a large message together beat one thread": True,
        "Words that stay off the host link save time": True,
    }
    assert claim(measured(), "A GPU that").evidence.startswith("8 B: notified 6.296 us, host 16.41 us; ratio 0.384 [")
    assert "ran together for only 55 % and 3.1 %" in claim(measured(), "The rate with").evidence


def test_a_conclusion_turns_with_the_times() -> None:
    slow = only(lambda one: True, lambda one: timed(one, 10) if one.params.get("control") == "notified" else one)
    assert claim(slow, "A GPU that").holds is True
    large = only(
        lambda one: True,
        lambda one: timed(one, 10) if one.bytes > 1 << 20 and one.params.get("control") == "direct" else one,
    )
    assert claim(large, "The rate falls").holds is True

    def together(point: Point) -> Point:
        return msgspec.structs.replace(point, guards={**point.guards, "joint_overlap": 0.99})

    assert claim(only(lambda one: True, together), "The rate with").holds is False  # 0.49 and 1.8 M/s


def test_modes_are_compared_on_the_smallest_messages_that_the_run_has_in_both() -> None:
    no_help_at_8 = only(lambda one: one.bytes != 8 or one.params.get("control") != "assisted")
    assert claim(no_help_at_8, "The host's help").evidence.startswith("64 B: assisted ")
    assert claim(no_help_at_8, "Polling in host memory").evidence.startswith("8 B: notified ")


def test_a_run_without_points_of_a_conclusion_says_so() -> None:
    few = only(
        lambda one: one.bytes == 8 and one.params.get("control") != "assisted" and "connections" not in one.params
    )
    assert claim(few, "The host's help") == Claim(
        "KL-10", "The host's help costs more than polling in GPU memory", None, "the run lacks mode assisted", False
    )
    assert {claim(few, start).holds for start in ("The rate falls", "The rate with")} == {None}


def together(point: Point) -> Point:
    return msgspec.structs.replace(point, guards={**point.guards, "joint_overlap": 0.99})


def test_rates_of_the_gpu_and_the_host_are_compared_on_connections_that_both_have() -> None:
    run = only(lambda one: True, together)
    one, many = claim(run, "One block sends"), claim(run, "Many blocks reach")
    assert one.holds is False and one.evidence == "direct 0.461 M/s by 1 connection, host 0.216 M/s by 1 connection"
    assert many.holds is True and many.evidence.startswith("direct ") and many.evidence.endswith(" by 32 connections")

    def slow(point: Point) -> Point:
        return timed(together(point), 1000) if point.engine == "sm" else together(point)

    run = only(lambda one: True, slow)
    assert (claim(run, "One block sends").holds, claim(run, "Many blocks reach").holds) == (True, False)
    run = only(lambda one: one.engine == "sm")
    assert claim(run, "One block sends").answer == "cannot be tested"


def test_paths_between_gpus_decide_before_those_within_a_gpu_which_have_their_place_in_the_evidence() -> None:
    """The run with copies of its points within a GPU, all of them 100 times slower and before the others."""

    def within(point: Point) -> Point:
        return timed(msgspec.structs.replace(together(point), src="gpu:0", dst="gpu:0"), 100)

    between = only(lambda one: one.src.startswith("gpu") and one.dst.startswith("gpu"), together)
    inside = [within(point) for point in between.points]
    both = claims(dataclasses.replace(between, points=[*inside, *between.points]))
    assert both == claims(between) and sum(one.holds is not None for one in both) > 9
    alone = [one for one in claims(dataclasses.replace(between, points=inside)) if one.holds is not None]
    assert alone and all(one.evidence.endswith(", between two kernels of gpu:0") for one in alone)


def test_the_size_at_which_gpu_and_host_change_places_is_found() -> None:
    def crossing(point: Point) -> Point:
        """The host becomes slow up to 1 KiB."""
        return timed(point, 0.01 if point.bytes > 1024 else 100) if point.engine == "ce" and point.flows else point

    found = claim(only(lambda one: True, crossing), "GPU and host change")
    assert found.holds and found.evidence == "round trips: GPU from 8 B, host from 4 KiB"
    assert claim(only(lambda one: one.bytes == 8), "GPU and host change").answer == "cannot be tested"


def test_sizes_far_from_those_of_a_conclusion_do_not_answer_it() -> None:
    far = only(lambda one: one.bytes in (8, 4 << 20))
    crossing = claim(far, "GPU and host change")
    assert crossing.answer == "not known"
    assert crossing.evidence == "round trips: GPU from 8 B, host from 4 MiB, no size between"
    assert claim(far, "The rate falls").answer == "cannot be tested"


def through_descriptors(round_trip: float) -> Run:
    some = series(measured(), "put_ping_pong").messages[0].modes["direct"]
    post = msgspec.structs.replace(some, benchmark="post", dst="numa:0", params={"descriptor": "32"})
    trip = msgspec.structs.replace(some, benchmark="queued_put_ping_pong", params={"descriptor": "32"})
    return dataclasses.replace(measured(), points=[post, timed(trip, round_trip)])


@pytest.mark.parametrize("round_trip, holds, times", [(11, True, "10"), (1.5, False, "0.5")])
def test_polling_is_compared_with_posting_through_descriptors_kl_4(round_trip: float, holds: bool, times: str) -> None:
    run = through_descriptors(round_trip)
    found = claim(run, "Polling takes longer")
    assert found == Claim("KL-4", found.text, holds, f"8 B: time of polling over that of posting: {times}")
    section = put_get.section(RunView(run))
    assert section is not None and f"over that of posting: {times}" in repr(section)


def queues(nbytes: int, host: float, own: float) -> Run:
    """Round trips through descriptors in both memories, as multiples of the time of a post."""
    some = series(measured(), "put_ping_pong").messages[0].modes["direct"]
    points = []
    for ring, end, times in (("host", "numa:0", host), ("own", some.src, own)):
        points.append(msgspec.structs.replace(some, benchmark="post", dst=end, bytes=0, params={"descriptor": "32"}))
        params = {"descriptor": "32", "queue": ring}
        trip = msgspec.structs.replace(some, benchmark="queued_put_ping_pong", bytes=nbytes, params=params)
        points.append(timed(trip, times))
    return dataclasses.replace(measured(), points=points)


@pytest.mark.parametrize(
    "nbytes, start, host, own, answer",
    [
        (8, "Polling over posting is higher", 11, 3.5, "holds"),
        (8, "Polling over posting is higher", 3.5, 11, "does not hold"),
        (1 << 20, "Polling over posting is higher", 11, 3.5, "cannot be tested"),
        (8, "Polling over posting is higher", 2e6, 3.5, "not known"),  # one post takes no time that shows
        (1 << 20, "Polling over posting is equal", 101, 99, "holds"),
        (1 << 20, "Polling over posting is equal", 121, 99, "does not hold"),
    ],
)
def test_polling_over_posting_is_compared_between_the_places_of_queues_kl_4(nbytes, start, host, own, answer) -> None:
    found = claim(queues(nbytes, host, own), start)
    assert found.answer == answer
    assert (
        answer in ("cannot be tested", "not known")
        or f"{host - 1:.3g} in host memory, {own - 1:.3g} in" in found.evidence
    )


@pytest.mark.parametrize("factor, answer", [(1.05, "holds"), (1.3, "does not hold")])
def test_blocks_of_one_kernel_are_compared_with_kernels_of_one_block_kl_10(factor: float, answer: str) -> None:
    def of_kernels(point: Point) -> Point:
        return timed(msgspec.structs.replace(together(point), params={**point.params, "launch": "each"}), factor)

    blocks = only(lambda one: one.engine == "sm" and one.params.get("connections") == "4", together)
    kernels = [of_kernels(point) for point in blocks.points]
    found = claim(dataclasses.replace(blocks, points=[*blocks.points, *kernels]), "Blocks of one kernel")
    assert found.answer == answer and found.evidence.endswith(", 4 connections")
    assert claim(blocks, "Blocks of one kernel").answer == "cannot be tested"


@pytest.mark.parametrize("nbytes, answer", [(8, "holds"), (16384, "cannot be tested")])
def test_a_small_footprint_is_judged_on_small_messages_only_kl_12(nbytes: int, answer: str) -> None:
    some = timed(series(measured(), "put_ping_pong").messages[0].modes["direct"], 1)
    both = [
        msgspec.structs.replace(some, bytes=nbytes, params={**some.params, "word": word})
        for word in ("separate", "packed")
    ]
    run = dataclasses.replace(measured(), points=[timed(both[0], 2), both[1]])
    assert claim(run, "A small footprint").answer == answer


def test_a_mode_that_the_run_has_on_another_path_only_is_lacking_on_the_judged_path() -> None:
    run = read_run(RUN.with_name("h100x1-putget.jsonl.gz"))  # it has mode notified to numa:0
    found = claim(run, "A GPU that drives messages")
    assert (found.answer, found.evidence) == (
        "cannot be tested", "the run lacks mode notified, between two kernels of gpu:0"
    )  # fmt: skip


def test_of_several_runs_the_first_with_an_answer_counts() -> None:
    best = {one.text: one for one in best_claims([through_descriptors(11), measured()])}
    assert best["Polling takes longer than posting"].holds is True
    assert best["A GPU that drives messages needs more time than the host"].holds is False
    assert best["A small footprint saves time: payload and number in one word"].answer == "cannot be tested"
    assert [one.item for one in best.values()].count("KL-12") == len(("footprint", "threads", "traffic"))


def test_the_command_prints_what_the_note_has(capsys: pytest.CaptureFixture[str]) -> None:
    names = ("h100x1-putget", "h100x1-putget-queues", "h100x1-putget-within", "h100x1-putget-posts", "h100x4-puts")
    paths = [str(RUN.with_name(f"{name}.jsonl.gz")) for name in (*names, "h100x1-packed")]
    assert tool.main(paths) == 0
    conclusions, targets = capsys.readouterr().out.rstrip().split("\n\n")
    assert conclusions in NOTE.read_text() and targets in NOTE.read_text()
    assert tool.main(["/dev/null"]) == 1
    assert capsys.readouterr().err.startswith("put_get_claims.py: ")
