"""Where the time of a measured run went: by kind of operation and size, and within a point in one round.

Usage: python tools/point_cost.py RUN.jsonl[.gz] [--by FIELD,FIELD,...] [--top 40]

Columns: points; rounds of a point; seconds of all; milliseconds of a point in one round, and how many of these were
memory (allocated, placed, filled), rehearsals, caches flushed, samples (with queueing and waiting), comparing, and the
pipe with the parent. Of runs whose points say `guards.spent` (docs/reference/run-file.md).
"""

import argparse
from collections import defaultdict
from pathlib import Path

from linkscope.runfile import Point, read_run

PARTS = ("memory_s", "rehearsals_s", "caches_s", "samples_s", "comparing_s")
SIZES = ((1 << 20, "< 1 MiB"), (16 << 20, "< 16 MiB"), (256 << 20, "< 256 MiB"))


def field(point: Point, name: str) -> str:
    if name == "size":
        return next((text for limit, text in SIZES if point.bytes < limit), "larger") if point.bytes else ""
    if name in ("benchmark", "engine", "src_memory", "dst_memory"):
        return str(getattr(point, name))
    return str(point.params.get(name, ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--by", default="benchmark,engine,mode,size", metavar="FIELDS")
    parser.add_argument("--top", type=int, default=40, metavar="N")
    arguments = parser.parse_args()
    names = arguments.by.split(",")
    groups: dict[tuple[str, ...], list[Point]] = defaultdict(list)
    for point in read_run(arguments.run).points:
        if "spent" in point.guards:
            groups[tuple(field(point, name) for name in names)].append(point)
    if not groups:
        raise SystemExit(f"{arguments.run}: no point says where its time went (guards.spent)")
    largest = sorted(groups.items(), key=lambda item: -seconds(item[1]))[: arguments.top]
    rows = [[*key, *cells(points)] for key, points in largest]
    everything = [point for points in groups.values() for point in points]
    rows.append(["all", *[""] * (len(names) - 1), *cells(everything)])
    heads = [*names, "points", "rounds", "s", "ms", *(part.removesuffix("_s") for part in PARTS), "pipe"]
    for row in (heads, ["---"] * len(heads), *rows):
        print(f"| {' | '.join(row)} |")


def seconds(points: list[Point]) -> float:
    return sum(point.device_s for point in points)


def cells(points: list[Point]) -> list[str]:
    rounds = sum(len(point.flows[0].round_medians_s) for point in points)
    parts = [sum(point.guards["spent"][part] for point in points) for part in PARTS]
    each = [seconds(points), *parts, seconds(points) - sum(parts)]
    return [
        str(len(points)), f"{rounds / len(points):.1f}", f"{seconds(points):.2f}",
        *(f"{1e3 * part / rounds:.1f}" for part in each),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
