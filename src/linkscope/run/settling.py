"""What is done before operations alone are timed, so that none of them is the first after a pause."""

from linkscope.plan import once_only, pages_move
from linkscope.runfile import PointId

# The first of operations alone differ, after each pause and after their memory was written anew: copies of GPUs' memory
# by 4 % to 8 %, pages that move take up to twice as long (docs/method/planner.md). So many samples of each request
# are not
# counted.
SETTLING = 4
MOVING_SAMPLES = 12  # of pages at once, that those not counted be few beside them
# A link between GPUs that has idled sleeps (H200): copies alone take 110 us for 7 us, a dozen of them before it stays
# awake, but none after one batch of so many copies, or of so many bytes (docs/notes/single-copies.md).
WAKING, WAKING_BYTES = 256, 4 << 20


def settles(point: PointId) -> bool:
    """Whether the first of its operations alone are to be left out: where no pause before each is asked for, each byte
    is as it should be more than once, and it costs little, for no CPU cache is to be flushed before each."""
    if point.bytes == 0 or once_only(point) or point.idle_gap_s:
        return False
    return pages_move(point) or {point.src_memory, point.dst_memory} == {"device"}


def waking(point: PointId) -> int:
    """Of one that settles: how many copies to make at once before those that are timed, to keep a link between GPUs
    awake; 0: there is no such link, or one copy does it."""
    if pages_move(point) or point.src == point.dst or point.param("peer") == "off":
        return 0
    if point.param("piece"):  # one such is many copies
        return 0
    count = min(WAKING, WAKING_BYTES // point.bytes)
    return count if count > 1 else 0
