"""Memory of another process, on GPUs: by IPC handles, file descriptors and shared host memory, also across GPUs."""

import pytest

from on_gpus import FAKE, measured, needs, only, too_short, value, verified

SIZE = 4096 if FAKE else 16 << 20
ROUNDS = ("--rounds", "1" if FAKE else "2")


def sizes(*benchmarks: str) -> list[str]:
    return only(*(f"{one}/{SIZE}?*" for one in benchmarks))


@needs(1)
@pytest.mark.parametrize("kind", ["ipc", "posix_fd"])
def test_gpu_memory_of_another_process_is_as_fast_as_its_own(tmp_path, kind) -> None:
    globs = [
        f"{path}.{memory}*" for memory in (kind, "device") for path in ("h2d/ce/*pinned->gpu:0", "read/sm/gpu:0.*gpu:0")
    ]
    run = measured(tmp_path / "a.jsonl", "--suite", "full", *ROUNDS, *sizes(*globs))
    verified(run)
    theirs = value(run, f"pinned->gpu:0.{kind}/{SIZE}?after=kernel&bidirectional=false&mode=batched")
    own = value(run, f"pinned->gpu:0.device/{SIZE}?after=kernel&bidirectional=false&mode=batched")
    assert FAKE or theirs.gbps > 0.95 * own.gbps


@needs(2)
@pytest.mark.parametrize("kind", ["ipc", "posix_fd"])
def test_gpu_memory_of_another_process_is_reached_by_another_gpu(tmp_path, kind) -> None:
    """By copy engine and by SM, pushing and pulling, at the rate of a peer's own memory."""
    paths = ("d2d/ce/gpu:0.{0}->gpu:1.{0}", "d2d/sm/gpu:0.{0}->gpu:1.{0}", "read/sm/gpu:0.{0}->gpu:1.{0}")
    globs = [path.format(memory) + "*" for memory in (kind, "device") for path in paths]
    run = measured(tmp_path / "a.jsonl", "--suite", "full", *ROUNDS, *sizes(*globs))
    verified(run)
    for engine in ("ce", "sm"):
        theirs, own = (
            value(run, f"d2d/{engine}/gpu:0.{memory}->gpu:1.{memory}/{SIZE}?") for memory in (kind, "device")
        )
        assert FAKE or theirs.gbps > 0.9 * own.gbps, engine


@needs(2)
@pytest.mark.parametrize("kind", ["ipc", "posix_fd"])
def test_ping_pong_runs_between_gpus_of_two_processes(tmp_path, kind) -> None:
    ids = [
        f"ping_pong/sm/gpu:{src}.{memory}->gpu:{dst}.{memory}/0?word={word}"
        for memory in (kind, "device") for src, dst in ((0, 1), (1, 0)) for word in ("waiter", "setter")
    ]  # fmt: skip
    run = measured(tmp_path / "a.jsonl", *ROUNDS, *only(*ids))
    theirs = [point for point in run.points if point.src_memory == kind]
    if all(point.status == "unsupported" and not (FAKE and too_short(point)) for point in theirs):
        pytest.skip(theirs[0].reason)
    assert len(verified(run)) == len(ids)
    times = {point.id: point.median_s for point in run.points}
    for id in ids[: len(ids) // 2]:
        own = times[id.replace(f".{kind}", ".device")]
        assert FAKE or 0.5 * own < times[id] < 2 * own, id


@needs(1)
def test_host_memory_of_another_process_is_measured(tmp_path) -> None:
    globs = (f"h2d/ce/*shm->gpu:0.device/{SIZE}?*", f"d2h/ce/gpu:0.device->*shm/{SIZE}?*", "ping_pong/cpu/*shm*")
    run = measured(tmp_path / "a.jsonl", "--suite", "full", *ROUNDS, *only(*globs))
    assert {point.benchmark for point in verified(run)} == {"h2d", "d2h", "ping_pong"}


@needs(1)
def test_each_phase_of_shared_memory_has_its_cost(tmp_path) -> None:
    globs = [f"allocation/cpu/*{kind}->*size=1MiB" for kind in ("gpu:0.ipc", "gpu:0.posix_fd", "numa:0.shm")]
    run = measured(tmp_path / "a.jsonl", "--suite", "full", *ROUNDS, *only(*globs))
    assert all(FAKE or point.median_s > 0 for point in verified(run))
