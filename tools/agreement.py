"""How far two runs of one machine agree, and how much each spreads: the tables of docs/repeatability.md.

Usage: python tools/agreement.py A.jsonl[.gz] B.jsonl[.gz]
"""

import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.runfile import Point, read_run
from linkscope.stats import median

LARGE = 16 << 20


def family(point: Point) -> str:
    text = f"{point.benchmark} {point.src_memory} -> {point.dst_memory}"
    return f"{text}, peer {point.params['peer']}" if "peer" in point.params else text


def overlap(one: Point, other: Point) -> bool:
    """Whether the two intervals share a time."""
    assert one.ci95_s and other.ci95_s
    return one.ci95_s[0] <= other.ci95_s[1] and other.ci95_s[0] <= one.ci95_s[1]


def half_range(point: Point) -> float:
    """From the lowest to the highest round median, half of it, as a fraction of the median of the rounds."""
    assert point.median_s
    medians = point.flows[0].round_medians_s
    return (max(medians) - min(medians)) / 2 / point.median_s


def grouped(pairs: list[tuple[Point, Point]]) -> list[tuple[str, list[tuple[Point, Point]]]]:
    groups = defaultdict(list)
    for pair in pairs:
        groups[family(pair[0])].append(pair)
    return sorted(groups.items())


def print_agreement(pairs: list[tuple[Point, Point]]) -> None:
    print("| family | points | intervals overlap | median difference |\n|---|---|---|---|")
    for name, members in [*grouped(pairs), ("all", pairs)]:
        alike = sum(overlap(*pair) for pair in members) / len(members)
        apart = median([abs(a.median_s / b.median_s - 1) for a, b in members if a.median_s and b.median_s])
        print(f"| {name} | {len(members)} | {alike:.1%} | {apart:.2%} |")


def print_spread(pairs: list[tuple[Point, Point]]) -> None:
    large = [pair for pair in pairs if pair[0].bytes >= LARGE and pair[0].params.get("mode") == "batched"]
    print("| family, 16 MiB and above, in a batch | points | GB/s | spread of round medians: middle, largest |")
    print("|---|---|---|---|")
    for ways in (False, True):
        for name, members in grouped([pair for pair in large if pair[0].bidirectional == ways]):
            points = [one for one, _ in members]
            rates = [point.gbps for point in points if point.gbps]
            spreads = [half_range(point) for point in points]
            shown = f"+-{median(spreads):.2%}, +-{max(spreads):.2%}"
            label = f"{name}, both ways" if ways else name
            print(f"| {label} | {len(points)} | {min(rates):.1f} to {max(rates):.1f} | {shown} |")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    one, other = ({point.id: point for point in read_run(path).points} for path in sys.argv[1:])
    both = [(one[id], other[id]) for id in one if id in other]
    pairs = [pair for pair in both if all(point.ci95_s for point in pair)]
    print_agreement(pairs)
    print(f"\n{len(both) - len(pairs)} of {len(both)} points have no interval. Spread in the first run:\n")
    print_spread(pairs)


if __name__ == "__main__":
    main()
