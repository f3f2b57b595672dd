"""What an operation alone costs after idling, and in which modes: tables of docs/notes/single-copies.md, from a run
of suite `full`.

Usage: python tools/alone.py RUN.jsonl[.gz]

After idling: medians, and their intervals, by the host's clock, of 4 KiB. Modes: of 4 KiB between GPUs, all pairs and
rounds, in which share of the samples one copy alone took how long.
"""

import sys
from collections import defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.runfile import Point, Run, read_run

GAPS = ("0", "0.0001", "0.001", "0.01", "0.1")
SIZE = 4096
OTHERS = {"after": "kernel", "call": "memcpy", "peer": "on", "initiator": "src", "bidirectional": "false"}
MEMORIES = {"pinned", "device", "pageable"}
EDGES_US = (0, 5, 11, 15, 20, 30, 50, 80)  # between the modes seen
LEAST = 0.02  # of the samples: what is rarer is left out


def idling(run: Run) -> list[str]:
    """A row an operation, a column a gap."""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for point in run.points:
        by_host = point.engine == "cpu" or (point.engine, point.params.get("clock")) == ("ce", "host")
        plain = OTHERS.items() <= (OTHERS | point.params).items() and point.bytes in (0, SIZE)
        plain = plain and {point.src_memory, point.dst_memory} <= MEMORIES
        if point.median_s and point.params.get("mode") == "single" and by_host and plain:
            name = f"`{point.benchmark}` {point.src} -> {point.dst}"
            low, high = point.ci95_s or (point.median_s, point.median_s)
            text = f"{1e6 * point.median_s:.1f} [{1e6 * low:.1f}, {1e6 * high:.1f}]"
            rows[name][point.params.get("idle_gap_s", "0")] = text
    lines = [f"| us | {' | '.join(f'{1e3 * float(gap):g} ms' for gap in GAPS)} |", "|---" * (1 + len(GAPS)) + "|"]
    full = {name: of for name, of in sorted(rows.items()) if set(GAPS) <= of.keys()}
    return lines + [f"| {name} | {' | '.join(of[gap] for gap in GAPS)} |" for name, of in full.items()]


def modes(run: Run) -> list[str]:
    """A row for who queues the copy, after what, and peer access; the shares of the samples in a cell."""
    samples: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for point in run.points:
        if (point.benchmark, point.engine, point.bytes, point.bidirectional) != ("d2d", "ce", SIZE, False):
            continue
        given = {name: point.params.get(name, "") for name in ("mode", "initiator", "after", "peer", "call", "clock")}
        ours = given["mode"] == "single" and given["call"] == "memcpy" and given["clock"] != "host"
        if ours and "idle_gap_s" not in point.params and point.src_memory == point.dst_memory == "device":
            key = (given["initiator"], given["after"], given["peer"])
            samples[key] += [1e6 * each for each in all_samples(point)]
    lines = ["| queued by, after, peer access | samples | us: share of them |", "|---|---|---|"]
    return lines + [f"| {', '.join(key)} | {len(of)} | {shares(of)} |" for key, of in sorted(samples.items())]


def all_samples(point: Point) -> list[float]:
    return [each for flow in point.flows for of_round in flow.samples_s for each in of_round]


def shares(samples_us: list[float]) -> str:
    told = []
    for low, high in zip(EDGES_US, (*EDGES_US[1:], float("inf")), strict=True):
        within = sorted(each for each in samples_us if low <= each < high)
        if len(within) >= LEAST * len(samples_us):
            told.append(f"{within[len(within) // 2]:.1f}: {len(within) / len(samples_us):.0%}")
    return ", ".join(told)


def main() -> None:
    run = read_run(sys.argv[1])
    print("\n".join([*idling(run), "", *modes(run)]))


if __name__ == "__main__":
    main()
