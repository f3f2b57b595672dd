"""Tasks of srun that meet without MPI: Slurm started them without a PMI for it (srun --mpi=none).

Task 0 listens, and writes its addresses with a random key into a file that only this user can read. The folder of the
job is the same on all nodes; the others find the file there and connect. Then all share texts over these connections.
"""

import contextlib
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from linkscope.errors import SOMETHING_FAILED, UserError
from linkscope.run.launcher import Launched
from linkscope.run.links import CannotReach, Listener, NobodyCame, connect, own_addresses, own_network

_POLL_EVERY_S = 0.1
_PMI = ("PMI_", "PMIX_")
CURE = "srun --mpi=pmi2 (or =pmix), if the MPI library knows it, lets ranks meet by MPI"


class _Where(msgspec.Struct):
    """Where task 0 listens. `network`: that of its host."""

    key: str
    port: int
    network: str
    addresses: list[str]


def without_pmi(here: Launched, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether srun started this task without a way for MPI to meet the others."""
    return here.launcher == "srun" and not any(name.startswith(_PMI) for name in environment)


class Table:
    """The tasks of a step, once all have come. `rank`: the number of this one."""

    def __init__(self, here: Launched, limit_s: float, stop_asked: Callable[[], bool]) -> None:
        """Raises UserError that names who did not come within the limit."""
        self.rank = here.rank
        self._limit_s = limit_s
        path = _meeting_file()
        links = _awaited(path, here.size, limit_s, stop_asked) if here.rank == 0 else [_found(path, here.rank, limit_s)]
        self._links = [(link, bytearray()) for link in links]

    def share(self, text: str) -> list[str]:
        """Returns the texts of all tasks, in order of rank. All tasks call this."""
        own = msgspec.json.encode(text) + b"\n"
        if self.rank:
            self._send(0, own)
            return msgspec.json.decode(self._line(0), type=list[str])
        texts = [text, *(msgspec.json.decode(self._line(at), type=str) for at in range(len(self._links)))]
        everything = msgspec.json.encode(texts) + b"\n"
        for at in range(len(self._links)):
            self._send(at, everything)
        return texts

    def leave(self) -> None:
        """Ends the connections."""
        for link, _ in self._links:
            link.close()

    def _other(self, at: int) -> int:
        return at + 1 if self.rank == 0 else 0

    def _send(self, at: int, data: bytes) -> None:
        try:
            self._links[at][0].sendall(data)
        except OSError:
            raise self._ended(at) from None

    def _line(self, at: int) -> bytes:
        link, came = self._links[at]
        deadline = time.monotonic() + self._limit_s
        while b"\n" not in came:
            if not select.select([link], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise UserError(f"rank {self._other(at)} does not answer in {self._limit_s:.0f} s", SOMETHING_FAILED)
            data = b""
            with contextlib.suppress(OSError):
                data = link.recv(1 << 16)
            if not data:
                raise self._ended(at)
            came += data
        line, _, rest = bytes(came).partition(b"\n")
        came[:] = rest
        return line

    def _ended(self, at: int) -> UserError:
        return UserError(f"rank {self._other(at)} has ended", SOMETHING_FAILED)


def _meeting_file(environment: Mapping[str, str] = os.environ) -> Path:
    names = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT")
    return Path.cwd() / f".linkscope-srun-{'.'.join(environment.get(name, '0') for name in names)}"


def _awaited(path: Path, size: int, limit_s: float, stop_asked: Callable[[], bool]) -> list[socket.socket]:
    """Task 0: returns the connections of the others in order of rank."""
    key = secrets.token_hex(16)
    listener = Listener(key, far=True)
    written = path.with_name(f"{path.name}.{key}")
    try:
        _write(written, _Where(key, listener.port, own_network(), own_addresses()))
        written.rename(path)
        links = listener.come(range(1, size), limit_s, stop_asked)
    except OSError as problem:
        raise UserError(f"{path}: {problem.strerror}; srun's tasks meet by this file. {CURE}") from None
    except NobodyCame as nobody:
        raise UserError(f"rank {nobody.rank} does not join within {limit_s:.0f} s. {CURE}", SOMETHING_FAILED) from None
    finally:
        for one in (written, path):
            with contextlib.suppress(OSError):
                one.unlink()
    return [links[number] for number in sorted(links)]


def _write(path: Path, where: _Where) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        file.write(msgspec.json.encode(where))


def _found(path: Path, rank: int, limit_s: float) -> socket.socket:
    """Another task: returns the connection to task 0."""
    deadline = time.monotonic() + limit_s
    while (where := _read(path)) is None:
        if time.monotonic() > deadline:
            raise UserError(
                f"rank {rank} on {os.uname().nodename} finds no {path} of rank 0 within {limit_s:.0f} s: the folder "
                f"must be the same on all nodes. {CURE}",
                SOMETHING_FAILED,
            )
        time.sleep(_POLL_EVERY_S)
    try:
        return connect(where.key, rank, where.addresses if where.network != own_network() else [], where.port)
    except CannotReach as problem:
        raise UserError(
            f"rank {rank} on {os.uname().nodename} cannot reach rank 0: {problem}", SOMETHING_FAILED
        ) from None


def _read(path: Path) -> _Where | None:
    """Returns what task 0 wrote; None before that, and for a file of another user."""
    try:
        with path.open("rb") as file:
            owner = os.fstat(file.fileno()).st_uid
            return msgspec.json.decode(file.read(), type=_Where) if owner == os.getuid() else None
    except (OSError, msgspec.DecodeError):
        return None
