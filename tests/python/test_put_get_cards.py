"""Puts between hosts by network cards, on models: the relations of Klenk et al., and what a GPU accesses."""

import functools
from dataclasses import dataclass

import put_get_cards as cards
import pytest
from put_get_cards import FITTED, MIB, PREDICTED, STATED, Pair

from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

EXTOLL, IB = "klenk-extoll", "klenk-ib"


@functools.cache
def pair(name: str) -> Pair:
    return Pair(name)


@functools.cache
def found(name: str) -> dict[str, cards.Relation]:
    return {one.text: one for one in cards.relations(pair(name))}


@dataclass(frozen=True)
class Known:
    machine: str
    text: str
    value: float
    within: float  # a part of the value
    holds: bool
    basis: str


KNOWN = (
    Known(EXTOLL, "time of a GPU that posts over the host's, 4 B", 1.8, 0.1, True, FITTED),
    Known(IB, "time of a GPU that posts over the host's, 4 B", 1.8, 0.1, True, FITTED),
    Known(EXTOLL, "polling GPU memory over the host's help, 4 B", 0.92, 0.06, True, FITTED),
    Known(EXTOLL, "polling over posting, notifications, 4 B", 30, 0.1, False, PREDICTED),
    Known(EXTOLL, "polling over posting, GPU memory, 4 B", 22.5, 0.1, False, PREDICTED),
    Known(EXTOLL, "these two over each other, 64 MiB", 1, 0.01, True, PREDICTED),
    Known(EXTOLL, "KiB from which the GPU needs the host's time", 64, 0, False, PREDICTED),
    Known(EXTOLL, "GB/s of a stream of 1 MiB", 1, 0.01, True, STATED),
    Known(IB, "GB/s of a stream of 1 MiB", 1, 0.01, True, STATED),
    Known(EXTOLL, "rate at 64 MiB over that at 1 MiB", 0.7, 0.02, True, STATED),
    Known(IB, "rate at 64 MiB over that at 1 MiB", 0.7, 0.02, True, STATED),
    Known(EXTOLL, "rate of 32 blocks over 32 kernels", 1, 0.05, True, PREDICTED),
    Known(IB, "rate of 32 blocks over 32 kernels", 1, 0.05, True, PREDICTED),
    Known(EXTOLL, "rate of 1 block over the host's", 0.14, 0.1, True, PREDICTED),
    Known(EXTOLL, "rate of 32 blocks over the slower CPU mode", 0.945, 0.03, True, FITTED),
    Known(IB, "rate of 32 blocks over the host's", 1.07, 0.1, True, FITTED),
    Known(EXTOLL, "with help: rate of 32 connections over 4", 1, 0.03, True, PREDICTED),
    Known(IB, "with help: rate of 32 connections over 4", 1, 0.03, True, PREDICTED),
)


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: f"{known.machine}: {known.text}")
def test_a_relation_of_the_paper_holds_or_does_not_hold_with_this_value_kl_10(known: Known) -> None:
    relation = found(known.machine)[known.text]
    assert relation.value == pytest.approx(known.value, rel=known.within)
    assert (relation.holds, relation.basis) == (known.holds, known.basis)


def test_each_relation_of_the_page_has_its_known_value() -> None:
    assert {(name, text) for name in cards.QUEUES for text in found(name)} == {(one.machine, one.text) for one in KNOWN}


def test_the_rate_falls_beyond_1_mib_in_every_mode_kl_10() -> None:
    for name in cards.QUEUES:
        for mode in cards.MODES:
            rates = pair(name).streams[mode]
            assert rates[4 * MIB] < 0.75 * rates[MIB], (name, mode)


def test_the_modes_meet_where_the_bytes_take_most_of_the_time_kl_1() -> None:
    for name in cards.QUEUES:
        of = pair(name).trips
        assert max(of[mode][64 * MIB] for mode in of) < 1.001 * min(of[mode][64 * MIB] for mode in of)


def test_more_blocks_bring_more_messages_until_the_card_is_busy_and_one_cpu_thread_serves_all_kl_3() -> None:
    rates = pair(IB).rates
    assert rates["direct"][8] == pytest.approx(8 * rates["direct"][1], rel=0.02)
    assert rates["direct"][32] < 32 * rates["direct"][1]
    assert rates["assisted"][32] < rates["host"][32]  # the thread also exchanges words with the GPU


@pytest.mark.parametrize(
    "name, mode, queue, reads, writes",
    [
        (EXTOLL, "notified", "card", 400, 900),  # two words of each of two notifications; a descriptor, and six words
        (EXTOLL, "direct", "card", 0, 300),  # the descriptor alone: the paper's 303
        (IB, "direct", "host", 200, 1200),  # a completion; an element of 64 B, the doorbell, three words
        (IB, "direct", "own", 0, 100),  # the doorbell
    ],
)
def test_a_gpu_accesses_host_memory_and_the_card_as_the_mode_says_kl_8_kl_9(
    name: str, mode: str, queue: str, reads: int, writes: int
) -> None:
    assert cards.system_accesses(pair(name), mode, queue) == (reads, writes)
    papers_reads, papers_writes = cards.PAPERS[name, mode, queue][1:]
    assert (reads == 0) == (papers_reads < 100)
    assert papers_writes / 4 < writes < 4 * papers_writes


def test_a_get_takes_the_way_there_and_back_with_one_post_and_one_payload_kl_10() -> None:
    for name in cards.QUEUES:
        of = pair(name)
        for mode in cards.MODES:
            shares = {size: of.gets[mode][size] / of.trips[mode][size] for size in cards.SIZES}
            assert all(0.49 < share < 0.66 for share in shares.values()), (name, mode, shares)
            assert shares[64 * MIB] == pytest.approx(0.5, abs=0.002)
        assert of.gets["host"][4] < of.gets["direct"][4]


def test_the_papers_counts_of_polls_mean_one_time_of_posts_with_which_other_relations_fail_kl_4() -> None:
    posts = cards.post_of_the_papers_polls()
    assert posts == {"notified": pytest.approx(2.6, abs=0.05), "direct": pytest.approx(3.15, abs=0.05)}
    twice, below, notified, direct = cards.relations(Pair(EXTOLL, 2.9))[:4]
    assert (twice.holds, below.holds, notified.holds, direct.holds) == (True, False, True, False)
    assert direct.value == pytest.approx(5.2, rel=0.05) and below.value == pytest.approx(1.25, rel=0.05)


def test_the_gpus_additional_time_hardly_depends_on_the_size_kl_10() -> None:
    of = pair(EXTOLL).trips
    more = [of["notified"][size] - of["host"][size] for size in cards.SIZES]
    assert min(more) > 6.5e-6 and max(more) < 8e-6


def test_queues_that_a_pair_does_not_have_are_refused_with_a_reason() -> None:
    for name, queue, said in ((EXTOLL, "host", "in its registers"), (IB, "card", "from rings in memory")):
        with pytest.raises(AssertionError, match=said):
            pair(name).seconds({("direct", 64): pair(name).point("put_ping_pong", "direct", 64, queue=queue)})
