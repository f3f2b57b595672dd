"""Workers with invented times, and rounds that the sampler measures on them."""

from typing import Any

from fakes import FAKE_WORKER, H2D, facts, plan, round_record, target
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.batches import Task
from linkscope.run.sampler import Sampler
from linkscope.run.worker import Worker
from linkscope.runfile import PointId, Round, RoundFlow
from linkscope.stats import median


def sampled(size: int, mode: str = "batched", both: str = "false", first: Round | None = None, **behaviour) -> Round:
    id = H2D.format(size, both, mode)
    worker = Worker(FAKE_WORKER)
    try:
        worker.open(target(**behaviour).open_request)
        return Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), int(first is not None), first))
    finally:
        worker.kill()


def value(record: Round, flow: int = 0) -> float:
    return median(record.flows[flow].samples_s)


def measured(worker: Any, size: int, both: str = "true", first: Round | None = None) -> Round:
    id = H2D.format(size, both, "batched")
    return Sampler(worker, plan(id), facts()).measure(Task(PointId.parse(id), int(first is not None), first))


def earlier(batch: list[int], *each_s: float) -> Round:
    """The first round of a point, with a fixed batch that later rounds use unconditionally."""
    made = round_record("the sampler takes no more of it than this", 0)
    made.flows = [RoundFlow("numa:0", "gpu:0", "pinned", "device", 8, "measured", [each]) for each in each_s]
    made.batch = batch
    return made


class Restless:
    """A worker whose samples never agree."""

    timing = "gate"

    def __init__(self, part: float = 0.5) -> None:
        self.part = part  # relative deviation
        self.calls, self.verified = 0, 0

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            for batch in batches:
                self.calls += 1
                stamps += [0.0, batch[0] * 2e-6 * (1 + self.part * (self.calls % 3))]
        self.verified += verify
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)

    def prepare(self, case, key, limit_s, then=None):
        flow = FlowFacts(0, "numa:0", "gpu:0", "pinned", "device", case["bytes"], "measured")
        return Prepared(True, actors=1, flows=[flow])


class Wobbling(Restless):
    """A worker whose samples deviate from a time by `part`."""

    def __init__(self, each_s: float, part: float) -> None:
        super().__init__(part)
        self.each_s = each_s

    def run(self, samples, batches, *, verify, limit_s):
        stamps = []
        for _ in range(samples):
            each = self.each_s * (1 + self.part * (-1, 1, 0, -0.6, 0.6, 0.3)[self.calls % 6])
            stamps += [t for batch in batches for t in (0.0, batch[0] * each)]
            self.calls += 1
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)


class Joint(Restless):
    """Two flows; `ends` gives the seconds of each from the counts of both."""

    def __init__(self, ends) -> None:
        super().__init__()
        self.ends = ends

    def run(self, samples, batches, *, verify, limit_s):
        one = [t for batch in batches for end in self.ends(*batch) for t in (0.0, end)]
        return Trace(samples, len(batches), 2, "host", stamps=one * samples)

    def prepare(self, case, key, limit_s, then=None):
        prepared = super().prepare(case, key, limit_s)
        back = FlowFacts(1, "gpu:0", "numa:0", "device", "pinned", case["bytes"], "measured")
        return Prepared(True, actors=2, flows=[*prepared.flows, back])


class Timed(Restless):
    """A flow whose times depend on the count only; it logs its batches."""

    def __init__(self, time_of, timing: str = "gate") -> None:
        super().__init__()
        self.time_of, self.timing, self.asked = time_of, timing, []

    def run(self, samples, batches, *, verify, limit_s):
        self.asked += [batch[0] for batch in batches] * samples
        stamps = [t for _ in range(samples) for batch in batches for t in (0.0, self.time_of(batch[0]))]
        return Trace(samples, len(batches), 1, self.timing, stamps=stamps)
