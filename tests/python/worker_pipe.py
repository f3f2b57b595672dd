"""A plain client of the worker's pipe (docs/reference/worker.md) for tests: no policy, answers unchanged."""

import json
import select
import struct
import subprocess
from pathlib import Path
from typing import Any


class NoAnswer(Exception):
    """The worker did not answer in time."""


class Pipe:
    """One worker. Leaving the `with` block kills it."""

    def __init__(self, worker: Path, environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [worker], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
        )

    def __enter__(self) -> "Pipe":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()

    def ask(self, op: str, timeout_s: float = 300.0, **fields: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"op": op, **fields}).encode() + b"\n")
        answer: dict[str, Any] = json.loads(self._read_line(timeout_s))
        if "doubles" in answer:
            answer["stamps"] = struct.unpack(f"<{answer['doubles']}d", self._read(8 * answer["doubles"]))
        return answer

    def _read_line(self, timeout_s: float) -> bytes:
        assert self.process.stdout is not None and self.process.stderr is not None
        if not select.select([self.process.stdout], [], [], timeout_s)[0]:
            raise NoAnswer
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise AssertionError(f"the worker ended: {self.process.wait()}, {self.process.stderr.read().decode()}")
        return line

    def _read(self, size: int) -> bytes:
        assert self.process.stdout is not None
        data = b""
        while len(data) < size:
            data += self.process.stdout.read(size - len(data))
        return data
