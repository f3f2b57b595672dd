"""Compares the predictions of a model with the points of a measured run: the tables of docs/notes/prediction.md.

Usage: python tools/prediction.py RUN.jsonl[.gz] [--machine MODEL]

The model (default h200x2) is simulated at the ids of RUN, without noise, in one round. It gets as many GPUs as RUN has,
each like its last one. A difference is the model's time over the measured time, minus one.
"""

import argparse
import contextlib
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.machine import model as models
from linkscope.plan import make_plan
from linkscope.run import benchmark_table, measure
from linkscope.run.target import modelled
from linkscope.runfile import Point, read_run
from linkscope.stats import median
from linkscope.units import format_bytes

KIB, MIB = 1 << 10, 1 << 20
SHOWN = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
NEAR = 0.03

Differences = dict[str, dict[int, list[float]]]  # by row and size


def grown(model: models.Model, gpus: int) -> models.Model:
    """The model with that many GPUs; further ones are placed and linked like the last."""
    content = model.to_json()
    have = sum(len(places) for kind in content["gpu"] for places in kind["at"].values())
    for number in range(have, gpus):
        last, new = f"gpu:{number - 1}", f"gpu:{number}"
        homes = [places for kind in content["gpu"] for places in kind["at"].values()]
        groups = content["peer"]["groups"] if "peer" in content else []
        for members in (*homes, *groups, *(link["between"] for link in content["link"])):
            members += [_renamed(member, last, new) for member in members if last in member]
    return msgspec.convert(content, models.Model)


def _renamed(member: Any, last: str, new: str) -> Any:
    """A place, or the two ends of a link, with another number."""
    return new if member == last else [new if end == last else end for end in member]


def without_noise(model: models.Model) -> models.Model:
    content = model.to_json()
    content.pop("noise", None)
    content["costs"]["event_tick_ns"]["v"] = 0
    return msgspec.convert(content, models.Model)


def predicted(model: models.Model, ids: list[str]) -> dict[str, Point]:
    """The points of the model with these ids."""
    target = modelled(without_noise(model), seed=0)
    plan = make_plan(target.facts, benchmark_table(), only=ids, rounds=1, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.jsonl"
        measure(target, plan, path)
        return {point.id: point for point in read_run(path).points}


def row_of(point: Point) -> str:
    params = [f"{key} {point.params[key]}" for key in ("peer", "initiator", "blocks") if key in point.params]
    alone = "alone, after " + ("a kernel" if point.params.get("after") == "kernel" else "a wait")
    mode = [alone if "after" in point.params else "alone"] if point.params.get("mode") == "single" else []
    ways = ["bidirectional"] if point.bidirectional else []
    operation = f"{point.benchmark} by {point.engine}, {point.src_memory} -> {point.dst_memory}"
    return ", ".join([operation, *params, *mode, *ways])


def differences(measured: Point, model: Point) -> Iterator[float]:
    """The differences of each flow; for flows between one place and all GPUs, of their total."""
    if "all" in (measured.src.rpartition(":")[2], measured.dst.rpartition(":")[2]):
        if measured.total_gbps and model.total_gbps:
            yield measured.total_gbps / model.total_gbps - 1
        return
    for ours, theirs in zip(measured.flows, model.flows, strict=True):
        if ours.median_s and theirs.median_s:
            yield theirs.median_s / ours.median_s - 1


def compared(measured: list[Point], model: dict[str, Point]) -> Differences:
    found: Differences = defaultdict(lambda: defaultdict(list))
    for point in measured:
        found[row_of(point)][point.bytes] += differences(point, model[point.id])
    return {row: {size: all for size, all in sorted(of.items()) if all} for row, of in sorted(found.items())}


def cell(values: list[float] | None) -> str:
    """'+1.2 % (+1.9)': the median, and the largest difference."""
    if not values:
        return ""
    furthest = max(values, key=abs)
    return f"{median(values):+.1%} ({100 * furthest:+.1f})".replace("%", " %")


def print_by_size(found: Differences) -> None:
    sizes = [size for size in SHOWN if any(size in of for of in found.values())]
    sizes = sizes or sorted({size for of in found.values() for size in of})
    print(
        "| the model's time over the measured one: median (furthest) |", *(f"{format_bytes(size)} |" for size in sizes)
    )
    print("|---" * (1 + len(sizes)) + "|")
    for row, of in found.items():
        if any(size in of for size in sizes):
            print(f"| {row} | " + " | ".join(cell(of.get(size)) for size in sizes) + " |")


def print_within(found: Differences) -> None:
    """Prints all sizes of the run, also those that the other table leaves out."""
    heads = [f"below {format_bytes(MIB)}", f"{format_bytes(MIB)} and above"]
    print(
        "|",
        f"within {NEAR:.0%}".replace("%", " %"),
        "of the measured time |",
        *(f"{head} | furthest |" for head in heads),
    )
    print("|---" * (1 + 2 * len(heads)) + "|")
    for row, of in found.items():
        shown = []
        for least, below in ((0, MIB), (MIB, 1 << 60)):
            values = [value for size, all in of.items() if least <= size < below for value in all]
            near = sum(abs(value) <= NEAR for value in values)
            furthest = f"{max(values, key=abs):+.1%}".replace("%", " %") if values else ""
            shown += [f"{near} of {len(values)}" if values else "", furthest]
        print(f"| {row} | " + " | ".join(shown) + " |")


def main() -> None:
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("--machine", default="h200x2")
    arguments = parser.parse_args()
    run = read_run(arguments.run)
    measured = [point for point in run.points if point.bytes and point.median_s]
    gpus = sum(place.startswith("gpu:") for place in run.header.machine["places"])
    with contextlib.redirect_stdout(sys.stderr):  # progress of the run
        model = predicted(grown(models.load(arguments.machine), gpus), [point.id for point in measured])
    found = compared(measured, model)
    print_by_size(found)
    print()
    print_within(found)
    missing = [point.id for point in measured if model[point.id].median_s is None]
    if missing:
        print(
            f"\n{len(missing)} points that the model cannot predict, such as {missing[0]}: {model[missing[0]].reason}"
        )


if __name__ == "__main__":
    main()
