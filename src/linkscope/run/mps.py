"""NVIDIA's Multi-Process Service: a daemon of linkscope's own, with private directories, for one measurement.

Processes under MPS use a GPU side by side. Other processes of the machine are not affected: they do not know the
directories. Only one daemon is used on a machine at a time, because MPS serves one user.
"""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
# Hardware queues of a client, the driver's default. Clients share those of the GPU: with 32 each, which a worker asks
# for otherwise, an H100 had no memory for the context of a third or fourth client.
_CLIENT_QUEUES = "8"
_ANSWER_S = 20.0  # of the daemon to its control program
_END_S = 10.0
_POLL_S = 0.05


class NoMps(Exception):
    """MPS cannot be used here; the message says why."""


def why_no_mps(processes: Path = Path("/proc")) -> str:
    """Returns why linkscope cannot start an MPS daemon here; "" if it can.

    `processes`: the folder that lists processes.
    """
    if not shutil.which(CONTROL):
        return f"MPS: {CONTROL} is not installed"
    for pid, owner in _daemons(processes):
        return f"MPS: a daemon of user {owner} runs already (process {pid}), and MPS serves one user at a time"
    return ""


@contextlib.contextmanager
def daemon() -> Iterator[dict[str, str]]:
    """Starts an MPS daemon and yields the environment of its clients, with their number of hardware queues unless the
    user has chosen one. The daemon ends with the block.

    Raises NoMps if there is none or it does not start.
    """
    if why := why_no_mps():
        raise NoMps(why)
    with tempfile.TemporaryDirectory(prefix="linkscope-mps-", ignore_cleanup_errors=True) as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
        for path in environment.values():
            Path(path).mkdir()
        try:
            _control(environment, "-d")
            yield environment | {QUEUES: os.environ.get(QUEUES) or _CLIENT_QUEUES}
        finally:
            _end(environment)


def queues_text(environment: Mapping[str, str]) -> str:
    """'8 hardware queues a client', of the environment of clients."""
    return f"{environment[QUEUES]} hardware queues a client"


def _control(environment: dict[str, str], *words: str, command: str = "") -> None:
    try:
        done = subprocess.run(
            [CONTROL, *words], input=command, capture_output=True, text=True, timeout=_ANSWER_S,
            env=os.environ | environment, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as problem:
        raise NoMps(f"MPS: {CONTROL} does not work: {problem}") from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NoMps(f"MPS: the daemon does not start: {lines[-1] if lines else f'status {done.returncode}'}")


def _end(environment: dict[str, str]) -> None:
    """Asks the daemon to end, and ends it if it is still there after 10 s."""
    pid = _pid(Path(environment["CUDA_MPS_PIPE_DIRECTORY"]) / f"{CONTROL}.pid")
    with contextlib.suppress(NoMps):
        _control(environment, command="quit\n")
    deadline = time.monotonic() + _END_S
    while pid and _lives(pid):
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            return
        time.sleep(_POLL_S)


def _pid(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _daemons(processes: Path) -> Iterator[tuple[int, str]]:
    """Yields number and user of each MPS daemon. The kernel cuts names to 15 characters."""
    for folder in processes.glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == CONTROL[:15]:
                yield int(folder.name), _user(folder.stat().st_uid)
        except OSError:
            continue  # it has ended


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
