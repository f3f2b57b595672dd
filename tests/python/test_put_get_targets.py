"""The figures that messages should reach, on invented points: which points count, and when a figure is reached."""

import msgspec
import pytest
from put_get_targets import Target, best_targets, targets

from invented import point, run
from linkscope.runfile import Point

MIB = 1 << 20
WORD = "ping_pong/cpu/numa:0.pinned->gpu:0.pinned/0"
TRIP = "put_ping_pong/sm/gpu:0.device->{}/8?threads=32&word=packed"
COPY, PUT = "d2h/sm/gpu:0.device->numa:0.pinned/{}", "put/sm/gpu:0.device->numa:0.pinned/{}?connections=1"


def stamped(made: Point, p50_s: float, p99_s: float) -> Point:
    first = msgspec.structs.replace(made.flows[0], p50_s=p50_s, p99_s=p99_s)
    return msgspec.structs.replace(made, flows=[first, *made.flows[1:]])


def found(start: str, *points: Point) -> Target:
    (one,) = [one for one in targets(run(list(points))) if one.text.startswith(start)]
    return one


@pytest.mark.parametrize("seconds, answer", [(2.8e-6, "reached"), (2.9e-6, "not reached")])
def test_a_round_trip_with_the_host_is_compared_with_a_bare_word_of_the_same_run(seconds, answer) -> None:
    one = found("8 B to host memory", point(WORD, 2.6e-6), point(TRIP.format("numa:0.pinned"), seconds))
    assert one.answer == answer and f"ratio {seconds / 2.6e-6:.3g}" in one.evidence
    assert found("8 B to host memory", point(WORD, 2.6e-6)).answer == "cannot be tested"


@pytest.mark.parametrize("large_s, answer", [(104e-6, "reached"), (106e-6, "not reached")])
def test_each_size_from_1_mib_counts_for_the_rate_of_puts_to_the_host(large_s, answer) -> None:
    copies = [point(COPY.format(size), seconds) for size, seconds in ((4096, 1e-6), (MIB, 20e-6), (4 * MIB, 100e-6))]
    puts = [point(PUT.format(size), seconds) for size, seconds in ((4096, 9e-6), (MIB, 20e-6), (4 * MIB, large_s))]
    one = found("Stream of puts", *copies, *puts)
    assert one.answer == answer and one.evidence.startswith("1 at 1 MiB, ")


@pytest.mark.parametrize("p99_s, answer", [(1.9e-6, "reached"), (2.1e-6, "not reached")])
def test_the_p99_counts_between_two_gpus_and_not_within_one(p99_s, answer) -> None:
    within = stamped(point(TRIP.format("gpu:0.device"), 0.5e-6), 0.5e-6, 0.6e-6)
    between = stamped(point(TRIP.format("gpu:1.device"), 1.4e-6), 1.4e-6, p99_s)
    assert found("8 B between two GPUs", within, between).answer == answer
    assert found("8 B between two GPUs", within).answer == "cannot be tested"


def test_connections_that_did_not_run_together_have_no_rate() -> None:
    id = "put/sm/gpu:0.device->gpu:1.device/64?connections=16&threads=32"
    together, apart = (point(id, 0.5e-9, guards={"joint_overlap": share}) for share in (0.9, 0.4))
    assert found("Messages of 64 B between", together).answer == "reached"
    assert found("Messages of 64 B between", apart).answer == "cannot be tested"


def test_messages_that_a_connection_sends_at_once_all_count() -> None:
    id = "put/sm/gpu:0.device->gpu:1.device/64?at_once=16&connections=132&word=packed"
    one = found("Messages of 64 B between", point(id, 15e-9))
    assert one.answer == "reached" and one.evidence == "1067 M/s by 132 connections, 16 at once"
    large = f"put/sm/gpu:0.device->gpu:1.device/{4 * MIB}?at_once=4&connections=1"
    assert found("Put between two GPUs, 4 MiB", point(large, 4 * 4 * MIB / 320e9)).evidence == "320 GB/s"


def test_a_figure_is_taken_from_the_run_that_has_its_points() -> None:
    runs = [run([point(WORD, 2.6e-6)]), run([point(WORD, 2.6e-6), point(TRIP.format("numa:0.pinned"), 2.7e-6)])]
    assert best_targets(runs)[0].answer == "reached"
