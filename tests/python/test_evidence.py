"""tools/evidence.py: steps without enough time are not started, and runs are packed under the machine's name."""

import gzip
import io
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import comm_scope_names as names
import evidence as tool
import pytest

from fake_driver import ROOT, environment, needs_fake, needs_worker
from linkscope.plan.enumerate import points_of
from linkscope.plan.suites import SUITES
from linkscope.run import benchmark_table
from linkscope.run.target import choose
from linkscope.runfile import read_run


def evidence(*words: str, **settings: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "evidence.py"), *words]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True, timeout=300)


def test_a_step_without_enough_time_is_not_started_and_is_named(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--seconds", "45")
    assert done.returncode == 0 and done.stdout.count("not started") == 8 and "MemAvailable" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_a_step_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "quick,slow")
    assert done.returncode == 2 and "there is not a step slow" in done.stderr


@pytest.mark.parametrize(
    ("gpus", "name"),
    [(["NVIDIA H100 80GB HBM3"] * 4, "h100x4"), (["NVIDIA H200"], "h200x1"), ([], "host")],
)
def test_a_machine_has_the_name_of_its_gpus_without_their_memory(
    monkeypatch: pytest.MonkeyPatch, gpus: list[str], name: str
) -> None:
    monkeypatch.setattr(tool, "gpus", lambda: gpus)
    assert tool.machine() == name


@needs_fake
@needs_worker
def test_a_run_is_packed_under_the_machines_name_with_its_log(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "quick", "--seconds", "70", CUDA_GPUS=1, NVML_GPUS=1)
    assert done.stdout.count("MemAvailable") == 2 and "quick: exit code" in done.stdout, done.stdout
    (run,) = tmp_path.glob("*x1-quick.jsonl.gz")
    with gzip.open(run, "rt") as lines:
        assert '"record":"end"' in list(lines)[-1]
    assert "run file:" in (tmp_path / "log.txt").read_text()


@pytest.mark.parametrize("name", ["full", "comm-scope"])
def test_a_stopped_run_is_resumed_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kept, packed, started, status = tmp_path / "kept", tmp_path / "packed", [], 4

    def run(words: list[str], seconds: float, log: object) -> int:
        options = words[words.index("run") + 1 :]
        started.append(options[:-1])
        with Path(options[-1]).open("a") as lines:
            lines.write("a line\n")
        return status

    monkeypatch.setattr(tool, "logged", run)
    monkeypatch.setattr(tool, "machine", lambda: "testx2")
    for folder in (kept, packed):
        folder.mkdir()
    for status, parts in ((4, 1), (-9, 2), (0, 3), (1, 1), (4, 1), (2, 2), (0, 1)):  # 2: refused
        tool.carried_out(name, packed, kept, 500.0, io.StringIO())
        assert list(kept.iterdir()) == ([kept / f"testx2-{name}.jsonl"] if status in (4, -9) else [])
        with gzip.open(packed / f"testx2-{name}.jsonl.gz", "rt") as lines:
            assert len(list(lines)) == parts
    new, again = ["--suite", name, "-o"], ["--resume"]
    assert started == [new, again, again, new, new, again, new]
    status = 4
    tool.carried_out("standard", packed, kept, 500.0, io.StringIO())
    assert list(kept.iterdir()) == []  # a run cut in half cannot show how long this step takes


@pytest.mark.parametrize("name", ["full", "comm-scope"])
@pytest.mark.parametrize("status, returned", [(4, 4), (-9, 137)])
def test_long_steps_get_the_remaining_time_and_the_worst_exit_code_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, returned: int, name: str
) -> None:
    done: list[tuple[str, Path, float]] = []

    def carried_out(name: str, folder: Path, unfinished: Path, left_s: float, log: object) -> int:
        done.append((name, unfinished, left_s))
        return 0 if name == "quick" else status

    words = [str(tmp_path), "--seconds", "400", "--steps", f"{name},quick", "--unfinished", str(tmp_path / "kept")]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *words])
    monkeypatch.setattr(tool, "carried_out", carried_out)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: 1e3))
    assert tool.main() == returned
    assert done == [(name, tmp_path / "kept", 400.0 - tool.ENDING_S), ("quick", tmp_path / "kept", 40)]


@pytest.mark.parametrize("deaf", [False, True])
def test_a_step_out_of_time_is_interrupted_and_then_killed(monkeypatch: pytest.MonkeyPatch, deaf: bool) -> None:
    events: list[object] = []

    class Long:
        def __init__(self, words: list[str], **settings: object) -> None: ...

        def wait(self, seconds: float | None = None) -> int:
            events.append(seconds)
            if seconds == 500.0 or (deaf and seconds is not None):
                raise subprocess.TimeoutExpired("linkscope", seconds)
            return -9 if deaf else 4

        def send_signal(self, number: int) -> None:
            events.append(number)

        def kill(self) -> None:
            events.append("kill")

    monkeypatch.setattr(tool.subprocess, "Popen", Long)
    assert tool.logged(["linkscope"], 500.0, io.StringIO()) == (-9 if deaf else 4)
    assert events == [500.0, signal.SIGINT, tool.ENDING_S, *(["kill", None] if deaf else [])]


def test_findings_measures_only_the_points_that_the_findings_need_on_these_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(tool, "logged", lambda words, seconds, log: started.append(words) or 0)
    monkeypatch.setattr(tool, "machine", lambda: "testx2")
    monkeypatch.setattr(tool, "gpus", lambda: ["test"] * 2)
    points = {"2": SimpleNamespace(stdout="--only d2h/* --only h2d/*\n")}  # by the number of GPUs
    monkeypatch.setattr(tool.subprocess, "run", lambda words, **settings: points[words[words.index("--gpus") + 1]])
    assert tool.carried_out("findings", tmp_path, tmp_path, 120.0, io.StringIO()) == 0
    suite = ["--suite", "full", "--budget", "90s", "--only", "d2h/*", "--only", "h2d/*"]
    assert started[0][started[0].index("run") + 1 :] == [*suite, "-o", str(tmp_path / "testx2-findings.jsonl")]


# --- beside Comm|Scope's program ---

FAKE = """#!{python}
# Lists and prints what Comm|Scope 0.12 does, for the benchmarks that its filter selects; the last {cut} letters of each
# file are missing, as after an interruption.
import json, re, sys
given = dict(word.split("=", 1) for word in sys.argv[1:])
times = {{"Comm_cudaMemcpyAsync_PinnedToGPU/0/0/log2(N):24/manual_time": 306e3,
         "Comm_cudaMemcpyAsync_PinnedToGPU/0/0/log2(N):25/manual_time": 600e3,
         "Comm_ZeroCopy_GPUToHost/0/0/log2(N):24/manual_time": None,
         "Comm_ZeroCopy_HostToGPU/0/0/log2(N):24/manual_time": 336e3,
         "Comm_UM_Prefetch_HostToGPU/0/0/log2(N):24/manual_time": 1.0,
         "Comm_Prefetch_Duplex_HostGPU/0/0/log2(N):26/manual_time": 4000e3,
         "Comm_3d_kernel3D_pull/0/0/log2(N):24/manual_time": 5.0}}
names = [name for name in times if re.search(given["--benchmark_filter"], name)]
print("Comm|Scope 0.12.0 master")
if given.get("--benchmark_list_tests") == "true":
    sys.exit(print("\\n".join(names)))
assert 1 <= len(names) <= 4 and 0.05 <= float(given["--benchmark_min_time"]) <= 1
assert given["--benchmark_repetitions"] == "5" and given["--benchmark_out_format"] == "json"
rows = []
for name in names:
    one = {{"name": name, "run_name": name, "run_type": "iteration", "repetitions": 5, "time_unit": "ns"}}
    if times[name] is None:
        error = {{"error_occurred": True, "error_message": "failed to allocate host memory", "real_time": 0.0}}
        rows.append(one | error)
        continue
    rows += [one | {{"real_time": times[name] * factor}} for factor in (0.999, 1, 1, 1, 1.001)]
    rows.append(one | {{"run_type": "aggregate", "aggregate_name": "mean", "real_time": 7 * times[name]}})
text = json.dumps({{"context": {{}}, "benchmarks": rows}})
with open(given["--benchmark_out"], "w") as file:
    file.write(text[: len(text) - {cut}])
"""


def fake_comm_scope(folder: Path, cut: int) -> str:
    fake = folder / "comm_scope"
    fake.write_text(FAKE.format(python=sys.executable, cut=cut))
    fake.chmod(0o755)
    return str(fake)


def rows_of(printed: str) -> dict[str, str]:
    return {line.split(" | ")[0][7:-4]: line for line in printed.splitlines() if line.startswith("| Comm_")}


@needs_worker
def test_comm_scope_and_the_same_points_by_its_rule_give_a_table_of_agreement(tmp_path: Path) -> None:
    words = ["--steps", "beside", "--tool", fake_comm_scope(tmp_path, 0), "--machine", "h200x1"]
    done = evidence(str(tmp_path / "out"), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(done.stdout)
    assert list(rows) == [
        "cudaMemcpyAsync_PinnedToGPU", "ZeroCopy_GPUToHost", "ZeroCopy_HostToGPU", "UM_Prefetch_HostToGPU",
        "Prefetch_Duplex_HostGPU",
    ]  # fmt: skip
    assert "| 306 us | unsupported: in the model, CPU caches" in rows["cudaMemcpyAsync_PinnedToGPU"]
    assert "| 16 MiB | 336 us | 331.6 us | -1.3% | 5.0% |  |" in rows["ZeroCopy_HostToGPU"]
    assert rows["Prefetch_Duplex_HostGPU"].endswith("| 5.0% |  |"), "from the first start to the last end"
    assert rows["UM_Prefetch_HostToGPU"].endswith("| beyond |")
    assert "failed to allocate host memory" in rows["ZeroCopy_GPUToHost"]
    assert "2 of 3 compared benchmarks agree; 2 could not be compared." in done.stdout
    expected = (
        r"beside: (\d) benchmarks? of Comm\|Scope, 5 repetitions of at least [01]\.\d+ s: about \d+ s expected, .*"
    )
    assert re.findall(f"{expected}; group (\\d) of 2", done.stdout) == [("5", "1"), ("1", "2")]
    table = (tmp_path / "out" / "h200x1-beside.md").read_text()
    files = [str(tmp_path / "out" / f"h200x1-beside{ending}") for ending in (".jsonl", "-1.json", "-2.json")]
    again = [sys.executable, str(ROOT / "tools" / "side_by_side.py"), *files]
    assert subprocess.run(again, capture_output=True, text=True, timeout=300).stdout == table


@needs_worker
def test_an_interrupted_comm_scope_is_compared_in_the_benchmarks_that_it_finished(tmp_path: Path) -> None:
    words = ["--steps", "beside", "--tool", fake_comm_scope(tmp_path, 300), "--machine", "h200x1"]
    done = evidence(str(tmp_path / "out"), *words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(done.stdout)
    cut = {"UM_Prefetch_HostToGPU", "Prefetch_Duplex_HostGPU"}  # the last of the first group and of the second
    assert all(("interrupted after 4 of 5 repetitions" in row) == (name in cut) for name, row in rows.items())
    assert "3 of 5 benchmarks have no result: Comm_" in done.stdout  # with the one that could not allocate
    assert "| 331.6 us | -1.3% |" in rows["ZeroCopy_HostToGPU"]
    assert {point.benchmark for point in read_run(tmp_path / "out" / "h200x1-beside.jsonl").points} == {"h2d", "read"}


def test_step_beside_needs_the_tool_and_says_where_it_wrote_nothing(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "beside")
    assert done.returncode == 2 and "step beside needs --tool" in done.stderr
    done = evidence(str(tmp_path), "--steps", "beside", "--tool", "/bin/true", "--machine", "h200x1")
    assert done.returncode == 1 and "/bin/true lists no benchmarks of 2^N bytes for N = 24,26" in done.stdout
    words = ["--steps", "beside", "--tool", fake_comm_scope(tmp_path, 10_000), "--machine", "h200x1"]
    done = evidence(str(tmp_path), *words)
    assert done.returncode == 1 and "comm_scope wrote no results" in done.stdout
    assert "(not run: the program ended before, or no time was left)" in done.stdout


def test_every_benchmark_of_comm_scope_names_a_point_of_its_suite() -> None:
    facts = choose("h200x2", 1).facts
    points = {str(point) for point in points_of(SUITES["comm-scope"], facts, benchmark_table())}
    for name in names.POINTS:
        # threads follow node and GPU; copies without peer access have the node first
        numbers = "0/0/4" if name.endswith("Mt") else "0/0/1" if name == "cudaMemcpyAsync_GPUToGPU" else "0/0"
        if "GPUToGPU" in name or "GPUGPU" in name:
            numbers = "0/0/1" if name == "cudaMemcpyAsync_GPUToGPU" else "0/1"
        id = names.point_of(f"Comm_{name}/{numbers}/log2(N):24/manual_time")
        assert id in points, f"{name}: {id}"
    assert names.point_of("Comm_3d_kernel3D_pull/0/0/log2(N):24") == ""
    assert names.point_of("Comm_cudaMemcpyAsync_PinnedToGPU_flush/0/1/log2(N):8/manual_time") == names.point_of(
        "Comm_cudaMemcpyAsync_PinnedToGPU/0/1/log2(N):8/manual_time"
    )
