"""Writes docs/notes/network-on-models.md: transfers between hosts on models, against Spafford, Jorda and Klenk et al.

Usage: .venv/bin/python tools/network_page.py     (MODELLED, without noise)
"""

import pathlib
from collections.abc import Iterator
from dataclasses import dataclass

from linkscope.machine import model as models
from linkscope.machine.model_hosts import joined_for
from linkscope.model.network import BUFFERED, DIRECT, WHOLE, NetworkMethod, network_methods
from linkscope.run.simulate import quiet, simulation
from linkscope.units import format_bytes

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "notes" / "network-on-models.md"
KIB, MIB = 1 << 10, 1 << 20
SIZES = tuple(4 * KIB << step for step in range(16))  # to 128 MiB
LARGEST = SIZES[-1]  # the paper's transfers
KNEE = 0.95  # of the best rate: where a curve over chunks is flat
IN, OUT, BOTH = ("host:0/numa:0", "host:1/gpu:0"), ("host:0/gpu:0", "host:1/numa:0"), ("host:0/gpu:0", "host:1/gpu:0")
PATHS = {
    "jorda-a": (IN, OUT, BOTH, ("host:0/gpu:2", "host:1/gpu:2")),
    "jorda-b": (IN, OUT, BOTH, ("host:0/gpu:0", "host:1/gpu:1")),
    "jorda-c": (IN, OUT, BOTH, ("host:0/gpu:2", "host:1/gpu:2")),
}
HEAD = """# Transfers between hosts on models

<!-- Made by tools/network_page.py: change that. -->

Every number here is MODELLED: the simulation runs hosts of one machine file that its network joins, without noise. The
benchmarks are `network` and `network_staged`, each as one transfer. Rates are in GB/s. `linkscope predict` answers the
same for any path: `linkscope predict --machine jorda-b "host:0/gpu:0 -> host:1/gpu:0"`.

- **direct**: network cards read and write the memory at both ends, also that of GPUs.
- **whole**: staged through one pinned buffer of the size of the transfer near each GPU.
- **double buffer**: staged through two pinned buffers near each GPU, with the best chunk.
"""


@dataclass(frozen=True)
class Found:
    """Seconds of a method of one transfer."""

    method: NetworkMethod
    seconds: float

    @property
    def gbps(self) -> float:
        return self.method.point.bytes / self.seconds / 1e9


class Hosts:
    """Two hosts of a machine file."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._model = joined_for(models.load(name), BOTH)
        self._near = models.places(self._model).gpu_numa
        self._content = quiet(self._model.to_json())

    def methods(self, ends: tuple[str, str], size: int) -> list[Found]:
        """Every method that the model has."""
        asked = network_methods(*ends, size, self._near)
        with simulation() as simulated:
            found = simulated.seconds(self._content, [one.point for one in asked])
        return [Found(one, value[0]) for one, value in zip(asked, found, strict=True) if not isinstance(value, str)]

    def best(self, ends: tuple[str, str], size: int = LARGEST) -> dict[str, Found]:
        """The fastest variant of each method."""
        fastest: dict[str, Found] = {}
        for one in sorted(self.methods(ends, size), key=lambda one: one.seconds):
            fastest.setdefault(one.method.name, one)
        return fastest

    def knee(self, ends: tuple[str, str], size: int = LARGEST) -> int:
        """The smallest chunk with 95 % of the best rate of a double buffer."""
        rates = {one.method.chunk: one.gbps for one in self.methods(ends, size) if one.method.name == BUFFERED}
        return min(chunk for chunk, gbps in rates.items() if gbps >= KNEE * max(rates.values()))

    def crossover(self, ends: tuple[str, str]) -> int:
        """The smallest size from which a double buffer is the fastest method."""
        wins = [size for size in SIZES if next(iter(self.best(ends, size))) == BUFFERED]
        return min(wins)


def page() -> str:
    """The whole page."""
    jorda = [Hosts(name) for name in PATHS]
    parts = [HEAD, *_spafford(), *_jorda(jorda)]
    return "\n".join([*parts, *_curves(Hosts("jorda-b")), *_klenk()])


def latencies() -> list[tuple[str, float, float, bool]]:
    """SP-3 on sl390: the case, the paper's and the modelled microseconds, and whether a constant is fitted to it."""
    sl390 = Hosts("sl390")
    rows = []
    for size, text in ((8, "0 B (modelled: 8 B)"), (16 * KIB, "16 KiB")):
        for node, side in (("numa:0", "right"), ("numa:1", "wrong")):
            (found,) = sl390.methods((f"host:0/{node}", f"host:1/{node}"), size)
            paper, fitted = _PAPER[size, side]
            rows.append((f"{text}, {side} node", paper, found.seconds * 1e6, fitted))
    return rows


# Microseconds of the paper, and whether sl390.toml has a constant that is fitted to them.
_PAPER = {(8, "right"): (1.877, True), (8, "wrong"): (2.136, False), (16 * KIB, "right"): (13.955, False),
          (16 * KIB, "wrong"): (18.886, True)}  # fmt: skip


def _spafford() -> Iterator[str]:
    yield "## Spafford et al.: latency by NUMA node (SP-3)\n"
    yield "| message | the paper, µs | MODELLED, µs | residual | |\n|---|---|---|---|---|"
    for text, paper, modelled, fitted in latencies():
        yield f"| {text} | {paper} | {modelled:.3f} | {modelled / paper - 1:+.1%} | {'fitted' if fitted else ''} |"
    yield """
The paper states 16 MB for the larger message. Its program prints bytes with the suffix of kilobytes, so the message has
16 KiB. Two constants are fitted, each to one of the four numbers; the other two are predictions.
"""


def statements(systems: list[Hosts]) -> Iterator[str]:
    """A row for each statement of Jorda et al. with a number: the item, the paper's and the modelled one."""
    b = systems[1]
    sizes = {one.name: format_bytes(one.crossover(BOTH)) for one in systems}
    yield f"| JO-15 | a double buffer is best above 128 KB | {_by_system(sizes)} between GPUs |"
    yield (
        "| JO-15 | from the network to a GPU on the card's bus, direct is best below 128 KB | a double buffer is best "
        f"from {format_bytes(b.crossover(IN))} (B) |"
    )
    chunks = {one.name: format_bytes(one.best(BOTH)[BUFFERED].method.chunk) for one in systems}
    yield f"| JO-15 | the best buffer has 2 MB, always | {_by_system(chunks)} at 128 MiB |"
    losses = [_loss_at_2mib(one) for one in systems]
    yield f"| JO-15 | | buffers of 2 MiB reach {min(losses):.1%} or more of the best rate |"
    gains = {one.name: f"{_gain(one):.0%}" for one in systems}
    yield f"| JO-16 | tuning gains up to 70 % | {_by_system(gains)} over whole staging between GPUs |"


def _jorda(systems: list[Hosts]) -> Iterator[str]:
    yield "## Jorda et al. (JO-4, JO-15)\n"
    yield "| item | the paper | MODELLED |\n|---|---|---|"
    yield from statements(systems)
    yield """
The paper's buffers are larger than the models'. A message of the models costs 0.3 µs and the latency of its path, which
is the cost of a message by InfiniBand itself. MPI adds a cost to each large message, which the paper does not publish.
The curves are flat there. The gain is larger than the paper's, whose methods all pay the cost of MPI. The rate of
`direct` to a GPU is fitted to the size from which a double buffer is best; the other rows are predictions. The paper
lists cards for B only (JO-8); A and C have that card in the models.
"""
    yield "| system | path, 128 MiB | direct | whole | double buffer | its chunk | flat from |"
    yield "|---|---|---|---|---|---|---|"
    for system in systems:
        for ends in PATHS[system.name]:
            best = system.best(ends)
            rates = " | ".join(f"{best[name].gbps:.3g}" for name in (DIRECT, WHOLE, BUFFERED))
            chunk = format_bytes(best[BUFFERED].method.chunk)
            yield f"| {system.name} | {' -> '.join(ends)} | {rates} | {chunk} | {format_bytes(system.knee(ends))} |"


def _by_system(texts: dict[str, str]) -> str:
    return ", ".join(f"{text} ({name[-1].upper()})" for name, text in texts.items())


def _gain(system: Hosts) -> float:
    best = system.best(BOTH)
    return best[BUFFERED].gbps / best[WHOLE].gbps - 1


def _loss_at_2mib(system: Hosts) -> float:
    found = {one.method.chunk: one.gbps for one in system.methods(BOTH, LARGEST) if one.method.name == BUFFERED}
    return found[2 * MIB] / max(found.values())


def _curves(system: Hosts) -> Iterator[str]:
    yield f"\n## {system.name} by size (MODELLED)\n"
    for ends in (IN, BOTH):
        yield f"{' -> '.join(ends)}, in percent of the best rate of any size (JO-7):\n"
        yield "| size | direct | whole | double buffer | its chunk |\n|---|---|---|---|---|"
        found = {size: system.best(ends, size) for size in SIZES}
        top = max(one.gbps for best in found.values() for one in best.values())
        for size, best in found.items():
            cells = [f"{best[name].gbps / top:.0%}" if name in best else "" for name in (DIRECT, WHOLE, BUFFERED)]
            chunk = format_bytes(best[BUFFERED].method.chunk) if BUFFERED in best else ""
            yield f"| {format_bytes(size)} | {' | '.join(cells)} | {chunk} |"
        yield ""


def _klenk() -> Iterator[str]:
    yield "## Klenk et al.: rate by size (KL-10)\n"
    yield "The paper: about 1 GB/s from GPU to GPU, less above 1 MB, because cards read a GPU over PCIe.\n"
    sizes = (64, KIB, 16 * KIB, 256 * KIB, MIB, 2 * MIB, 16 * MIB)
    yield f"| machine, method | {' | '.join(format_bytes(size) for size in sizes)} |"
    yield "|---|" + "---|" * len(sizes)
    for name in ("klenk-extoll", "klenk-ib"):
        hosts = Hosts(name)
        found = [hosts.best(BOTH, size) for size in sizes]
        for method in (DIRECT, WHOLE, BUFFERED):
            cells = [f"{best[method].gbps:.3g}" if method in best else "" for best in found]
            yield f"| {name}, {method} | {' | '.join(cells)} |"
    yield """
The rate of reads above 1 MB is assumed, because the paper states only that it drops. These messages are posted by the
host. Messages that GPUs post themselves are in [put and get on models](put-get-on-models.md), within a host.
"""


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
