"""Suite `sharing`: several clients of one GPU; MPS, its daemon and its absence."""

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fake_driver import environment, needs_fake, needs_worker
from linkscope.cli.main import main
from linkscope.errors import FINE, NOT_HERE
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.run import benchmark_table, gpu_memory, mps
from linkscope.run.target import choose
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import Point, Run, read_run
from test_cli import linkscope

pytestmark = [needs_worker]
WORKS, WAYS = ("h2d", "d2h", "mix", "launch"), ("threads", "processes", "mps", "green")

# A control program that starts a process in place of the daemon, as NVIDIA's does.
CONTROL = """#!/bin/sh
pid="$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid"
if [ "$1" = -d ]; then
  [ -n "$FAKE_MPS_FAILS" ] && { echo "cannot bind" >&2; exit 1; }
  sleep 600 >/dev/null 2>&1 & echo $! > "$pid"
  echo "$! $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY" >> "$FAKE_MPS_LOG"
else
  read command; [ "$command" = quit ] && [ -z "$FAKE_MPS_STAYS" ] && kill "$(cat "$pid")"
fi
"""


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake control program in PATH. Returns its log: number and folders of each daemon."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / mps.CONTROL
    program.write_text(CONTROL)
    program.chmod(0o755)
    log = tmp_path / "mps.log"
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE_MPS_LOG", str(log))
    return log


def started(log: Path) -> list[list[str]]:
    return [line.split() for line in log.read_text().splitlines()]


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or waits for its parent to notice."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def measured(path: Path, *only: str, machine: str = "h200x4") -> Run:
    globs = [word for glob in only for word in ("--only", glob)]
    words = ["run", "--machine", machine, "--suite", "sharing", *globs, "--rounds", "2", "-o", str(path), "-q"]
    assert main(words) in (FINE, NOT_HERE)
    return read_run(path)


def clients(run: Run) -> dict[tuple[str, int], Point]:
    return {(point.params["way"], int(point.params["clients"])): point for point in run.points}


def test_the_suite_has_each_work_way_and_number_of_clients_on_one_gpu() -> None:
    points = points_of(SUITES["sharing"], choose("h200x4", 1).facts, benchmark_table())
    assert {(point.benchmark, point.param("way"), point.param("clients")) for point in points} == {
        (f"shared_{work}", way, count) for work in WORKS for way in WAYS for count in "124"
    }
    assert len({(point.src, point.dst) for point in points}) == 1


def test_clients_share_the_link_by_any_way_on_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = clients(measured(tmp_path / "run.jsonl", "shared_h2d/*"))
    alone = found["threads", 1].flows[0].gbps or 0
    assert all(found[way, 1].flows[0].gbps == pytest.approx(alone, rel=0.02) for way in WAYS)
    for way in WAYS:
        rates = [flow.gbps or 0 for flow in found[way, 4].flows]
        assert max(rates) == pytest.approx(min(rates), rel=0.05)
        assert (sum(rates) < 0.95 * alone) == (way == "processes")  # a change of context takes time
    capsys.readouterr()
    assert main(["report", str(tmp_path / "run.jsonl"), "--summary=full"]) == 0
    text = capsys.readouterr().out
    assert "Sharing one GPU" in text and "4 processes under MPS" in text and "p99 over alone" in text


def test_clients_on_a_fast_and_on_a_slow_path_are_compared_with_one_client_on_the_same_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    globs = [word for count in (1, 4) for word in ("--only", f"shared_h2d/*clients={count}&way=threads")]
    words = ["run", "--machine", "ac922", "--suite", "sharing", *globs, "-o", str(path), "-q"]
    assert main(words) == 0
    capsys.readouterr()
    assert main(["report", str(path), "--summary"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    for gpu, gbps in ((0, r"69\.\d+"), (2, r"40\.\d+")):
        found = (
            rf"copies to the GPU, numa:0 and gpu:{gpu}, 4 clients: threads of one process ~?{gbps} GB/s \(~?×1 of one"
        )
        assert re.search(found, told), told


@pytest.mark.parametrize("way", ["threads", "mps"])
@pytest.mark.parametrize("count", [3, 8])
def test_other_numbers_of_clients_are_measured_by_their_ids(way: str, count: int, tmp_path: Path) -> None:
    """The suite has 1, 2 and 4 clients. A whole id names a point outside the suite."""
    of = "shared_h2d/ce/numa:0.pinned->gpu:0.device/0?clients={}&way={}"
    found = clients(measured(tmp_path / "run.jsonl", of.format(1, way), of.format(count, way)))
    alone, rates = found[way, 1].flows[0].gbps or 0, [flow.gbps or 0 for flow in found[way, count].flows]
    assert len(rates) == count and sum(rates) == pytest.approx(alone, rel=0.05)
    assert max(rates) == pytest.approx(min(rates), rel=0.05)


def test_processes_in_turn_get_their_part_of_the_time_and_those_under_mps_all_of_it(tmp_path: Path) -> None:
    """A process keeps the GPU for its slice of 2 ms, so that three of four times nothing of a client runs."""
    found = clients(measured(tmp_path / "run.jsonl", "shared_launch/*"))
    each = {way: max(flow.median_s or 0 for flow in found[way, 4].flows) for way in WAYS}
    alone = found["threads", 1].median_s or 0
    assert each["processes"] > 3 * alone
    assert each["mps"] == pytest.approx(alone, rel=0.1) and each["threads"] == pytest.approx(alone, rel=0.1)


def test_a_model_without_time_slices_refuses_processes_with_a_reason(tmp_path: Path) -> None:
    run = measured(tmp_path / "run.jsonl", "shared_h2d/*clients=2&way=processes", machine="dl160")
    assert {point.status for point in run.points} == {"unsupported"}
    assert "context_switch_us" in (run.points[0].reason or "")


@needs_fake
def test_threads_processes_and_green_contexts_on_the_fake_driver(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    only = [word for way in WAYS for word in ("--only", f"shared_mix/*clients=2&way={way}")]
    words = ("--suite", "sharing", *only, "--rounds", "1", "--contexts", "any", "-o", str(path), "-q")
    done = linkscope("run", *words, environment=environment(CUDA_GPUS=1) | {"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0, done.stderr
    found = clients(read_run(path))
    mps_point = found.pop(("mps", 2))
    assert mps_point.status == "unsupported" and mps_point.reason == f"MPS: {mps.CONTROL} is not installed"
    for point in found.values():
        assert point.verified and len(point.flows) == 2 and point.status != "failed", point.reason
        assert all(flow.gbps and flow.p50_s and flow.p99_s for flow in point.flows)
    assert found["green", 2].guards["green_sms"] == "64"


@needs_fake
def test_processes_under_mps_are_clients_of_a_daemon_that_ends(tmp_path: Path, control: Path) -> None:
    path = tmp_path / "run.jsonl"
    words = ("--suite", "sharing", "--only", "shared_h2d/*clients=4&way=mps", "--rounds", "2", "--contexts", "any")
    done = linkscope("run", *words, "-o", str(path), "-q", environment=environment(CUDA_GPUS=1))
    assert done.returncode == 0, done.stderr
    (point,) = read_run(path).points
    assert point.verified and len(point.flows) == 4
    daemons = started(control)
    assert len(daemons) == 2  # one a round
    for pid, pipe, log in daemons:
        assert has_ended(int(pid)) and not Path(pipe).exists() and not Path(log).exists()


def test_an_mps_daemon_that_does_not_end_is_killed(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MPS_STAYS", "1")
    monkeypatch.setattr(mps, "_END_S", 0.2)
    with mps.daemon() as variables:
        folders = [variables[f"CUDA_MPS_{name}_DIRECTORY"] for name in ("PIPE", "LOG")]
        assert all(Path(folder).is_dir() for folder in folders)
    ((pid, *_),) = started(control)
    deadline = time.monotonic() + 300
    while not has_ended(int(pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert has_ended(int(pid))


@pytest.mark.parametrize("chosen, queues", [(None, 8), ("5", 5)])
def test_clients_of_mps_ask_for_as_many_queues_as_the_driver_gives_by_default_or_the_user_chose(
    control: Path, monkeypatch: pytest.MonkeyPatch, chosen: str | None, queues: int
) -> None:
    """Clients share the GPU's queues, and a worker alone asks for all 32."""
    monkeypatch.delenv("CUDA_DEVICE_MAX_CONNECTIONS", raising=False)
    if chosen:
        monkeypatch.setenv("CUDA_DEVICE_MAX_CONNECTIONS", chosen)
    with mps.daemon() as variables:
        worker = Worker(["env", *(f"{name}={value}" for name, value in variables.items()), *worker_command()])
    assert worker.hello()["hardware_queues"] == queues
    worker.kill()


@needs_fake
def test_a_client_of_mps_without_memory_for_its_context_says_what_was_free_and_who_held_it(
    tmp_path: Path, control: Path
) -> None:
    path = tmp_path / "run.jsonl"
    words = ("--suite", "sharing", "--only", "shared_h2d/*clients=4&way=mps", "--rounds", "1", "--contexts", "any")
    # 2: out of memory. With any context, the run itself makes none before its first point.
    without = environment(CUDA_GPUS=1, NVML_GPUS=1, CUDA_REFUSE="cuDevicePrimaryCtxRetain:2")
    done = linkscope("run", *words, "-o", str(path), "-q", environment=without)
    assert done.returncode in (1, 3), done.stderr
    (point,) = read_run(path).points
    reason = point.reason or ""
    assert "cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY" in reason
    assert reason.startswith("under MPS with 8 hardware queues a client: ")
    assert "; gpu:0 has 139.9 GiB free of 140.4 GiB; processes on it: none that NVML shows" in reason


def test_processes_that_hold_memory_of_a_gpu_are_named_with_their_bytes_the_largest_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def process(pid: int, nbytes: int | None) -> SimpleNamespace:
        return SimpleNamespace(pid=pid, usedGpuMemory=nbytes)

    own = os.getpid()
    gpus = [("00000000:02:00.0", 72 << 30, [process(1 << 30, 1024)]), ("00000000:01:00.0", 0, [process(own, None)])]
    clients = [process(own, None), process((1 << 30) + 1, 79 << 30)]
    nvml = SimpleNamespace(
        NVMLError=OSError,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda index: SimpleNamespace(busId=gpus[index][0]),
        nvmlDeviceGetMemoryInfo=lambda index: SimpleNamespace(free=gpus[index][1], total=80 << 30),
        nvmlDeviceGetComputeRunningProcesses=lambda index: gpus[index][2],
        nvmlDeviceGetMPSComputeRunningProcesses=lambda index: clients if index else [],
    )
    monkeypatch.setattr(gpu_memory, "within_patience", lambda read: read(nvml))
    name = Path("/proc/self/comm").read_text().strip()
    assert gpu_memory.memory_text() == (
        f"gpu:0 has 0 B free of 80 GiB; processes on it: {(1 << 30) + 1} of another container (79 GiB), {own} {name}; "
        f"gpu:1 has 72 GiB free of 80 GiB; processes on it: {1 << 30} of another container (1 KiB)"
    )


def test_an_mps_daemon_that_does_not_start_says_why(control: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_MPS_FAILS", "1")
    with pytest.raises(mps.NoMps, match="the daemon does not start: cannot bind"), mps.daemon():
        pass


def test_an_mps_daemon_of_another_user_is_named(control: Path, tmp_path: Path) -> None:
    assert mps.why_no_mps(tmp_path / "none") == ""
    for number, name in ((7, "bash"), (42, "nvidia-cuda-mps")):
        (tmp_path / "proc" / str(number)).mkdir(parents=True)
        (tmp_path / "proc" / str(number) / "comm").write_text(f"{name}\n")
    reason = mps.why_no_mps(tmp_path / "proc")
    assert "a daemon of user" in reason and "(process 42)" in reason


@needs_fake
def test_doctor_says_whether_mps_and_green_contexts_are_there(control: Path) -> None:
    line = "Clients that share a GPU: "
    done = linkscope("doctor", environment=environment())
    assert f"{line}MPS can be started; the driver has green contexts." in done.stdout
    lacking = environment(CUDA_MISSING="cuGreenCtxCreate") | {"PATH": "/usr/bin:/bin"}
    done = linkscope("doctor", environment=lacking)
    assert (
        f"{line}MPS: {mps.CONTROL} is not installed; green contexts: the driver lacks cuGreenCtxCreate." in done.stdout
    )


@pytest.mark.parametrize(
    "machine, suite, budget", [("h200x1", "sharing", "8s"), ("h200x1", "mpi", "25s"), ("sl390", "sp-6", "3s")]
)
def test_a_run_whose_budget_left_points_out_names_one_that_is_enough(
    machine: str, suite: str, budget: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, words = tmp_path / "run.jsonl", ["run", "--machine", machine, "--suite", suite, "--force"]
    assert main([*words, "-o", str(path), "--budget", budget]) == FINE
    text = " ".join(capsys.readouterr().out.split())
    named = re.search(r"NOTE (\d+) not measured: the budget of .* left no time; `--budget (\w+)` is enough", text)
    left = sum(point.status == "skipped" for point in read_run(path).points)
    assert named and int(named[1]) == left > 0
    assert main([*words, "-o", str(path), "--budget", named[2]]) == FINE
    assert "left no time" not in capsys.readouterr().out
    assert all(point.status != "skipped" for point in read_run(path).points)


def test_points_that_a_budget_left_out_are_named_also_beside_many_unsupported_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "sl390", "--suite", "contention", "--budget", "8s", "-o", str(path)]) == FINE
    left = sum(point.status == "skipped" for point in read_run(path).points)
    assert left and f"NOTE {left} not measured: the budget" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("suite", ["sharing", "mpi"])
def test_a_suite_without_a_given_budget_measures_all_its_points(suite: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert main(["run", "--machine", "h200x1", "--suite", suite, "-o", str(path), "-q"]) == FINE
    assert {point.status for point in read_run(path).points} <= {"ok", "missed_precision", "unsupported"}
