"""Writes docs/notes/computations-on-models.md: SHOC level 1 with its transfers on the model of the SL390 (SP-5, SP-6),
and stand-ins for the paper's applications (SP-13).

Usage: .venv/bin/python tools/computations_page.py     (MODELLED, without noise)
"""

import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from linkscope.machine import model as models
from linkscope.run.simulate import quiet, simulation
from linkscope.runfile import PointId

PAGE = pathlib.Path(__file__).resolve().parent.parent / "docs" / "notes" / "computations-on-models.md"
MIB = 1 << 20
NEAR, FAR, GPU = "numa:0", "numa:1", "gpu:0"
NAMES = (
    "sgemm", "dgemm", "fft", "fft_double", "md", "md_double", "reduction", "scan", "sort", "stencil", "triad",
)  # fmt: skip
# Bytes in and out that SHOC's timed transfers move at -s 4, and its operations (core/benchmarks/computations.cpp).
_N = {"sgemm": 4096, "dgemm": 2048}
TRAFFIC: Mapping[str, tuple[int, int, float]] = {
    "sgemm": (2 * 4 * _N["sgemm"] ** 2, 4 * _N["sgemm"] ** 2, 2 * _N["sgemm"] ** 3),
    "dgemm": (2 * 8 * _N["dgemm"] ** 2, 4 * _N["dgemm"] ** 2, 2 * _N["dgemm"] ** 3),
    "fft": (256 * MIB, 0, 45 * 256 * MIB / 8),
    "fft_double": (256 * MIB, 0, 45 * 256 * MIB / 16),
    "md": (73728 * (16 + 4 * 128), 73728 * 16, 21 * 73728 * 128),
    "md_double": (73728 * (32 + 4 * 128), 73728 * 32, 21 * 73728 * 128),
    "reduction": (64 * MIB, 8, 16 * MIB),
    "scan": (64 * MIB, 64 * MIB, 16 * MIB),
    "sort": (2 * 96 * MIB, 2 * 96 * MIB, 0),
    "stencil": (64 * MIB, 64 * MIB, 11 * 4096**2 * 1000),
    "triad": (2 * 64 * MIB, 64 * MIB, 2 * 16 * MIB),
}
# coverage.md SP-5: value from the right node, from the wrong node, unit, penalty.
PUBLISHED: Mapping[str, tuple[float, float, str, float]] = {
    "sgemm": (535.640, 519.581, "GF/s", 3),
    "dgemm": (239.962, 230.809, "GF/s", 4),
    "fft": (30.501, 26.843, "GF/s", 12),
    "reduction": (5.631, 4.942, "GB/s", 12),
    "scan": (0.007, 0.005, "GB/s", 31),
    "stencil": (8.749, 11.895, "s", 36),
}
# coverage.md SP-13: the penalty of an application's time, where the paper gives it.
APPLICATIONS: Mapping[str, tuple[str, str]] = {
    "stand_in_lammps": ("LAMMPS (lj-cut)", "0.5 %"),
    "stand_in_dca": ("DCA++ (24 sites, 80 slices)", "between"),
    "stand_in_openmm": ("GROMACS with OpenMM (dhfr)", "about 4 %"),
}
_MILLISECONDS = 1000  # SHOC before September 2014 added the scan's output time in milliseconds to seconds
HEAD = """# Computations with their transfers on the model of Keeneland

<!-- Made by tools/computations_page.py: change that. -->

Every number here is MODELLED: the simulation runs machines/sl390.toml without noise. The benchmarks are `compute_*`,
at SHOC's `-s 4` and with the transfers that SHOC counts. Good is numa:0 with gpu:0, bad is numa:1 with gpu:0. The
penalty over the good value is (good - bad) / good of the rates, over the bad value (good - bad) / bad. The prediction
is one line: extra transfer time / total time, with the times of `h2d` and `d2h`. `linkscope run --suite sp-5 --machine
sl390` measures the same with noise; section "Computations with their transfers" of its report has this table.
"""
TAIL = """
- `reached_share` of sl390.toml follows from the good values of SGEMM and DGEMM. All bad values are predictions.
- SHOC of 2011 added the way out of a scan in milliseconds to times in seconds, which its history corrects in 2014.
  Its value is therefore the time of the way out, and its penalty that of D2H. Row "scan, as counted" repeats this.
- The stencil's published 36 % are not explained: see below.
- The penalty falls as operations per byte rise, as the paper says. Copies without a computation are its bound.
"""
STENCIL = """## What would give the stencil's 36 % (MODELLED)

SHOC's stencil (CUDAStencilKernel.cu of February 2012, the oldest that is public) brings a grid of 64 MiB in, makes
1000 steps, and brings it out. Ten such passes, SHOC's default, take {passes:.2f} s on the model. The published value,
{good} s, does not say how many passes it has. The wrong node adds {more:.3f} s.

| assumption | penalty over the good value |
|---|---|
| a grid in and out for each pass, as SHOC has it | {once} |
| copies in and nothing else | {h2d} |
| copies in and out and nothing else | {h2d_d2h} |
| copies out and nothing else | {d2h} |

- Grids that go in and out equally often stay below the published value, whatever the number of steps, of passes or
  of bytes, and however fast the kernel is. Copies out would need most of the time.
- {brought:.0f} grids out, beside {left:.1f} s of kernels, would take {good} and {bad} s. Nothing in SHOC brings them.
- SHOC's version for MPI exchanges halos through the host, a column as 4096 rows of 4 B out and as many in for each
  step. Each row would have to take {row:.2f} µs longer from the wrong node, where a whole message of MPI takes 0.26 µs
  longer (SP-3). The table names one task on one GPU, which has no halo.
- Pageable memory, which SHOC's matrix has, hides the far node, see below: its penalty is smaller.
- Neither the model nor the task is changed. A rate fitted to this value would contradict SP-2 and the other five.
"""


@dataclass(frozen=True)
class Found:
    """Seconds of an iteration from the near and the far node, and the extra seconds that copies predict."""

    near: float
    far: float
    extra: float

    @property
    def over_good(self) -> float:
        """Of the rates: (good - bad) / good."""
        return 1 - self.near / self.far

    @property
    def over_bad(self) -> float:
        """Of the rates: (good - bad) / bad."""
        return self.far / self.near - 1

    @property
    def predicted(self) -> float:
        """Extra transfer time over total time."""
        return self.extra / (self.near + self.extra)


def _computation(name: str, node: str, memory: str = "pinned", beside: str = "", second: str = "") -> PointId:
    """`second`: the number of the node of a second task, whose GPU is gpu:1."""
    others = {"beside": beside, "second": second}
    params = [("size", "shoc"), *((key, value) for key, value in others.items() if value)]
    return PointId(f"compute_{name}", "sm", node, memory, GPU, "device", 0, tuple(sorted(params)))


def _copy(benchmark: str, node: str) -> PointId:
    ends = (node, "pinned", GPU, "device") if benchmark == "h2d" else (GPU, "device", node, "pinned")
    params = {"mode": "batched"} | ({"bidirectional": "false"} if benchmark == "h2d" else {})
    return PointId(benchmark, "ce", *ends, 64 * MIB, tuple(sorted(params.items())))


class Keeneland:
    """The model's times."""

    @cached_property
    def _times(self) -> dict[PointId, float]:
        points = [_computation(name, node, memory, beside)
                  for name in NAMES for node in (NEAR, FAR) for memory, beside in
                  (("pinned", ""), ("pageable", ""), ("pinned", "same"), ("pinned", "other"))]  # fmt: skip
        points += [_computation(name, node, second=second) for name in APPLICATIONS
                   for node, second in ((NEAR, ""), (FAR, ""), (NEAR, "1"), (FAR, "0"))]  # fmt: skip
        points += [_copy(benchmark, node) for benchmark in ("h2d", "d2h") for node in (NEAR, FAR)]
        with simulation() as simulated:
            found = simulated.seconds(quiet(models.load("sl390").to_json()), points)
        for point, seconds in zip(points, found, strict=True):
            assert not isinstance(seconds, str), f"{point}: {seconds}"
        return {point: float(seconds[0]) for point, seconds in zip(points, found, strict=True)}

    def per_byte(self, benchmark: str, node: str) -> float:
        """Seconds per byte of a pinned copy of 64 MiB."""
        return self._times[_copy(benchmark, node)] / (64 * MIB)

    def extra(self, name: str) -> float:
        """The extra seconds of a computation's transfers from the far node, by copies."""
        there, back, _ = TRAFFIC[name]
        costs = {of: self.per_byte(of, FAR) - self.per_byte(of, NEAR) for of in ("h2d", "d2h")}
        return there * costs["h2d"] + back * costs["d2h"]

    def found(self, name: str, memory: str = "pinned", beside: str = "") -> Found:
        """A computation with its transfers."""
        near, far = (self._times[_computation(name, node, memory, beside)] for node in (NEAR, FAR))
        return Found(near, far, self.extra(name))

    def tasks(self, name: str, count: int) -> float:
        """The penalty of a stand-in's time over the good value, (bad - good) / good: one task from the wrong node, or
        two with their nodes exchanged.
        """
        right, wrong = ("", "") if count == 1 else ("1", "0")  # gpu:1 is near numa:1
        good, bad = _computation(name, NEAR, second=right), _computation(name, FAR, second=wrong)
        return self._times[bad] / self._times[good] - 1

    def only_copies(self, *benchmarks: str) -> float:
        """The penalty of a time that consists of copies only, (bad - good) / good: in, out, or both by turns."""
        near, far = (sum(self.per_byte(benchmark, node) for benchmark in benchmarks) for node in (NEAR, FAR))
        return far / near - 1

    def scan_as_counted(self) -> Found:
        """The scan by SHOC's accounting of 2011."""
        whole = self.found("scan")
        out = {node: 64 * MIB * self.per_byte("d2h", node) for node in (NEAR, FAR)}
        near, far = (
            seconds + (_MILLISECONDS - 1) * out[node] for node, seconds in ((NEAR, whole.near), (FAR, whole.far))
        )
        return Found(near, far, far - near)


def page() -> str:
    """The whole page."""
    machine = Keeneland()
    return (
        "\n".join([HEAD, *_placements(machine), TAIL, _stencil(machine), *_busy(machine), *_applications(machine)])
        + "\n"
    )


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"


def _placements(machine: Keeneland) -> Iterator[str]:
    yield "| computation | op/B | good | bad | over good | over bad | predicted | published good, bad | penalty |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name in sorted(NAMES, key=lambda name: -_per_byte(name)):
        yield _row(name, f"{_per_byte(name):.3g}", machine.found(name), name)
    yield _row("scan, as counted", f"{_per_byte('scan'):.3g}", machine.scan_as_counted(), "scan")


def _stencil(machine: Keeneland) -> str:
    """What would give the published penalty of the stencil, in seconds over the good value."""
    good, bad, _, _ = PUBLISHED["stencil"]
    grid, steps, rows = TRAFFIC["stencil"][1], 1000, 4096
    near, far = (grid * machine.per_byte("d2h", node) for node in (NEAR, FAR))
    brought = (bad - good) / (far - near)
    whole = machine.found("stencil")
    only = {name: _percent(machine.only_copies(*name.split("_"))) for name in ("h2d", "h2d_d2h", "d2h")}
    return STENCIL.format(
        passes=10 * whole.near, good=good, bad=bad, more=bad - good, once=_percent(whole.over_good), **only,
        brought=brought, left=good - brought * near, row=1e6 * (bad - good) / steps / (2 * rows),
    )  # fmt: skip


def _per_byte(name: str) -> float:
    there, back, operations = TRAFFIC[name]
    return operations / (there + back)


def _row(title: str, per_byte: str, found: Found, published: str) -> str:
    there, _, operations = TRAFFIC[published]
    paper = "- | -"
    values = [f"{1e3 * found.near:.1f} ms", f"{1e3 * found.far:.1f} ms"]
    if published in PUBLISHED:
        good, bad, unit, penalty = PUBLISHED[published]
        amount = {"GF/s": operations / 1e9, "GB/s": there / 1e9}.get(unit)
        if amount:
            values = [f"{amount / seconds:.4g} {unit}" for seconds in (found.near, found.far)]
        paper = f"{good:g}, {bad:g} {unit} | {penalty} %"
    cells = (*values, _percent(found.over_good), _percent(found.over_bad), _percent(found.predicted))
    return f"| {title} | {per_byte} | {' | '.join(cells)} | {paper} |"


def _busy(machine: Keeneland) -> Iterator[str]:
    yield "## Pageable memory, and busy neighbors (SP-6, MODELLED)\n"
    yield "Penalty over the good value with pageable memory, and with copies of 16 MiB from the same node to the same"
    yield "GPU or to another one; then the time from the good node beside these copies over the time alone.\n"
    yield "| computation | pageable | beside same | beside other | slowed by same | slowed by other |"
    yield "|---|---|---|---|---|---|"
    for name in NAMES:
        alone = machine.found(name)
        beside = [machine.found(name, beside=other) for other in ("same", "other")]
        cells = [_percent(found.over_good) for found in (machine.found(name, "pageable"), *beside)]
        cells += [f"{found.near / alone.near:.2f}" for found in beside]
        yield f"| {name} | {' | '.join(cells)} |"


def _applications(machine: Keeneland) -> Iterator[str]:
    yield "\n## Stand-ins for applications (SP-13, MODELLED)\n"
    yield "A stand-in repeats one of the computations above between transfers, without the application's CPU work. The"
    yield "penalty is that of the time, (bad - good) / good: one task on the wrong node, or two tasks with their nodes"
    yield "exchanged. The paper gives the ends of the range, and says that two tasks lose more than one.\n"
    yield "| stand-in for | one task | two tasks | the paper |"
    yield "|---|---|---|---|"
    for name, (application, published) in APPLICATIONS.items():
        one, two = (_percent(machine.tasks(name, count)) for count in (1, 2))
        yield f"| {application} | {one} | {two} | {published} |"
    yield "\nThe order is not the paper's: the stand-in of LAMMPS brings lists of neighbors and has no CPU work. In the"
    yield "model two tasks lose as much as one, because their copies cross the sockets in opposite directions."


if __name__ == "__main__":
    PAGE.write_text(page())
