"""Memory that a second process owns, on the fake driver.

Copies through it arrive, costs are measured in the process that pays them, and every fault of the owner or of the
sharing becomes a reason. Nothing outlives the worker.
"""

import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import pytest

from fake_driver import WORKER, environment, needs_fake, needs_worker
from processes import children
from test_driver_kinds import MIB, by_sm, memories, run
from test_driver_matrix import case, d2d, d2h, failure, h2d, local, opened, prepare, refusal, worker

__all__ = ["worker"]  # a fixture

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


def gone(pid, within_s=10.0):
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


def owner_of(pipe):
    (owner,) = children(pipe.process.pid)
    return owner


@pytest.mark.parametrize("name", COPIES)
def test_copies_through_memory_of_another_process_arrive(worker, name):
    pipe, _ = opened(worker)
    answer = run(pipe, COPIES[name])
    assert answer["ok"] and answer["verdict"]["ok"] and answer["verdict"]["checked_bytes"] > 0, answer
    assert answer["timing"] == "gate"
    assert Path(f"/proc/{owner_of(pipe)}/cmdline").read_text().split("\0")[1] == "--owns-memory"


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
    pipe.process.stdin.close()
    assert pipe.process.wait(20) == 0
    assert [line for line in log.read_text().splitlines() if line.startswith(("left", "ended"))] == ["ended"]


WRONG = {
    "h2d shm": 0, "h2d ipc": 4, "d2d ipc": 14, "d2d by sm posix_fd": 8, "read of shm": 0, "write to its own ipc": 4,
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
        # The owner reports a duration and no stamps, so calls cannot be matched. Other programs on this machine slow
        # down some samples of a fast phase, but not all.
        samples = range(2 if phase == other else 12)
        took = (pipe.ask("run", samples=1, batches=[[1]], verify=False)["stamps"] for _ in samples)
        assert all(exit_s - enter_s > slow for enter_s, exit_s in took) == (phase == other), other


@pytest.mark.parametrize("kind", OF_GPUS)
def test_the_owners_time_excludes_the_messages(worker, kind):
    """An export here is a few instructions; the request and its answer take a socket and two threads."""
    pipe, _ = opened(worker)
    assert prepare(pipe, allocation(kind, "export", size="4KiB"))["supported"]
    start = time.monotonic()
    stamps = pipe.ask("run", samples=20, batches=[[32]], verify=False)["stamps"]
    took = median([exit_s - enter_s for enter_s, exit_s in zip(stamps[::2], stamps[1::2], strict=True)])
    assert 0 < 20 * took < (time.monotonic() - start) / 3


def test_no_memory_or_descriptor_is_leaked(worker):
    """Consecutive sessions, on GPUs that have room for few of them; descriptors and mappings come and go."""
    pipe, _ = opened(worker, CUDA_MEMORY=256 * MIB, CUDA_PINNED=128 * MIB)
    counts = []
    for _ in range(3):
        for kind, phases in PHASES.items():
            for phase in (phases[0], phases[2], phases[-1]):
                answer = run(pipe, allocation(kind, phase, size="64KiB"), counts=((7,), (32,)))
                assert answer["ok"], (kind, phase, answer)
        assert run(pipe, IPC)["ok"] and pipe.ask("release")["ok"]
        processes = (pipe.process.pid, owner_of(pipe))
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
        assert pipe.ask("release")["ok"]
        counts.append([len(os.listdir(f"/proc/{pid}/fd")) for pid in (pipe.process.pid, owner_of(pipe))])
    assert counts[1] == counts[2]
    pipe.process.stdin.close()
    assert pipe.process.wait(20) == 0
    assert [line for line in log.read_text().splitlines() if line.startswith(("left", "ended"))] == ["ended"]


def test_ping_pong_of_cpus_of_two_processes_needs_no_gpu(worker):
    pipe, _ = opened(worker, CUDA_GPUS=0)
    assert run(pipe, WORDS["numa:0"])["verdict"]["ok"]


@pytest.mark.parametrize(
    "name, proofs, place",
    [
        ("gpu:1", 2, "numa:0.shm"),
        ("gpu:0 to gpu:1, ipc, in the waiter's", 14, "gpu:"),
        ("gpu:1 to gpu:0, posix_fd, in the setter's", 8, "gpu:"),
    ],
)
def test_a_word_that_does_not_arrive_is_a_time_out_with_its_place(worker, name, proofs, place):
    """After the copies that prove that the memory is shared, the kernels of one side do nothing."""
    pipe, _ = opened(worker, CUDA_SKIP=f"{proofs + 1}+")
    prepared = prepare(pipe, WORDS[name])
    answer = prepared if not prepared["ok"] else pipe.ask("run", samples=1, batches=[[3, 3]], verify=True)
    problem = failure(answer)
    assert problem["kind"] == "timeout" and f"waited 2.000000 s for a word in {place}" in problem["message"]
    assert run(pipe, local())["ok"]  # the worker and its owner continue


@pytest.mark.parametrize("name, proofs", [("gpu:1", 0), ("gpu:0 to gpu:1, ipc, in the waiter's", 14)])
def test_an_owner_that_is_killed_while_it_waits_fails_the_point(worker, tmp_path, name, proofs):
    """The GPU's kernel does nothing, so the owner waits from the launch."""
    log = tmp_path / "log"
    pipe, _ = opened(worker, CUDA_SKIP=f"{proofs + 1}+", CUDA_LOG=log)
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(prepare, pipe, WORDS[name])
        deadline = time.monotonic() + 20
        while not (log.exists() and launches(log)) and time.monotonic() < deadline:
            time.sleep(0.01)
        os.kill(owner_of(pipe), signal.SIGKILL)
        problem = failure(answer.result(20))
    assert problem["kind"] == "lost" and "was ended by signal 9" in problem["message"]


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
        ({"CUDA_REFUSE": "cuIpcGetMemHandle"}, IPC, "process that owns it, cuIpcGetMemHandle: CUDA_ERROR_NOT_PERMI"),
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


def test_an_owner_out_of_memory_fails_the_point_and_the_worker_continues(worker):
    pipe, _ = opened(worker, CUDA_MEMORY=256 * MIB)
    twice = memories(h2d(size=136 * MIB, footprint=0, bidirectional="true"), "pinned", "ipc")
    problem = failure(prepare(pipe, twice))
    assert problem == {"kind": "memory", "message": problem["message"]}
    assert "in the process that owns it, cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY" in problem["message"]
    assert run(pipe, memories(h2d(), "pinned", "ipc"))["verdict"]["ok"]


# --- faults of the owner -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("calls", [0, 1])  # 0: while sharing is tried; 1: later
def test_a_hanging_owner_fails_the_point_in_time(worker, calls):
    pipe, _ = opened(worker, CUDA_HANG=f"cuIpcGetMemHandle:{calls}")
    start = time.monotonic()
    problem = failure(prepare(pipe, IPC))
    assert problem["kind"] == "lost" and "did not answer within 3 s; it was ended" in problem["message"]
    assert time.monotonic() - start < 9.5  # earlier than the time-out of the worker's parent
    assert children(pipe.process.pid) == []


def test_an_owner_that_dies_during_its_work_fails_the_point(worker):
    pipe, _ = opened(worker, CUDA_DIE="cuIpcGetMemHandle:1")
    problem = failure(prepare(pipe, IPC))
    assert problem["kind"] == "lost" and "ended with exit code 9" in problem["message"]


def test_an_owner_that_is_killed_during_a_run_fails_the_point(worker):
    pipe, _ = opened(worker)
    assert prepare(pipe, IPC)["supported"]
    owner = owner_of(pipe)
    os.kill(owner, signal.SIGKILL)
    assert gone(owner)
    problem = failure(pipe.ask("run", samples=1, batches=[[1]], verify=True))
    assert problem["kind"] == "lost" and "was ended by signal 9" in problem["message"]


@pytest.mark.parametrize("how", ["killed", "input ends", "stopped while the owner hangs"])
def test_no_owner_outlives_its_worker(worker, how):
    settings = {"CUDA_HANG": "cuIpcGetMemHandle:1"} if "hangs" in how else {}
    pipe, _ = opened(worker, **settings)
    if settings:
        pipe.process.stdin.write(json.dumps({"op": "prepare", "case": IPC, "key": "point#0"}).encode() + b"\n")
        deadline = time.monotonic() + 10
        while not children(pipe.process.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
    else:
        assert run(pipe, IPC)["verdict"]["ok"]
    owner = owner_of(pipe)
    if how == "input ends":
        pipe.process.stdin.close()
        assert pipe.process.wait(10) == 0
    else:
        pipe.process.kill()
    assert gone(owner)


# --- messages on the owner's socket --------------------------------------------------------------------------------

REQUEST = struct.Struct("<III4xQQQ64s64sQQQQI4xQQQQQ?7xd")  # core/platform/cuda/owner_messages.hpp
ALLOCATE, SHARE, TOUCH, LOOK, FREE, EXCHANGE, OPEN = range(7)
# Piece and offset of the words to set and to wait for, node, values, steps, count, the first side, time-out.
NO_WORDS = (1, 0, 1, 0, 0, 0, 0, 0, 0, 0, False, 0.0)
IPC_KIND, POSIX_FD, SHM = 13, 14, 15
A_GPU = b"GPU-fa4ec0da-0000-4200-8000-00000000001b"


@pytest.fixture
def owner():
    """The other end of an owner's socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(20)
    process = subprocess.Popen([WORKER, "--owns-memory"], env=environment(), stdin=theirs)
    theirs.close()
    yield ours, process
    ours.close()
    assert process.wait(10) == 0


def requested(ours, op, kind=0, node=0, size=0, piece=0, offset=0, gpu=b"", handle=b"", words=NO_WORDS):
    ours.send(REQUEST.pack(op, kind, node, size, piece, offset, gpu, handle, *words))
    answer, descriptors, *_ = socket.recv_fds(ours, 4096, 4)
    for one in descriptors:
        os.close(one)
    (failed,) = struct.unpack_from("<I", answer)
    (piece,) = struct.unpack_from("<Q", answer, 8)
    return answer[-256:].split(b"\0")[0].decode() if failed else (piece, len(descriptors))


@pytest.mark.parametrize(
    "request_, words",
    [
        ({"op": 99}, "there is no request 99"),
        ({"op": ALLOCATE, "kind": 0, "size": 4096}, "memory kind 0 is not shared"),
        ({"op": ALLOCATE, "kind": 2**32 - 1, "size": 4096}, "memory kind"),
        ({"op": ALLOCATE, "kind": SHM}, "a piece of 0 bytes"),
        ({"op": ALLOCATE, "kind": SHM, "size": 4096, "node": 4000}, "there is no NUMA node 4000"),
        ({"op": ALLOCATE, "kind": SHM, "size": 2**63}, "of shared memory"),
        ({"op": ALLOCATE, "kind": 13, "size": 4096, "gpu": b"x" * 64}, "there is no GPU 'xxxx"),
        ({"op": SHARE, "piece": 7}, "there is no piece 7"),
        ({"op": FREE, "piece": 2**64 - 1}, "there is no piece"),
        ({"op": LOOK, "piece": 1, "offset": 4096}, "there is no word at byte 4096 of 4 KiB"),
        ({"op": LOOK, "piece": 1, "offset": 2**64 - 8}, "there is no word at byte"),
        ({"op": LOOK, "piece": 1, "offset": 4}, "there is no word at byte 4"),
        ({"op": SHARE, "piece": 1}, "came with its descriptor"),
        ({"op": EXCHANGE, "words": (1, 4096, *NO_WORDS[2:])}, "there is no word at byte 4096"),
        ({"op": EXCHANGE, "words": (1, 0, 1, 2**63 + 1, *NO_WORDS[4:])}, "there is no word at byte"),
        ({"op": EXCHANGE, "words": (7, *NO_WORDS[1:])}, "there is no piece 7"),
        ({"op": EXCHANGE, "words": (1, 0, 7, *NO_WORDS[3:])}, "there is no piece 7"),
        ({"op": EXCHANGE, "words": (1, 0, 1, 8, 4000, *NO_WORDS[5:])}, "there is no NUMA node 4000"),
        ({"op": EXCHANGE, "gpu": b"y" * 64}, "there is no GPU 'yyyy"),
        ({"op": EXCHANGE, "gpu": A_GPU}, "in memory that its GPU has or has opened"),
        ({"op": OPEN, "kind": SHM, "size": 4096, "gpu": A_GPU}, "memory kind 15 is opened by no GPU"),
        ({"op": OPEN, "kind": IPC_KIND, "gpu": A_GPU}, "a piece of 0 bytes"),
        ({"op": OPEN, "kind": IPC_KIND, "size": 4096, "gpu": A_GPU}, "cuIpcOpenMemHandle: CUDA_ERROR_INVALID_VALUE"),
        ({"op": OPEN, "kind": POSIX_FD, "size": 4096, "gpu": A_GPU}, "cuMemImportFromShareableHandle: CUDA_ERROR_INV"),
    ],
)
def test_an_invalid_request_is_refused(owner, request_, words):
    ours, _ = owner
    assert requested(ours, ALLOCATE, kind=SHM, size=4096) == (1, 1)
    assert words in requested(ours, **request_)
    assert requested(ours, FREE, piece=1) == (0, 0)


@pytest.mark.parametrize("message", [b"x", REQUEST.pack(0, 0, 0, 0, 0, 0, b"", b"", *NO_WORDS) + b"x"])
def test_an_owner_ends_at_a_message_that_is_no_request(owner, message):
    ours, process = owner
    ours.send(message)
    assert process.wait(10) == 0
