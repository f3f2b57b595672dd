"""What the planner would make of the noise of a measured run: how many points within precision, by kind of memory.

Usage: python tools/replay.py RUN.jsonl[.gz] [--budget SECONDS] [--opening SECONDS]

The planner decides as in a run (linkscope.plan.next_work), whenever a point is done. A point's first rounds are those
that it had; what it is given slowdowns is drawn from what rounds of its kind differed by (tools/needs.py), at what its
rounds cost; what it inherited then it would measure as the point that it has its value from. Every pass through the
machine also costs its opening. No more than a forecast: nothing here is measured.
"""

import argparse
import copy
import random
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import msgspec
from msgspec import structs
from needs import around, kind_of

from linkscope.plan import Plan, Underway, next_work
from linkscope.runfile import Point, Run, read_run
from linkscope.stats import median, rounds_interval

MEASURED = ("ok", "missed_precision")


class Replay:
    """The points of a run as they would be after other numbers of rounds."""

    def __init__(self, run: Run, plan: Plan, opening_s: float) -> None:
        self.plan, self.opening_s = plan, opening_s
        known = {point.id: point for point in run.points}
        sources = {id: known.get(point.inherited_from or "") for id, point in known.items()}
        self.known = {id: structs.replace(sources[id] or point, id=id) for id, point in known.items()}
        self.measured = {id for id, point in known.items() if point.status in MEASURED}
        self.noise: dict[str, list[float]] = defaultdict(list)
        for point in run.points:
            if point.status in MEASURED and len(point.flows[0].round_medians_s) > 2:
                self.noise[kind_of(point)] += around(point)
        self.chance = random.Random(1)
        self.points: dict[str, Point] = {}
        self.left_s = plan.budget_s or 0.0
        self.passes = 0

    def carry_out(self) -> Mapping[str, Point]:
        wanted: dict[str, int] = {}
        before: dict[str, Point] = {}  # records of points under way as they were
        while True:
            known = {id: point for id, point in self.points.items() if id not in wanted} | before
            for work in next_work(self.plan, known, self.left_s, self.underway(wanted)):
                wanted[work.id] = work.rounds
                if work.id in self.points:
                    before[work.id] = self.points[work.id]
                    self.points[work.id] = copy.deepcopy(before[work.id])
            ended: list[str] = []
            while wanted and not ended:
                self.left_s -= self.opening_s
                self.passes += 1
                for id in wanted:
                    self.take(id)
                ended = [id for id, rounds in wanted.items() if self.is_done(id, rounds)]
            for id in ended:
                self.settle(id)
                del wanted[id]
                before.pop(id, None)
            if not wanted and not ended:
                return self.points

    def underway(self, wanted: Mapping[str, int]) -> Underway:
        lacking = {id: rounds - len(self.medians(id)) for id, rounds in wanted.items()}
        return Underway(lacking, sum(self.each_s(id) * rounds for id, rounds in lacking.items()))

    def is_done(self, id: str, rounds: int) -> bool:
        point = self.points[id]
        return len(self.medians(id)) >= rounds or point.status not in MEASURED or "stopped" in point.guards

    def each_s(self, id: str) -> float:
        old = self.known.get(id)
        return old.device_s / len(old.flows[0].round_medians_s) if old and old.status in MEASURED else 0.0

    def medians(self, id: str) -> list[float]:
        point = self.points.get(id)
        return point.flows[0].round_medians_s if point and point.flows else []

    def take(self, id: str) -> None:
        """One round more, if there is time for it."""
        old = self.known.get(id)
        if old is None or old.status not in MEASURED:
            self.points[id] = old or structs.replace(next(iter(self.known.values())), id=id, status="skipped")
            return
        each_s = self.each_s(id)
        point = self.points.setdefault(id, blank(old))
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
        if point.status not in MEASURED or not medians:
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
    parser.add_argument("--opening", type=float, default=0.6, help="seconds of a pass slowdowns its points")
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
    mapped = [id for id in plan.points if found.get(id) is not None and found[id].status in MEASURED]
    print(f"\n{asked.budget - replay.left_s:.0f} s of {asked.budget:g} s, {replay.passes} passes;", end=" ")
    print(
        f"{len(mapped)} of {len(plan.points)} points of the map measured, then {len(replay.measured & {*plan.points})}."
    )


if __name__ == "__main__":
    main()
