"""Groups members of a class that are alike, by equivalence tests with a correction for their number.

Two one-sided tests (Schuirmann, A comparison of the two one-sided tests procedure, 1987) show "same": the ratio lies
within a margin around 1. The test against the margin shows "other": the ratio lies outside. Otherwise the member is
undecided. Both tests are corrected over the group (Holm, A simple sequentially rejective multiple test procedure,
1979).
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
    """The logarithm of a ratio, its standard error and its degrees of freedom."""

    log_ratio: float
    error: float
    freedom: int

    def chance_other(self, margin: float) -> float:
        """The probability of a ratio this far from 1 if the true ratio lies within the margin."""
        return self._tail(abs(self.log_ratio) - math.log1p(margin))

    def chance_same(self, margin: float) -> float:
        """The probability of a ratio this close to 1 if the true ratio lies outside the margin."""
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
    """The relation of a member to the `leader` of its cluster (its own name: it is the leader).

    `contrasts`: by size, its time over that of the leader.
    """

    leader: str
    verdict: Verdict
    contrasts: Mapping[int, Contrast]


def contrast(ours: Sequence[float], theirs: Sequence[float], alike: float, known: int = PRIOR_FREEDOM) -> Contrast:
    """The ratio of two sets of round medians, ours over theirs.

    `alike` is the mean `log_variance` of the group at this size. It weighs as much as twelve rounds (ratios.py), or
    less if it is `known` by fewer degrees of freedom.
    """
    weight = min(known, PRIOR_FREEDOM)
    variances = [(weight, alike)] + [(len(of) - 1, log_variance(of)) for of in (ours, theirs) if len(of) > 1]
    log_ratio = math.log(geometric_mean(ours) / geometric_mean(theirs))
    freedom = sum(weight for weight, _ in variances)
    if not freedom:  # one round of each does not show how rounds differ
        return Contrast(log_ratio, math.inf, 1)
    pooled = sum(weight * variance for weight, variance in variances) / freedom
    error = math.sqrt(pooled * (1 / len(ours) + 1 / len(theirs)))
    return Contrast(log_ratio, error, freedom)


def holm(chances: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses are rejected, with a probability of at most `level` that any true one is."""
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
    """The cluster of every member. The first of `order` leads the first cluster; members that differ form other
    clusters in turn.

    `margin` of a size is the difference that still counts as alike. Members without a common size with their leader are
    undecided.
    """
    spread = {size: _spread(rounds, size) for size in sorted({size for of in rounds.values() for size in of})}
    found: dict[str, Similarity] = {}
    left = [name for name in order if name in rounds]
    while left:
        leader, *others = left
        found[leader] = Similarity(leader, "same", {})
        made = {name: _contrasts(rounds[name], rounds[leader], spread) for name in others}
        tests = [(name, of.chance_other(margin(size))) for name in others for size, of in made[name].items()]
        outside = {name for (name, _), other in zip(tests, holm([p for _, p in tests], level), strict=True) if other}
        # A member is the same only if it is the same at every size. So the worst size decides and needs no correction.
        shown = [max([of.chance_same(margin(size)) for size, of in made[n].items()], default=1.0) for n in others]
        for name, same in zip(others, holm(shown, level), strict=True):
            if name not in outside:
                found[name] = Similarity(leader, "same" if same else "undecided", made[name])
        left = [name for name in others if name in outside]
    return found


def _contrasts(ours: Rounds, theirs: Rounds, spread: Mapping[int, float]) -> dict[int, Contrast]:
    return {size: contrast(ours[size], theirs[size], spread[size]) for size in sorted(ours.keys() & theirs.keys())}


def _spread(rounds: Mapping[str, Rounds], size: int) -> float:
    """The mean variance of the logarithms within members."""
    known = [log_variance(of[size]) for of in rounds.values() if len(of.get(size, ())) > 1]
    return sum(known) / len(known) if known else 0.0
