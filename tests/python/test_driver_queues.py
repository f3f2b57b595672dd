"""The real worker on the fake driver: blocks of one kernel, and the hardware queues of a GPU."""

import pytest

from driver_cases import case, opened, prepare, refusal, worker, works
from fake_driver import needs_fake, needs_worker
from test_driver_launches import Logged

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]


def queued(**params):
    """64 B by descriptors, which a kernel carries out."""
    return case("queued_put", "gpu:0", "gpu:1", "device", "device", 64, 0, **params) | {"engine": "sm"}


@pytest.mark.parametrize("asked, queues", [({}, 32), ({"CUDA_DEVICE_MAX_CONNECTIONS": "4"}, 4)])
def test_the_worker_asks_for_all_hardware_queues_unless_the_user_has_set_them(worker, asked, queues) -> None:
    pipe = worker(extra=asked)
    assert pipe.ask("hello")["hardware_queues"] == queues
    assert pipe.ask("open", platform="cuda")["ok"]
    answer = prepare(pipe, queued(connections=str(queues // 2), launch="each"))  # a server and a poster for each
    assert answer["supported"], answer
    assert f"of {2 * queues} streams of gpu:0" in refusal(pipe, queued(connections=str(queues), launch="each"))


def test_the_blocks_of_many_connections_are_one_launch_for_each_thing_that_they_do(worker, tmp_path) -> None:
    logged = Logged(worker, tmp_path)
    works(logged.pipe, queued(connections="16"))
    launches = {launch for launch in logged.launches() if launch[0] == "block"}
    assert launches == {("block", "gpu:0", 16, 256), ("block", "gpu:0", 16, 1), ("block", "gpu:1", 16, 1)}


def test_two_hardware_queues_are_enough_for_many_connections(worker) -> None:
    pipe, _ = opened(worker, extra={"CUDA_DEVICE_MAX_CONNECTIONS": "2"})
    works(pipe, queued(connections="8"))
