"""Prepares single operations, so that none of the timed ones is the first after a pause."""

from linkscope.plan import once_only, pages_move
from linkscope.runfile import PointId

# The first single operations after a pause, or after a rewrite of their memory, differ from later ones: copies of GPU
# memory by 4 % to 8 %; page migrations take up to twice the time (docs/method/planner.md). This number of samples of
# each request does not count.
SETTLING = 4
MOVING_SAMPLES = 12  # migrations: many samples, so that the uncounted ones are few
# An idle link between GPUs sleeps. On H200, single copies then take 110 us instead of 7 us until a dozen copies woke
# the link. After one batch of this many copies or bytes, all take 7 us (docs/notes/single-copies.md).
WAKING, WAKING_BYTES = 256, 4 << 20


def settles(point: PointId) -> bool:
    """Returns whether the first single operations do not count. They count after an idle gap, if only the first
    access finds the required data, and if each operation needs an expensive cache flush."""
    if point.bytes == 0 or once_only(point) or point.idle_gap_s:
        return False
    return pages_move(point) or {point.src_memory, point.dst_memory} == {"device"}


def waking(point: PointId) -> int:
    """Returns the number of copies in one batch before the timed ones, to keep a link between GPUs awake. 0: no such
    link, or one copy is enough."""
    if pages_move(point) or point.src == point.dst or point.through_host:
        return 0
    if point.param("piece"):  # one operation is already many copies
        return 0
    count = min(WAKING, WAKING_BYTES // point.bytes)
    return count if count > 1 else 0
