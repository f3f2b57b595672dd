"""Prints how often `linkscope check` and `linkscope compare` are wrong: the tables of docs/notes/gate-evidence.md.

Usage: python tools/gate_proofs.py alarms [--splits 100]     false alarms, on the rounds of runs in results/
       python tools/gate_proofs.py nodes [--seeds 200]       false alarms, on whole simulated checks of healthy nodes
       python tools/gate_proofs.py detection [--seeds 20]    planted changes that simulated checks find, by their size

The rounds of a hardware run are split at random into two halves that `compare` takes for two runs. A simulated node has
another seed than its baseline, so it also differs by the noise between machines that its machine file states.
"""

import argparse
import copy
import dataclasses
import random
import re
import sys
import tempfile
from pathlib import Path

from linkscope.check import SUITE, Check, Reference, check
from linkscope.compare import compare
from linkscope.machine import model as models
from linkscope.plan import make_plan
from linkscope.run import StopFlag, benchmark_table, measure
from linkscope.run.target import modelled
from linkscope.runfile import Point, Run, read_run

ROOT = Path(__file__).resolve().parents[1]
RUNS = ("h100x1-standard-a", "h100x1-standard-c", "h100x1-standard-e", "h200x1-standard-f", "h200x2-standard-i",
        "h200x4-standard-a", "h200x4-standard-i")  # fmt: skip
MACHINE = "h200x4"
SIZES = (0.01, 0.02, 0.05, 0.10, 0.30)
# Name of a change: the link, the pair that is slow (all pairs for ""), and the factors of its rate.
CHANGES = {
    "host link of one GPU": ("pcie", "gpu:1", [1 - size for size in SIZES]),
    "NVLinks of one GPU": ("nvlink", "gpu:2", [1 - size for size in SIZES]),
    "x8 for x16, or one generation down": ("pcie", "gpu:1", [0.5]),
    "one NVLink of 18 missing": ("nvlink", "gpu:2", [17 / 18]),
}
_SPLIT = 6  # rounds: two halves of three


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


def halves(run: Run, chance: random.Random) -> tuple[Run, Run]:
    """Two runs with disjoint rounds of one run, of the points with at least six rounds and one measured flow."""
    sides: tuple[list[Point], list[Point]] = ([], [])
    for point in run.points:
        rounds = point.flows[0].round_medians_s if point.flows else []
        if len(rounds) < _SPLIT or len(point.flows) > 1 or point.status not in ("ok", "missed_precision"):
            continue
        order = chance.sample(rounds, _SPLIT)
        for side, of in zip(sides, (order[:3], order[3:]), strict=True):
            made = copy.deepcopy(point)
            made.flows[0].round_medians_s = of
            side.append(made)
    before, after = (dataclasses.replace(run, points=points) for points in sides)
    return before, after


def alarms(splits: int) -> None:
    """Comparisons of halves of healthy runs that show a change."""
    print("| run | decisions | comparisons | with a change |\n|---|---|---|---|")
    total = [0, 0, 0]
    for name in RUNS:
        run, chance = read_run(ROOT / "results" / f"{name}.jsonl.gz"), random.Random(name)
        found = [compare([before], [after]) for before, after in (halves(run, chance) for _ in range(splits))]
        counts = [sum(len(of.pairs) for of in found), splits, sum(bool(of.changed(noisy=True)) for of in found)]
        total = [before + more for before, more in zip(total, counts, strict=True)]
        print(f"| `{name}` | {counts[0]} | {counts[1]} | {counts[2]} |", flush=True)
    print(f"| all | {total[0]} | {total[1]} | {total[2]} |")


def baseline(folder: Path) -> Run:
    """A check's run of the healthy machine."""
    target = modelled(models.load(MACHINE), 1)
    path = folder / "baseline.jsonl"
    with StopFlag() as stop:
        measure(target, make_plan(target.facts, benchmark_table(), suite=SUITE, seed=1), path, stop=stop)
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
    parser.add_argument("what", choices=("alarms", "nodes", "detection"))
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--seeds", type=int)
    words = parser.parse_args()
    if words.what == "alarms":
        alarms(words.splits)
    elif words.what == "nodes":
        nodes(words.seeds or 200)
    else:
        detection(words.seeds or 20)


if __name__ == "__main__":
    sys.exit(main())
