"""Calls, flags and atomic operations on the fake driver: allocations, launches, verification and time-outs."""

import time

import pytest

from driver_cases import failure, opened, prepare, refusal, worker
from fake_driver import calls_between, needs_fake, needs_worker
from test_driver_launches import Logged

__all__ = ["worker"]  # a fixture

pytestmark = [needs_fake, needs_worker]


def case(benchmark, src, dst, memories, engine="cpu", size=0, footprint=0, **params):
    return {
        "benchmark": benchmark, "engine": engine, "src": src, "dst": dst, "src_memory": memories[0],
        "dst_memory": memories[1], "bytes": size, "footprint_bytes": footprint, "params": params,
    }  # fmt: skip


def call(benchmark, **params):
    return case(benchmark, "numa:0", "gpu:1", ("pageable", "device"), **params)


def flags(src, dst, memory, **params):
    return case("ping_pong", src, dst, (memory, memory), engine="cpu" if "numa" in src else "sm", **params)


def atomic(benchmark, dst, size=0, **params):
    memory = "pinned" if "numa" in dst else "device"
    return case(benchmark, "gpu:0", dst, ("device", memory), engine="sm", size=size, footprint=16 * size, **params)


CALLS = {
    "launch": call("launch"),
    "launch with arguments": call("launch", arguments="4096"),
    "launch by many": call("launch", threads="4", arguments="8"),
    "launch to end": call("launch_to_end"),
    **{f"synchronize {what}": call("synchronize", what=what) for what in ("stream", "device", "event")},
    **{f"{what} an event": call("event", what=what) for what in ("record", "query")},
    "stream": call("stream"),
    **{f"{what} a graph": call("graph", what=what, nodes="100") for what in ("launch", "instantiate", "upload")},
    "queue a copy in": case("copy_call", "numa:0", "gpu:1", ("pinned", "device")),
    "queue a copy out": case("copy_call", "gpu:1", "numa:0", ("device", "pinned"), size=0),
}
FLAGS = {
    "host word": flags("numa:0", "gpu:1", "pinned"),
    "managed word": flags("numa:0", "gpu:0", "managed"),
    "peer word": flags("gpu:0", "gpu:1", "device"),
    "own word": flags("gpu:1", "gpu:0", "device", word="setter"),
    "host word between GPUs": flags("gpu:0", "gpu:1", "pinned"),
    "managed word between GPUs": flags("gpu:1", "gpu:0", "managed"),
}
ATOMICS = {
    f"{benchmark} {dst} {scope}": atomic(benchmark, dst, size=size, scope=scope)
    for benchmark, size in (("atomic", 24), ("atomic", 65536), ("atomic_latency", 0))
    for dst in ("gpu:0", "gpu:1", "numa:0")
    for scope in ("gpu", "system")
} | {"all to one": atomic("atomic", "gpu:0", size=4096, words="one")}


def run(pipe, wanted, batches=(4, 9), samples=2, verify=True):
    prepared = prepare(pipe, wanted)
    assert prepared["ok"] and prepared["supported"], prepared
    actors = prepared["actors"]
    answer = pipe.ask("run", samples=samples, batches=[[count] * actors for count in batches], verify=verify)
    assert answer["ok"], answer
    return answer


@pytest.mark.parametrize("name", CALLS)
def test_every_call_is_made_and_timed_by_the_host(worker, name):
    pipe, _ = opened(worker)
    for _ in range(2):
        answer = run(pipe, CALLS[name])
        assert answer["timing"] == "host" and answer["verdict"]["ok"]
        assert bool(answer["verdict"]["checked_bytes"]) == ("copy" in name)


@pytest.mark.parametrize("name, kernel", [("launch", "empty"), ("launch with arguments", "take_4096")])
def test_an_iteration_is_one_launch_of_a_kernel_with_its_arguments(worker, tmp_path, name, kernel):
    logged = Logged(worker, tmp_path)
    assert prepare(logged.pipe, CALLS[name])["supported"]
    logged.more()
    run(logged.pipe, CALLS[name], batches=(5, 10), samples=3, verify=False)
    launches = [line for line in logged.more() if line[0] == "launch" and line[2] == f"linkscope_{kernel}"]
    assert launches == [("launch", "gpu:1", f"linkscope_{kernel}", "1", "1")] * (
        1 + 3 * 15
    )  # the first launch is the warm-up


def graphs(logged, what):
    """The number of graphs of 100 nodes that were uploaded or launched on gpu:1; there are no other graphs."""
    found = [line for line in logged.more() if line[0] == f"graph-{what}"]
    assert set(found) == {(f"graph-{what}", "gpu:1", "100")}
    return len(found)


def test_a_graph_is_launched_once_per_iteration_and_uploads_use_a_fresh_graph(worker, tmp_path):
    logged = Logged(worker, tmp_path)
    run(logged.pipe, CALLS["launch a graph"], batches=(3,), samples=2, verify=False)
    assert graphs(logged, "launch") == 2 + 2 * 4  # one warm-up, and one untimed launch per batch, which also uploads
    run(logged.pipe, CALLS["upload a graph"], batches=(3,), samples=2, verify=False)
    assert graphs(logged, "upload") == 1 + 2 * 3


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_each_thread_launches_its_own_kernels_concurrently(worker, threads):
    pipe, _ = opened(worker)
    prepared = prepare(pipe, call("launch", threads=str(threads)))
    assert prepared["actors"] == len(prepared["flows"]) == threads
    assert prepared["most_iterations"] == 512


def test_a_call_lies_between_its_own_stamps_only(worker, tmp_path):
    symbols = {
        "synchronize device": "cuCtxSynchronize", "query an event": "cuEventQuery", "stream": "cuStreamDestroy",
        "upload a graph": "cuGraphUpload", "launch": "cuLaunchKernel", "queue a copy out": "cuMemcpyDtoHAsync",
    }  # fmt: skip
    log = tmp_path / "calls"
    pipe, _ = opened(worker, CUDA_CALLS=log)
    for name, symbol in symbols.items():
        for other in (name, "synchronize event"):
            assert prepare(pipe, CALLS[other])["supported"]
            stamps = pipe.ask("run", samples=1, batches=[[3]], verify=False)["stamps"]
            assert calls_between(log, symbol, *stamps) == (3 if other == name else 0), (symbol, other)


def test_previously_queued_work_is_not_part_of_the_timed_call(worker):
    """Copies take 5 ms each. The calls return immediately, and the next sample finds the stream empty."""
    pipe, _ = opened(worker, CUDA_COPY_US=5000)
    assert prepare(pipe, CALLS["queue a copy in"])["supported"]
    stamps = pipe.ask("run", samples=10, batches=[[10]], verify=False)["stamps"]
    # Other programs on this machine delay some calls.
    assert min(exit_s - enter_s for enter_s, exit_s in zip(stamps[::2], stamps[1::2], strict=True)) < 40e-3
    assert all(later - earlier > 50e-3 for earlier, later in zip(stamps[::2], stamps[2::2], strict=False))


@pytest.mark.parametrize("symbol, name", [
    ("cuGraphLaunch", "launch a graph"), ("cuCtxSynchronize", "synchronize device"), ("cuEventQuery", "query an event"),
])  # fmt: skip
def test_a_driver_without_a_call_makes_its_points_unsupported(worker, symbol, name):
    pipe, _ = opened(worker, CUDA_MISSING=symbol)
    assert symbol in refusal(pipe, CALLS[name])
    assert prepare(pipe, CALLS["launch"])["supported"]


# --- flags --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FLAGS)
def test_ping_pong_ends_with_the_last_value_in_the_words(worker, name):
    pipe, _ = opened(worker)
    for _ in range(2):  # the words of an earlier session have no effect
        answer = run(pipe, FLAGS[name], batches=(0, 1, 50), samples=3)
        assert answer["timing"] == ("host" if "numa" in FLAGS[name]["src"] else "gate")
        assert answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] == 16


def test_a_batch_of_round_trips_is_one_launch_on_each_gpu(worker, tmp_path):
    logged = Logged(worker, tmp_path)
    assert prepare(logged.pipe, FLAGS["peer word"])["supported"]
    logged.launches()
    logged.pipe.ask("run", samples=1, batches=[[40, 40]], verify=False)
    logged.launches()
    logged.pipe.ask("run", samples=2, batches=[[40, 40]], verify=False)
    assert sorted(logged.launches()) == [("block", gpu, 1, 1) for gpu in ("gpu:0", "gpu:0", "gpu:1", "gpu:1")]


@pytest.mark.parametrize("name, waits", [("host word", "numa:0"), ("peer word", "gpu:0")])
def test_a_word_that_never_arrives_is_a_time_out_with_its_reason(impatient, worker, name, waits):
    pipe, _ = opened(worker, CUDA_SKIP="2+")
    began = time.monotonic()
    answer = prepare(pipe, FLAGS[name])
    if answer["ok"]:
        answer = pipe.ask("run", samples=1, batches=[[3, 3]], verify=False)
    assert time.monotonic() - began >= 2
    error = failure(answer)
    assert error["kind"] == "timeout"
    assert error["message"].startswith("gpu:") or error["message"].startswith(waits)
    assert "waited 2" in error["message"] and "does not arrive" in error["message"]


def test_a_patience_multiplies_the_limits_of_the_worker_and_must_be_a_number(worker, monkeypatch):
    monkeypatch.setenv("LINKSCOPE_PATIENCE", "0.25")
    answer = prepare(opened(worker, CUDA_SKIP="2+")[0], FLAGS["host word"])
    assert failure(answer)["kind"] == "timeout" and "waited 0.5" in failure(answer)["message"]
    for wrong in ("soon", "0", "-1"):
        monkeypatch.setenv("LINKSCOPE_PATIENCE", wrong)
        error = failure(prepare(opened(worker)[0], FLAGS["host word"]))
        assert error == {"kind": "usage", "message": f"LINKSCOPE_PATIENCE='{wrong}' is no number above zero"}


def test_actors_that_wait_for_each_other_must_have_equal_iterations(worker):
    pipe, _ = opened(worker)
    assert prepare(pipe, FLAGS["peer word"])["supported"]
    error = failure(pipe.ask("run", samples=1, batches=[[3, 4]], verify=False))
    assert error["kind"] == "usage" and "wait for each other" in error["message"]


def test_a_cpu_cannot_wait_for_a_word_in_device_memory(worker):
    wanted = flags("numa:0", "gpu:0", "device")
    assert "no loads from and stores to the memory of gpu:0" in refusal(opened(worker)[0], wanted)


def test_gpus_without_peer_access_have_no_words_in_each_others_memory(worker):
    pipe, _ = opened(worker, CUDA_NO_PEER=1)
    assert "cannot access the memory of" in refusal(pipe, FLAGS["peer word"])
    assert prepare(pipe, FLAGS["host word between GPUs"])["supported"]


# --- atomic operations --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ATOMICS)
def test_atomic_additions_give_the_right_sum(worker, name):
    pipe, _ = opened(worker)
    for _ in range(2):
        answer = run(pipe, ATOMICS[name], samples=3)
        assert answer["timing"] == "gate" and answer["verdict"]["ok"]
        each = max(ATOMICS[name]["bytes"], 8)
        assert answer["verdict"]["checked_bytes"] == 3 * 13 * each


@pytest.mark.parametrize("name", ["atomic gpu:1 gpu", "atomic numa:0 system", "atomic_latency gpu:0 gpu", "all to one"])
@pytest.mark.parametrize("fault", ["CUDA_SKIP", "CUDA_CORRUPT"])
def test_a_missing_or_wrong_addition_is_found(worker, name, fault):
    pipe, _ = opened(worker, **{fault: "2+"})
    assert prepare(pipe, ATOMICS[name])["supported"]
    answer = pipe.ask("run", samples=2, batches=[[3]], verify=True)
    assert not answer["verdict"]["ok"] and "by the sum" in answer["verdict"]["first_wrong"]


def test_gpus_without_peer_access_cannot_add_to_each_others_memory(worker):
    pipe, _ = opened(worker, CUDA_NO_PEER=1)
    assert "gpu:1" in refusal(pipe, atomic("atomic", "gpu:1", size=64))
    assert prepare(pipe, atomic("atomic", "gpu:0", size=64))["supported"]
