"""Puts and gets between hosts by network cards, on models of Klenk et al.: a part of docs/notes/put-get-on-models.md.

tools/put_get_page.py writes the page. Every number is MODELLED, without noise.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from linkscope.machine import model as models
from linkscope.plan import case_of
from linkscope.run.simulate import quiet, simulation
from linkscope.run.target import modelled
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from linkscope.units import format_bytes, format_seconds

KIB, MIB = 1 << 10, 1 << 20
ENDS = ("host:0/gpu:0", "host:1/gpu:0")
MODES = ("direct", "notified", "host", "assisted")
SIZES = (4, 64, KIB, 2 * KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 64 * MIB)
COUNTS = (1, 2, 4, 8, 16, 32)
SMALL = 64  # bytes of a message of which rates are stated
WORD = 8  # bytes
ITERATIONS = 100  # of the paper's counters
# The queue of a mode: that of the paper's figures.
QUEUES = {
    "klenk-extoll": dict.fromkeys(MODES, "card"),
    "klenk-ib": {"direct": "own", "notified": "own", "host": "host", "assisted": "host"},
}
BELOW = 0.98  # the most of a ratio below 1
FITTED, PREDICTED, STATED = "fitted", "predicted", "stated"


@dataclass(frozen=True)
class Relation:
    """A relation of the paper: it holds if `value` lies from `least` to `most`.

    `basis`: 'fitted' (a constant of the machine file was chosen for it), 'stated' (the machine file states the paper's
    number itself) or 'predicted'.
    """

    text: str
    paper: str
    value: float
    least: float
    most: float
    basis: str

    @property
    def holds(self) -> bool:
        """Whether it holds on the model."""
        return self.least <= self.value <= self.most


class Pair:
    """One machine file of two hosts, with the times of its puts and gets. `gpu_post_us` replaces that of its file."""

    def __init__(self, name: str, gpu_post_us: float | None = None) -> None:
        self.name, self.queues = name, QUEUES[name]
        self._model = models.load(name)
        self._gpu_post_us = gpu_post_us

    def point(self, name: str, mode: str, size: int, **params: str) -> PointId:
        """A point of suite `putget` between the hosts."""
        of_row = {"control": mode, "queue": self.queues[mode], **params}
        if name == "post":
            del of_row["control"]
        return PointId(name, "nic", ENDS[0], "device", ENDS[1], "device", size, tuple(sorted(of_row.items())))

    @cached_property
    def trips(self) -> dict[str, dict[int, float]]:
        """Seconds of a round trip by mode and size."""
        return self._table({(mode, size): self.point("put_ping_pong", mode, size) for mode in MODES for size in SIZES})

    @cached_property
    def gets(self) -> dict[str, dict[int, float]]:
        """Seconds of one get by mode and size: the request there, and the payload back."""
        return self._table({(mode, size): self.point("get_ping_pong", mode, size) for mode in MODES for size in SIZES})

    @cached_property
    def streams(self) -> dict[str, dict[int, float]]:
        """Bytes a second of a stream by mode and size."""
        points = {(mode, size): self.point("put", mode, size, connections="1") for mode in MODES for size in SIZES}
        return {mode: {size: size / of[size] for size in of} for mode, of in self._table(points).items()}

    @cached_property
    def rates(self) -> dict[str, dict[int, float]]:
        """Messages of 64 B a second by mode and number of connections; mode 'kernels': a kernel for each block."""
        forms: dict[str, tuple[str, dict[str, str]]] = {mode: (mode, {}) for mode in MODES}
        forms |= {"kernels": ("direct", {"launch": "each"})}
        points = {
            (name, count): self.point("put", mode, SMALL, connections=str(count), **params)
            for name, (mode, params) in forms.items()
            for count in COUNTS
        }
        found = self.seconds(points)
        rates: dict[str, dict[int, float]] = {}
        for (name, count), seconds in found.items():
            rates.setdefault(name, {})[count] = sum(1 / one for one in seconds[:count])
        return rates

    @cached_property
    def post_s(self) -> float:
        """Seconds of a post by a GPU."""
        (seconds,) = self._table({("post", 0): self.point("post", "direct", 0)})["post"].values()
        return seconds

    def polls(self, mode: str, size: int) -> float:
        """The time in which a GPU polls over the time in which it posts, in a round trip."""
        return self.trips[mode][size] / self.post_s - 1

    def crossing(self) -> int:
        """The least size at which a GPU with notifications needs at most a tenth more than the host."""
        return next(size for size in SIZES if self.trips["notified"][size] < 1.1 * self.trips["host"][size])

    def fall(self, mode: str) -> float:
        """The rate of a stream of 64 MiB over that of 1 MiB."""
        return self.streams[mode][64 * MIB] / self.streams[mode][MIB]

    def counts(self, mode: str, queue: str) -> dict[tuple[str, str], int]:
        """What the first GPU accesses outside its own memory, and there, in a round trip: accesses of 64 bit by memory
        ('host', 'card' or 'own') and way ('read' or 'write')."""
        target = modelled(self._model, 1)
        worker = Worker(worker_command())
        worker.open(target.open_request)
        try:
            asked = self.point("put_ping_pong", mode, KIB, queue=queue)
            return accesses(worker.prepare(case_of(asked, target.facts), f"{asked}#0").program)
        finally:
            worker.kill()

    def _table(self, points: Mapping[tuple[str, int], PointId]) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for (mode, size), seconds in self.seconds(points).items():
            found.setdefault(mode, {})[size] = seconds[0]
        return found

    def seconds(self, points: Mapping[tuple[str, int], PointId]) -> dict[tuple[str, int], list[float]]:
        """Seconds of an operation of each flow. An assertion fails with the reasons of points that cannot run."""
        with simulation() as simulated:
            machine = quiet(self._model.to_json())
            if self._gpu_post_us is not None:
                machine["nic"][0]["gpu_post_us"] = self._gpu_post_us
            found = simulated.seconds(machine, list(points.values()))
        wrong = [seconds for seconds in found if isinstance(seconds, str)]
        assert not wrong, wrong
        return {key: one for key, one in zip(points, found, strict=True) if not isinstance(one, str)}


def accesses(program: str) -> dict[tuple[str, str], int]:
    """The accesses of 64 bit of the first host's GPU in one iteration of a program, by memory and way."""
    regions = dict(re.findall(r"^region (r\d+) (\S+?)\.", program, re.MULTILINE))
    found: dict[tuple[str, str], int] = {}

    def add(region: str, way: str, count: int) -> None:
        at = regions[region]
        memory = "card" if "nic" in at else "host" if "numa" in at else "own"
        found[memory, way] = found.get((memory, way), 0) + count

    (steps,) = re.findall(rf"^actor \S+ gpu_block {ENDS[0]} [^\n]*\n((?:  [^\n]*\n)*)", program, re.MULTILINE)
    for region, size in re.findall(
        r"loop set (r\d+)\[.*?\][^\n]*?(?:as a descriptor of (\d+) B|$)", steps, re.MULTILINE
    ):
        add(region, "write", int(size or WORD) // WORD)
    for region, pointer in re.findall(
        r"loop wait (r\d+)\[.*?\][^\n]*?(?:and take it by (r\d+)|$)", steps, re.MULTILINE
    ):
        notification = 2 if pointer else 1  # of 128 bit (KL-7)
        add(region, "read", notification)
        if pointer:
            add(region, "write", notification)  # freed
            add(pointer, "write", 1)
    return found


def relations(pair: Pair) -> list[Relation]:
    """The relations of KL-10 that concern a pair, with the model's values. Those of figures 1 to 3 are of EXTOLL."""
    trips = {mode: pair.trips[mode][4] for mode in MODES}
    falls = [
        Relation("GB/s of a stream of 1 MiB", "about 1", pair.streams["direct"][MIB] / 1e9, 0.8, 1.2, STATED),
        Relation("rate at 64 MiB over that at 1 MiB", "drops", pair.fall("direct"), 0, 0.9, STATED),
    ]
    twice = "time of a GPU that posts over the host's, 4 B"
    if pair.name == "klenk-ib":
        times = [Relation(twice, "about 2", trips["direct"] / trips["host"], 1.6, 2.4, FITTED)]
        return [*times, *falls, *_of_rates(pair)]
    helped = trips["direct"] / trips["assisted"]
    polls = {mode: {size: pair.polls(mode, size) for size in (4, 64 * MIB)} for mode in ("notified", "direct")}
    large = polls["notified"][64 * MIB] / polls["direct"][64 * MIB]
    times = [
        Relation(twice, "about 2", trips["notified"] / trips["host"], 1.6, 2.4, FITTED),
        Relation("polling GPU memory over the host's help, 4 B", "below 1", helped, 0, BELOW, FITTED),
        Relation("polling over posting, notifications, 4 B", "about 10", polls["notified"][4], 6, 15, PREDICTED),
        Relation("polling over posting, GPU memory, 4 B", "about 2.5", polls["direct"][4], 1.7, 3.7, PREDICTED),
        Relation("these two over each other, 64 MiB", "equal", large, 0.95, 1.05, PREDICTED),
        Relation("KiB from which the GPU needs the host's time", "2", pair.crossing() / KIB, 1, 4, PREDICTED),
    ]
    return [*times, *falls, *_of_rates(pair)]


def _of_rates(pair: Pair) -> list[Relation]:
    rates, extoll = pair.rates, pair.name == "klenk-extoll"
    gpu, kernels, host, helped = (rates[name] for name in ("direct", "kernels", "host", "assisted"))
    last = COUNTS[-1]
    found = [Relation("rate of 32 blocks over 32 kernels", "about 1", gpu[last] / kernels[last], 0.9, 1.1, PREDICTED)]
    if extoll:
        others = min(host[last], helped[last])
        found += [
            Relation("rate of 1 block over the host's", "below 1", gpu[1] / host[1], 0, BELOW, PREDICTED),
            Relation("rate of 32 blocks over the slower CPU mode", "below 1", gpu[last] / others, 0, BELOW, FITTED),
        ]
    else:
        found.append(
            Relation("rate of 32 blocks over the host's", "about 1", gpu[last] / host[last], 0.75, 1.33, FITTED)
        )
    flat = helped[last] / helped[4]
    return [*found, Relation("with help: rate of 32 connections over 4", "flat", flat, 0.9, 1.1, PREDICTED)]


def lines(pairs: Sequence[Pair]) -> Iterator[str]:
    """The tables: relations, counters, times, rates."""
    yield "\n| KL-10 | the paper | " + " | | ".join(pair.name for pair in pairs) + " | |"
    yield "|---|---|" + "--:|---|" * len(pairs)
    of_pairs = [{one.text: one for one in relations(pair)} for pair in pairs]
    for text in dict.fromkeys(text for of in of_pairs for text in of):
        paper = next(of[text].paper for of in of_pairs if text in of)
        cells = (_cells(of.get(text)) for of in of_pairs)
        yield f"| {text} | {paper} | {' | '.join(cells)} |"
    yield from _counters(pairs)
    yield from _posts()
    yield from _times(pairs)
    yield from _rates(pairs)


def _cells(one: Relation | None) -> str:
    if one is None:
        return "- | -"
    return f"{one.value:.3g} | {'holds' if one.holds else 'does not hold'}, {one.basis}"


# Reads and writes of system memory by the paper's GPUs in 100 iterations; its counters include writes to a card.
PAPERS = {
    ("klenk-extoll", "notified", "card"): ("KL-8, polls notifications", 4368, 2908),
    ("klenk-extoll", "direct", "card"): ("KL-8, polls GPU memory", 0, 303),
    ("klenk-ib", "direct", "host"): ("KL-9, queues in host memory", 772, 670),
    ("klenk-ib", "direct", "own"): ("KL-9, queues in GPU memory", 80, 316),
}


def system_accesses(pair: Pair, mode: str, queue: str) -> tuple[int, int]:
    """Reads and writes outside GPU memory in 100 iterations: of the host's memory, and writes to the card."""
    found = pair.counts(mode, queue)
    reads, writes = (
        ITERATIONS * sum(found.get((memory, way), 0) for memory in ("host", "card")) for way in ("read", "write")
    )
    return reads, writes


def _counters(pairs: Sequence[Pair]) -> Iterator[str]:
    yield "\n| 100 iterations | reads, the paper | reads, stated | writes, the paper | writes, stated |"
    yield "|---|--:|--:|--:|--:|"
    for (name, mode, queue), (text, reads, writes) in PAPERS.items():
        pair = next(pair for pair in pairs if pair.name == name)
        stated = system_accesses(pair, mode, queue)
        yield f"| {text} | {reads} | {stated[0]} | {writes} | {stated[1]} |"


def post_of_the_papers_polls() -> dict[str, float]:
    """Microseconds of a post by mode, so that KL-10's ratios of polling to posting hold: the polls last as long as the
    reads that the paper counted. A notification's two words are read together."""
    host_read = 2 * (0.5 + 0.05) + 0.09  # latencies of klenk-extoll: from GPU to host memory and back, and its load
    gpu_read = 0.6
    return {"notified": 4368 / 2 * host_read / ITERATIONS / 10, "direct": 1314 * gpu_read / ITERATIONS / 2.5}


def _posts() -> Iterator[str]:
    longer = round(sum(post_of_the_papers_polls().values()) / 2, 1)
    pairs = {"as in the file": Pair("klenk-extoll"), f"{longer} us": Pair("klenk-extoll", longer)}
    yield f"\n| KL-10 on klenk-extoll, 4 B | the paper | {' | '.join(f'a post {name}' for name in pairs)} |"
    yield "|---|---|--:|--:|"
    for cells in zip(*(relations(pair)[:4] for pair in pairs.values()), strict=True):
        values = (f"{one.value:.3g}, {'holds' if one.holds else 'does not hold'}" for one in cells)
        yield f"| {cells[0].text} | {cells[0].paper} | {' | '.join(values)} |"


def _times(pairs: Sequence[Pair]) -> Iterator[str]:
    for title, cell in (("Round trip of puts", _trip), ("Get", _get), ("Stream of puts, GB/s", _stream)):
        yield f"\n| {title} | " + " | ".join(f"{pair.name}: {mode}" for pair in pairs for mode in MODES) + " |"
        yield "|---|" + "--:|" * len(MODES) * len(pairs)
        for size in SIZES:
            yield f"| {format_bytes(size)} | {' | '.join(cell(pair, mode, size) for pair in pairs for mode in MODES)} |"


def _trip(pair: Pair, mode: str, size: int) -> str:
    return format_seconds(pair.trips[mode][size])


def _get(pair: Pair, mode: str, size: int) -> str:
    return format_seconds(pair.gets[mode][size])


def _stream(pair: Pair, mode: str, size: int) -> str:
    return f"{pair.streams[mode][size] / 1e9:.3g}"


def _rates(pairs: Sequence[Pair]) -> Iterator[str]:
    yield f"\n| 64 B, M/s | mode | {' | '.join(map(str, COUNTS))} |"
    yield "|---|---|" + "--:|" * len(COUNTS)
    for pair in pairs:
        for name, of in pair.rates.items():
            yield f"| {pair.name} | {name} | {' | '.join(f'{of[count] / 1e6:.3g}' for count in COUNTS)} |"
