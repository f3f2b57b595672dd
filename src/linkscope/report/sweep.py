"""The number of thread blocks that a copy by SM or TMA needs: points that differ only in `blocks`."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linkscope.model.curves import (
    Curve,
    Estimate,
    Family,
    Method,
    Path,
    alike,
    curves,
    measured_flows,
    total_of,
)
from linkscope.model.text import commonest, params_text, paths_text, rate_text, varying
from linkscope.report.trust import signed
from linkscope.runfile import Point, Run
from linkscope.units import format_fraction

BLOCKS = "blocks"
ENOUGH = 0.95  # of the best rate
_ALIKE = 0.02


@dataclass(frozen=True)
class Sweep:
    """Rates of one method on one path at one size over the number of blocks. Words ('sms') follow all numbers."""

    path: Path
    method: Method  # all parameters but the number of blocks
    bytes: int
    points: tuple[Point, ...]

    @property
    def values(self) -> list[tuple[str, Estimate]]:
        """Blocks and rates."""
        return [(point.params[BLOCKS], rate) for point in self.points if (rate := total_of(point)) is not None]

    @property
    def best(self) -> Estimate:
        """The highest rate."""
        return max((rate for _, rate in self.values), key=lambda rate: rate.value)

    @property
    def best_text(self) -> str:
        """The highest rate, with its sign where it missed precision."""
        point = max(self.points, key=lambda one: rate.value if (rate := total_of(one)) else 0.0)
        return signed(rate_text(self.best), [point])

    @property
    def needed(self) -> str:
        """'8'; '8-32' if more than 32 blocks are slower again."""
        reach = [rate.value >= ENOUGH * self.best.value for _, rate in self.values]
        first = reach.index(True)
        last = next((index - 1 for index in range(first, len(reach)) if not reach[index]), len(reach) - 1)
        names = [blocks for blocks, _ in self.values]
        return names[first] if last == len(names) - 1 else "-".join(dict.fromkeys((names[first], names[last])))


@dataclass(frozen=True)
class SweepRow:
    """Paths that need the same number of blocks for about the same rate. The chart shows the first one."""

    paths: str
    path_count: int
    family: Family
    params: str
    bytes: int
    best: Estimate
    needed: str
    sms: str
    other: Estimate | None  # the best rate of an engine without blocks, on the first path at the same size
    drawn: Sweep


def sweeps(points: Iterable[Point]) -> list[Sweep]:
    """A sweep for each path and method with rates for several numbers of blocks at one size."""
    return _sweeps(curves(points))


def _sweeps(made: Sequence[Curve]) -> list[Sweep]:
    groups: dict[tuple[Path, Method], list[Point]] = {}
    for curve in made:
        if curve.batched and dict(curve.method.params).get(BLOCKS):
            rated = [point for point in curve.measured if total_of(point) is not None]
            groups.setdefault((curve.path, curve.method.without([BLOCKS])), []).extend(rated)
    found = (_sweep(path, method, rated) for (path, method), rated in groups.items())
    return sorted((one for one in found if one is not None), key=lambda one: (one.method, one.path))


def _sweep(path: Path, method: Method, rated: Sequence[Point]) -> Sweep | None:
    """The sweep at the size with the most numbers of blocks; the largest of several such sizes."""
    by_size: dict[int, list[Point]] = {}
    for point in rated:
        by_size.setdefault(point.bytes, []).append(point)
    size, at_size = max(by_size.items(), key=lambda item: (len(item[1]), item[0]), default=(0, []))
    if len(at_size) < 2:
        return None
    return Sweep(path, method, size, tuple(sorted(at_size, key=lambda point: _order(point.params[BLOCKS]))))


def without_sweeps(made: Sequence[Curve]) -> list[Curve]:
    """The curves with the usual number of blocks. Sweeps show the others."""
    swept = {(one.path, one.method) for one in _sweeps(made)}
    kept: list[Curve] = []
    for _, group in itertools.groupby(made, key=lambda curve: curve.method.family):
        of_family = list(group)
        common = commonest((point for curve in of_family for point in curve.points), BLOCKS)
        kept += [
            curve
            for curve in of_family
            if (curve.path, curve.method.without([BLOCKS])) not in swept
            or dict(curve.method.params).get(BLOCKS) == common
        ]
    return kept


def needed_text(found: Iterable[Sweep]) -> str:
    """'95 % of it with 4 blocks or more', '... with 4 to 16 blocks or more, by path'.

    '' without a sweep, or if a path needs a value that is not a number ('pieces').
    """
    needed = in_order({one.needed.partition("-")[0] for one in found})
    if not needed or not needed[-1].isdigit():
        return ""
    ends = " to ".join(dict.fromkeys((needed[0], needed[-1])))
    return f"{format_fraction(ENOUGH)} of it with {ends} blocks or more" + (", by path" if len(needed) > 1 else "")


def sweep_rows(run: Run) -> list[SweepRow]:
    """The sweeps of a run, with alike paths in one row."""
    made = curves(run.points)
    found = _sweeps(made)
    counts = sm_counts(run.header.machine)
    shown = {family: varying(one.method for one in found if one.method.family == family)
             for family in {one.method.family for one in found}}  # fmt: skip
    rows = []
    for (method, _), group in itertools.groupby(found, key=lambda one: (one.method, one.bytes)):
        for alike_ones in _clusters(list(group)):
            first = alike_ones[0]
            parts = [pair for pair in method.params if pair[0] in shown[method.family]]
            sms = sorted({counts[gpu] for one in alike_ones if (gpu := _gpu_of(one)) in counts})
            rows.append(
                SweepRow(
                    paths_text([one.path for one in alike_ones]), len(alike_ones), method.family, params_text(parts),
                    first.bytes, first.best, first.needed, ", ".join(map(str, sms)), _other(first, made), first,
                )
            )  # fmt: skip
    return rows


def sm_counts(machine: Mapping[str, Any]) -> dict[str, int]:
    """The number of SMs of each GPU, from a probe or a model; empty for a machine description of another form."""
    model = machine.get("model")
    try:
        if isinstance(model, dict):
            return {gpu: int(kind["sms"]) for kind in model["gpu"] for gpus in kind["at"].values() for gpu in gpus}
        return {f"gpu:{gpu['index']}": int(gpu["sms"]) for gpu in machine.get("gpus", []) if gpu.get("sms")}
    except (AttributeError, KeyError, TypeError, ValueError):
        return {}


def _clusters(found: Sequence[Sweep]) -> list[list[Sweep]]:
    clusters: list[list[Sweep]] = []
    for one in sorted(found, key=lambda one: -one.best.value):
        near = (c for c in clusters if c[0].needed == one.needed and alike(c[0].best, one.best, _ALIKE))
        cluster = next(near, None)
        if cluster is None:
            clusters.append([one])
        else:
            cluster.append(one)
    return [sorted(cluster, key=lambda one: one.path) for cluster in clusters]


def _gpu_of(one: Sweep) -> str:
    """The GPU whose threads copy."""
    ends = [place for place in (one.path.src, one.path.dst) if place.rpartition("/")[2].startswith("gpu:")]
    return ends[-1 if dict(one.method.params).get("initiator") == "dst" else 0] if ends else ""


def _other(one: Sweep, made: Iterable[Curve]) -> Estimate | None:
    """The best rate of the same operation and direction by an engine without blocks."""
    family, flows = one.method.family, len(measured_flows(one.points[0]))
    rates = [
        total_of(point)
        for curve in made
        if curve.batched and curve.path == one.path and BLOCKS not in dict(curve.method.params)
        and curve.method.family.benchmark == family.benchmark
        and (curve.method.family.src_memory, curve.method.family.dst_memory) == (family.src_memory, family.dst_memory)
        for point in curve.measured
        if point.bytes == one.bytes and len(measured_flows(point)) == flows
    ]  # fmt: skip
    return max((rate for rate in rates if rate is not None), key=lambda rate: rate.value, default=None)


def in_order(blocks: Iterable[str]) -> list[str]:
    """Sorted by number. Words stand for more blocks than any number and come last."""
    return sorted(blocks, key=_order)


def _order(blocks: str) -> tuple[bool, int, str]:
    return (not blocks.isdigit(), int(blocks) if blocks.isdigit() else 0, blocks)
