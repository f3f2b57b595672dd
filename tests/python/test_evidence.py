"""tools/evidence.py: what does not fit its time is not begun and said so; a run is packed under the machine's name."""

import gzip
import io
import subprocess
import sys
from pathlib import Path

import evidence as tool
import pytest

from fake_driver import ROOT, environment, needs_fake, needs_worker


def evidence(*words: str, **settings: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / "evidence.py"), *words]
    return subprocess.run(command, env=environment(**settings), capture_output=True, text=True, timeout=300)


def test_what_does_not_fit_is_not_begun(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--seconds", "50")
    assert done.returncode == 0 and done.stdout.count("not begun") == 7 and "MemAvailable" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["log.txt"]


def test_a_step_that_does_not_exist_is_named(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "quick,slow")
    assert done.returncode == 2 and "there is no step slow" in done.stderr


@needs_fake
@needs_worker
def test_a_run_is_packed_under_the_machines_name_with_what_it_left(tmp_path: Path) -> None:
    done = evidence(str(tmp_path), "--steps", "quick", "--seconds", "70", CUDA_GPUS=1, NVML_GPUS=1)
    assert done.stdout.count("MemAvailable") == 2 and "quick: exit code" in done.stdout, done.stdout
    (run,) = tmp_path.glob("*x1-quick.jsonl.gz")
    with gzip.open(run, "rt") as lines:
        assert '"record":"end"' in list(lines)[-1]
    assert "run file:" in (tmp_path / "log.txt").read_text()


def test_a_run_that_was_stopped_goes_on_in_the_next_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, packed, started, status = tmp_path / "kept", tmp_path / "packed", [], 4

    def run(words: list[str], seconds: float, log: object) -> int:
        options = words[words.index("run") + 1 :]
        started.append(options[:-1])
        with Path(options[-1]).open("a") as lines:
            lines.write("a line\n")
        return status

    monkeypatch.setattr(tool, "logged", run)
    monkeypatch.setattr(tool, "machine", lambda: "oddx2")
    for folder in (kept, packed):
        folder.mkdir()
    for status, parts in ((4, 1), (-9, 2), (0, 3), (0, 1)):
        tool.carried_out("full", packed, kept, 500.0, io.StringIO())
        assert list(kept.iterdir()) == ([kept / "oddx2-full.jsonl"] if status else [])
        with gzip.open(packed / "oddx2-full.jsonl.gz", "rt") as lines:
            assert len(list(lines)) == parts
    new, again = ["--suite", "full", "-o"], ["--resume"]
    assert started == [new, again, again, new]
