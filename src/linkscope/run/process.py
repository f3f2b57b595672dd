"""One worker process and the parent's end of its pipe (docs/reference/worker.md). Each answer has a deadline.

A process that misses its deadline is killed. A process that cannot be killed (a driver hangs) is abandoned.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from linkscope.errors import UserError
from linkscope.run.cpu_waits import Waits, cpu_waits, longest_wait_s
from linkscope.run.gpu_memory import has_no_context, memory_text

Answer = TypeVar("Answer")

KILL_WAIT_S = 15.0  # the kernel frees the worker's memory first, which took more than 5 s on a busy machine
_POLL_EVERY_S = 0.2  # latency of Ctrl-C during a request
_LONGEST_LINE = 64 << 20
WORKER = "the worker"  # the name of a worker that runs a program alone
# A line of calls that Open MPI prints ("[host:7] [ 3] /lib/a.so(f+0x1)[0x2]"), or UCX (" 3  /lib/a.so(f+0x1) [0x2]").
_FRAME = re.compile(r"(?:\[[^\]]+\] \[ *\d+\]|=*\s*\d+) +(/\S+?)(?:\(([^)+]*)\+?(\w*)\))? ?\[0x[0-9a-f]+\]$")
_OF_SIGNAL = re.compile(r"/libc\.so|/libpthread|/libucs\.so|/libopen-pal\.so|/libopen-rte\.so")  # they print the calls
_MOST_FRAMES = 6  # those after them are of the program that calls the library


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


class _Error(msgspec.Struct):
    kind: str
    message: str


class _Head(msgspec.Struct):
    ok: bool
    doubles: int = 0
    error: _Error | None = None


class _Deadline:
    """When an answer is late. Time in which a thread of the processes waits for a CPU does not count."""

    def __init__(self, at_s: float, processes: Sequence[int]) -> None:
        self._at_s = at_s
        self._processes = processes
        self._before: Waits | None = None  # at the first poll without an answer: most answers come sooner

    def left_s(self) -> float:
        left_s = self._at_s - time.monotonic()
        if left_s > 0 or self._before is None:
            return left_s
        return left_s + longest_wait_s(self._before, cpu_waits(self._processes))

    def note_waits(self) -> None:
        if self._before is None:
            self._before = cpu_waits(self._processes)


def patient_s(limit_s: float) -> float:
    """Returns a limit times the number in the variable LINKSCOPE_PATIENCE: a machine may stop processes for seconds.

    The worker does the same with its own limits (core/host/patience.hpp), and refuses a text that is no number.
    """
    try:
        return limit_s * float(os.environ.get("LINKSCOPE_PATIENCE") or 1)
    except ValueError:
        return limit_s


class Process:
    """A running worker process. Only the main thread may start one: it dies with the thread that started it.

    Error messages call it by its `name`. `pass_fds`: descriptors that it inherits besides its pipes.
    """

    def __init__(
        self, command: Sequence[str], name: str, stop_asked: Callable[[], bool], pass_fds: Sequence[int] = ()
    ) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  closed with the process
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, bufsize=0, process_group=0,
                pass_fds=pass_fds,
            )  # fmt: skip
        except OSError as error:
            raise UserError(f"the worker {command[0]} cannot be started: {error.strerror}; build it again") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._use(name, self._process.stdin.fileno(), self._process.stdout.fileno(), stop_asked)

    def _use(self, name: str, requests: int, answers: int, stop_asked: Callable[[], bool]) -> None:
        """Sets the descriptors to which requests are written and from which answers are read."""
        self.name = name
        self.stop_asked = stop_asked
        self._input = requests
        self._output = answers
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        self._watched: dict[int, Process] = {}
        self._buffer = b""  # received but not yet read
        self.explain_hang: Callable[[], str] = lambda: ""  # asked before a process without an answer is killed

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def pids_here(self) -> tuple[int, ...]:
        """The process id, if the process is of this host."""
        return (self.pid,)

    @property
    def output(self) -> int:
        """The descriptor from which answers are read."""
        return self._output

    def watch(self, others: Sequence["Process"]) -> None:
        """Lets the end of one of these processes also end a wait for an answer of this one."""
        for output in self._watched:
            self._poll.unregister(output)
        self._watched = {other._output: other for other in others if other is not self}
        for output in self._watched:
            self._poll.register(output, select.POLLRDHUP)  # of a connection; a closed pipe is always reported

    def send(self, data: bytes) -> None:
        """Sends requests, one a line."""
        try:
            while data := data[os.write(self._input, data) :]:
                pass
        except (BrokenPipeError, OSError):
            raise self.died() from None

    def answer(self, limit_s: float, until: float | None = None) -> tuple[bytes, bytes]:
        """Returns the line of the next answer and the bytes of its doubles.

        The limit counts from now, without time in which the process waits for a CPU, because a busy machine is no hang.
        `until`: an earlier deadline of the monotonic clock.
        """
        limit_s = patient_s(limit_s)
        at_s = time.monotonic() + limit_s
        processes = [pid for one in (self, *self._watched.values()) for pid in one.pids_here]
        deadline = _Deadline(at_s if until is None else min(at_s, until), processes)
        line = self._take_line(deadline, limit_s)
        try:
            head = msgspec.json.decode(line, type=_Head)
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self.malformed(line) from None
        if head.error is not None or not head.ok:
            error = head.error or _Error("failed", "no reason given")
            holders = f"; {memory_text()}" if has_no_context(error.message) else ""
            raise RequestFailed(error.kind, f"{error.message}{holders}")
        return line, self._take(8 * head.doubles, deadline, limit_s)

    def decode(self, line: bytes, type: type[Answer]) -> Answer:
        """Decodes an answer. An unexpected form means another version or a broken worker."""
        try:
            return msgspec.json.decode(line, type=type)
        except msgspec.ValidationError:
            raise self.malformed(line) from None

    def malformed(self, line: bytes) -> WorkerGone:
        """Kills the process because of this answer; returns the error that says so."""
        ended = self.kill()
        shown = line[:80].decode(errors="replace")
        how = "it was killed" if ended else "it could not be killed and was abandoned"
        return WorkerGone(f"{self.name}'s answer makes no sense ({shown!r}); {how}", abandoned=not ended)

    def end(self) -> None:
        """Kills the process without waiting; kill() waits."""
        self._process.kill()

    def kill(self) -> bool:
        """Kills the process. Returns False if it is still there after KILL_WAIT_S."""
        self._process.kill()
        try:
            self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            return False
        self._close_pipes()
        return True

    def leave(self, limit_s: float) -> None:
        """Ends its input, so that it ends by itself. Kills it after the limit."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(patient_s(limit_s))
        self.kill()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._errors):
            if pipe is not None:
                pipe.close()

    def _take_line(self, deadline: _Deadline, limit_s: float) -> bytes:
        start = 0
        while (stop := self._buffer.find(b"\n", start)) < 0:
            start = len(self._buffer)
            if start > _LONGEST_LINE:
                raise self.malformed(self._buffer[:200])
            self._fill(deadline, limit_s)
        line, self._buffer = self._buffer[:stop], self._buffer[stop + 1 :]
        return line

    def _take(self, count: int, deadline: _Deadline, limit_s: float) -> bytes:
        while len(self._buffer) < count:
            self._fill(deadline, limit_s)
        data, self._buffer = self._buffer[:count], self._buffer[count:]
        return data

    def _fill(self, deadline: _Deadline, limit_s: float) -> None:
        """Waits for more of the answer, and checks for a stop request at intervals."""
        while not (found := self._poll.poll(1000 * min(_POLL_EVERY_S, max(0.0, deadline.left_s())))):
            if self.stop_asked():
                raise Interrupted
            deadline.note_waits()
            if deadline.left_s() <= 0:
                raise self._hung(limit_s)
        for output, _ in found:
            if output in self._watched:
                raise self._watched[output].died()
        try:
            data = os.read(self._output, 1 << 20)
        except OSError:  # a socket: its other end was killed with unread requests, or its host does not answer
            data = b""
        if not data:
            raise self.died()
        self._buffer += data

    def _hung(self, limit_s: float) -> WorkerGone:
        who = "" if self.name == WORKER else f"{self.name}: "
        why = self.explain_hang()
        if self.kill():
            return WorkerGone(f"{who}no answer within {limit_s:.3g} s{why}; the worker was killed", hung=True)
        text = f"{who}no answer within {limit_s:.3g} s{why}, and the worker could not be killed; it was abandoned"
        return WorkerGone(text, hung=True, abandoned=True)

    def died(self) -> WorkerGone:
        """Returns what to raise for this process, which has ended."""
        try:
            status = self._process.wait(KILL_WAIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return WorkerGone(f"{self.name} closed its pipe; it was killed")
        how = f"was ended by {_signal_name(-status)}" if status < 0 else f"ended with status {status}"
        last = self._last_error()
        self._close_pipes()
        return WorkerGone(f"{self.name} {how}" + (f": {last}" if last else ""))

    def _last_error(self) -> str:
        """Returns the process's last line on standard error, or where it crashed if a library printed its calls."""
        self._errors.seek(0)
        lines = self._errors.read()[-65536:].decode(errors="replace").strip().splitlines()
        return _calls(lines) or (lines[-1].strip() if lines else "")


def _calls(lines: Sequence[str]) -> str:
    """Returns the calls that a library printed, the innermost first; "" if it printed none. A call has its function, or
    its offset in the library if that is unknown. Of several unknown ones in a row of one library, the innermost."""
    calls: list[str] = []
    latest = ""  # the library of the call before, if its function is unknown
    for line in lines:
        if not (frame := _FRAME.match(line)) or (not calls and _OF_SIGNAL.search(frame[1])):
            continue
        library, function, offset = frame[1].rpartition("/")[2], frame[2], frame[3]
        if function or library != latest:
            calls.append(f"{library}({function})" if function else f"{library}+{offset}" if offset else library)
        latest = "" if function else library
    return f"in {', called by '.join(calls[:_MOST_FRAMES])}" if calls else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
