"""tools/bootstrap.py: an environment that was made for another folder is left alone."""

import shutil
import subprocess
import sys
from pathlib import Path

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
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and str(other) in done.stderr and "rm .venv" in done.stderr
    assert (other / "kept").exists() and (tree / ".venv").is_symlink()
