"""Rows on intervals: 95 % intervals cover the truth under four kinds of noise, and are not too wide. Two more rows do
so for points of three rounds, whose noise their family shows.

The noise is that of one H200 (24 processes): samples of a process agree to 0.3 %, and medians of processes differ by 3
%. Each repetition is a whole measurement: the sampler takes rounds from a worker that answers with drawn times, the
assembler makes the point, and the plan decides on more rounds.
"""

import functools
import math
import random
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from linkscope.plan import MachineFacts, Plan, rounds_wanted
from linkscope.run.answers import FlowFacts, Prepared, Trace
from linkscope.run.assemble import Assembler
from linkscope.run.batches import Task
from linkscope.run.sampler import Sampler
from linkscope.run.worker import Worker
from linkscope.runfile import Point, PointId, Round
from linkscope.selftest.bench import D2H
from linkscope.selftest.rows import Finding, Row
from linkscope.stats import EARLY_ROUNDS, families, median

SEEDS, REPETITIONS = (11, 12, 13), 2000
FAMILY = 12  # points that show their common noise
COVERED, WIDEST = 0.94, 1.6
_EACH_S, _ONCE_S = 2.2e-6, 1.25e-6
_BETWEEN, _WITHIN = 0.032, 0.003  # of 8 B to the device
_ID = D2H.format(8)
_PLAN = Plan(suite="selftest", only=[], precision=None, budget_s=None, rounds=6, seed=1, order_seed=1, points=[_ID])
_FACTS = MachineFacts("drawn", True, ("numa:0", "gpu:0"), {})


@dataclass
class Noise:
    """Factors of a process and of its samples, drawn one after the other; `median` is that of a process."""

    chance: random.Random

    median = 1.0

    def process(self) -> float:
        """The factor of the next process."""
        return math.exp(_BETWEEN * self.chance.gauss(0, 1))

    def sample(self) -> float:
        """The factor of the next sample, on top of that of its process."""
        return math.exp(_WITHIN * self.chance.gauss(0, 1))


class LogNormal(Noise):
    """Both levels log-normal and independent."""


class Autocorrelated(Noise):
    """Samples that vary by 1 % and are strongly correlated, so that many carry little more information than one."""

    last: float | None = None

    def process(self) -> float:
        self.last = None
        return super().process()

    def sample(self) -> float:
        step = self.chance.gauss(0, 1)
        self.last = step if self.last is None else 0.9 * self.last + math.sqrt(1 - 0.9**2) * step
        return math.exp(0.01 * self.last)


class Bimodal(Noise):
    """Seven of ten processes are fast and the others 8 % slower, as with good and bad placement of pages."""

    def process(self) -> float:
        mode = 1.0 if self.chance.random() < 0.7 else 1.08
        return mode * math.exp(0.01 * self.chance.gauss(0, 1))

    median = math.exp(0.01 * statistics.NormalDist().inv_cdf(0.5 / 0.7))


class HeavyTail(Noise):
    """Processes with Student's t of three degrees of freedom; one of twelve samples takes 50 % longer."""

    def process(self) -> float:
        squares = sum(self.chance.gauss(0, 1) ** 2 for _ in range(3))
        return math.exp(_BETWEEN / 2 * self.chance.gauss(0, 1) / math.sqrt(squares / 3))

    def sample(self) -> float:
        return super().sample() * (1.5 if self.chance.random() < 1 / 12 else 1.0)


class _Drawn:
    """A worker that answers with drawn times."""

    def __init__(self, noise: Noise) -> None:
        self._noise, self._process = noise, 1.0

    def prepare(self, case: dict[str, Any], key: str, limit_s: float, then: object = None) -> Prepared:
        self._process = self._noise.process()
        flow = FlowFacts(0, "gpu:0", "numa:0", "device", "pinned", case["bytes"], "measured")
        return Prepared(True, actors=1, flows=[flow])

    def run(self, samples: int, batches: list[list[int]], *, verify: bool, limit_s: float) -> Trace:
        stamps: list[float] = []
        for _ in range(samples):
            each = _EACH_S * self._process * self._noise.sample()
            for batch in batches:
                stamps.extend((0.0, _ONCE_S + each * batch[0]))
        return Trace(samples, len(batches), 1, "virtual", stamps=stamps)


def _measure_until(wanted: int, rounds: list[Round], sampler: Sampler) -> None:
    while len(rounds) < wanted:
        rounds.append(sampler.measure(Task(PointId.parse(_ID), len(rounds), rounds[0] if rounds else None)))


def _point(noise: Noise, assembler: Assembler) -> Point:
    """One whole measurement."""
    sampler, rounds, wanted = _sampler(noise), list[Round](), _PLAN.rounds
    while len(rounds) < wanted:
        _measure_until(wanted, rounds, sampler)
        point = assembler.point(_ID, rounds)
        wanted = rounds_wanted(_PLAN, point)
    return point


def _few_rounds(noise: Noise) -> list[Round]:
    rounds: list[Round] = []
    _measure_until(EARLY_ROUNDS, rounds, _sampler(noise))
    return rounds


def _sampler(noise: Noise) -> Sampler:
    return Sampler(cast(Worker, _Drawn(noise)), _PLAN, _FACTS)


def oracle_width(kind: type[Noise]) -> float:
    """The width, as a fraction of the truth, of an interval for known noise: the central 95 % of medians of six
    processes."""
    noise = kind(random.Random(1))

    def process() -> float:
        return noise.process() * statistics.median(noise.sample() for _ in range(4))

    medians = sorted(statistics.median(process() for _ in range(6)) for _ in range(4000))
    return (medians[3899] - medians[100]) / noise.median


def _check(kind: type[Noise], folder: Path) -> Finding:
    assembler = Assembler(_PLAN, _FACTS, lambda point: None)
    covered, widths = [], []
    truth = _EACH_S * kind.median
    for seed in SEEDS:
        noise, hits = kind(random.Random(seed)), 0
        for _ in range(REPETITIONS):
            ci95_s = _point(noise, assembler).ci95_s
            if ci95_s is not None:
                hits += ci95_s[0] <= truth <= ci95_s[1]
                widths.append((ci95_s[1] - ci95_s[0]) / truth)
        covered.append(hits / REPETITIONS)
    least = COVERED - 2 * math.sqrt(COVERED * (1 - COVERED) / REPETITIONS)
    best = oracle_width(kind)
    wide = statistics.median(widths) / best if widths else math.inf
    return Finding(
        f"{REPETITIONS} repetitions on each of {len(SEEDS)} seeds; an oracle needs +-{best / 2:.2%}",
        f"covered {', '.join(f'{share:.1%}' for share in covered)} (least {least:.1%}), "
        f"width {wide:.2f} × the oracle's (at most {WIDEST})",
        min(covered) >= least and wide <= WIDEST,
    )  # fmt: skip


def _check_few(kind: type[Noise], folder: Path) -> Finding:
    plan = msgspec.structs.replace(_PLAN, early=True)
    covered, widths = [], []
    truth = _EACH_S * kind.median
    for seed in SEEDS:
        noise, hits = kind(random.Random(seed)), 0
        for _ in range(REPETITIONS // FAMILY):
            rounds = [_few_rounds(noise) for _ in range(FAMILY)]
            medians = [[median(round.flows[0].samples_s) for round in of] for of in rounds]
            known = families({"": medians}, str)[""]
            assembler = Assembler(plan, _FACTS, lambda point: None, lambda point, known=known: known)  # type: ignore[misc]
            for ends in (assembler.point(_ID, of).ci95_s for of in rounds):
                assert ends is not None
                hits += ends[0] <= truth <= ends[1]
                widths.append((ends[1] - ends[0]) / truth)
        covered.append(hits / (REPETITIONS // FAMILY * FAMILY))
    least = COVERED - 2 * math.sqrt(COVERED * (1 - COVERED) / REPETITIONS)
    wide = statistics.median(widths) / oracle_width(kind)
    return Finding(
        f"{REPETITIONS // FAMILY} families of {FAMILY} points with three rounds on each of {len(SEEDS)} seeds",
        f"covered {', '.join(f'{share:.1%}' for share in covered)} (least {least:.1%}), "
        f"width {wide:.2f} × that of an oracle for six rounds (at most {WIDEST_OF_FEW[kind]})",
        min(covered) >= least and wide <= WIDEST_OF_FEW[kind],
    )  # fmt: skip


# Three rounds of a family with modes have the interval of a further round, which contains both modes.
WIDEST_OF_FEW: dict[type[Noise], float] = {LogNormal: 1.6, Bimodal: 6.0}

ROWS = (
    Row("interval_lognormal", functools.partial(_check, LogNormal), cost_s=15),
    Row("interval_autocorrelated", functools.partial(_check, Autocorrelated), cost_s=15),
    Row("interval_bimodal", functools.partial(_check, Bimodal), cost_s=15),
    Row("interval_outliers", functools.partial(_check, HeavyTail), cost_s=15),
    Row("interval_few_rounds", functools.partial(_check_few, LogNormal), cost_s=8),
    Row("interval_few_bimodal", functools.partial(_check_few, Bimodal), cost_s=8),
)
