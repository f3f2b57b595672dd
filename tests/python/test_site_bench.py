"""tools/site_bench.py: the run files that it makes are different runs of the site, and broken ones are named."""

from pathlib import Path

import pytest
import site_bench


def test_the_bench_shows_every_run_and_names_broken_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", "5", "--simulated", "1", "--models", "h200x1", "--broken", "2"]
    assert site_bench.main([str(tmp_path), *words]) == 0
    out = capfd.readouterr().out
    assert "5 runs of 1 machine; files" in out and "2 not shown" in out
    assert "CPU time: " in out and "MiB of all processes together" in out and "exit code 0" in out
    page = (tmp_path / "site" / "not-shown.html").read_text()
    assert "broken-00000.jsonl, line " in page and "broken-00001.jsonl, line " in page
