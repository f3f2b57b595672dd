"""Checks the planner on modelled machines (docs/notes/planner-evidence.md).

Usage: python tools/planner_proofs.py growth | links [--times N] | agreement [--machine NAME] | interference
       python tools/planner_proofs.py intervals [--machine NAME] [--times N] | coverage | oracle | alarms

growth: points and time on 1 to 16 H200s, and the exponents. links: planted links that are 5 % to 30 % slower on every
bundled machine, and the number that `standard` and `quick` name. interference: shared links found by `standard` against
those that follow from the machine file. agreement: medians of `standard` against an exhaustive sweep, and interpolated
values. intervals: coverage of intervals of drawn points. coverage, oracle: coverage and cost for noise of known shapes
(rounds.py). alarms: false alarms (alarms.py).
"""

import argparse
import dataclasses
import itertools
import math
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

import alarms
import rounds
from msgspec import structs
from true_shares import truth_of

from linkscope.advise.methods import at
from linkscope.machine import model as models
from linkscope.machine.model_paths import routes
from linkscope.model.cliffs import breaks
from linkscope.model.curves import curves
from linkscope.model.interference import interference
from linkscope.model.slow_paths import slow_paths
from linkscope.plan import Plan, budget_of_its_own, expected_ids, make_plan
from linkscope.plan.classes import class_curves, operation, path_text
from linkscope.run import benchmark_table, measure
from linkscope.run.target import Target, modelled
from linkscope.runfile import Point, PointId, Run, read_run
from linkscope.stats import median

TABLE = benchmark_table()
TRUTH_ROUNDS = 60
BUDGETS = {"standard": 110.0, "quick": 16.0}


def sixteen() -> models.Model:
    """Sixteen H200s, from the file of eight. The second eight have uplinks like those of the first."""
    lines = []
    for line in models.bundled()["h200x8"].read_text(encoding="utf-8").splitlines():
        lines.append(doubled_list(line) if line.count("gpu:") > 2 else line)
        if re.fullmatch(r"  \[.*gpu:\d.*\],", line):
            lines.append(re.sub(r"gpu:(\d)", lambda found: f"gpu:{int(found[1]) + 8}", line))
    return models.parse("\n".join(lines).replace('name = "h200x8"', 'name = "h200x16"'), "h200x16")


def doubled_list(line: str) -> str:
    listed = re.findall(r'"gpu:\d"', line)
    return line.replace(", ".join(listed), ", ".join(f'"gpu:{n}"' for n in range(2 * len(listed))))


def plan_of(target: Target, suite: str, budget_s: float | None = None) -> Plan:
    plan = make_plan(target.facts, TABLE, suite=suite, budget_s=budget_s or BUDGETS[suite])
    return plan if budget_s else structs.replace(plan, budget_s=budget_of_its_own(plan, target.facts))


def run_of(target: Target, plan: Plan) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        measure(target, plan, path)
        return read_run(path)


def is_measured(point: Point) -> bool:
    return point.status in ("ok", "missed_precision")


# --- growth ---


def growth() -> None:
    machines = {n: models.load(f"h200x{n}") for n in (1, 2, 4, 8)} | {16: sixteen()}
    print("| GPUs | points of the map | measured in any case | measured | inherited | modelled time | wall time here |")
    print("|---|---|---|---|---|---|---|")
    seen: dict[str, list[tuple[int, float]]] = {"points": [], "measured in any case": [], "time": []}
    for count, model in machines.items():
        target = modelled(model, 1)
        plan = plan_of(target, "standard")
        started = time.monotonic()
        run = run_of(target, plan)
        wall = time.monotonic() - started
        spent = sum(one.device_s for of in run.rounds.values() for one in of)
        sure = len(expected_ids(plan)[0])
        taken = sum(point.status == "inherited" for point in run.points)
        mine = sum(map(is_measured, run.points))
        cells = (count, len(plan.points), sure, mine, taken, f"{spent:.1f} s", f"{wall:.0f} s")
        print("|", " | ".join(map(str, cells)), "|", flush=True)
        for name, value in (("points", len(plan.points)), ("measured in any case", sure), ("time", spent)):
            seen[name].append((count, value))
    for name, values in seen.items():
        print(f"{name} grow with the number of GPUs to the power of {exponent(values):.2f}")


def exponent(values: Iterable[tuple[int, float]]) -> float:
    """The exponent of a power law, by least squares of logarithms."""
    logs = [(math.log(count), math.log(value)) for count, value in values]
    x, y = (sum(of) / len(logs) for of in zip(*logs, strict=True))
    return sum((a - x) * (b - y) for a, b in logs) / sum((a - x) ** 2 for a, _ in logs)


# --- slow links ---


def links(times: int) -> None:
    print("| machine | suite | links planted | named | paths named wrongly | named on a healthy machine |")
    print("|---|---|---|---|---|---|")
    for name in sorted(models.bundled()):
        model = models.load(name)
        if len(models.places(model).gpus) < 3:
            continue
        for suite in BUDGETS:
            chance = random.Random(f"{name} {suite}")
            named = wrongly = planted = 0
            for link in chance.sample(list(limiting(model)), k=min(times, len(list(limiting(model))))):
                factor = chance.uniform(0.70, 0.95)
                fault = models.parse(text_with(name, link, factor), name).fault
                target = modelled(structs.replace(model, fault=fault), chance.randrange(1000))
                found = {odd.path for odd in slow_paths(run_of(target, plan_of(target, suite)))}
                over = paths_over(model, link)
                planted += 1
                named += bool(found & over)
                wrongly += len(found - over)
            target = modelled(model, 7)
            plain = len(slow_paths(run_of(target, plan_of(target, suite))))
            print(f"| {name} | {suite} | {planted} | {named} | {wrongly} | {plain} |", flush=True)


def limiting(model: models.Model) -> Iterator[str]:
    """Directed links that limit a path in a class of several paths."""
    target = modelled(model, 1)
    kinds = target.facts.kinds()
    counts = {kind: list(kinds.values()).count(kind) for kind in kinds.values()}
    found = {}
    for (src, dst), way in routes(model).items():
        if src == dst or "gpu:" not in src + dst or counts.get(kinds.get((src, dst), ""), 0) < 3 or not way:
            continue
        narrow = min(way, key=lambda link: link.gbps)
        over = paths_over(model, narrow.name)
        kind = kinds[src, dst]
        # A link that all paths of a class use slows all of them, so no comparison within the machine shows it.
        if sum(f"{a}->{b}" in over for (a, b), of in kinds.items() if of == kind) * 3 <= counts[kind]:
            found[narrow.name] = None
    yield from found


def paths_over(model: models.Model, link: str) -> set[str]:
    """The paths that use a link, also through the host."""
    ways = routes(model)
    near = models.places(model).gpu_numa
    found = {f"{src}->{dst}" for (src, dst), way in ways.items() if link in [one.name for one in way]}
    for src, of_src in near.items():
        for dst, of_dst in near.items():
            for host in {of_src, of_dst}:
                if src != dst and link in [one.name for one in ways[src, host] + ways[host, dst]]:
                    found.add(f"{src}->{dst}")
    ends = {end for path in found for end in path.split("->") if "gpu:" in end}
    found |= {f"{end}->{other}" for end in ends for other in (*near, "gpu:all")}
    return found | {f"gpu:all->{end}" for end in ends}


def text_with(name: str, link: str, factor: float) -> str:
    text = models.bundled()[name].read_text(encoding="utf-8")
    return f'{text}\n[[fault]]\nkind = "slow"\nfactor = {factor}\nlinks = ["{link}"]\n'


# --- interference ---


def shared(names: Iterable[str]) -> None:
    print("| machine | sets measured | modelled time of these | groups by the links | found | furthest capacity |")
    print("|---|---|---|---|---|---|")
    for name in names:
        model = models.load(name)
        target = modelled(model, 1)
        points = run_of(target, plan_of(target, "standard")).points
        found = interference(points)
        groups = {frozenset(group.paths): group.capacity.value for group in found.groups}
        true = truth_of(model).groups(map(list, found.ids))
        wrong = len(groups.keys() ^ true.keys())
        alike = f"{len(groups)}, {wrong} wrong or missing" if wrong else "the same"
        off = max([abs(gbps / true[paths] - 1) for paths, gbps in groups.items() if paths in true], default=0.0)
        took = sum(point.device_s for point in points if point.id in set(found.ids.values()))
        print(f"| {name} | {len(found.ids)} | {took:.2f} s | {len(true)} | {alike} | {off:.1%} |", flush=True)


# --- agreement ---


def agreement(name: str) -> None:
    target, other = (modelled(models.load(name), seed) for seed in (1, 2))  # with independent noise
    plan = plan_of(target, "standard")
    staged = run_of(target, plan)
    ours = [point for point in staged.points if is_measured(point)]
    sweep = run_of(other, make_plan(target.facts, TABLE, only=[point.id for point in ours]))
    every = {point.id: point for point in sweep.points if point.status == "ok"}
    apart = [
        (point.bytes, abs(point.median_s / every[point.id].median_s - 1))
        for point in ours
        if point.status == "ok" and point.id in every
    ]
    for kind, asked, of in (
        ("1 MiB and more", 0.01, [error for size, error in apart if size >= 1 << 20]),
        ("smaller", 0.05, [error for size, error in apart if size < 1 << 20]),
    ):
        near = " and ".join(f"{sum(error <= most for error in of) / len(of):.1%} within {most:.0%}"
                            for most in sorted({0.01, asked}))  # fmt: skip
        print(f"{name}, {kind}: of the medians of {len(of)} points precise in both {near} of the exhaustive "
              f"sweep's, the median {median(of):.2%}, the largest {max(of):.1%}")  # fmt: skip
    errors, across = interpolated(staged, other, plan)
    near = sum(error <= 0.03 for error in errors) / len(errors)
    print(f"interpolated at sizes between: {near:.1%} of {len(errors)} within 3 % of the median of {TRUTH_ROUNDS} "
          f"rounds, the median {median(errors):.2%}, the largest {max(errors):.1%}; {across} intervals are breaks, "
          "where nothing is drawn")  # fmt: skip


def interpolated(run: Run, target: Target, plan: Plan) -> tuple[list[float], int]:
    """Errors of values that `advise` interpolates between neighbouring sizes, against many rounds, and the number of
    breaks, which are left out."""
    listed = class_curves(plan.points, plan.classes, plan.order_seed)
    leading = {operation(PointId.parse(of.id_of(of.representative, 8))) + of.representative for of in listed}
    asked: dict[str, float] = {}
    broken = 0
    for curve in curves(point for point in run.points if is_measured(point) and point.bytes >= 8):
        what = PointId.parse(curve.points[0].id)
        if operation(what) + path_text(what) not in leading or len(curve.measured) < 8:
            continue
        broken += len(breaks(curve.measured))
        for small, large in itertools.pairwise(curve.measured):
            between = round(math.sqrt(small.bytes * large.bytes)) // 8 * 8
            found = at(curve.measured, between) if small.bytes < between < large.bytes else None
            if found:
                asked[of_size(small.id, between)] = found[0].value
    truth = run_of(target, make_plan(target.facts, TABLE, only=list(asked), rounds=TRUTH_ROUNDS))
    return [abs(asked[p.id] / p.median_s - 1) for p in truth.points if p.median_s and p.status == "ok"], broken


def of_size(id: str, size: int) -> str:
    return str(dataclasses.replace(PointId.parse(id), bytes=size))


# --- intervals ---


def intervals(name: str, times: int) -> None:
    """Coverage of the median of TRUTH_ROUNDS rounds by the intervals of points drawn from `standard`."""
    target = modelled(models.load(name), 1)
    staged = run_of(target, plan_of(target, "standard"))
    points = [point for point in staged.points if point.ci95_s and (is_measured(point) or point.status == "inherited")]
    chosen = {point.id: point for point in random.Random(name).sample(points, k=min(times, len(points)))}
    truth = run_of(target, make_plan(target.facts, TABLE, only=list(chosen), rounds=TRUTH_ROUNDS))
    print("| points of | | intervals cover |\n|---|---|---|")
    pairs = [(chosen[of.id], of.median_s) for of in truth.points if of.median_s and of.id in chosen]
    for kind in ("ok", "missed_precision", "inherited", ""):
        covers = [point.ci95_s[0] <= value <= point.ci95_s[1] for point, value in pairs if kind in ("", point.status)]
        if covers:
            print(f"| {name}, {kind or 'all'} | {len(covers)} | {sum(covers) / len(covers):.1%} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=("growth", "links", "interference", "agreement", "intervals", "coverage", "oracle", "alarms")
    )
    parser.add_argument(
        "--times", type=int, help="links of a machine (6), points (400), draws (10,000; oracle 2000; paths: 12,000)"
    )
    parser.add_argument("--machine")
    asked = parser.parse_args()
    if asked.what == "growth":
        growth()
    elif asked.what == "links":
        links(asked.times or 6)
    elif asked.what == "interference":
        shared([asked.machine] if asked.machine else models.bundled())
    elif asked.what == "intervals":
        intervals(asked.machine or "h200x4", asked.times or 400)
    elif asked.what in ("coverage", "oracle"):
        drawn, times = (rounds.coverage, 10_000) if asked.what == "coverage" else (rounds.costs, 2000)
        for line in drawn(asked.times or times):
            print(line, flush=True)
    elif asked.what == "alarms":
        for line in alarms.table(asked.times or 12_000):
            print(line, flush=True)
    else:
        agreement(asked.machine or "h200x4")


if __name__ == "__main__":
    main()
