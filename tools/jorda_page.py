"""Writes docs/notes/jorda-on-models.md: the transfers of Jorda et al. on the models of their systems A, B and C.

Usage: .venv/bin/python tools/jorda_page.py     (MODELLED, without noise)
"""

import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import network_page

from linkscope.machine import model as models
from linkscope.run.simulate import quiet, simulation
from linkscope.runfile import PointId
from linkscope.units import format_bytes

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "notes" / "jorda-on-models.md"
KIB, MIB = 1 << 10, 1 << 20
CHUNKS = {"64KiB": 64 * KIB, "128KiB": 128 * KIB, "256KiB": 256 * KIB, "512KiB": 512 * KIB} | {
    f"{count}MiB": count * MIB for count in (1, 2, 4, 8, 16)
}
SIZES = tuple(64 * KIB << step for step in range(12))  # to 128 MiB
LARGEST = SIZES[-1]  # the paper's transfers
OPTIMA = (MIB, 4 * MIB, 16 * MIB, 64 * MIB, LARGEST)
NETWORK_CHUNKS = (64 * KIB, 256 * KIB, MIB, 2 * MIB, 4 * MIB)
KNEE = 0.95  # of the best rate: where a curve over chunks is flat
SYSTEMS = {
    "jorda-a": (("numa:0", "gpu:0"), ("numa:0", "gpu:2"), ("gpu:0", "gpu:1"), ("gpu:0", "gpu:2")),
    "jorda-b": (("numa:0", "gpu:0"), ("numa:0", "gpu:1"), ("gpu:0", "gpu:1")),
    "jorda-c": (("numa:0", "gpu:0"), ("gpu:0", "gpu:1"), ("gpu:0", "gpu:2")),
}
HEAD = """# The transfers of Jorda et al. on models of their systems

<!-- Made by tools/jorda_page.py: change that. -->

Every number here is MODELLED: the simulation runs the machine files jorda-a, jorda-b and jorda-c without noise. Many
constants of these files are assumed, because the paper does not publish them. The benchmarks are `h2d`, `d2h`, `d2d`,
`staged` and `file_copies`, each as one transfer, timed from its first call until its data have arrived. Rates are in
GB/s at 128 MiB. A bidirectional rate is the sum of both directions.

- **direct**: one copy of pinned memory, or between GPUs with peer access.
- **CUDA**: one call that the driver stages: pageable memory, or GPUs without peer access.
- **whole**: staged through one pinned buffer of the size of the transfer.
- **double buffer**: staged through two pinned buffers, with the best chunk.
"""


@dataclass(frozen=True)
class Method:
    """A way to transfer; `chunk`: of a staged one."""

    name: str
    chunk: str = ""

    @property
    def slots(self) -> str:
        """The buffers of a staged transfer."""
        return "1" if self.chunk == "whole" else "2"


DIRECT, CUDA, WHOLE = Method("direct"), Method("CUDA"), Method("whole", "whole")
BUFFERS = tuple(Method("double buffer", chunk) for chunk in CHUNKS)


@dataclass(frozen=True)
class Best:
    """The best rate in GB/s, with its chunk, and the smallest chunk with 95 % of it."""

    gbps: float
    chunk: str
    knee: str


class System:
    """One machine file, and the rates that the simulation finds on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._model = models.load(name)
        self._content = quiet(self._model.to_json())
        self._near = models.places(self._model).gpu_numa
        self._known: dict[PointId, list[float] | str] = {}

    def rates(self, ends: tuple[str, str], methods: Sequence[Method], size: int = LARGEST, *, both: bool = False
              ) -> dict[Method, float | None]:  # fmt: skip
        """GB/s of one transfer by each method; None where the machine has no such method."""
        points = {method: self._point(ends, method, size, both) for method in methods}
        if missing := [point for point in dict.fromkeys(points.values()) if point not in self._known]:
            with simulation() as simulated:
                self._known |= zip(missing, simulated.seconds(self._content, missing), strict=True)
        found = {method: self._known[point] for method, point in points.items()}
        return {
            method: None if isinstance(seconds, str) else (1 + both) * size / max(seconds[: 1 + both]) / 1e9
            for method, seconds in found.items()
        }

    def curve(self, ends: tuple[str, str], size: int = LARGEST, *, both: bool = False) -> dict[str, float]:
        """GB/s of a double buffer by its chunk, the smallest first."""
        fitting = [method for method in BUFFERS if CHUNKS[method.chunk] <= size]
        return {method.chunk: gbps for method, gbps in self.rates(ends, fitting, size, both=both).items() if gbps}

    def best(self, ends: tuple[str, str], size: int = LARGEST, *, both: bool = False) -> Best:
        """The best double buffer."""
        found = self.curve(ends, size, both=both)
        chunk = max(found, key=lambda one: found[one])
        knee = next(one for one in found if found[one] >= KNEE * found[chunk])
        return Best(found[chunk], chunk, knee)

    def crossover(self, ends: tuple[str, str]) -> int | None:
        """The smallest size at which a double buffer is at least as fast as CUDA; None: at none."""
        for size in SIZES:
            by_cuda = self.rates(ends, [CUDA], size)[CUDA]
            if by_cuda is not None and self.best(ends, size).gbps >= by_cuda:
                return size
        return None

    def _point(self, ends: tuple[str, str], method: Method, size: int, both: bool) -> PointId:
        src, dst = ends
        kinds = [place.partition(":")[0] for place in ends]
        params = {"mode": "single"}
        if method.chunk or kinds[0] != "gpu" or kinds[1] == "gpu":
            params["bidirectional"] = str(both).lower()
        if method.chunk:
            params |= {"chunk": method.chunk, "slots": method.slots}
            if "numa" in kinds:
                params["threads"] = "1"
            else:
                params["ring"] = self._near[src if kinds[0] == "gpu" else dst]
        else:
            params["clock"] = "host"
            if kinds == ["gpu", "gpu"]:
                params["peer"] = "on" if method == DIRECT else "off"
        host = "pinned" if method == DIRECT else "pageable"
        memories = [{"numa": host, "gpu": "device", "disk": "file"}[kind] for kind in kinds]
        name = _BENCHMARKS[kinds[0], kinds[1]] if not method.chunk else "file_copies" if "disk" in kinds else "staged"
        engine = "file" if name == "file_copies" else "ce"
        return PointId(name, engine, src, memories[0], dst, memories[1], size, tuple(sorted(params.items())))


_BENCHMARKS = {("numa", "gpu"): "h2d", ("gpu", "numa"): "d2h", ("gpu", "gpu"): "d2d"}


def page() -> str:
    """The whole page."""
    systems = [System(name) for name in SYSTEMS]
    parts = [HEAD, *_compared(*systems), *(line for one in systems for line in (*_system(one), *_chunks(one)))]
    return "\n".join([*parts, *_between_hosts()])


def statements(a: System, b: System, c: System) -> Iterator[str]:
    """A row for each statement with a number: the item, the paper's and the modelled one."""
    far = a.rates(("gpu:0", "gpu:2"), [CUDA])[CUDA] or 0.0
    direct = a.rates(("gpu:0", "gpu:1"), [DIRECT])[DIRECT] or 0.0
    staged = a.best(("gpu:0", "gpu:2"))
    one, two = (c.rates(("gpu:0", gpu), [DIRECT])[DIRECT] or 0.0 for gpu in ("gpu:1", "gpu:2"))
    sizes = [format_bytes(size) for one_of in (a, b) if (size := one_of.crossover(SYSTEMS[one_of.name][-1]))]
    hdd, ssd = (one_of.best(("disk:0", "gpu:0")) for one_of in (a, b))
    yield f"| JO-10 | remote GPUs of A reach at most 65 % of near ones | {100 * far / direct:.0f} % by CUDA |"
    yield f"| JO-10 | on C local and remote GPUs are close | {100 * two / one:.0f} % |"
    yield f"| JO-13 | a tuned double buffer wins from 512 KB | from {' and '.join(dict.fromkeys(sizes))} (A, B) |"
    yield f"| JO-16 | tuning gains up to 70 % | {100 * (staged.gbps / far - 1):.0f} % between remote GPUs of A |"
    yield f"| JO-14 | hard disk: flat from 128 KB | from {hdd.knee} (A) |"
    yield f"| JO-14 | solid-state disk: best at 4 MB | at {ssd.chunk}, flat from {ssd.knee} (B) |"
    yield f"| JO-14 | a double buffer gains 10 to 20 % on disks | {_gain_on_disk(a)} (A), {_gain_on_disk(b)} (B) |"


def _compared(a: System, b: System, c: System) -> Iterator[str]:
    yield "## The paper and the models\n"
    yield "| item | the paper | MODELLED |"
    yield "|---|---|---|"
    yield from statements(a, b, c)
    yield """
The models differ from the paper in three items. The double buffer of the models pays the whole of `call_us` and
`sync_us` for each chunk, so it wins later. A disk of the models has one cost for each request, so both disks become
flat at the same chunk. The models' disks are so slow beside PCIe that the copy to the GPU hides little.

JO-4 and JO-15 (network) are in [transfers between hosts on models](network-on-models.md).
"""


def _gain_on_disk(system: System) -> str:
    ends = ("disk:0", "gpu:0")
    whole = system.rates(ends, [WHOLE])[WHOLE] or 0.0
    return f"{100 * (system.best(ends).gbps / whole - 1):.0f} %"


def _system(system: System) -> Iterator[str]:
    yield f"## {system.name} (MODELLED)\n"
    yield "| path | direction | direct | CUDA | whole | double buffer | its chunk |"
    yield "|---|---|---|---|---|---|---|"
    for ends in SYSTEMS[system.name]:
        yield _row(system, ends, both=False)
        if ends[0] == "numa:0":
            yield _row(system, ends[::-1], both=False)
        yield _row(system, ends, both=True)
    yield "\nSize from which a double buffer is as fast as CUDA's own (MODELLED, JO-13):\n"
    yield "| path | size |\n|---|---|"
    for ends in SYSTEMS[system.name]:
        size = system.crossover(ends)
        yield f"| {ends[0]} -> {ends[1]} | {format_bytes(size) if size else 'none'} |"
    yield "\nDisk at 128 MiB (MODELLED, JO-5, JO-14); flat from: the smallest chunk with 95 % of the best rate:\n"
    chunks = ("64KiB", "128KiB", "512KiB", "4MiB", "16MiB")
    yield f"| path | whole | {' | '.join(chunks)} | best chunk | flat from |"
    yield "|---|---|" + "---|" * (len(chunks) + 2)
    for ends in (("disk:0", "gpu:0"), ("gpu:0", "disk:0")):
        found = system.rates(ends, [WHOLE, *(Method("double buffer", chunk) for chunk in chunks)])
        best = system.best(ends)
        cells = " | ".join(_gbps(gbps) for gbps in found.values())
        yield f"| {ends[0]} -> {ends[1]} | {cells} | {best.chunk} | {best.knee} |"
    yield ""


def lines_of(system: System) -> list[tuple[tuple[str, str], bool]]:
    """The paths of the curves over chunks, and whether a curve is bidirectional. Disks have one direction at a time."""
    found = []
    for ends in SYSTEMS[system.name]:
        back = [(ends[::-1], False)] if ends[0] == "numa:0" else []
        found += [(ends, False), *back, (ends, True)]
    gpus = dict.fromkeys(end for ends in SYSTEMS[system.name] for end in ends if end.startswith("gpu"))
    for gpu in gpus:
        found += [(("disk:0", gpu), False), ((gpu, "disk:0"), False)]
    return found


def _chunks(system: System) -> Iterator[str]:
    yield f"Rate of a double buffer over its chunk on {system.name}, 128 MiB (MODELLED; JO-1, 2, 5, 6, 12, 13, 14):\n"
    yield f"| path | direction | {' | '.join(CHUNKS)} | best |"
    yield "|---|---|" + "---|" * (len(CHUNKS) + 1)
    for ends, both in lines_of(system):
        curve = system.curve(ends, both=both)
        cells = " | ".join(_gbps(curve.get(chunk)) for chunk in CHUNKS)
        direction = "bidirectional" if both else "unidirectional"
        yield f"| {' -> '.join(ends)} | {direction} | {cells} | {system.best(ends, both=both).chunk} |"
    yield f"\nBest chunk by size on {system.name}, unidirectional (MODELLED, JO-13, JO-14):\n"
    yield f"| path | {' | '.join(map(format_bytes, OPTIMA))} |"
    yield "|---|" + "---|" * len(OPTIMA)
    for ends, both in lines_of(system):
        if not both:
            chunks = [system.best(ends, size).chunk for size in OPTIMA]
            yield f"| {' -> '.join(ends)} | {' | '.join(chunks)} |"
    yield ""


def _between_hosts() -> Iterator[str]:
    yield "## Between hosts (MODELLED)\n"
    yield "Rate of a double buffer over its chunk, 128 MiB (JO-4, JO-15):\n"
    yield f"| system | path | {' | '.join(map(format_bytes, NETWORK_CHUNKS))} | best | from, against the others |"
    yield "|---|---|" + "---|" * (len(NETWORK_CHUNKS) + 2)
    for name, paths in network_page.PATHS.items():
        hosts = network_page.Hosts(name)
        for ends in paths:
            curve = network_curve(hosts, ends)
            best = max(curve, key=lambda chunk: curve[chunk])
            cells = " | ".join(_gbps(curve.get(chunk)) for chunk in NETWORK_CHUNKS)
            from_size = format_bytes(hosts.crossover(ends))
            yield f"| {name} | {' -> '.join(ends)} | {cells} | {format_bytes(best)} | {from_size} |"
    yield "\nThe last column is the size from which a double buffer is the fastest method.\n"


def network_curve(hosts: network_page.Hosts, ends: tuple[str, str]) -> dict[int, float]:
    """GB/s of a double buffer between hosts by its chunk, at 128 MiB."""
    found = hosts.methods(ends, LARGEST)
    return {one.method.chunk: one.gbps for one in found if one.method.name == network_page.BUFFERED}


def _row(system: System, ends: tuple[str, str], *, both: bool) -> str:
    found = system.rates(ends, [DIRECT, CUDA, WHOLE], both=both)
    best = system.best(ends, both=both)
    cells = [_gbps(gbps) for gbps in (*found.values(), best.gbps)]
    direction = "bidirectional" if both else "unidirectional"
    return f"| {ends[0]} -> {ends[1]} | {direction} | {' | '.join(cells)} | {best.chunk} |"


def _gbps(gbps: float | None) -> str:
    return "not here" if gbps is None else f"{gbps:.3g}"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
