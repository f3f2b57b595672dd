"""What lies between the stamps of a sample: when each stream starts, from when its time counts, and what precedes it.

The fake driver logs every call and every event stamp with its time. The tests compare the order of these times and do
not depend on how long anything takes.
"""

from pathlib import Path

import pytest

from driver_cases import access, d2d, h2d, local, opened, prepare, worker
from fake_driver import needs_fake, needs_worker

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]

BATCHES, SAMPLES = (1, 3), 4
IDLE_S = 0.01
L2_OF_FAKE = 1 << 20
SAME_GPU = h2d(bidirectional="true")  # both streams belong to gpu:0
TWO_GPUS = d2d(bidirectional="true")


def calls_of(log: Path) -> list[tuple[str, float]]:
    """Every driver call: its symbol, and its time in nanoseconds of the clock that stamps events."""
    return [(symbol, 1e9 * float(at)) for symbol, at in (line.split() for line in log.read_text().splitlines())]


def stamps_of(log: Path) -> dict[int, list[int]]:
    """The times of each event in nanoseconds, by the number of the event."""
    found: dict[int, list[int]] = {}
    for event, at in (map(int, line.split()) for line in log.read_text().splitlines()):
        found.setdefault(event, []).append(at)
    return found


class Sampled:
    """The samples of a program of two streams: the worker's stamps, and the events' own times.

    `events[sample]` holds enter and exit of each actor: the session created its four events last, in this order.
    """

    def __init__(self, worker, folder: Path, wanted: dict) -> None:
        self.calls, stamps = folder / "calls", folder / "stamps"
        pipe, _ = opened(worker, CUDA_CALLS=self.calls, CUDA_STAMPS=stamps)
        assert prepare(pipe, wanted)["actors"] == 2
        answer = pipe.ask("run", samples=SAMPLES, batches=[[count] * 2 for count in BATCHES], verify=False)
        assert answer["timing"] == ("gate" if wanted.get("held", True) else "events")
        self.count = SAMPLES * len(BATCHES)
        ours = sorted(stamps_of(stamps).items())[-4:]
        self.events = list(zip(*(times[-self.count :] for _, times in ours), strict=True))
        self.stamps = [answer["stamps"][4 * at : 4 * at + 4] for at in range(self.count)]


def seconds(start_ns: int, end_ns: int) -> float:
    return (end_ns - start_ns) * 1e-9


@pytest.mark.parametrize("held", [True, False], ids=["gate", "events"])
def test_times_of_all_streams_of_a_gpu_count_from_the_entry_of_the_first(worker, tmp_path, held) -> None:
    """Otherwise the time from the common start to the last end lacks what a stream started later than the first."""
    sampled = Sampled(worker, tmp_path, SAME_GPU | {"held": held})
    for (enter, leave, enter2, leave2), reported in zip(sampled.events, sampled.stamps, strict=True):
        expected = [0.0, seconds(enter, leave), seconds(enter, enter2), seconds(enter, leave2)]
        assert reported == pytest.approx(expected, rel=1e-6, abs=1e-9)
    assert any(enter != enter2 for enter, _, enter2, _ in sampled.events)  # otherwise the test shows nothing


def test_times_of_streams_of_different_gpus_each_count_from_their_own_entry(worker, tmp_path) -> None:
    """Events of different GPUs share no clock."""
    sampled = Sampled(worker, tmp_path, TWO_GPUS)
    for (enter, leave, enter2, leave2), reported in zip(sampled.events, sampled.stamps, strict=True):
        expected = [0.0, seconds(enter, leave), 0.0, seconds(enter2, leave2)]
        assert reported == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("wanted", [SAME_GPU, TWO_GPUS], ids=["one GPU", "two GPUs"])
@pytest.mark.parametrize("after", ["kernel", "wait"])
def test_no_stream_starts_before_the_work_of_all_streams_is_queued(worker, tmp_path, wanted, after) -> None:
    """A gate on every stream holds the work: the last call that queues is the record of the last stream's exit."""
    sampled = Sampled(worker, tmp_path, wanted | {"params": wanted["params"] | {"after": after}})
    records = [at for symbol, at in calls_of(sampled.calls) if symbol == "cuEventRecord"][-4 * sampled.count :]
    for sample, (enter, _, enter2, _) in enumerate(sampled.events):
        assert min(enter, enter2) > records[4 * sample + 3]


def test_no_sample_starts_before_the_flush_of_the_l2_is_done(worker, tmp_path) -> None:
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)
    assert prepare(pipe, local())["supported"]
    log.write_text("")
    assert pipe.ask("run", samples=3, batches=[[1], [4]], verify=False)["ok"]
    symbols = [symbol for symbol, _ in calls_of(log) if symbol != "cuCtxSetCurrent"]
    begins = [at for at, symbol in enumerate(symbols) if symbol == "cuLaunchKernel"][-6:]  # the gates of the samples
    assert len(begins) == 6
    for begin in begins:
        assert symbols[begin - 2 : begin] == ["cuMemsetD8Async", "cuStreamSynchronize"]


@pytest.mark.parametrize("caches, flushes", [(2, 2), (3, 0)])
def test_the_l2_is_flushed_unless_a_batch_rotates_over_three_times_its_size(worker, tmp_path, caches, flushes) -> None:
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)
    wanted = access("read", "numa:0", "gpu:0") | {"footprint_bytes": caches * L2_OF_FAKE}
    assert prepare(pipe, wanted)["supported"]
    log.write_text("")
    assert pipe.ask("run", samples=1, batches=[[1], [4]], verify=False)["ok"]
    assert [symbol for symbol, _ in calls_of(log)].count("cuMemsetD8Async") == flushes


@pytest.mark.parametrize("mode", [{"after": "kernel"}, {"after": "wait"}, {"clock": "host"}], ids=str)
def test_the_stream_idles_between_the_flush_and_each_single_operation(worker, tmp_path, mode) -> None:
    """Time that the flush or the comparison takes is not idle time of the stream."""
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)
    wanted = h2d(mode="single", idle_gap_s=str(IDLE_S), **mode)
    assert prepare(pipe, wanted)["supported"]
    log.write_text("")
    assert pipe.ask("run", samples=3, batches=[[0], [1]], verify=False)["ok"]
    calls = [call for call in calls_of(log) if call[0] != "cuCtxSetCurrent"]
    copies = [at for at, (symbol, _) in enumerate(calls) if symbol == "cuMemcpyHtoDAsync"]
    assert len(copies) >= 3
    for copy in copies:
        flushed = max(at for at in range(copy) if calls[at][0] == "cuStreamSynchronize")
        assert calls[flushed + 1][1] - calls[flushed][1] >= IDLE_S * 1e9


def test_the_word_of_a_kernel_for_each_message_follows_a_wait_for_its_stream(worker, tmp_path) -> None:
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)
    wanted = d2d() | {"benchmark": "put_ping_pong", "engine": "sm", "bytes": 64, "params": {"kernel": "relaunched"}}
    assert prepare(pipe, wanted)["actors"] == 2
    log.write_text("")
    messages, seldom = 40, ("cuCtxSetCurrent", "cuEventRecord", "cuEventQuery", "cuEventSynchronize")
    assert pipe.ask("run", samples=1, batches=[[messages] * 2], verify=False)["ok"]
    symbols = [symbol for symbol, _ in calls_of(log) if symbol not in seldom]
    launches = [at for at, symbol in enumerate(symbols) if symbol == "cuLaunchKernel"]
    waited = [at for at in launches if symbols[at + 1] == "cuStreamSynchronize"]
    assert len(waited) >= 2 * messages
