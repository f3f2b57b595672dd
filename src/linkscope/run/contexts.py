"""Contexts of GPUs that cost alike: on an H200 operations take 0.13 us longer in half of them (docs/contexts.md).

Each process makes some of every GPU and keeps one that is as cheap as they get. What is cheap is known by all that were
made since the run began.
"""

import math
from collections.abc import Collection, Iterable
from typing import Any

import msgspec

from linkscope.runfile import ContextsTally
from linkscope.stats import median

ALIKE = 1.03  # times the cost of those that are measured in: what costs more is of another kind


class _Made(msgspec.Struct):
    gpu: int
    model: str
    operation_s: list[float]  # of each that was made; the last was kept


class Contexts:
    """What contexts have cost since the run began."""

    def __init__(self) -> None:
        self._floors: dict[str, float] = {}
        self._costs: dict[str, list[float]] = {}  # of all that were made, by GPU
        self._kept: dict[str, list[float]] = {}

    def wanted(self, places: Iterable[str]) -> dict[str, Any]:
        """`contexts` of an open request (docs/worker.md): those of the GPUs among the places."""
        gpus = sorted(int(place.partition(":")[2]) for place in places if place.startswith("gpu:"))
        return {"gpus": gpus, "floors_s": dict(self._floors)}

    def made(self, answer: Collection[Any]) -> None:
        """Takes `contexts` of the answer to an open request."""
        for of in msgspec.convert(list(answer), list[_Made]):
            self._costs.setdefault(f"gpu:{of.gpu}", []).extend(of.operation_s)
            self._kept.setdefault(f"gpu:{of.gpu}", []).append(of.operation_s[-1])
            self._floors[of.model] = min([*of.operation_s, self._floors.get(of.model, math.inf)])

    def tally(self) -> dict[str, ContextsTally]:
        """By GPU, for the last line of the run."""
        return {gpu: _tally(self._costs[gpu], kept) for gpu, kept in sorted(self._kept.items())}


def _tally(costs: list[float], kept: list[float]) -> ContextsTally:
    usual = median(kept)
    dear = [cost for cost in costs if cost > ALIKE * usual]
    return ContextsTally(
        made=len(costs), kept=len(kept), kept_s=float(f"{usual:.4g}"),
        dear=len(dear), dear_s=float(f"{median(dear):.4g}") if dear else None,
    )  # fmt: skip
