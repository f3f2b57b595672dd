"""Types of the worker's answers (docs/reference/worker.md)."""

import itertools
import math
import operator
from typing import Any, Literal

import msgspec


class FlowFacts(msgspec.Struct):
    """One flow of a prepared program."""

    actor: int
    src: str
    dst: str
    src_memory: str
    dst_memory: str
    bytes: int
    role: Literal["measured", "background"]
    operations: float | None = None  # arithmetic operations per iteration


class Prepared(msgspec.Struct):
    """The answer to `prepare`."""

    supported: bool
    reason: str = ""
    actors: int = 0
    flows: list[FlowFacts] = []
    slices: int = 1
    most_iterations: int = 0  # maximum operations of a batch; 0: no maximum
    may_stamp: bool = False  # whether single iterations can be stamped
    in_step: bool = False  # whether the actors wait for each other, so that all of them do the same number
    memory_bytes: int = 0  # of all regions
    program: str = ""
    once_s: float = 0.0  # seconds of the first iteration of all loops; 0: unknown
    processes: int = 1  # more: as many processes must prepare the program together
    acts: bool = True  # whether this process takes part in samples


class Verdict(msgspec.Struct):
    """The result of comparing the destination."""

    ok: bool
    checked_bytes: int
    wrong_bytes: int
    first_wrong: str


class Carried(msgspec.Struct):
    """Bytes that a directed link carried during a `run`, as the platform counted them."""

    link: str
    bytes: int


class ActorSeries(msgspec.Struct):
    """What an actor did in a sample of a duration; `interval_iterations` counts parts of those under way.

    `p50_s`, `p99_s`: of the durations of its iterations, if each waits for its own end.
    """

    iterations: int
    interval_iterations: list[float]
    p50_s: float | None = None
    p99_s: float | None = None


class Window(msgspec.Struct):
    """The time in which all actors of a sample ran, in seconds and whole intervals."""

    start_s: float
    end_s: float
    actors: list[ActorSeries]

    def warm_up(self) -> int:
        """Returns the number of intervals until every actor has ended an operation.

        Before, all actors wait at once, and the parts of their first operations would count more than was done.
        """
        return max(_first_ended(actor.interval_iterations) for actor in self.actors)


def _first_ended(iterations: list[float]) -> int:
    """The number of intervals until one iteration has ended; all intervals if none has."""
    ended = list(itertools.accumulate(iterations))
    return next((at + 1 for at, count in enumerate(ended) if count >= 1), len(ended))


class Latencies(msgspec.Struct):
    """The times between the ends of an actor's iterations, in seconds, by stamps. A class of times is 1.1 % wide."""

    count: int
    mean_s: float
    p50_s: float
    p99_s: float


class Trace(msgspec.Struct):
    """The answer to `run`. `stamps` holds entry and exit in seconds per sample, batch and actor. `series` has an entry
    for each sample of a duration. `latencies` has one for each actor of stamped batches, null for actors without."""

    samples: int
    batches: int
    actors: int
    timing: str
    notes: dict[str, Any] = {}
    verdict: Verdict | None = None
    links: list[Carried] = []
    spent: dict[str, float] = {}  # seconds of real time since `prepare`, by purpose; empty for a model
    stamps: list[float] = []
    series: list[Window] = []
    latencies: list[Latencies | None] = []

    def durations(self) -> list[float]:
        """Returns the duration of every loop: by sample, batch and actor, the actor fastest."""
        return list(map(operator.sub, self.stamps[1::2], self.stamps[0::2]))

    def seconds(self, sample: int, batch: int, actor: int) -> float:
        """Returns the duration of that actor's loop."""
        at = 2 * ((sample * self.batches + batch) * self.actors + actor)
        return self.stamps[at + 1] - self.stamps[at]

    def span(self) -> float:
        """Returns the seconds from the first entry to the last exit, summed over samples and batches."""
        entries, exits, step = self.stamps[0::2], self.stamps[1::2], self.actors
        if step > 1:
            blocks = range(0, len(entries), step)
            entries = [min(entries[at : at + step]) for at in blocks]
            exits = [max(exits[at : at + step]) for at in blocks]
        return math.fsum(map(operator.sub, exits, entries))

    def from_last_entry(self) -> "Trace":
        """Returns the trace in which every loop of a batch begins with the last. All stamps are of one clock."""
        entries, step = self.stamps[0::2], self.actors
        last = [max(entries[at : at + step]) for at in range(0, len(entries), step) for _ in range(step)]
        stamps = [
            stamp for begin, end in zip(last, self.stamps[1::2], strict=True) for stamp in (begin, max(begin, end))
        ]
        return msgspec.structs.replace(self, stamps=stamps)


def merged(parts: list[Trace]) -> Trace:
    """Returns the trace of a program of several processes. Each process stamps its own actors; other stamps are 0."""
    whole = parts[0]
    for part in parts[1:]:
        whole = msgspec.structs.replace(
            whole,
            stamps=list(map(operator.add, whole.stamps, part.stamps)),
            verdict=_both(whole.verdict, part.verdict),
            links=whole.links + part.links,
            notes=part.notes | whole.notes,
            series=[_of_both(*windows) for windows in zip(whole.series, part.series, strict=True)],
            latencies=[one or other for one, other in zip(whole.latencies, part.latencies, strict=True)],
        )
    return whole


def _of_both(first: Window, second: Window) -> Window:
    """Every actor ran in one of the processes; the other counts nothing for it."""
    actors = [one if one.iterations else other for one, other in zip(first.actors, second.actors, strict=True)]
    return msgspec.structs.replace(first, actors=actors)


def _both(first: Verdict | None, second: Verdict | None) -> Verdict | None:
    if first is None or second is None:
        return first or second
    return Verdict(
        first.ok and second.ok, first.checked_bytes + second.checked_bytes, first.wrong_bytes + second.wrong_bytes,
        first.first_wrong or second.first_wrong,
    )  # fmt: skip
