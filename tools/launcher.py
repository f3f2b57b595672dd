"""The command that starts the ranks of an MPI program."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

_OPEN_MPI = ("Open MPI", "OpenRTE")  # what its mpirun and its mpiexec call themselves


def installed() -> str | None:
    """The launcher beside this Python, as packages of an MPI install it, or that of the system.

    Open MPI finds its files by the folder of its launcher, and refuses /bin where that is a link to /usr/bin.
    """
    found = shutil.which("mpiexec", path=Path(sys.executable).parent) or shutil.which("mpiexec")
    return str(Path(found).parent.resolve() / "mpiexec") if found else None


def ranks_by(launcher: str, count: int, cores: int | None = None) -> Sequence[str]:
    """The words before the program. `launcher`: mpirun or mpiexec of any MPI. `cores`: of each rank, at most
    its share of the CPUs; the default follows.

    Two ranks stay on no CPU of their own: several threads of a rank wait by polling, which takes milliseconds on one
    CPU. More ranks get two cores each, or one where there are no more: ranks that poll never sleep, so the kernel would
    leave two of them on one core while another is free. The second core is for linkscope beside its worker.

    Open MPI also must not load a UCX of its own beside the one that is measured, and needs an option to run as root.
    """
    said = subprocess.run([launcher, "--version"], capture_output=True, text=True).stdout
    own = (2 if count > 2 else 0) if cores is None else cores
    each = min((os.cpu_count() or 1) // count, own)
    if not any(name in said for name in _OPEN_MPI):
        return [launcher, "-bind-to", f"core:{each}" if each else "none", "-n", str(count)]
    binding = ["--map-by", f"slot:PE={each}", "--bind-to", "core"] if each else ["--bind-to", "none"]
    as_root = [] if os.getuid() else ["--allow-run-as-root"]
    return [launcher, *as_root, "--mca", "pml", "ob1", "--mca", "osc", "^ucx", *binding, "-n", str(count)]
