"""The methods of one transfer as text: names, ties, and the methods that a list of single copies lacks."""

from collections import Counter
from collections.abc import Iterable, Sequence

from linkscope.advise.methods import TransferMethod, sizes, transfer_methods
from linkscope.model.curves import Method, method_of
from linkscope.model.text import count_text, method_text
from linkscope.runfile import Point
from linkscope.units import format_bytes

_SETTING = ("after", "bidirectional", "clock", "idle_gap_s")  # circumstances of a copy, which are no part of its method
_ONLY_BATCHED = "measured only in batches"


def names(found: Sequence[TransferMethod], *, alone: bool) -> list[str]:
    """The names of methods.

    A batched copy follows another copy of the batch, and the cost of the kernel or wait in front of the batch cancels
    in the slope. So `after` describes a single copy only, and is named for batched copies only where two methods
    differ in nothing else.
    """
    full = [one.curve.method.without(("bidirectional",)) for one in found]
    if alone:
        return [method_text(method) for method in full]
    counts = Counter(method.without(("after",)) for method in full)
    return [method_text(method if counts[short := method.without(("after",))] > 1 else short) for method in full]


def unlisted(points: Iterable[Point], src: str, dst: str, size: int) -> list[tuple[int, str]]:
    """The methods with a time of batched copies and none of a single copy at this size: their number and the reason."""
    listed = list(points)
    single = {_plain(one) for one in transfer_methods(listed, src, dst, size, alone=True)}
    batched = {_plain(one) for one in transfer_methods(listed, src, dst, size)}
    reasons = Counter(_reason(listed, method, src, dst, size) for method in batched - single)
    return [(count, reason) for reason, count in sorted(reasons.items(), key=lambda pair: (-pair[1], pair[0]))]


def unlisted_text(count: int, reason: str) -> str:
    """'3 methods are not listed: not measured as single copies above 16 MiB'."""
    return f"{count_text(count, 'method')} {'is' if count == 1 else 'are'} not listed: {reason}"


def _plain(one: TransferMethod) -> Method:
    return one.curve.method.without(_SETTING)


def _reason(points: Iterable[Point], method: Method, src: str, dst: str, size: int) -> str:
    found = sizes([p for p in points if method_of(p).without(_SETTING) == method], src, dst, alone=True)
    if not found:
        return _ONLY_BATCHED
    if size > found[-1]:
        return f"not measured as single copies above {format_bytes(found[-1])}"
    if size < found[0]:
        return f"not measured as single copies below {format_bytes(found[0])}"
    return "not measured as single copies near this size"
