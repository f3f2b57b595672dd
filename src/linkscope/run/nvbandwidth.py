"""Measuring as nvbandwidth 0.8 does, so that numbers can be laid side by side (`run --rule nvbandwidth`).

Its rule (memcpy.cpp, `doMemcpy`): 4 copies to warm up and 16 that are timed, queued behind a spinning kernel; three
such samples in one process, of which it takes the median. Where it adds flows up (one to all, all to one) it divides
all bytes by the time from the end of the first flow's warm-up to the end of the last flow. Where one engine serves all
flows in turn, the others' warm-ups lie within that time. It has one process and so no interval.
"""

from linkscope.run.answers import FlowFacts
from linkscope.run.sampler import PointRound, Sampler, Task
from linkscope.runfile import Round
from linkscope.stats import median

WARM_UP, TIMED, SAMPLES = 4, 16, 3


class NvbandwidthSampler(Sampler):
    """Measures points with bytes by that rule; latencies, which it times by launches of its own, by linkscope's."""

    def _round_of(self, task: Task, flows: list[FlowFacts], actors: int) -> PointRound:
        kind = _NvbandwidthRound if task.point.bytes else PointRound
        return kind(self._worker, self._plan, task, flows, actors)


class _NvbandwidthRound(PointRound):
    def measure(self) -> Round:
        everybody = range(self._actors)
        batches = [[WARM_UP] * self._actors, [WARM_UP + TIMED] * self._actors]
        samples: list[list[float]] = [[] for _ in everybody]
        together: list[float] = []
        overlap = 1.0
        for number in range(SAMPLES):
            trace = self._run(1, batches, verify=number == SAMPLES - 1)
            warm, all_of_it = ([trace.seconds(0, batch, actor) for actor in everybody] for batch in (0, 1))
            for actor in everybody:
                samples[actor].append(self.rounded((all_of_it[actor] - warm[actor]) / TIMED))
            together.append((max(all_of_it) - warm[0]) / TIMED)
            overlap = min(overlap, min(all_of_it) / max(all_of_it))
        made = self._record([TIMED] * self._actors, samples, [0.0], overlap)
        if self._actors > 1:
            made.guards["together_s"] = self.rounded(median(together))
        return made
