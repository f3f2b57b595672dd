"""Messages that GPUs put or get, on a model: relations that follow from where words lie and who moves the payload."""

from pathlib import Path

import pytest

from linkscope.cli.main import main
from linkscope.plan import time_of
from linkscope.runfile import Point, PointId, read_run
from test_sim_machines import pytestmark

__all__ = ["pytestmark"]

_BETWEEN = "gpu:0.device->gpu:1.device"


@pytest.fixture(scope="module")
def times(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    """Times of a message or a round trip in seconds, by id."""
    run = tmp_path_factory.mktemp("putget") / "run.jsonl"
    only = [word for name in ("put", "put_ping_pong", "get_ping_pong") for size in (8, 64 << 20)
            for word in ("--only", f"{name}/*/{size}?*")]  # fmt: skip
    assert main(["run", "--machine", "h200x2", "--suite", "putget", "--seed", "3", *only, "-o", str(run)]) == 0
    points = read_run(run).points
    in_turns = {point.id for point in points if point.params.get("way") == "processes"}
    assert {point.id for point in points if point.status not in ("ok", "missed_precision")} == in_turns
    return {point.id: point.median_s for point in points if point.median_s}


def _trip(times: dict[str, float], way: str, engine: str, nbytes: int, params: str, path: str = _BETWEEN) -> float:
    return times[f"{way}_ping_pong/{engine}/{path}/{nbytes}?{params}"]


def test_words_in_host_memory_cost_gpus_time(times: dict[str, float]) -> None:
    direct, notified = (
        _trip(times, "put", "sm", 8, f"control={control}&threads=1024&word=separate")
        for control in ("direct", "notified")
    )
    assert direct < notified


def test_a_get_takes_longer_than_a_put_because_the_request_crosses_the_link_first(times: dict[str, float]) -> None:
    put, get = (
        _trip(times, way, "sm", 8, f"control=direct&threads=1024{'&word=separate' * (way == 'put')}")
        for way in ("put", "get")
    )
    assert put < get


def test_gpus_exchange_small_messages_faster_than_the_host_does_for_them(times: dict[str, float]) -> None:
    direct = _trip(times, "put", "sm", 8, "control=direct&threads=1024&word=separate")
    by_host = _trip(times, "put", "ce", 8, "control=host")
    assisted = _trip(times, "put", "ce", 8, "control=assisted")
    assert direct < by_host < assisted


def test_copy_engines_move_large_messages_faster_than_one_block(times: dict[str, float]) -> None:
    block, engine = (
        times[f"put/{name}/{_BETWEEN}/{64 << 20}?connections=1&control={control}"]
        for name, control in (("sm", "direct&threads=1024&word=separate"), ("ce", "host"))
    )
    assert engine < block


def test_more_threads_of_a_block_move_a_large_message_faster(tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    only = f"put/sm/{_BETWEEN}/{1 << 20}?*"
    assert main(["run", "--machine", "h200x2", "--suite", "putget", "--only", only, "-o", str(run)]) == 0
    points = {
        point.params["threads"]: point.median_s
        for point in read_run(run).points
        if point.params["control"] == "direct" and point.params["word"] == "separate"
    }
    assert points["1024"] < points["32"] < points["1"]


def test_packed_words_save_the_copy_before_the_word(times: dict[str, float]) -> None:
    separate, packed = (
        _trip(times, "put", "sm", 8, f"control=direct&threads=1024&word={word}") for word in ("separate", "packed")
    )
    assert packed < separate


def test_a_stream_of_messages_is_measured_for_a_duration(tmp_path: Path) -> None:
    run = tmp_path / "run.jsonl"
    only = f"put/sm/{_BETWEEN}/64?connections=4&*"
    assert main(["run", "--machine", "h200x2", "--suite", "putget", "--only", only, "-o", str(run)]) == 0
    points = read_run(run).points
    assert points and {point.status for point in points} <= {"ok", "missed_precision"}
    for point in points:
        assert point.guards["together_s"] > 0 and "joint_overlap" not in point.guards, point.id


def test_puts_that_are_sent_at_once_add_up_until_the_link_is_full(tmp_path: Path) -> None:
    one, four, sixteen = (f"{at_once}blocks=8&connections=1" for at_once in ("", "at_once=4&", "at_once=16&"))
    path, rest = f"put/sm/{_BETWEEN}/{64 << 10}", "control=direct&threads=1024&word=separate"
    found = _points(tmp_path, "putget", f"{path}?*blocks=8&connections=1&{rest}")
    rates = [found[f"{path}?{params}&{rest}"].total_gbps or 0 for params in (one, four, sixteen)]
    link = 380.0  # GB/s, of the model
    assert rates[1] == pytest.approx(4 * rates[0], rel=0.2)
    assert rates[2] == pytest.approx(link, rel=0.02)
    assert all(point.verified for point in found.values())


def _points(tmp_path: Path, suite: str, *only: str) -> dict[str, Point]:
    run = tmp_path / "run.jsonl"
    words = [word for pattern in only for word in ("--only", pattern)]
    assert main(["run", "--machine", "h200x2", "--suite", suite, "--seed", "3", *words, "-o", str(run)]) == 0
    points = read_run(run).points
    assert {point.status for point in points} <= {"ok", "missed_precision"}
    return {point.id: point for point in points}


def test_a_kernel_for_each_message_costs_small_messages_a_launch_and_a_wait(tmp_path: Path) -> None:
    path = f"put_ping_pong/sm/{_BETWEEN}"
    stays = "control=direct&threads=1024&word=separate"
    found = _points(tmp_path, "putget", f"{path}/8?*", f"{path}/{1 << 20}?*")

    def added(size: int) -> float:
        relaunched = found[f"{path}/{size}?control=direct&kernel=relaunched&threads=1024&word=separate"].median_s
        return (relaunched or 0) - (found[f"{path}/{size}?{stays}"].median_s or 0)

    launches_and_waits = added(8)
    assert launches_and_waits > (found[f"{path}/8?{stays}"].median_s or 1)
    assert added(1 << 20) == pytest.approx(launches_and_waits, rel=0.3)  # whatever the size


def test_a_product_loses_the_multiprocessors_of_blocks_that_stay(tmp_path: Path) -> None:
    found = _points(tmp_path, "putget", "bystander/*")
    path = "bystander/sm/gpu:0.device->numa:0.pinned/0"
    alone = found[f"{path}?beside=none"].median_s or 1
    for work in ("post", "poll"):
        for blocks in (1, 4, 16, 32):
            name = f"{path}?beside={work}" + (f"&blocks={blocks}" if blocks > 1 else "")
            assert (found[name].median_s or 0) / alone == pytest.approx(132 / (132 - blocks), rel=0.02)


def test_more_proxies_serve_more_messages_a_second(tmp_path: Path) -> None:
    path = "queued_put/ce/gpu:0.device->numa:0.pinned/64?connections=8&descriptor=32"
    found = _points(tmp_path, "putget-queues", f"{path}&proxies=*")
    rates = [
        sum(1 / (flow.median_s or 1) for flow in found[f"{path}&proxies={count}"].flows if flow.role == "measured")
        for count in (1, 2, 4)
    ]
    assert rates[1] > 1.5 * rates[0] and rates[2] > 1.5 * rates[1]


@pytest.mark.parametrize(
    "params, modelled, seconds",
    [("connections=1", True, 0.02), ("connections=4", True, 0.005), ("blocks=16&connections=1", True, 0.00125),
     ("at_once=4&blocks=4&connections=1", True, 0.00125),
     ("connections=132", True, 0.001), ("connections=132", False, 0.2)],
)  # fmt: skip
def test_a_round_of_a_modelled_stream_is_shorter_the_more_blocks_send(
    params: str, modelled: bool, seconds: float
) -> None:
    point = PointId.parse(f"put/sm/{_BETWEEN}/64?{params}")
    round_s, interval_s = time_of(point, modelled=modelled)
    assert round_s == pytest.approx(seconds) and interval_s < round_s / 9
