"""Simulated times as points, with the accuracy that the machine file states."""

from collections.abc import Mapping, Sequence

from linkscope.model.known import deviation, unmeasured
from linkscope.model.skeleton import Content
from linkscope.runfile import Point, PointId

LEVEL = 0.9  # a machine file states the error that 90 % of its points do not exceed


def predicted_points(
    content: Content, seconds: Mapping[PointId, float | str], others: Sequence[PointId] = ()
) -> list[Point]:
    """A point for each simulated time, as if a run had measured it; none for a reason. `others`: what ran besides.

    Its interval is the error that 90 % of the points of its kind do not exceed, where the file states one.
    """
    found = []
    for point, value in seconds.items():
        if isinstance(value, str):
            continue
        known = deviation(content, [[one] for one in (point, *others)], bidirectional=False)
        error = float(known[1]["ninety"]) if known else None
        ends = None if error is None else (value / (1 + error), value * (1 + error))
        found.append(
            Point(
                id=str(point), status="ok", benchmark=point.benchmark, engine=point.engine, src=point.src,
                dst=point.dst, src_memory=point.src_memory, dst_memory=point.dst_memory, bytes=point.bytes,
                bidirectional=point.bidirectional, params=dict(point.params), median_s=value, ci95_s=ends,
                precision_target=0.0, ci_level=LEVEL if ends else None, timing="virtual",
            )
        )  # fmt: skip
    return found


def is_predictable(content: Content, point: PointId) -> bool:
    """Whether the model knows this operation. A file that was fitted to a run has a value for every constant, so what
    the run did not measure would come from defaults."""
    if not content["machine"].get("measured"):
        return True
    return not unmeasured(content, point) and deviation(content, [[point]], bidirectional=False) is not None
