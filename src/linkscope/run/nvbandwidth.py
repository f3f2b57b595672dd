"""Measures by the rule of nvbandwidth 0.8, for comparison with its numbers (`run --rule nvbandwidth`).

The rule (memcpy.cpp, `doMemcpy`) times 16 copies after 4 warm-up copies, all queued behind a spinning kernel. The value
is the median of three such samples in one process. For the sum of several flows (one to all, all to one), the tool
divides all bytes by the time from the end of the first flow's warm-up to the end of the last flow. If one engine serves
all flows in turn, this time contains the warm-ups of the others. For bidirectional host copies, the tool times one
direction while the other copies twice the bytes. One process gives no interval.
"""

from linkscope.plan.facts import kind_of
from linkscope.run.answers import Prepared
from linkscope.run.batches import Task
from linkscope.run.round_parts import rounded
from linkscope.run.sampler import PointRound, Sampler
from linkscope.run.worker import Worker
from linkscope.runfile import Round
from linkscope.stats import median

WARM_UP, TIMED, SAMPLES = 4, 16, 3


class NvbandwidthSampler(Sampler):
    """Measures points with bytes by that rule. Latencies (the tool times launches) and managed memory (one operation
    per sample) follow linkscope's rule."""

    def _round_of(self, worker: Worker, task: Task, prepared: Prepared) -> PointRound:
        kind = _NvbandwidthRound if task.point.bytes and not prepared.most_iterations else PointRound
        return kind(worker, self._plan, task, prepared)


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
                trace = self._batches.run(1, batches, verify=last)
                warm, total = ([trace.seconds(0, at, actor) for actor in range(self._actors)] for at in (0, 1))
                for actor in group:
                    samples[actor].append(rounded((total[actor] - warm[actor]) / TIMED))
                together.append((max(total) - warm[0]) / TIMED)
                overlap = min(overlap, min(total) / max(total[actor] for actor in group))
        made = self._record([TIMED] * self._actors, samples, [0.0], overlap)
        if self._actors > 1 and len(groups) == 1:
            made.guards["together_s"] = rounded(median(together))
        return made

    def _groups(self) -> list[list[int]]:
        """Groups the actors that are timed together: for bidirectional host copies, those of one direction at a
        time."""
        to_host = [flow.actor for flow in self._flows if (kind_of(flow.src), kind_of(flow.dst)) == ("gpu", "numa")]
        others = [actor for actor in range(self._actors) if actor not in to_host]
        is_bidirectional = bool(to_host and others)
        return [others, to_host] if is_bidirectional else [list(range(self._actors))]

    def _batch_for(self, group: list[int], count: int) -> list[int]:
        """Gives untimed actors twice the operations, so that they outlast the timed ones."""
        return [count if actor in group else 2 * count for actor in range(self._actors)]
