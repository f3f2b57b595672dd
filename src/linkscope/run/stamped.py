"""Times of single operations of actors that exchange words, by stamps of their clocks (core/platform/cuda/stamps.hpp).

A batch gives the mean of its operations. A stamp of each operation gives their median and p99, and costs time, so the
stamped batch is one more than those that give the value.
"""

import math

from linkscope.run.answers import Prepared
from linkscope.run.round_parts import rounded
from linkscope.run.worker import PATIENCE, REQUEST_LIMIT_S, Worker
from linkscope.runfile import Round
from linkscope.stats import median

_MOST = 2048  # most_stamps (core/base/actor_ops.hpp)
_WANTED_S, _LONGEST_S = 10e-3, 0.2  # of the stamped batch; only for enough operations longer than the first
_ENOUGH = 100  # operations for a p99; those of a model differ by what they share, and not by chance


def add_single_times(worker: Worker, record: Round, prepared: Prepared) -> None:
    """Gives the flows of a round the median and the p99 of their single operations, in seconds. `guards` has the
    number of operations of flow 0, and what a stamp cost it: the mean of stamped operations less the round's median.

    Flows whose actor notes nothing, as further blocks of a kernel, get none. Raises RequestFailed.
    """
    each_s = [median(flow.samples_s) for flow in record.flows]
    longest_s = max(0.0, *each_s)  # noise may invert a slope
    count = _operations(longest_s, prepared.most_iterations, modelled=worker.is_modelled)
    limit_s = REQUEST_LIMIT_S + PATIENCE * count * longest_s
    latencies = worker.run_stamped([count] * prepared.actors, limit_s)
    for facts, flow in zip(prepared.flows, record.flows, strict=True):
        if of := latencies[facts.actor]:
            flow.p50_s = rounded(of.p50_s)
            flow.p99_s = rounded(of.p99_s) if of.count >= _ENOUGH else None
    if first := latencies[prepared.flows[0].actor]:
        record.guards["stamped_operations"] = first.count
        record.guards["stamp_cost_s"] = float(f"{first.mean_s - each_s[0]:.4g}")


def _operations(each_s: float, most: int, *, modelled: bool) -> int:
    wanted = 1 + _ENOUGH
    if not modelled and each_s > 0:
        wanted = max(math.ceil(_WANTED_S / each_s), min(wanted, math.ceil(_LONGEST_S / each_s)))
    return min(wanted, _MOST, most or _MOST)
