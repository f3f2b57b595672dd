"""Writes docs/notes/put-get-on-models.md: what a post and a poll cost, and the relations of Klenk et al. on models.

Usage: .venv/bin/python tools/put_get_page.py     (MODELLED, without noise; needs nvdisasm, as tools/instructions.py)
"""

import pathlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import instructions
import put_get_cards as cards

from linkscope.machine import model as models
from linkscope.plan import case_of
from linkscope.run.simulate import quiet, simulation
from linkscope.run.target import modelled
from linkscope.run.worker import Worker, worker_command
from linkscope.runfile import PointId
from linkscope.units import format_bytes, format_seconds

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "notes" / "put-get-on-models.md"
KIB, MIB = 1 << 10, 1 << 20
SIZES = (8, KIB, 64 * KIB, MIB, 64 * MIB)
SECTOR = 32  # bytes, the unit of the paper's counters
ITERATIONS = 100  # of the paper's counters
MODES = {"direct": "sm", "notified": "sm", "host": "ce", "assisted": "ce"}
PATHS = {"h200x2": ("gpu:0", "gpu:1")}
HEAD = """# Posts and polls: instructions, accesses, and the relations of Klenk et al. on models

<!-- Made by tools/put_get_page.py: change that. -->

**Question.** What does a GPU spend on a post and on a poll, and which relations of the paper (KL-6, KL-8 to KL-10) do
the models show?

**Answer.** A post of a put takes about a sixth of the paper's instructions, and a successful poll about a quarter.
Words in GPU memory keep the host link free, as in the paper. Between the paper's hosts a GPU that posts to a network
card needs 1.8 times the host's time, and the rates of messages have the paper's order. The ratios of polling to posting
and the size of 2 KiB do not come out. Between GPUs of a host, without a card, a GPU is faster than the host.

**Command.** `.venv/bin/python tools/put_get_page.py`.

## Instructions

Counted from the machine code, without a GPU: the longest path that succeeds, in a kernel that posts or polls once,
with loading and storing of its state. Loads, stores and fences are those of the newest architecture. The paper
counted 442 instructions for a post and 283 for a successful poll.
"""
ACCESSES = """
## Accesses that the program states

What the GPUs of a round trip of 1 KiB access, for 100 iterations. Words count one access of at most 32 B each, and a
successful poll one read: the simulation states no polls in vain. The payload counts sectors of 32 B. In the paper a
card moves the payload. `tools/put_get_counters.py` counts the same on a GPU, through Nsight Compute.

| mode | words: host memory | own memory | another GPU | payload: own memory | another GPU |
|---|---|---|---|---|---|"""
PAPER = """
The paper counted for 100 iterations (KL-8): 4368 reads and 2908 writes of system memory where the GPU polls
notifications there, 0 and 303 where it polls its own memory. The kinds agree: no reads of host memory, and polls of
the GPU's own memory instead. The ratios differ. The paper needs 44 reads and 29 writes an iteration: its counters
include polls in vain, and its notifications are 128 bits in queues that the GPU must free. A word here needs one of
each, and the write of a word is the post.

A put to a network card by `core/putget/verbs.hpp`, with its completion, reads the queues twice and writes them seven
times, if they lie in host memory; if they lie in GPU memory, only the write of the doorbell crosses the link
(tests/core/test_verbs.cpp counts both). The paper's InfiniBand queues cost 7.7 reads and 6.7 writes an iteration on
the host, and 0.8 and 3.2 on the GPU (KL-9)."""
BETWEEN_HOSTS = """
## Between the paper's hosts (MODELLED)

Suite `putget` by engine `nic` on machines/klenk-extoll.toml and klenk-ib.toml. *Direct*: a GPU posts, and polls the
last word of the payload in its memory. *Notified*: it takes the card's notifications, from host memory (klenk-extoll)
or its own (klenk-ib). *Host*: a CPU thread does. *Assisted*: a CPU thread does on the request of a GPU.

*Fitted*: a constant was chosen for the relation. An instruction of a GPU thread takes 5 ns, chosen for two relations;
the paper's counts of instructions give the times of posts and notifications. `gpu_message_us` of klenk-extoll is
chosen for the third. The times in which the cards' users take notifications were changed while the other two were in
view, so these count as fitted. *Stated*: the file has the paper's number itself. *Predicted*: neither; the CPU's
times, the latencies and `message_us` are assumed, so the paper's absolute times are not compared. "About 2" holds from
1.6 to 2.4, "about 10" from 6 to 15, "about 2.5" from 1.7 to 3.7, "2" from 1 to 4, and "below 1" up to 0.98. The GPU
needs the host's time where it needs at most a tenth more.

The counters of a model are the accesses of 64 bit that the program states: of one GPU, to host memory and to the card.
The paper's include polls in vain. In kind they agree: a GPU that polls its own memory reads nothing there and writes
three words of a descriptor, and queues in GPU memory leave the doorbell. The ratios differ: notifications triple the
writes, where the paper has 9.6 times as many, and queues in host memory cost 12 writes for 1, where the paper has
2.1.

**Why polling over posting differs.** In the paper, both polls and posts are longer than here. The paper counts 43.7
reads of host memory in an iteration, or 13.1 reads of GPU memory. A read of host memory takes 1.19 µs on the model.
Assume that the two words of a notification are read together: then polling takes 26 µs. Reads of GPU memory of 0.6 µs
take 7.9 µs. With these times, ratios of 10 and 2.5 imply posts of 2.6 and 3.2 µs, which agree. The file has 0.56 µs,
the time of 112 instructions. The paper's post also writes three words to a card. If a fence orders each pair of writes,
the thread waits twice for 1.8 µs.

The table of both posts below has 2.9 µs. Three of the four relations then hold or come closer, but polling GPU memory
is slower than the host's help. If all posts take the same time, ratios of 10 and 2.5 need a round trip by notifications
of 3.1 × one by GPU memory (here 1.31 ×). If the former takes twice the host's time, the latter takes 0.64 of the host's
time. On a model whose card treats both alike, a GPU is never faster than the host. So the four relations do not hold
together, and the file keeps its post.

**Why the sizes of 2 KiB and 64 KiB differ.** The GPU needs 6.8 to 7.8 µs more than the host at each size from 4 B to 64
MiB. From 64 KiB, this is less than a tenth of the host's round trip. At 2 KiB the host needs 13.7 µs, so the GPU may
need at most 1.4 µs more. For that, the host would have to lose 3 ns for each byte that the GPU does not lose. But one
card moves the payload of both.

**Gets.** The card of the host that fetches sends a request to the card of the other host. That card reads the payload
and answers, and no thread polls there. A get takes 0.5 to 0.65 of the time of a round trip of puts, which has two posts
and two payloads. The paper states no relation for gets."""
WITHIN_A_HOST = """
## Between GPUs of a host (MODELLED)

Round trips by put, without a network card."""
COLUMNS = "\n| machine | path | size | direct | notified | host | assisted |\n|---|---|---|--:|--:|--:|--:|"


@dataclass(frozen=True)
class Relation:
    """A relation of the paper. `ratio`: above `least` it holds; None where the model has no such modes."""

    text: str
    ratio: float | None
    least: float

    @property
    def holds(self) -> bool | None:
        """Whether the relation holds; None where it has no meaning."""
        return None if self.ratio is None else self.ratio > self.least

    @property
    def cell(self) -> str:
        """For a table."""
        return "-" if self.ratio is None else f"{'holds' if self.holds else 'does not hold'} ({self.ratio:.2g})"


class System:
    """One machine file, with the times of its messages without noise."""

    def __init__(self, name: str) -> None:
        self.name, self.ends = name, PATHS[name]
        self._model = models.load(name)

    def seconds(self, points: Mapping[str, PointId]) -> dict[str, list[float] | str]:
        """Seconds of an operation of each flow, or the reason why there are none."""
        with simulation() as simulated:
            found = simulated.seconds(quiet(self._model.to_json()), list(points.values()))
        return dict(zip(points, found, strict=True))

    def trips(self, size: int) -> dict[str, float]:
        """Seconds of a round trip in each mode that the path has."""
        return self._times("put_ping_pong", size, {})

    def message_s(self, size: int, connections: int = 1) -> dict[str, float]:
        """Seconds between messages of a stream, over all connections together."""
        return self._times("put", size, {"connections": str(connections)})

    def program(self, mode: str, size: int) -> str:
        """The program of a round trip."""
        target = modelled(self._model, 1)
        worker = Worker(worker_command())
        worker.open(target.open_request)
        try:
            asked = point("put_ping_pong", mode, self.ends, size, {})
            return worker.prepare(case_of(asked, target.facts), f"{asked}#0").program
        finally:
            worker.kill()

    def _times(self, name: str, size: int, params: dict[str, str]) -> dict[str, float]:
        modes = [mode for mode in MODES if mode != "direct" or "gpu" in self.ends[1]]
        found = self.seconds({mode: point(name, mode, self.ends, size, params) for mode in modes})
        wrong = [seconds for seconds in found.values() if isinstance(seconds, str)]
        assert not wrong, wrong
        together = name == "put"
        return {
            mode: 1 / sum(1 / one for one in _movers(mode, seconds)) if together else seconds[0]
            for mode, seconds in found.items()
            if not isinstance(seconds, str)
        }


def _movers(mode: str, seconds: Sequence[float]) -> Sequence[float]:
    """The flows that carry payload come first; each connection of an assisted stream has three flows, of others two."""
    return seconds[: len(seconds) // (3 if mode == "assisted" else 2)]


def point(name: str, mode: str, ends: tuple[str, str], size: int, params: dict[str, str]) -> PointId:
    """A point of suite `putget`."""
    engine = MODES[mode]
    between_gpus = "gpu" in ends[1]
    params = params | ({"threads": "1024"} if engine == "sm" else {})
    if engine == "ce" or between_gpus:
        params["control"] = mode
    memories = ("device", "device" if between_gpus else "pinned")
    return PointId(name, engine, ends[0], memories[0], ends[1], memories[1], size, tuple(sorted(params.items())))


def accesses(program: str) -> dict[tuple[str, str, str], int]:
    """What the GPUs' blocks access in one iteration, by ('word' or 'payload', memory, 'read' or 'write')."""
    regions = dict(re.findall(r"^region (r\d+) (\S+?)\.", program, re.MULTILINE))
    found: dict[tuple[str, str, str], int] = {}

    def add(what: str, region: str, gpu: str, way: str, count: int) -> None:
        at = regions[region]
        memory = "own" if at == gpu else "host" if "numa" in at else "peer"
        found[what, memory, way] = found.get((what, memory, way), 0) + count

    for gpu, steps in re.findall(r"^actor \S+ gpu_block (\S+) [^\n]*\n((?:  [^\n]*\n)*)", program, re.MULTILINE):
        for region in re.findall(r"loop set (r\d+)", steps):
            add("word", region, gpu, "write", 1)
        for region in re.findall(r"loop wait (r\d+)", steps):
            add("word", region, gpu, "read", 1)
        for source, target, size in re.findall(r"loop move sm (r\d+)\S* \S+ -> (r\d+)\[\S+ \+(\d+)", steps):
            sectors = -(-int(size) // SECTOR)
            add("payload", source, gpu, "read", sectors)
            add("payload", target, gpu, "write", sectors)
    return found


def relations(system: System) -> list[Relation]:
    """The relations of KL-10 that suite `putget` can show."""
    small = system.trips(8)
    stream = {size: system.message_s(size) for size in (64, MIB, 64 * MIB)}
    few, many = (system.message_s(64, count)["assisted"] for count in (4, 32))
    mode = "direct" if "direct" in small else "notified"
    fall = stream[64 * MIB][mode] / 64 / stream[MIB][mode]
    return [
        Relation("a GPU that drives takes twice the host's time", small["notified"] / small["host"], 1.5),
        Relation("the host's help costs more than polling GPU memory", _ratio(small, "assisted", "direct"), 1),
        Relation("polling host memory costs more than polling GPU memory", _ratio(small, "notified", "direct"), 1),
        Relation("the rate falls beyond 1 MiB", fall, 1.1),
        Relation("fewer messages a second by one block than by the host", stream[64][mode] / stream[64]["host"], 1),
        Relation("with the host's help flat beyond 4 connections", many / few, 0.9),
    ]


def _ratio(times: Mapping[str, float], over: str, under: str) -> float | None:
    return times[over] / times[under] if over in times and under in times else None


def page(disassembler: str) -> str:
    """The whole page."""
    systems = [System(name) for name in PATHS]
    lines = [HEAD, instructions.table(instructions.ARCHITECTURES, disassembler), ACCESSES, *_accesses(systems[-1])]
    lines += [PAPER, BETWEEN_HOSTS, *cards.lines([cards.Pair(name) for name in cards.QUEUES]), WITHIN_A_HOST, COLUMNS]
    lines += [row for system in systems for row in _times(system)]
    return "\n".join([*lines, *_relations(systems)]) + "\n"


def _accesses(system: System) -> Iterator[str]:
    for mode in ("direct", "notified"):
        found = accesses(system.program(mode, KIB))

        def cell(what: str, memory: str, found: Mapping[tuple[str, str, str], int] = found) -> str:
            counts = [ITERATIONS * found.get((what, memory, way), 0) for way in ("read", "write")]
            return f"{counts[0]} reads, {counts[1]} writes" if any(counts) else "none"

        cells = [cell("word", memory) for memory in ("host", "own", "peer")]
        yield f"| {mode} | {' | '.join([*cells, cell('payload', 'own'), cell('payload', 'peer')])} |"


def _times(system: System) -> Iterator[str]:
    for size in SIZES:
        times = system.trips(size)
        cells = [format_seconds(times[mode]) if mode in times else "-" for mode in MODES]
        path = " -> ".join(end.removeprefix("host:0/") for end in system.ends)
        yield f"| {system.name} | {path} | {format_bytes(size)} | {' | '.join(cells)} |"


def _relations(systems: Sequence[System]) -> Iterator[str]:
    found = [relations(system) for system in systems]
    yield f"\n| KL-10, with the ratio behind it | {' | '.join(system.name for system in systems)} |"
    yield "|---|" + "---|" * len(systems)
    for of in zip(*found, strict=True):
        yield f"| {of[0].text} | {' | '.join(one.cell for one in of)} |"


def main() -> None:
    disassembler = instructions.nvdisasm()
    if disassembler is None:
        sys.exit("put_get_page.py needs nvdisasm: pip install nvidia-cuda-nvdisasm")
    PAGE.write_text(page(disassembler))


if __name__ == "__main__":
    main()
