"""Tests how well a model predicts: half of the points are held out, and the other half is fitted.

Two predictions are compared: the machine file through the simulation, and interpolated curves of the same half. The
difference shows what a model of causes loses against a table of measurements, and what it gains: predictions for paths
and concurrent flows without curves.
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
_FEW = 5  # fewer points do not describe an accuracy


@dataclass(frozen=True)
class Held:
    """A held-out observation and the relative errors of both predictions."""

    observation: Observation
    by_file: float | None
    by_curve: float | None


@dataclass(frozen=True)
class Errors:
    """Sizes of the errors of some observations; `without_total` counts observations without a prediction."""

    count: int
    without_total: int
    median: float | None
    ninety: float | None
    worst: float | None
    worst_id: str


@dataclass(frozen=True)
class Check:
    """The model of one half, and its errors on the other half."""

    content: Content
    fitted_to: int
    held: tuple[Held, ...]

    @property
    def joint(self) -> list[Held]:
        """Held-out observations of concurrent flows."""
        return [one for one in self.held if one.observation.joint]

    def by_family(self) -> dict[str, list[Held]]:
        """Held-out observations by operation; concurrent flows separately."""
        found: dict[str, list[Held]] = defaultdict(list)
        for one in self.held:
            found[family_of(one.observation.point)].append(one)
        return dict(sorted(found.items()))

    def too_far(self) -> list[str]:
        """The errors above their bound, as text; empty if none."""
        said = []
        for what, held, bound in (("all", list(self.held), MOST), ("concurrent flows", self.joint, MOST_JOINT)):
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
    """Fits one half of the points, drawn at random within every operation, and predicts the other half."""
    kept, out = split(points, seed)
    observations = observed(kept)
    content = build(header, kept, observations, simulation, f"{run} (half of its points, seed {seed})", tell)
    tell("predicting the other half")
    held = compared(content, observed(out), simulation, curves_of(observations))
    return Check(content | {"deviation": deviations(held, held_out=True)}, len(observations), tuple(held))


def compared(
    content: Content,
    observations: Sequence[Observation],
    simulation: Simulation,
    curves: Mapping[tuple[object, ...], Costs] | None = None,
) -> list[Held]:
    """Every observation with the predictions of the simulation and of the curves."""
    points = list(dict.fromkeys(one.point for one in observations))
    times = dict(zip(points, simulation.seconds(content, points), strict=True))
    found = []
    for one in observations:
        curve = (curves or {}).get(one.curve)
        by_curve = curve.seconds(one.point.bytes) if curve else None
        found.append(Held(one, _error(one.of(times[one.point]), one), _error(by_curve, one)))
    return found


def deviations(held: Sequence[Held], *, held_out: bool) -> dict[str, dict[str, Any]]:
    """The accuracy of a machine file by operation, and for concurrent flows over several paths. Bidirectional flows of
    one path do not count as concurrent."""
    families = {JOINT: [one for one in held if one.observation.joint and _several_paths(one.observation.point)]}
    for one in held:
        families.setdefault(family_of(one.observation.point), []).append(one)
    found = {}
    for name, of in sorted(families.items()):
        errors = summary(of, lambda one: one.by_file)
        predicted = errors.count - errors.without_total
        if errors.median is None or errors.ninety is None or predicted < _FEW:
            continue
        sizes = {"median": float(f"{errors.median:.3g}"), "ninety": float(f"{errors.ninety:.3g}")}
        found[name] = {"points": predicted, **sizes, "held_out": held_out}
    return found


def _several_paths(point: PointId) -> bool:
    return len(point.paths) > 1 or Path(point.src, point.dst).joint


def split(points: Iterable[Point], seed: int) -> tuple[list[Point], list[Point]]:
    """Two halves: each operation is divided in random order."""
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
    """The curve of the observations of one path, method and flow."""
    known = sorted(observations, key=lambda one: one.point.bytes)
    sizes = [one.point.bytes for one in known]
    return costs(sizes, [one.seconds for one in known], [one.sigma for one in known])


def _error(predicted: float | None, one: Observation) -> float | None:
    return None if predicted is None else predicted / one.seconds - 1


def summary(held: Sequence[Held], prediction: Callable[[Held], float | None]) -> Errors:
    """The errors of one kind of prediction."""
    errors = [(abs(error), str(one.observation.point)) for one in held if (error := prediction(one)) is not None]
    if not errors:
        return Errors(len(held), len(held), None, None, None, "")
    sizes = [size for size, _ in errors]
    worst, where = max(errors)
    median, ninety = float(np.median(sizes)), float(np.quantile(sizes, 0.9))
    return Errors(len(held), len(held) - len(errors), median, ninety, worst, where)
