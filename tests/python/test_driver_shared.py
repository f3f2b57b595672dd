"""Programs of two processes, on the fake driver.

Copies through memory of the other process arrive, costs are measured in the process that pays them, and every fault
of a process or of the sharing becomes a reason that names the process. Nothing outlives the worker.
"""

import itertools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from driver_cases import case, d2d, d2h, failure, h2d, local, opened, prepare, refusal
from fake_driver import WORKER, environment, needs_fake, needs_worker
from group import Group
from processes import runs
from test_driver_kinds import MIB, by_sm, memories, run
from worker_pipe import Pipe

pytestmark = [needs_fake, needs_worker]

OF_GPUS = ("ipc", "posix_fd")
COPIES = {
    "h2d shm": h2d("shm"),
    "h2d shm by sm": by_sm(h2d("shm")),
    "d2h shm": d2h("shm"),
    "read of shm": case("read", "numa:0", "gpu:0", "shm", "device") | {"engine": "sm"},
    "write to shm": case("write", "gpu:0", "numa:0", "device", "shm") | {"engine": "sm"},
    **{
        f"{name} {kind}": wanted
        for kind in OF_GPUS
        for name, wanted in {
            "h2d": memories(h2d(), "pinned", kind),
            "h2d, bidirectional": memories(h2d(bidirectional="true"), "pinned", kind),
            "d2h": memories(d2h(), kind, "pinned"),
            "d2d": memories(d2d(), kind, kind),
            "d2d, pulled": memories(d2d(initiator="dst"), kind, kind),
            "d2d by sm": by_sm(memories(d2d(), kind, kind)),
            "local, 24 B": memories(local(size=24), kind, kind),
            "local by sm": by_sm(memories(local(), kind, kind)),
            "read of a peer's": case("read", "gpu:1", "gpu:0", kind, kind) | {"engine": "sm"},
            "write to its own": case("write", "gpu:0", "gpu:0", kind, kind) | {"engine": "sm"},
        }.items()
    },
}
ACROSS = [name for name in COPIES if name.startswith("d2d") or "peer" in name]
PHASES = {
    "ipc": ("allocate", "export", "open", "touch", "close", "free"),
    "posix_fd": ("allocate", "export", "import", "map", "touch", "unmap", "free"),
    "shm": ("allocate", "touch", "open", "register", "map", "unregister", "close", "free"),
}
IPC = memories(h2d(), "pinned", "ipc")


def allocation(kind, phase, size="1MiB"):
    ends = ("gpu:0", "gpu:0", kind, kind) if kind in OF_GPUS else ("numa:0", "gpu:0", kind, "device")
    return case("allocation", *ends, size=0, footprint=0) | {"engine": "cpu", "params": {"phase": phase, "size": size}}


@pytest.fixture
def worker():
    """Opens workers on a fake driver, which start peers when a program needs them. They end with the test."""
    groups = []

    def start(**settings):
        groups.append(Group(WORKER, environment(**settings)))
        return groups[-1]

    yield start
    for group in groups:
        group.worker.kill()


def gone(pid):
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if not runs(pid):
            return True
        time.sleep(0.01)
    return False


def peer_of(group):
    (peer,) = group.peers()
    return peer


@pytest.mark.parametrize("name", COPIES)
def test_copies_through_memory_of_another_process_arrive(worker, name):
    pipe, _ = opened(worker)
    answer = run(pipe, COPIES[name])
    assert answer["ok"] and answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] > 0, answer
    assert answer["timing"] == "gate"
    assert runs(peer_of(pipe))


def staged(log):
    return [line for line in log.read_text().splitlines() if line.startswith("staged")] if log.exists() else []


@pytest.mark.parametrize("name", [name for name in ACROSS if "sm" not in name and "peer" not in name])
def test_no_copy_between_gpus_goes_through_the_host(worker, tmp_path, name):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    assert run(pipe, COPIES[name])["verdict"]["ok"]
    assert staged(log) == []
    assert run(pipe, d2d(peer="off"))["verdict"]["ok"]  # a copy through the host appears in the log
    assert staged(log)


@pytest.mark.parametrize("kind", OF_GPUS)
def test_shared_memory_is_opened_by_each_gpu_separately(worker, tmp_path, kind):
    """The same allocation repeatedly: pushed, pulled, without peer access; at the end it is closed."""
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    all_of_it = {"bytes": 2 * MIB, "footprint_bytes": 2 * MIB}  # the size of the allocation
    for name in ("d2d", "d2d, pulled", "peer off", "d2d by sm", "read of a peer's", "d2d by sm", "h2d"):
        assert run(pipe, COPIES.get(f"{name} {kind}", d2d(peer="off")) | all_of_it)["verdict"]["ok"], name
    assert pipe.finish() == [0, 0]
    assert [line for line in log.read_text().splitlines() if line.startswith(("left", "ended"))] == ["ended"] * 2


WRONG = {
    "h2d shm": 0, "h2d ipc": 2, "d2d ipc": 6, "d2d by sm posix_fd": 4, "read of shm": 0, "write to its own ipc": 2,
}  # fmt: skip


@pytest.mark.parametrize("name, proofs", WRONG.items())
def test_wrong_data_through_shared_memory_is_found(worker, name, proofs):
    """The first copies prove that the memory is shared: each writes a word and restores the previous one."""
    verdict = run(opened(worker, CUDA_CORRUPT=f"{proofs + 3}+")[0], COPIES[name])["verdict"]
    assert not verdict["ok"] and verdict["wrong_bytes"] > 0


def test_memory_that_only_seems_shared_is_found(worker):
    """The returned bytes are right, but the opened memory belongs to this process and not to the owner."""
    pipe, _ = opened(worker, CUDA_PRIVATE_SHARES=1)
    for name in ("h2d ipc", "h2d posix_fd", "d2d ipc"):
        assert "does not arrive in the memory of the other process" in refusal(pipe, COPIES[name])
    assert prepare(pipe, COPIES["h2d shm"])["supported"]


# --- costs of sharing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind, phase", [(kind, phase) for kind, phases in PHASES.items() for phase in phases])
def test_every_phase_is_timed_by_the_process_that_runs_it(worker, kind, phase):
    pipe, _ = opened(worker)
    prepared = prepare(pipe, allocation(kind, phase))
    assert prepared["ok"] and prepared["supported"] and prepared["most_iterations"] == 32, prepared
    answer = pipe.ask("run", samples=2, batches=[[0], [1], [32]], verify=True)
    assert answer["ok"] and answer["verdict"]["ok"] and answer["timing"] == "host", answer


@pytest.mark.parametrize(
    "kind, phase, symbol",
    [
        ("ipc", "allocate", "cuMemAlloc"),
        ("ipc", "export", "cuIpcGetMemHandle"),
        ("ipc", "open", "cuIpcOpenMemHandle"),
        ("ipc", "touch", "cuMemsetD8Async"),
        ("ipc", "close", "cuIpcCloseMemHandle"),
        ("ipc", "free", "cuMemFree"),
        ("posix_fd", "allocate", "cuMemCreate"),
        ("posix_fd", "export", "cuMemExportToShareableHandle"),
        ("posix_fd", "import", "cuMemImportFromShareableHandle"),
        ("posix_fd", "map", "cuMemMap"),
        ("posix_fd", "unmap", "cuMemUnmap"),
        ("shm", "register", "cuMemHostRegister"),
        ("shm", "unregister", "cuMemHostUnregister"),
    ],
)
def test_a_phase_is_timed_without_its_neighbours(worker, kind, phase, symbol):
    slow, phases = 0.02, PHASES[kind]
    index = phases.index(phase)
    for other in phases[max(0, index - 1) : index + 2]:
        if other == "touch" != phase:
            continue  # depends on the time that this machine needs for its pages
        pipe, _ = opened(worker, CUDA_SLOW=f"{symbol}:{int(slow * 1e6)}")
        assert prepare(pipe, allocation(kind, other))["supported"]
        # Other programs on this machine slow down some samples of a fast phase, but not all.
        samples = range(2 if phase == other else 12)
        took = (pipe.ask("run", samples=1, batches=[[1]], verify=False)["stamps"] for _ in samples)
        assert all(exit_s - enter_s > slow for enter_s, exit_s in took) == (phase == other), other


def test_no_memory_or_descriptor_is_leaked(worker):
    """Consecutive sessions, on GPUs that have room for few of them; descriptors and mappings come and go."""
    pipe, _ = opened(worker, CUDA_MEMORY=256 * MIB, CUDA_PINNED=128 * MIB)
    counts = []
    for _ in range(3):
        for kind, phases in PHASES.items():
            for phase in (phases[0], phases[2], phases[-1]):
                answer = run(pipe, allocation(kind, phase, size="64KiB"), counts=((7,), (32,)))
                assert answer["ok"], (kind, phase, answer)
        assert run(pipe, IPC)["ok"] and run(pipe, local())["ok"]
        processes = (pipe.worker.pid, peer_of(pipe))
        counts.append([len(os.listdir(f"/proc/{pid}/fd")) for pid in processes])
    assert counts[1] == counts[2]


# --- ping-pong between two processes -------------------------------------------------------------------------------

WORDS = {
    dst: case("ping_pong", "numa:0", dst, "shm", "shm", size=0, footprint=0) | {"engine": "cpu"}
    for dst in ("gpu:1", "numa:0")
}
BETWEEN_GPUS = {
    f"{src} to {dst}, {kind}, in the {word}'s": case("ping_pong", src, dst, kind, kind, size=0, footprint=0, word=word)
    | {"engine": "sm"}
    for src, dst in (("gpu:0", "gpu:1"), ("gpu:1", "gpu:0"))
    for kind in OF_GPUS
    for word in ("waiter", "setter")
}
WORDS |= BETWEEN_GPUS


@pytest.mark.parametrize("dst", WORDS)
def test_ping_pong_runs_between_two_processes(worker, dst):
    pipe, _ = opened(worker)
    answer = run(pipe, WORDS[dst], counts=((4,), (90,)))
    assert answer["ok"] and answer["timing"] == "host", answer
    assert answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] == 16, answer
    assert all(exit > enter for enter, exit in zip(answer["stamps"][::2], answer["stamps"][1::2], strict=True))


@pytest.mark.parametrize("dst", ["numa:0", "gpu:0 to gpu:1, ipc, in the waiter's"])
def test_no_process_resets_words_that_another_still_compares(worker, dst):
    """A verified run after another: each process compares, and one of them resets all words."""
    pipe, _ = opened(worker)
    assert prepare(pipe, WORDS[dst])["supported"]
    for _ in range(40):
        assert pipe.ask("run", samples=1, batches=[[2, 2]], verify=True)["verdict"]["ok"]


def test_the_times_of_another_process_end_before_the_next_sample_begins(worker):
    """A launch takes 20 ms in both processes: more than what lies between two samples."""
    pipe, _ = opened(worker, CUDA_SLOW="cuLaunchKernel:20000")
    answer = run(pipe, BETWEEN_GPUS["gpu:0 to gpu:1, ipc, in the waiter's"], counts=((1,), (2,)), verify=False)
    assert answer["ok"], answer
    samples = [answer["stamps"][at : at + 4] for at in range(0, len(answer["stamps"]), 4)]
    assert all(max(leave, leave2) <= enter for (_, leave, _, leave2), (enter, *_) in itertools.pairwise(samples))


def test_each_gpu_is_driven_by_its_process_once_per_batch(worker, tmp_path):
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_LOG=log)
    prepared = prepare(pipe, BETWEEN_GPUS["gpu:0 to gpu:1, ipc, in the waiter's"])
    assert prepared["supported"] and "process 1" in prepared["program"], prepared
    before = len(launches(log))
    assert pipe.ask("run", samples=3, batches=[[5, 5]], verify=False)["ok"]
    assert sorted(launches(log)[before:]) == ["0000:1B:00.0"] * 3 + ["0000:9B:00.0"] * 3


def launches(log):
    lines = [line.split() for line in log.read_text().splitlines() if line.startswith("launch")]
    return [bus for _, bus, kernel, *_ in lines if kernel == "linkscope_block"]


def test_memory_that_two_processes_opened_of_each_other_is_released(worker, tmp_path):
    """Also after words that did not arrive."""
    log, counts = tmp_path / "log", []
    pipe, _ = opened(worker, CUDA_LOG=log)
    for _ in range(3):
        for wanted in BETWEEN_GPUS.values():
            assert run(pipe, wanted, counts=((1,), (5,)))["ok"]
        assert run(pipe, local())["ok"]
        counts.append([len(os.listdir(f"/proc/{pid}/fd")) for pid in (pipe.worker.pid, peer_of(pipe))])
    assert counts[1] == counts[2]
    assert pipe.finish() == [0, 0]
    assert [line for line in log.read_text().splitlines() if line.startswith(("left", "ended"))] == ["ended"] * 2


def test_ping_pong_of_cpus_of_two_processes_needs_no_gpu(worker):
    pipe, _ = opened(worker, CUDA_GPUS=0)
    assert run(pipe, WORDS["numa:0"])["verdict"]["ok"]


@pytest.mark.parametrize(
    "name, proofs, place",
    [
        ("gpu:1", 0, "numa:0.shm"),
        ("gpu:0 to gpu:1, ipc, in the waiter's", 4, "gpu:"),
        ("gpu:1 to gpu:0, posix_fd, in the setter's", 2, "gpu:"),
    ],
)
def test_a_word_that_does_not_arrive_is_a_time_out_with_its_place(impatient, worker, name, proofs, place):
    """After the copies that prove that the memory is shared, the kernels of one side do nothing."""
    pipe, _ = opened(worker, CUDA_SKIP=f"{proofs + 1}+")
    prepared = prepare(pipe, WORDS[name])
    answer = prepared if not prepared["ok"] else pipe.ask("run", samples=1, batches=[[3, 3]], verify=True)
    problem = failure(answer)
    assert problem["kind"] == "timeout" and f"waited 2.000000 s for a word in {place}" in problem["message"]
    assert run(pipe, local())["ok"]  # the worker and its owner continue


@pytest.mark.parametrize("name, proofs", [("gpu:1", 0), ("gpu:0 to gpu:1, ipc, in the waiter's", 4)])
@pytest.mark.parametrize("number", [0, 1])
def test_a_process_that_is_killed_while_the_other_waits_for_it_is_named(worker, tmp_path, name, proofs, number):
    """The GPU's kernel does nothing, so the other side waits from the launch."""
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_SKIP=f"{proofs + 1}+", CUDA_LOG=log)
    with ThreadPoolExecutor() as pool:
        killed = pool.submit(kill_after_launch, pipe, log, number)
        problem = failure(prepare(pipe, WORDS[name]))
        killed.result()
    who = "the worker" if number == 0 else "process 1"
    assert problem["kind"] == "gone" and f"{who} was ended by SIGKILL" in problem["message"]
    assert pipe.peers() == []


def kill_after_launch(group, log, number):
    deadline = time.monotonic() + 300
    while not (log.exists() and launches(log)) and time.monotonic() < deadline:
        time.sleep(0.01)
    os.kill([group.worker.pid, *group.peers()][number], signal.SIGKILL)


# --- memory that cannot be shared ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings, wanted, words",
    [
        ({"CUDA_MISSING": "cuIpcOpenMemHandle"}, COPIES["h2d ipc"], "lacks cuIpcOpenMemHandle"),
        ({"CUDA_MISSING": "cuMemImportFromShareableHandle"}, COPIES["h2d posix_fd"], "lacks cuMemImportFromShareableH"),
        ({"CUDA_MISSING": "cuMemHostRegister"}, COPIES["h2d shm"], "lacks cuMemHostRegister"),
        ({"CUDA_NO_POSIX_FD": 1}, COPIES["h2d posix_fd"], "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED is 0"),
        ({"CUDA_MODE": "exclusive-free"}, IPC, "compute mode 'exclusive process': no second process can own memory"),
        ({"CUDA_REFUSE": "cuIpcOpenMemHandle"}, IPC, "ipc memory of another process cannot be opened on gpu:0: cuI"),
        ({"CUDA_REFUSE": "cuIpcOpenMemHandle:801"}, IPC, "CUDA_ERROR_NOT_SUPPORTED"),
        ({"CUDA_REFUSE": "cuIpcOpenMemHandle:999"}, IPC, "CUDA_ERROR_UNKNOWN"),
        (
            {"CUDA_REFUSE": "cuIpcGetMemHandle"},
            IPC,
            "process 1: ipc memory on gpu:0 cannot be opened by another process: cu",
        ),
        ({"CUDA_REFUSE": "cuMemImportFromShareableHandle"}, COPIES["h2d posix_fd"], "(--ipc=host --pid=host)"),
        ({"CUDA_REFUSE": "cuIpcOpenMemHandle"}, allocation("ipc", "allocate"), "CUDA_ERROR_NOT_PERMITTED"),
        ({"CUDA_NO_PEER": 1}, COPIES["d2d ipc"], "cannot access the memory"),
        ({"CUDA_NO_PEER": 1}, WORDS["gpu:0 to gpu:1, posix_fd, in the waiter's"], "cannot access the memory"),
        ({"CUDA_REFUSE": "cuIpcOpenMemHandle"}, WORDS["gpu:0 to gpu:1, ipc, in the waiter's"], "ipc memory of another"),
        ({"CUDA_MODE": "exclusive-free"}, WORDS["gpu:0 to gpu:1, ipc, in the waiter's"], "no second process can own"),
        ({"CUDA_NO_POSIX_FD": 1}, WORDS["gpu:1 to gpu:0, posix_fd, in the setter's"], "_DESCRIPTOR_SUPPORTED is 0"),
    ],
)
def test_memory_that_cannot_be_shared_gives_a_stated_reason(worker, settings, wanted, words):
    pipe, _ = opened(worker, **settings)
    assert words in refusal(pipe, wanted)
    assert words in refusal(pipe, wanted)  # the answer is cached
    assert prepare(pipe, local())["supported"]


def test_a_process_out_of_memory_fails_the_point_and_the_worker_continues(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=256 * MIB)
    twice = memories(h2d(size=136 * MIB, footprint=0, bidirectional="true"), "pinned", "ipc")
    problem = failure(prepare(pipe, twice))
    assert problem == {"kind": "memory", "message": problem["message"]}
    assert "process 1: no 136 MiB of ipc memory left on gpu:0: cuMemAlloc: CUDA_ERR" in problem["message"]
    assert run(pipe, memories(h2d(), "pinned", "ipc"))["verdict"]["ok"]


# --- faults of a process -------------------------------------------------------------------------------------------


def test_a_hanging_process_fails_the_point_in_time(impatient, worker):
    pipe, _ = opened(worker, CUDA_HANG="cuIpcGetMemHandle")
    problem = failure(prepare(pipe, IPC))
    assert problem["kind"] == "gone" and problem["hung"], problem
    assert "process 1 did not answer within 6 s: process 0 waited for its memory" in problem["message"]
    assert pipe.peers() == []


def test_a_process_that_dies_during_the_exchange_of_handles_is_named(worker):
    pipe, _ = opened(worker, CUDA_DIE="cuIpcGetMemHandle")
    problem = failure(prepare(pipe, IPC))
    assert problem["kind"] == "gone" and "process 1 ended with status 9" in problem["message"]


def test_a_process_that_dies_while_it_joins_is_named(worker):
    pipe, _ = opened(worker)
    pipe.worker._command = ["/bin/sh", "-c", 'read line; echo "{\\"ok\\": true}"; read line; exit 7']
    problem = failure(prepare(pipe, IPC))
    assert problem["kind"] == "gone" and "process 1 ended with status 7" in problem["message"]


def test_the_end_of_a_process_whose_memory_is_used_fails_the_point(worker):
    pipe, _ = opened(worker)
    assert prepare(pipe, IPC)["supported"]
    peer = peer_of(pipe)
    os.kill(peer, signal.SIGKILL)
    assert gone(peer)
    problem = failure(pipe.ask("run", samples=1, batches=[[1]], verify=True))
    assert problem["kind"] == "lost" and "process 1 ended while process 0 waited" in problem["message"]


def test_no_process_outlives_its_worker(worker):
    pipe, _ = opened(worker)
    assert run(pipe, IPC)["verdict"]["ok"]
    peer = peer_of(pipe)
    assert pipe.worker.kill()
    assert gone(peer)


# --- requests that make no sense -----------------------------------------------------------------------------------


@pytest.fixture
def pipe():
    with Pipe(WORKER, environment()) as opened_later:
        yield opened_later


def test_a_worker_says_how_many_processes_a_program_has(pipe):
    assert pipe.ask("open", platform="cuda")["ok"]
    answer = prepare(pipe, IPC)
    assert answer == {"ok": True, "supported": True, "processes": 2}
    assert "'run' before 'prepare'" in failure(pipe.ask("run", samples=1, batches=[[1]]))["message"]


def test_requests_in_the_wrong_order_are_refused(pipe):
    join = {"process": 0, "processes": 2, "meeting": "nobody"}
    assert "'join' before 'open'" in failure(pipe.ask("join", **join))["message"]
    assert pipe.ask("open", platform="cuda")["ok"]
    alone = failure(pipe.ask("prepare", case=IPC, key="point#0", processes=2))
    assert alone == {"kind": "usage", "message": "the processes of the program have not joined each other"}
    for wrong, words in (
        ({"process": 2}, "process 2 of 2 processes cannot join"),
        ({"processes": 1000}, "process 0 of 1000 processes cannot join"),
        ({"meeting": "x" * 200}, "is too long"),
    ):
        assert words in failure(pipe.ask("join", **join | wrong))["message"]


def test_a_process_that_does_not_come_is_named(impatient, pipe):
    assert pipe.ask("open", platform="cuda")["ok"]
    problem = failure(pipe.ask("join", process=0, processes=3, meeting=f"alone-{os.getpid()}"))
    assert problem == {"kind": "timeout", "message": "process 1 did not come to the meeting in time"}
    assert run(pipe, local())["ok"]
