"""Tests which findings of Comm|Scope's paper (ICPE 2019, sections 5 and 6: CS-30 to CS-39) hold on a run's machine.

Usage: python tools/findings.py RUN.jsonl[.gz]   prints the tables of docs/notes/findings.md
       python tools/findings.py --points [--gpus 2]   prints the points that they need, as options of `linkscope run`

A finding holds, or does not hold, when the compared intervals do not overlap; otherwise the run cannot test it. A
finding about something that the machine lacks or hides, such as NUMA nodes, cannot be tested there either. A run of
suite `comm-scope` has its own form of each point: one copy at a time, of registered memory, on an idle stream.
"""

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from linkscope.model.curves import Estimate, rate_of, total_of
from linkscope.runfile import Point, read_run
from linkscope.units import format_bytes, format_rate_interval

KIB, MIB = 1 << 10, 1 << 20
CURVE = (4 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB)
BIDIRECTIONAL = (MIB, 16 * MIB, 64 * MIB)
MANAGED = (4 * KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)
ALIKE = 0.02  # rates that differ by less are the same
LARGE = 64 * MIB
VERY_LARGE = (1 << 30, 1 << 32)

H2D = "h2d/ce/numa:0.{memory}->gpu:0.device/{size}?after=kernel&bidirectional={both}&mode=batched"
HOT = "h2d/ce/numa:0.{memory}->gpu:0.device/{size}?after=kernel&bidirectional=false&cache=hot&mode=batched"
D2H = "d2h/ce/gpu:0.device->numa:0.{memory}/{size}?after=kernel&mode=batched"
H2H = "h2h/cpu/numa:0.pageable->numa:0.pinned/{size}?initiator=src&mode=batched"
D2D = (
    "d2d/ce/gpu:{src}.device->gpu:{dst}.device/{size}"
    "?after=kernel&bidirectional=false&call=memcpy&initiator=src&mode=batched&peer={peer}"
)
READ = "read/sm/numa:0.pinned->gpu:0.device/{size}?blocks=sms&threads=512"
WRITE = "write/sm/gpu:0.device->numa:0.pinned/{size}?blocks=sms&threads=512"
DEMAND = "demand/fault/numa:0.managed->gpu:0.managed/{size}?access=write"
DEMAND_BACK = "demand/fault/gpu:0.managed->numa:0.managed/{size}?access=write&bidirectional=false&threads={threads}"
PREFETCH = "prefetch/prefetch/numa:0.managed->gpu:0.managed/{size}?bidirectional=false"
PREFETCH_BACK = "prefetch/prefetch/gpu:0.managed->numa:0.managed/{size}"
LOCAL = "h2d/ce/numa:0.pinned->gpu:0.device/{size}?after=kernel&bidirectional=false&mode=batched"
THREADS = (1, 2, 4, 8, 16)


def of_suite(id: str) -> str:
    """The same point in suite `comm-scope`, whose hot caches are those of a thread that has just written the bytes."""
    head, _, params = id.partition("?")
    benchmark = head.partition("/")[0]
    values = dict(item.split("=") for item in params.split("&")) if params else {}
    if benchmark != "h2h":
        head = head.replace(".pinned", ".registered")
    if "mode" in values:
        values["mode"] = "single"
    if "after" in values:
        values["after"] = "wait"
    if values.get("cache") == "hot":
        values["cache"] = "written"
    if benchmark in ("read", "write"):
        values = {"blocks": "256", "threads": "256", "width": "4"}
    if values.get("peer") == "off":
        values["cpu"] = "numa:0"
    return f"{head}?{'&'.join(f'{name}={values[name]}' for name in sorted(values))}" if values else head


class Missing(Exception):
    """The run lacks points that a finding needs."""


class Rates:
    """GB/s by id in one run, and the ids that were requested. `gpus`: the places of the run's GPUs."""

    def __init__(self, points: list[Point]) -> None:
        self.points = {point.id: point for point in points}
        self.requested: dict[str, None] = {}
        places = {place for point in points for place in (point.src, point.dst)}
        self.gpus = sorted(place for place in places if place.startswith("gpu:"))

    def rate(self, form: str, size: int, *, total: bool = False, **fields: object) -> Estimate:
        id = form.format(size=size, **fields)
        self.requested[id] = None
        point = self.points.get(id) or self.points.get(of_suite(id))
        found = (total_of if total else rate_of)(point) if point else None
        if found is None:
            raise Missing(f"the run has no rate of {of_suite(id) if of_suite(id) in self.points else id}")
        return found

    def curve(self, form: str, sizes: tuple[int, ...], **fields: object) -> dict[int, Estimate]:
        return {size: self.rate(form, size, **fields) for size in sizes}


class AnyRate(Rates):
    """Has a rate for every id of two GPUs, so that the requested ids are those that the findings need."""

    def __init__(self) -> None:
        super().__init__([])
        self.gpus = ["gpu:0", "gpu:1"]

    def rate(self, form: str, size: int, *, total: bool = False, **fields: object) -> Estimate:
        self.requested[form.format(size=size, **fields)] = None
        return Estimate(1.0, 1.0, 1.0)


@dataclass(frozen=True)
class Verdict:
    """`holds` is None where intervals overlap. `head` and `rows` are the table of measured rates."""

    holds: bool | None
    finding: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]


def below(one: Estimate, other: Estimate) -> bool | None:
    """Whether one rate is lower than the other; None if their intervals overlap."""
    if one.high is not None and other.low is not None and one.high < other.low:
        return True
    if one.low is not None and other.high is not None and one.low > other.high:
        return False
    return None


def at_most(one: Estimate, other: Estimate) -> bool | None:
    """Whether one rate is at most the other; None if the rate is higher but the intervals overlap."""
    if one.value <= other.value * (1 + ALIKE):
        return True
    return False if below(other, one) else None


def all_of(answers: list[bool | None]) -> bool | None:
    return False if False in answers else None if None in answers else True


def ratio(one: Estimate, other: Estimate) -> Estimate:
    """The ratio of two rates; its ends are the widest that the two intervals allow."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return Estimate(one.value / other.value)
    return Estimate(one.value / other.value, one.low / other.high, one.high / other.low)


def gbps(rate: Estimate) -> str:
    return format_rate_interval(rate.value, rate.low, rate.high)


def times(found: Estimate) -> str:
    ends = f" ({found.low:.3g} to {found.high:.3g})" if found.low is not None and found.high is not None else ""
    return f"{found.value:.3g}{ends}"


def by_size(curves: list[dict[int, Estimate]]) -> list[tuple[str, ...]]:
    sizes = sorted(set().union(*curves))
    return [(format_bytes(size), *(gbps(of[size]) if size in of else "" for of in curves)) for size in sizes]


def pageable(rates: Rates) -> Verdict:
    sizes = CURVE[2:]
    to_gpu, to_pinned, pinned = (
        rates.curve(H2D, sizes, memory="pageable", both="false"),
        rates.curve(H2H, sizes),
        rates.curve(H2D, sizes, memory="pinned", both="false"),
    )
    not_above = [at_most(to_gpu[size], to_pinned[size]) for size in sizes]
    answers: list[bool | None] = [below(to_pinned[size], pinned[size]) for size in sizes]
    finding = (
        "a copy from pageable memory is not faster than memcpy to pinned memory, which is slower than a copy from there"
    )
    return Verdict(
        all_of([*answers, *not_above]),
        finding,
        ("size", "pageable to GPU", "pageable to pinned, by one CPU thread", "pinned to GPU"),
        by_size([to_gpu, to_pinned, pinned]),
    )


def bidirectional(rates: Rates) -> Verdict:
    rows, answers = [], []
    for memory, least, most in (("pinned", 1.8, 2.1), ("pageable", 1.0, 1.5)):
        for size in BIDIRECTIONAL:
            one, both = (
                rates.rate(H2D, size, memory=memory, both="false"),
                rates.rate(H2D, size, total=True, memory=memory, both="true"),
            )
            gain = ratio(both, one)
            rows.append((memory, format_bytes(size), gbps(one), gbps(both), times(gain)))
            inside = gain.low is not None and gain.high is not None and gain.high >= least and gain.low <= most
            if size == BIDIRECTIONAL[-1]:
                answers.append(inside)
    finding = (
        "bidirectional pinned copies have nearly twice the total rate, pageable ones only a little more (tested: 1.8 "
        "to 2.1 × and 1.0 to 1.5 × at 64 MiB)"
    )
    return Verdict(
        all_of(answers), finding, ("memory", "size", "unidirectional", "bidirectional, total", "ratio"), rows
    )


def peers(rates: Rates) -> Verdict:
    if len(rates.gpus) < 2:
        raise Missing("the machine has one GPU")
    sizes = CURVE[1:]
    on, off = (rates.curve(D2D, sizes, src=0, dst=1, peer=peer) for peer in ("on", "off"))
    host = rates.curve(H2D, sizes, memory="pinned", both="false")
    answers = [below(off[size], on[size]) for size in sizes] + [at_most(off[LARGE], host[LARGE])]
    finding = "without peer access a pair is slower, and no faster than the link to the host"
    return Verdict(all_of(answers), finding, ("size", "peer access on", "off", "host to GPU"), by_size([on, off, host]))


def pair_classes(rates: Rates) -> Verdict:
    pairs = list(permutations(rates.gpus, 2))
    found = {(src, dst): rates.rate(D2D, LARGE, src=src[4:], dst=dst[4:], peer="on") for src, dst in pairs}
    if len(rates.gpus) < 3:
        one = "the machine has one GPU" if len(rates.gpus) < 2 else "two GPUs are one pair"
        raise Missing(f"{one}; classes need three GPUs")
    values = sorted(found.values(), key=lambda rate: rate.value)
    classes = 1 + sum(after.value / before.value > 1 + 3 * ALIKE for before, after in pairwise(values))
    rows = [(f"{src} to {dst}", gbps(rate)) for (src, dst), rate in found.items()]
    return Verdict(
        classes > 1,
        f"pairs of GPUs fall into classes (four on its 4029GP); here {classes}",
        ("pair", "64 MiB, peer access on"),
        rows,
    )


def zero_copy(rates: Rates) -> Verdict:
    sizes = CURVE
    reads, there = rates.curve(READ, sizes), rates.curve(H2D, sizes, memory="pinned", both="false")
    writes, back = rates.curve(WRITE, sizes), rates.curve(D2H, sizes, memory="pinned")
    best = max(reads[size].value / there[size].value for size in sizes[2:5])
    very_large = {sizes[-1]: reads[sizes[-1]]}
    for size in VERY_LARGE:
        with contextlib.suppress(Missing):  # of suite `comm-scope`, where memory allows
            very_large[size] = rates.rate(READ, size)
    slowest = min(very_large, key=lambda size: very_large[size].value)
    drop = very_large[slowest].value / max(rate.value for rate in reads.values())
    finding = (
        "zero-copy is as fast as explicit copies at intermediate sizes and drops at very large ones (here: reads reach "
        f"{best:.0%} of a copy between 1 and 16 MiB, and {drop:.0%} of their own best at {format_bytes(slowest)})"
    )
    answers: list[bool | None] = [best > 1 - ALIKE, drop < 1 - ALIKE]
    return Verdict(
        all_of(answers),
        finding,
        ("size", "GPU reads host", "copy to GPU", "GPU writes host", "copy from GPU"),
        by_size([reads, there, writes, back]),
    )


def demand(rates: Rates) -> Verdict:
    sizes = MANAGED[2:]
    managed, copied = rates.curve(DEMAND, sizes), rates.curve(H2D, sizes, memory="pageable", both="false")
    back = [rates.curve(DEMAND_BACK, (LARGE,), threads=count)[LARGE] for count in THREADS]
    rows = by_size([managed, copied]) + [
        (f"64 MiB to the host, {count} threads", gbps(rate), "") for count, rate in zip(THREADS, back, strict=True)
    ]
    above = [below(copied[size], managed[size]) for size in sizes]
    exceeds = True if True in above else None if None in above else False
    best = max(back, key=lambda rate: rate.value)
    finding = (
        "migration on demand can be faster than a copy from pageable memory, and to the host it needs several threads"
    )
    return Verdict(
        all_of([exceeds, below(back[0], best)]),
        finding,
        ("size", "on demand to the GPU", "copy from pageable memory"),
        rows,
    )


def prefetch(rates: Rates) -> Verdict:
    there, copied = rates.curve(PREFETCH, MANAGED), rates.curve(H2D, MANAGED, memory="pinned", both="false")
    back, copied_back = rates.curve(PREFETCH_BACK, MANAGED), rates.curve(D2H, MANAGED, memory="pinned")
    large = ratio(there[MANAGED[-1]], copied[MANAGED[-1]])
    small = [ratio(there[size], copied[size]).value for size in MANAGED[:4]]
    finding = (
        "prefetched pages move as fast as a copy at large sizes, and far slower from 4 KiB to 32 MiB (here, to the "
        f"GPU: {large.value:.0%} of a copy at 256 MiB, {min(small):.1%} to {max(small):.0%} from 4 KiB to 16 MiB)"
    )
    answers: list[bool | None] = [large.value > 0.9, max(small) < 0.9]
    return Verdict(
        all_of(answers),
        finding,
        ("size", "prefetch to the GPU", "copy of pinned memory", "prefetch to the host", "copy to pinned memory"),
        by_size([there, copied, back, copied_back]),
    )


def cached(rates: Rates) -> Verdict:
    sizes = CURVE[:6]
    cold, hot = rates.curve(H2D, sizes, memory="pageable", both="false"), rates.curve(HOT, sizes, memory="pageable")
    peak = max(sizes, key=lambda size: hot[size].value)
    finding = (
        "a copy from pageable memory is fastest where the buffer fits the CPU's cache, and flushing the cache takes "
        f"that away (here: with hot caches fastest at {format_bytes(peak)}, {ratio(hot[peak], cold[peak]).value:.2g} "
        "× the flushed rate)"
    )
    answers = [below(hot[sizes[-1]], hot[peak]), below(cold[peak], hot[peak])]
    return Verdict(all_of(answers), finding, ("size", "caches flushed", "caches hot"), by_size([cold, hot]))


def locality(rates: Rates) -> Verdict:
    nodes = sorted({point.src for point in rates.points.values() if point.src.startswith("numa:")})
    if len(nodes) < 2:
        raise Missing("the machine shows one NUMA node")
    gpus = sorted(
        {point.dst for point in rates.points.values() if point.benchmark == "h2d" and point.dst.startswith("gpu:")}
    )
    rows, spread = [], []
    for gpu in gpus:
        form = f"h2d/ce/{{node}}.pinned->{gpu}.device/{{size}}?after=kernel&bidirectional=false&mode=batched"
        of_gpu = [rates.rate(form, LARGE, node=node) for node in nodes]
        rows.append((gpu, *map(gbps, of_gpu)))
        spread.append(below(min(of_gpu, key=lambda rate: rate.value), max(of_gpu, key=lambda rate: rate.value)))
    return Verdict(
        all_of(spread),
        "the NUMA node of host memory matters (much on AC922, little on S822LC and 4029GP)",
        ("GPU", *nodes),
        rows,
    )


def advice(rates: Rates) -> Verdict:
    """The gain of each advice that the machine can follow."""
    far = LOCAL.replace("numa:0", "numa:1")
    pairs = {
        "pin host memory": lambda: (
            rates.rate(H2D, LARGE, memory="pageable", both="false"),
            rates.rate(H2D, LARGE, memory="pinned", both="false"),
        ),
        "enable peer access": lambda: tuple(rates.rate(D2D, LARGE, src=0, dst=1, peer=peer) for peer in ("off", "on")),
        "touch managed memory by several threads": lambda: (
            rates.rate(DEMAND_BACK, LARGE, threads=1),
            max((rates.rate(DEMAND_BACK, LARGE, threads=count) for count in THREADS[1:]), key=lambda rate: rate.value),
        ),
        "use the GPU of the memory's node": lambda: (rates.rate(far, LARGE), rates.rate(LOCAL, LARGE)),
    }
    rows, answers = [], []
    for name, rates_of in pairs.items():
        try:
            without, followed = rates_of()
        except Missing as missing:
            rows.append((name, "", "", f"not testable: {missing}"))
            continue
        answers.append(below(without, followed))
        rows.append((name, gbps(without), gbps(followed), times(ratio(followed, without))))
    if not answers:
        raise Missing("no advice can be followed with these points")
    finding = f"each advice pays off (here: {answers.count(True)} of {len(answers)} that can be followed)"
    return Verdict(all_of(answers), finding, ("advice", "without", "with", "gain"), rows)


FINDINGS: dict[str, tuple[str, Callable[[Rates], Verdict]]] = {
    "CS-30": ("Pageable, staged and pinned copies", pageable),
    "CS-31": ("Bidirectional copies", bidirectional),
    "CS-32": ("Locality", locality),
    "CS-33": ("Peer access on and off", peers),
    "CS-34": ("Classes of pairs", pair_classes),
    "CS-35": ("Zero-copy and explicit copies", zero_copy),
    "CS-36": ("Migration on demand", demand),
    "CS-37": ("Prefetch and explicit copies", prefetch),
    "CS-38": ("Caches and pageable copies", cached),
    "CS-39": ("Advice", advice),
}


def tables(points: list[Point]) -> Iterator[str]:
    """The tables of the page, line by line: all verdicts, then the rates behind each."""
    rates = Rates(points)
    found: dict[str, Verdict | Missing] = {}
    for item, (_, finding) in FINDINGS.items():
        try:
            found[item] = finding(rates)
        except Missing as missing:
            found[item] = missing
    yield "| item | what the paper found | here |\n|---|---|---|"
    words = {True: "**holds**", False: "**does not hold**", None: "not testable: the intervals overlap"}
    for item, verdict in found.items():
        title = FINDINGS[item][0]
        if isinstance(verdict, Missing):
            yield f"| {item} | {title} | not testable: {verdict} |"
        else:
            yield f"| {item} | {title}: {verdict.finding} | {words[verdict.holds]} |"
    for item, verdict in found.items():
        if isinstance(verdict, Missing):
            continue
        yield f"\n## {item}: {FINDINGS[item][0]}\n\nGB/s.\n"
        yield f"| {' | '.join(verdict.head)} |\n|{'---|' * len(verdict.head)}"
        for row in verdict.rows:
            yield f"| {' | '.join(row)} |"


def needed(gpus: int) -> list[str]:
    """Ids of the points that the findings need on a machine with this many GPUs and one NUMA node."""
    rates = AnyRate()
    for _, finding in FINDINGS.values():
        with contextlib.suppress(Missing):  # not testable on such a machine
            finding(rates)
    there = {"numa:0", *(f"gpu:{gpu}" for gpu in range(gpus))}
    return [id for id in rates.requested if there.issuperset(re.findall(r"(?:numa|gpu):\d+", id))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?")
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--gpus", type=int, default=2)
    arguments = parser.parse_args()
    if arguments.points or not arguments.run:
        print("\n".join(f"--only {id}" for id in needed(arguments.gpus)))
        return
    for line in tables(read_run(arguments.run, rounds=False).points):
        print(line)


if __name__ == "__main__":
    main()
