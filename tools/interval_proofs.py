"""Coverage and width of the intervals of few rounds (docs/notes/interval-evidence.md).

Usage: python tools/interval_proofs.py coverage [--seeds N]
       python tools/interval_proofs.py replay RUN.jsonl …
       python tools/interval_proofs.py predict RUN.jsonl …

coverage: rounds of known shapes. A family has 24 points, or it has 6 points and three families are its kin. Scales are
equal, or vary by a factor of two, or are mixed (three of ten points are 12 times noisier). The width is that of the
median interval over that of order statistics of six rounds of the same noise.

replay: rounds measured on hardware. Three rounds of each point give the interval. Widened by the error of the median of
three others, it should hold this median in 95 % of cases.
"""

import argparse
import math
import statistics
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan import Plan, affordable, precision_target
from linkscope.run import plan_of
from linkscope.runfile import Family, Point, family_of, read_run
from linkscope.stats import (
    EARLY_ROUNDS,
    LOOKS,
    Noise,
    expected_rounds,
    families,
    median,
    median_interval,
    next_look,
    rounds_interval,
)

Array = np.ndarray
Shape = Callable[[np.random.Generator, int, int], Array]
ROUNDS = (3, 4, 6, 12)
POINTS, SMALL = 24, 6
SCALE = 0.01
# The error of the difference between the mean of three normal values and the median of three others, over that of the
# mean.
MEDIAN_TOO = math.sqrt(1 + 0.6698**2 * 3)
DRIFT = 1.5  # standard deviations over all rounds, common to all points


def normal(chance: np.random.Generator, points: int, rounds: int) -> Array:
    return chance.standard_normal((points, rounds))


def heavy(chance: np.random.Generator, points: int, rounds: int) -> Array:
    return chance.standard_t(3, (points, rounds)) / math.sqrt(3)


def skewed(chance: np.random.Generator, points: int, rounds: int) -> Array:
    return chance.exponential(1, (points, rounds)) - math.log(2)


def bimodal(chance: np.random.Generator, points: int, rounds: int) -> Array:
    """Two of five rounds are in the slower mode. The median is that of the faster mode's upper part."""
    slower = chance.random((points, rounds)) < 0.4
    width = 0.08
    middle = width * statistics.NormalDist().inv_cdf(0.5 / 0.6)
    return 2.0 * slower + width * chance.standard_normal((points, rounds)) - middle


def drifting(chance: np.random.Generator, points: int, rounds: int) -> Array:
    """All points drift together; the truth is the middle of the drift."""
    drift = DRIFT * ((np.arange(rounds) + 0.5) / rounds - 0.5)
    return 0.7 * chance.standard_normal((points, rounds)) + drift


SHAPES: dict[str, Shape] = {
    "normal": normal, "heavy tails (Student, 3 degrees)": heavy, "skewed (exponential)": skewed,
    "two modes, 40 to 60": bimodal, "drifting": drifting,
}  # fmt: skip


def equal(chance: np.random.Generator, points: int) -> Array:
    return np.ones(points)


def varied(chance: np.random.Generator, points: int) -> Array:
    return np.exp(0.7 * chance.standard_normal(points))


def mixed(chance: np.random.Generator, points: int) -> Array:
    return np.where(chance.random(points) < 0.3, 5.0, 0.4)


SCALES = {"equal": equal, "varied": varied, "mixed": mixed}


def coverage(seeds: int) -> Iterator[str]:
    """The Markdown table: the share of intervals that cover, the relative width, and the share of wide intervals."""
    yield f"| noise | scales | family | {' | '.join(f'{n} rounds' for n in ROUNDS)} |"
    yield "|---" * (3 + len(ROUNDS)) + "|"
    for shape in SHAPES:
        for scales in SCALES:
            for points in (POINTS, SMALL):
                cells = [cell(shape, scales, points, rounds, seeds) for rounds in ROUNDS]
                texts = [f"{share:.1%} ({width:.2f})" for share, width in cells]
                yield f"| {shape} | {scales} | {points} points | {' | '.join(texts)} |"


def cell(shape: str, scales: str, points: int, rounds: int, seeds: int) -> tuple[float, float]:
    """The share of intervals that cover, and their median width over that of order statistics of six rounds."""
    covered, count, widths = 0, 0, []
    for seed in range(seeds):
        drawn, scale = family(np.random.default_rng((seed, rounds, points)), shape, scales, rounds)
        for noise, medians, sigma in zip(noises(drawn, points), drawn, scale, strict=True):
            found = rounds_interval(medians, noise)
            if found is None:
                continue
            interval = found[0]
            count += 1
            covered += interval.low <= 1 <= interval.high
            widths.append((interval.high - interval.low) / 2 / sigma)
    return covered / count, statistics.median(widths) / reference(shape)


def family(chance: np.random.Generator, shape: str, scales: str, rounds: int) -> tuple[list[list[float]], list[float]]:
    """Round medians of 24 points around 1, and the scale of each point."""
    scale = SCALE * SCALES[scales](chance, POINTS)
    return np.exp(SHAPES[shape](chance, POINTS, rounds) * scale[:, None]).tolist(), scale.tolist()


def noises(drawn: Sequence[Sequence[float]], points: int) -> list[Noise]:
    """The noise that each point is judged by."""
    names = [at // points for at in range(len(drawn))]
    of_family: dict[int, list[Sequence[float]]] = defaultdict(list)
    for name, medians in zip(names, drawn, strict=True):
        of_family[name].append(medians)
    known = families(of_family, lambda name: None)
    return [known[name] for name in names]


def reference(shape: str) -> float:
    """The median half-width of order statistics of six rounds, in units of the scale."""
    drawn = np.exp(SHAPES[shape](np.random.default_rng(1), 4000, 6) * SCALE).tolist()
    found = [median_interval(medians) for medians in drawn]
    return statistics.median((one.high - one.low) / 2 / SCALE for one in found if one)


def replay(paths: Sequence[Path]) -> Iterator[str]:
    """The Markdown table, one row per run."""
    yield "| run | points with six rounds | hold the other three | half-width over that of all six | methods |"
    yield "|---|---|---|---|---|"
    for path in paths:
        halves: dict[Family, list[tuple[list[float], list[float], list[float]]]] = defaultdict(list)
        for point in read_run(path).points:
            if point.flows and len(point.flows[0].round_medians_s) >= 6 and min(point.flows[0].round_medians_s) > 0:
                six = point.flows[0].round_medians_s[:6]
                halves[family_of(point)].append((six[::2], six[1::2], six))
        noise = families({name: [one[0] for one in of] for name, of in halves.items()}, lambda name: name.kin)
        yield _replayed(path.name.split(".")[0], [(noise[name], *one) for name, of in halves.items() for one in of])


def _replayed(name: str, points: Sequence[tuple[Noise, list[float], list[float], list[float]]]) -> str:
    held, ratios, methods = 0, [], Counter[str]()
    for noise, ours, theirs, six in points:
        found, all_six = rounds_interval(ours, noise), median_interval(six)
        assert found and all_six
        interval, method = found
        low, high = (math.log(end / statistics.geometric_mean(ours)) for end in (interval.low, interval.high))
        # The interval of a further round already holds more than the median of three others.
        wider = MEDIAN_TOO if method == "pooled" else 1.0
        held += low * wider <= math.log(statistics.median(theirs) / statistics.geometric_mean(ours)) <= high * wider
        if all_six.high > all_six.low:
            ratios.append((interval.high - interval.low) / (all_six.high - all_six.low))
        methods[method] += 1
    share = f"{held / len(points):.1%}"
    counts = ", ".join(f"{method} {count}" for method, count in sorted(methods.items()))
    return f"| {name} | {len(points)} | {share} | {statistics.median(ratios):.2f} | {counts} |"


def _positive_rounds(point: Point) -> int:
    return sum(median > 0 for median in point.flows[0].round_medians_s)


def _by_family(points: Sequence[Point]) -> dict[Family, list[list[float]]]:
    found: dict[Family, list[list[float]]] = defaultdict(list)
    for point in points:
        found[family_of(point)].append(point.flows[0].round_medians_s[:EARLY_ROUNDS])
    return found


def _expected_and_wanted(plan: Plan, point: Point, noise: Noise) -> tuple[float, int]:
    """The number of rounds that the family predicts, and that the planner wants after three."""
    medians = point.flows[0].round_medians_s[:EARLY_ROUNDS]
    target, most = precision_target(plan, point), min(LOOKS[2], affordable(plan, point))
    found = rounds_interval(medians, noise)
    assert found
    width = (found[0].high - found[0].low) / 2 / median(medians)
    wanted = EARLY_ROUNDS if width <= target else next_look(medians, width, found[1], target) or EARLY_ROUNDS
    if wanted > most:
        wanted = EARLY_ROUNDS
    return expected_rounds(noise, medians[:1], target, most), wanted


def _predicted(name: str, found: Sequence[tuple[float, int]]) -> str:
    expected, wanted = sum(one for one, _ in found), sum(one for _, one in found)
    more = [wanted > EARLY_ROUNDS for expected, wanted in found if expected > EARLY_ROUNDS + 1]
    less = [wanted > EARLY_ROUNDS for expected, wanted in found if expected <= EARLY_ROUNDS + 1]
    return (
        f"| {name} | {len(found)} | {expected:.0f} | {wanted} | {sum(more)} of {len(more)} "
        f"| {sum(less)} of {len(less)} |"
    )


def predict(paths: Sequence[Path]) -> Iterator[str]:
    """The Markdown table, one row per run."""
    yield (
        "| run | points | rounds expected | rounds wanted after three "
        "| want more: of those with 4 or more expected | of the others |"
    )
    yield "|---|---|---|---|---|---|"
    for path in paths:
        run = read_run(path)
        plan = plan_of(run)
        points = [point for point in run.points if point.flows and _positive_rounds(point) >= EARLY_ROUNDS]
        found: list[tuple[float, int]] = []
        for known, asked in ((points[::2], points[1::2]), (points[1::2], points[::2])):
            noise: dict[Family, Noise] = families(_by_family(known), lambda name: name.kin)
            found += [
                _expected_and_wanted(plan, point, noise[family_of(point)])
                for point in asked
                if family_of(point) in noise
            ]
        yield _predicted(path.name.split(".")[0], found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("coverage", "replay", "predict"))
    parser.add_argument("runs", nargs="*", type=Path)
    parser.add_argument("--seeds", type=int, default=2000, help="families of each kind (2000)")
    asked = parser.parse_args()
    of_runs = {"replay": replay, "predict": predict}
    for line in of_runs[asked.what](asked.runs) if asked.what in of_runs else coverage(asked.seeds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
