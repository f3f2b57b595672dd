"""Chooses the operations of a batch: long enough for the clock, linear, and with a common end of all flows."""

import math

from linkscope.run.balance import MOST_COUNT, balanced, is_served_in_turn
from linkscope.run.batches import Batches
from linkscope.run.recipes import LONG_S, MOST_LONGER, Recipe
from linkscope.stats import median, median_error

# The first copies of a batch may cost less than the following ones (H200, device to host, up to 64 KiB: the first 60
# copies cost a fifth less, docs/notes/single-copies.md). A batch measures the cost of the following ones.
LEAST_COUNT, LEAST_COUNT_S = 64, 0.3e-3
LEAST_PART = 0.5  # fraction of the minimum duration: a shorter batch is doubled
# Tolerance between the slopes of a batch and its double, and the longest time that such a comparison takes.
STRAIGHT, STRAIGHT_S = 0.05, 20e-3
TOGETHER, NEARLY_TOGETHER, MOST_TRIES = 0.96, 0.85, 4  # duration of the shortest flow over that of the longest
JOINT_MOST_S = 20e-3  # time over which the shares of several flows even out, at most
# Growth over the largest batch tried so far: above MUCH_MORE, a batch grows in steps of at most MOST_MORE.
MUCH_MORE, MOST_MORE = 4, 16
# A pointer chase is one launch with any number of steps. In CHASE_S, waking a link (H200: 58 us) costs a few per cent.
CHASE_S, MOST_STEPS = 1e-3, 4096
# Samples that choose a batch of ranks. If one rank pauses, all of them wait: a fifth of the samples of 8 ranks on a
# busy host were below zero (docs/notes/ranks-evidence.md#four-to-sixteen-ranks).
RANK_SAMPLES = 5
ALONE_S = 8e-3  # operations of this length need no batch: the extra cost of a first one, about 15 us, is 0.2 % of it
_SAME_RATE = 1.05


class Calibration:
    """Finds the batch of a point's first round. `once_s`: seconds of its first operation; 0: unknown.

    `nonlinear` describes how the cost of an operation depends on the batch; '' if it does not.
    """

    def __init__(self, batches: Batches, recipe: Recipe, once_s: float) -> None:
        self._batches = batches
        self._recipe = recipe
        self._once_s = once_s
        is_short = max(batches.each_s) < LONG_S  # by its bytes
        self._samples = RANK_SAMPLES if recipe.waits_for_ranks and is_short else 1
        self.nonlinear = ""

    def batch(self) -> list[int]:
        """Returns the operations of each actor."""
        actors, most = self._batches.actors, self._recipe.most_iterations
        if most and self._recipe.has_bytes:  # a small batch ends before the start-up effects do
            return [most // 2] * actors
        few = self._first_costs()
        if not self._recipe.has_bytes:
            return self._steps(few)
        if actors > 1:
            return self._double_until_linear(self._grow_in_step(few) if self._recipe.in_step else self._balance_ends())
        return self._double_until_linear(self._grow_by_host_clock(few))

    def ratio(self, batch: list[int]) -> int:
        """Returns the ratio of the longer batch of a sample to the shorter one. 1: the shorter batch is empty."""
        if min(self._batches.each_s) >= ALONE_S:  # the first of such long operations costs the same as any other
            return 1
        limits = self._recipe.limits
        is_asynchronous = self._batches.is_timed_by_host and not limits.by_host
        if self._recipe.most_iterations or not self._recipe.has_bytes or is_asynchronous:
            return 2
        wanted = math.ceil(self._recipe.size.longer_s / max(self._batches.ends_s(batch)))
        return max(min(wanted, MOST_LONGER, limits.queued // sum(batch)), 2)

    def _first_costs(self) -> int:
        """Measures the cost of an operation of every actor. Returns the operations of the batch that showed it."""
        batches, most = self._batches, self._recipe.most_iterations
        one = [1] * batches.actors
        repeats = self._recipe.size.repeats and not batches.is_timed_by_host
        if repeats and self._once_s > 0:  # the first copy of this size costs the same as the others
            batches.each_s = [self._once_s] * batches.actors
        else:
            batches.each_s = batches.shortest_s(batches.run(self._samples, [one], verify=False), 0)
        if max(batches.each_s) >= LONG_S or repeats:
            return 1
        few = 4 if max(batches.each_s) < LONG_S / 10 else 1
        few = min(few, max(most // 2, 1)) if most else few
        batches.run_shortest([few] * batches.actors, self._samples)
        return few

    def _steps(self, few: int) -> list[int]:
        """Returns the steps of latencies. All actors have the same number, since they may wait for each other.

        Ranks that share a core wait for their turns, which the first steps may not show: their number grows in steps.
        """
        most = min(MOST_STEPS, self._recipe.most_iterations // 2) if self._recipe.most_iterations else MOST_STEPS
        steps = self._steps_of(max(*self._batches.each_s, self._batches.tick_s), most)
        while self._recipe.waits_for_ranks and steps > MUCH_MORE * few:
            few = min(steps, MOST_MORE * few)
            self._batches.run_shortest([few] * self._batches.actors, self._samples)
            steps = self._steps_of(max(*self._batches.each_s, self._batches.tick_s), most)
        return [steps] * self._batches.actors

    @staticmethod
    def _steps_of(longest_s: float, most: int) -> int:
        """Returns the steps that take about the duration of a batch."""
        return min(max(math.ceil(CHASE_S / longest_s), min(MOST_COUNT, math.ceil(LONG_S / longest_s))), most)

    def _grow_by_host_clock(self, few: int) -> list[int]:
        """Returns the batch of one flow.

        Asynchronous calls look cheap until the queue is full. On a busy host, a delayed start may look almost free. By
        the host's clock, the batch therefore grows in steps.
        """
        batches, most = self._batches, self._recipe.limits.count
        batch = balanced(batches.each_s, self._least_s(), most)
        while self._batches.is_timed_by_host and batch[0] > MUCH_MORE * few:
            few = min(batch[0], MOST_MORE * few)
            batches.run_shortest([few], self._samples)
            batch = balanced(batches.each_s, self._least_s(), most)
        return batch

    def _least_s(self) -> float:
        """Returns the minimum duration of a batch, from the known cost of an operation."""
        size, longest = self._recipe.size, max(self._batches.each_s)
        shares_even_s = min(size.joint_count * longest, JOINT_MOST_S)
        on_hardware_s = 0.0 if self._batches.is_modelled else self._recipe.on_hardware_s
        return max(size.batch_s, shares_even_s, min(LEAST_COUNT * longest, LEAST_COUNT_S), on_hardware_s)

    def _grow_in_step(self, few: int) -> list[int]:
        """Returns equal counts. Those of ranks grow in steps, as in _steps()."""
        batch = self._equal_counts()
        while self._recipe.waits_for_ranks and batch[0] > MUCH_MORE * few:
            few = min(batch[0], MOST_MORE * few)
            self._batches.run_shortest([few] * self._batches.actors, self._samples)
            batch = self._equal_counts()
        return batch

    def _equal_counts(self) -> list[int]:
        batches, most = self._batches, self._recipe.limits.count
        count = math.ceil(self._least_s() / max(batches.each_s))
        return [max(1, min(count, most // batches.actors))] * batches.actors

    def _balance_ends(self) -> list[int]:
        """Returns a batch in which all flows end at nearly the same time; equal counts if these do.

        Equal counts are tried first, so equal flows have the same batch in every run. Flows that never end together
        also keep equal counts: if the driver serves flows one after another, balancing by slopes would diverge.
        """
        batches, most, least = self._batches, self._recipe.limits.count, self._least_s()
        repeats = self._recipe.size.repeats  # small differences would need long batches
        batch = equal = self._equal_counts()
        tried: dict[tuple[int, ...], float] = {}
        rates: list[float] = []
        while tuple(batch) not in tried and len(tried) < MOST_TRIES:
            is_long = 3 * max(batches.ends_s(batch)) > (2 * LONG_S if repeats else LONG_S)
            trace = batches.run_with_double(batch, 1 if is_long else 3)
            short, long = (batches.median_ends_s(trace, at) for at in (0, 1))
            # Copies per second: an engine that serves flows in turn reaches the same rate with any batch.
            rates.append(2 * sum(batch) / max(long))
            at_once = not is_served_in_turn(batch, rates[-1] / rates[0])
            tried[tuple(batch)] = min(long) / max(long) * _straightness(short, long) * at_once
            if tried[tuple(batch)] >= (NEARLY_TOGETHER if repeats and batch == equal else TOGETHER):
                return batch
            if min(long) < NEARLY_TOGETHER * max(long) and len(rates) == 2 and rates[1] <= _SAME_RATE * rates[0]:
                break
            # Slopes correct the first batches. For a batch that is nearly right, the ends are better: the flow that
            # ends last runs alone at the end, and faster. If an engine serves flows in turn, the ends show the order
            # and not the speed.
            nearly = tried[tuple(batch)] >= NEARLY_TOGETHER
            each = [end / count for end, count in zip(long, batch, strict=True)] if nearly else batches.each_s
            batch = balanced(each, least, most)
        best = max(tried, key=lambda counts: tried[counts])
        return list(best) if tried[best] >= NEARLY_TOGETHER else equal

    def _double_until_linear(self, batch: list[int]) -> list[int]:
        """Doubles the batch until its slope matches the slope of its double. Notes a slope that never matches.

        The batch must also reach a minimum duration. Waking a link (0.2 ms on H200) makes the first timed operation
        look long, and the batch would then be too short for later wake-ups.
        """
        batches, most = self._batches, self._recipe.limits.queued
        if self._recipe.size.repeats:
            return batch
        while 4 * sum(batch) <= most and 7 * max(batches.ends_s(batch)) <= STRAIGHT_S:
            compared = [[factor * count for count in batch] for factor in (1, 2, 4)]
            timing = batches.last.timing if batches.last else ""
            trace = batches.run(3, compared, verify=False)
            if trace.timing != timing:
                return batch  # the batch and its double may still fit behind the gate
            short, long = (batches.slopes(trace, at, compared) for at in (0, 1))
            bent = [a for a in range(batches.actors) if not self._slopes_agree(short[a], long[a], min(batch))]
            batches.note_slopes(long, batch)
            self.nonlinear = ""
            if bent:
                before, after, count = median(short[bent[0]]), median(long[bent[0]]), batch[bent[0]]
                self.nonlinear = (
                    f"{before:.3g} s an operation from a batch of {count} to {2 * count}, then {after:.3g} s"
                )
            elif max(batches.ends_s(batch)) >= LEAST_PART * self._least_s():
                return batch
            batch = compared[1]
        return batch

    def _slopes_agree(self, short: list[float], long: list[float], count: int) -> bool:
        noise = 3 * (median_error(short) + median_error(long)) + 2 * self._batches.tick_s / count
        return abs(median(long) - median(short)) <= STRAIGHT * median(short) + noise


def _straightness(short: list[float], long: list[float]) -> float:
    """Returns how well every end grows with its batch: 1 if it doubles. A flow that waits for another one ends with it,
    but its time does not grow with its own batch."""
    return min(min(2 * one, two) / max(2 * one, two) for one, two in zip(short, long, strict=True))
