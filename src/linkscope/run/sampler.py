"""One point in one round: calibrate the batch, sample until the median is steady, verify.

The cost of one operation in a batch of L is the slope between that batch and one m times as long, (T(mL) - T(L)) /
((m - 1) L); one operation alone is T(1) - T(0).
"""

import math
import time
from dataclasses import dataclass
from typing import Any

from linkscope.plan import Plan, case_of, once_only, pages_move, precision_target
from linkscope.plan.facts import MachineFacts
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.balance import MOST_COUNT, balanced, takes_turns
from linkscope.run.settling import MOVING_SAMPLES, SETTLING, settles, waking
from linkscope.run.worker import REQUEST_LIMIT_S, RequestFailed, RunRequest, Worker
from linkscope.runfile import PointId, Round, RoundFlow
from linkscope.runfile.schema import Timing
from linkscope.stats import median, median_error, slope, steady

EVENT_TICK_S = 32e-9  # steps of GPU event stamps, on H200
HOST_TICK_S = 100e-9
LEAST_BATCH_S = 50e-6
# The first copies of a batch may cost less than those that follow (H200, device to host, up to 64 KiB: the first 60 by
# a fifth, docs/notes/single-copies.md), and the cost in a batch is that of those that follow.
LEAST_COUNT, LEAST_COUNT_S = 64, 0.3e-3
LEAST_PART = 0.5  # of that, as it turns out: a batch that lasts less is doubled
STRAIGHT, STRAIGHT_S = 0.05, 20e-3  # slopes of a batch and its double that are alike; checked where it costs so little
# How long a batch takes is uncertain by some microseconds, and less than in proportion by more for longer ones (H200,
# copies between GPUs: 2.5 us of 0.2 ms, 5 us of 1.5 ms; docs/method/planner.md). So the slope is told best by one batch as
# short as what is different about its beginning allows, and one as long as there is time for.
LARGE_BYTES, LARGE_BATCH_S, JOINT_BATCH_S = 1 << 20, 0.3e-3, 1e-3  # joint and large
HUGE_BYTES, HUGE_BATCH_S = 16 << 20, 0.5e-3
SMALL_JOINT_BATCH_S = 200e-6
LONGER_S, LARGE_LONGER_S, HUGE_LONGER_S = 0.6e-3, 2.5e-3, 4e-3  # how long the longer one is to last
MOST_LONGER = 8
JOINT_COUNT = 4
TOGETHER, NEARLY_TOGETHER, MOST_TRIES = 0.96, 0.85, 4  # the shortest flow's time over the longest's
MOST_BUSY_S = 0.08  # of sampling in one point-round: what is not steady by then is told by its interval
MOST_WALL_S = 0.2  # the same with all that is not timed: memory made again before each sample, data compared
JOINT_MOST_S, EVEN_BYTES, EVEN_BATCH_S = 20e-3, 256 << 20, 1e-3
MUCH_MORE, MOST_MORE = 4, 16  # times as many operations as were tried: these are tried, too; more not at once
MOST_QUEUED = 512
# Of one call that makes all copies: each costs so little. More only as far as it shows that they go behind the gate.
MOST_TOGETHER, MOST_QUEUED_TOGETHER = 1024, 16384
MOST_LOOPED = 8192  # of a CPU thread, which does them one after the other: only its memory ends
# Steps of a chase are one launch, however many: long enough that a link which wakes up (H200: 58 us) is a few per cent.
CHASE_S, MOST_STEPS = 1e-3, 4096
MOST_SAMPLES, OUT_OF_REACH = 7, 3.0
# Samples cost little where all of a point-round does: as many as make the round's median steady, for so long. Copies of
# 1 MiB alone within a GPU differ by 6 % to 9 % (H200, 2.9 us): the median of 31 is off by 1.5 %, of 127 by 0.8 %.
MANY_SAMPLES, LITTLE_S = 127, 10e-3
# Of samples that cost a seventh of what a point-round costs besides, four are a third of it all: an oracle that takes
# one is cheaper by half then (docs/method/planner.md). Where three rounds agree, twice the error of each does not show; where
# they do not, another round tells more.
ROUND_S = 7e-3  # H200, from 1 MiB on
DEAR_S, DEAR = ROUND_S / 7, 2.0
USUAL = 2.0  # deviations of the rounds so far
ALONE_S = 8e-3  # what a first operation costs more, some 15 us, is a fifth of a per cent of this
LONG_S, VERY_LONG_S = 10e-3, 100e-3  # operations, or idle gaps, that are batched no more; that are sampled twice
_SLOWEST_RATE = 1e9  # bytes a second: how slow a memory is still given time to answer
_SAME_PACE = 1.05


class Unsupported(Exception):
    """The platform says that it cannot run this, and why."""


class WrongData(Exception):
    """The destination does not hold what the source held."""


@dataclass(frozen=True)
class Task:
    """What to measure: a point, the number of its round, and its first round, whose batch is used again.

    `spread`: by what its rounds so far differ, as a fraction; 0: not known.
    """

    point: PointId
    round: int
    first: Round | None = None
    spread: float = 0.0


class Sampler:
    """Measures points on one worker, by linkscope's own rule. `plan` gives the precision, `machine` the caches."""

    def __init__(self, worker: Worker, plan: Plan, machine: MachineFacts) -> None:
        self._worker = worker
        self._plan = plan
        self._machine = machine

    def measure(self, task: Task) -> Round:
        """Raises Unsupported, WrongData, RequestFailed, or what the worker raises."""
        case = self._case(task)
        limit = REQUEST_LIMIT_S + 20 * 4 * case["footprint_bytes"] / _SLOWEST_RATE
        prepared = self._worker.prepare(case, f"{task.point}#{task.round}", limit, self._opening(task))
        if not prepared.supported:
            raise Unsupported(prepared.reason)
        return self._round_of(task, prepared).measure()

    def _case(self, task: Task) -> dict[str, Any]:
        return case_of(task.point, self._machine)

    def _opening(self, task: Task) -> RunRequest | None:
        """What a later round begins with: it has the batch of the first, and so is known before it is prepared."""
        if task.first is None or pages_move(task.point) or once_only(task.point):
            return None
        if max(task.first.batch) == 1 and task.point.param("mode") != "single":
            return None  # whether two fit into a sample is known when it is prepared
        actors, flows = len(task.first.batch), task.first.flows
        facts = [
            FlowFacts(at * actors // len(flows), of.src, of.dst, of.src_memory, of.dst_memory, of.bytes, of.role)
            for at, of in enumerate(flows)
        ]
        return self._round_of(task, Prepared(supported=True, actors=actors, flows=facts)).opening()

    def _round_of(self, task: Task, prepared: Prepared) -> "PointRound":
        return PointRound(self._worker, self._plan, task, prepared)


class PointRound:
    """The state of one point-round while it is measured."""

    def __init__(self, worker: Worker, plan: Plan, task: Task, prepared: Prepared) -> None:
        self._worker = worker
        self._plan = plan
        self._task = task
        self._flows = prepared.flows
        self._actors = prepared.actors
        self._once_s = prepared.once_s
        self._most = prepared.most_iterations
        self._single = task.point.param("mode") == "single" or self._most == 1
        self._before = _first_guess(task, prepared.flows, prepared.actors)  # seconds an operation
        self._steady_before = task.first is not None and all(
            steady(flow.samples_s, precision_target(plan, task.point))
            # Two are all where they are dear, and had to agree. Behind a pause there are two whatever they say.
            and (len(flow.samples_s) > 2 or not task.point.idle_gap_s)
            for flow in task.first.flows
        )
        self._each = self._before  # what is known by now
        self._busy_s = 0.0
        self._since = time.monotonic()
        self._looped = task.point.engine == "cpu"
        self._moves = pages_move(task.point)
        self._settles = self._single and settles(task.point)
        self._waking = waking(task.point) if self._settles else 0
        one_call = task.point.engine == "batch"
        self._most_count = MOST_LOOPED if self._looped else MOST_TOGETHER if one_call else MOST_COUNT
        self._most_queued = MOST_QUEUED_TOGETHER if one_call else MOST_QUEUED
        if self._looped:
            self._most_queued = MOST_LONGER * MOST_LOOPED
        if self._looped and prepared.slices > 1:  # met again, the first ones would be in the thread's caches
            self._most_queued = prepared.slices
            self._most_count = min(MOST_LOOPED, max(prepared.slices // 2, 1))
        self._longer = 1 if self._single else self._longer_before()
        self._tick = EVENT_TICK_S
        self._last: Trace | None = None
        self._bent = ""  # how the cost of an operation changes with the batch, where it does
        self._alone = self._may_be_alone()

    def opening(self) -> RunRequest:
        """What measure() asks for first."""
        if self._waking:
            return RunRequest(1, [[self._waking] * self._actors], verify=False)
        shorter, longer, counts = self._compared(self._batch())
        more = self._samples_wanted([[]], counts, self._takes(shorter, longer))
        return RunRequest(self._settling() + (more or 1), [shorter, longer], more == 0)

    def _compared(self, batch: list[int]) -> tuple[list[int], list[int], list[int]]:
        """The two batches that are compared, and by how many operations they differ."""
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
            takes_s = self._takes(shorter, longer)
            more = self._samples_wanted(samples, counts, takes_s)
            settling = self._settling()
            trace = self._run(settling + (more or 1), [shorter, longer], verify=more == 0)
            if self._longer > 2 and gated and trace.timing != "gate":
                # So many do not fit behind the gate: another clock would be another quantity.
                self._longer = 2
                shorter, longer, counts = self._compared(batch)
                continue
            durations = trace.durations()
            for at in range(settling * 2 * self._actors, len(durations), 2 * self._actors):
                starts, ends = durations[at : at + self._actors], durations[at + self._actors : at + 2 * self._actors]
                overlaps.append(min(ends) / max(ends) if max(ends) > 0 else 1.0)
                ends_s.append(self._until_the_last(starts, ends, counts))
                for actor in range(self._actors):
                    line = slope(starts[actor], ends[actor], shorter[actor], longer[actor])
                    samples[actor].append(self.rounded(line.each_s))
                    if actor == 0:
                        once.append(line.once_s)
            self._each = [max(median(of), 0.0) for of in samples]
            if more == 0 and self._told(samples, counts, takes_s):
                record = self._record(batch, samples, once, median(overlaps))
                record.longer = self._longer
                if self._actors > 1 and self._task.point.bytes:
                    record.guards["together_s"] = self.rounded(median(ends_s))
                return record

    def _until_the_last(self, starts: list[float], ends: list[float], counts: list[int]) -> float:
        """By how much later the last measured flow ends in the longer batch than in the shorter one, scaled.

        The scale makes all bytes of one operation of each flow, divided by this time, the joint rate, also where the
        flows do different numbers of operations (`counts`). Start-up costs are in both batches and cancel.
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

    def _settling(self) -> int:
        """How many samples of the next request are not counted."""
        if not self._settles:
            return 0
        nothing_known = self._last is None and self._task.first is None
        longest = self._once_s if nothing_known and self._once_s > 0 else max(self._each)
        return SETTLING if longest < DEAR_S else 0

    @staticmethod
    def rounded(seconds: float) -> float:
        """Nine digits: far below any clock's tick, and half the length in a file."""
        return float(f"{seconds:.9g}")

    def _batch(self) -> list[int]:
        if self._single:
            return [1] * self._actors
        if self._task.first:
            return self._task.first.batch
        batch = self._calibrate()
        self._longer = self._longer_than(batch)
        return batch

    def _longer_before(self) -> int:
        """That of the first round. Where it does not say, 2, or 1 for what lasts long, as versions before had it."""
        if self._task.first and self._task.first.longer:
            return self._task.first.longer
        return 1 if self._task.first and min(self._before) >= ALONE_S else 2

    def _longer_than(self, batch: list[int]) -> int:
        """How many times as long as this the other batch of a sample is; 1: it is compared with no operation."""
        size = self._task.point.bytes
        if min(self._each) >= ALONE_S:  # of what lasts so long the first is like any other
            return 1
        if self._most or not size or (self._by_host() and not self._looped):
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
        if "throttled" in guards:  # a model says itself what NVML says of a GPU
            guards["throttled"] = guards["throttled"].split(", ")
        if self._actors > 1:
            guards["joint_overlap"] = round(overlap, 4)
        if self._bent:
            guards["nonlinear"] = self._bent
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

    def _takes(self, shorter: list[int], longer: list[int]) -> float:
        """Seconds that the two batches of a sample take; 0: nothing is known of an operation yet."""
        if self._task.first is None and self._last is None:
            return 0.0
        return max((less + more) * each for less, more, each in zip(shorter, longer, self._each, strict=True))

    def _samples_wanted(self, samples: list[list[float]], counts: list[int], takes_s: float) -> int:
        """How many samples to take next, besides the last one of a round, which is verified; 0: only that one."""
        taken, longest = len(samples[0]), max(self._each)
        if self._even():  # one a round, two while nothing is known
            return 0 if self._task.first or taken else 1
        if self._repeats():
            # Nor does what repeats need many samples in a process that does as the first did.
            if taken < 2 and self._alone:
                return 0
            if taken == 0:
                return 1
            if taken == 1 and self._as_before(samples):
                return 0
        dear = takes_s >= DEAR_S
        if taken == 0:
            if self._task.point.idle_gap_s >= LONG_S:
                return 2
            return 1 if dear else self._at_once() if self._settling() else 6 if self._single else 3
        if taken == 1 and dear:
            return 0
        little = self._took_little()
        most = MANY_SAMPLES if little else MOST_SAMPLES
        if longest >= VERY_LONG_S or taken + 1 >= most or self._busy_s >= MOST_BUSY_S or self._too_long():
            return 0
        disturbed = any(median(of) <= 0 for of in samples)  # nothing takes no time: batches were held up
        if not disturbed and self._steady(samples, counts, takes_s):
            return 0
        hopeless = not self._steady(samples, counts, takes_s, OUT_OF_REACH * math.sqrt(MOST_SAMPLES / taken))
        if taken > 1 and not little and hopeless and not disturbed:
            return 0  # as many as there may be would not make it steady: another round tells more for that time
        few = self._at_once() if self._settling() else 2
        at_once = few if taken + 1 < MOST_SAMPLES else max(few, taken)
        return min(1 if dear else at_once, most - 1 - taken)

    def _at_once(self) -> int:
        """How many samples to take after those that are not counted."""
        return MOVING_SAMPLES if self._moves else 6

    def _steady(self, samples: list[list[float]], counts: list[int], takes_s: float, nearly: float = 1.0) -> bool:
        """Whether all medians are known as well as a round needs them, or so many times worse."""
        # Half of what rounds differ by is enough: the rest of a round's error is theirs.
        enough = max(precision_target(self._plan, self._task.point), 2 * self._task.spread)
        enough *= nearly * (DEAR if takes_s >= DEAR_S else 1)
        return all(steady(of, enough, nearly * self._tick / min(counts)) for of in samples)

    def _repeats(self) -> bool:
        """Whether the first round, or for large copies that of another path too, says what this one will be like."""
        # How steady its samples are a point's own first round has to show: else all that follow would need more.
        steady_before = self._task.round > 0 and self._steady_before
        large = self._task.point.bytes >= HUGE_BYTES
        return self._task.first is not None and (large or steady_before) and not self._by_host()

    def _may_be_alone(self) -> bool:
        """Whether the first sample of this round may be its last: where it is dear, and like those of the first round.

        Such samples are each verified, as any may be the last.
        """
        first = self._task.first
        if first is None or self._task.round == 0 or self._even() or not self._repeats():
            return False
        shorter, longer, _ = self._compared(first.batch)
        return self._takes(shorter, longer) >= DEAR_S

    def _told(self, samples: list[list[float]], counts: list[int], takes_s: float) -> bool:
        """Whether a sample that was verified, and expected to take `takes_s`, is the last. All are, but for the first
        two where samples are dear: the first where it is not as before, the second where that does not agree with it;
        in a round of which nothing is known as well as the samples of a whole round have to."""
        if len(samples[0]) > 2 or self._even() or not (self._alone or takes_s >= DEAR_S):
            return True
        if len(samples[0]) == 1:
            return self._alone and self._repeats() and self._as_before(samples)
        if max(self._each) >= VERY_LONG_S:
            return True
        disturbed = any(median(of) <= 0 for of in samples)
        nearly = 1.0 if self._alone else 1 / DEAR
        return not disturbed and self._steady(samples, counts, takes_s, nearly)

    def _even(self) -> bool:
        """Whether engines and links repeat a copy as large as this to a thousandth."""
        return self._task.point.bytes >= EVEN_BYTES and not self._by_host()

    def _as_before(self, samples: list[list[float]]) -> bool:
        """Whether every actor took as long as in the first round, by half the precision that is asked for, or by what
        rounds do differ by: that says nothing against a sample."""
        near = max(precision_target(self._plan, self._task.point) / 2, USUAL * self._task.spread)
        return all(abs(of[-1] - was) <= near * was for of, was in zip(samples, self._before, strict=True))

    def _too_long(self) -> bool:
        """Whether this has taken more of the machine's time than a point-round should. A model's time is not that."""
        return not self._modelled() and time.monotonic() - self._since >= MOST_WALL_S

    def _took_little(self) -> bool:
        """Whether more samples cost next to nothing, of the machine's time or of the model's."""
        return (self._busy_s if self._modelled() else time.monotonic() - self._since) < LITTLE_S

    def _modelled(self) -> bool:
        return self._last is not None and self._last.timing == "virtual"

    def _by_host(self) -> bool:
        before = self._last or self._task.first  # a later round has run nothing before its first samples
        return before is not None and before.timing == "host"

    def _calibrate(self) -> list[int]:
        """How many operations each actor does in a batch: long enough for the clock, all actors ending together."""
        if self._most and self._task.point.bytes:  # few: what a sample begins with lasts for no more
            return [self._most // 2] * self._actors
        one = [1] * self._actors
        even = self._even()
        if even and self._once_s > 0:  # the first copy that large is like any other
            self._each = [self._once_s] * self._actors
        else:
            self._each = self._median_ends(self._run(1, [one], verify=False), 0)
        few = 1
        if max(self._each) < LONG_S and not even:
            few = 4 if max(self._each) < LONG_S / 10 else 1
            few = min(few, max(self._most // 2, 1)) if self._most else few
            self._measure_each([few] * self._actors, 1)
        if self._task.point.bytes == 0:
            # As many for all: they may wait for each other.
            most = min(MOST_STEPS, self._most // 2) if self._most else MOST_STEPS
            longest = max(*self._each, self._tick)
            steps = max(math.ceil(CHASE_S / longest), min(MOST_COUNT, math.ceil(LONG_S / longest)))
            return [min(steps, most)] * self._actors
        if self._actors > 1:
            return self._straightened(self._ending_together())
        batch = balanced(self._each, self._least_s(), self._most_count)
        while self._by_host() and batch[0] > MUCH_MORE * few:
            # Calls that return before their work is done look cheap until the queue is full; and on a busy host a first
            # time may be next to nothing by chance: as many operations as that asks for are not done at once.
            few = min(batch[0], MOST_MORE * few)
            self._measure_each([few], 1)
            batch = balanced(self._each, self._least_s(), self._most_count)
        return self._straightened(batch)

    def _ending_together(self) -> list[int]:
        """The batch with which all flows end at nearly the same time; equal counts where those do.

        Equal counts come first: flows alike then have the same batch in every run. They also remain where nothing
        ends together: where the driver serves one flow after the other, balancing by slopes would run away.
        """
        least = self._least_s()
        even = (
            self._task.point.bytes >= EVEN_BYTES
        )  # what differs little would need long batches to end closer together
        batch = equal = [min(math.ceil(least / max(self._each)), self._most_count // self._actors)] * self._actors
        tried: dict[tuple[int, ...], float] = {}
        paces: list[float] = []
        while tuple(batch) not in tried and len(tried) < MOST_TRIES:
            trace = self._measure_each(batch, 1 if 3 * max(self._ends(batch)) > (2 * LONG_S if even else LONG_S) else 3)
            short, long = (self._median_ends(trace, at) for at in (0, 1))
            # A flow that waits for the other ends with it, too, but then its time does not grow with its batch.
            straight = min(min(2 * one, two) / max(2 * one, two) for one, two in zip(short, long, strict=True))
            # Copies a second: one engine that serves all in turn does as many with any batch.
            paces.append(2 * sum(batch) / max(long))
            at_once = not takes_turns(batch, paces[-1] / paces[0])
            tried[tuple(batch)] = min(long) / max(long) * straight * at_once
            if tried[tuple(batch)] >= (NEARLY_TOGETHER if even and batch == equal else TOGETHER):
                return batch
            if min(long) < NEARLY_TOGETHER * max(long) and len(paces) == 2 and paces[1] <= _SAME_PACE * paces[0]:
                break
            # First by the slopes. Once that is nearly right, by the ends: whoever ends last does its last part alone,
            # and faster. Not before: where one engine serves all, the ends tell the order and not the speed.
            nearly = tried[tuple(batch)] >= NEARLY_TOGETHER
            each = [end / count for end, count in zip(long, batch, strict=True)] if nearly else self._each
            batch = balanced(each, least, self._most_count)
        best = max(tried, key=lambda counts: tried[counts])
        return list(best) if tried[best] >= NEARLY_TOGETHER else equal

    def _median_ends(self, trace: Trace, batch: int) -> list[float]:
        """Seconds of every actor's batch."""
        samples = range(trace.samples)
        return [median([trace.seconds(sample, batch, actor) for sample in samples]) for actor in range(self._actors)]

    def _straightened(self, batch: list[int]) -> list[int]:
        """Doubles the batch until its slope is that of its double; tells where it never is.

        First until it lasts as long as a batch has to: what woke up while an operation was timed for the first time (a
        link of H200 takes 0.2 ms) makes it look long, and the batch is too short for what wakes up later.
        """
        if self._task.point.bytes >= EVEN_BYTES:
            return batch
        while 4 * sum(batch) <= self._most_queued and 7 * max(self._ends(batch)) <= STRAIGHT_S:
            batches = [[factor * count for count in batch] for factor in (1, 2, 4)]
            timing = self._last.timing if self._last else ""
            trace = self._run(3, batches, verify=False)
            if trace.timing != timing:
                return batch  # four times the batch does not fit behind the gate: the batch and its double may
            short, long = (self._all_slopes(trace, at, batches) for at in (0, 1))
            bent = [a for a in range(self._actors) if not self._alike(short[a], long[a], min(batch))]
            self._each = [max(median(of), self._tick / 8 / count) for of, count in zip(long, batch, strict=True)]
            self._bent = ""
            if bent:
                before, after, count = median(short[bent[0]]), median(long[bent[0]]), batch[bent[0]]
                self._bent = f"{before:.3g} s an operation from a batch of {count} to {2 * count}, then {after:.3g} s"
            elif max(self._ends(batch)) >= LEAST_PART * self._least_s():
                return batch
            batch = batches[1]
        return batch

    def _alike(self, short: list[float], long: list[float], count: int) -> bool:
        noise = 3 * (median_error(short) + median_error(long)) + 2 * self._tick / count
        return abs(median(long) - median(short)) <= STRAIGHT * median(short) + noise

    def _all_slopes(self, trace: Trace, at: int, batches: list[list[int]]) -> list[list[float]]:
        """Seconds an operation of every actor in every sample, between the batches `at` and the one after it."""
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

    def _least_s(self) -> float:
        """How long a batch is at least, by what is known of an operation."""
        alone, joint = LEAST_BATCH_S, SMALL_JOINT_BATCH_S
        if self._task.point.bytes >= LARGE_BYTES:
            alone, joint = HUGE_BATCH_S if self._task.point.bytes >= HUGE_BYTES else LARGE_BATCH_S, JOINT_BATCH_S
        if self._task.point.bytes >= EVEN_BYTES:  # one such copy is a batch's worth of bytes
            alone = joint = EVEN_BATCH_S
        longest = max(self._each)
        enough = min(LEAST_COUNT * longest, LEAST_COUNT_S)
        if self._actors > 1 and self._task.point.bytes < EVEN_BYTES:
            # Who gets how much of what is shared evens out over a few operations, or within one that is large.
            joint = max(joint, min(JOINT_COUNT * longest, JOINT_MOST_S))
        return max(joint if self._actors > 1 else alone, enough)

    def _measure_each(self, batch: list[int], samples: int) -> Trace:
        """Runs a batch and its double: what an operation of every actor takes is known from then on."""
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
            raise RequestFailed("failed", "the worker answered for other samples than it was asked for")
        self._tick = HOST_TICK_S if trace.timing == "host" else EVENT_TICK_S
        self._busy_s += trace.span()
        self._last = trace
        return trace


def _first_guess(task: Task, flows: list[FlowFacts], actors: int) -> list[float]:
    """Seconds an operation of each actor before this round measured any: as in the first round, else slower than any
    memory."""
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
    """The file's word for how the worker timed: behind the gate everything is a difference of two batches."""
    names: dict[str, Timing] = {
        "gate": "gate+slope", "events": "events", "host": "host", "kernel_clock": "kernel_clock", "virtual": "virtual",
    }  # fmt: skip
    if name not in names:
        raise RequestFailed("failed", f"the worker timed by '{name}', which this version does not know")
    return names[name]
