"""When a blocked LU over GPUs ends (core/benchmarks/lu_gpus.cpp), from the times of its parts.

Panels are dealt to the GPUs in turn. Each GPU loads its own. The owner factors a panel, the others take it, and all
update what follows. So factorizations never run at once, however many GPUs there are. Times are in seconds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class LuParts:
    """The order of the matrix, the columns of a panel, and times by rank of the GPU.

    `load`, `store`: of a panel, between the matrix and the GPU. `take`: of a panel, by owner and taker. `crowd`: how
    much longer all others take at once from an owner; 1 to their number. `factor`: of a panel. `operation`: of one
    operation of an update. `by_peer`: panels are taken from their owner, not from the matrix. `ahead`: the next panel
    is updated first. `overlaps`: a GPU factors while it updates; else the factorization waits for all queued updates.
    """

    order: int
    width: int
    load: Sequence[float]
    store: Sequence[float]
    take: Mapping[tuple[int, int], float]
    crowd: float
    operation: float
    by_peer: bool
    ahead: bool
    overlaps: bool
    factor: float = 0.0

    @property
    def panels(self) -> int:
        return self.order // self.width

    def update_s(self, panel: int) -> float:
        """Seconds to update one panel's columns by a panel before them."""
        rows = self.order - (panel + 1) * self.width
        return self.width**2 * (self.width + 2 * rows) * self.operation


def lu_s(parts: LuParts) -> float:
    """Seconds until the last panel is stored."""
    ranks = len(parts.load)
    own = [range(rank, parts.panels, ranks) for rank in range(ranks)]
    free = [len(own[rank]) * parts.load[rank] for rank in range(ranks)]  # when the queue of loads and updates is empty
    taken, stored = [0.0] * ranks, [0.0] * ranks
    updated = parts.load[0]  # of the next panel
    for panel in range(parts.panels):
        owner = panel % ranks
        # The queue of panel 0 holds loads by a copy engine, beside which any GPU factors.
        begin = updated if parts.overlaps or panel == 0 else max(updated, free[owner])
        factored = begin + parts.factor
        stored[owner] = max(stored[owner], factored) + parts.store[owner]
        takers = [rank for rank in range(ranks) if rank != owner and panel < own[rank][-1]]
        source = factored if parts.by_peer else stored[owner]
        for rank in takers:
            taken[rank] = max(taken[rank], source) + _take_s(parts, owner, rank, len(takers))
        for rank in range(ranks):
            left = sum(later > panel for later in own[rank])
            if left == 0:
                continue
            begin = max(factored if rank == owner else taken[rank], free[rank])
            each = parts.update_s(panel)
            free[rank] = begin + left * each
            if rank == (panel + 1) % ranks:
                updated = begin + each if parts.ahead else free[rank]
    return stored[(parts.panels - 1) % ranks]


def _take_s(parts: LuParts, owner: int, rank: int, takers: int) -> float:
    """Seconds to take a panel. Takers from one owner share its link; each has its own link to the matrix."""
    shared = parts.crowd * takers / max(1, len(parts.load) - 1) if parts.by_peer else 1.0
    return parts.take[owner, rank] * max(1.0, shared)


def factor_s(one_gpu: LuParts, seconds: float) -> float:
    """Seconds of the factorization of a panel that explain the time of one GPU. Small kernels in a row, whose number is
    the same for each panel, take most of it, so that all panels are taken to need as long. At least 0."""
    low, high = 0.0, seconds / one_gpu.panels
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if lu_s(replace(one_gpu, factor=middle)) < seconds else (low, middle)
    return low
