"""What the rounds of a point say by themselves, and what points of the same kind say of how much rounds differ."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from linkscope.model.curves import MODE, Method, measured_flows, method_of
from linkscope.runfile import Point
from linkscope.stats import log_variance

_ALIKE = 4  # so many points of a kind say how much points of that kind spread


def rounds_of(point: Point) -> Sequence[float]:
    """Seconds, a value a round, that the point's own value comes from; nothing of a point taken over from another, nor
    where a round has no positive time: what is below the clock's tick has no ratio.

    Of several flows at once: what all their bytes take at the sum of their rates.
    """
    flows = measured_flows(point)
    if point.status not in ("ok", "missed_precision") or not flows:
        return ()
    if any(seconds <= 0 for flow in flows for seconds in flow.round_medians_s):
        return ()
    if len(flows) == 1 or not all(flow.bytes for flow in flows):
        return flows[0].round_medians_s
    size = sum(flow.bytes for flow in flows)
    by_round = zip(*(flow.round_medians_s for flow in flows), strict=True)
    return [size / sum(flow.bytes / s for flow, s in zip(flows, seconds, strict=True)) for seconds in by_round]


class Spreads:
    """How much points of a kind spread between rounds: the same method and size on all paths, else all its sizes."""

    def __init__(self, points: Iterable[Point]) -> None:
        self._by_size: dict[object, list[float]] = defaultdict(list)
        self._by_method: dict[object, list[float]] = defaultdict(list)
        for point in points:
            if len(rounds_of(point)) > 1:
                found = log_variance(rounds_of(point))
                self._by_size[_kind(point), point.bytes].append(found)
                self._by_method[_kind(point)].append(found)

    def of(self, point: Point) -> float | None:
        """The mean variance of logarithms; None where too few are of its kind."""
        for found in (self._by_size[_kind(point), point.bytes], self._by_method[_kind(point)]):
            if len(found) >= _ALIKE:
                return sum(found) / len(found)
        return None


def _kind(point: Point) -> tuple[Method, str]:
    return method_of(point), point.params.get(MODE, "")
