"""The worker's table of benchmarks, and single questions to a worker."""

import contextlib
import functools
from collections.abc import Iterator, Sequence

from linkscope.errors import UserError
from linkscope.plan import Benchmark
from linkscope.plan.table import Role
from linkscope.run.worker import RequestFailed, Worker, WorkerGone, worker_command


def benchmark_table(command: Sequence[str] | None = None) -> list[Benchmark]:
    """The table of benchmarks in the worker."""
    with temporary_worker(command) as worker:
        return worker.benchmarks()


def role_of(benchmark: str) -> Role:
    """What an operation measures; `copy` for one that this worker does not know, from a run of another version."""
    return _roles(tuple(worker_command())).get(benchmark, "copy")


@functools.cache
def _roles(command: tuple[str, ...]) -> dict[str, Role]:
    return {row.name: row.role for row in benchmark_table(command)}


@contextlib.contextmanager
def temporary_worker(command: Sequence[str] | None) -> Iterator[Worker]:
    """Starts a worker for a single question."""
    chosen = command or worker_command()
    worker = Worker(chosen)
    try:
        yield worker
    except (WorkerGone, RequestFailed) as problem:
        raise UserError(f"{chosen[0]} does not work as linkscope's worker: {problem}; build it again") from None
    finally:
        worker.kill()
