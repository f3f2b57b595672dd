"""tools/evidence.py: steps without enough time are not started, and runs are packed under the machine's name."""

import gzip
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import comm_scope_names as names
import evidence as tool
import evidence_one_gpu as one_gpu
import evidence_runs as runs
import evidence_step as steps
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
    assert {path.name for path in tmp_path.iterdir()} == {"log.txt", "unfinished"}


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
    monkeypatch.setattr(steps, "gpus", lambda: gpus)
    assert steps.machine() == name


@needs_fake
@needs_worker
def test_a_run_is_packed_under_the_machines_name_with_its_log(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "quick", "--seconds", "70", CUDA_GPUS=1, NVML_GPUS=1)
    assert done.stdout.count("MemAvailable") == 2 and "quick: exit code" in done.stdout, done.stdout
    (run,) = tmp_path.glob("*x1-quick.jsonl.gz")
    with gzip.open(run, "rt") as lines:
        assert '"record":"end"' in list(lines)[-1]
    assert "run file:" in (tmp_path / "log.txt").read_text()


def call(folder: Path, name: str, seconds: float = 500.0) -> steps.Call:
    given = SimpleNamespace(machine="", small=False)
    return steps.Call(name, seconds, folder / "packed", folder / "kept", io.StringIO(), given)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["full", "comm-scope"])
def test_a_stopped_run_is_resumed_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    kept, packed, started, status = tmp_path / "kept", tmp_path / "packed", [], 4

    def run(words: list[str], *_: object) -> int:
        options = words[words.index("run") + 1 :]
        started.append(options[:-1])
        with Path(options[-1]).open("a") as lines:
            lines.write("a line\n")
        return status

    monkeypatch.setattr(steps, "logged", run)
    monkeypatch.setattr(steps, "machine", lambda: "testx2")
    for folder in (kept, packed):
        folder.mkdir()
    for status, parts in ((4, 1), (-9, 2), (0, 3), (1, 1), (4, 1), (2, 2), (0, 1)):  # 2: refused
        tool.ALL[name].action(call(tmp_path, name))
        assert list(kept.iterdir()) == ([kept / f"testx2-{name}.jsonl"] if status in (4, -9) else [])
        with gzip.open(packed / f"testx2-{name}.jsonl.gz", "rt") as lines:
            assert len(list(lines)) == parts
    new, again = ["--suite", name, "-o"], ["--resume"]
    assert started == [new, again, again, new, new, again, new]
    status = 4
    tool.ALL["standard"].action(call(tmp_path, "standard"))
    assert list(kept.iterdir()) == []  # a run cut in half cannot show how long this step takes


def main_with(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, statuses: dict[str, int]
) -> tuple[int, list[tuple[str, float]]]:
    """The exit code of a call whose steps return these statuses at once, and the steps with their seconds."""
    started: list[tuple[str, float]] = []

    def action(one: steps.Call) -> int:
        started.append((one.name, one.seconds))
        assert one.unfinished == folder / "kept"
        return statuses[one.name]

    for name in statuses:
        monkeypatch.setitem(tool.ALL, name, replace(tool.ALL[name], action=action))
    arguments = [str(folder), "--unfinished", str(folder / "kept"), *words.split()]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *arguments])
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: 1e3))
    return tool.main(), started


@pytest.mark.parametrize("name", ["full", "comm-scope"])
@pytest.mark.parametrize("status, returned", [(4, 4), (-9, 137)])
def test_long_steps_get_the_remaining_time_and_the_worst_exit_code_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, returned: int, name: str
) -> None:
    words = f"--seconds 400 --steps {name},quick,few --limits few=30"
    done = main_with(tmp_path, monkeypatch, words, {name: status, "quick": 0, "few": 0})
    assert done == (returned, [(name, 400.0 - steps.ENDING_S), ("quick", 40), ("few", 30)])


def test_a_second_call_repeats_only_the_steps_that_did_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "--steps quick,standard,tests,few,full"
    statuses = {"quick": 0, "standard": 1, "tests": 2, "few": 4, "full": -9}  # 2: refused, 4: interrupted
    assert [name for name, _ in main_with(tmp_path, monkeypatch, words, statuses)[1]] == list(statuses)
    again = main_with(tmp_path, monkeypatch, words, dict.fromkeys(statuses, 0))
    assert (again[0], [name for name, _ in again[1]]) == (0, ["tests", "few", "full"])
    assert main_with(tmp_path, monkeypatch, words, dict.fromkeys(statuses, 0)) == (0, [])


def test_a_step_that_can_do_with_less_than_its_limit_starts_with_the_time_that_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = main_with(
        tmp_path, monkeypatch, "--seconds 119 --steps issue,loaders,ranks", {"issue": 0, "loaders": 0, "ranks": 0}
    )
    least = {name: tool.ALL[name].least for name in ("issue", "loaders", "ranks")}
    assert all(0 < seconds <= 119 - steps.ENDING_S for seconds in least.values())
    assert done == (0, [(name, 119.0 - steps.ENDING_S) for name in least])
    assert main_with(tmp_path, monkeypatch, "--seconds 109 --steps lu --limits lu=95", {"lu": 0}) == (0, [])


def test_a_limit_of_a_step_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--limits", "slow=30")
    assert done.returncode == 2 and "invalid limits value: 'slow=30'" in done.stderr


def test_a_terminated_call_saves_the_run_under_way_and_the_next_one_continues_it(tmp_path: Path) -> None:
    step = "import sys, time; print('begun', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: sys.exit(4)"
    program = f"""
import signal, sys
sys.path[:0] = [{str(ROOT / "tools")!r}, {str(ROOT / "src")!r}]
import evidence, evidence_step
evidence_step.machine = lambda: "testx1"
def run(words, seconds, log, settings):
    open(words[-1], "a").write(" ".join(words[3:6]) + chr(10))
    return logged([sys.executable, "-c", {step!r}], seconds, log)
logged, evidence_step.logged = evidence_step.logged, run
sys.exit(evidence.main())
"""
    for resumed in range(2):
        words = [sys.executable, "-c", program, str(tmp_path), "--steps", "full"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
            log = tmp_path / "log.txt"
            while not (log.exists() and log.read_text().count("begun") > resumed) and process.poll() is None:
                time.sleep(0.02)
            process.terminate()
            output = process.communicate(timeout=300)[0]
        assert process.returncode == 4 and "interrupted" in output, output
    with gzip.open(tmp_path / "testx1-full.jsonl.gz", "rt") as lines:
        first, second = lines.read().splitlines()
    assert first.startswith("run --suite") and second.startswith("run --resume")


@pytest.mark.parametrize(
    "first, code, status, ignored",
    [
        ("", "sys.exit(2)", 2, False),
        ("", "time.sleep(600)", steps.STOPPED, False),
        ("", "time.sleep(600)", steps.STOPPED, True),  # by this process, as after `nohup ... &`
        ("signal.signal(signal.SIGINT, signal.SIG_IGN)", "time.sleep(600)", -signal.SIGKILL, False),
    ],
)
def test_a_command_out_of_time_is_interrupted_and_then_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str, code: str, status: int, ignored: bool
) -> None:
    monkeypatch.setattr(steps, "ENDING_S", 0.5 if status == -signal.SIGKILL else 300)
    child = "child = subprocess.Popen(['sleep', '601']); print(child.pid, flush=True)"
    program = f"import signal, subprocess, sys, time\n{first}\n{child}\n{code}"
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if ignored else signal.getsignal(signal.SIGINT)
    numbers: list[str] = []
    try:
        for seconds in (2.0, 20.0, 120.0):  # on a busy machine the command may need longer until it has its child
            with (tmp_path / "log").open("w") as log:
                ended = steps.logged([sys.executable, "-c", program], seconds, log)
            numbers = re.findall(r"^\d+$", (tmp_path / "log").read_text(), re.MULTILINE)
            if numbers:
                break
    finally:
        signal.signal(signal.SIGINT, before)
    assert ended == status
    number = int(numbers[0])
    if status == -signal.SIGKILL:
        while Path(f"/proc/{number}/stat").exists() and ") Z " not in Path(f"/proc/{number}/stat").read_text():
            time.sleep(0.02)
    else:
        os.kill(number, signal.SIGKILL)


def test_findings_measures_only_the_points_that_the_findings_need_on_these_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(steps, "logged", lambda words, *_: started.append(words) or 0)
    monkeypatch.setattr(steps, "machine", lambda: "testx2")
    monkeypatch.setattr(runs, "gpus", lambda: ["test"] * 2)
    points = {"2": SimpleNamespace(stdout="--only d2h/* --only h2d/*\n")}  # by the number of GPUs
    monkeypatch.setattr(runs.subprocess, "run", lambda words, **settings: points[words[words.index("--gpus") + 1]])
    assert tool.ALL["findings"].action(call(tmp_path, "findings", 120.0)) == 0
    suite = ["--suite", "full", "--budget", "90s", "--only", "d2h/*", "--only", "h2d/*"]
    assert started[0][started[0].index("run") + 1 :] == [*suite, "-o", str(tmp_path / "kept" / "testx2-findings.jsonl")]


# --- one GPU ---


@needs_worker
def test_runs_and_flows_of_one_gpu_are_kept_and_a_second_call_measures_what_is_missing(tmp_path: Path) -> None:
    words = ["--machine", "h200x1", "--small", "--steps"]
    done = evidence(str(tmp_path), *words, "mps,md,sp-5-full,sp-10,flows", "--seconds", "900")
    assert done.returncode == 0, done.stdout + (tmp_path / "log.txt").read_text()
    for name, count in {"mps": 12, "md": 3, "sp-5-full": 40, "sp-10": 9}.items():
        points = read_run(tmp_path / f"h200x1-{name}.jsonl.gz").points
        assert len(points) == count and all(point.median_s or point.status == "unsupported" for point in points), name
    answers = sorted((tmp_path / "h200x1-flows").iterdir())
    assert [path.stem for path in answers] == [
        f"{name}-{turn}" for name in ("both", "own-thread") for turn in (1, 2, 3, 4)
    ]
    assert all(json.loads(path.read_text())["total_gbps"] > 50 for path in answers)
    made = sorted((tmp_path / "unfinished" / "h200x1-flows").iterdir(), key=lambda path: path.stat().st_mtime_ns)
    first = [path.stem.rpartition("-")[0] for path in made[::2]]
    assert first == ["both", "own-thread"] * 2, "neither preset comes first in each turn"
    (tmp_path / "unfinished" / "ended.txt").write_text("h200x1-mps\nh200x1-md\nh200x1-sp-5-full\nh200x1-sp-10\n")
    (tmp_path / "unfinished" / "h200x1-flows" / "both-2.json").unlink()
    kept = (tmp_path / "unfinished" / "h200x1-flows" / "both-1.json").stat().st_mtime_ns
    done = evidence(str(tmp_path), *words, "md,flows")
    assert done.stdout.count("ended in a call before") == 1 and "flows: exit code 0" in done.stdout
    assert (tmp_path / "unfinished" / "h200x1-flows" / "both-2.json").exists()
    assert (tmp_path / "unfinished" / "h200x1-flows" / "both-1.json").stat().st_mtime_ns == kept


@needs_fake
@needs_worker
def test_tools_of_one_gpu_keep_what_they_have_when_their_time_is_over(tmp_path: Path) -> None:
    limits = "issue=22,files=13,matrix=20"
    words = ["--small", "--steps", "issue,files,matrix", "--limits", limits]
    done = evidence(str(tmp_path), *words, CUDA_GPUS=1, NVML_GPUS=1)
    text = done.stdout + (tmp_path / "log.txt").read_text()
    assert done.stdout.count("exit code 0") == 2 and "matrix: exit code 4" in done.stdout, (
        text
    )  # 4: more is to be measured
    rows = json.loads(next(tmp_path.glob("*-issue.json")).read_text())
    assert {"to gpu", "to warm"} <= {row["section"] for row in rows["rows"]} and "small" in rows["left_out"]
    assert "| transfer | measured | target | met |" in text
    assert "why_no_cufile" in json.loads(next(tmp_path.glob("*-files.json")).read_text())
    assert "Not measured" in next(tmp_path.glob("*-matrix/contention.md")).read_text()


@needs_worker
def test_the_plans_of_steps_have_each_point_that_they_name() -> None:
    for machine, options, count in (
        ("h200x1", one_gpu.only(*one_gpu.RANKS), len(one_gpu.RANKS)),
        ("h200x1", ["--suite", "putget", *one_gpu.only(*one_gpu.PACKED)], 61),
        ("h200x1", ["--suite", "putget", *one_gpu.only(*one_gpu.GETS)], 36),
        ("h200x1", ["--suite", "mpi", *one_gpu.only(*one_gpu.AWARE)], 29),
        ("h200x1", one_gpu.LINKS, 7),
        ("h200x4", one_gpu.LINKS, 76),
    ):
        words = [sys.executable, "-m", "linkscope", "run", "--machine", machine, *options, "--plan-only", "--json"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and len(json.loads(done.stdout)["points"]) == count, done.stdout + done.stderr


@needs_fake
def test_the_step_of_mapped_files_compares_them_with_hot_ones(tmp_path: Path) -> None:
    options = ["file_mapped", "file_copies", "--suite", "full", "--directory", str(tmp_path)]
    words = [
        sys.executable,
        "-m",
        "linkscope",
        "run",
        *options,
        *one_gpu.only(*one_gpu.MAPPED),
        "--plan-only",
        "--json",
    ]
    done = subprocess.run(words, env=environment(CUDA_GPUS=1), capture_output=True, text=True, timeout=60)
    ids = [point["id"] for point in json.loads(done.stdout)["points"]]
    copies = [id for id in ids if id.startswith("file_copies/")]
    assert copies and all("cache=hot" in id for id in copies)
    assert any(id.startswith("file_mapped/") for id in ids)


SETTING = "export NCCL_P2P_LEVEL=SYS\n"


@pytest.mark.parametrize(
    ("said", "setting", "count", "status"),
    [
        ("NCCL INFO Loading topology file a.xml\nNCCL_P2P_LEVEL set by environment to SYS", SETTING, 2, 0),
        ("NCCL INFO Loading topology file a.xml", SETTING, 2, 1),
        ("Loading topology file\nXML Parse error\nNCCL_P2P_LEVEL set by environment to SYS", SETTING, 2, 1),
        ("NCCL INFO", SETTING, 2, 1),
        ("NCCL INFO Loading topology file a.xml", "", 2, 1),  # nothing was given, so nothing was read
        ("NCCL INFO Loading topology file a.xml", "", 1, 0),  # one GPU has no path to choose
    ],
)
def test_a_topology_or_a_setting_that_nccl_does_not_read_fails_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, setting: str, count: int, status: int
) -> None:
    monkeypatch.setattr(steps, "machine", lambda: f"testx{count}")
    monkeypatch.setattr(one_gpu, "gpus", lambda: ["test"] * count)
    (tmp_path / "packed").mkdir()
    (tmp_path / "kept").mkdir()
    started = []

    def run(words: list[str], seconds: float, log: object, settings: dict[str, str]) -> int:
        started.append(words[3])
        if "nccl-env" in words:
            Path(words[-1]).write_text(f"# peer access\n{setting}")
        if "collectives" in words:
            assert settings["NCCL_TOPO_FILE"].endswith(".xml")
            assert settings.get("NCCL_P2P_LEVEL") == ("SYS" if setting else None)
            Path(settings["NCCL_DEBUG_FILE"]).write_text(said)
        return 0

    monkeypatch.setattr(one_gpu, "logged", run)
    assert one_gpu.nccl_topology(call(tmp_path, "nccl-topology")) == status
    assert started == ["run", "export", "export", "run"]


def test_what_a_tool_prints_becomes_a_file_and_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "machine", lambda: "testx1")
    (tmp_path / "packed").mkdir()
    with (tmp_path / "log.txt").open("w+") as log:
        status = steps.printed_tool("evidence.py", "--help")(replace(call(tmp_path, "counters"), log=log))
    printed = (tmp_path / "packed" / "testx1-counters.txt").read_text()
    assert status == 0 and printed.startswith("usage: evidence.py")
    assert printed in (tmp_path / "log.txt").read_text()


def test_what_tests_print_becomes_a_file_and_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "machine", lambda: "testx1")
    (tmp_path / "packed").mkdir()
    with (tmp_path / "log.txt").open("w+") as log:
        one = replace(call(tmp_path, "put-get"), log=log)
        status = steps.tests("--collect-only", "test_put_get.py", "-k", "64_bytes")(one)
    printed = (tmp_path / "packed" / "testx1-put-get.txt").read_text()
    assert status == 0 and "test_put_get.py: 1" in printed
    assert printed in (tmp_path / "log.txt").read_text()


# --- beside Comm|Scope's program ---

FAKE = """#!{python}
# Lists and prints what Comm|Scope 0.12 does, for the benchmarks that its filter selects; the last {cut} letters of each
# file are missing, as after an interruption.
import json, re, sys
given = dict(word.split("=", 1) for word in sys.argv[1:])
times = {{"Comm_cudaMemcpyAsync_PinnedToGPU/0/0/log2(N):24/manual_time": 306e3,
         "Comm_cudaMemcpyAsync_PinnedToGPU/0/0/log2(N):25/manual_time": 600e3,
         "Comm_cudaMemcpyAsync_GPUToGPU/0/0/0/log2(N):24/manual_time": 13e3,
         "Comm_ZeroCopy_GPUToHost/0/0/log2(N):24/manual_time": None,
         "Comm_ZeroCopy_HostToGPU/0/0/log2(N):24/manual_time": 336e3,
         "Comm_UM_Prefetch_HostToGPU/0/0/log2(N):24/manual_time": 1.0,
         "Comm_Prefetch_Duplex_HostGPU/0/0/log2(N):26/manual_time": 4000e3,
         "Comm_3d_kernel3D_pull/0/0/log2(N):24/manual_time": 5.0}}
names = [name for name in times if re.search(given["--benchmark_filter"], name)]
print("Comm|Scope 0.12.0 master")
if given.get("--benchmark_list_tests") == "true":
    sys.exit(print("\\n".join(names)))
assert 1 <= len(names) <= 4 and 0.0005 <= float(given["--benchmark_min_time"]) <= 1
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


def test_the_allowed_difference_falls_with_the_root_of_the_number_of_repetitions() -> None:
    """Repetitions that differ by 40 % say little if there are two, more if there are 32."""
    run = read_run(ROOT / "results" / "h100x1-beside-b.jsonl.gz")
    point = next(point for point in run.points if point.benchmark == "prefetch" and point.dst == "gpu:0")
    few, many = (names.Measured("Comm_X/log2(N):24", point.id, [4e-4, 6e-4] * times) for times in (1, 16))
    rows = list(names.agreement(run, [few, many]))[2:4]
    allowed = [float(row.split(" | ")[5].rstrip("%")) for row in rows]
    assert allowed == pytest.approx([60.0, 11], abs=1.0)


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
    expected = r"beside: (\d) (?:prefetching )?benchmarks? of Comm\|Scope, 5 repetitions of at least [01]\.\d+ s: "
    assert re.findall(expected, done.stdout) == ["4", "1"]
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
    assert done.returncode == 2 and "step beside needs --tool, a path that exists" in done.stderr
    done = evidence(str(tmp_path), "--steps", "beside", "--tool", "/bin/true", "--machine", "h200x1")
    assert done.returncode == 1 and "/bin/true lists no benchmarks of 2^N bytes for N = 24,26" in done.stdout
    words = ["--steps", "beside", "--tool", fake_comm_scope(tmp_path, 10_000), "--machine", "h200x1"]
    done = evidence(str(tmp_path / "new"), *words)
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
