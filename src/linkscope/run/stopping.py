"""Decides how many samples a round takes."""

import math
from collections.abc import Sequence

from linkscope.run.batches import Batches, Pair, Task, pair_of
from linkscope.run.recipes import LONG_S, Recipe
from linkscope.run.settling import SETTLING
from linkscope.stats import median, steady

MOST_BUSY_S = 0.08  # sampling time of one point in one round; afterwards, the interval shows what is not steady
MOST_WALL_S = 0.2  # the same including untimed work: allocation before each sample, comparison of data
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
VERY_LONG_S = 100e-3  # of operations of this length and more, two samples suffice

Samples = Sequence[Sequence[float]]  # seconds per operation of each actor


class Stopping:
    """The samples of one round. `precision`: the target of the point. `ratio`: of the longer batch to the shorter one,
    in the first round. `once_s`: seconds of the first operation; 0: unknown."""

    def __init__(
        self, batches: Batches, task: Task, recipe: Recipe, *, precision: float, ratio: int, once_s: float
    ) -> None:
        self._batches = batches
        self._task = task
        self._recipe = recipe
        self._precision = precision
        self._once_s = once_s
        self._first_each_s = batches.each_s  # seconds per operation in the first round
        self._is_first_steady = task.first is not None and all(
            steady(flow.samples_s, precision)
            # Expensive operations have two samples that agree. Behind an idle gap, two samples prove nothing.
            and (len(flow.samples_s) > 2 or not task.point.idle_gap_s)
            for flow in task.first.flows
        )
        self._one_suffices = self._can_one_sample_suffice(ratio)

    def uncounted(self) -> int:
        """Returns the number of samples of the next request that do not count."""
        if not self._recipe.settles:
            return 0
        is_nothing_known = self._batches.last is None and self._task.first is None
        longest = self._once_s if is_nothing_known and self._once_s > 0 else max(self._batches.each_s)
        return SETTLING if longest < EXPENSIVE_S else 0

    def wanted(self, samples: Samples, pair: Pair, takes_s: float) -> int:
        """Returns the number of samples to take before the last, verified sample of a round. 0: only the last one.

        `takes_s`: the expected seconds of a sample.
        """
        taken = len(samples[0])
        if self._is_repeatable():  # one sample in a round, two in the first round
            return 0 if self._task.first or taken else 1
        if (few := self._wanted_by_first_round(samples)) is not None:
            return few
        expensive = takes_s >= EXPENSIVE_S
        if taken == 0:
            return self._at_first(expensive)
        if taken == 1 and expensive:
            return 0
        little = self._is_cheap_so_far()
        most = MANY_SAMPLES if little else MOST_SAMPLES
        if max(self._batches.each_s) >= VERY_LONG_S or taken + 1 >= most or self._is_over_time():
            return 0
        # durations are positive: a value of zero or less shows a delayed batch
        disturbed = any(median(of) <= 0 for of in samples)
        if not disturbed and self._steady(samples, pair, takes_s):
            return 0
        out_of_reach = not self._steady(samples, pair, takes_s, OUT_OF_REACH * math.sqrt(MOST_SAMPLES / taken))
        if taken > 1 and not little and out_of_reach and not disturbed:
            return 0  # more samples cannot make the median steady; another round is worth more
        few = self._recipe.after_settling if self.uncounted() else 2
        at_once = few if taken + 1 < MOST_SAMPLES else max(few, taken)
        return min(1 if expensive else at_once, most - 1 - taken)

    def ends_round(self, samples: Samples, pair: Pair, takes_s: float) -> bool:
        """Returns whether a verified sample, expected to take `takes_s`, ends the round.

        Most samples do. Two expensive samples do not: a first sample that differs from the first round, and a second
        sample that disagrees with the first. If no earlier round exists, the samples must be steady as well.
        """
        if len(samples[0]) > 2 or self._is_repeatable() or not (self._one_suffices or takes_s >= EXPENSIVE_S):
            return True
        if len(samples[0]) == 1:
            return self._one_suffices and self._does_first_round_predict() and self._matches_first_round(samples)
        if max(self._batches.each_s) >= VERY_LONG_S:
            return True
        disturbed = any(median(of) <= 0 for of in samples)
        nearly = 1.0 if self._one_suffices else 1 / EXPENSIVE
        return not disturbed and self._steady(samples, pair, takes_s, nearly)

    def _at_first(self, expensive: bool) -> int:
        """Returns the samples of the first request of a round that the first round does not predict."""
        if self._task.point.idle_gap_s >= LONG_S:
            return 2
        if expensive:
            return 1
        return self._recipe.after_settling if self.uncounted() else self._recipe.first_samples

    def _wanted_by_first_round(self, samples: Samples) -> int | None:
        """Returns the number of samples if this process behaves like the first one, or may. Repeatable operations then
        need few of them."""
        taken = len(samples[0])
        if not self._does_first_round_predict():
            return None
        if taken < 2 and self._one_suffices:
            return 0
        if taken == 0:
            return 1
        return 0 if taken == 1 and self._matches_first_round(samples) else None

    def _steady(self, samples: Samples, pair: Pair, takes_s: float, nearly: float = 1.0) -> bool:
        """Returns whether all medians are precise enough for a round; `nearly` scales the tolerance."""
        # Half of the spread between rounds is enough: the rest of the error comes from the rounds.
        enough = max(self._precision, 2 * self._task.spread)
        enough *= nearly * (EXPENSIVE if takes_s >= EXPENSIVE_S else 1)
        return all(steady(of, enough, nearly * self._batches.tick_s / min(pair.counts)) for of in samples)

    def _does_first_round_predict(self) -> bool:
        """Returns whether the first round predicts this round. For large copies, that of another path does too."""
        # A point's own first round must have steady samples; otherwise every later round would need more.
        steady_before = self._task.round > 0 and self._is_first_steady
        predicts = self._recipe.size.predicts or steady_before
        return self._task.first is not None and predicts and not self._batches.is_timed_by_host

    def _can_one_sample_suffice(self, ratio: int) -> bool:
        """Returns whether the first sample of the round may be its last: expensive samples that match the first round.

        All such samples are verified, since any may be the last.
        """
        first = self._task.first
        if first is None or self._task.round == 0 or self._is_repeatable() or not self._does_first_round_predict():
            return False
        return self._batches.sample_s(pair_of(first.batch, ratio)) >= EXPENSIVE_S

    def _is_repeatable(self) -> bool:
        """Returns whether engines and links repeat copies of this size within 0.1 %."""
        return self._recipe.size.repeats and not self._batches.is_timed_by_host

    def _matches_first_round(self, samples: Samples) -> bool:
        """Returns whether every actor matches the first round within half of the target, or within the spread
        between rounds."""
        near = max(self._precision / 2, USUAL * self._task.spread)
        return all(abs(of[-1] - was) <= near * was for of, was in zip(samples, self._first_each_s, strict=True))

    def _is_over_time(self) -> bool:
        """Returns whether the round took too long, on the device or in real time. Virtual time is not real time."""
        batches = self._batches
        return batches.busy_s >= MOST_BUSY_S or (not batches.is_modelled and batches.real_s() >= MOST_WALL_S)

    def _is_cheap_so_far(self) -> bool:
        """Returns whether more samples would be cheap, in real time or virtual time."""
        return (self._batches.busy_s if self._batches.is_modelled else self._batches.real_s()) < LITTLE_S
