"""The worker as the supervisor sees it: requests and their answers (docs/reference/worker.md).

A program of several processes runs in as many worker processes: the one that runs all other programs, and peers that
are started when they are first needed. Each of them prepares and runs its part; their answers are merged. An error of
one ends the peers. If one ends or misses its deadline, all are killed.
"""

import contextlib
import os
import secrets
import shlex
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from linkscope.errors import NOT_HERE, UserError
from linkscope.plan import Benchmark
from linkscope.run.answers import Latencies, Prepared, Trace, merged
from linkscope.run.process import WORKER, Interrupted, Process, RequestFailed, WorkerGone, patient_s

__all__ = [
    "OPEN_LIMIT_S", "PATIENCE", "REQUEST_LIMIT_S", "Interrupted", "RequestFailed", "RunRequest", "Worker", "WorkerGone",
    "driver_facts", "open_driver", "prepare_line", "worker_command",
]  # fmt: skip

OPEN_LIMIT_S = 60.0
REQUEST_LIMIT_S = 10.0
PATIENCE = 20  # a request may take this multiple of what is expected, and REQUEST_LIMIT_S more
_REST_S = 2.0  # for the other processes of a program, after one of them has failed
_MOST_AHEAD_BYTES = 32 << 10  # a pipe holds 64 KiB: writing never blocks while the worker waits to write an answer


class RunRequest(NamedTuple):
    """The arguments of `run`."""

    samples: int
    batches: list[list[int]]
    verify: bool

    def line(self) -> bytes:
        return msgspec.json.encode({"op": "run", **self._asdict()}) + b"\n"


def prepare_line(case: dict[str, Any] | list[dict[str, Any]], key: str, processes: int = 1) -> bytes:
    """Returns the request that prepares the program of a case, or of several concurrent cases.

    `processes` is the number of processes that get the request.
    """
    cases = {"cases": case} if isinstance(case, list) else {"case": case}
    together = {"processes": processes} if processes > 1 else {}
    return msgspec.json.encode({"op": "prepare", **cases, "key": key, **together}) + b"\n"


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
    """A running worker, with its peers. Only the main thread may start one: it dies with the thread that started it."""

    def __init__(self, command: Sequence[str], stop_asked: Callable[[], bool] = lambda: False) -> None:
        self._command = command
        self._stop_asked = stop_asked
        self._use(Process(command, WORKER, stop_asked), [])

    def _use(self, first: Process, peers: list[Process]) -> None:
        self._first = first
        self._peers = peers
        self._joined = 1  # the number of processes that have met
        self._together: list[Process] = []  # the processes of the prepared program, if there are several
        self._acting: list[Process] = []  # those of them that take part in samples
        self._opened: dict[str, Any] = {}  # the last request to open a platform
        self._sent_run: RunRequest | None = None  # a run that was sent with its prepare

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._first.pid

    def hello(self) -> dict[str, Any]:
        """Returns version, compiler and device code of the worker."""
        answer: dict[str, Any] = msgspec.json.decode(self._ask({"op": "hello"}, REQUEST_LIMIT_S)[0])
        return {key: value for key, value in answer.items() if key != "ok"}

    def nccl(self, libraries: Sequence[dict[str, str]]) -> dict[str, Any]:
        """Returns what the first usable library of NCCL says about itself, or why there is none."""
        answer = msgspec.json.decode(self._ask({"op": "nccl", "nccl": libraries}, OPEN_LIMIT_S)[0])
        found: dict[str, Any] = answer["nccl"]
        return found

    def benchmarks(self) -> list[Benchmark]:
        """Returns the table of all benchmarks."""
        line, _ = self._ask({"op": "benchmarks"}, REQUEST_LIMIT_S)
        return self._first.decode(line, _Table).benchmarks

    def check(self, case: dict[str, Any]) -> None:
        """Raises RequestFailed of kind `usage` for a case that the operation cannot have."""
        self._ask({"op": "check", "case": case}, REQUEST_LIMIT_S)

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Opens a platform; `request` as in docs/reference/worker.md, without `op`. Returns the answer."""
        self.ask_to_open(request)
        return self.opened()

    @property
    def is_modelled(self) -> bool:
        """Whether the platform that is open runs in virtual time."""
        return self._opened.get("platform") == "sim"

    def ask_to_open(self, request: dict[str, Any]) -> None:
        """Sends the request of open() without waiting; opened() reads the answer."""
        self._drop_unread_run()
        self._kill_peers()
        self._opened = request
        self._first.send(msgspec.json.encode({"op": "open", **request}) + b"\n")

    def opened(self) -> dict[str, Any]:
        """Returns the answer to ask_to_open()."""
        answer: dict[str, Any] = msgspec.json.decode(self._first.answer(OPEN_LIMIT_S)[0])
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
        self._release_together()
        self._first.send(prepare_line(case, key) + (then.line() if then else b""))
        self._sent_run = then
        prepared = self._first.decode(self._first.answer(limit_s)[0], Prepared)
        if prepared.processes == 1:
            return prepared
        self._drop_unread_run()  # nothing was prepared
        return self._prepare_together(prepare_line(case, key, prepared.processes), prepared.processes, limit_s)

    def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float = REQUEST_LIMIT_S) -> Trace:
        """Times the prepared program. Each of the `samples` samples runs `batches` in turn."""
        request = RunRequest(samples, batches, verify)
        if self._together:
            return self._run_together(request.line(), limit_s)
        if self._sent_run != request:
            self._drop_unread_run()
            self._first.send(request.line())
        self._sent_run = None
        return self._next_trace(limit_s)

    def run_stamped(self, batch: list[int], limit_s: float) -> list[Latencies | None]:
        """Runs the batch once with stamps of single iterations. Returns the times of each actor; None: it has none.

        Raises RequestFailed of kind `usage` for a program whose iterations have no stamps.
        """
        self._drop_unread_run()
        line = msgspec.json.encode({"op": "run", "samples": 1, "batches": [batch], "stamped": True}) + b"\n"
        if self._together:
            return self._run_together(line, limit_s).latencies
        self._first.send(line)
        return self._next_trace(limit_s).latencies

    def run_for(self, duration_s: float, interval_s: float, *, verify: bool, limit_s: float = REQUEST_LIMIT_S) -> Trace:
        """Runs all actors of the prepared program for a duration, once, and counts iterations in each interval.

        Raises RequestFailed of kind `usage` for a program that runs in batches only.
        """
        self._drop_unread_run()
        asked = {"samples": 1, "duration_s": duration_s, "interval_s": interval_s, "verify": verify}
        line = msgspec.json.encode({"op": "run", **asked}) + b"\n"
        if self._together:
            return self._run_together(line, duration_s + limit_s)
        self._first.send(line)
        return self._next_trace(duration_s + limit_s)

    def prepare_and_run(
        self, requests: Sequence[tuple[bytes, RunRequest]], limit_s: float = REQUEST_LIMIT_S
    ) -> Iterator[tuple[Prepared, Trace] | str]:
        """Carries out pairs of a prepare_line() and a run; yields their answers, or the reason why a pair has none.

        Requests are sent ahead of the answers, so that the worker never waits. The caller must take all answers. Only
        for a model, where one worker runs all processes of a program.
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
                self._first.send(b"".join(ahead))
            yield self._prepared_and_run(limit_s)
            unanswered -= len(line)

    def _prepared_and_run(self, limit_s: float) -> tuple[Prepared, Trace] | str:
        reason = ""
        try:
            prepared = self._first.decode(self._first.answer(limit_s)[0], Prepared)
            reason = prepared.reason
        except RequestFailed as problem:
            reason = str(problem)
        try:
            return prepared, self._next_trace(limit_s)
        except RequestFailed as problem:
            return reason or str(problem)

    def _next_trace(self, limit_s: float) -> Trace:
        return _trace(self._first, *self._first.answer(limit_s))

    def twin(self, environment: dict[str, str]) -> "Worker":
        """Returns another worker with these environment variables that has opened the same platform."""
        words = [f"{name}={value}" for name, value in environment.items()]
        other = Worker(["env", *words, *self._command], self._stop_asked)
        try:
            other.open(self._own_memory())
        except BaseException:
            other.kill()
            raise
        return other

    def _own_memory(self) -> dict[str, Any]:
        """Returns the last request to open a platform, without what only the first worker needs."""
        return {key: value for key, value in self._opened.items() if key not in ("most", "contexts")}

    def end(self) -> None:
        """Kills the worker without waiting; kill() waits."""
        for process in (self._first, *self._peers):
            process.end()

    def kill(self) -> bool:
        """Kills the worker. Returns False if it is still there after the time that the kernel may need."""
        processes = (self._first, *self._peers)
        for process in processes:
            process.end()
        return all([process.kill() for process in processes])

    def _ask(self, request: dict[str, Any], limit_s: float) -> tuple[bytes, bytes]:
        """Sends one request; returns the answer's line and the bytes of its doubles."""
        self._drop_unread_run()
        self._first.send(msgspec.json.encode(request) + b"\n")
        return self._first.answer(limit_s)

    def _drop_unread_run(self) -> None:
        """Reads and drops the answer to an unused run."""
        if self._sent_run is not None:
            self._sent_run = None
            with contextlib.suppress(RequestFailed):
                self._first.answer(REQUEST_LIMIT_S)

    # --- programs of several processes ---

    def _prepare_together(self, line: bytes, processes: int, limit_s: float) -> Prepared:
        together = self._meet(processes)
        answers = self._ask_all(together, line, limit_s)
        parts = [process.decode(answer, Prepared) for process, (answer, _) in zip(together, answers, strict=True)]
        refused = next((part for part in parts if not part.supported), None)
        if refused:
            self._kill_peers()
            return refused
        self._together = together
        self._acting = [process for process, part in zip(together, parts, strict=True) if part.acts]
        return msgspec.structs.replace(parts[0], once_s=max(part.once_s for part in parts))

    def _meet(self, processes: int) -> list[Process]:
        """Returns that many processes that have met. Starts those that are missing."""
        new = [
            Process(self._command, f"process {number}", self._stop_asked)
            for number in range(len(self._peers) + 1, processes)
        ]
        self._peers += new
        if new:
            self._ask_all(new, msgspec.json.encode({"op": "open", **self._own_memory()}) + b"\n", OPEN_LIMIT_S)
        together = [self._first, *self._peers[: processes - 1]]
        self._join(together)
        return together

    def _join(self, together: Sequence[Process]) -> None:
        """Lets these processes meet, unless they have."""
        if (processes := len(together)) != self._joined:
            meeting = {"op": "join", "processes": processes, "meeting": secrets.token_hex(16)}
            each = [{**meeting, "process": number, **self._seen_by(number, processes)} for number in range(processes)]
            self._ask_all(together, [msgspec.json.encode(one) + b"\n" for one in each], REQUEST_LIMIT_S)
            self._joined = processes

    def _seen_by(self, process: int, processes: int) -> dict[str, Any]:
        """Returns what `join` says about where this process reaches the others: nothing within a host."""
        return {}

    def _run_together(self, line: bytes, limit_s: float) -> Trace:
        answers = self._ask_all(self._acting, line, limit_s)
        return merged([_trace(process, *answer) for process, answer in zip(self._acting, answers, strict=True)])

    def _release_together(self) -> None:
        """Ends a program of several processes: they close each other's memory before any of it is freed."""
        if self._together:
            together, self._together, self._acting = self._together, [], []
            self._ask_all(together, b'{"op":"release"}\n', REQUEST_LIMIT_S)

    def _ask_all(
        self, processes: Sequence[Process], lines: bytes | Sequence[bytes], limit_s: float
    ) -> list[tuple[bytes, bytes]]:
        """Sends a request to several processes and returns their answers; the first failure ends all peers."""
        each = [lines] * len(processes) if isinstance(lines, bytes) else lines
        answers: list[tuple[bytes, bytes]] = []
        failure: RequestFailed | None = None
        deadline = time.monotonic() + patient_s(limit_s)
        try:
            for process, line in zip(processes, each, strict=True):
                process.send(line)
            for process in processes:
                process.watch(processes)
                try:
                    answers.append(process.answer(limit_s, deadline))
                except RequestFailed as problem:
                    named = process is self._first
                    failure = failure or RequestFailed(problem.kind, f"{'' if named else f'{process.name}: '}{problem}")
                    deadline = min(deadline, time.monotonic() + patient_s(_REST_S))
                finally:
                    process.watch(())
        except WorkerGone as gone:
            raise self._all_gone(gone, failure) from None
        if failure:
            self._kill_peers()
            raise failure
        return answers

    def _all_gone(self, gone: WorkerGone, failure: RequestFailed | None) -> WorkerGone:
        """Kills all processes, because one is gone; returns the error that says so."""
        text = f"{failure}; {gone}" if failure else str(gone)
        return WorkerGone(text, hung=gone.hung, abandoned=not self.kill())

    def _kill_peers(self) -> None:
        peers, self._peers, self._together, self._acting, self._joined = self._peers, [], [], [], 1
        for peer in peers:
            peer.end()
        if not all([peer.kill() for peer in peers]):
            self.kill()
            raise WorkerGone("another process of the program could not be killed; it was abandoned", abandoned=True)


def _trace(process: Process, line: bytes, stamps: bytes) -> Trace:
    """Decodes an answer to `run`."""
    trace = process.decode(line, Trace)
    trace.stamps = list(struct.unpack(f"<{len(stamps) // 8}d", stamps))
    if len(trace.stamps) != 2 * trace.samples * trace.batches * trace.actors:
        raise process.malformed(line)
    return trace
