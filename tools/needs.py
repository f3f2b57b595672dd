"""What keeps the points of a run from their precision, and what that would cost: a table of docs/method/planner.md.

Usage: python tools/needs.py RUN.jsonl[.gz] [--brief]

`--brief`: only how many points are within precision, by what suite `standard` does. Else, by kind of memory and size:
the spread of samples within a round and of the medians of rounds (half of the distance between their quartiles, and
between the outer tenths), as they lie around the median of their point; how alike neighbours in time are (rank
correlation of consecutive rounds, whatever their points, and of those ten apart); the rounds with which seven tenths of
such points have an interval as narrow as asked, drawn from the rounds there are; and their seconds.
"""

import argparse
import gzip
import json
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.plan.plan import LARGE
from linkscope.runfile import Point, Run, read_run
from linkscope.stats import median, median_interval

LADDER = (6, 9, 12, 15, 17, 20, 25, 30, 40, 50, 70, 100, 150, 200, 300, 500)
DRAWS, ENOUGH = 200, 0.7
FAR = 10
LEAST = 20  # rounds that a kind must have


def kind_of(point: Point) -> str:
    memories = {point.src_memory, point.dst_memory}
    if point.bytes == 0:
        return "latencies"
    what = next((name for name in ("managed", "pageable") if name in memories), "other memory")
    alone = ", alone" if point.params.get("mode") == "single" else ""
    peer = ", peer off" if point.params.get("peer") == "off" else ""
    return f"{what}{alone}{peer}, {'from 1 MiB on' if point.bytes >= LARGE else 'smaller'}"


def done(point: Point) -> str:
    """What a point is of, as people would say it."""
    if point.bytes == 0:
        return "latencies"
    memories = {point.src_memory, point.dst_memory}
    if managed := {"managed", "pageable"} & memories:
        return f"{min(managed)} memory"
    if len(point.flows) > (2 if point.bidirectional else 1):
        return "paths at once, one to all, all to one"
    size = "from 1 MiB on" if point.bytes >= LARGE else "smaller"
    if point.benchmark in ("read", "write"):
        return f"accesses to host and peer memory by threads (zero-copy), {size}"
    alone = "one copy alone" if point.params.get("mode") == "single" else "copies in a batch"
    peer = ", no peer access" if point.params.get("peer") == "off" else ""
    return f"{alone}, pinned, registered and device memory{peer}, {size}"


def brief(points: Iterable[Point]) -> Iterator[str]:
    yield "| points of | | within the precision asked for | seconds | of these for points that are not |"
    yield "|---|---|---|---|---|"
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if point.status in ("ok", "missed_precision"):
            groups[done(point)].append(point)
    everything = [point for of in groups.values() for point in of]
    for kind, members in [*sorted(groups.items()), *([("all", everything)] if everything else [])]:
        ok = sum(of.status == "ok" for of in members) / len(members)
        missed_s = sum(of.device_s for of in members if of.status != "ok")
        yield f"| {kind} | {len(members)} | {ok:.0%} | {sum(of.device_s for of in members):.1f} | {missed_s:.1f} |"


def around(point: Point) -> list[float]:
    """What the round medians of the first flow differ by from their median, as fractions; widened by what three or six
    values lie too near to their own median."""
    medians = point.flows[0].round_medians_s
    centre = median(medians)
    return [(value / centre - 1) * (len(medians) / (len(medians) - 1)) ** 0.5 for value in medians]


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def half_range(values: Sequence[float], outside: float) -> float:
    return (quantile(values, 1 - outside) - quantile(values, outside)) / 2


def rounds_for(values: Sequence[float], precision: float) -> int | None:
    """The fewest rounds of LADDER that are enough, drawn from `values`."""
    chance = random.Random(1)
    for count in LADDER:
        drawn = [median_interval([1 + chance.choice(values) for _ in range(count)]) for _ in range(DRAWS)]
        if sum(of is not None and (of.high - of.low) / 2 <= precision for of in drawn) >= ENOUGH * DRAWS:
            return count
    return None


def rank_correlation(values: Sequence[float], lag: int) -> float:
    """Of values with those that come `lag` later (Spearman)."""
    first, second = _ranks(values[:-lag]), _ranks(values[lag:])
    middle = (len(first) - 1) / 2
    return sum((a - middle) * (b - middle) for a, b in zip(first, second, strict=True)) / max(
        sum((a - middle) ** 2 for a in first), 1e-12
    )


def _ranks(values: Sequence[float]) -> list[int]:
    found = [0] * len(values)
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        found[at] = rank
    return found


def in_time(path: Path, points: Sequence[Point]) -> list[float]:
    """What rounds of these points differ by from their points, in the order in which they were measured."""
    centre = {point.id: point.median_s for point in points}
    found = []
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            if line.startswith(b'{"record":"round",') and (record := json.loads(line))["id"] in centre:
                found.append(median(record["flows"][0]["samples_s"]) / centre[record["id"]] - 1)
    return found


def lines(run: Run) -> Iterator[str]:
    yield (
        "| points of | | within precision | a round costs | spread within rounds, of rounds (quartiles, tenths) | "
        "alike in time: next, tenth | rounds needed | seconds of all these points |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in run.points:
        if point.status in ("ok", "missed_precision") and len(point.flows[0].round_medians_s) > 2:
            groups[kind_of(point)].append(point)
    for kind, points in sorted(groups.items()):
        values = [value for point in points for value in around(point)]
        if len(values) < LEAST:
            continue
        cost = sum(of.device_s for of in points) / sum(len(of.flows[0].round_medians_s) for of in points)
        within = median([of.spread.within_rounds for of in points if of.spread])
        needed = rounds_for(values, median([of.precision_target for of in points]))
        order = in_time(run.path, points)
        near = " ".join(f"{rank_correlation(order, lag):+.2f}" for lag in (1, FAR))
        shown = f"{within:.1%}, {half_range(values, 0.25):.1%} {half_range(values, 0.1):.1%}"
        ok = sum(of.status == "ok" for of in points) / len(points)
        seconds = f"{needed * cost * len(points):.3g} s" if needed else ""
        told = needed or f"more than {LADDER[-1]}"
        yield f"| {kind} | {len(points)} | {ok:.0%} | {cost * 1e3:.3g} ms | {shown} | {near} | {told} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--brief", action="store_true")
    asked = parser.parse_args()
    run = read_run(asked.run)
    for line in brief(run.points) if asked.brief else lines(run):
        print(line)


if __name__ == "__main__":
    main()
