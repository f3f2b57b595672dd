"""How well a model tells what it has not seen: half of the points are held out, the rest is fitted, both are compared.

Two ways to predict stand side by side: the machine file, through the simulation, and the curves of the same half,
interpolated. So one sees what a model of causes loses against a table of what was measured, and what it gains: it
tells paths and joint transfers of which the curves have nothing.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from linkscope.model.build import build
from linkscope.model.curves import Path
from linkscope.model.known import JOINT, family_of
from linkscope.model.observed import Observation, Simulation, observed
from linkscope.model.segments import Costs, costs
from linkscope.model.skeleton import Content
from linkscope.runfile import Header, Point, PointId

MOST, MOST_JOINT = 0.03, 0.10
_FEW = 5  # points that say too little of how far off a file is


@dataclass(frozen=True)
class Held:
    """One held-out observation: what both ways say of it, as a fraction of what was measured, less one."""

    observation: Observation
    by_file: float | None
    by_curve: float | None


@dataclass(frozen=True)
class Errors:
    """Sizes of the errors of some observations. `without_total`: how many had no prediction."""

    count: int
    without_total: int
    median: float | None
    ninety: float | None
    worst: float | None
    worst_id: str


@dataclass(frozen=True)
class Check:
    """What was fitted to one half, and how far it is from the other."""

    content: Content
    fitted_to: int
    held: tuple[Held, ...]

    @property
    def joint(self) -> list[Held]:
        """Of several flows at once."""
        return [one for one in self.held if one.observation.joint]

    def by_family(self) -> dict[str, list[Held]]:
        """All that is held out, by what is done; joint transfers apart."""
        found: dict[str, list[Held]] = defaultdict(list)
        for one in self.held:
            found[family_of(one.observation.point)].append(one)
        return dict(sorted(found.items()))

    def too_far(self) -> list[str]:
        """What is over its bound, in words; nothing where all is well."""
        said = []
        for what, held, bound in (("all", list(self.held), MOST), ("joint transfers", self.joint, MOST_JOINT)):
            errors = summary(held, lambda one: one.by_file)
            if errors.median is not None and errors.median > bound:
                said.append(f"{what}: the median error is {100 * errors.median:.4g} %, over {100 * bound:.0f} %")
        return said


def check(
    header: Header,
    points: Sequence[Point],
    simulation: Simulation,
    run: str,
    seed: int,
    tell: Callable[[str], None] = lambda text: None,
) -> Check:
    """Fits to one half of the points, chosen by chance in every family, and predicts the other."""
    kept, out = split(points, seed)
    observations = observed(kept)
    content = build(header, kept, observations, simulation, f"{run} (half of its points, seed {seed})", tell)
    tell("the other half")
    held = compared(content, observed(out), simulation, curves_of(observations))
    return Check(content | {"deviation": deviations(held, held_out=True)}, len(observations), tuple(held))


def compared(
    content: Content,
    observations: Sequence[Observation],
    simulation: Simulation,
    curves: Mapping[tuple[object, ...], Costs] | None = None,
) -> list[Held]:
    """Every observation with what the simulation of the file says of it, and what the curves do."""
    points = list(dict.fromkeys(one.point for one in observations))
    times = dict(zip(points, simulation.seconds(content, points), strict=True))
    found = []
    for one in observations:
        curve = (curves or {}).get(one.curve)
        by_curve = curve.seconds(one.point.bytes) if curve else None
        found.append(Held(one, _error(one.of(times[one.point]), one), _error(by_curve, one)))
    return found


def deviations(held: Sequence[Held], *, held_out: bool) -> dict[str, dict[str, Any]]:
    """What a machine file says of how far it is off, by what is done, and of all transfers over several paths together:
    both ways of one path tell nothing of those."""
    families = {JOINT: [one for one in held if one.observation.joint and _several_paths(one.observation.point)]}
    for one in held:
        families.setdefault(family_of(one.observation.point), []).append(one)
    found = {}
    for name, of in sorted(families.items()):
        errors = summary(of, lambda one: one.by_file)
        told = errors.count - errors.without_total
        if errors.median is None or errors.ninety is None or told < _FEW:
            continue
        sizes = {"median": float(f"{errors.median:.3g}"), "ninety": float(f"{errors.ninety:.3g}")}
        found[name] = {"points": told, **sizes, "held_out": held_out}
    return found


def _several_paths(point: PointId) -> bool:
    return len(point.paths) > 1 or Path(point.src, point.dst).joint


def split(points: Iterable[Point], seed: int) -> tuple[list[Point], list[Point]]:
    """Two halves: every family is dealt out in an order by chance, one here and one there."""
    families: dict[tuple[object, ...], list[Point]] = defaultdict(list)
    for point in points:
        params = tuple(sorted(point.params.items()))
        families[point.benchmark, point.engine, point.src_memory, point.dst_memory, params].append(point)
    generator = random.Random(seed)
    kept: list[Point] = []
    out: list[Point] = []
    for key in sorted(families, key=str):
        family = sorted(families[key], key=lambda point: point.id)
        generator.shuffle(family)
        kept += family[0::2]
        out += family[1::2]
    return kept, out


def curves_of(observations: Iterable[Observation]) -> dict[tuple[object, ...], Costs]:
    """The cost over size of every path, method and flow."""
    found: dict[tuple[object, ...], list[Observation]] = defaultdict(list)
    for one in observations:
        if one.point.bytes:
            found[one.curve].append(one)
    return {key: costs_of(of) for key, of in found.items()}


def costs_of(observations: Sequence[Observation]) -> Costs:
    """The curve of observations of one path, method and flow."""
    known = sorted(observations, key=lambda one: one.point.bytes)
    sizes = [one.point.bytes for one in known]
    return costs(sizes, [one.seconds for one in known], [one.sigma for one in known])


def _error(predicted: float | None, one: Observation) -> float | None:
    return None if predicted is None else predicted / one.seconds - 1


def summary(held: Sequence[Held], way: Callable[[Held], float | None]) -> Errors:
    """The errors of one way to predict."""
    told = [(abs(error), str(one.observation.point)) for one in held if (error := way(one)) is not None]
    if not told:
        return Errors(len(held), len(held), None, None, None, "")
    sizes = [size for size, _ in told]
    worst, where = max(told)
    median, ninety = float(np.median(sizes)), float(np.quantile(sizes, 0.9))
    return Errors(len(held), len(held) - len(told), median, ninety, worst, where)
