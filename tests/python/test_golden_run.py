"""A complete run on a simulated machine equals the golden run file, except for two fields."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "run-h200x1.jsonl"
WORKER = ROOT / "src" / "linkscope" / "_native" / "linkscope-worker"


def timeless(text: str) -> list[dict]:
    """The records without the fields that differ between two runs with one seed."""
    records = [json.loads(line) for line in text.splitlines()]
    for record in records:
        record.pop("started", None)
        record.pop("wall_s", None)
    return records


@pytest.mark.skipif(not WORKER.exists(), reason="the worker is not built")
def test_a_run_writes_the_golden_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "run.jsonl"
    command = [sys.executable, "-m", "linkscope", "run", "--machine", "h200x1", "--suite", "quick"]
    command += ["--only", "*/4096?*", "--only", "h2d/*pinned*", "-o", str(path), "--json"]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.write_text(path.read_text())
    assert timeless(path.read_text()) == timeless(GOLDEN.read_text())
