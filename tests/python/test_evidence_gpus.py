"""The steps of tools/evidence.py for several GPUs, on the fake driver: what is missing is named, and a call goes on."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from argparse import Namespace
from pathlib import Path

import evidence
import evidence_gpus as tool
import evidence_step
import pytest

from fake_driver import ROOT, environment, needs_fake, needs_worker
from test_transfer import LIBRARY

needs_library = pytest.mark.skipif(not LIBRARY.is_file(), reason=f"{LIBRARY} is not built; 'make build' builds it")
FOUR = {"CUDA_GPUS": 4, "NVML_GPUS": 4}


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, str(ROOT / "tools" / "evidence.py"), str(folder), "--small", *words]


def call(folder: Path, *words: str, **settings: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(folder, *words), env=environment(**settings), capture_output=True, text=True, timeout=300
    )


@needs_fake
@needs_worker
def test_on_one_gpu_all_steps_for_several_are_left_out_and_the_exit_code_says_so(tmp_path: Path) -> None:
    done = call(tmp_path, "--steps", "gpus", "--seconds", "5000", CUDA_GPUS=1, NVML_GPUS=1)
    assert done.returncode == tool.NOT_HERE, done.stdout + done.stderr
    left_out = re.findall(r"(\S+): left out: it needs two GPUs, and this machine has 1", done.stdout)
    assert left_out == list(tool.STEPS)


@needs_fake
@needs_worker
def test_steps_whose_program_or_tuning_is_missing_are_left_out_and_the_others_run(tmp_path: Path) -> None:
    words = ["--steps", "puts,links-tuned,buffers,all-gather", "--seconds", "5000", "--nccl-tests", "/no/such"]
    done = call(tmp_path, *words, **FOUR)
    assert done.returncode == tool.NOT_HERE, done.stdout + done.stderr
    assert "puts: left out: give --nvshmem-program, a path that exists" in done.stdout
    assert "buffers: left out: give --nccl-tests, a path that exists" in done.stdout
    assert "links-tuned: left out: step tune-links left no tuning" in done.stdout
    assert "all-gather: exit code 0" in done.stdout  # which says that PyTorch is not here
    (page,) = tmp_path.glob("*x4-all-gather/contention.md")
    assert "PyTorch is not installed" in page.read_text()


def parts(folder: Path) -> list[str]:
    found = list(folder.glob("*x4-links/*x4-links.json"))
    return json.loads(found[0].read_text())["done"] if found else []


@needs_fake
@needs_worker
@needs_library
def test_a_call_that_is_ended_by_sigterm_keeps_what_a_step_has_and_the_next_call_goes_on(tmp_path: Path) -> None:
    words = ["--steps", "links", "--seconds", "200"]
    first = subprocess.Popen(command(tmp_path, *words), env=environment(**FOUR), stdout=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not parts(tmp_path / "unfinished") and time.monotonic() < deadline:
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        said, _ = first.communicate(timeout=60)
    finally:
        first.kill()
    assert first.returncode == evidence_step.STOPPED, said
    before = parts(tmp_path)
    assert before and before[0] == "16 MiB, helpers: 0"
    done = call(tmp_path, *words, **FOUR)
    assert done.returncode == 0, done.stdout + (tmp_path / "log.txt").read_text()
    after = parts(tmp_path)
    assert after[: len(before)] == before and len(after) == len(set(after)) == 14 + (len(os.sched_getaffinity(0)) > 1)
    rows = json.loads(next(tmp_path.glob("*x4-links/*.json")).read_text())["rows"]
    once = [(row.get("method"), row["bytes"], row.get("helpers")) for row in rows]
    assert len(once) == len(set(once)) > 60
    assert call(tmp_path, *words, **FOUR).stdout.count("links: ended in a call before") == 1


def made(name: str, tmp_path: Path, **given: object) -> tuple[list[str], evidence_step.Step]:
    """The command that a step starts on four GPUs with 100 s."""
    started: list[list[str]] = []

    def made_with(words: list[str], settings: dict[str, str]) -> int:
        assert settings["NCCL_NVLS_ENABLE"] == "0", "NVLink multicast stays off"
        started.append(list(words))
        return 0

    monkey = pytest.MonkeyPatch()
    paths = dict.fromkeys(("nccl_tests", "nvbandwidth", "nvshmem_program", "nvshmem", "ucx"), tmp_path)
    arguments = Namespace(small=False, against="h200x4", **(paths | given))
    with monkey.context() as patch:
        patch.setattr(tool, "gpus", lambda: ["H200"] * 4)
        patch.setattr(tool, "machine", lambda: "h200x4")
        patch.setattr(tool, "logged", lambda words, seconds, log, settings: made_with(words, settings))
        tuning = tmp_path / "h200x4-tune-links" / "links.tuning"
        tuning.parent.mkdir(exist_ok=True)
        tuning.touch()
        step = tool.STEPS[name]
        of = evidence_step.Call(name, 100.0, tmp_path / "out", tmp_path, sys.stdout, arguments)
        assert step.action(of) == 0
    return started[0], step


@pytest.mark.parametrize("name", list(tool.STEPS))
def test_the_tool_of_each_step_knows_the_options_that_the_step_gives_it(name: str, tmp_path: Path) -> None:
    words, step = made(name, tmp_path)
    assert 0 < step.least < step.seconds <= 565  # a call on the device takes at most 570 s
    if "pytest" in words:
        return
    verb = 4 if words[1] == "-m" else 2
    done = subprocess.run([*words[:verb], "--help"], capture_output=True, text=True, timeout=60, check=True)
    for word in words[verb:]:
        assert not word.startswith("--") or word in done.stdout, f"{word} is not an option"


def test_steps_end_ten_seconds_before_their_limit_and_use_all_helpers(tmp_path: Path) -> None:
    words, _ = made("links", tmp_path)
    assert words[words.index("--seconds") + 1] == "90"
    words, _ = made("tune-links", tmp_path)
    assert words[words.index("--helpers") + 1] == "gpu:1,gpu:2,gpu:3"


def test_a_step_gets_what_is_left_if_that_is_less_than_its_limit_but_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: dict[str, float] = {}
    steps = {
        name: evidence_step.Step(100, lambda of: got.update({of.name: of.seconds}) or 0, least=least)
        for name, least in (("a", 50.0), ("b", 0.0))
    }
    monkeypatch.setattr(evidence, "ALL", steps)
    monkeypatch.setattr(evidence, "memory", lambda: "")
    words = [str(tmp_path), "--steps", "a,b", "--seconds", "90"]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *words])
    assert evidence.main() == 0
    assert list(got) == ["a"] and 69 < got["a"] <= 70
