"""The suite of each node in a run over several nodes: one rank of a node measures its node, all nodes at once.

Each measurement is a process of its own (cli/local_run.py) that is no rank. Meanwhile the workers with MPI wait for
requests, which takes no CPU time.
"""

import contextlib
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence

import msgspec

from linkscope.errors import STOPPED_EARLY
from linkscope.run.launcher import without_rank

MEASURE = b'{"op":"measure_node",'
REST_LIMIT_S = 600.0  # for the other nodes, after the first one has measured its own
_POLL_EVERY_S = 0.2
_STOP_LIMIT_S = 30.0  # to write what was measured


class NodeRun(msgspec.Struct):
    """How the suite of a node ended. `status`: the exit code of `linkscope run`. `why`: its last line of errors."""

    host: str
    file: str
    status: int
    why: str = ""
    ok: bool = True


class _Request(msgspec.Struct):
    op: str
    host: str
    file: str
    words: list[str]


def request(host: str, file: str, words: Sequence[str]) -> bytes:
    """Returns the request to a rank that it measures its node. `words`: those of `linkscope run` besides the file."""
    return msgspec.json.encode(_Request("measure_node", host, file, list(words))) + b"\n"


def measure(line: bytes, stop_asked: Callable[[], bool]) -> NodeRun:
    """Carries out a request, and returns how the suite ended. A stop ends it early, with what was measured."""
    asked = msgspec.json.decode(line, type=_Request)
    ends, held = os.pipe()
    words = ["run", *asked.words, "--node", asked.host, "-o", asked.file, "--quiet"]
    command = [sys.executable, "-m", "linkscope.cli.local_run", str(ends), *words]
    with tempfile.TemporaryFile() as errors, contextlib.closing(os.fdopen(held, "wb")):
        child = subprocess.Popen(
            command, env=without_rank(), pass_fds=(ends,), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=errors,
        )  # fmt: skip
        os.close(ends)
        status = _ended(child, stop_asked)
        errors.seek(0)
        last = errors.read()[-4096:].decode(errors="replace").strip().splitlines()
    return NodeRun(asked.host, asked.file, status, last[-1] if status and last else "")


def _ended(child: subprocess.Popen[bytes], stop_asked: Callable[[], bool]) -> int:
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(_POLL_EVERY_S)
        if stop_asked():
            break
    child.terminate()
    try:
        child.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    return STOPPED_EARLY


def is_closed(link: socket.socket) -> bool:
    """Returns whether the other end of a connection has closed it."""
    watched = select.poll()
    watched.register(link, select.POLLRDHUP)
    return bool(watched.poll(0))
