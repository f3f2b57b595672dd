"""Prints why points of a run miss their precision, and the cost of reaching it (docs/notes/planner-evidence.md).

Usage: python tools/needs.py RUN.jsonl[.gz] [--brief]

`--brief` prints the share of points within precision by group. Otherwise, by memory and size: the spread of samples
within a round and of the round medians around the median of their point (half of the distance between quartiles, and
between deciles); the rank correlation of consecutive rounds, and of rounds ten apart; the number of rounds with which
70 % of such points would reach their target, drawn from the existing rounds; and the cost of these rounds.
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
LEAST = 20  # rounds that a group must have


def group_of(point: Point) -> str:
    memories = {point.src_memory, point.dst_memory}
    if point.bytes == 0:
        return "latencies"
    what = next((name for name in ("managed", "pageable") if name in memories), "other memory")
    single = ", single" if point.params.get("mode") == "single" else ""
    peer = ", peer off" if point.params.get("peer") == "off" else ""
    return f"{what}{single}{peer}, {'from 1 MiB' if point.bytes >= LARGE else 'below 1 MiB'}"


def brief_group(point: Point) -> str:
    """The group of a point in the brief table."""
    if point.bytes == 0:
        return "latencies"
    memories = {point.src_memory, point.dst_memory}
    if managed := {"managed", "pageable"} & memories:
        return f"{min(managed)} memory"
    if len(point.flows) > (2 if point.bidirectional else 1):
        return "concurrent flows"
    size = "from 1 MiB" if point.bytes >= LARGE else "below 1 MiB"
    if point.benchmark in ("read", "write"):
        return f"SM accesses to host and peer memory (zero-copy), {size}"
    mode = "single copies" if point.params.get("mode") == "single" else "batched copies"
    peer = ", no peer access" if point.params.get("peer") == "off" else ""
    return f"{mode}, pinned, registered and device memory{peer}, {size}"


def brief(points: Iterable[Point]) -> Iterator[str]:
    yield "| points of | | within precision | seconds | of these for points that missed it |"
    yield "|---|---|---|---|---|"
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in points:
        if point.status in ("ok", "missed_precision"):
            groups[brief_group(point)].append(point)
    everything = [point for of in groups.values() for point in of]
    for kind, members in [*sorted(groups.items()), *([("all", everything)] if everything else [])]:
        ok = sum(of.status == "ok" for of in members) / len(members)
        missed_s = sum(of.device_s for of in members if of.status != "ok")
        yield f"| {kind} | {len(members)} | {ok:.0%} | {sum(of.device_s for of in members):.1f} | {missed_s:.1f} |"


def around(point: Point) -> list[float]:
    """Relative differences of the first flow's round medians from their median, corrected for the few rounds."""
    medians = point.flows[0].round_medians_s
    centre = median(medians)
    return [(value / centre - 1) * (len(medians) / (len(medians) - 1)) ** 0.5 for value in medians]


def quantile(values: Sequence[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def half_range(values: Sequence[float], outside: float) -> float:
    return (quantile(values, 1 - outside) - quantile(values, outside)) / 2


def rounds_for(values: Sequence[float], precision: float) -> int | None:
    """The smallest number of rounds in LADDER that reaches the precision, by draws from `values`; None if none does."""
    chance = random.Random(1)
    for count in LADDER:
        drawn = [median_interval([1 + chance.choice(values) for _ in range(count)]) for _ in range(DRAWS)]
        if sum(of is not None and (of.high - of.low) / 2 <= precision for of in drawn) >= ENOUGH * DRAWS:
            return count
    return None


def rank_correlation(values: Sequence[float], lag: int) -> float:
    """Spearman's rank correlation of values with those `lag` later."""
    first, second = _ranks(values[:-lag]), _ranks(values[lag:])
    centre = (len(first) - 1) / 2
    return sum((a - centre) * (b - centre) for a, b in zip(first, second, strict=True)) / max(
        sum((a - centre) ** 2 for a in first), 1e-12
    )


def _ranks(values: Sequence[float]) -> list[int]:
    found = [0] * len(values)
    for rank, at in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        found[at] = rank
    return found


def in_time(path: Path, points: Sequence[Point]) -> list[float]:
    """Relative differences of the rounds of these points from their points, in the order of measurement."""
    centre = {point.id: point.median_s for point in points}
    found = []
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for line in file:
            if line.startswith(b'{"record":"round",') and (record := json.loads(line))["id"] in centre:
                found.append(median(record["flows"][0]["samples_s"]) / centre[record["id"]] - 1)
    return found


def lines(run: Run) -> Iterator[str]:
    yield (
        "| points of | | within precision | cost of a round | spread within rounds, of rounds (quartiles, deciles) | "
        "rank correlation: next, tenth next | rounds needed | cost of these rounds |"
    )
    yield "|---|---|---|---|---|---|---|---|"
    groups: dict[str, list[Point]] = defaultdict(list)
    for point in run.points:
        if point.status in ("ok", "missed_precision") and len(point.flows[0].round_medians_s) > 2:
            groups[group_of(point)].append(point)
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
        rounds = needed or f"more than {LADDER[-1]}"
        yield f"| {kind} | {len(points)} | {ok:.0%} | {cost * 1e3:.3g} ms | {shown} | {near} | {rounds} | {seconds} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--brief", action="store_true")
    arguments = parser.parse_args()
    run = read_run(arguments.run)
    for line in brief(run.points) if arguments.brief else lines(run):
        print(line)


if __name__ == "__main__":
    main()
