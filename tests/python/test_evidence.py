"""tools/evidence.py: steps without enough time are not started, and runs are packed under the machine's name."""

import gzip
import io
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import evidence as tool
import pytest

from fake_driver import ROOT, environment, needs_fake, needs_worker


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


@needs_fake
@needs_worker
def test_a_run_is_packed_under_the_machines_name_with_its_log(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "quick", "--seconds", "70", CUDA_GPUS=1, NVML_GPUS=1)
    assert done.stdout.count("MemAvailable") == 2 and "quick: exit code" in done.stdout, done.stdout
    (run,) = tmp_path.glob("*x1-quick.jsonl.gz")
    with gzip.open(run, "rt") as lines:
        assert '"record":"end"' in list(lines)[-1]
    assert "run file:" in (tmp_path / "log.txt").read_text()


def test_a_stopped_run_is_resumed_by_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        tool.carried_out("full", packed, kept, 500.0, io.StringIO())
        assert list(kept.iterdir()) == ([kept / "testx2-full.jsonl"] if status in (4, -9) else [])
        with gzip.open(packed / "testx2-full.jsonl.gz", "rt") as lines:
            assert len(list(lines)) == parts
    new, again = ["--suite", "full", "-o"], ["--resume"]
    assert started == [new, again, again, new, new, again, new]
    status = 4
    tool.carried_out("standard", packed, kept, 500.0, io.StringIO())
    assert list(kept.iterdir()) == []  # a run cut in half cannot show how long this step takes


@pytest.mark.parametrize("status, returned", [(4, 4), (-9, 137)])
def test_full_gets_the_remaining_time_and_the_worst_exit_code_is_returned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, returned: int
) -> None:
    done: list[tuple[str, Path, float]] = []

    def carried_out(name: str, folder: Path, unfinished: Path, left_s: float, log: object) -> int:
        done.append((name, unfinished, left_s))
        return status if name == "full" else 0

    words = [str(tmp_path), "--seconds", "400", "--steps", "full,quick", "--unfinished", str(tmp_path / "kept")]
    monkeypatch.setattr(sys, "argv", ["evidence.py", *words])
    monkeypatch.setattr(tool, "carried_out", carried_out)
    monkeypatch.setattr(tool, "time", SimpleNamespace(monotonic=lambda: 1e3))
    assert tool.main() == returned
    assert done == [("full", tmp_path / "kept", 400.0 - tool.ENDING_S), ("quick", tmp_path / "kept", 40)]


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


def test_findings_measures_only_the_points_of_the_findings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(tool, "logged", lambda words, seconds, log: started.append(words) or 0)
    monkeypatch.setattr(tool, "machine", lambda: "testx2")
    points = SimpleNamespace(stdout="--only d2h/* --only h2d/*\n")
    monkeypatch.setattr(tool.subprocess, "run", lambda words, **settings: points)
    assert tool.carried_out("findings", tmp_path, tmp_path, 120.0, io.StringIO()) == 0
    suite = ["--suite", "full", "--budget", "90s", "--only", "d2h/*", "--only", "h2d/*"]
    assert started[0][started[0].index("run") + 1 :] == [*suite, "-o", str(tmp_path / "testx2-findings.jsonl")]
