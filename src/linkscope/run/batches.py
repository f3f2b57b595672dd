"""Runs batches of one point's operations on a worker, and knows what they showed."""

import time
from dataclasses import dataclass
from typing import NamedTuple

from linkscope.run.answers import FlowFacts, Trace
from linkscope.run.worker import PATIENCE, REQUEST_LIMIT_S, RequestFailed, Worker
from linkscope.runfile import PointId, Round
from linkscope.stats import median

EVENT_TICK_S = 32e-9  # resolution of GPU event stamps on H200
HOST_TICK_S = 100e-9
SLOWEST_RATE = 1e9  # bytes a second: the slowest memory that may still answer in time


@dataclass(frozen=True)
class Task:
    """A measurement to make: a point, its round number, and its first round, whose batch every round uses.

    `spread`: standard deviation of the rounds so far as a fraction of their median; 0: unknown.
    """

    point: PointId
    round: int
    first: Round | None = None
    spread: float = 0.0


class Pair(NamedTuple):
    """The two batches of a sample, and the operations by which they differ: a number for each actor."""

    shorter: list[int]
    longer: list[int]
    counts: list[int]


def pair_of(batch: list[int], ratio: int) -> Pair:
    """Returns the batches of a sample. `ratio` of the longer batch to the shorter one; 1: the shorter one is empty."""
    shorter = [0] * len(batch) if ratio == 1 else batch
    longer = [ratio * count for count in batch]
    return Pair(shorter, longer, [more - less for more, less in zip(longer, shorter, strict=True)])


class Batches:
    """The batches of a point in one round."""

    def __init__(self, worker: Worker, task: Task, flows: list[FlowFacts], actors: int, memory_bytes: int = 0) -> None:
        self._worker = worker
        # The worker may also fill and compare this memory before it answers.
        self._contents_s = min(4 * max(512 * task.point.bytes, memory_bytes) / SLOWEST_RATE, 2.0)
        self._task = task
        self.actors = actors
        self.each_s = _initial_each_s(task, flows, actors)  # seconds per operation of each actor, as known so far
        self.busy_s = 0.0  # on the device
        self.tick_s = EVENT_TICK_S
        self.last: Trace | None = None
        self._since = time.monotonic()

    @property
    def is_modelled(self) -> bool:
        """Whether the batches run in virtual time."""
        return self.last is not None and self.last.timing == "virtual"

    @property
    def timing(self) -> str:
        """The clock of the last batch, otherwise of the first round; '' before any."""
        before = self.last or self._task.first
        return "" if before is None else before.timing or ""

    @property
    def is_timed_by_host(self) -> bool:
        """Whether the host's clock times the batches."""
        return self.timing == "host"

    def real_s(self) -> float:
        """Returns the seconds of real time since the round began."""
        return time.monotonic() - self._since

    def run(self, samples: int, batches: list[list[int]], *, verify: bool) -> Trace:
        """Runs samples of the batches."""
        longest = max(sum(batch[actor] for batch in batches) * self.each_s[actor] for actor in range(self.actors))
        limit = REQUEST_LIMIT_S + PATIENCE * (samples * longest + (self._contents_s if verify else 0.0))
        trace = self._worker.run(samples, batches, verify=verify, limit_s=limit)
        if (trace.actors, trace.samples, trace.batches) != (self.actors, samples, len(batches)):
            raise RequestFailed("failed", "the worker answered with other samples than requested")
        self.tick_s = HOST_TICK_S if trace.timing == "host" else EVENT_TICK_S
        self.busy_s += trace.span()
        self.last = trace
        return trace

    def run_with_double(self, batch: list[int], samples: int) -> Trace:
        """Runs a batch and its double, and notes the cost of an operation of every actor."""
        batches = [batch, [2 * count for count in batch]]
        trace = self.run(samples, batches, verify=False)
        self.note_slopes(self.slopes(trace, 0, batches), batch)
        return trace

    def run_shortest(self, batch: list[int], samples: int) -> None:
        """Runs a batch and its double, and notes the cost of an operation of every actor from the shortest times of
        both. A pause of a process only adds to a time.
        """
        batches = [batch, [2 * count for count in batch]]
        trace = self.run(samples, batches, verify=False)
        short, long = (self.shortest_s(trace, at) for at in (0, 1))
        slopes = [(more - less) / count for less, more, count in zip(short, long, batch, strict=True)]
        self.note_slopes([[each] for each in slopes], batch)

    def note_slopes(self, slopes: list[list[float]], batch: list[int]) -> None:
        """Notes the cost of an operation of every actor: at least what the clock can show of the batch."""
        self.each_s = [max(median(of), self.tick_s / 8 / count) for of, count in zip(slopes, batch, strict=True)]

    def slopes(self, trace: Trace, at: int, batches: list[list[int]]) -> list[list[float]]:
        """Returns the seconds per operation for every actor and sample, between batch `at` and the next one."""
        more = [batches[at + 1][actor] - batches[at][actor] for actor in range(self.actors)]
        return [
            [
                (trace.seconds(sample, at + 1, actor) - trace.seconds(sample, at, actor)) / more[actor]
                for sample in range(trace.samples)
            ]
            for actor in range(self.actors)
        ]

    def median_ends_s(self, trace: Trace, at: int) -> list[float]:
        """Returns the median seconds of each actor's batch `at`."""
        samples = range(trace.samples)
        return [median([trace.seconds(sample, at, actor) for sample in samples]) for actor in range(self.actors)]

    def shortest_s(self, trace: Trace, at: int) -> list[float]:
        """Returns the shortest time in seconds of each actor's batch `at`."""
        samples = range(trace.samples)
        return [min(trace.seconds(sample, at, actor) for sample in samples) for actor in range(self.actors)]

    def ends_s(self, batch: list[int]) -> list[float]:
        """Returns the expected seconds of each actor's batch."""
        return [count * each for count, each in zip(batch, self.each_s, strict=True)]

    def sample_s(self, pair: Pair) -> float:
        """Returns the expected seconds of both batches of a sample; 0: unknown."""
        if self._task.first is None and self.last is None:
            return 0.0
        return max(
            (less + more) * each for less, more, each in zip(pair.shorter, pair.longer, self.each_s, strict=True)
        )


def _initial_each_s(task: Task, flows: list[FlowFacts], actors: int) -> list[float]:
    """Returns the seconds per operation of each actor before this round's first sample: those of the first round,
    otherwise slower than any memory."""
    if task.first is None:
        return [task.point.bytes / SLOWEST_RATE] * actors
    guess = [0.0] * actors
    for facts, flow in zip(flows, task.first.flows, strict=True):
        guess[facts.actor] = max(guess[facts.actor], median(flow.samples_s))
    return guess
