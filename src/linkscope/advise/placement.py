"""Places processes on GPUs by who sends how much to whom (Jorda et al., section VI: the pairs that talk most share a
domain).

The cost of a placement is the sum of the times of all messages: each message takes the time of one copy between the two
GPUs. Messages that run at once are not slowed by one another here.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

MOST_EXACT = 100_000  # placements that are all tried; more are searched
_ALIKE = 0.01  # a gain that is not worth another order than that of the launcher
_STARTS = 64  # random placements from which the search descends
_CHUNK = 4096


@dataclass(frozen=True)
class PairCosts:
    """The time of a message from GPU a to GPU b: `fixed_s[a, b] + bytes * s_per_byte[a, b]`."""

    fixed_s: Matrix
    s_per_byte: Matrix


@dataclass(frozen=True)
class Placement:
    """The GPU (an index) of each rank, and the seconds of all messages together.

    `exact`: no placement is better by more than 1 %. `in_order_s`: the seconds if ranks take the GPUs in turn, as
    launchers do by default. `worst_s`: those of the worst placement that was tried.
    """

    gpus: tuple[int, ...]
    seconds: float
    exact: bool
    in_order_s: float
    worst_s: float


def place(sent: Matrix, costs: PairCosts, seed: int = 1) -> Placement:
    """The best placement of ranks on GPUs. `sent[i, j]`: bytes from rank i to rank j; the diagonal does not count.

    With more ranks than GPUs, each GPU gets at most ceil(ranks / GPUs) ranks. All placements are compared if there are
    at most MOST_EXACT; otherwise swaps improve many random placements (reproducible by `seed`).
    """
    ranks, gpus = len(sent), len(costs.fixed_s)
    each = math.ceil(ranks / gpus)
    slots = np.repeat(np.arange(gpus), each)
    table = _times(sent, costs, slots)
    in_order = np.arange(ranks) % gpus * each + np.arange(ranks) // gpus
    exact = math.perm(len(slots), ranks) <= MOST_EXACT
    if exact:
        best, seconds, worst = _all(table, ranks, len(slots))
    else:
        best, seconds, worst = _search(table, len(slots), in_order, np.random.default_rng(seed))
    start = float(_cost(table, in_order[None])[0])
    if start <= seconds * (1 + _ALIKE):
        best, seconds = in_order, start
    return Placement(tuple(int(slots[slot]) for slot in best), seconds, exact, start, max(worst, start))


def _times(sent: Matrix, costs: PairCosts, slots: NDArray[np.int64]) -> list[tuple[int, int, Matrix]]:
    """The pairs of ranks that talk, each with the seconds of its messages for every pair of slots."""
    fixed, slope = costs.fixed_s[np.ix_(slots, slots)], costs.s_per_byte[np.ix_(slots, slots)]
    pairs = itertools.permutations(range(len(sent)), 2)
    return [(i, j, fixed + sent[i, j] * slope) for i, j in pairs if sent[i, j] > 0]


def _cost(table: list[tuple[int, int, Matrix]], placed: NDArray[np.int64]) -> Matrix:
    """The seconds of placements, one in each row."""
    total = np.zeros(len(placed))
    for i, j, seconds in table:
        total += seconds[placed[:, i], placed[:, j]]
    return total


def _all(table: list[tuple[int, int, Matrix]], ranks: int, slots: int) -> tuple[NDArray[np.int64], float, float]:
    every = itertools.permutations(range(slots), ranks)
    best, lowest, worst = np.arange(ranks), math.inf, 0.0
    while chunk := list(itertools.islice(every, _CHUNK)):
        placed = np.array(chunk, dtype=np.int64)
        seconds = _cost(table, placed)
        worst = max(worst, float(seconds.max()))
        if seconds.min() < lowest:
            best, lowest = placed[seconds.argmin()], float(seconds.min())
    return best, lowest, worst


def _search(
    table: list[tuple[int, int, Matrix]], slots: int, in_order: NDArray[np.int64], random: np.random.Generator
) -> tuple[NDArray[np.int64], float, float]:
    """Descends from several placements: the best swap of two slots each time, until none is better."""
    ranks = len(in_order)
    pairs = np.array([pair for pair in itertools.combinations(range(slots), 2) if pair[0] < ranks])
    free = np.setdiff1d(np.arange(slots), in_order)
    starts = [np.concatenate([in_order, free]), *(random.permutation(slots) for _ in range(_STARTS - 1))]
    best, lowest, worst = in_order, math.inf, 0.0
    for order in starts:
        seconds = float(_cost(table, order[None, :ranks])[0])
        worst = max(worst, seconds)
        while True:
            swapped = np.repeat(order[None], len(pairs), axis=0)
            rows = np.arange(len(pairs))
            swapped[rows, pairs[:, 0]], swapped[rows, pairs[:, 1]] = order[pairs[:, 1]], order[pairs[:, 0]]
            after = _cost(table, swapped[:, :ranks])
            if after.min() >= seconds * (1 - 1e-12):
                break
            order, seconds = swapped[after.argmin()], float(after.min())
        if seconds < lowest:
            best, lowest = order[:ranks], seconds
    return best, lowest, worst
