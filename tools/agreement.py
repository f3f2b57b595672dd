"""Prints how far two runs of one machine agree, and their spread: the tables of docs/notes/repeatability.md.

Usage: python tools/agreement.py A.jsonl[.gz] B.jsonl[.gz]
       python tools/agreement.py A.txt[.gz] B.txt[.gz]     two outputs of nvbandwidth, cell by cell

Medians agree when they differ by at most the target precision: 1 % from 1 MiB, 5 % or two clock ticks below. The cells
of nvbandwidth are copies of 512 MiB, and latencies.
"""

import gzip
import re
import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.runfile import Point, read_run
from linkscope.stats import median

LARGE = 16 << 20
DISTURBED = {"pageable", "managed"}  # memory whose rates depend on CPU threads, including the driver's


def family(point: Point) -> str:
    text = f"{point.benchmark} {point.src_memory} -> {point.dst_memory}"
    return f"{text}, peer {point.params['peer']}" if "peer" in point.params else text


def overlap(one: Point, other: Point) -> bool:
    """Whether the two intervals overlap."""
    assert one.ci95_s and other.ci95_s
    return one.ci95_s[0] <= other.ci95_s[1] and other.ci95_s[0] <= one.ci95_s[1]


def relative_difference(one: Point, other: Point) -> float:
    """The difference of the medians as a fraction of the first."""
    assert one.median_s and other.median_s
    return abs(other.median_s / one.median_s - 1)


def agree(one: Point, other: Point) -> bool:
    """Whether the medians differ by at most the target precision."""
    return relative_difference(one, other) <= max(one.precision_target, other.precision_target)


def half_range(point: Point) -> float:
    """Half the range of the round medians, as a fraction of the point's median."""
    assert point.median_s
    medians = point.flows[0].round_medians_s
    return (max(medians) - min(medians)) / 2 / point.median_s


def grouped(pairs: list[tuple[Point, Point]]) -> list[tuple[str, list[tuple[Point, Point]]]]:
    groups = defaultdict(list)
    for pair in pairs:
        groups[family(pair[0])].append(pair)
    return sorted(groups.items())


def print_agreement(pairs: list[tuple[Point, Point]]) -> None:
    print("| family | points | intervals overlap | medians agree | median difference |\n|---|---|---|---|---|")
    measured = [pair for pair in pairs if all(point.status in ("ok", "missed_precision") for point in pair)]
    precise = [pair for pair in measured if all(point.status == "ok" for point in pair)]
    quiet = [pair for pair in measured if not DISTURBED & {pair[0].src_memory, pair[0].dst_memory}]
    last = [
        ("all", pairs),
        ("all measured in both", measured),
        ("of these, neither pageable nor managed memory", quiet),
        ("all within precision in both", precise),
    ]
    for name, members in [*grouped(pairs), *last]:
        if members:
            overlapping, agreeing = (sum(test(*pair) for pair in members) / len(members) for test in (overlap, agree))
            difference = median([relative_difference(*pair) for pair in members])
            print(f"| {name} | {len(members)} | {overlapping:.1%} | {agreeing:.1%} | {difference:.2%} |")


def print_spread(pairs: list[tuple[Point, Point]]) -> None:
    measured = [pair for pair in pairs if pair[0].status in ("ok", "missed_precision")]
    large = [pair for pair in measured if pair[0].bytes >= LARGE and pair[0].params.get("mode") == "batched"]
    print("| family, 16 MiB and above, batched | points | GB/s | spread of round medians: median, largest |")
    print("|---|---|---|---|")
    for bidirectional in (False, True):
        for name, members in grouped([pair for pair in large if pair[0].bidirectional == bidirectional]):
            points = [one for one, _ in members]
            rates = [point.gbps for point in points if point.gbps]
            spreads = [half_range(point) for point in points]
            shown = f"+-{median(spreads):.2%}, +-{max(spreads):.2%}"
            label = f"{name}, bidirectional" if bidirectional else name
            print(f"| {label} | {len(points)} | {min(rates):.1f} to {max(rates):.1f} | {shown} |")


def cells(path: Path) -> dict[str, float]:
    """Every cell that nvbandwidth printed, by its table and its number there."""
    data = path.read_bytes()
    found: dict[str, float] = {}
    table: list[float] = []
    for line in (gzip.decompress(data) if path.suffix == ".gz" else data).decode().splitlines():
        if row := re.fullmatch(r" *\d+((?: +(?:N/A|\d+\.\d+))+)", line):
            table += [float(cell) for cell in row[1].split() if cell != "N/A"]
        elif line.startswith("SUM "):
            found |= {f"{line.split()[1]} {at}": value for at, value in enumerate(table)}
            table = []
    return found


def print_cells(one: dict[str, float], other: dict[str, float]) -> None:
    print("| cells of nvbandwidth | | medians agree within 1 % | median difference |\n|---|---|---|---|")
    kinds = {"latencies": "latency", "by copy engine": "_ce", "by SM": "_sm", "all": ""}
    left = {name: abs(other[name] / one[name] - 1) for name in one if one[name] and name in other}
    for kind, part in kinds.items():
        of = [value for name, value in left.items() if part in name and (kind != "by SM" or "latency" not in name)]
        if of:
            print(f"| {kind} | {len(of)} | {sum(value <= 0.01 for value in of) / len(of):.1%} | {median(of):.2%} |")


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if all(".txt" in Path(path).suffixes for path in sys.argv[1:]):
        return print_cells(*(cells(Path(path)) for path in sys.argv[1:]))
    one, other = ({point.id: point for point in read_run(path).points} for path in sys.argv[1:])
    both = [(one[id], other[id]) for id in one if id in other]
    pairs = [pair for pair in both if all(point.ci95_s for point in pair)]
    print_agreement(pairs)
    print(f"\n{len(both) - len(pairs)} of {len(both)} points have no interval. Spread in the first run:\n")
    print_spread(pairs)


if __name__ == "__main__":
    main()
