"""The parent's worker and its peers behind the interface of worker_pipe.Pipe: answers as they come over the pipe."""

import os
from pathlib import Path
from typing import Any

import msgspec

from linkscope.run.worker import RequestFailed, RunRequest, Worker, WorkerGone
from processes import children


class Group:
    """A worker that starts peers when a program needs them. Leaving the `with` block kills all of them."""

    def __init__(self, worker: Path, environment: dict[str, str]) -> None:
        self.worker = Worker(["/usr/bin/env", "-i", *(f"{key}={value}" for key, value in environment.items()), worker])

    def __enter__(self) -> "Group":
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.kill()

    def ask(self, op: str, timeout_s: float = 10.0, **fields: Any) -> dict[str, Any]:
        try:
            return {"ok": True, **self._answer(op, timeout_s, fields)}
        except RequestFailed as problem:
            return {"ok": False, "error": {"kind": problem.kind, "message": str(problem)}}
        except WorkerGone as gone:
            return {"ok": False, "error": {"kind": "gone", "message": str(gone), "hung": gone.hung}}

    def _answer(self, op: str, timeout_s: float, fields: dict[str, Any]) -> dict[str, Any]:
        if op == "open":
            return self.worker.open(fields)
        if op == "prepare":
            return msgspec.to_builtins(self.worker.prepare(fields["case"], fields["key"], timeout_s))
        return msgspec.to_builtins(self.worker.run(**RunRequest(**fields)._asdict(), limit_s=timeout_s))

    def peers(self) -> list[int]:
        """The process ids of the peers: younger processes of this test with the same program."""
        return sorted(set(children(os.getpid())) & {process.pid for process in self.worker._peers})

    def finish(self) -> list[int]:
        """Ends the input of all processes; returns their exit codes."""
        processes = [process._process for process in (self.worker._first, *self.worker._peers)]
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        return [process.wait(300) for process in processes]
