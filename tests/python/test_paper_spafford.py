"""Machine files of Keeneland's nodes against the paper of Spafford et al. (items SP of docs/notes/papers.md)."""

import pytest

from linkscope.machine.model import load
from linkscope.run.lasting import lasting_seconds
from linkscope.runfile import PointId
from paper_machines import Number, check, penalty, rate, rates, raw
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]


def sl390_penalties() -> list[float]:
    h2d = penalty(rate("sl390", "numa:0 > gpu:0"), rate("sl390", "numa:1 > gpu:0"))
    d2h = penalty(rate("sl390", "gpu:0 > numa:0"), rate("sl390", "gpu:0 > numa:1"))
    return [h2d, d2h, (h2d + d2h) / 2]


def of_busiest_task(tasks: int) -> float:
    """The slowest task's rate with this many tasks per GPU of sl390, relative to one task per GPU."""
    once = ("numa:0 > gpu:0", "numa:1 > gpu:1", "numa:1 > gpu:2")
    return min(rates("sl390", *once * tasks)) / min(rates("sl390", *once))


def beside(sets: int, threads: str) -> tuple[list[float], list[float]]:
    """GB/s of transfers on sl390, and microseconds of messages of 64 KiB beside them, by one thread or two a set."""
    params = {"at": "both", "message": "64KiB", "messages": "each", "sets": str(sets)}
    params |= {"threads": "one"} if threads == "one" else {}
    size = 64 << 20
    ends = ("numa:0", "pinned", "gpu:0", "device")
    point = PointId("tasks", "ce", *ends, size, tuple(sorted(params.items())))
    found = lasting_seconds(load("sl390"), [point])[str(point)]
    assert not isinstance(found, str), found
    return [size / 1e9 / each for each in found[:sets]], [1e6 * each for each in found[sets:]]


def longer_us(sets: int) -> float:
    """How much longer messages take by one thread, on average over the sets."""
    one, two = (beside(sets, threads)[1] for threads in ("one", "two"))
    return (sum(one) - sum(two)) / sets


NUMBERS = [
    Number("SP-2: H2D", lambda: sl390_penalties()[0], 13, is_penalty=True),
    Number("SP-2: D2H", lambda: sl390_penalties()[1], 31, is_penalty=True),
    Number("SP-2: mean", lambda: sl390_penalties()[2], 22, is_penalty=True),
    Number("SP-12: one x16 link", lambda: raw("dl160", "pcie numa:0->switch:0"), 8),
    Number("SP-14: QPI", lambda: raw("sl390", "sockets numa:0->numa:1"), 12.8),
    Number("SP-14: PCIe", lambda: raw("sl390", "pcie switch:0->gpu:0"), 8),
    Number("SP-10: two tasks a GPU", lambda: of_busiest_task(2), 1 / 2),
    Number("SP-10: three tasks a GPU", lambda: of_busiest_task(3), 1 / 3),
    Number("SP-11: one set", lambda: longer_us(1), 5),
    Number("SP-11: two sets", lambda: longer_us(2), 5),
]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number.item)
def test_a_number_of_the_paper_is_reproduced(number: Number) -> None:
    check(number)


def test_sl390_loses_more_to_the_wrong_socket_than_from_it_sp_2() -> None:
    h2d, d2h, _ = sl390_penalties()
    assert d2h > 2 * h2d
    near = [rate("sl390", "numa:1 > gpu:2"), rate("sl390", "gpu:2 > numa:1")]
    assert near[0] < near[1] < 1.1 * near[0], "D2H is slightly faster from the right socket"
    mirrored = [rate("sl390", "numa:0 > gpu:1"), rate("sl390", "gpu:1 > numa:0")]
    assert mirrored == pytest.approx([rate("sl390", "numa:1 > gpu:0"), rate("sl390", "gpu:0 > numa:1")], rel=0.01)


def test_concurrent_gpus_share_one_link_on_dl160_and_two_iohs_on_sl390_sp_12() -> None:
    single = rate("dl160", "numa:0 > gpu:0")
    shared = rates("dl160", *(f"numa:0 > gpu:{n}" for n in range(4)))
    assert sum(shared) == pytest.approx(single, rel=0.05) and sum(shared) < 8
    assert shared == pytest.approx([single / 4] * 4, rel=0.05)
    for to in (True, False):
        pairs = [("numa:0", "gpu:0"), ("numa:1", "gpu:1"), ("numa:1", "gpu:2")]
        dual = rates("sl390", *(" > ".join(pair if to else pair[::-1]) for pair in pairs))
        assert sum(dual) > 2 * 6 > 8 > sum(shared)
        assert dual[0] > dual[1], "two GPUs share the QPI of their IOH"


def test_one_thread_for_transfers_and_messages_costs_bandwidth_with_three_sets_only_sp_11() -> None:
    one, two = (beside(1, threads)[0] for threads in ("one", "two"))
    assert one == pytest.approx(two, rel=0.005)
    one, two = (beside(3, threads)[0] for threads in ("one", "two"))
    assert sum(two) > 1.02 * sum(one) and longer_us(3) > 5
