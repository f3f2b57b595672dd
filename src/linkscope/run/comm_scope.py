"""Measures by the rule of Comm|Scope, for comparison with its results (`run --rule comm-scope`).

The rule (ICPE 2019, sections 2.1 and 3.1) times one operation between two events, or between two readings of the host's
clock if the operation blocks the host. No gate holds the stream, so the time includes the cost of queueing. A
repetition runs operations until they took 1 s in all, and its value is their mean. On a model, a repetition ends after
1000 operations at the latest. Five repetitions in one process give mean and standard deviation. Bidirectional transfers
last from the first start to the last end. docs/notes/comm-scope.md lists the differences.
"""

import math
from typing import Any

from linkscope.plan import RULES
from linkscope.run.answers import Prepared
from linkscope.run.batches import Task
from linkscope.run.round_parts import rounded
from linkscope.run.sampler import PointRound, Sampler
from linkscope.run.worker import Worker
from linkscope.runfile import Round

CUMULATED_S, REPETITIONS = 1.0, 5
MOST_AT_ONCE = 8192  # samples per request: answers stay small, and Ctrl-C takes effect soon
MOST_MODELLED = RULES["comm-scope"].modelled_operations // REPETITIONS


class CommScopeSampler(Sampler):
    """Measures points with bytes by that rule. Latencies follow linkscope's rule: their steps are not operations."""

    def _case(self, task: Task) -> dict[str, Any]:
        return super()._case(task) | ({"held": False} if task.point.bytes else {})

    def _round_of(self, worker: Worker, task: Task, prepared: Prepared) -> PointRound:
        kind = _CommScopeRound if task.point.bytes else PointRound
        return kind(worker, self._plan, task, prepared)


class _CommScopeRound(PointRound):
    def measure(self) -> Round:
        samples: list[list[float]] = [[] for _ in range(self._actors)]
        together: list[float] = []
        overlaps: list[float] = []
        count: int | None = None  # operations of a repetition: the first repetition runs until 1 s is reached
        for number in range(REPETITIONS):
            count, own, elapsed = self._repetition(count, last=number == REPETITIONS - 1)
            for actor, total in enumerate(own):
                samples[actor].append(rounded(total / count))
            together.append(elapsed / count)
            overlaps.append(min(own) / max(own))
        assert count is not None
        made = self._record([count] * self._actors, samples, [0.0], min(overlaps))
        if self._actors > 1:
            made.guards["together_s"] = rounded(math.fsum(together) / REPETITIONS)
        return made

    def _repetition(self, count: int | None, *, last: bool) -> tuple[int, list[float], float]:
        """Runs one repetition. Returns the number of operations, the seconds of each actor's operations, and the
        seconds from the first start to the last end, all summed."""
        own, elapsed, done = [0.0] * self._actors, 0.0, 0
        while (more := self._more(count, done, elapsed)) > 0:
            trace = self._batches.run(more, [[1] * self._actors], verify=last and done + more == count)
            durations = trace.durations()
            for actor in range(self._actors):
                own[actor] += math.fsum(durations[actor :: self._actors])
            elapsed += trace.span()
            done += more
            self._batches.each_s = [max(total / done, self._batches.tick_s) for total in own]
        return done, own, elapsed

    def _more(self, count: int | None, done: int, elapsed: float) -> int:
        """Returns the operations of the next request: first one, then the number that fills 1 s."""
        if count is not None:
            return min(count - done, MOST_AT_ONCE)
        most = MOST_MODELLED - done if self._batches.is_modelled else MOST_AT_ONCE
        if elapsed >= CUMULATED_S or most <= 0:
            return 0
        wanted = math.ceil((CUMULATED_S - elapsed) / (elapsed / done)) if elapsed > 0 else 1
        return min(max(wanted, 1), most)
