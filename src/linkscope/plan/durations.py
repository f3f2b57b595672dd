"""How long a round of a point lasts whose actors run for a duration, and how long its samples are."""

from linkscope.runfile import PointId

DURATION_S, INTERVAL_S = 0.2, 0.01  # of a round and of a sample, for each task of a GPU
_BESIDE_INTERVAL_S, _LOADED_INTERVAL_S = 0.005, 0.002  # a p99 needs 100 samples of three rounds
# A model takes longer than the messages that it simulates, and no thread of it waits for a core: thousands of all
# blocks together are enough. Where no message ends in that time, the round is longer (run/beside.py).
_MODELLED_STREAM_S, _MODELLED_LEAST_S, _INTERVALS = 0.02, 0.001, 10
_MODELLED_BYSTANDER_S = 0.03  # millions of posts of 32 blocks otherwise
_LONGEST = 10  # a computation may take as long as so many tasks


def lasts(point: PointId) -> bool:
    """Whether the point runs for a duration: work beside other work, or alone in the same way, several tasks, clients
    of one GPU, or streams of messages."""
    return any(point.param(name) for name in ("beside", "tasks", "at", "clients", "connections"))


def computes(point: PointId) -> bool:
    """Whether an operation of the point is a computation, which takes 0.2 to 70 ms."""
    return point.benchmark.startswith("compute_")


def time_of(point: PointId, operation_s: float | None = None, *, modelled: bool) -> tuple[float, float]:
    """Seconds of a round of the point, and of its samples: tasks on one GPU take turns, and a sample of a computation
    holds at least one. `operation_s`: its seconds; None: unknown, which gives the longest time."""
    if point.param("load"):
        return DURATION_S, _LOADED_INTERVAL_S
    if modelled and point.benchmark == "bystander":
        return _MODELLED_BYSTANDER_S, _BESIDE_INTERVAL_S
    if point.param("beside") and not computes(point):
        return DURATION_S, _BESIDE_INTERVAL_S
    if modelled and point.param("connections"):
        blocks = int(point.param("connections") or 1) * int(point.param("blocks") or 1)
        blocks *= int(point.param("at_once") or 1)
        seconds = max(_MODELLED_STREAM_S / blocks, _MODELLED_LEAST_S)
        return seconds, seconds / _INTERVALS
    tasks = int(point.param("tasks") or 1)
    if computes(point):
        factor = 1
        while factor < _LONGEST and (operation_s is None or tasks * factor * INTERVAL_S < operation_s):
            factor *= 2
        tasks *= min(factor, _LONGEST)
    return tasks * DURATION_S, tasks * INTERVAL_S
