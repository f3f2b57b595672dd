"""Measuring as nvbandwidth 0.8 does, so that numbers can be laid side by side (`run --rule nvbandwidth`).

Its rule (memcpy.cpp, `doMemcpy`): 4 copies to warm up and 16 that are timed, queued behind a spinning kernel; three
such samples in one process, of which it takes the median. Where it adds flows up (one to all, all to one) it divides
all bytes by the time from the end of the first flow's warm-up to the end of the last flow. Where one engine serves all
flows in turn, the others' warm-ups lie within that time. Of copies both ways between host and GPUs it times one
direction, and the other copies twice as much. It has one process and so no interval.
"""

from linkscope.plan.facts import kind_of
from linkscope.run.answers import Prepared
from linkscope.run.sampler import PointRound, Sampler, Task
from linkscope.runfile import Round
from linkscope.stats import median

WARM_UP, TIMED, SAMPLES = 4, 16, 3


class NvbandwidthSampler(Sampler):
    """Measures points with bytes by that rule; latencies, which it times by launches of its own, and managed memory,
    of which a sample has one operation, by linkscope's."""

    def _round_of(self, task: Task, prepared: Prepared) -> PointRound:
        kind = _NvbandwidthRound if task.point.bytes and not prepared.most_iterations else PointRound
        return kind(self._worker, self._plan, task, prepared)


class _NvbandwidthRound(PointRound):
    def measure(self) -> Round:
        samples: list[list[float]] = [[] for _ in range(self._actors)]
        together: list[float] = []
        overlap = 1.0
        groups = self._groups()
        for number in range(SAMPLES):
            for group in groups:
                batches = [self._batch_for(group, WARM_UP), self._batch_for(group, WARM_UP + TIMED)]
                last = number == SAMPLES - 1 and group is groups[-1]
                trace = self._run(1, batches, verify=last)
                warm, all_of_it = ([trace.seconds(0, at, actor) for actor in range(self._actors)] for at in (0, 1))
                for actor in group:
                    samples[actor].append(self.rounded((all_of_it[actor] - warm[actor]) / TIMED))
                together.append((max(all_of_it) - warm[0]) / TIMED)
                overlap = min(overlap, min(all_of_it) / max(all_of_it[actor] for actor in group))
        made = self._record([TIMED] * self._actors, samples, [0.0], overlap)
        if self._actors > 1 and len(groups) == 1:
            made.guards["together_s"] = self.rounded(median(together))
        return made

    def _groups(self) -> list[list[int]]:
        """Actors that are timed at once. Of host copies both ways it times one direction while the other goes on."""
        to_host = [flow.actor for flow in self._flows if (kind_of(flow.src), kind_of(flow.dst)) == ("gpu", "numa")]
        others = [actor for actor in range(self._actors) if actor not in to_host]
        both = bool(to_host and others)
        return [others, to_host] if both else [list(range(self._actors))]

    def _batch_for(self, group: list[int], count: int) -> list[int]:
        """Whoever is not timed has twice as much to do, and so outlasts who is."""
        return [count if actor in group else 2 * count for actor in range(self._actors)]
