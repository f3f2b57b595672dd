"""Selects GPU contexts of equal cost. On H200, operations take 0.12 us longer in half of all contexts
(docs/notes/context-effects.md).

Each process makes several contexts of every GPU and keeps one of the cheapest. The costs of all contexts since the
start of the run show which cost is low: on the GPU itself once it has made enough, and on its model before. A GPU can
be slower than another of its model in all of its contexts.
"""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec

from linkscope.run.worker import RequestFailed
from linkscope.runfile import ContextsTally
from linkscope.stats import median

# Same constants as in the worker (core/platform/cuda/contexts.cpp). A context is expensive if its cost exceeds ALIKE
# times the lowest cost by more than NOISE_S. The cheapest of _TO_KNOW contexts of a GPU is its floor.
_TO_KNOW = 8
ALIKE, NOISE_S = 1.02, 20e-9
_FAILED_READING = 0.5  # fraction of the median: a lower cost is a failed reading


class _Made(msgspec.Struct):
    gpu: int
    model: str
    # cost of each context that was made; the last was kept
    operation_s: Annotated[list[float], msgspec.Meta(min_length=1)]


class Contexts:
    """Records the costs of all contexts since the run began."""

    def __init__(self) -> None:
        self._of_model: dict[str, list[float]] = {}
        self._costs: dict[int, list[float]] = {}  # costs of all contexts that were made, by GPU
        self._kept: dict[int, list[float]] = {}

    def wanted(self, places: Iterable[str]) -> dict[str, Any]:
        """Returns the field `contexts` of an open request (docs/reference/worker.md) for the GPUs among the places."""
        gpus = sorted(int(place.partition(":")[2]) for place in places if place.startswith("gpu:"))
        known = {gpu: costs for gpu, costs in self._costs.items() if gpu in gpus and len(costs) >= _TO_KNOW}
        return {
            "gpus": gpus,
            "floors_s": {model: _lowest_cost(costs) for model, costs in self._of_model.items()},
            "own_floors_s": [{"gpu": gpu, "operation_s": _lowest_cost(known[gpu])} for gpu in sorted(known)],
        }

    def made(self, answer: Any) -> None:
        """Records the field `contexts` of an answer to an open request. Raises RequestFailed if it has another form."""
        try:
            made = msgspec.convert(answer, list[_Made])
        except msgspec.ValidationError as problem:
            raise RequestFailed("failed", f"the worker's list of contexts has another form: {problem}") from problem
        for of in made:
            self._of_model.setdefault(of.model, []).extend(of.operation_s)
            self._costs.setdefault(of.gpu, []).extend(of.operation_s)
            self._kept.setdefault(of.gpu, []).append(of.operation_s[-1])

    def tally(self) -> dict[str, ContextsTally]:
        """Returns the tally of each GPU for the last line of the run."""
        return {f"gpu:{gpu}": _tally(self._costs[gpu], self._kept[gpu]) for gpu in sorted(self._kept)}


def _lowest_cost(costs: list[float]) -> float:
    centre = median(costs)
    return min(cost for cost in costs if cost > _FAILED_READING * centre)


def _tally(costs: list[float], kept: list[float]) -> ContextsTally:
    limit = ALIKE * _lowest_cost(costs) + NOISE_S
    expensive = [cost for cost in costs if cost > limit]
    return ContextsTally(
        made=len(costs), kept=len(kept), kept_s=float(f"{median(kept):.4g}"),
        dear=len(expensive), dear_s=float(f"{median(expensive):.4g}") if expensive else None,
        dear_kept=sum(cost > limit for cost in kept),
    )  # fmt: skip
