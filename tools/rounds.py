"""Simulates the coverage of intervals and their cost for noise of known shapes (docs/notes/planner-evidence.md).

Usage: python tools/planner_proofs.py coverage | oracle [--times N]

Noise has two levels: rounds vary by `strength` times the target precision (standard deviation), and the samples of a
round by `within` times that. Points come in families of twelve, which show their common noise. A round costs 1
and each of its samples `sample_cost`. The tables compare costs, not counts, because rounds and samples can replace each
other.
"""

import functools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from linkscope.run.stopping import (
    EXPENSIVE,
    EXPENSIVE_S,
    LITTLE_S,
    MANY_SAMPLES,
    MOST_SAMPLES,
    OUT_OF_REACH,
    ROUND_S,
    USUAL,
)
from linkscope.stats import (
    LOOKS,
    CiMethod,
    Interval,
    deviation,
    families,
    median,
    median_interval,
    next_look,
    rounds_interval,
    steady,
)
from linkscope.stats import (
    Noise as FamilyNoise,
)

PRECISION = 0.01
DOZEN = 12
CALM = 0.2  # of the precision: spread of the calm points around a loud one
STRENGTHS = (0.1, 0.3, 0.5, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0, 3.0, 4.0)
WITHIN = (0.0, 1.0, 4.0)
SAMPLE_COSTS = (0.03, 0.1, 0.3, 1.0, 3.0)
ORACLE_SAMPLES = (1, 2, 4, 7, 14, 31)
ORACLE_ROUNDS = (3, *range(6, 26), *range(26, 60, 3))
ORACLE_DRAWS, ASSURED = 1000, 0.8
TRUTH_POINTS, TRUTH_ROUNDS = 60, 150


def two_modes(chance: random.Random) -> float:
    return (-1.0 if chance.random() < 0.4 else 1.0) + chance.gauss(0, 0.04)


def episodes(chance: random.Random) -> float:
    """A fifth of the rounds are far slower, as on a host that is temporarily busy."""
    return chance.expovariate(1 / 3) if chance.random() < 0.2 else chance.gauss(0, 0.5)


SHAPES: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda chance: chance.gauss(0, 1),
    "heavy tails (Student, 3 degrees)": lambda chance: (
        chance.gauss(0, 1) / math.sqrt(sum(chance.gauss(0, 1) ** 2 for _ in range(3)) / 3)
    ),
    "exponential": lambda chance: chance.expovariate(1),
    "uniform": lambda chance: chance.random(),
    "two modes, 40 to 60": two_modes,
    "a fifth far slower": episodes,
}


@functools.cache
def scale(shape: str) -> tuple[float, float]:
    """Median and standard deviation of a shape."""
    chance = random.Random(shape)
    values = [SHAPES[shape](chance) for _ in range(100_000)]
    return median(values), deviation(values)


@dataclass(frozen=True)
class Noise:
    """The spread of rounds and samples, and the cost of a sample."""

    shape: str
    strength: float
    within: float = 0.0
    sample_cost: float = 0.1

    @property
    def expensive(self) -> bool:
        return self.sample_cost >= EXPENSIVE_S / ROUND_S

    def round(self, chance: random.Random) -> float:
        """The value of a round with infinitely many samples; the truth is 1."""
        centre, width = scale(self.shape)
        drawn = (SHAPES[self.shape](chance) - centre) / width
        return max(1 + self.strength * PRECISION * drawn, 0.05)

    def sample(self, round: float, chance: random.Random) -> float:
        return round + self.within * self.strength * PRECISION * chance.gauss(0, 1) if self.within else round


@dataclass(frozen=True)
class Drawn:
    """One point: its interval, whether it is narrow enough, its rounds, and its cost."""

    interval: Interval
    narrow: bool
    rounds: int
    cost: float

    def covers(self, truth: float = 1.0) -> bool:
        return self.interval.low <= truth <= self.interval.high


class Measured:
    """A point as the sampler and the planner treat it, with drawn noise instead of a machine."""

    def __init__(self, noise: Noise, chance: random.Random) -> None:
        self.noise, self.chance = noise, chance
        self.medians: list[float] = []
        self.repeats = False  # whether the samples of the first round are steady
        self.cost = 0.0

    def to(self, rounds: int) -> None:
        while len(self.medians) < rounds:
            samples = self._samples()
            self.medians.append(median(samples))
            self.cost += 1 + len(samples) * self.noise.sample_cost
            self.repeats = self.repeats or (len(self.medians) == 1 and steady(samples, PRECISION))

    def _samples(self) -> list[float]:
        """The samples of one round, the last of them verified."""
        value = self.noise.round(self.chance)
        enough = max(PRECISION, 2 * self._spread()) * (EXPENSIVE if self.noise.expensive else 1)
        samples: list[float] = []
        while True:
            more = self._wanted(samples, enough)
            samples += [self.noise.sample(value, self.chance) for _ in range(more or 1)]
            if more == 0 and self._enough(samples, enough):
                return samples

    def _wanted(self, samples: list[float], enough: float) -> int:
        """Samples to take before a verified one, as in the sampler."""
        taken = len(samples)
        if self.repeats and self.noise.expensive and taken < 2:
            return 0
        if self.repeats and taken == 0:
            return 1
        if self.repeats and taken == 1 and self._as_before(samples[0]):
            return 0
        if taken == 0:
            return 1 if self.noise.expensive else 3
        if taken == 1 and self.noise.expensive:
            return 0
        little = taken * self.noise.sample_cost < LITTLE_S / ROUND_S
        most = MANY_SAMPLES if little else MOST_SAMPLES
        hopeless = not steady(samples, OUT_OF_REACH * math.sqrt(MOST_SAMPLES / taken) * enough)
        if taken + 1 >= most or steady(samples, enough) or (taken > 1 and not little and hopeless):
            return 0
        return min(1 if self.noise.expensive else 2 if taken + 1 < MOST_SAMPLES else taken, most - 1 - taken)

    def _enough(self, samples: list[float], enough: float) -> bool:
        if not self.noise.expensive or len(samples) > 2:
            return True
        if len(samples) == 1:
            return self.repeats and self._as_before(samples[0])
        return steady(samples, enough if self.repeats else enough / EXPENSIVE)

    def _as_before(self, sample: float) -> bool:
        return abs(sample / self.medians[0] - 1) <= max(PRECISION / 2, USUAL * self._spread())

    def _spread(self) -> float:
        return deviation(self.medians) / median(self.medians) if len(self.medians) >= LOOKS[0] else 0.0

    def interval(self, of_family: FamilyNoise) -> tuple[Interval, CiMethod]:
        found = rounds_interval(self.medians, of_family)
        assert found is not None
        return found

    def next_look(self, of_family: FamilyNoise) -> int | None:
        """The rounds after which to look again; None if the interval is narrow enough, or cannot be."""
        interval, method = self.interval(of_family)
        width = interval.half_width(median(self.medians))
        return next_look(self.medians, width, method, PRECISION) if width > PRECISION else None

    def done(self, of_family: FamilyNoise) -> Drawn:
        interval, _ = self.interval(of_family)
        narrow = interval.half_width(median(self.medians)) <= PRECISION
        return Drawn(interval, narrow, len(self.medians), self.cost)


def dozen(noise: Noise, chance: random.Random) -> list[Drawn]:
    """Similar points, measured by the planner's rule with unlimited time."""
    return together([Measured(noise, chance) for _ in range(DOZEN)])


def among_calm(noise: Noise, chance: random.Random) -> Drawn:
    """One point among calm ones."""
    calm = replace(noise, strength=CALM)
    return together([Measured(noise if first else calm, chance) for first in (True, *[False] * (DOZEN - 1))])[0]


def together(points: list[Measured]) -> list[Drawn]:
    looks: dict[int, int | None] = dict.fromkeys(range(len(points)), LOOKS[0])
    while any(looks.values()):
        for at, look in looks.items():
            points[at].to(look or 0)
        of_family = families({"": [point.medians for point in points]}, str)[""]
        looks = {at: point.next_look(of_family) for at, point in enumerate(points)}
    return [point.done(of_family) for point in points]


@functools.cache
def truth(noise: Noise) -> float:
    """The median of infinitely many rounds with the samplers' samples; varying samples shift it towards the heavier
    side of the shape."""
    if not noise.within:
        return 1.0
    chance = random.Random(f"truth of {noise}")
    medians: list[float] = []
    for _ in range(TRUTH_POINTS):
        point = Measured(noise, chance)
        point.to(TRUTH_ROUNDS)
        medians += point.medians
    return median(medians)


def drawn(noise: Noise, times: int) -> list[Drawn]:
    chance = random.Random(repr(noise))
    return [one for _ in range(math.ceil(times / DOZEN)) for one in dozen(noise, chance)]


@dataclass(frozen=True)
class Oracle:
    """An oracle that knows the noise. It takes the cheapest numbers of rounds and samples, with at least three rounds.

    `same`: 80 % of the points have an interval within the target, by our kinds of interval. `blind`: 95 % of the
    medians are this close to the truth; without intervals.
    """

    same: float
    blind: float


def oracle(noise: Noise) -> Oracle:
    chance = random.Random(repr(noise))
    rounds = np.array([[noise.round(chance) for _ in range(max(ORACLE_ROUNDS))] for _ in range(ORACLE_DRAWS)])
    generator = np.random.default_rng(1)
    same = blind = math.inf
    for count in ORACLE_SAMPLES:
        each = 1 + count * noise.sample_cost
        values = rounds
        if noise.within:
            drawn = generator.standard_normal((*rounds.shape, count)).astype(np.float32)
            values = rounds + noise.within * noise.strength * PRECISION * np.median(drawn, axis=2)
        same, blind = min(same, _least(values, each, _narrow)), min(blind, _least(values, each, _near))
        if not noise.within:
            break
    return Oracle(same, blind)


def _least(values: "np.ndarray", each: float, enough: Callable[["np.ndarray"], bool]) -> float:
    return next((count * each for count in ORACLE_ROUNDS if enough(values[:, :count])), math.inf)


def _near(rounds: "np.ndarray") -> bool:
    return bool(np.mean(np.abs(np.median(rounds, axis=1) - 1) <= PRECISION) >= 0.95)


def _narrow(rounds: "np.ndarray") -> bool:
    count = rounds.shape[1]
    ordered = np.sort(rounds, axis=1)
    if count == LOOKS[0]:
        return bool(np.mean(ordered[:, -1] - ordered[:, 0] <= PRECISION) >= ASSURED)
    ranks = median_interval(range(1, count + 1))
    assert ranks is not None
    wide = ordered[:, int(ranks.high) - 1] - ordered[:, int(ranks.low) - 1]
    return bool(np.mean(wide <= 2 * PRECISION) >= ASSURED)


def coverage(times: int) -> Iterator[str]:
    """Coverage by shape and strength for all points, precise or not; also with varying samples, and for one loud
    point among calm ones."""
    yield f"| noise between rounds, over the precision | {' | '.join(f'{of:g}' for of in STRENGTHS)} | lowest |"
    yield "|---" * (len(STRENGTHS) + 2) + "|"
    for within in WITHIN:
        for shape in SHAPES:
            kinds = [Noise(shape, strength, within) for strength in STRENGTHS]
            found = [_covered(drawn(noise, times), truth(noise)) for noise in kinds]
            yield _row(f"{shape}, samples ×{within:g}" if within else shape, found)
    for shape in SHAPES:
        shares = []
        for strength in STRENGTHS:
            chance, noise = random.Random(shape), Noise(shape, strength)
            shares.append(_covered([among_calm(noise, chance) for _ in range(times // 4)]))
        yield _row(f"{shape}, the others of the class {CALM}", shares)


def _covered(points: list[Drawn], truth: float = 1.0) -> float:
    return sum(one.covers(truth) for one in points) / len(points)


def _row(name: str, shares: list[float]) -> str:
    return f"| {name} | {' | '.join(f'{share:.1%}' for share in shares)} | {min(shares):.1%} |"


def costs(times: int) -> Iterator[str]:
    """Cost of points over that of an oracle, by kind of noise; the first shape, then the others."""
    yield f"| noise between rounds, over the precision | {' | '.join(f'{of:g}' for of in STRENGTHS)} |"
    yield "|---" * (len(STRENGTHS) + 1) + "|"
    kinds = [Noise("normal", 1, within, cost) for within in WITHIN for cost in SAMPLE_COSTS]
    for kind in [*kinds, *(Noise(shape, 1) for shape in list(SHAPES)[1:])]:
        cells = []
        for strength in STRENGTHS:
            noise = Noise(kind.shape, strength, kind.within, kind.sample_cost)
            cells.append(ratio_text(drawn(noise, times), oracle(noise)))
        label = f"{kind.shape}, samples ×{kind.within:g}, each {kind.sample_cost:g} of a round"
        yield f"| {label} | {' | '.join(cells)} |"


def ratio_text(points: list[Drawn], known: Oracle) -> str:
    """'1.2 (1.7)'; a dash if fewer than half of the points reach the target."""
    if sum(one.narrow for one in points) < len(points) / 2 or math.isinf(known.same):
        return "-"
    mean = sum(one.cost for one in points) / len(points)
    return f"{mean / known.same:.2f} ({mean / known.blind:.2f})"
