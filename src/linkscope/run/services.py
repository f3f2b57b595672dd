"""What a run uses besides its machine, its plan and its run file."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from linkscope.run.monitor import Monitor, NoMonitor, NoTally, Tally
from linkscope.run.progress import Progress, Silent
from linkscope.run.ranks import RankWorker
from linkscope.run.worker import worker_command


@dataclass(frozen=True)
class Services:
    """`command` starts a worker; `stop_asked` returns whether the user stopped the run. `ranks`: the workers of all
    ranks of MPI; None: this process is no rank."""

    command: Sequence[str] = field(default_factory=worker_command)
    progress: Progress = field(default_factory=Silent)
    monitor: Monitor = field(default_factory=NoMonitor)
    tally: Tally | NoTally = field(default_factory=NoTally)
    stop_asked: Callable[[], bool] = lambda: False
    ranks: RankWorker | None = None
