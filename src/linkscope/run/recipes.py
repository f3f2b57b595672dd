"""How a point is sampled: rows by size class, number of flows and engine. A sample compares two batches of operations,
a longer and a shorter one.
"""

from dataclasses import dataclass

from linkscope.plan import pages_move
from linkscope.run.answers import Prepared
from linkscope.run.balance import MOST_COUNT
from linkscope.run.settling import MOVING_SAMPLES, settles, waking
from linkscope.runfile import PointId

LEAST_BATCH_S, JOINT_BATCH_S = 50e-6, 1e-3
MOST_LONGER = 8  # ratio of the longer batch of a sample to the shorter one
RANKS = ("mpi", "nccl", "ucx", "nixl")  # engines whose actors are ranks: those without a measured flow only take part
LONG_S = 10e-3  # operations or idle gaps of at least this length are not batched
# A batch of sums out of place takes about 0.12 ms more after another batch than after a pause, whatever its length (two
# H100s, 16 to 256 MiB; docs/notes/collectives-evidence.md). In a batch of this length that is 1.2 % of an operation.
NCCL_BATCH_S = 10e-3
_MIB = 1 << 20


@dataclass(frozen=True)
class SizeClass:
    """The batches of points of at least `least` bytes, with one flow or several.

    The uncertainty of a batch's duration grows more slowly than the duration (H200, copies between GPUs: 2.5 us of 0.2
    ms, 5 us of 1.5 ms; docs/notes/planner-evidence.md). The slope is most precise with the shortest batch that hides
    the start-up cost, `batch_s`, and the longest batch that time allows, `longer_s`. The shares of several flows even
    out over the time of `joint_count` operations. `predicts`: the first round of another path predicts that of this
    one. `repeats`: engines and links repeat such copies within 0.1 %, and one of them is long enough for a batch.
    """

    least: int
    batch_s: float
    longer_s: float
    joint_count: int = 0
    predicts: bool = False
    repeats: bool = False


_ONE_FLOW = (
    SizeClass(256 * _MIB, 1e-3, 4e-3, predicts=True, repeats=True),
    SizeClass(16 * _MIB, 0.5e-3, 4e-3, predicts=True),
    SizeClass(_MIB, 0.3e-3, 2.5e-3),
    SizeClass(0, LEAST_BATCH_S, 0.6e-3),
)
_SEVERAL_FLOWS = (
    SizeClass(256 * _MIB, JOINT_BATCH_S, 4e-3, predicts=True, repeats=True),
    SizeClass(16 * _MIB, JOINT_BATCH_S, 4e-3, joint_count=4, predicts=True),
    SizeClass(_MIB, JOINT_BATCH_S, 4e-3, joint_count=4),
    SizeClass(0, 0.2e-3, 0.6e-3, joint_count=4),
)


@dataclass(frozen=True)
class EngineLimits:
    """The most operations of a batch, and of both batches of a sample. `by_host`: the host's clock times longer
    batches as well as any, because the host itself copies."""

    count: int
    queued: int
    by_host: bool = False


_ENGINES = {
    # a CPU thread copies one after the other, so only memory limits the number
    "cpu": EngineLimits(8192, MOST_LONGER * 8192, by_host=True),
    "mpi": EngineLimits(8192, MOST_LONGER * 8192, by_host=True),
    "ucx": EngineLimits(8192, MOST_LONGER * 8192, by_host=True),
    "nixl": EngineLimits(8192, MOST_LONGER * 8192, by_host=True),
    # All copies of a single call are cheap to queue. Longer batches have more copies if these stay behind the gate.
    "batch": EngineLimits(1024, 16384),
    "nccl": EngineLimits(8192, MOST_LONGER * 8192),  # no gate holds its calls
}
_OTHER_ENGINES = EngineLimits(MOST_COUNT, 512)


@dataclass(frozen=True)
class Recipe:
    """How one point is sampled. `most_iterations`: maximum operations of a batch; 0: no maximum."""

    size: SizeClass
    limits: EngineLimits
    has_bytes: bool  # otherwise the operations are steps of a latency
    most_iterations: int
    in_step: bool  # all actors do the same number of operations
    waits_for_ranks: bool  # actors of several ranks exchange messages
    single: bool  # a sample is one operation
    settles: bool  # the first samples of a request do not count
    waking: int  # operations before the first sample; 0: none
    after_settling: int  # samples of a request, in addition to those that do not count
    first_samples: int  # samples of a round's first request, if all of them count
    on_hardware_s: float = 0.0  # least duration of a batch on hardware; 0: that of its size


def recipe_of(point: PointId, prepared: Prepared) -> Recipe:
    """Returns the recipe of a point whose program was prepared."""
    classes = _ONE_FLOW if prepared.actors == 1 else _SEVERAL_FLOWS
    most = prepared.most_iterations
    single = point.param("mode") == "single" or most == 1
    does_settle = single and settles(point)
    return Recipe(
        size=next(size for size in classes if point.bytes >= size.least),
        limits=_limits(point.engine, prepared.slices),
        has_bytes=point.bytes > 0,
        most_iterations=most,
        in_step=prepared.in_step,
        waits_for_ranks=point.engine in RANKS,
        single=single,
        settles=does_settle,
        waking=waking(point) if does_settle else 0,
        after_settling=MOVING_SAMPLES if pages_move(point) else 6,
        first_samples=6 if single else 3,
        on_hardware_s=NCCL_BATCH_S if point.engine == "nccl" else 0.0,
    )


def _limits(engine: str, slices: int) -> EngineLimits:
    limits = _ENGINES.get(engine, _OTHER_ENGINES)
    if limits.by_host and slices > 1:  # the thread would find repeated slices in its caches
        return EngineLimits(min(limits.count, max(slices // 2, 1)), slices, by_host=True)
    return limits
