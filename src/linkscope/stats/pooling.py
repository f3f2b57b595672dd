"""Intervals and ratios of few rounds, with a variance that is pooled over the points of a family.

Three rounds of one point show little about how rounds scatter, but hundreds of points of the same kind show it well.
The rounds of a point are modelled as normal on the logarithm, with a standard deviation that is drawn from a
distribution common to the family. This distribution is estimated from all points of the family on a grid, without
assuming its shape (empirical Bayes: Smyth 2004; variance adaptive shrinkage: Lu and Stephens, Bioinformatics 2016). So
a point whose rounds scatter more than those of its family keeps its own, larger variance (the purpose of Phipson et
al., Robust hyperparameter estimation, 2016). Small families borrow from related ones, their kin, and those from all.

The posterior of the centre is a mixture of normal distributions, one for each value of the grid. Its quantiles are the
ends of the interval.
"""

import functools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from linkscope.stats.intervals import Interval
from linkscope.stats.modes import LEAST_POINTS, is_regular
from linkscope.stats.ratios import log_variance

Array = NDArray[np.float64]
Name = TypeVar("Name", bound=Hashable)
Rounds = Sequence[Sequence[float]]  # of several points

_LOWEST, _HIGHEST, _STEPS = 1e-5, 2.0, 72  # the grid: 18 % from value to value
SIGMAS: Array = np.geomspace(_LOWEST, _HIGHEST, _STEPS)
_LOG_SIGMAS, _VARIANCES = np.log(SIGMAS), SIGMAS**2
_PASSES = 40  # of expectation and maximization
_BORROWED = 3.0  # points that the noise of related families counts for
# Points that a flat distribution counts for in every family. More of them keep the variance of a single noisy point
# better, which intervals need. Ratios are judged at levels so near 1 that six of them would decide alone.
FLAT_FOR_INTERVALS, FLAT_FOR_RATIOS = 6.0, 1.0
_LEFT = 1e-3  # of a count stays when a point is left out of its family
_LARGEST = 700.0  # exp() of more overflows
_FINER = 6  # distances of the table of tails for each value of the grid
RUNS = 0.45  # deviation between runs of one machine over that of rounds (docs/notes/same-machine.md)


@dataclass(frozen=True, slots=True)
class Scatter:
    """How the rounds of one point scatter: the variance of their logarithms, and its degrees of freedom."""

    variance: float
    freedom: int


def scatter(rounds: Sequence[float]) -> Scatter | None:
    """The scatter of the positive rounds of a point; None for fewer than two."""
    return Scatter(log_variance(rounds), len(rounds) - 1) if len(rounds) > 1 and min(rounds) > 0 else None


@dataclass(frozen=True)
class Noise:
    """The distribution of the deviation of rounds in a family.

    `counts`: how many points, and parts of points, have each value of `SIGMAS`; the points of other families that
    stand in for a small family included. `points`: the number of points of the family. `regular`: enough points are
    known, and they show no separate modes. `flat`: the part of `counts` that is spread evenly. `runs`: the deviation
    between runs of one machine over that of rounds.
    """

    counts: Array
    points: int
    regular: bool
    flat: float = FLAT_FOR_INTERVALS
    runs: float = RUNS

    def posterior(self, scatters: Sequence[Scatter]) -> Array:
        """The weights of `SIGMAS` after seeing how the rounds of a point of the family scatter.

        The point is left out of the distribution. Otherwise its scatter would count twice, and intervals would be too
        narrow in small families.
        """
        seen: Array = _likelihoods(scatters).prod(axis=0)
        own = _normalized((self.counts * seen)[None, :])[0]
        if scatters:
            own = _normalized((np.maximum(self.counts - own, _LEFT * self.counts) * seen)[None, :])[0]
        return np.asarray(own)

    def prior(self) -> Array:
        """The weights of `SIGMAS` before seeing the rounds of a point, as the points of the family show them."""
        shown = np.maximum(self.counts - self.flat / _STEPS, 0.0)
        return np.asarray(shown / shown.sum()) if shown.sum() > 0 else np.full(_STEPS, 1 / _STEPS)


def families(
    rounds: Mapping[Name, Rounds], kin: Callable[[Name], Hashable], flat: float = FLAT_FOR_INTERVALS
) -> dict[Name, Noise]:
    """The noise of every family, from the rounds of its points. `kin` names the related families of a family; `flat`
    points are spread evenly over all deviations."""
    scatters = {name: [one for one in map(scatter, of) if one is not None] for name, of in rounds.items()}
    related: dict[Hashable, list[Name]] = defaultdict(list)
    for name in rounds:
        related[kin(name)].append(name)
    common = _fitted([one for of in scatters.values() for one in of], np.full(_STEPS, flat / _STEPS))
    found = {}
    for names in related.values():
        shared = _fitted([one for name in names for one in scatters[name]], _borrowed(common, flat))
        regular = is_regular([one for name in names for one in rounds[name]], LEAST_POINTS)
        for name in names:
            counts = _fitted(scatters[name], _borrowed(shared, flat))
            alone = is_regular(rounds[name], LEAST_POINTS, unknown=regular)
            found[name] = Noise(counts, len(scatters[name]), alone, flat)
    return found


@dataclass(frozen=True)
class Ratio:
    """The ratio of two sides of a comparison, after / before: a mixture of normal errors on its logarithm.

    `weights` belong to the values of `SIGMAS`; `scale` times a variance of the grid is the variance of the ratio.
    """

    log_ratio: float
    weights: Array
    scale: float

    @property
    def value(self) -> float:
        """The ratio of the geometric means."""
        return math.exp(self.log_ratio)

    def interval(self, level: float) -> Interval:
        """The interval of the ratio."""
        reach = self.error(level)
        return Interval(math.exp(self.log_ratio - reach), math.exp(min(self.log_ratio + reach, _LARGEST)), level)

    def error(self, level: float) -> float:
        """Half of the interval of the logarithm."""
        return spread_quantile(self.weights, self.scale, level)

    def chance_unchanged(self) -> float:
        """The probability of a ratio this far from 1 without a change."""
        return float((self.weights * two_sided_tails(abs(self.log_ratio) / (SIGMAS * math.sqrt(self.scale)))).sum())

    def detectable(self, level: float) -> float:
        """The smallest relative change that an interval of this level excludes from 1 with 95 % probability."""
        return math.expm1(min(self.error(level) + self.error(0.90), _LARGEST))


def ratio(before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], noise: Noise) -> Ratio | None:
    """The ratio of two sides, each with the rounds of one run or more; None if nothing is known of the noise.

    The runs of a side count alike. Each has a variance of its own besides that of its rounds (`Noise.runs`).
    """
    scatters = [one for one in map(scatter, [*before, *after]) if one is not None]
    if noise.points == 0 and not scatters:
        return None
    centres, scale = [], 0.0
    for side in (before, after):
        means = [sum(map(math.log, rounds)) / len(rounds) for rounds in side]
        centres.append(sum(means) / len(means))
        scale += sum(1 / len(rounds) + noise.runs**2 for rounds in side) / len(side) ** 2
    return Ratio(centres[1] - centres[0], noise.posterior(scatters), scale)


def spread_quantile(weights: Array, scale: float, level: float) -> float:
    """Half of the interval of a mixture of normal values with variances `scale` times those of the grid."""
    distances, table = _tails()
    tails = table @ weights  # falls with the distance
    return float(np.exp(np.interp(level - 1, -tails, distances))) * math.sqrt(scale)


def two_sided_tails(z: Array) -> Array:
    """The probability that a standard normal value lies further from zero than z."""
    return np.array([math.erfc(one / math.sqrt(2)) for one in z])


@functools.cache
def _tails() -> tuple[Array, Array]:
    """Logarithms of distances, and for each the tails of all values of the grid: 10 ms, at the first use."""
    distances: Array = np.linspace(math.log(_LOWEST / 20), math.log(_HIGHEST * 8), _STEPS * _FINER)
    return distances, np.stack([two_sided_tails(distance / SIGMAS) for distance in np.exp(distances)])


def _borrowed(counts: Array, flat: float) -> Array:
    """The counts that the points of related families, with these counts, add to a family."""
    shown = counts - flat / _STEPS
    return np.asarray(flat / _STEPS + (shown / shown.sum() * _BORROWED if shown.sum() > 0 else np.zeros(_STEPS)))


def _likelihoods(scatters: Sequence[Scatter]) -> Array:
    """The likelihood of each value of the grid for each scatter, up to a factor: a scaled chi-squared distribution."""
    if not scatters:
        return np.ones((1, _STEPS))
    freedom = np.array([one.freedom for one in scatters])[:, None]
    variances = np.array([one.variance for one in scatters])[:, None]
    logs = -freedom * (_LOG_SIGMAS[None, :] + variances / (2 * _VARIANCES[None, :]))
    return np.asarray(np.exp(logs - logs.max(axis=1, keepdims=True)))


def _fitted(scatters: Sequence[Scatter], prior: Array) -> Array:
    """The counts of the grid by maximum likelihood, with `prior` as further points (Dempster, Laird and Rubin 1977)."""
    counts = prior
    if scatters:
        likelihoods = _likelihoods(scatters)
        for _ in range(_PASSES):
            counts = counts * ((1 / (likelihoods @ counts)) @ likelihoods) + prior
    return counts


def _normalized(rows: Array) -> Array:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))
