"""tools/bootstrap.py never changes an environment that was made for another folder."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_an_environment_behind_a_link_is_not_emptied(tmp_path: Path) -> None:
    tree, other = tmp_path / "tree", tmp_path / "other"
    (tree / "tools").mkdir(parents=True)
    other.mkdir()
    (other / "kept").touch()
    shutil.copy(ROOT / "tools" / "bootstrap.py", tree / "tools")
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / ".venv").symlink_to(other)
    command = [sys.executable, str(tree / "tools" / "bootstrap.py"), "build"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1 and str(other) in done.stderr and "rm .venv" in done.stderr
    assert (other / "kept").exists() and (tree / ".venv").is_symlink()


def test_an_environment_of_the_same_python_is_completed_and_never_emptied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools" / "bootstrap.py")
    assert spec is not None and spec.loader is not None
    bootstrap = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bootstrap)
    monkeypatch.setattr(bootstrap, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(bootstrap, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", bootstrap.VENV], check=True)
    in_use = bootstrap.VENV / "in-use"
    in_use.touch()
    bootstrap.make_environment()
    assert in_use.exists()
