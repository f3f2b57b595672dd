"""Measuring as Comm|Scope does, for those who compare with its results (`run --rule comm-scope`).

Its rule (ICPE 2019, 2.1, 3.1): one operation between two events, or between two readings of the host's clock where
the operation holds up the host; nothing holds the stream while the host queues, so that the time has the cost of
queueing in it. As many operations as take 1 s together are a repetition, of which the value is the mean; five
repetitions in one process, of which it gives mean and standard deviation. Both ways at once lasts from the first start
to the last end. What differs from it is in docs/notes/comm-scope.md.
"""

import math
from typing import Any

from linkscope.run.answers import Prepared
from linkscope.run.sampler import PointRound, Sampler, Task
from linkscope.runfile import Round

CUMULATED_S, REPETITIONS = 1.0, 5
MOST_AT_ONCE = 8192  # samples in one request, so that an answer stays small and Ctrl-C is heard


class CommScopeSampler(Sampler):
    """Measures points with bytes by that rule; latencies, of which a step is no operation, by linkscope's."""

    def _case(self, task: Task) -> dict[str, Any]:
        return super()._case(task) | ({"held": False} if task.point.bytes else {})

    def _round_of(self, task: Task, prepared: Prepared) -> PointRound:
        kind = _CommScopeRound if task.point.bytes else PointRound
        return kind(self._worker, self._plan, task, prepared)


class _CommScopeRound(PointRound):
    def measure(self) -> Round:
        samples: list[list[float]] = [[] for _ in range(self._actors)]
        together: list[float] = []
        overlaps: list[float] = []
        count: int | None = None  # operations of a repetition: as many as the first needed for 1 s
        for number in range(REPETITIONS):
            count, own, elapsed = self._repetition(count, last=number == REPETITIONS - 1)
            for actor, total in enumerate(own):
                samples[actor].append(self.rounded(total / count))
            together.append(elapsed / count)
            overlaps.append(min(own) / max(own))
        assert count is not None
        made = self._record([count] * self._actors, samples, [0.0], min(overlaps))
        if self._actors > 1:
            made.guards["together_s"] = self.rounded(math.fsum(together) / REPETITIONS)
        return made

    def _repetition(self, count: int | None, *, last: bool) -> tuple[int, list[float], float]:
        """How many operations, seconds of each actor's, and seconds from the first start to the last end, summed."""
        own, elapsed, done = [0.0] * self._actors, 0.0, 0
        while (more := self._more(count, done, elapsed)) > 0:
            trace = self._run(more, [[1] * self._actors], verify=last and done + more == count)
            durations = trace.durations()
            for actor in range(self._actors):
                own[actor] += math.fsum(durations[actor :: self._actors])
            elapsed += trace.span()
            done += more
            self._each = [max(total / done, self._tick) for total in own]
        return done, own, elapsed

    @staticmethod
    def _more(count: int | None, done: int, elapsed: float) -> int:
        """How many operations to ask for next: one first, and then what 1 s still needs."""
        if count is not None:
            return min(count - done, MOST_AT_ONCE)
        if elapsed >= CUMULATED_S:
            return 0
        wanted = math.ceil((CUMULATED_S - elapsed) / (elapsed / done)) if elapsed > 0 else 1
        return min(max(wanted, 1), MOST_AT_ONCE)
