"""The parent's end of the worker's pipe (docs/reference/worker.md). Each request has one answer and a deadline.

A worker that misses its deadline is killed. A worker that cannot be killed (a driver hangs) is abandoned.
"""

import contextlib
import os
import select
import shlex
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from linkscope.errors import NOT_HERE, UserError
from linkscope.plan import Benchmark
from linkscope.run.answers import Prepared, Trace

Answer = TypeVar("Answer")

KILL_WAIT_S = 15.0  # the kernel frees the worker's memory first, which took more than 5 s on a busy machine
OPEN_LIMIT_S = 60.0
REQUEST_LIMIT_S = 10.0
_POLL_EVERY_S = 0.2  # latency of Ctrl-C during a request
_LONGEST_LINE = 64 << 20
_MOST_AHEAD_BYTES = 32 << 10  # a pipe holds 64 KiB: writing never blocks while the worker waits to write an answer


class Interrupted(Exception):
    """The user stopped the run (Ctrl-C, SIGTERM) during a request."""


class WorkerGone(Exception):
    """The worker died or was killed; the message says how. `abandoned`: it could not be killed."""

    def __init__(self, message: str, *, hung: bool = False, abandoned: bool = False) -> None:
        super().__init__(message)
        self.hung = hung
        self.abandoned = abandoned


class RequestFailed(Exception):
    """The worker could not carry out a request. After kind `lost` the worker is unusable."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RunRequest(NamedTuple):
    """The arguments of `run`."""

    samples: int
    batches: list[list[int]]
    verify: bool

    def line(self) -> bytes:
        return msgspec.json.encode({"op": "run", **self._asdict()}) + b"\n"


def prepare_line(case: dict[str, Any] | list[dict[str, Any]], key: str) -> bytes:
    """Returns the request that prepares the program of a case, or of several concurrent cases."""
    cases = {"cases": case} if isinstance(case, list) else {"case": case}
    return msgspec.json.encode({"op": "prepare", **cases, "key": key}) + b"\n"


class _Error(msgspec.Struct):
    kind: str
    message: str


class _Head(msgspec.Struct):
    ok: bool
    doubles: int = 0
    error: _Error | None = None


class _Table(msgspec.Struct):
    benchmarks: list[Benchmark]


def worker_command() -> list[str]:
    """Returns the worker built with this package; the command line in LINKSCOPE_WORKER takes precedence, for tests."""
    chosen = os.environ.get("LINKSCOPE_WORKER")
    if chosen:
        return shlex.split(chosen)
    path = Path(__file__).parent.parent / "_native" / "linkscope-worker"
    if not path.exists():
        raise UserError(f"the worker is not built: {path} is missing; run `make build` or `pip install .`", NOT_HERE)
    return [str(path)]


def driver_facts() -> dict[str, Any]:
    """Returns the CUDA driver's description of itself and the GPUs, from a worker for this question only."""
    facts, worker = open_driver()
    worker.kill()
    return facts


def open_driver() -> tuple[dict[str, Any], "Worker"]:
    """Returns the CUDA driver's description, and the worker that gave it. While that worker lives, the GPUs stay up.

    Without persistence mode, the driver shuts a GPU down with its last process. The next process then waits 0.5 s
    instead of 0.1 s (four H200s).
    """
    worker = Worker(worker_command())
    try:
        facts: dict[str, Any] = worker.open({"platform": "cuda"})["driver"]
    except (WorkerGone, RequestFailed) as problem:
        facts = {"driver_present": False, "version": 0, "why_not": str(problem), "gpus": [], "peers": []}
    return facts, worker


class Worker:
    """A running worker. Only the main thread may start one: it dies with the thread that started it."""

    def __init__(self, command: Sequence[str], stop_asked: Callable[[], bool] = lambda: False) -> None:
        self._stop_asked = stop_asked
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the worker
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, process_group=0
            )
        except OSError as error:
            raise UserError(f"the worker {command[0]} cannot be started: {error.strerror}; build it again") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        self._buffer = b""  # received but not yet read
        self._sent_run: RunRequest | None = None  # a run that was sent with its prepare

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def hello(self) -> dict[str, Any]:
        """Returns version, compiler and device code of the worker."""
        answer: dict[str, Any] = msgspec.json.decode(self._ask({"op": "hello"}, REQUEST_LIMIT_S)[0])
        return {key: value for key, value in answer.items() if key != "ok"}

    def benchmarks(self) -> list[Benchmark]:
        """Returns the table of all benchmarks."""
        line, _ = self._ask({"op": "benchmarks"}, REQUEST_LIMIT_S)
        return self._decode(line, _Table).benchmarks

    def check(self, case: dict[str, Any]) -> None:
        """Raises RequestFailed of kind `usage` for a case that the operation cannot have."""
        self._ask({"op": "check", "case": case}, REQUEST_LIMIT_S)

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Opens a platform; `request` as in docs/reference/worker.md, without `op`. Returns the answer."""
        self.ask_to_open(request)
        return self.opened()

    def ask_to_open(self, request: dict[str, Any]) -> None:
        """Sends the request of open() without waiting; opened() reads the answer."""
        self._drop_unread_run()
        self._send(msgspec.json.encode({"op": "open", **request}) + b"\n")

    def opened(self) -> dict[str, Any]:
        """Returns the answer to ask_to_open()."""
        answer: dict[str, Any] = msgspec.json.decode(self._answer(OPEN_LIMIT_S)[0])
        return answer

    def prepare(
        self,
        case: dict[str, Any] | list[dict[str, Any]],
        key: str,
        limit_s: float = REQUEST_LIMIT_S,
        then: RunRequest | None = None,
    ) -> Prepared:
        """Prepares the program of a case, or of several concurrent cases.

        `then` is sent with the request, which saves a round trip for a run() with the same arguments.
        """
        self._drop_unread_run()
        self._send(prepare_line(case, key) + (then.line() if then else b""))
        self._sent_run = then
        return self._decode(self._answer(limit_s)[0], Prepared)

    def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float = REQUEST_LIMIT_S) -> Trace:
        """Times the prepared program. Each of the `samples` samples runs `batches` in turn."""
        request = RunRequest(samples, batches, verify)
        if self._sent_run != request:
            self._drop_unread_run()
            self._send(request.line())
        self._sent_run = None
        return self._trace(limit_s)

    def prepare_and_run(
        self, requests: Sequence[tuple[bytes, RunRequest]], limit_s: float = REQUEST_LIMIT_S
    ) -> Iterator[tuple[Prepared, Trace] | str]:
        """Carries out pairs of a prepare_line() and a run; yields their answers, or the reason why a pair has none.

        Requests are sent ahead of the answers, so that the worker never waits. The caller must take all answers.
        """
        self._drop_unread_run()
        lines = [prepare + run.line() for prepare, run in requests]
        sent = unanswered = 0
        for at, line in enumerate(lines):
            ahead = []
            while sent < len(lines) and (sent == at or unanswered + len(lines[sent]) <= _MOST_AHEAD_BYTES):
                ahead.append(lines[sent])
                unanswered += len(lines[sent])
                sent += 1
            if ahead:
                self._send(b"".join(ahead))
            yield self._prepared_and_run(limit_s)
            unanswered -= len(line)

    def _prepared_and_run(self, limit_s: float) -> tuple[Prepared, Trace] | str:
        reason = ""
        try:
            prepared = self._decode(self._answer(limit_s)[0], Prepared)
            reason = prepared.reason
        except RequestFailed as problem:
            reason = str(problem)
        try:
            return prepared, self._trace(limit_s)
        except RequestFailed as problem:
            return reason or str(problem)

    def _trace(self, limit_s: float) -> Trace:
        line, stamps = self._answer(limit_s)
        trace = self._decode(line, Trace)
        trace.stamps = list(struct.unpack(f"<{len(stamps) // 8}d", stamps))
        if len(trace.stamps) != 2 * trace.samples * trace.batches * trace.actors:
            raise self._malformed(line)
        return trace

    def end(self) -> None:
        """Kills the worker without waiting; kill() waits."""
        self._process.kill()

    def kill(self) -> bool:
        """Kills the worker. Returns False if it is still there after KILL_WAIT_S."""
        self._process.kill()
        try:
            self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            return False
        self._close_pipes()
        return True

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def _ask(self, request: dict[str, Any], limit_s: float) -> tuple[bytes, bytes]:
        """Sends one request; returns the answer's line and the bytes of its doubles."""
        self._drop_unread_run()
        self._send(msgspec.json.encode(request) + b"\n")
        return self._answer(limit_s)

    def _drop_unread_run(self) -> None:
        """Reads and drops the answer to an unused run."""
        if self._sent_run is not None:
            self._sent_run = None
            with contextlib.suppress(RequestFailed):
                self._answer(REQUEST_LIMIT_S)

    def _answer(self, limit_s: float) -> tuple[bytes, bytes]:
        deadline = time.monotonic() + limit_s
        line = self._take_line(deadline, limit_s)
        try:
            head = msgspec.json.decode(line, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._malformed(line) from None
        if head.error is not None or not head.ok:
            error = head.error or _Error("failed", "no reason given")
            raise RequestFailed(error.kind, error.message)
        return line, self._take(8 * head.doubles, deadline, limit_s)

    def _send(self, data: bytes) -> None:
        try:
            while data := data[os.write(self._input, data) :]:
                pass
        except (BrokenPipeError, OSError):
            raise self._died() from None

    def _take_line(self, deadline: float, limit_s: float) -> bytes:
        start = 0
        while (stop := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            if start > _LONGEST_LINE:
                raise self._malformed(self._buffer[:200])
            self._fill(deadline, limit_s)
        line, self._buffer = self._buffer[:stop], self._buffer[stop + 1 :]
        return line

    def _take(self, count: int, deadline: float, limit_s: float) -> bytes:
        while len(self._buffer) < count:
            self._fill(deadline, limit_s)
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _fill(self, deadline: float, limit_s: float) -> None:
        """Waits for more of the answer, and checks for a stop request at intervals."""
        while not self._poll.poll(1000 * min(_POLL_EVERY_S, max(0.0, deadline - time.monotonic()))):
            if self._stop_asked():
                raise Interrupted
            if time.monotonic() >= deadline:
                raise self._hung(limit_s)
        data = os.read(self._output, 1 << 20)
        if not data:
            raise self._died()
        self._buffer += data

    def _hung(self, limit_s: float) -> WorkerGone:
        if self.kill():
            return WorkerGone(f"no answer within {limit_s:.3g} s; the worker was killed", hung=True)
        text = f"no answer within {limit_s:.3g} s, and the worker could not be killed; it was abandoned"
        return WorkerGone(text, hung=True, abandoned=True)

    def _decode(self, line: bytes, type: type[Answer]) -> Answer:
        """Decodes the answer. An unexpected form means another version or a broken worker."""
        try:
            return msgspec.json.decode(line, type=type)
        except msgspec.ValidationError:
            raise self._malformed(line) from None

    def _malformed(self, line: bytes) -> WorkerGone:
        ended = self.kill()
        shown = line[:80].decode(errors="replace")
        how = "it was killed" if ended else "it could not be killed and was abandoned"
        return WorkerGone(f"the worker's answer makes no sense ({shown!r}); {how}", abandoned=not ended)

    def _died(self) -> WorkerGone:
        try:
            status = self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return WorkerGone("the worker closed its pipe; it was killed")
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        last = self._last_error()
        self._close_pipes()
        return WorkerGone(f"the worker {how}" + (f": {last}" if last else ""))

    def _last_error(self) -> str:
        """Returns the worker's last line on standard error."""
        self._errors.seek(0)
        lines = self._errors.read()[-4096:].decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
