"""What the planner would make of the noise of a measured run: how many points within precision, by kind of memory.

Usage: python tools/replay.py RUN.jsonl[.gz] [--budget SECONDS] [--opening SECONDS]

The planner decides as in a run (linkscope.plan.next_work). A point's first rounds are those that it had; what it is
given besides is drawn from what rounds of its kind differed by (tools/needs.py), at what its rounds cost; what it
inherited then it would measure as the point that it has its value from. Every pass through the machine also costs its
opening. No more than a forecast: nothing here is measured.
"""

import argparse
import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import msgspec
from msgspec import structs
from needs import around, kind_of

from linkscope.plan import Plan, Work, next_work
from linkscope.runfile import Point, Run, read_run
from linkscope.stats import median, rounds_interval


class Replay:
    """The points of a run as they would be after other numbers of rounds."""

    def __init__(self, run: Run, plan: Plan, opening_s: float) -> None:
        self.plan, self.opening_s = plan, opening_s
        known = {point.id: point for point in run.points}
        sources = {id: known.get(point.inherited_from or "") for id, point in known.items()}
        self.known = {id: structs.replace(sources[id] or point, id=id) for id, point in known.items()}
        self.measured = {id for id, point in known.items() if point.status in ("ok", "missed_precision")}
        self.noise: dict[str, list[float]] = defaultdict(list)
        for point in run.points:
            if point.status in ("ok", "missed_precision") and len(point.flows[0].round_medians_s) > 2:
                self.noise[kind_of(point)] += around(point)
        self.chance = random.Random(1)
        self.points: dict[str, Point] = {}
        self.left_s = plan.budget_s or 0.0
        self.passes = 0

    def carry_out(self) -> Mapping[str, Point]:
        while work := next_work(self.plan, self.points, self.left_s):
            missing = {one.id: one.rounds - len(self.medians(one.id)) for one in work}
            for number in range(max(missing.values())):
                self.left_s -= self.opening_s
                self.passes += 1
                for one in work:
                    if number < missing[one.id]:
                        self.take(one)
            for one in work:
                self.settle(one.id)
        return self.points

    def medians(self, id: str) -> list[float]:
        point = self.points.get(id)
        return point.flows[0].round_medians_s if point and point.flows else []

    def take(self, work: Work) -> None:
        """One round more, if there is time for it."""
        old = self.known.get(work.id)
        if old is None or old.status not in ("ok", "missed_precision"):
            self.points[work.id] = old or structs.replace(next(iter(self.known.values())), id=work.id, status="skipped")
            return
        each_s = old.device_s / len(old.flows[0].round_medians_s)
        point = self.points.setdefault(work.id, blank(old))
        if self.left_s < each_s:
            point.guards["stopped"] = "the budget left no time"
            return
        self.left_s -= each_s
        point.device_s += each_s
        medians, before = point.flows[0].round_medians_s, old.flows[0].round_medians_s
        drawn = median(before) * (1 + self.chance.choice(self.noise.get(kind_of(old)) or [0.0]))
        medians.append(before[len(medians)] if len(medians) < len(before) else drawn)

    def settle(self, id: str) -> None:
        point = self.points[id]
        medians = self.medians(id)
        if point.status not in ("ok", "missed_precision") or not medians:
            return
        centre, interval = median(medians), rounds_interval(medians, point.precision_target)
        narrow = interval is not None and interval.half_width(centre) <= point.precision_target
        point.median_s = point.flows[0].median_s = centre
        point.ci95_s = point.flows[0].ci95_s = (interval.low, interval.high) if interval else None
        point.status = "ok" if narrow and "in_turn" not in point.guards else "missed_precision"


def blank(old: Point) -> Point:
    """The point without its rounds."""
    first = structs.replace(old.flows[0], round_medians_s=[], samples_s=[])
    guards = {name: told for name, told in old.guards.items() if name in ("in_turn", "trend")}
    return structs.replace(old, flows=[first], status="missed_precision", guards=guards, device_s=0.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--budget", type=float, default=112.0)
    parser.add_argument("--opening", type=float, default=0.6, help="seconds of a pass besides its points")
    asked = parser.parse_args()
    run = read_run(asked.run)
    plan = structs.replace(msgspec.convert(run.header.plan, Plan), budget_s=asked.budget)
    replay = Replay(run, plan, asked.opening)
    found = replay.carry_out()
    print("| points of | | within precision, as measured | replayed |\n|---|---|---|---|")
    groups: dict[str, list[str]] = defaultdict(list)
    for id, point in found.items():
        if id in replay.measured:
            groups[kind_of(point)].append(id)
    others = [id for kind, of in groups.items() for id in of if not kind.startswith(("pageable", "managed"))]
    everything = [id for of in groups.values() for id in of]
    for kind, ids in [*sorted(groups.items()), ("all but pageable and managed", others), ("all", everything)]:
        before, after = (sum(of[id].status == "ok" for id in ids) / len(ids) for of in (replay.known, found))
        print(f"| {kind} | {len(ids)} | {before:.0%} | {after:.0%} |")
    mapped = [id for id in plan.points if found.get(id) is not None and found[id].status in ("ok", "missed_precision")]
    print(f"\n{asked.budget - replay.left_s:.0f} s of {asked.budget:g} s, {replay.passes} passes;", end=" ")
    print(
        f"{len(mapped)} of {len(plan.points)} points of the map measured, then {len(replay.measured & {*plan.points})}."
    )


if __name__ == "__main__":
    main()
