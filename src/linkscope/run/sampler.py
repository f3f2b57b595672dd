"""Measures one point in one round: chooses the batch, samples until the median is steady, verifies the data.

The cost of one operation in a batch of L is the slope to a batch of mL: (T(mL) - T(L)) / ((m - 1) L). The cost of a
single operation is T(1) - T(0).
"""

import contextlib
from dataclasses import dataclass, field
from typing import Any

from linkscope.plan import Plan, case_of, lasts, once_only, pages_move, precision_target
from linkscope.plan.facts import MachineFacts
from linkscope.run import mps
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.batches import SLOWEST_RATE, Batches, Pair, Task, pair_of
from linkscope.run.beside import contended_round
from linkscope.run.calibrate import ALONE_S, Calibration
from linkscope.run.recipes import RANKS, recipe_of
from linkscope.run.round_parts import WrongData, flow_of, rounded, timing_of
from linkscope.run.stamped import add_single_times
from linkscope.run.stopping import Stopping
from linkscope.run.worker import PATIENCE, REQUEST_LIMIT_S, RequestFailed, RunRequest, Worker, WorkerGone
from linkscope.runfile import Round
from linkscope.stats import median, slope

_NCCL_MEETS_S = 50.0  # ranks meet, and connect in their first call (core/platform/cuda/collectives.cpp)


class Unsupported(Exception):
    """The platform cannot run the operation; the message says why."""


class Sampler:
    """Measures points on one worker by linkscope's rule. `plan` gives the precision, `machine` the cache sizes."""

    def __init__(self, worker: Worker, plan: Plan, machine: MachineFacts) -> None:
        self._worker = worker
        self._plan = plan
        self._machine = machine

    def measure(self, task: Task) -> Round:
        """Measures the task. Raises Unsupported, WrongData, RequestFailed or errors of the worker."""
        if task.point.param("way") == "mps" and not self._machine.modelled:
            return self._under_mps(task)
        return self._by(self._worker, task)

    def _by(self, worker: Worker, task: Task) -> Round:
        case = self._case(task)
        limit = REQUEST_LIMIT_S + PATIENCE * 4 * case["footprint_bytes"] / SLOWEST_RATE
        if task.point.engine == "nccl":
            limit += _NCCL_MEETS_S
        prepared = worker.prepare(case, f"{task.point}#{task.round}", limit, self._opening(task))
        if not prepared.supported:
            raise Unsupported(prepared.reason)
        if lasts(task.point):
            record = self._lasting(worker, task, prepared)
        else:
            record = self._round_of(worker, task, prepared).measure()
        if prepared.may_stamp and self._plan.rule == "linkscope":
            add_single_times(worker, record, prepared)
        return record

    def _lasting(self, worker: Worker, task: Task, prepared: Prepared) -> Round:
        """Measures a point that runs for a duration. Its first sample shows whether its processes can."""
        try:
            return contended_round(worker, task, prepared)
        except RequestFailed as problem:
            if problem.kind == "unsupported":
                raise Unsupported(str(problem)) from None
            raise

    def _under_mps(self, task: Task) -> Round:
        """Measures with a worker, and its peers, that are clients of an MPS daemon."""
        try:
            with mps.daemon() as environment, contextlib.ExitStack() as at_end:
                worker = self._worker.twin(environment)
                at_end.callback(worker.kill)
                return self._by(worker, task)
        except mps.NoMps as problem:
            raise Unsupported(str(problem)) from None
        except WorkerGone as gone:
            raise RequestFailed("failed", f"under MPS with {mps.queues_text(environment)}: {gone}") from None
        except RequestFailed as problem:
            raise RequestFailed(problem.kind, f"under MPS with {mps.queues_text(environment)}: {problem}") from None

    def _case(self, task: Task) -> dict[str, Any]:
        return case_of(task.point, self._machine)

    def _opening(self, task: Task) -> RunRequest | None:
        """Returns the first request of a later round. Its batch is that of the first round, so the request is known
        before the preparation."""
        if task.first is None or lasts(task.point) or pages_move(task.point) or once_only(task.point):
            return None
        if max(task.first.batch) == 1 and task.point.param("mode") != "single":
            return None  # the preparation decides whether two operations fit into a sample
        actors, flows = len(task.first.batch), task.first.flows
        facts = [
            FlowFacts(
                at * actors // len(flows),
                of.src,
                of.dst,
                of.src_memory,
                of.dst_memory,
                of.bytes,
                of.role,
                of.operations,
            )
            for at, of in enumerate(flows)
        ]
        prepared = Prepared(supported=True, actors=actors, flows=facts)
        return self._round_of(self._worker, task, prepared).opening()

    def _round_of(self, worker: Worker, task: Task, prepared: Prepared) -> "PointRound":
        return PointRound(worker, self._plan, task, prepared)


@dataclass
class _Taken:
    """The counted samples of a round. `samples`: seconds per operation of each actor."""

    samples: list[list[float]]
    together: list[int]  # the actors whose flows must end together
    once_s: list[float] = field(default_factory=list)  # cost of a batch without operations
    joint_s: list[float] = field(default_factory=list)  # until the last measured flow ends, for one operation of each
    overlaps: list[float] = field(default_factory=list)

    def add(self, starts: list[float], ends: list[float], pair: Pair) -> None:
        """Adds a sample: the seconds of each actor's shorter batch, and of its longer one."""
        of_flows = [ends[actor] for actor in self.together]
        self.overlaps.append(min(of_flows) / max(of_flows) if max(of_flows) > 0 else 1.0)
        for actor, of in enumerate(self.samples):
            line = slope(starts[actor], ends[actor], pair.shorter[actor], pair.longer[actor])
            of.append(rounded(line.each_s))
            if actor == 0:
                self.once_s.append(line.once_s)


class PointRound:
    """Measures one point in one round."""

    def __init__(self, worker: Worker, plan: Plan, task: Task, prepared: Prepared) -> None:
        self._task = task
        self._flows = prepared.flows
        self._actors = prepared.actors
        self._recipe = recipe_of(task.point, prepared)
        self._batches = Batches(worker, task, prepared.flows, prepared.actors, prepared.memory_bytes)
        self._calibration = Calibration(self._batches, self._recipe, prepared.once_s)
        self._ratio = 1 if self._recipe.single else self._ratio_of_first_round()
        self._stopping = Stopping(
            self._batches, task, self._recipe, precision=precision_target(plan, task.point), ratio=self._ratio,
            once_s=prepared.once_s,
        )  # fmt: skip

    def opening(self) -> RunRequest:
        """Returns the first request of measure()."""
        if self._recipe.waking:
            return RunRequest(1, [[self._recipe.waking] * self._actors], verify=False)
        pair = pair_of(self._batch(), self._ratio)
        more = self._stopping.wanted([[]], pair, self._batches.sample_s(pair))
        return RunRequest(self._stopping.uncounted() + (more or 1), [pair.shorter, pair.longer], more == 0)

    def measure(self) -> Round:
        """Measures the round."""
        batch = self._batch()
        pair = pair_of(batch, self._ratio)
        gated = self._batches.timing in ("gate", "gate+slope")
        taken = _Taken([[] for _ in range(self._actors)], self._together())
        self._wake()
        while True:
            takes_s = self._batches.sample_s(pair)
            more = self._stopping.wanted(taken.samples, pair, takes_s)
            uncounted = self._stopping.uncounted()
            trace = self._batches.run(uncounted + (more or 1), [pair.shorter, pair.longer], verify=more == 0)
            if self._ratio > 2 and gated and trace.timing != "gate":
                # The batch does not fit behind the gate, and another clock would measure something else.
                self._ratio = 2
                pair = pair_of(batch, self._ratio)
                continue
            self._take(taken, trace, pair, uncounted)
            if more == 0 and self._stopping.ends_round(taken.samples, pair, takes_s):
                record = self._record(batch, taken.samples, taken.once_s, median(taken.overlaps))
                record.longer = self._ratio
                if self._actors > 1 and self._recipe.has_bytes:
                    record.guards["together_s"] = rounded(median(taken.joint_s))
                return record

    def _take(self, taken: _Taken, trace: Trace, pair: Pair, uncounted: int) -> None:
        """Adds the samples of a trace, except the first ones that do not count."""
        durations, actors = trace.durations(), self._actors
        for at in range(uncounted * 2 * actors, len(durations), 2 * actors):
            starts, ends = durations[at : at + actors], durations[at + actors : at + 2 * actors]
            taken.add(starts, ends, pair)
            taken.joint_s.append(self._joint_time(starts, ends, pair.counts))
        self._batches.each_s = [max(median(of), 0.0) for of in taken.samples]

    def _together(self) -> list[int]:
        """Returns the actors whose flows must end together: all, but of messages between ranks only those with a
        measured flow, because the other rank only answers."""
        measured = {flow.actor for flow in self._flows if flow.role == "measured"}
        return sorted(measured) if self._task.point.engine in RANKS else list(range(self._actors))

    def _joint_time(self, starts: list[float], ends: list[float], counts: list[int]) -> float:
        """Returns how much later the last measured flow ends in the longer batch than in the shorter one, scaled.

        The bytes of one operation of each flow over this time are the joint rate, even if flows do different numbers of
        operations (`counts`). Start-up costs occur in both batches and cancel.
        """
        measured = [flow for flow in self._flows if flow.role == "measured"]
        actors = sorted({flow.actor for flow in measured})
        elapsed = max(ends[actor] for actor in actors) - max(starts[actor] for actor in actors)
        moved = sum(counts[flow.actor] * flow.bytes for flow in measured)
        return elapsed * sum(flow.bytes for flow in measured) / moved if moved else elapsed

    def _wake(self) -> None:
        """Wakes a link between GPUs."""
        if waking := self._recipe.waking:
            trace = self._batches.run(1, [[waking] * self._actors], verify=False)
            if self._task.first is None:
                self._batches.each_s = [each / waking for each in self._batches.median_ends_s(trace, 0)]

    def _batch(self) -> list[int]:
        if self._recipe.single:
            return [1] * self._actors
        if self._task.first:
            return self._task.first.batch
        batch = self._calibration.batch()
        self._ratio = self._calibration.ratio(batch)
        return batch

    def _ratio_of_first_round(self) -> int:
        """Returns the ratio of the first round. Older run files lack it: they used 2, or 1 for long operations."""
        if self._task.first and self._task.first.longer:
            return self._task.first.longer
        return 1 if self._task.first and min(self._batches.each_s) >= ALONE_S else 2

    def _record(self, batch: list[int], samples: list[list[float]], once: list[float], overlap: float) -> Round:
        trace = self._batches.last
        assert trace is not None
        if trace.verdict is not None and not trace.verdict.ok:
            raise WrongData(f"{trace.verdict.wrong_bytes} bytes are wrong, the first: {trace.verdict.first_wrong}")
        guards: dict[str, Any] = dict(trace.notes)
        if "throttled" in guards:  # a model gives NVML's reasons as one text
            guards["throttled"] = guards["throttled"].split(", ")
        if self._actors > 1:
            guards["joint_overlap"] = round(overlap, 4)
        if self._calibration.nonlinear:
            guards["nonlinear"] = self._calibration.nonlinear
        if trace.spent:
            guards["spent"] = {name: float(f"{seconds:.3g}") for name, seconds in trace.spent.items()}
        return Round(
            id=str(self._task.point),
            round=self._task.round,
            flows=[flow_of(facts, samples[facts.actor]) for facts in self._flows],
            batch=batch,
            overhead_s=rounded(median(once)),
            timing=timing_of(trace.timing),
            verified=None if trace.verdict is None else True,
            guards=guards,
            device_s=rounded(self._batches.busy_s),
        )
