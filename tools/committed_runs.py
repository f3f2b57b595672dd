"""Run files of results/, also those that a later commit removed to keep the folder small."""

import subprocess
import tempfile
from pathlib import Path

from linkscope.errors import UserError
from linkscope.runfile import Run, read_run

ROOT = Path(__file__).resolve().parents[1]


def committed_run(name: str) -> Run:
    """The run results/NAME.jsonl.gz, from the history if it is there no longer. Raises UserError if neither has it."""
    path = ROOT / "results" / f"{name}.jsonl.gz"
    if path.exists():
        return read_run(path)
    inside = path.relative_to(ROOT).as_posix()
    removed = _git("log", "-1", "--diff-filter=D", "--format=%H", "--", inside).decode().strip()
    if not removed:
        raise UserError(f"{inside} is neither here nor in the history (a shallow clone has none)")
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / path.name
        found.write_bytes(_git("show", f"{removed}^:{inside}"))
        return read_run(found)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout
