"""Prints how often `linkscope check` and `linkscope compare` are wrong: the tables of docs/notes/gate-evidence.md.

Usage: python tools/gate_proofs.py gate [--splits 20]        false alarms of checks, on the rounds of runs in results/
       python tools/gate_proofs.py alarms [--splits 20]      false alarms of comparisons, on the same rounds
       python tools/gate_proofs.py nodes [--seeds 200]       false alarms, on whole simulated checks of healthy nodes
       python tools/gate_proofs.py detection [--seeds 20]    planted changes that simulated checks find, by their size

`alarms` splits the rounds of a hardware run at random into two halves that `compare` takes for two runs. `gate` takes
an earlier run of the same machine as the reference, and the two halves of another run, or two further runs, as the
measurement and the second measurement of suspects. A simulated node has another seed than its baseline, so it also
differs by the noise between machines that its machine file states.
"""

import argparse
import copy
import dataclasses
import itertools
import random
import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from committed_runs import committed_run

from linkscope.check import SUITE, Check, Reference, Verdict, check, earlier_run
from linkscope.check.gate import judge
from linkscope.compare import compare
from linkscope.machine import model as models
from linkscope.model.rounds import rounds_of
from linkscope.plan import MachineFacts, make_plan
from linkscope.run import Controls, StopFlag, benchmark_table, measure
from linkscope.run.target import Target, modelled
from linkscope.runfile import Point, PointId, Run, read_run

ROOT = Path(__file__).resolve().parents[1]
RUNS = ("h200x1-standard-g", "h200x1-standard-h", "h200x1-standard-k", "h100x2-standard-b", "h200x4-standard-a",
        "h200x4-standard-i")  # fmt: skip
MACHINE = "h200x4"
SIZES = (0.01, 0.02, 0.05, 0.10, 0.30)
SAME_GPU = tuple(f"h200x1-standard-{letter}" for letter in "ghjk")  # four runs of one GPU
PAIRS = (
    ("h200x4-standard-a", "h200x4-standard-b"),
    ("h100x2-standard-a", "h100x2-standard-b"),
    ("h200x1-standard-e", "h200x1-standard-f"),
)  # two runs of one machine each
# Name of a change: the link, the pair that is slow (all pairs for ""), and the factors of its rate.
CHANGES = {
    "host link of one GPU": ("pcie", "gpu:1", [1 - size for size in SIZES]),
    "NVLinks of one GPU": ("nvlink", "gpu:2", [1 - size for size in SIZES]),
    "x8 for x16, or one generation down": ("pcie", "gpu:1", [0.5]),
    "one NVLink of 18 missing": ("nvlink", "gpu:2", [17 / 18]),
}
_SPLIT = 6  # rounds that are divided
_SMALLEST = 1 << 20  # bytes of a replayed copy


def slowed(text: str, link: str, pair: str, factor: float) -> str:
    """A machine file in which one pair of a link, such as "gpu:1", has a fraction of its rate in both directions."""
    tables = re.split(r"(?m)^(?=\[)", text)
    index = next(at for at, of in enumerate(tables) if of.startswith("[[link]]") and f'name = "{link}"' in of)
    line = next(line for line in tables[index].splitlines() if f'"{pair}"' in line and line.strip().startswith("["))
    slow = re.sub(r"between = \[.*?\n\]", f"between = [{line.strip().rstrip(',')}]", tables[index], flags=re.DOTALL)
    slow = slow.replace(f'name = "{link}"', f'name = "{link}-slow"')
    rate = re.compile(r"\nefficiency = \{ v = ([0-9.]+)")
    slow = rate.sub(lambda found: f"\nefficiency = {{ v = {float(found[1]) * factor:.8f}", slow, count=1)
    tables[index] = tables[index].replace(line + "\n", "")
    tables.insert(index + 1, slow)
    return "".join(tables)


def parts(run: Run, count: int, chance: random.Random) -> list[Run]:
    """Some runs with disjoint rounds of one run, of the points with at least six rounds and one measured flow."""
    sides: list[list[Point]] = [[] for _ in range(count)]
    for point in run.points:
        rounds = point.flows[0].round_medians_s if point.flows else []
        if len(rounds) < _SPLIT or len(point.flows) > 1 or point.status not in ("ok", "missed_precision"):
            continue
        order = chance.sample(rounds, _SPLIT)
        for number, side in enumerate(sides):
            made = copy.deepcopy(point)
            made.flows[0].round_medians_s = order[number::count]
            side.append(made)
    return [dataclasses.replace(run, points=points) for points in sides]


def alarms(splits: int) -> None:
    """Comparisons of halves of healthy runs that show a change."""
    print("| run | decisions | comparisons | with a change | with a judged change |\n|---|---|---|---|---|")
    total = [0, 0, 0, 0]
    for name in RUNS:
        run, chance = committed_run(name), random.Random(name)
        found = [compare([before], [after]) for before, after in (parts(run, 2, chance) for _ in range(splits))]
        changes = [sum(bool(of.changed(noisy=noisy)) for of in found) for noisy in (True, False)]
        counts = [sum(len(of.pairs) for of in found), splits, *changes]
        total = [before + more for before, more in zip(total, counts, strict=True)]
        print(f"| `{name}` | {' | '.join(map(str, counts))} |", flush=True)
    print(f"| all | {' | '.join(map(str, total))} |")


def replayed(reference: Run, first: Run, second: Run) -> tuple[Verdict, bool]:
    """The verdict of a check on the rounds of three runs, and whether it measured suspects again.

    Points that a run lacks are left out: the rules of physics are made for the points of suite `check` alone.
    """
    confirmed = []
    ids = set.intersection(
        *({point.id for point in of.points if rounds_of(point)} for of in (reference, first, second))
    )
    reference, first, second = (
        dataclasses.replace(of, points=[point for point in of.points if point.id in ids])
        for of in (reference, first, second)
    )

    def again(ids: Sequence[str]) -> Run:
        confirmed.append(ids)
        return dataclasses.replace(second, points=[point for point in second.points if not ids or point.id in ids])

    machine = first.header.machine
    facts = MachineFacts(machine["name"], False, tuple(machine["places"]))
    target = Target(facts, {}, lambda point: None, machine)
    against = earlier_run(reference, "reference", machine)
    return judge(Check(target, against, 60.0, 1), first, again), bool(confirmed)


def gate(splits: int) -> None:
    """Checks of replayed healthy rounds, with the confirmation of suspects, by verdict."""
    print("| runs | decisions | judged | checks | with suspects | inconclusive | fail |\n|---|---|---|---|---|---|---|")
    for names in PAIRS:
        runs = [kept(committed_run(name)) for name in names]
        chance, found = random.Random(names[0]), []
        for one, other in itertools.permutations(runs, 2):
            found += [replayed(one, *parts(other, 2, chance)) for _ in range(splits)]
        _print_checks(f"`{names[0]}`, `{names[1]}`: halves", found)
    runs = [kept(committed_run(name)) for name in SAME_GPU]
    found = [replayed(*three) for three in itertools.permutations(runs, 3)]
    _print_checks(f"`{SAME_GPU[0]}` to `-{SAME_GPU[-1][-1]}`: whole runs", found)


def kept(run: Run) -> Run:
    """A run with the operations of the check alone, copies at all sizes from 1 MiB.

    Fixed costs of small copies differ between processes (docs/notes/context-effects.md), so the check has none.
    """
    target = modelled(models.load(MACHINE), 1)
    plan = make_plan(target.facts, benchmark_table(), suite=SUITE, seed=1)
    wanted = {_operation(id) for id in plan.points}
    points = [point for point in run.points if _operation(point.id) in wanted and not 0 < point.bytes < _SMALLEST]
    return dataclasses.replace(run, points=points)


def _operation(id: str) -> str:
    """The id without places and size."""
    point = PointId.parse(id)
    return f"{point.benchmark}/{point.engine}/{point.src_memory}/{point.dst_memory}?{id.partition('?')[2]}"


def _print_checks(rounds: str, found: Sequence[tuple[Verdict, bool]]) -> None:
    pairs = [pair for verdict, _ in found if verdict.compared for pair in verdict.compared.pairs]
    statuses = [verdict.status for verdict, _ in found]
    cells = [len(pairs), sum(pair.judged for pair in pairs), len(found), sum(again for _, again in found),
             statuses.count("inconclusive"), statuses.count("fail")]  # fmt: skip
    print(f"| {rounds} | {' | '.join(map(str, cells))} |", flush=True)


def baseline(folder: Path) -> Run:
    """A check's run of the healthy machine."""
    target = modelled(models.load(MACHINE), 1)
    path = folder / "baseline.jsonl"
    plan = make_plan(target.facts, benchmark_table(), suite=SUITE, seed=1)
    with StopFlag() as stop:
        measure(target, plan, path, controls=Controls(stop=stop))
    return read_run(path)


def checked(reference: Run, machine: str, seed: int) -> str:
    """The status of a simulated check."""
    with tempfile.TemporaryDirectory() as folder, StopFlag() as stop:
        target = modelled(models.load(machine), seed)
        return check(Check(target, Reference("baseline", reference), 60.0, seed), Path(folder), stop).status


def nodes(seeds: int) -> None:
    """Checks of healthy nodes by status."""
    with tempfile.TemporaryDirectory() as folder:
        reference = baseline(Path(folder))
    found = [checked(reference, MACHINE, seed) for seed in range(2, 2 + seeds)]
    print({status: found.count(status) for status in sorted(set(found))})


def detection(seeds: int) -> None:
    """Planted changes that checks call a failure, in per cent."""
    print("| change | rate | found |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = baseline(folder)
        text = (ROOT / "machines" / f"{MACHINE}.toml").read_text()
        for what, (link, pair, factors) in CHANGES.items():
            for factor in factors:
                machine = folder / "changed.toml"
                machine.write_text(slowed(text, link, pair, factor))
                found = [checked(reference, str(machine), seed) for seed in range(2, 2 + seeds)]
                print(
                    f"| {what} | {100 * (factor - 1):+.3g} % | {100 * found.count('fail') / seeds:.0f} % |", flush=True
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("gate", "alarms", "nodes", "detection"))
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--seeds", type=int)
    words = parser.parse_args()
    if words.what == "gate":
        gate(words.splits)
    elif words.what == "alarms":
        alarms(words.splits)
    elif words.what == "nodes":
        nodes(words.seeds or 200)
    else:
        detection(words.seeds or 20)


if __name__ == "__main__":
    sys.exit(main())
