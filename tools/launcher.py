"""The command that starts the ranks of an MPI program."""

import os
import subprocess
from collections.abc import Sequence


def ranks_by(launcher: str, count: int) -> Sequence[str]:
    """The words before the program. `launcher`: mpirun or mpiexec of any MPI.

    Ranks stay on no CPU of their own: several threads of a rank wait by polling, which takes milliseconds on one CPU.
    Open MPI also must not load a UCX of its own beside the one that is measured, and refuses root unless it is told.
    """
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in said:
        return [launcher, "-n", str(count), "--bind-to", "none"]
    as_root = [] if os.getuid() else ["--allow-run-as-root"]
    return [launcher, *as_root, "--mca", "pml", "ob1", "--mca", "osc", "^ucx", "--bind-to", "none", "-n", str(count)]
