"""Measures one point in one round: chooses the batch, samples until the median is steady, verifies the data.

The cost of one operation in a batch of L is the slope to a batch of mL: (T(mL) - T(L)) / ((m - 1) L). The cost of a
single operation is T(1) - T(0).
"""

import math
import time
from dataclasses import dataclass
from typing import Any

from linkscope.plan import Plan, case_of, once_only, pages_move, precision_target
from linkscope.plan.facts import MachineFacts
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.balance import MOST_COUNT, balanced, is_served_in_turn
from linkscope.run.settling import MOVING_SAMPLES, SETTLING, settles, waking
from linkscope.run.worker import REQUEST_LIMIT_S, RequestFailed, RunRequest, Worker
from linkscope.runfile import PointId, Round, RoundFlow
from linkscope.runfile.schema import Timing
from linkscope.stats import median, median_error, slope, steady

EVENT_TICK_S = 32e-9  # resolution of GPU event stamps on H200
HOST_TICK_S = 100e-9
LEAST_BATCH_S = 50e-6
# The first copies of a batch may cost less than the following ones (H200, device to host, up to 64 KiB: the first 60
# copies cost a fifth less, docs/notes/single-copies.md). A batch measures the cost of the following ones.
LEAST_COUNT, LEAST_COUNT_S = 64, 0.3e-3
LEAST_PART = 0.5  # fraction of the minimum duration: a shorter batch is doubled
# Tolerance between the slopes of a batch and its double, and the longest time that such a comparison takes.
STRAIGHT, STRAIGHT_S = 0.05, 20e-3
# The uncertainty of a batch's duration grows more slowly than the duration (H200, copies between GPUs: 2.5 us of 0.2
# ms, 5 us of 1.5 ms; docs/notes/planner-evidence.md). The slope is most precise with the shortest batch that hides the
# start-up cost and the longest batch that time allows.
LARGE_BYTES, LARGE_BATCH_S, JOINT_BATCH_S = 1 << 20, 0.3e-3, 1e-3  # JOINT_BATCH_S: large copies of several flows
HUGE_BYTES, HUGE_BATCH_S = 16 << 20, 0.5e-3
SMALL_JOINT_BATCH_S = 200e-6
LONGER_S, LARGE_LONGER_S, HUGE_LONGER_S = 0.6e-3, 2.5e-3, 4e-3  # duration of the longer batch
MOST_LONGER = 8
JOINT_COUNT = 4
TOGETHER, NEARLY_TOGETHER, MOST_TRIES = 0.96, 0.85, 4  # duration of the shortest flow over that of the longest
MOST_BUSY_S = 0.08  # sampling time of one point in one round; afterwards, the interval shows what is not steady
MOST_WALL_S = 0.2  # the same including untimed work: allocation before each sample, comparison of data
JOINT_MOST_S, EVEN_BYTES, EVEN_BATCH_S = 20e-3, 256 << 20, 1e-3
# Growth over the largest batch tried so far: above MUCH_MORE, a batch grows in steps of at most MOST_MORE.
MUCH_MORE, MOST_MORE = 4, 16
MOST_QUEUED = 512
# All copies of a single call are cheap to queue. Longer batches have more copies if these stay behind the gate.
MOST_TOGETHER, MOST_QUEUED_TOGETHER = 1024, 16384
MOST_LOOPED = 8192  # a CPU thread copies one after the other, so only memory limits the number
# A pointer chase is one launch with any number of steps. In CHASE_S, waking a link (H200: 58 us) costs a few per cent.
CHASE_S, MOST_STEPS = 1e-3, 4096
MOST_SAMPLES, OUT_OF_REACH = 7, 3.0
# If a whole round of a point is cheap, samples are taken until its median is steady. Single copies of 1 MiB within a
# GPU differ by 6 % to 9 % (H200, 2.9 us): the median of 31 samples is off by 1.5 %, of 127 by 0.8 %.
MANY_SAMPLES, LITTLE_S = 127, 10e-3
# Four samples that each take a seventh of a point's overhead make up a third of the round. An oracle with one sample
# takes half of the time (docs/notes/planner-evidence.md). If three rounds agree, twice the error of each does not
# matter. If they disagree, another round is worth more than more samples.
ROUND_S = 7e-3  # H200, 1 MiB and more
EXPENSIVE_S, EXPENSIVE = ROUND_S / 7, 2.0
USUAL = 2.0  # tolerance, in standard deviations of the rounds so far
ALONE_S = 8e-3  # operations of this length need no batch: the extra cost of a first one, about 15 us, is 0.2 % of it
# Operations or idle gaps of at least LONG_S are not batched. At VERY_LONG_S and more, two samples suffice.
LONG_S, VERY_LONG_S = 10e-3, 100e-3
_SLOWEST_RATE = 1e9  # bytes a second: the slowest memory that may still answer in time
_SAME_RATE = 1.05


class Unsupported(Exception):
    """The platform cannot run the operation; the message says why."""


class WrongData(Exception):
    """The destination does not hold the source's data."""


@dataclass(frozen=True)
class Task:
    """A measurement to make: a point, its round number, and its first round, whose batch every round uses.

    `spread`: standard deviation of the rounds so far as a fraction of their median; 0: unknown.
    """

    point: PointId
    round: int
    first: Round | None = None
    spread: float = 0.0


class Sampler:
    """Measures points on one worker by linkscope's rule. `plan` gives the precision, `machine` the cache sizes."""

    def __init__(self, worker: Worker, plan: Plan, machine: MachineFacts) -> None:
        self._worker = worker
        self._plan = plan
        self._machine = machine

    def measure(self, task: Task) -> Round:
        """Measures the task. Raises Unsupported, WrongData, RequestFailed or errors of the worker."""
        case = self._case(task)
        limit = REQUEST_LIMIT_S + 20 * 4 * case["footprint_bytes"] / _SLOWEST_RATE
        prepared = self._worker.prepare(case, f"{task.point}#{task.round}", limit, self._opening(task))
        if not prepared.supported:
            raise Unsupported(prepared.reason)
        return self._round_of(task, prepared).measure()

    def _case(self, task: Task) -> dict[str, Any]:
        return case_of(task.point, self._machine)

    def _opening(self, task: Task) -> RunRequest | None:
        """Returns the first request of a later round. Its batch is that of the first round, so the request is known
        before the preparation."""
        if task.first is None or pages_move(task.point) or once_only(task.point):
            return None
        if max(task.first.batch) == 1 and task.point.param("mode") != "single":
            return None  # the preparation decides whether two operations fit into a sample
        actors, flows = len(task.first.batch), task.first.flows
        facts = [
            FlowFacts(at * actors // len(flows), of.src, of.dst, of.src_memory, of.dst_memory, of.bytes, of.role)
            for at, of in enumerate(flows)
        ]
        return self._round_of(task, Prepared(supported=True, actors=actors, flows=facts)).opening()

    def _round_of(self, task: Task, prepared: Prepared) -> "PointRound":
        return PointRound(self._worker, self._plan, task, prepared)


class PointRound:
    """Measures one point in one round."""

    def __init__(self, worker: Worker, plan: Plan, task: Task, prepared: Prepared) -> None:
        self._worker = worker
        self._plan = plan
        self._task = task
        self._flows = prepared.flows
        self._actors = prepared.actors
        self._once_s = prepared.once_s
        self._max_iterations = prepared.most_iterations
        self._single = task.point.param("mode") == "single" or self._max_iterations == 1
        self._first_each = _initial_each(task, prepared.flows, prepared.actors)  # seconds per operation
        self._first_round_steady = task.first is not None and all(
            steady(flow.samples_s, precision_target(plan, task.point))
            # Expensive operations have two samples that agree. Behind an idle gap, two samples prove nothing.
            and (len(flow.samples_s) > 2 or not task.point.idle_gap_s)
            for flow in task.first.flows
        )
        self._each = self._first_each  # seconds per operation, as known so far
        self._busy_s = 0.0
        self._since = time.monotonic()
        self._is_cpu = task.point.engine == "cpu"
        self._pages_move = pages_move(task.point)
        self._drops_first = self._single and settles(task.point)
        self._waking = waking(task.point) if self._drops_first else 0
        one_call = task.point.engine == "batch"
        self._most_count = MOST_LOOPED if self._is_cpu else MOST_TOGETHER if one_call else MOST_COUNT
        self._most_queued = MOST_QUEUED_TOGETHER if one_call else MOST_QUEUED
        if self._is_cpu:
            self._most_queued = MOST_LONGER * MOST_LOOPED
        if self._is_cpu and prepared.slices > 1:  # the thread would find repeated slices in its caches
            self._most_queued = prepared.slices
            self._most_count = min(MOST_LOOPED, max(prepared.slices // 2, 1))
        self._longer = 1 if self._single else self._longer_of_first_round()
        self._tick = EVENT_TICK_S
        self._last: Trace | None = None
        self._nonlinear = ""  # describes how the cost of an operation depends on the batch
        self._one_sample_suffices = self._can_one_sample_suffice()

    def opening(self) -> RunRequest:
        """Returns the first request of measure()."""
        if self._waking:
            return RunRequest(1, [[self._waking] * self._actors], verify=False)
        shorter, longer, counts = self._compared(self._batch())
        more = self._samples_wanted([[]], counts, self._sample_s(shorter, longer))
        return RunRequest(self._uncounted_samples() + (more or 1), [shorter, longer], more == 0)

    def _compared(self, batch: list[int]) -> tuple[list[int], list[int], list[int]]:
        """Returns the two batches of a sample, and the operations by which they differ."""
        shorter = [0] * self._actors if self._longer == 1 else batch
        longer = [self._longer * count for count in batch]
        return shorter, longer, [more - less for more, less in zip(longer, shorter, strict=True)]

    def measure(self) -> Round:
        batch = self._batch()
        shorter, longer, counts = self._compared(batch)
        before = self._last or self._task.first
        gated = before is not None and before.timing in ("gate", "gate+slope")
        samples: list[list[float]] = [[] for _ in range(self._actors)]
        ends_s: list[float] = []  # seconds until the last measured flow ends, for one operation of each
        once: list[float] = []
        overlaps: list[float] = []
        self._wake()
        while True:
            takes_s = self._sample_s(shorter, longer)
            more = self._samples_wanted(samples, counts, takes_s)
            settling = self._uncounted_samples()
            trace = self._run(settling + (more or 1), [shorter, longer], verify=more == 0)
            if self._longer > 2 and gated and trace.timing != "gate":
                # The batch does not fit behind the gate, and another clock would measure something else.
                self._longer = 2
                shorter, longer, counts = self._compared(batch)
                continue
            durations = trace.durations()
            for at in range(settling * 2 * self._actors, len(durations), 2 * self._actors):
                starts, ends = durations[at : at + self._actors], durations[at + self._actors : at + 2 * self._actors]
                overlaps.append(min(ends) / max(ends) if max(ends) > 0 else 1.0)
                ends_s.append(self._joint_time(starts, ends, counts))
                for actor in range(self._actors):
                    line = slope(starts[actor], ends[actor], shorter[actor], longer[actor])
                    samples[actor].append(self.rounded(line.each_s))
                    if actor == 0:
                        once.append(line.once_s)
            self._each = [max(median(of), 0.0) for of in samples]
            if more == 0 and self._ends_round(samples, counts, takes_s):
                record = self._record(batch, samples, once, median(overlaps))
                record.longer = self._longer
                if self._actors > 1 and self._task.point.bytes:
                    record.guards["together_s"] = self.rounded(median(ends_s))
                return record

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
        if self._waking:
            trace = self._run(1, [[self._waking] * self._actors], verify=False)
            if self._task.first is None:
                self._each = [each / self._waking for each in self._median_ends(trace, 0)]

    def _uncounted_samples(self) -> int:
        """Returns the number of samples of the next request that do not count."""
        if not self._drops_first:
            return 0
        nothing_known = self._last is None and self._task.first is None
        longest = self._once_s if nothing_known and self._once_s > 0 else max(self._each)
        return SETTLING if longest < EXPENSIVE_S else 0

    @staticmethod
    def rounded(seconds: float) -> float:
        """Rounds to nine digits: finer than any clock tick, and half as long in a file."""
        return float(f"{seconds:.9g}")

    def _batch(self) -> list[int]:
        if self._single:
            return [1] * self._actors
        if self._task.first:
            return self._task.first.batch
        batch = self._calibrate()
        self._longer = self._choose_longer(batch)
        return batch

    def _longer_of_first_round(self) -> int:
        """Returns the ratio of the first round. Older run files lack it: they used 2, or 1 for long operations."""
        if self._task.first and self._task.first.longer:
            return self._task.first.longer
        return 1 if self._task.first and min(self._first_each) >= ALONE_S else 2

    def _choose_longer(self, batch: list[int]) -> int:
        """Returns the ratio of the longer batch of a sample to the shorter one. 1: the shorter batch is empty."""
        size = self._task.point.bytes
        if min(self._each) >= ALONE_S:  # the first of such long operations costs the same as any other
            return 1
        if self._max_iterations or not size or (self._is_timed_by_host() and not self._is_cpu):
            return 2
        joint = self._actors > 1 and size >= LARGE_BYTES
        wanted = HUGE_LONGER_S if joint or size >= HUGE_BYTES else LARGE_LONGER_S if size >= LARGE_BYTES else LONGER_S
        fitting = min(math.ceil(wanted / max(self._ends(batch))), MOST_LONGER, self._most_queued // sum(batch))
        return max(fitting, 2)

    def _record(self, batch: list[int], samples: list[list[float]], once: list[float], overlap: float) -> Round:
        trace = self._last
        assert trace is not None
        if trace.verdict is not None and not trace.verdict.ok:
            raise WrongData(f"{trace.verdict.wrong_bytes} bytes are wrong, the first: {trace.verdict.first_wrong}")
        guards: dict[str, Any] = dict(trace.notes)
        if "throttled" in guards:  # a model gives NVML's reasons as one text
            guards["throttled"] = guards["throttled"].split(", ")
        if self._actors > 1:
            guards["joint_overlap"] = round(overlap, 4)
        if self._nonlinear:
            guards["nonlinear"] = self._nonlinear
        if trace.spent:
            guards["spent"] = {name: float(f"{seconds:.3g}") for name, seconds in trace.spent.items()}
        return Round(
            id=str(self._task.point),
            round=self._task.round,
            flows=[_flow(facts, samples[facts.actor]) for facts in self._flows],
            batch=batch,
            overhead_s=self.rounded(median(once)),
            timing=_timing(trace.timing),
            verified=None if trace.verdict is None else True,
            guards=guards,
            device_s=self.rounded(self._busy_s),
        )

    def _sample_s(self, shorter: list[int], longer: list[int]) -> float:
        """Returns the seconds that the two batches of a sample take; 0: unknown."""
        if self._task.first is None and self._last is None:
            return 0.0
        return max((less + more) * each for less, more, each in zip(shorter, longer, self._each, strict=True))

    def _samples_wanted(self, samples: list[list[float]], counts: list[int], takes_s: float) -> int:
        """Returns the number of samples to take before the last, verified sample of a round. 0: only the last one."""
        taken, longest = len(samples[0]), max(self._each)
        if self._is_repeatable():  # one sample in a round, two in the first round
            return 0 if self._task.first or taken else 1
        if self._first_round_predicts():
            # Repeatable operations need few samples if this process behaves like the first one.
            if taken < 2 and self._one_sample_suffices:
                return 0
            if taken == 0:
                return 1
            if taken == 1 and self._matches_first_round(samples):
                return 0
        expensive = takes_s >= EXPENSIVE_S
        if taken == 0:
            if self._task.point.idle_gap_s >= LONG_S:
                return 2
            return (
                1 if expensive else self._batch_of_samples() if self._uncounted_samples() else 6 if self._single else 3
            )
        if taken == 1 and expensive:
            return 0
        little = self._is_cheap_so_far()
        most = MANY_SAMPLES if little else MOST_SAMPLES
        if longest >= VERY_LONG_S or taken + 1 >= most or self._busy_s >= MOST_BUSY_S or self._is_over_time():
            return 0
        # durations are positive: a value of zero or less shows a delayed batch
        disturbed = any(median(of) <= 0 for of in samples)
        if not disturbed and self._steady(samples, counts, takes_s):
            return 0
        out_of_reach = not self._steady(samples, counts, takes_s, OUT_OF_REACH * math.sqrt(MOST_SAMPLES / taken))
        if taken > 1 and not little and out_of_reach and not disturbed:
            return 0  # more samples cannot make the median steady; another round is worth more
        few = self._batch_of_samples() if self._uncounted_samples() else 2
        at_once = few if taken + 1 < MOST_SAMPLES else max(few, taken)
        return min(1 if expensive else at_once, most - 1 - taken)

    def _batch_of_samples(self) -> int:
        """Returns the number of samples after the uncounted ones."""
        return MOVING_SAMPLES if self._pages_move else 6

    def _steady(self, samples: list[list[float]], counts: list[int], takes_s: float, nearly: float = 1.0) -> bool:
        """Returns whether all medians are precise enough for a round; `nearly` scales the tolerance."""
        # Half of the spread between rounds is enough: the rest of the error comes from the rounds.
        enough = max(precision_target(self._plan, self._task.point), 2 * self._task.spread)
        enough *= nearly * (EXPENSIVE if takes_s >= EXPENSIVE_S else 1)
        return all(steady(of, enough, nearly * self._tick / min(counts)) for of in samples)

    def _first_round_predicts(self) -> bool:
        """Returns whether the first round predicts this round. For large copies, that of another path does too."""
        # A point's own first round must have steady samples; otherwise every later round would need more.
        steady_before = self._task.round > 0 and self._first_round_steady
        large = self._task.point.bytes >= HUGE_BYTES
        return self._task.first is not None and (large or steady_before) and not self._is_timed_by_host()

    def _can_one_sample_suffice(self) -> bool:
        """Returns whether the first sample of the round may be its last: expensive samples that match the first round.

        All such samples are verified, since any may be the last.
        """
        first = self._task.first
        if first is None or self._task.round == 0 or self._is_repeatable() or not self._first_round_predicts():
            return False
        shorter, longer, _ = self._compared(first.batch)
        return self._sample_s(shorter, longer) >= EXPENSIVE_S

    def _ends_round(self, samples: list[list[float]], counts: list[int], takes_s: float) -> bool:
        """Returns whether a verified sample, expected to take `takes_s`, ends the round.

        Most samples do. Two expensive samples do not: a first sample that differs from the first round, and a second
        sample that disagrees with the first. If no earlier round exists, the samples must be steady as well.
        """
        if len(samples[0]) > 2 or self._is_repeatable() or not (self._one_sample_suffices or takes_s >= EXPENSIVE_S):
            return True
        if len(samples[0]) == 1:
            return self._one_sample_suffices and self._first_round_predicts() and self._matches_first_round(samples)
        if max(self._each) >= VERY_LONG_S:
            return True
        disturbed = any(median(of) <= 0 for of in samples)
        nearly = 1.0 if self._one_sample_suffices else 1 / EXPENSIVE
        return not disturbed and self._steady(samples, counts, takes_s, nearly)

    def _is_repeatable(self) -> bool:
        """Returns whether engines and links repeat copies of this size within 0.1 %."""
        return self._task.point.bytes >= EVEN_BYTES and not self._is_timed_by_host()

    def _matches_first_round(self, samples: list[list[float]]) -> bool:
        """Returns whether every actor matches the first round within half of the target, or within the spread
        between rounds."""
        near = max(precision_target(self._plan, self._task.point) / 2, USUAL * self._task.spread)
        return all(abs(of[-1] - was) <= near * was for of, was in zip(samples, self._first_each, strict=True))

    def _is_over_time(self) -> bool:
        """Returns whether the round took too long in real time. Virtual time does not count."""
        return not self._modelled() and time.monotonic() - self._since >= MOST_WALL_S

    def _is_cheap_so_far(self) -> bool:
        """Returns whether more samples would be cheap, in real time or virtual time."""
        return (self._busy_s if self._modelled() else time.monotonic() - self._since) < LITTLE_S

    def _modelled(self) -> bool:
        return self._last is not None and self._last.timing == "virtual"

    def _is_timed_by_host(self) -> bool:
        before = self._last or self._task.first  # a later round has no earlier samples
        return before is not None and before.timing == "host"

    def _calibrate(self) -> list[int]:
        """Returns the operations of each actor in a batch: long enough for the clock, and with a common end."""
        if self._max_iterations and self._task.point.bytes:  # a small batch ends before the start-up effects do
            return [self._max_iterations // 2] * self._actors
        one = [1] * self._actors
        even = self._is_repeatable()
        if even and self._once_s > 0:  # the first copy of this size costs the same as the others
            self._each = [self._once_s] * self._actors
        else:
            self._each = self._median_ends(self._run(1, [one], verify=False), 0)
        few = 1
        if max(self._each) < LONG_S and not even:
            few = 4 if max(self._each) < LONG_S / 10 else 1
            few = min(few, max(self._max_iterations // 2, 1)) if self._max_iterations else few
            self._measure_each([few] * self._actors, 1)
        if self._task.point.bytes == 0:
            # All actors have the same number, since they may wait for each other.
            most = min(MOST_STEPS, self._max_iterations // 2) if self._max_iterations else MOST_STEPS
            longest = max(*self._each, self._tick)
            steps = max(math.ceil(CHASE_S / longest), min(MOST_COUNT, math.ceil(LONG_S / longest)))
            return [min(steps, most)] * self._actors
        if self._actors > 1:
            return self._double_until_linear(self._balance_ends())
        batch = balanced(self._each, self._min_batch_s(), self._most_count)
        while self._is_timed_by_host() and batch[0] > MUCH_MORE * few:
            # Asynchronous calls look cheap until the queue is full. On a busy host, a delayed start may look almost
            # free. The batch therefore grows in steps.
            few = min(batch[0], MOST_MORE * few)
            self._measure_each([few], 1)
            batch = balanced(self._each, self._min_batch_s(), self._most_count)
        return self._double_until_linear(batch)

    def _balance_ends(self) -> list[int]:
        """Returns a batch in which all flows end at nearly the same time; equal counts if these do.

        Equal counts are tried first, so equal flows have the same batch in every run. Flows that never end together
        also keep equal counts: if the driver serves flows one after another, balancing by slopes would diverge.
        """
        least = self._min_batch_s()
        even = self._task.point.bytes >= EVEN_BYTES  # small differences would need long batches
        batch = equal = [min(math.ceil(least / max(self._each)), self._most_count // self._actors)] * self._actors
        tried: dict[tuple[int, ...], float] = {}
        rates: list[float] = []
        while tuple(batch) not in tried and len(tried) < MOST_TRIES:
            trace = self._measure_each(batch, 1 if 3 * max(self._ends(batch)) > (2 * LONG_S if even else LONG_S) else 3)
            short, long = (self._median_ends(trace, at) for at in (0, 1))
            # A flow that waits for another one ends with it, but its time does not grow with its own batch.
            straight = min(min(2 * one, two) / max(2 * one, two) for one, two in zip(short, long, strict=True))
            # Copies per second: an engine that serves flows in turn reaches the same rate with any batch.
            rates.append(2 * sum(batch) / max(long))
            at_once = not is_served_in_turn(batch, rates[-1] / rates[0])
            tried[tuple(batch)] = min(long) / max(long) * straight * at_once
            if tried[tuple(batch)] >= (NEARLY_TOGETHER if even and batch == equal else TOGETHER):
                return batch
            if min(long) < NEARLY_TOGETHER * max(long) and len(rates) == 2 and rates[1] <= _SAME_RATE * rates[0]:
                break
            # Slopes correct the first batches. For a batch that is nearly right, the ends are better: the flow that
            # ends last runs alone at the end, and faster. If an engine serves flows in turn, the ends show the order
            # and not the speed.
            nearly = tried[tuple(batch)] >= NEARLY_TOGETHER
            each = [end / count for end, count in zip(long, batch, strict=True)] if nearly else self._each
            batch = balanced(each, least, self._most_count)
        best = max(tried, key=lambda counts: tried[counts])
        return list(best) if tried[best] >= NEARLY_TOGETHER else equal

    def _median_ends(self, trace: Trace, batch: int) -> list[float]:
        """Returns the median seconds of each actor's batch."""
        samples = range(trace.samples)
        return [median([trace.seconds(sample, batch, actor) for sample in samples]) for actor in range(self._actors)]

    def _double_until_linear(self, batch: list[int]) -> list[int]:
        """Doubles the batch until its slope matches the slope of its double. Notes a slope that never matches.

        The batch must also reach a minimum duration. Waking a link (0.2 ms on H200) makes the first timed operation
        look long, and the batch would then be too short for later wake-ups.
        """
        if self._task.point.bytes >= EVEN_BYTES:
            return batch
        while 4 * sum(batch) <= self._most_queued and 7 * max(self._ends(batch)) <= STRAIGHT_S:
            batches = [[factor * count for count in batch] for factor in (1, 2, 4)]
            timing = self._last.timing if self._last else ""
            trace = self._run(3, batches, verify=False)
            if trace.timing != timing:
                return batch  # the batch and its double may still fit behind the gate
            short, long = (self._all_slopes(trace, at, batches) for at in (0, 1))
            nonlinear = [a for a in range(self._actors) if not self._slopes_agree(short[a], long[a], min(batch))]
            self._each = [max(median(of), self._tick / 8 / count) for of, count in zip(long, batch, strict=True)]
            self._nonlinear = ""
            if nonlinear:
                before, after, count = median(short[nonlinear[0]]), median(long[nonlinear[0]]), batch[nonlinear[0]]
                self._nonlinear = (
                    f"{before:.3g} s an operation from a batch of {count} to {2 * count}, then {after:.3g} s"
                )
            elif max(self._ends(batch)) >= LEAST_PART * self._min_batch_s():
                return batch
            batch = batches[1]
        return batch

    def _slopes_agree(self, short: list[float], long: list[float], count: int) -> bool:
        noise = 3 * (median_error(short) + median_error(long)) + 2 * self._tick / count
        return abs(median(long) - median(short)) <= STRAIGHT * median(short) + noise

    def _all_slopes(self, trace: Trace, at: int, batches: list[list[int]]) -> list[list[float]]:
        """Returns the seconds per operation for every actor and sample, between batch `at` and the next one."""
        more = [batches[at + 1][actor] - batches[at][actor] for actor in range(self._actors)]
        return [
            [
                (trace.seconds(sample, at + 1, actor) - trace.seconds(sample, at, actor)) / more[actor]
                for sample in range(trace.samples)
            ]
            for actor in range(self._actors)
        ]

    def _ends(self, batch: list[int]) -> list[float]:
        return [count * each for count, each in zip(batch, self._each, strict=True)]

    def _min_batch_s(self) -> float:
        """Returns the minimum duration of a batch, from the known cost of an operation."""
        solo, joint = LEAST_BATCH_S, SMALL_JOINT_BATCH_S
        if self._task.point.bytes >= LARGE_BYTES:
            solo, joint = HUGE_BATCH_S if self._task.point.bytes >= HUGE_BYTES else LARGE_BATCH_S, JOINT_BATCH_S
        if self._task.point.bytes >= EVEN_BYTES:  # one copy is long enough for a batch
            solo = joint = EVEN_BATCH_S
        longest = max(self._each)
        enough = min(LEAST_COUNT * longest, LEAST_COUNT_S)
        if self._actors > 1 and self._task.point.bytes < EVEN_BYTES:
            # The shares of concurrent flows even out over a few operations, or within one large operation.
            joint = max(joint, min(JOINT_COUNT * longest, JOINT_MOST_S))
        return max(joint if self._actors > 1 else solo, enough)

    def _measure_each(self, batch: list[int], samples: int) -> Trace:
        """Runs a batch and its double, and records the cost of an operation of every actor."""
        batches = [batch, [2 * count for count in batch]]
        trace = self._run(samples, batches, verify=False)
        slopes = self._all_slopes(trace, 0, batches)
        self._each = [max(median(of), self._tick / 8 / count) for of, count in zip(slopes, batch, strict=True)]
        return trace

    def _run(self, samples: int, batches: list[list[int]], *, verify: bool) -> Trace:
        longest = max(sum(batch[actor] for batch in batches) * self._each[actor] for actor in range(self._actors))
        checking = 4 * self._task.point.bytes * 512 / _SLOWEST_RATE if verify else 0.0
        limit = REQUEST_LIMIT_S + 20 * (samples * longest + min(checking, 2.0))
        trace = self._worker.run(samples, batches, verify=verify, limit_s=limit)
        if (trace.actors, trace.samples, trace.batches) != (self._actors, samples, len(batches)):
            raise RequestFailed("failed", "the worker answered with other samples than requested")
        self._tick = HOST_TICK_S if trace.timing == "host" else EVENT_TICK_S
        self._busy_s += trace.span()
        self._last = trace
        return trace


def _initial_each(task: Task, flows: list[FlowFacts], actors: int) -> list[float]:
    """Returns the seconds per operation of each actor before this round's first sample: those of the first round,
    otherwise slower than any memory."""
    if task.first is None:
        return [task.point.bytes / _SLOWEST_RATE] * actors
    guess = [0.0] * actors
    for facts, flow in zip(flows, task.first.flows, strict=True):
        guess[facts.actor] = max(guess[facts.actor], median(flow.samples_s))
    return guess


def _flow(facts: FlowFacts, samples: list[float]) -> RoundFlow:
    return RoundFlow(
        src=facts.src, dst=facts.dst, src_memory=facts.src_memory, dst_memory=facts.dst_memory,
        bytes=facts.bytes, role=facts.role, samples_s=samples,
    )  # fmt: skip


def _timing(name: str) -> Timing:
    """Returns the run file's name for the worker's timing. Behind the gate, a value is a difference of two batches."""
    names: dict[str, Timing] = {
        "gate": "gate+slope", "events": "events", "host": "host", "kernel_clock": "kernel_clock", "virtual": "virtual",
    }  # fmt: skip
    if name not in names:
        raise RequestFailed("failed", f"the worker timed by '{name}', which this version does not know")
    return names[name]
