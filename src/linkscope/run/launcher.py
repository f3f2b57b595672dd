"""The launcher of MPI that started this process as a rank (mpiexec, srun), and the MPI library that belongs to it."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

# Rank, number of ranks and rank on this host, as launchers name them. Slurm sets its own for every task.
_NAMES = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
)
_OF_RANK = ("PMI_", "PMIX_", "OMPI_")
_OPEN_MPI, _MPICH = ("libmpi.so.40", "libmpi.so.20"), ("libmpi.so.12", "libmpich.so.12", "libmpi_cray.so.12")
_FOLDERS = ("lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")
_MOST_ANCESTORS = 6
CHOICE = "LINKSCOPE_MPI"


@dataclass
class Launched:
    """This process as a launcher started it. `local`: its number among the ranks of this host. `stage`: how
    far it is with the others."""

    rank: int
    size: int
    local: int
    launcher: str
    stage: Literal["apart", "meeting", "met", "linked"] = "apart"


@dataclass(frozen=True)
class Library:
    """An MPI library, by path or by a name that the loader finds, and how it was found."""

    name: str
    found: str


def launched(environment: Mapping[str, str] = os.environ) -> Launched | None:
    """Returns this process's place among the ranks; None if no launcher started it."""
    for names in _NAMES:
        values = [environment.get(name, "") for name in names]
        if values[0].isdigit() and values[1].isdigit():
            rank, size = int(values[0]), int(values[1])
            local = int(values[2]) if values[2].isdigit() else rank
            of_srun = [environment.get(name) for name in _NAMES[-1][:2]] == values[:2]  # which may also speak PMI
            return Launched(rank, size, local, "srun" if of_srun else "mpiexec")
    return None


def without_rank(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a process that is no rank."""
    ours = {name for names in _NAMES for name in names}
    return {name: value for name, value in environment.items() if name not in ours and not name.startswith(_OF_RANK)}


def inherited_descriptors(environment: Mapping[str, str] = os.environ) -> tuple[int, ...]:
    """Returns the descriptors by which the library reaches its launcher: MPICH's names one in PMI_FD."""
    number = environment.get("PMI_FD", "")
    return (int(number),) if number.isdigit() else ()


def libraries(environment: Mapping[str, str] = os.environ) -> Iterator[Library]:
    """Yields the MPI libraries to try, the best first: the chosen one, that of the launcher, that of mpi4py's wheels,
    and the usual names."""
    if chosen := environment.get(CHOICE):
        yield Library(chosen, f"{CHOICE} names it")
        return
    open_mpi = "OMPI_COMM_WORLD_RANK" in environment
    names = _OPEN_MPI if open_mpi else _MPICH
    roots = [(root, f"it belongs to the launcher, {program}") for program, root in _launchers(environment)]
    for root, how in roots:
        yield from (Library(str(path), how) for path in _within(root, (*names, "libmpi.so")))
    for package in ("openmpi",) if open_mpi else ("mpich", "impi-rt"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            files = metadata.files(package) or []
            yield from (
                Library(str(file.locate()), f"the Python package {package} has it")
                for file in files
                if file.name in names
            )
    yield from (Library(name, "the loader knows its name") for name in (*names, *_OPEN_MPI, *_MPICH, "libmpi.so"))


def _launchers(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yields the programs that may have started this process, with their installation."""
    if prefix := environment.get("OPAL_PREFIX"):
        yield f"OPAL_PREFIX={prefix}", Path(prefix)
    process = os.getppid()
    for _ in range(_MOST_ANCESTORS):
        try:
            program = Path(os.readlink(f"/proc/{process}/exe"))
            status = Path(f"/proc/{process}/status").read_text()
        except OSError:
            return
        if any(part in program.name for part in ("hydra", "mpi", "prte", "orte")):
            yield str(program), program.parent.parent
        process = int(status.partition("PPid:")[2].split()[0])


def _within(root: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for folder in _FOLDERS:
        for below in (root / folder, *sorted((root / folder).glob("openmpi*/lib")), root / folder / "openmpi"):
            yield from (below / name for name in names if (below / name).is_file())


def outlive_launcher(rank: int) -> None:
    """Continues in a child in a session of its own; the parent waits for it and ends with its status.

    MPICH's launcher kills all ranks at once when one of them dies. Rank 0 then still has time to write what was
    measured: the end of its parent asks it to stop. The other ranks end with their parents.
    """
    ends, held = os.pipe()
    child = os.fork()
    if child:
        os.close(ends)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda signum, _: os.kill(child, signum))
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) % 256)
    os.close(held)
    os.setsid()
    end_with(ends, signal.SIGKILL if rank else signal.SIGTERM)


def end_with(other: int, signum: int) -> None:
    """Sends this process the signal when the process ends that holds the other end of the pipe `other`."""

    def watch() -> None:
        os.read(other, 1)
        os.kill(os.getpid(), signum)

    threading.Thread(target=watch, daemon=True).start()
