"""Which members of a group are alike: tests of equivalence, corrected for how many there are.

Two one-sided tests (Schuirmann, A comparison of the two one-sided tests procedure, 1987) say "same": the ratio lies
within a margin around 1. The test against the margin says "other": it lies outside. What neither shows is undecided.
Both are corrected over the group (Holm, A simple sequentially rejective multiple test procedure, 1979).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from linkscope.stats.ratios import PRIOR_FREEDOM, geometric_mean, log_variance, student_quantile, student_tail

Rounds = Mapping[int, Sequence[float]]  # medians of the rounds, by size
Verdict = Literal["same", "other", "undecided"]


@dataclass(frozen=True, slots=True)
class Contrast:
    """The logarithm of a ratio, its standard error, and the degrees of freedom behind that."""

    log_ratio: float
    error: float
    freedom: int

    def chance_other(self, margin: float) -> float:
        """How probable so large a ratio (or so small a one) is where the truth lies within the margin."""
        return self._tail(abs(self.log_ratio) - math.log1p(margin))

    def chance_same(self, margin: float) -> float:
        """How probable so small a distance is where the truth lies outside of the margin."""
        return self._tail(math.log1p(margin) - abs(self.log_ratio))

    def ends(self, level: float) -> tuple[float, float]:
        """The interval of the ratio."""
        reach = student_quantile((1 - level) / 2, self.freedom) * self.error
        return math.exp(self.log_ratio - reach), math.exp(self.log_ratio + reach)

    def _tail(self, distance: float) -> float:
        if self.error <= 0:
            return 0.0 if distance > 0 else 1.0
        upper = student_tail(abs(distance) / self.error, self.freedom)
        return upper if distance > 0 else 1 - upper


@dataclass(frozen=True, slots=True)
class Similarity:
    """How a member stands to the `leader` of its cluster (its own name: it is the leader).

    `contrasts`: by size, its time over the leader's.
    """

    leader: str
    verdict: Verdict
    contrasts: Mapping[int, Contrast]


def contrast(ours: Sequence[float], theirs: Sequence[float], alike: float, known: int = PRIOR_FREEDOM) -> Contrast:
    """The ratio of two sets of round medians, ours over theirs.

    `alike` is the mean `log_variance` of the group at this size; it weighs as twelve further rounds do (ratios.py), or
    fewer where it is `known` by fewer degrees of freedom.
    """
    weight = min(known, PRIOR_FREEDOM)
    variances = [(weight, alike)] + [(len(of) - 1, log_variance(of)) for of in (ours, theirs) if len(of) > 1]
    log_ratio = math.log(geometric_mean(ours) / geometric_mean(theirs))
    freedom = sum(weight for weight, _ in variances)
    if not freedom:  # one round of each says nothing of how rounds differ
        return Contrast(log_ratio, math.inf, 1)
    pooled = sum(weight * variance for weight, variance in variances) / freedom
    error = math.sqrt(pooled * (1 / len(ours) + 1 / len(theirs)))
    return Contrast(log_ratio, error, freedom)


def holm(chances: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected so that any true one is with a probability of at most `level`."""
    order = sorted(range(len(chances)), key=lambda at: chances[at])
    rejected = [False] * len(chances)
    for step, at in enumerate(order):
        if chances[at] > level / (len(chances) - step):
            break
        rejected[at] = True
    return rejected


def clusters(
    order: Sequence[str], rounds: Mapping[str, Rounds], margin: Callable[[int], float], level: float = 0.05
) -> dict[str, Similarity]:
    """Every member's cluster. The first of `order` leads the first; those that differ from it form others in turn.

    `margin` of a size: what still counts as alike. Members without a size in common with their leader are undecided.
    """
    spread = {size: _spread(rounds, size) for size in sorted({size for of in rounds.values() for size in of})}
    found: dict[str, Similarity] = {}
    left = [name for name in order if name in rounds]
    while left:
        leader, *others = left
        found[leader] = Similarity(leader, "same", {})
        made = {name: _contrasts(rounds[name], rounds[leader], spread) for name in others}
        tests = [(name, of.chance_other(margin(size))) for name in others for size, of in made[name].items()]
        odd = {name for (name, _), told in zip(tests, holm([p for _, p in tests], level), strict=True) if told}
        # Alike is who is alike at every size: the worst of them decides, without a correction.
        shown = [max([of.chance_same(margin(size)) for size, of in made[n].items()], default=1.0) for n in others]
        for name, same in zip(others, holm(shown, level), strict=True):
            if name not in odd:
                found[name] = Similarity(leader, "same" if same else "undecided", made[name])
        left = [name for name in others if name in odd]
    return found


def _contrasts(ours: Rounds, theirs: Rounds, spread: Mapping[int, float]) -> dict[int, Contrast]:
    return {size: contrast(ours[size], theirs[size], spread[size]) for size in sorted(ours.keys() & theirs.keys())}


def _spread(rounds: Mapping[str, Rounds], size: int) -> float:
    """The mean variance of the logarithms within a member."""
    known = [log_variance(of[size]) for of in rounds.values() if len(of.get(size, ())) > 1]
    return sum(known) / len(known) if known else 0.0
