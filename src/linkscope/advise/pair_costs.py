"""The time of a message between every two GPUs, from a machine file (simulated) or from a run (measured)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from linkscope.advise.placement import PairCosts
from linkscope.errors import NOT_HERE, UserError
from linkscope.model.curves import BATCHED, MODE
from linkscope.runfile import Point, PointId

Simulated = Callable[[dict[str, Any], Sequence[PointId]], list[list[float] | str]]
_SMALL, _LARGE = 8, 64 << 20


def costs_of_model(content: dict[str, Any], gpus: Sequence[str], simulated: Simulated) -> PairCosts:
    """Single copies of 8 B and of 64 MiB between all GPUs of a machine file, as simulated (seconds of points, or the
    reason why not): direct ones, and staged ones where peer access is missing or slower.

    Raises UserError with the reason if a pair has no copy at all.
    """
    wanted = {(src, dst, size, peer): _copy(src, dst, size, peer)
              for src in gpus for dst in gpus for size in (_SMALL, _LARGE) for peer in ("on", "off")}  # fmt: skip
    found = dict(zip(wanted, simulated(content, list(wanted.values())), strict=True))
    times: dict[tuple[str, str], dict[int, float]] = {}
    for (src, dst, size, _), seconds in found.items():
        if isinstance(seconds, list):
            of_pair = times.setdefault((src, dst), {})
            of_pair[size] = min(seconds[0], of_pair.get(size, math.inf))
        elif (src, dst) not in times and isinstance(found[src, dst, size, "off"], str):
            raise UserError(f"{content['machine']['name']}: {src} -> {dst}: {seconds}", NOT_HERE)
    return _lines(gpus, times)


def costs_of_run(points: Sequence[Point], gpus: Sequence[str]) -> PairCosts:
    """The fastest copies by copy engine that the run measured for each pair. Raises UserError that names a pair without
    two sizes."""
    times: dict[tuple[str, str], dict[int, float]] = {}
    for point in points:
        is_copy = point.benchmark in ("d2d", "local") and point.engine == "ce" and not point.bidirectional
        if is_copy and point.median_s is not None and "cache" not in point.params:
            if point.params.get(MODE) not in BATCHED and point.bytes > _SMALL:
                continue  # a single copy includes its wait, which a stream of messages does not
            of_pair = times.setdefault((point.src, point.dst), {})
            of_pair[point.bytes] = min(point.median_s, of_pair.get(point.bytes, math.inf))
    for src in gpus:
        for dst in gpus:
            if len(times.get((src, dst), {})) < 2:
                cure = "linkscope run --suite standard measures every pair"
                raise UserError(f"the run has no copies of two sizes from {src} to {dst}; {cure}", NOT_HERE)
    return _lines(gpus, times)


def _copy(src: str, dst: str, size: int, peer: str) -> PointId:
    params = (("mode", "single"),) if src == dst else (("mode", "single"), ("peer", peer))
    name = "local" if src == dst else "d2d"
    return PointId(name, "ce", src, "device", dst, "device", size, params)


def _lines(gpus: Sequence[str], times: Mapping[tuple[str, str], Mapping[int, float]]) -> PairCosts:
    """The line through the smallest and the largest size of every pair."""
    fixed, slope = np.zeros((len(gpus), len(gpus))), np.zeros((len(gpus), len(gpus)))
    for i, src in enumerate(gpus):
        for j, dst in enumerate(gpus):
            of_pair = times[src, dst]
            low, high = min(of_pair), max(of_pair)
            slope[i, j] = max(of_pair[high] - of_pair[low], 0.0) / (high - low)
            fixed[i, j] = of_pair[low]
    return PairCosts(fixed, slope)
